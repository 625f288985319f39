//! What clients have set, said again to a server that was told nothing of it, or has forgotten it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::join_all;
use longshore_mcp::revision::Revision;
use longshore_sessions::ServerSession;
use longshore_sessions::message::Copy;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::{Session, Sessions, Use};
use crate::configuration::Snapshot;
use crate::monitor::Server;
use crate::shared::Shared;
use crate::upstream::{Opener, Pool};

/// How long each thing may take that is set again, and the small messages around it; and all of one session, for which a call
/// may wait.
pub(super) const SETTING: Duration = Duration::from_secs(5);
const ALL: Duration = Duration::from_secs(10);
/// For how many sessions it is done side by side, whoever finds out that it is to be: a server that has only just started may
/// have thousands.
pub(super) const AT_ONCE: usize = 8;
/// How long a call waits for the turn of its session. If that comes later, nobody waits for it but who listens.
const TURN: Duration = Duration::from_secs(2);

/// Sets again what a client had set, if its turn comes soon. Says whether it does.
pub(super) async fn set_again(sessions: &Sessions, server: &Server, copy: &Copy) -> bool {
    if copy.log_level.is_none() && copy.subscriptions.is_empty() {
        return true;
    }
    let until = Instant::now() + ALL;
    let Ok(_turn) = timeout(TURN, sessions.setting.acquire()).await else { return false };
    set(server, copy, until).await;
    true
}

/// The session goes on without, if need be: a server that does not take it is no reason to lose it.
async fn set(server: &Server, copy: &Copy, until: Instant) {
    let said = Cell::default();
    match timeout_at(until, server.set_again(copy, SETTING, &said)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "what a client had set could not be set again"),
        Err(_) => {
            let all = usize::from(copy.log_level.is_some()) + copy.subscriptions.len();
            let left = all.saturating_sub(said.get());
            tracing::warn!(left, all, "what a client had set could not be set again in time");
        }
    }
}

/// The same at a server that does not tell its clients apart, and may remember what they have set all the same.
pub(super) async fn set_without_session(
    sessions: &Sessions,
    pool: &Rc<Pool>,
    snapshot: &Snapshot,
    principal: &Arc<str>,
    revision: Revision,
    copy: &Copy,
) -> bool {
    let server = server(pool, snapshot, principal).in_session(None, revision);
    set_again(sessions, &server, copy).await
}

fn server(pool: &Rc<Pool>, snapshot: &Snapshot, principal: &Arc<str>) -> Server {
    let config = &snapshot.config;
    let opener = Opener::client(principal, config);
    Server::of(config.upstream.clone(), pool.clone(), opener).pinned(snapshot.protocol)
}

/// The same for a session whose turn did not come soon, when it comes.
pub(super) fn set_late(
    sessions: &Arc<Sessions>,
    pool: &Rc<Pool>,
    snapshot: &Arc<Snapshot>,
    session: &Arc<Session>,
) {
    session.note_unset();
    let (sessions, session) = (sessions.clone(), session.clone());
    let (pool, snapshot) = (pool.clone(), snapshot.clone());
    let within = session.upstream();
    tokio::task::spawn_local(async move {
        let _turn = sessions.setting.acquire().await;
        let is_still = || sessions.holds(&session) && session.upstream() == within;
        if is_still() {
            set_in_turn(&pool, &snapshot, &session).await;
        }
        // Where it was begun again since, that is somebody else's to say.
        if session.upstream() == within {
            session.note_set();
        }
    });
}

/// Returns when the server knows what the client of a session has set, which it may be told first: by whoever has begun that
/// again, and if it may be `another` one that gives no session ids, by this. Says whether it may.
pub(crate) fn set_one_again(
    pool: &Rc<Pool>,
    snapshot: &Arc<Snapshot>,
    used: &Use,
    another: bool,
) -> impl Future<Output = bool> + use<> {
    let (sessions, session) = (used.sessions.clone(), used.session.clone());
    let (pool, snapshot) = (pool.clone(), snapshot.clone());
    async move {
        session.until_set().await;
        if another && session.is_to_be_set_again() {
            let _turn = sessions.setting.acquire().await;
            if sessions.holds(&session) {
                set_in_turn(&pool, &snapshot, &session).await;
            }
        }
        another
    }
}

async fn set_in_turn(pool: &Rc<Pool>, snapshot: &Snapshot, session: &Session) {
    let server = server(pool, snapshot, session.place.principal());
    let server = server.in_session(session.upstream(), session.server_revision);
    set(&server, &session.copy(), Instant::now() + ALL).await;
}

/// The same for all sessions here, since such a server was lost and is there again: it refuses none of them, so nothing
/// else begins them again.
pub(crate) async fn set_all_again(shared: Arc<Shared>, pool: Rc<Pool>) {
    let sessions = shared.sessions.without_session();
    for some in sessions.chunks(AT_ONCE) {
        let Some(snapshot) = shared.snapshot.load_full() else { return };
        let set = async |session: &Arc<Session>| {
            let _turn = shared.sessions.setting.acquire().await;
            if shared.sessions.holds(session) && session.is_to_be_set_again() {
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
