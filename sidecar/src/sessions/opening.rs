//! How a session begins here, and how the names of other things are sealed as session ids are.

use std::sync::Arc;

use http::HeaderValue;
use longshore_mcp::revision::Revision;
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::{Capsule, Peer, ServerSession, SessionKey};

use super::{Place, Session, Sessions, is_too_old, max_age, unix};
use crate::configuration::Snapshot;

/// What is known of a session that begins.
pub(crate) struct Opened {
    /// What the server calls it.
    pub(crate) upstream: Option<HeaderValue>,
    /// Whether the server itself knows nothing of it.
    pub(crate) kept_here: bool,
    /// The revision that its client speaks.
    pub(crate) revision: Revision,
    /// The revision that the server speaks in it.
    pub(crate) server_revision: Revision,
    /// What the client can do, as canonical JSON.
    pub(crate) capabilities: Option<Arc<str>>,
}

/// There are no random numbers, or the id could not be sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoId;

impl Sessions {
    /// Opens a session, and gives its id for the client.
    pub(crate) fn open(
        &self,
        place: Place,
        opened: Opened,
        snapshot: &Snapshot,
    ) -> Result<(Arc<Session>, HeaderValue), NoId> {
        let Opened { upstream, kept_here, revision, server_revision, capabilities } = opened;
        let (begun, nonce) = self.begin(place.principal(), snapshot)?;
        let said =
            capabilities.as_ref().and_then(|it| self.subscriptions.take_said(place.principal(), it.len()));
        // There may be no room for it.
        let capabilities = capabilities.filter(|_| said.is_some());
        let capsule = Capsule {
            revision,
            server_revision,
            server: match upstream.as_ref().map(HeaderValue::to_str) {
                _ if kept_here => ServerSession::KeptHere,
                None => ServerSession::None,
                Some(Ok(id)) => ServerSession::Id(id.into()),
                Some(Err(_)) => ServerSession::Unfit,
            },
            capabilities,
            ..begun
        };
        let id = snapshot.keyring.seal(&capsule, nonce).map_err(|_| NoId)?;
        let mut id = HeaderValue::try_from(id).map_err(|_| NoId)?;
        // Keeps it out of debug output.
        id.set_sensitive(true);
        let session = Arc::new(Session::new(capsule, place, upstream, self.now().0).saying(said));
        self.lock().open(session.capsule.key, session.clone());
        self.compare_keys(&session, snapshot);
        self.metrics.session_opened();
        Ok((session, id))
    }

    /// Notes whether the keys were made anew while a session was begun under this configuration. It is held by now, so it is
    /// seen here or by whoever makes them anew.
    pub(super) fn compare_keys(&self, session: &Session, snapshot: &Snapshot) {
        let current = self.snapshot.load();
        if current.as_ref().is_some_and(|current| !current.keyring.shares_keys_with(&snapshot.keyring)) {
            session.lose_keys();
        }
    }

    /// The name of something that lives as long as this process and belongs to one principal: sealed as the ids of
    /// sessions are, so that other replicas know where it is. It is no session's.
    pub(crate) fn name(&self, principal: &str, snapshot: &Snapshot) -> Result<(SessionKey, String), NoId> {
        let (capsule, nonce) = self.begin(principal, snapshot)?;
        let name = snapshot.keyring.seal(&capsule, nonce).map_err(|_| NoId)?;
        Ok((capsule.key, name))
    }

    /// The capsule of something that begins now for a principal, and the nonce to seal it with. By itself it says that no
    /// other replica can begin it again.
    fn begin(&self, principal: &str, snapshot: &Snapshot) -> Result<(Capsule, [u8; 12]), NoId> {
        let (mut key, mut nonce) = ([0; 16], [0; 12]);
        getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut nonce)).map_err(|_| NoId)?;
        let principal = PrincipalDigest::of(principal);
        let issued = unix();
        let capsule = Capsule {
            owner: self.me(),
            key: SessionKey::of(&principal, key),
            principal,
            revision: Revision::V2024_11_05,
            server_revision: Revision::V2024_11_05,
            server: ServerSession::Unfit,
            capabilities: None,
            issued,
            expires: issued.saturating_add(max_age(snapshot)),
        };
        Ok((capsule, nonce))
    }

    /// What such a name says, if it is this principal's: its key, and which replica it is at, if it is another one. Past its
    /// age it is good for what `only_tells`, as the id of a session is.
    pub(crate) fn named(
        &self,
        principal: &str,
        snapshot: &Snapshot,
        name: &str,
        only_tells: impl FnOnce() -> bool,
    ) -> Option<(SessionKey, Option<Peer>)> {
        let capsule = self.open_id(snapshot, principal, name)?;
        let Capsule { owner, key, .. } =
            Some(capsule).filter(|capsule| !is_too_old(capsule, snapshot) || only_tells())?;
        // Its pod may have had another address then.
        let is_here = self.lock().me().pod == owner.pod;
        Some((key, (!is_here).then_some(owner)))
    }
}
