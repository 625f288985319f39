//! The sessions of legacy clients: whose they are, how many there may be, which of them this replica holds, and which
//! session of the server stands behind each.
//!
//! An id is a sealed capsule (`longshore-sessions`): nobody makes one up, it is worth nothing to another principal or
//! at another server, and it is not the server's own, so nobody can use that around the sidecar. Who serves a session
//! is decided by the rules there; [`mod@find`] follows them for a request, [`errands`] for one that a peer hands over.
//!
//! * [`session`]: one session, and its use by a request;
//! * [`opening`]: how one begins here; [`places`]: how many there may be;
//! * [`journal`]: the endings, kept over a restart of this container; [`notes`]: what clients have set, kept so too;
//! * [`expiry`]: the end of those that nobody uses any more; [`abandoned`]: which of them ends sooner, for another one;
//! * [`local`]: this replica, as its peers see it;
//! * [`ids`]: the ids that a thread has opened lately;
//! * [`mod@find`]: follows the rules of routing; [`begin`]: has the server begin a session again, or go on with it;
//! * [`copies`]: copies of what clients have set (log level and subscriptions), at replicas that would adopt their
//!   sessions; [`setting`]: sends it again to a server that does not know it; [`turns`]: whose sessions are next in that;
//! * [`questions`]: what the server has asked in one;
//! * [`cancelled`]: calls whose clients do not want them any more;
//! * [`aliases`]: the ids of the sidecar's own under which requests are at the server.

mod abandoned;
mod aliases;
mod begin;
mod cancelled;
mod copies;
mod errands;
mod expiry;
mod find;
mod ids;
mod journal;
mod local;
mod notes;
mod opening;
mod places;
mod questions;
mod session;
mod setting;
mod turns;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use longshore_sessions::bounds::MAX_TOMBSTONES;
use longshore_sessions::membership::View;
use longshore_sessions::tombstones::{Tombstone, Tombstones};
use longshore_sessions::{Capsule, Moment, Peer, Replica, ServerSession, SessionKey};
use longshore_sidecar_config::OnOwnerLoss;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};

use crate::configuration::Snapshot;
use crate::held::Shares;
use crate::metrics::{Metrics, SessionEnd};
pub(crate) use abandoned::{Lacking, Room};
pub(crate) use aliases::{Alias, integer, refuses_unread};
pub(crate) use begin::{begin_again, end_former};
pub(crate) use cancelled::Cancellation;
pub(crate) use copies::keep_copies;
use errands::Errand;
pub(crate) use errands::{Queue, follow};
pub(crate) use expiry::expire;
pub(crate) use find::{HELD, Purpose, Way, end_elsewhere, find, goes_on, hold, let_go, revision_of};
pub(crate) use ids::Ids;
use journal::Journal;
use notes::Notes;
pub(crate) use notes::keep_notes;
pub(crate) use opening::{NoId, Opened};
pub(crate) use places::{Full, Place, Places};
pub(crate) use questions::Telling;
pub(crate) use session::{Change, Session, Use};
use setting::Setting;
pub(crate) use setting::{set_in_the_end, set_in_turn, set_one_again};

/// All sessions of the process.
pub(crate) struct Sessions {
    began: Instant,
    metrics: Arc<Metrics>,
    /// There can be no other replicas, whatever a configuration says.
    is_alone: bool,
    /// What the configuration in force says of them.
    snapshot: ArcSwapOption<Snapshot>,
    places: Arc<Places>,
    /// What clients are subscribed to, and what they say at length that they can do.
    subscriptions: Arc<Shares>,
    replica: Mutex<Replica<Arc<Session>>>,
    journal: Journal,
    notes: Notes,
    errands: OnceLock<mpsc::Sender<Errand>>,
    /// This replica hands its sessions over, and waits for one to become free ([`Sessions::one_is_free`]).
    moving: AtomicBool,
    /// Wakes it: the last request or stream of a session has ended.
    free: Notify,
    /// The replica that would adopt a session may lack its copy of what the client has set: to be sent again.
    uncopied: AtomicBool,
    /// The log has said that endings were forgotten, of which there is a bound.
    forgets: AtomicBool,
    /// The sessions whose server is to be told again what their clients have set.
    setting: Setting,
}

