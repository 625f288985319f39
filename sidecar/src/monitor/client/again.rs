//! A client's session, begun again: what the client itself would have to do, without its noticing.

use bytes::Bytes;
use http::{HeaderValue, Method};
use longshore_mcp::initialize::Handshake;
use longshore_mcp::method::Method as McpMethod;
use longshore_mcp::revision::Revision;
use longshore_sessions::message::Copy;
use serde_json::{Value, json};

use super::{CallError, Face, Server, quote};
use crate::upstream::Hold;
use crate::upstream::request;

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

    /// Takes it as it is: one that gives its clients no sessions, and was greeted in this revision.
    pub(crate) fn without_session(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    /// What the client had set.
    pub(crate) async fn set_again(&self, copy: &Copy) -> Result<(), CallError> {
        if let Some(level) = copy.log_level {
            self.call(McpMethod::LoggingSetLevel, json!({"level": level})).await?;
        }
        for uri in &copy.subscriptions {
            self.call(McpMethod::ResourcesSubscribe, json!({"uri": uri})).await?;
        }
        Ok(())
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
