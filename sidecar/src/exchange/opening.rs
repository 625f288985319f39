//! The answer to a handshake, with which a session begins.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use longshore_mcp::envelope::{self, Message, Outcome};
use longshore_mcp::error::{self, Code};
use longshore_mcp::object::{self, Object};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::{Way, handshake};
use longshore_mcp::{initialize, sse};
use longshore_sessions::bounds::MAX_CAPABILITIES;
use longshore_sessions::capsule;
use longshore_sidecar_config::Upstream;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::Client;
use super::edit::edit;
use super::{Call, Done, Edit, carry, request};
use crate::metrics::SessionEnd;
use crate::refusal::Refusal;
use crate::sessions::{Opened, Place, Session};
use crate::stack::respond::{self, Body};
use crate::stack::{standing, translate};
use crate::upstream::{Also, Hold};

/// A session that is being opened.
pub(super) struct Opening {
    /// Taken when it is opened.
    place: Option<Place>,
    /// What the server calls it.
    upstream: Option<HeaderValue>,
    /// The server itself knows nothing of it.
    kept_here: bool,
    /// What it costs at the server: given back, unless the session is opened.
    hold: Option<Hold>,
}

impl Opening {
    pub(super) fn new(place: Place, also: Also, hold: Option<Hold>) -> Self {
        let kept_here = matches!(also, Also::BeginsHere(_));
        Self { place: Some(place), upstream: also.session(), kept_here, hold }
    }

    /// Reads the server's answer to `initialize`, opens the session and tells the client.
    pub(super) async fn finish(
        &mut self,
        call: &Call,
        client: &mut Client,
        before: &[Vec<u8>],
        message: &Bytes,
    ) -> Result<Done, Refusal> {
        let status = StatusCode::OK.as_u16();
        let edited = edit(call, message)?.ok_or(Refusal::ServerNonsense)?;
        let message = edited.text.map_or_else(|| message.clone(), Bytes::from);
        if let Some(code) = edited.code {
            // There is no session that anything before it could belong to.
            client.respond(respond::json(Body::whole(message), None));
            return Ok(Done { status, code: Some(code), rest: None });
        }
        let text = std::str::from_utf8(&message).map_err(|_| Refusal::ServerNonsense)?;
        let accepted = initialize::accepted(text, call.revision).map_err(|_| Refusal::ServerNonsense)?;
        // Where one revision is said, a server that chooses another is not served.
        let pin = call.snapshot.protocol.filter(|pin| pin.features().handshake);
        let known =
            translate::chosen(&accepted.version).filter(|chosen| pin.is_none_or(|pin| pin == *chosen));
        let accepted_text = accepted.rewritten.as_deref().unwrap_or(text);
        let way = Way { from: known.unwrap_or(call.revision), to: call.revision };
        let said = carried(way, accepted_text)?;
        // A session that the client never hears of would stay open at the server.
        let opened = Opened {
            upstream: self.upstream.clone(),
            kept_here: self.kept_here,
            revision: way.to,
            server_revision: way.from,
            capabilities: capabilities(&call.body),
        };
        let sessions = &call.worker.shared.sessions;
        let place = self.place.take().ok_or(Refusal::Internal)?;
        let (session, id) = sessions.open(place, opened, &call.snapshot).map_err(|_| Refusal::Internal)?;
        // From here on whoever ends the session tells the server.
        self.upstream = None;
        if let Some(hold) = self.hold.take() {
            hold.keep();
        }
        let delivered = known.is_some() && {
            let body = said.or(accepted.rewritten).map_or_else(|| message.clone(), Bytes::from);
            client.respond(respond(heard(call, &session, before), body, id))
        };
        if !delivered {
            sessions.end(&session, SessionEnd::Unheard);
            request::end_upstream(&call.worker.pool, &call.snapshot, &session).await;
        }
        match known {
            Some(_) => Ok(Done { status, code: None, rest: None }),
            None => Err(Refusal::ServerRevision { version: accepted.version }),
        }
    }

    /// Ends what the server has begun, if it has not become a session here.
    pub(super) fn leave(self, call: &Call) {
        if let (Some(id), false, Upstream::StreamableHttp { .. }) =
            (self.upstream, self.kept_here, &call.snapshot.config.upstream)
        {
            request::end_unopened(call, id);
        }
    }
}

/// The handshake as it is made once more, where the server has refused it with this answer, for a client of an older revision
/// than its own: most choose another one then, and some want to be asked for it. None: it was refused for something else, or
/// is to be asked for no other.
pub(super) fn again(call: &Call, answer: &[u8]) -> Option<Bytes> {
    if call.edit != Edit::OpenSession || call.snapshot.protocol.is_some() {
        return None;
    }
    let Ok(Message::Response(response)) = envelope::read_servers(answer) else { return None };
    let Outcome::Error(error) = response.outcome else { return None };
    let newest = call.worker.pool.speaks().get()?.legacy?;
    let code = error::code_of(error.get()).and_then(Code::of);
    let is_of_revisions = matches!(code, Some(Code::InvalidParams | Code::UnsupportedProtocolVersion));
    if !is_of_revisions && !error.get().contains(newest.as_str()) {
        return None;
    }
    let asked = std::str::from_utf8(&call.body).ok()?;
    let version = object::at(asked, &["params", "protocolVersion"]).and_then(object::string)?;
    let older = Revision::parse(&version).filter(|older| *older < newest)?;
    let other = handshake::offer(Way { from: older, to: newest }, asked).ok()?;
    call.hold(other.into_owned().into())
}

/// What the client hears of what came before the answer, as it would in a call: as events.
fn heard(call: &Call, session: &Session, before: &[Vec<u8>]) -> Vec<u8> {
    let mut events = Vec::new();
    for message in before {
        if standing::may_hear(&call.worker.shared, &call.caller.principal, message)
            && let Some(message) = carry::heard(call, session, message)
        {
            sse::write_message(&mut events, &message);
        }
    }
    events
}

fn respond(before: Vec<u8>, answer: Bytes, session: HeaderValue) -> Response<Body> {
    if before.is_empty() {
        respond::json(Body::whole(answer), Some(session))
    } else {
        let events = [before, sse::message(&answer)].concat();
        respond::events(Body::whole(events), Some(session))
    }
}

/// The answer in the revision of the client; none if it is the server's too.
fn carried(way: Way, message: &str) -> Result<Option<String>, Refusal> {
    if way.is_same() {
        return Ok(None);
    }
    let mut response = Object::read(message).map_err(|_| Refusal::ServerNonsense)?;
    response.edit("result", |result| handshake::accept(way, result))?;
    // Written by servers that write both, and left out of their other answers too.
    response.remove_null("error");
    Ok(Some(response.write()))
}

/// What the client can do, in the words that the server heard. What is no object there is as good as nothing, and so is
/// what is too much to be kept: such a session cannot be begun again.
fn capabilities(body: &[u8]) -> Option<Arc<str>> {
    #[derive(Deserialize)]
    struct Initialize<'a> {
        #[serde(borrow)]
        params: Params<'a>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        capabilities: Option<&'a RawValue>,
    }
    let Initialize { params } = serde_json::from_slice(body).ok()?;
    let Some(said) = params.capabilities else { return Some("{}".into()) };
    let kept = capsule::canonical(said.get()).filter(|said| said.len() <= MAX_CAPABILITIES);
    if kept.is_none() {
        tracing::debug!(
            bytes = said.get().len(),
            "what a client can do is not kept: it is too much, or no object"
        );
    }
    kept
}