// === impl Sessions ===

impl Sessions {
    /// The sessions of this replica, which has a pod of its own or else is alone. What has to outlive it is in
    /// `directory`, if there is one.
    pub(crate) fn new(
        me: Peer,
        is_alone: bool,
        directory: Option<&Path>,
        metrics: Arc<Metrics>,
        subscriptions: Arc<Shares>,
        copied: usize,
    ) -> Self {
        let view = if is_alone { View::alone(me.address) } else { View::new(me.address) };
        let mut tombstones = Tombstones::default();
        let journal = Journal::open(directory, unix(), &mut tombstones);
        Self {
            began: Instant::now(),
            metrics,
            is_alone,
            snapshot: ArcSwapOption::empty(),
            places: Arc::default(),
            subscriptions,
            replica: Mutex::new(Replica::new(me, process(), view, tombstones).copying(copied)),
            journal,
            notes: Notes::new(directory),
            errands: OnceLock::new(),
            moving: AtomicBool::new(false),
            free: Notify::new(),
            uncopied: AtomicBool::new(false),
            forgets: AtomicBool::new(false),
            setting: Setting::default(),
        }
    }

    /// The same in a pod that was made of that template, if it is known.
    pub(crate) fn in_a_pod_of(mut self, template: Option<Arc<str>>) -> Self {
        self.replica.get_mut().set_template(template);
        self
    }

    /// Which replica this is.
    pub(crate) fn me(&self) -> Peer {
        self.lock().me().clone()
    }

    /// Takes what the configuration says of sessions, from now on.
    pub(crate) fn configure(&self, snapshot: Arc<Snapshot>) {
        self.lock().view.set_alone(self.is_alone || snapshot.replicas.is_none());
        let Some(former) = self.snapshot.swap(Some(snapshot.clone())) else {
            return self.take_notes(&snapshot.keyring);
        };
        if !former.keyring.shares_keys_with(&snapshot.keyring) {
            // None of the keys is left with which their ids were sealed.
            for (_, session) in self.lock().all_held() {
                session.lose_keys();
            }
        }
    }

    /// What clients may be subscribed to, in sessions and without.
    pub(crate) fn subscriptions(&self) -> &Arc<Shares> {
        &self.subscriptions
    }

    /// What is left to workers because a peer said something or a session has ended: they have connections to the server.
    /// To be taken once.
    pub(crate) fn queue(&self) -> Queue {
        let (sender, receiver) = mpsc::channel(errands::WAITING);
        // A second one would hear nothing.
        let _ = self.errands.set(sender);
        Queue::new(receiver)
    }

    /// Keeps a place for one more session of that principal, before the server is asked for it.
    pub(crate) fn reserve(&self, principal: &Arc<str>, snapshot: &Snapshot) -> Result<Place, Full> {
        self.places.take(principal, &snapshot.config.sessions)
    }

    /// Whether all places of sessions are taken.
    pub(crate) fn are_full(&self) -> bool {
        let snapshot = self.snapshot.load();
        snapshot.as_ref().is_some_and(|snapshot| self.places.are_taken(&snapshot.config.sessions))
    }

    /// Ends a session for good. Says whether it was held here.
    pub(crate) fn end(&self, session: &Session, why: SessionEnd) -> bool {
        let ended = self.bury(Self::tombstone(&session.capsule));
        if ended.is_some() {
            self.metrics.session_ended(why);
        }
        ended.is_some()
    }

    /// Whether a session is held here, and has not ended or gone elsewhere.
    fn holds(&self, session: &Arc<Session>) -> bool {
        self.lock().held(&session.capsule.key).is_some_and(|held| Arc::ptr_eq(held, session))
    }

