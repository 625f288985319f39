//! A client's session, begun again: what the client itself would have to do, without its noticing.

use std::cell::Cell;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderValue, Method};
use longshore_mcp::initialize::Handshake;
use longshore_mcp::method::Method as McpMethod;
use longshore_mcp::revision::Revision;
use longshore_sessions::message::Copy;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep, timeout};

use super::{CallError, Face, Server, quote};
use crate::upstream::Hold;
use crate::upstream::request;

/// How many resources are asked for side by side: whoever waits for that waits for all of them.
const AT_ONCE: usize = 4;
/// How long a server is left alone that has no time now.
const BREATHER: Duration = Duration::from_secs(1);

/// How long a server is waited for, with each thing that it is told.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// Until it answers.
    pub(crate) answer: Duration,
    /// Until it has time for it, or is there.
    pub(crate) time: Duration,
}

/// How far what a client had set has been said, whatever ends that.
#[derive(Default)]
pub(crate) struct Said {
    count: Cell<usize>,
    put_off: Cell<bool>,
}

impl Said {
    /// How many things have been said.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Whether the server has no time for something.
    pub(crate) fn has_put_off(&self) -> bool {
        self.put_off.get()
    }
}

impl Server {
    /// The handshake, for a client that can do this, as JSON, and speaks this revision. Another revision is an error:
    /// the client was told this one.
    pub(crate) async fn begin_again(
        &mut self,
        revision: Revision,
        capabilities: &str,
    ) -> Result<(), CallError> {
        let capabilities: Value = serde_json::from_str(capabilities).unwrap_or_else(|_| json!({}));
        let params = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": capabilities,
            "clientInfo": request::own_info(),
        });
        let result: Handshake = serde_json::from_str(&self.open(Face::Sessions, params).await?)
            .map_err(|_| self.not_mcp("initialize has no usable result"))?;
        let chosen = result.protocol_version;
        self.revision = Revision::parse(&chosen).or(Some(revision));
        if chosen != revision.as_str() {
            return Err(CallError::Revision(quote(&chosen)));
        }
        self.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await
    }

    /// Takes it as it is: the session that it calls so, or one that gives its clients none, greeted in this revision.
    pub(crate) fn in_session(self, session: Option<HeaderValue>, revision: Revision) -> Self {
        Self { session, revision: Some(revision), ..self }
    }

    /// What the client had set, as far as the server takes it. An error: the server is not there for the rest.
    pub(crate) async fn set_again(
        &self,
        copy: &Copy,
        patience: Patience,
        said: &Said,
    ) -> Result<(), CallError> {
        let set = async |method, params| {
            // Where there is no time for one it is all said once more, so others are not waited for.
            let time = if said.has_put_off() { Duration::ZERO } else { patience.time };
            match self.set(method, params, Patience { time, ..patience }).await {
                Ok(()) => said.count.set(said.count.get() + 1),
                // That says nothing of the others.
                Err(error) if error.is_answer() => {
                    tracing::debug!(%error, "the server has no time for what a client had set");
                    said.put_off.set(true);
                }
                Err(error) => return Err(error),
            }
            Ok(())
        };
        if let Some(level) = copy.log_level {
            set(McpMethod::LoggingSetLevel, json!({"level": level})).await?;
        }
        let uris = stream::iter(&copy.subscriptions).map(Ok);
        let subscribe = |uri| set(McpMethod::ResourcesSubscribe, json!({"uri": uri}));
        uris.try_for_each_concurrent(AT_ONCE, subscribe).await
    }

    /// What the client has set otherwise since that was said. An error: the server is not there for it, or has no time.
    pub(crate) async fn set_otherwise(
        &self,
        said: &Copy,
        now: &Copy,
        patience: Patience,
    ) -> Result<(), CallError> {
        if let Some(level) = now.log_level.filter(|_| now.log_level != said.log_level) {
            self.set(McpMethod::LoggingSetLevel, json!({"level": level}), patience).await?;
        }
        let left = stream::iter(said.subscriptions.difference(&now.subscriptions)).map(Ok);
        let leave = |uri| self.set(McpMethod::ResourcesUnsubscribe, json!({"uri": uri}), patience);
        left.try_for_each_concurrent(AT_ONCE, leave).await?;
        // What it says itself may have come before what was said for it.
        let new = stream::iter(now.subscriptions.difference(&said.subscriptions)).map(Ok);
        let subscribe = |uri| self.set(McpMethod::ResourcesSubscribe, json!({"uri": uri}), patience);
        new.try_for_each_concurrent(AT_ONCE, subscribe).await
    }

    /// One thing of it. That the server does not take it, or says nothing of it, says nothing of the others. One that has no
    /// time for it now, or is not there, is asked once more for so long.
    async fn set(&self, method: McpMethod, params: Value, patience: Patience) -> Result<(), CallError> {
        let latest = Instant::now() + patience.time;
        loop {
            match timeout(patience.answer, self.call(method, params.clone())).await {
                Ok(Err(error)) if error.has_no_time() => {
                    if Instant::now() + BREATHER > latest {
                        return Err(error);
                    }
                    sleep(BREATHER).await;
                }
                Ok(Err(error)) if error.is_answer() => {
                    tracing::debug!(method = method.as_str(), %error, "the server does not take what a client had set");
                    return Ok(());
                }
                Ok(said) => return said.map(drop),
                Err(_) => {
                    tracing::debug!(
                        method = method.as_str(),
                        "the server does not say whether it takes what a client had set"
                    );
                    return Ok(());
                }
            }
        }
    }

    /// Ends it.
    pub(crate) async fn end(self) {
        if self.session.is_none() {
            return;
        }
        // It may have been opened in a revision that nobody knows here.
        let revision = self.revision.unwrap_or(Revision::NEWEST_WITH_INITIALIZE);
        let request = request::build(Method::DELETE, Some((self.session.clone(), revision)), Bytes::new());
        if let Err(error) = self.send(request).await {
            tracing::debug!(%error, "the server could not be told that a session has ended");
        }
    }

    /// What the server calls it, and what it costs there.
    pub(crate) fn into_session(mut self) -> (Option<HeaderValue>, Hold) {
        let session = self.session.take().map(|mut id| {
            id.set_sensitive(true);
            id
        });
        (session, self.hold.take().unwrap_or_else(Hold::nothing))
    }
}
