//! The sidecar as a client of its server: just enough of one.

mod again;
mod describe;
mod discover;
mod error;
mod listen;
mod wire;

use std::collections::HashSet;
use std::rc::Rc;

use http::HeaderValue;
use longshore_mcp::envelope::Request;
use longshore_mcp::initialize::Handshake;
use longshore_mcp::listing;
use longshore_mcp::method::{List, Method as McpMethod};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::handshake::INITIALIZED;
use longshore_sidecar_config::Upstream;
use longshore_sidecar_config::inventory::{self, ServerDescription};
use serde_json::{Value, json};
use tokio::time::Duration;

use crate::upstream::letter::own_info;
use crate::upstream::{Hold, Opener, Pool};
use describe::describe;
pub(super) use discover::{Discovery, may_have_no_handshake};
pub(crate) use error::CallError;
use error::quote;
pub(super) use listen::News;

/// The most that is read of one answer.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// The most that is read of all pages of all lists: what an inventory has room for, with some for how it writes them.
pub(super) const MAX_OFFER: usize = inventory::LONGEST / 4 * 3;
/// Bounds of a list.
const MAX_PAGES: usize = 200;
const MAX_ENTRIES: usize = 10_000;

/// Whom a handshake is with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    /// The server, whatever it is known to speak.
    Itself,
    /// A server with sessions, whatever the server is.
    Sessions,
}

/// A session with the server.
pub(crate) struct Server {
    upstream: Upstream,
    pool: Rc<Pool>,
    /// The one revision that is spoken with it, if that is said and not found out.
    pin: Option<Revision>,
    /// For whom it is.
    opener: Opener,
    session: Option<HeaderValue>,
    /// Whom it is with.
    face: Face,
    /// What the session costs at the server; given back when nobody looks after the server any more.
    hold: Option<Hold>,
    revision: Option<Revision>,
}

impl Server {
    /// The sidecar's own.
    pub(super) fn new(upstream: Upstream, pool: Rc<Pool>) -> Self {
        Self::of(upstream, pool, Opener::Own)
    }

    /// Somebody's.
    pub(crate) fn of(upstream: Upstream, pool: Rc<Pool>, opener: Opener) -> Self {
        Self {
            upstream,
            pool,
            pin: None,
            opener,
            session: None,
            face: Face::Sessions,
            hold: None,
            revision: None,
        }
    }

    /// The same server, with another session.
    pub(super) fn another(&self) -> Self {
        Self::new(self.upstream.clone(), self.pool.clone()).pinned(self.pin)
    }

    /// The same where this revision is spoken and no other.
    pub(crate) fn pinned(self, pin: Option<Revision>) -> Self {
        Self { pin, ..self }
    }

    /// The one revision that is spoken with it, if there is one.
    pub(super) fn pin(&self) -> Option<Revision> {
        self.pin
    }

    /// How long its next handshake may take.
    pub(super) fn handshake_patience(&self) -> Duration {
        self.pool.handshake_patience(&self.upstream)
    }

    /// Notes that it has answered for the first time within so long of its start, if that began with a process.
    pub(super) fn started_within(&self, took: Duration) {
        self.pool.started_within(&self.upstream, took);
    }

    /// The way to it.
    pub(super) fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    /// Which server it is.
    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The handshake with the server itself, or with what stands before one that has none, and the revision that came
    /// of it.
    pub(super) async fn initialize(
        &mut self,
        face: Face,
    ) -> Result<(Revision, ServerDescription), CallError> {
        let pin = self.pin.filter(|pin| pin.features().handshake);
        let params = |revision: Revision| {
            json!({
                "protocolVersion": revision.as_str(),
                "capabilities": {},
                "clientInfo": own_info(),
            })
        };
        let asked = pin.unwrap_or(Revision::NEWEST_WITH_INITIALIZE);
        let result = match self.open(face, params(asked)).await {
            // Some servers refuse a revision that they do not speak, instead of choosing one. Few say which they do.
            Err(error) => match (error.named_instead(asked), pin) {
                (Some(other), Some(pin)) => {
                    return Err(CallError::Pinned { pin, speaks: other.as_str().to_owned() });
                }
                (Some(other), None) => self.open(face, params(other)).await?,
                (None, Some(_)) => return Err(error),
                (None, None) => {
                    let is_process = matches!(self.upstream, Upstream::Stdio {});
                    let older = error.older_instead(asked, is_process).into_iter().map(params).collect();
                    self.open_older(face, older, error).await?
                }
            },
            Ok(result) => result,
        };
        let handshake: Handshake =
            serde_json::from_str(&result).map_err(|_| self.not_mcp("initialize has no usable result"))?;
        // Whether it is of use or not: the server may refuse to be told anything in another one.
        self.revision = Revision::parse(&handshake.protocol_version);
        if let Some(pin) = pin.filter(|pin| pin.as_str() != handshake.protocol_version) {
            return Err(CallError::Pinned { pin, speaks: quote(&handshake.protocol_version) });
        }
        let revision = self
            .revision
            .filter(|revision| revision.features().handshake)
            .ok_or_else(|| CallError::Revision(quote(&handshake.protocol_version)))?;
        self.tell(INITIALIZED.to_owned()).await?;
        Ok((revision, describe(handshake)))
    }

