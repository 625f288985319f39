//! What clients have set, said again to a server that was told nothing of it, or has forgotten it.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use longshore_mcp::revision::Revision;
use longshore_sessions::ServerSession;
use longshore_sessions::message::Copy;
use longshore_sidecar_config::Auth;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::turns::{self, Turn};
use super::{Session, Sessions, Use};
use crate::configuration::Snapshot;
use crate::monitor::Server;
use crate::shared::Shared;
use crate::upstream::{Opener, Pool};

/// How long each thing may take that is set again, and the small messages around it; and all of one session, for which a call
/// may wait.
pub(super) const SETTING: Duration = Duration::from_secs(5);
const ALL: Duration = Duration::from_secs(10);
/// How long a call waits for the turn of its session. If that comes later, nobody waits for it but who listens.
const TURN: Duration = Duration::from_secs(2);

/// Sets again what a client had set, if its turn comes soon. Says whether it does, and the server is there for all of it.
pub(super) async fn set_again(
    sessions: &Sessions,
    principal: &Arc<str>,
    server: &Server,
    copy: &Copy,
) -> bool {
    if copy.log_level.is_none() && copy.subscriptions.is_empty() {
        return true;
    }
    let until = Instant::now() + ALL;
    let Ok(_turn) = timeout(TURN, sessions.turn(principal)).await else { return false };
    set(server, copy, until).await
}

/// The session goes on without, if need be: a server that does not take it is no reason to lose it. Says whether it was there
/// for all of it, and had time for it.
async fn set(server: &Server, copy: &Copy, until: Instant) -> bool {
    let said = Cell::default();
    match timeout_at(until, server.set_again(copy, SETTING, &said)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "what a client had set could not be set again");
            return false;
        }
        Err(_) => {
            let all = usize::from(copy.log_level.is_some()) + copy.subscriptions.len();
            let left = all.saturating_sub(said.get());
            tracing::warn!(left, all, "what a client had set could not be set again in time");
        }
    }
    true
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
    set_again(sessions, principal, &server, copy).await
}

fn server(pool: &Rc<Pool>, snapshot: &Snapshot, principal: &Arc<str>) -> Server {
    let config = &snapshot.config;
    let opener = Opener::client(principal, config);
    Server::of(config.upstream.clone(), pool.clone(), opener).pinned(snapshot.protocol)
}

/// The same for a session whose turn did not come soon, when it comes.
pub(super) fn set_late(sessions: &Arc<Sessions>, pool: &Rc<Pool>, session: &Arc<Session>) {
    session.note_unset();
    let (sessions, pool, within) = (sessions.clone(), pool.clone(), session.upstream());
    let waits = Waits::of(session);
    tokio::task::spawn_local(async move {
        let Some((_turn, session)) = waits.turn(&sessions).await else { return };
        // Where it was begun again since, that is somebody else's to say.
        if session.upstream() == within {
            let is_set = set_in_turn(&sessions, &pool, &session).await;
            if session.upstream() == within {
                session.note_set(is_set);
            }
        }
    });
}

/// Returns when the server knows what the client of a session has set, which it may be told first: by whoever has begun that
/// again, and if it may be `another` one that gives no session ids, by this. Says whether it may, and was there for it.
pub(crate) fn set_one_again(
    pool: &Rc<Pool>,
    used: &Use,
    another: bool,
) -> impl Future<Output = bool> + use<> {
    let (sessions, session, pool) = (used.sessions.clone(), used.session.clone(), pool.clone());
    async move {
        let set = session.until_set().await;
        if !another || set.is_some() || !session.is_to_be_set_again() {
            return another && set.unwrap_or(true);
        }
        match Waits::of(&session).turn(&sessions).await {
            Some(_turn) => set_in_turn(&sessions, &pool, &session).await,
            None => true,
        }
    }
}

/// The same as `set` for a session whose turn it is.
async fn set_in_turn(sessions: &Sessions, pool: &Rc<Pool>, session: &Session) -> bool {
    // As it is by now: the turn may have come late.
    let Some(snapshot) = sessions.snapshot.load_full() else { return false };
    let server = server(pool, &snapshot, session.principal());
    let server = server.in_session(session.upstream(), session.server_revision);
    set(&server, &session.copy(), Instant::now() + ALL).await
}

/// The same for all sessions here, since such a server was lost and is there again: it refuses none of them, so nothing
/// else begins them again. No more of one principal wait at a time than may have their turns, since whoever listens waits
/// behind them, and is told of nothing meanwhile.
pub(crate) async fn set_all_again(shared: Arc<Shared>, pool: Rc<Pool>) {
    let sessions = &shared.sessions;
    let set = async |waits: Waits| {
        if let Some((_turn, session)) = waits.turn(sessions).await
            && session.is_to_be_set_again()
        {
            // There are many that wait, and few of these.
            Box::pin(set_in_turn(sessions, &pool, &session)).await;
        }
    };
    let at_once = sessions.turns_of_one();
    let all_of = |own: Vec<Waits>| stream::iter(own).for_each_concurrent(at_once, &set);
    join_all(sessions.without_session().into_values().map(all_of)).await;
}

/// A session that waits for its turn. If it ends meanwhile, its place is free at once.
struct Waits {
    principal: Arc<str>,
    session: Weak<Session>,
}

impl Waits {
    fn of(session: &Arc<Session>) -> Self {
        Self { principal: session.principal().clone(), session: Arc::downgrade(session) }
    }

    /// Waits for the turn. `None`: it is not held here any more.
    async fn turn(self, sessions: &Sessions) -> Option<(Turn<'_>, Arc<Session>)> {
        let turn = sessions.turn(&self.principal).await?;
        let session = self.session.upgrade().filter(|session| sessions.holds(session))?;
        Some((turn, session))
    }
}

impl Sessions {
    /// Those of each principal that the server has no session for, and whose clients have set something.
    fn without_session(&self) -> HashMap<Arc<str>, Vec<Waits>> {
        let mut all = HashMap::<_, Vec<_>>::new();
        for (_, session) in self.lock().all_held().filter(|(_, session)| session.is_to_be_set_again()) {
            let waits = Waits::of(session);
            all.entry(waits.principal.clone()).or_default().push(waits);
        }
        all
    }

    /// Waits for a turn of this principal.
    async fn turn(&self, principal: &Arc<str>) -> Option<Turn<'_>> {
        self.setting.take(principal, self.turns_of_one()).await
    }

    /// How many turns one principal may have: all of them where that is everybody.
    fn turns_of_one(&self) -> usize {
        let snapshot = self.snapshot.load();
        let is_everybody = snapshot.as_ref().is_some_and(|snapshot| snapshot.config.auth == Auth::None);
        if is_everybody { turns::ALL } else { turns::OWN }
    }
}

impl Session {
    /// Whether the server gives it no id, and its client has set something.
    fn is_to_be_set_again(&self) -> bool {
        self.capsule.server == ServerSession::None && self.has_copy()
    }
}
