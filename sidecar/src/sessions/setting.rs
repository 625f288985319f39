//! What clients have set, said again to a server that was told nothing of it, or has forgotten it.

use std::rc::Rc;
use std::sync::Arc;

use futures::future::join_all;
use longshore_mcp::revision::Revision;
use longshore_sessions::ServerSession;
use longshore_sessions::message::Copy;
use tokio::time::{Duration, timeout};

use super::{Session, Sessions};
use crate::configuration::Snapshot;
use crate::monitor::Server;
use crate::shared::Shared;
use crate::upstream::{Opener, Pool};

/// How long each thing may take that is set again, and the small messages around it; and all of one session, for which a call
/// may wait.
pub(super) const SETTING: Duration = Duration::from_secs(5);
const ALL: Duration = Duration::from_secs(10);
/// For how many sessions it is done side by side.
pub(super) const AT_ONCE: usize = 8;

/// Sets again what a client had set. The session goes on without, if need be: a server that does not take it is no reason
/// to lose it.
pub(super) async fn set_again(server: &Server, copy: &Copy) {
    match timeout(ALL, server.set_again(copy, SETTING)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "what a client had set could not be set again"),
        Err(_) => tracing::debug!("what a client had set could not be set again in time"),
    }
}

/// The same at a server that does not tell its clients apart, and may remember what they have set all the same.
pub(super) async fn set_without_session(
    pool: &Rc<Pool>,
    snapshot: &Snapshot,
    principal: &Arc<str>,
    revision: Revision,
    copy: &Copy,
) {
    let config = &snapshot.config;
    let server = Server::of(config.upstream.clone(), pool.clone(), Opener::client(principal, config));
    set_again(&server.pinned(snapshot.protocol).without_session(revision), copy).await;
}

/// The same for one of the sessions here, if it is such a server's and its client has set something. Says whether it had its
/// turn: where others take too long it is put off.
pub(crate) async fn set_one_again(
    sessions: &Sessions,
    pool: &Rc<Pool>,
    snapshot: &Snapshot,
    session: &Session,
) -> bool {
    if !session.is_to_be_set_again() {
        return true;
    }
    let Ok(_turn) = timeout(ALL, sessions.setting.acquire()).await else { return false };
    set_in_turn(pool, snapshot, session).await;
    true
}

async fn set_in_turn(pool: &Rc<Pool>, snapshot: &Snapshot, session: &Session) {
    if session.is_to_be_set_again() {
        let (principal, revision) = (session.place.principal(), session.server_revision);
        set_without_session(pool, snapshot, principal, revision, &session.copy()).await;
    }
}

/// The same for all sessions here, since such a server was lost and is there again: it refuses none of them, so nothing
/// else begins them again.
pub(crate) async fn set_all_again(shared: Arc<Shared>, pool: Rc<Pool>) {
    let sessions = shared.sessions.without_session();
    for some in sessions.chunks(AT_ONCE) {
        let Some(snapshot) = shared.snapshot.load_full() else { return };
        let set = async |session: &Arc<Session>| {
            let _turn = shared.sessions.setting.acquire().await;
            if shared.sessions.holds(session) {
                set_in_turn(&pool, &snapshot, session).await;
            }
        };
        join_all(some.iter().map(async |session| set(session).await)).await;
    }
}

impl Sessions {
    /// Those that the server has no session for, and whose clients have set something.
    fn without_session(&self) -> Vec<Arc<Session>> {
        let replica = self.lock();
        let held = replica.all_held().map(|(_, session)| session);
        held.filter(|it| it.is_to_be_set_again()).cloned().collect()
    }
}

impl Session {
    /// Whether the server gives it no id, and its client has set something.
    fn is_to_be_set_again(&self) -> bool {
        self.capsule.server == ServerSession::None && self.has_copy()
    }
}