    /// Tries these handshakes in turn, after one was refused.
    async fn open_older(
        &mut self,
        face: Face,
        handshakes: Vec<Value>,
        refused: CallError,
    ) -> Result<String, CallError> {
        if handshakes.is_empty() {
            return Err(refused);
        }
        for handshake in handshakes {
            match self.open(face, handshake).await {
                Err(CallError::Rpc { .. } | CallError::Status { .. }) => {}
                opened => return opened,
            }
        }
        Err(CallError::OlderToo(Box::new(refused)))
    }

    /// Asks whether the server is there. Any answer says that it is.
    pub(super) async fn ping(&self) -> Result<(), CallError> {
        match self.call(McpMethod::Ping, json!({})).await {
            // One that has no time has not looked at the session, nor at what it is asked.
            Err(error) if error.is_busy() => Err(error),
            Ok(_) | Err(CallError::Rpc { status: 200..=299, .. }) => Ok(()),
            // One that knows no pings says so, and so does one that is of another era by now.
            Err(error @ CallError::Rpc { code: -32601, .. }) => Err(error),
            // What servers say of a session that they do not know differs; the next handshake tells.
            Err(CallError::Rpc { .. } | CallError::Status { status: 400..=499, .. }) => {
                Err(CallError::SessionGone)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a list to its end, or to the bounds: each entry once, and of all lists together no more than there is room.
    pub(super) async fn list(&self, list: List, room: &mut usize) -> Result<Vec<Box<str>>, CallError> {
        let mut entries = Vec::new();
        let (mut names, mut cursors) = (HashSet::new(), HashSet::new());
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let result = match self.call(list.method(), params).await {
                Ok(result) => result,
                // A server may say that it has resources and know nothing of their templates.
                Err(CallError::Rpc { code: -32601, .. }) => return Ok(entries),
                Err(error) => return Err(error),
            };
            let page = listing::page(&result, list).map_err(|_| self.not_mcp("the list is no list"))?;
            // Numbers may be longer as they are kept.
            let length = page.entries.iter().map(|entry| entry.len()).sum::<usize>().max(result.len());
            let Some(left) = room.checked_sub(length) else {
                tracing::warn!(list = list.member(), MAX_OFFER, "the server's lists are too long and cut");
                return Ok(entries);
            };
            *room = left;
            let (before, given) = (entries.len(), page.entries.len());
            for entry in page.entries {
                if listing::name(&entry, list).is_none_or(|name| names.insert(name)) {
                    entries.push(entry);
                }
            }
            let new = entries.len() - before;
            if new < given {
                tracing::debug!(
                    list = list.member(),
                    twice = given - new,
                    "the server lists some entries twice"
                );
            }
            if entries.len() > MAX_ENTRIES {
                tracing::warn!(list = list.member(), MAX_ENTRIES, "the server's list is cut");
                entries.truncate(MAX_ENTRIES);
                return Ok(entries);
            }
            match page.next_cursor {
                // Who goes in circles, or gives one page for every cursor, has said all.
                Some(next) if cursors.insert(next.clone()) && (new > 0 || given == 0) => cursor = Some(next),
                Some(_) | None => return Ok(entries),
            }
        }
        tracing::warn!(
            list = list.member(),
            MAX_PAGES,
            "the server's list has too many pages, the rest is left out"
        );
        Ok(entries)
    }

    /// Answers what the server asks. It was told that nothing can be asked but whether anybody is there.
    async fn reply(&self, request: &Request<'_>) {
        let id = request.id.as_json();
        let text = if request.method.as_str() == McpMethod::Ping.as_str() {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")
        } else {
            let code = longshore_mcp::error::Code::MethodNotFound;
            longshore_mcp::error::response(Some(request.id), code, "Method not found", None)
        };
        if let Err(error) = self.tell(text).await {
            tracing::debug!(%error, "the server's question could not be answered");
        }
    }
}
