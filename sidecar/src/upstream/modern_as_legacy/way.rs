//! How the requests of a session get to the server: each with the headers that say what its body says.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use longshore_mcp::headers::argument::{self, Marked};
use longshore_mcp::headers::standard;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::Method;
use longshore_mcp::probe::{self, Verdict};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::handshake;
use longshore_mcp::translate::requests::Client;
use longshore_sidecar_config::Upstream;
use tokio::time::Instant;

use super::Failure;
use super::registry::ModernAsLegacy;
use super::session::Session;
use super::source::Source;
use crate::upstream::letter::{Repeated, Trace, own_info};
use crate::upstream::{Failure as Any, Opener, Post, Speaks, Transport};

/// The id of requests that the sidecar makes on its own account, as JSON. Each stands alone, so they may share it.
pub(super) const OWN_ID: &str = "\"longshore\"";

/// The way of one session's requests.
pub(super) struct Way {
    pub(super) modern_as_legacy: Arc<ModernAsLegacy>,
    pub(super) session: Arc<Session>,
    server: Server,
}

/// The server, for whoever has no session with it yet.
#[derive(Clone)]
pub(super) struct Server {
    transport: Rc<Transport>,
    pub(super) speaks: Arc<Speaks>,
    upstream: Upstream,
    /// What travels along with what a client says.
    trace: Trace,
}

impl Way {
    pub(super) fn new(
        modern_as_legacy: &Arc<ModernAsLegacy>,
        transport: &Rc<Transport>,
        speaks: &Arc<Speaks>,
        upstream: &Upstream,
        session: Arc<Session>,
        trace: Trace,
    ) -> Self {
        Self {
            modern_as_legacy: modern_as_legacy.clone(),
            session,
            server: Server::new(transport, speaks, upstream, trace),
        }
    }

    /// Sends a request, and waits for the head of what comes back.
    pub(super) async fn call(&self, body: Bytes, repeated: &Repeated) -> Result<Source, Any> {
        let opener = self.modern_as_legacy.opener(&self.session);
        self.server.call(&opener, self.session.pair.server, body, repeated).await
    }

    /// Whether a server that was not found is waited for, in the middle of a call.
    pub(super) fn is_soon_back(&self) -> bool {
        // Whoever watches it is to know it too.
        self.server.transport.doubt.raise();
        self.modern_as_legacy.absence.is_short(Instant::now())
    }

    /// Whether the server is known to have sessions of its own by now and nothing else, and this is none of them.
    pub(super) fn is_of_another(&self) -> bool {
        self.server.speaks.get().is_some_and(|spoken| spoken.legacy.is_some() && spoken.modern.is_none())
    }

    /// A request of the session's client that is held whole from now on beside what it has `said`, if there is room for it.
    pub(super) fn hold_beside(&self, said: &str, request: Bytes) -> Result<Bytes, Failure> {
        let opener = self.modern_as_legacy.opener(&self.session);
        Ok(self.server.transport.hold_beside(said, &opener, request)?)
    }

    /// What is put to the session's client, each message held whole from now on, if there is room for all of them.
    pub(super) fn hold(&self, messages: Vec<String>) -> Option<Vec<Bytes>> {
        let hold = |message: String| self.server.transport.hold(&self.session.opener, message.into());
        messages.into_iter().map(hold).collect()
    }

    /// Whether arguments of tools are repeated in headers that this server sees.
    pub(super) fn has_headers(&self) -> bool {
        !matches!(self.server.upstream, Upstream::Stdio {})
    }

    /// Asks who the server is. Says whether it is one of this era still; if it is not, that is not known any more.
    pub(super) async fn is_modern(&self) -> Result<bool, Any> {
        let opener = self.modern_as_legacy.opener(&self.session);
        let found = self.server.discover_plainly(&opener, self.session.pair.server).await?;
        let is_other = found.verdict == Verdict::Legacy;
        if is_other {
            self.server.speaks.set(None);
        }
        Ok(!is_other)
    }
}

/// What a server says of itself.
pub(super) struct Found {
    pub(super) status: u16,
    /// The whole message, if there was one.
    pub(super) message: Option<String>,
    pub(super) verdict: Verdict,
}

impl Server {
    pub(super) fn new(
        transport: &Rc<Transport>,
        speaks: &Arc<Speaks>,
        upstream: &Upstream,
        trace: Trace,
    ) -> Self {
        let (transport, speaks) = (transport.clone(), speaks.clone());
        Self { transport, speaks, upstream: upstream.clone(), trace }
    }

    /// Sends a request for somebody.
    pub(super) async fn call(
        &self,
        opener: &Opener,
        revision: Revision,
        body: Bytes,
        repeated: &Repeated,
    ) -> Result<Source, Any> {
        let (trace, repeated) = (self.trace.clone(), repeated.clone());
        self.send(opener, Post { body, revision: Some(revision), trace, repeated }).await
    }

    async fn send(&self, opener: &Opener, post: Post) -> Result<Source, Any> {
        let answer = self.transport.call(&self.upstream, opener, post).await?;
        Source::new(answer, self.transport.coming_for(opener))
    }

    /// Asks who the server is. No trace travels along: what a server thinks of that must not be taken for what it is.
    pub(super) async fn discover(
        &self,
        opener: &Opener,
        revision: Revision,
        client: &Client<'_>,
    ) -> Result<Found, Any> {
        let client = Client { level: None, ..*client };
        let body = handshake::discover(OWN_ID, revision, &client);
        let repeated = repeat(Method::ServerDiscover, &Outline::default(), None);
        let post = Post { revision: Some(revision), repeated, ..Post::of(body) };
        let mut source = self.send(opener, post).await?;
        let status = source.status.as_u16();
        let message = source.answer(OWN_ID).await?;
        source.finish();
        let verdict = match &self.upstream {
            Upstream::Stdio {} => probe::over_stdio(message.as_deref()),
            _ => probe::over_http(status, message.as_deref()),
        };
        Ok(Found { status, message, verdict })
    }

    /// The same in words that no client has a part in: what all are told of the server must not depend on what one of them
    /// says of itself. They are those that it was asked in at first.
    pub(super) async fn discover_plainly(&self, opener: &Opener, revision: Revision) -> Result<Found, Any> {
        let info = own_info().to_string();
        self.discover(opener, revision, &Client { capabilities: "{}", info: Some(&info), level: None }).await
    }
}

/// The headers that repeat what a request says, those of a tool's arguments included.
pub(super) fn repeat(method: Method, outline: &Outline<'_>, marked: Option<&[Marked]>) -> Repeated {
    let standard = standard::headers(method, outline).into_iter();
    let standard = standard.map(|(name, value)| (Ok(HeaderName::from_static(name)), value));
    let arguments = argument::headers(marked.unwrap_or_default(), outline.arguments()).into_iter();
    let arguments = arguments.map(|(name, value)| (HeaderName::try_from(name), value));
    // What is no header in spite of all is left to the server to miss.
    let header =
        |(name, value): (Result<_, _>, String)| Some((name.ok()?, HeaderValue::try_from(value).ok()?));
    standard.chain(arguments).filter_map(header).collect()
}

impl From<Failure> for Any {
    fn from(failure: Failure) -> Self {
        Self::ModernAsLegacy(failure)
    }
}
