//! What clients have set (log level and subscriptions), sent again to a server that was never told it or has forgotten it. What
//! finds that out marks the session, which then waits for its turn.

mod turn;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use futures::future::join_all;
use longshore_sessions::ServerSession;
use longshore_sidecar_config::Auth;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::session::Next;
use super::turns::{self, Turns};
use super::{Session, Sessions, Use};
use crate::shared::Shared;
use crate::upstream::Pool;
use turn::Turn;

/// How long each thing may take that is set again, and the small messages around it.
pub(super) const SETTING: Duration = Duration::from_secs(5);
/// How long a call waits until its session has had its turn. If that takes longer, only streams wait for it.
const SOON: Duration = Duration::from_secs(2);

/// The sessions that wait for their turns. One that has ended leaves its place in the line.
#[derive(Default)]
pub(super) struct Setting {
    /// Each session, and whether somebody waited for it when it took this place.
    turns: Mutex<Turns<(Weak<Session>, bool)>>,
    /// There is one more.
    more: Notify,
}

/// Gives sessions their turns, for as long as the process lives.
pub(crate) async fn set_in_turn(shared: Arc<Shared>, pool: Rc<Pool>) {
    let (sessions, setting) = (&shared.sessions, &shared.sessions.setting);
    let put_off = RefCell::<JoinSet<()>>::default();
    let turns = async || {
        loop {
            let turn = setting.turns.lock().take(sessions.turns_of_one());
            let Some((principal, (session, is_awaited))) = turn else {
                setting.more.notified().await;
                continue;
            };
            let held = || session.upgrade().filter(|session| sessions.holds(session));
            let Some(turn) = held().and_then(|session| Turn::begin(sessions, &pool, &session, is_awaited))
            else {
                setting.turns.lock().was_void(&principal);
                continue;
            };
            let (said, has_taken) = turn.take().await;
            if let Some(held) = held() {
                match held.note_set(said, has_taken) {
                    Some(Next::InLine(is_awaited)) => sessions.line_up(&held, is_awaited),
                    Some(Next::Later(pause)) => {
                        let mut put_off = put_off.borrow_mut();
                        while put_off.try_join_next().is_some() {}
                        put_off.spawn_local(later(sessions.clone(), session.clone(), pause));
                    }
                    None => {}
                }
            }
            setting.turns.lock().give_back(&principal);
        }
    };
    join_all([(); turns::ALL].map(|()| turns())).await;
}

/// A session is in line once more this long after a turn that was not enough.
async fn later(sessions: Arc<Sessions>, session: Weak<Session>, pause: Duration) {
    sleep(pause).await;
    if let Some(session) = session.upgrade().filter(|session| sessions.holds(session))
        && session.unset_still()
    {
        sessions.line_up(&session, false);
    }
}

/// Returns when the server knows what the client of a session has set. It is told that again first, unless it was since it was
/// `lost`. Says whether it was there for it; if not, that is said again later.
pub(crate) fn set_one_again(used: &Use, lost: Option<Instant>) -> impl Future<Output = bool> + use<> {
    let (sessions, session) = (used.sessions.clone(), used.session.clone());
    async move {
        if let Some(lost) = lost {
            sessions.set_again(&session, lost);
        }
        sessions.until_set(&session).await
    }
}

/// The same for a session that is put off: returns when the server knows it, or when another turn was in vain.
pub(crate) fn set_in_the_end(session: &Session) -> impl Future<Output = bool> + use<> {
    let said = session.awaits_in_the_end();
    async move {
        let Some(mut said) = said else { return true };
        let _ = said.changed().await;
        *said.borrow()
    }
}

impl Sessions {
    /// The server is to be told what the client of a session has set, unless it was told since it was `lost`.
    pub(super) fn set_again(&self, session: &Arc<Session>, lost: Instant) {
        if let Some(is_awaited) = session.unset(lost) {
            self.line_up(session, is_awaited);
        }
    }

    /// The same for all sessions here of a server that gives no session ids, since it was lost and is there again: it refuses
    /// none of them, so nothing else begins them again.
    pub(crate) fn set_all_again(&self) {
        let is_nameless = |session: &Session| session.capsule.server == ServerSession::None;
        let lost = Instant::now();
        for (_, session) in self.lock().all_held().filter(|(_, session)| is_nameless(session)) {
            self.set_again(session, lost);
        }
    }

    /// Returns when the server knows what the client of a session has set: this session goes before those of its principal
    /// that nobody waits for. Says whether the server took it.
    async fn until_set(&self, session: &Arc<Session>) -> bool {
        let Some((mut set, is_ahead)) = session.awaits() else { return !session.is_unset() };
        if is_ahead {
            self.line_up(session, true);
        }
        // Of a session that ends or moves meanwhile nobody says it: who waits has to end with it, or by a clock.
        let _ = set.changed().await;
        *set.borrow()
    }

    /// The same for a call.
    pub(super) async fn until_set_or_late(&self, session: &Arc<Session>) {
        let _ = timeout(SOON, self.until_set(session)).await;
    }

    fn line_up(&self, session: &Arc<Session>, is_awaited: bool) {
        let place = (Arc::downgrade(session), is_awaited);
        self.setting.turns.lock().wait(session.principal(), place, is_awaited);
        self.setting.more.notify_one();
    }

    /// How many turns one principal may have: all of them where that is everybody.
    fn turns_of_one(&self) -> usize {
        let snapshot = self.snapshot.load();
        let is_everybody = snapshot.as_ref().is_some_and(|snapshot| snapshot.config.auth == Auth::None);
        if is_everybody { turns::ALL } else { turns::OWN }
    }
}
