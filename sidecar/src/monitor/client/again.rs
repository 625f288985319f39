//! A client's session, begun again: what the client itself would have to do, without its noticing.

use http::HeaderValue;
use longshore_mcp::initialize::Handshake;
use longshore_mcp::method::Method as McpMethod;
use longshore_mcp::revision::Revision;
use serde_json::{Value, json};
use tokio::time::error::Elapsed;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::{CallError, Face, Server, quote};
use crate::sessions::Change;
use crate::upstream::letter::own_info;
use crate::upstream::{Hold, Letter};

/// The most that is read of what a server says to what a client had set: nobody needs it.
const MAX_SAID: usize = 64 * 1024;
/// How long a server is left alone that has no time now.
const BREATHER: Duration = Duration::from_secs(1);

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
            "clientInfo": own_info(),
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

    /// One thing that the client has set. That the server does not take it, says nothing of it for so long, or has forgotten
    /// the session, says nothing of the others, and is taken for its answer; silence is none if it `takes_back` what nobody
    /// waits for any more. One that has no time for it now, or is not there, is asked once more until then. Says whether it
    /// had time; an error: it was not there.
    pub(crate) async fn set(
        &self,
        change: &Change,
        patience: Duration,
        latest: Instant,
        takes_back: bool,
    ) -> Result<bool, CallError> {
        let (method, params) = match change {
            Change::LogLevel(level) => (McpMethod::LoggingSetLevel, json!({"level": level})),
            Change::Subscribe(uri) => (McpMethod::ResourcesSubscribe, json!({"uri": uri})),
            Change::Unsubscribe(uri) => (McpMethod::ResourcesUnsubscribe, json!({"uri": uri})),
        };
        let ask = || timeout(patience, self.call_for(method, params.clone(), MAX_SAID));
        until_set(method, ask, latest, takes_back).await
    }

    /// Ends it.
    pub(crate) async fn end(self) {
        let Some(id) = self.session.clone() else { return };
        // It may have been opened in a revision that nobody knows here.
        let revision = self.revision.unwrap_or(Revision::NEWEST_WITH_INITIALIZE);
        if let Err(error) = self.send(Letter::End(id, revision)).await {
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

/// The same, however it is asked.
async fn until_set<F>(
    method: McpMethod,
    ask: impl Fn() -> F,
    latest: Instant,
    takes_back: bool,
) -> Result<bool, CallError>
where
    F: Future<Output = Result<Result<String, CallError>, Elapsed>>,
{
    loop {
        match ask().await {
            Ok(Err(error)) if error.has_no_time() => {
                if Instant::now() + BREATHER > latest {
                    return if error.is_answer() { Ok(false) } else { Err(error) };
                }
                sleep(BREATHER).await;
            }
            Ok(Err(CallError::TooLarge)) => return Ok(true),
            Ok(Err(error)) if error.is_answer() || matches!(error, CallError::SessionGone) => {
                tracing::debug!(method = method.as_str(), %error, "the server does not take what a client had set");
                return Ok(true);
            }
            Ok(said) => return said.map(|_| true),
            Err(_) => {
                tracing::debug!(
                    method = method.as_str(),
                    "the server does not say whether it takes what a client had set"
                );
                return Ok(!takes_back);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_an_answer_unless_what_was_asked_for_is_taken_back_with_it() {
        for takes_back in [false, true] {
            let ask = || timeout(BREATHER, pending());
            let set = until_set(McpMethod::ResourcesSubscribe, ask, Instant::now(), takes_back).await;
            assert_eq!(set.ok(), Some(!takes_back));
        }
    }
}
