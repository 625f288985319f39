//! What is said to the server of one session in its turn.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use futures::stream::{self, StreamExt, TryStreamExt};
use longshore_sessions::ServerSession;
use tokio::time::{Duration, Instant};

use super::SETTING;
use crate::monitor::Server;
use crate::sessions::session::{Change, Said};
use crate::sessions::{Session, Sessions};
use crate::upstream::{Opener, Pool};

/// For how long anything of a session is begun in one turn.
const ALL: Duration = Duration::from_secs(10);
/// How many things of a session are sent to the server side by side: a call that waits for them waits for all.
const AT_ONCE: usize = 4;

/// The turn of one session. The server is not told again what it was told in this turn or an earlier one, but it is told what
/// the client has changed meanwhile: the client has the last word. A server that does not take it is no reason to lose the
/// session, which goes on without.
pub(super) struct Turn<'a> {
    sessions: &'a Sessions,
    /// Weak, so that a session that ends meanwhile gives its place back at once.
    session: Weak<Session>,
    server: Server,
    /// The session is the sidecar's own: what is asked for there is taken back when nobody waits for it any more, and is asked
    /// for one after the other in any case.
    takes_back: bool,
    said: RefCell<Said>,
    /// How many things the server has taken.
    taken: Cell<usize>,
    /// The server had no time for something, in this turn or an earlier one.
    put_off: Cell<bool>,
    /// From then on it begins to send nothing more.
    ends: Instant,
}

/// This turn ends here: what is left is for another one.
struct Rest;

impl<'a> Turn<'a> {
    /// `None`: the session is not in line at this place any more.
    pub(super) fn begin(
        sessions: &'a Sessions,
        pool: &Rc<Pool>,
        session: &Arc<Session>,
        is_awaited: bool,
    ) -> Option<Self> {
        if is_awaited && session.falls_behind() {
            sessions.line_up(session, false);
            return None;
        }
        // There is one where there are sessions.
        let snapshot = sessions.snapshot.load_full()?;
        let (said, comes_again) = session.begin_to_set(is_awaited)?;
        let opener = Opener::client(session.principal(), &snapshot.config);
        let server = Server::of(snapshot.config.upstream.clone(), pool.clone(), opener);
        // If the server calls it something else from now on, it has lost it once more.
        let server = server.pinned(snapshot.protocol).in_session(session.upstream(), session.server_revision);
        Some(Self {
            sessions,
            session: Arc::downgrade(session),
            server,
            takes_back: session.capsule.server == ServerSession::KeptHere,
            said: RefCell::new(said),
            taken: Cell::new(0),
            put_off: Cell::new(comes_again),
            ends: Instant::now() + ALL,
        })
    }

    /// The session, unless it has ended, or its server was lost once more.
    fn held(&self) -> Option<Arc<Session>> {
        self.session.upgrade().filter(|session| self.sessions.holds(session) && session.is_in_turn())
    }

    /// Gives what has been said after it, and whether the server has taken anything in it.
    pub(super) async fn take(self) -> (Said, bool) {
        while let Some(session) = self.held() {
            let left = self.said.borrow().left(&session.copy());
            drop(session);
            let all = self.taken.get() + left.len();
            if left.is_empty() || self.say_all(left).await.is_err() || self.taken.get() < all {
                break;
            }
        }
        (self.said.into_inner(), self.taken.get() > 0)
    }

    async fn say_all(&self, mut left: Vec<Change>) -> Result<(), Rest> {
        let comes_again = self.put_off.get();
        if comes_again {
            // What it never has time for does not keep the rest from being said.
            let order = RandomState::new();
            left.sort_by_cached_key(|change| order.hash_one(change));
        }
        // Whether it has time by now one thing tells.
        let is_alone = comes_again || matches!(left.first(), Some(Change::LogLevel(_)));
        let others = left.split_off(usize::from(is_alone));
        for change in left {
            self.say(change).await?;
        }
        let at_once = if self.takes_back { 1 } else { AT_ONCE };
        stream::iter(others).map(Ok).try_for_each_concurrent(at_once, |change| self.say(change)).await
    }

    async fn say(&self, change: Change) -> Result<(), Rest> {
        self.held().ok_or(Rest)?;
        if Instant::now() >= self.ends {
            return Ok(());
        }
        self.said.borrow_mut().begin(&change);
        // Who has time for nothing is not waited for once more.
        let is_in_vain = || self.taken.get() == 0 && self.put_off.get();
        let time = if is_in_vain() { Duration::ZERO } else { SETTING };
        let latest = self.ends.min(Instant::now() + time);
        match self.server.set(&change, SETTING, latest, self.takes_back).await {
            Ok(true) => {
                self.said.borrow_mut().note(change);
                self.taken.set(self.taken.get() + 1);
                Ok(())
            }
            Ok(false) => {
                tracing::debug!("the server has no time for what a client had set");
                let is_in_vain = is_in_vain();
                self.put_off.set(true);
                if is_in_vain { Err(Rest) } else { Ok(()) }
            }
            Err(error) => {
                tracing::debug!(%error, "what a client had set could not be set again");
                Err(Rest)
            }
        }
    }
}
