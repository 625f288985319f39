//! Where a request goes, and for whom.

use std::rc::Rc;
use std::sync::Arc;

use longshore_mcp::revision::Revision;
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sidecar_config::Upstream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::LegacyAsModern;
use super::asked::Asked;
use super::failure::Failure as Unusable;
use super::sessions::{Bounds, Lease, Purpose, Wanted};
use crate::upstream::{Failure, Opener, Transport};

/// The way of one request.
pub(super) struct Way {
    pub(super) legacy_as_modern: Arc<LegacyAsModern>,
    pub(super) transport: Rc<Transport>,
    pub(super) upstream: Upstream,
    pub(super) opener: Opener,
    /// The newest revision with a handshake that the server speaks.
    pub(super) speaks: Revision,
    /// Counts the servers that were configured; it has seen the one that this leads to.
    servers: watch::Receiver<u64>,
}

impl Way {
    pub(super) fn new(
        legacy_as_modern: &Arc<LegacyAsModern>,
        transport: &Rc<Transport>,
        upstream: &Upstream,
        speaks: Revision,
        opener: &Opener,
    ) -> Self {
        Self {
            servers: legacy_as_modern.servers.subscribe(),
            legacy_as_modern: legacy_as_modern.clone(),
            transport: transport.clone(),
            upstream: upstream.clone(),
            opener: opener.clone(),
            speaks,
        }
    }

    /// A session for a request.
    pub(super) async fn lease(&self, asked: &Arc<Asked>, purpose: Purpose) -> Result<Lease, Failure> {
        let snapshot = self.legacy_as_modern.snapshot().ok_or(Unusable::Internal)?;
        let bounds = Bounds::of(&snapshot.config.sessions);
        let patience = self.transport.opening_patience(&snapshot.config);
        let wanted = Wanted { asked, speaks: self.speaks, purpose, bounds, patience };
        self.legacy_as_modern.sessions.lease(&self.transport, &self.upstream, &self.opener, wanted).await
    }

    /// Whether such calls cannot share a session, as far as is known of the server.
    pub(super) fn parts_calls(&self, asked: &Asked) -> bool {
        self.legacy_as_modern.sessions.part_calls(asked)
    }

    /// Whether a server that was not found is waited for, in the middle of a call.
    pub(super) fn is_soon_back(&self) -> bool {
        // Whoever watches it is to know it too.
        self.transport.doubt.raise();
        self.legacy_as_modern.absence.is_short(Instant::now())
    }

    /// Whose request it is.
    pub(super) fn principal(&self) -> PrincipalDigest {
        PrincipalDigest::of(self.opener.principal().map_or("", |principal| principal))
    }

    /// Returns when another server is configured.
    pub(super) async fn left(&self) {
        let mut servers = self.servers.clone();
        // The other end lives as long as this does.
        let _ = servers.changed().await;
    }
}