    /// The end of a session, and whom to tell of it.
    pub(crate) fn ending(&self, key: &SessionKey) -> Option<(Tombstone, Vec<IpAddr>)> {
        let replica = self.lock();
        Some((replica.tombstones().get(key)?, replica.view.to_ask(self.now())))
    }

    /// Remembers that a session is ended, held or not. Gives what was held.
    fn bury(&self, tombstone: Tombstone) -> Option<Arc<Session>> {
        let ended = self.lock().end(tombstone);
        self.keep_endings(&[tombstone]);
        if let Some(session) = &ended {
            session.streams.close();
        }
        ended
    }

    /// Keeps some more endings over a restart, and says so once if others were forgotten for any of them.
    fn keep_endings(&self, ended: &[Tombstone]) {
        self.journal.add(ended, || self.lock().tombstones().iter().collect());
        if self.lock().tombstones().lost() > 0 && !self.forgets.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                most = MAX_TOMBSTONES,
                "more sessions have ended than are remembered: the ids of those that ended first, of who has ended the \
                 most, may work again until sessions.maxAge has passed, which it helps to lower; the audit log says who \
                 ends so many"
            );
        }
    }

    /// How many are held here.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many sessions are known to be ended.
    pub(crate) fn endings(&self) -> usize {
        self.lock().tombstones().len()
    }

    /// That a session is ended, and until when it matters.
    fn tombstone(capsule: &Capsule) -> Tombstone {
        Tombstone { expires: capsule.expires, key: capsule.key }
    }

    /// Whether a session may go on at another replica.
    fn can_move(&self, capsule: &Capsule) -> bool {
        let snapshot = self.snapshot.load();
        let what = snapshot
            .as_ref()
            .map_or(OnOwnerLoss::NotFound, |snapshot| snapshot.config.sessions.on_owner_loss);
        match capsule.server {
            ServerSession::None => true,
            // Nothing is lost, whatever is wanted of sessions that lose something.
            ServerSession::KeptHere => capsule.can_begin_again(),
            ServerSession::Id(_) | ServerSession::Unfit => {
                what == OnOwnerLoss::Reinitialize && capsule.can_begin_again()
            }
        }
    }

    /// The same of a session that is held here: another replica would know no more of it than what its id says.
    fn can_leave(&self, session: &Session) -> bool {
        let is_known = session.fits || session.capsule.server == ServerSession::None;
        is_known && !session.is_keyless() && self.can_move(&session.capsule)
    }

    /// Waits until the last request or stream of a session ends.
    pub(crate) async fn one_is_free(&self) {
        self.moving.store(true, Ordering::Relaxed);
        self.free.notified().await;
    }

    /// The last request or stream of a session has ended.
    fn freed(&self) {
        if self.moving.load(Ordering::Relaxed) {
            self.free.notify_one();
        }
    }

    /// Leaves something to a worker, which has connections to the server.
    fn send(&self, errand: Errand) {
        if let Some(Err(_)) = self.errands.get().map(|errands| errands.try_send(errand)) {
            tracing::debug!("too much is to be done for sessions at once");
        }
    }

    fn now(&self) -> Moment {
        Moment::default().after(self.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Replica<Arc<Session>>> {
        self.replica.lock()
    }
}

/// The age at which sessions end, in seconds.
fn max_age(snapshot: &Snapshot) -> u64 {
    snapshot.config.sessions.max_age_ms / 1_000
}

/// Whether a session has reached its age: its own, or the one that sessions may have now.
fn is_too_old(capsule: &Capsule, snapshot: &Snapshot) -> bool {
    capsule.ends(max_age(snapshot)) <= unix()
}

/// The time in seconds since 1970.
fn unix() -> u64 {
    since_1970().as_secs()
}

/// A number that no other process of this pod has: when it began, in nanoseconds.
fn process() -> u64 {
    u64::try_from(since_1970().as_nanos()).unwrap_or(0)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
