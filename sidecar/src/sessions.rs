//! The sessions of legacy clients: whose they are, how many there may be, which of them this replica holds, and which
//! session of the server stands behind each.
//!
//! An id is a sealed capsule (`longshore-sessions`): nobody makes one up, it is worth nothing to another principal or
//! at another server, and it is not the server's own, so nobody can use that around the sidecar. Who serves a session
//! is decided by the rules there; [`mod@find`] follows them for a request, [`errands`] for one that a peer hands over.
//!
//! * [`session`]: one session, and its use by a request;
//! * [`places`]: how many there may be;
//! * [`journal`]: the endings, kept over a restart of this container;
//! * [`expiry`]: the end of those that nobody uses any more; [`abandoned`]: which of them ends sooner, for another one;
//! * [`local`]: this replica, as its peers see it;
//! * [`ids`]: the ids that a thread has opened lately;
//! * [`mod@find`]: follows the rules of routing; [`begin`]: has the server begin a session again, or go on with it;
//! * [`copies`]: what clients have set, where it outlives this replica; [`setting`]: said again to the server;
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
mod places;
mod questions;
mod session;
mod setting;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use longshore_mcp::revision::Revision;
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::membership::View;
use longshore_sessions::tombstones::{Tombstone, Tombstones};
use longshore_sessions::{Capsule, Moment, Peer, Replica, ServerSession, SessionKey};
use longshore_sidecar_config::OnOwnerLoss;
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
pub(crate) use find::{Purpose, Way, end_elsewhere, find, hold, let_go};
pub(crate) use ids::Ids;
use journal::Journal;
pub(crate) use places::{Full, Place, Places};
pub(crate) use questions::Answering;
use session::Farewell;
pub(crate) use session::{Change, Session, Use};
pub(crate) use setting::set_all_again;

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
    errands: OnceLock<mpsc::Sender<Errand>>,
    /// Somebody waits for sessions that nobody uses just now.
    moving: AtomicBool,
    /// One has become so.
    free: Notify,
    /// There may be sessions of which no other replica has a copy that should.
    uncopied: AtomicBool,
}

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

// === impl Sessions ===

impl Sessions {
    /// The sessions of this replica, which has a pod of its own or else is alone. What it knows to be ended is in
    /// `directory`, if there is one.
    pub(crate) fn new(
        me: Peer,
        is_alone: bool,
        directory: Option<&Path>,
        metrics: Arc<Metrics>,
        subscriptions: Arc<Shares>,
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
            replica: Mutex::new(Replica::new(me, process(), view, tombstones)),
            journal,
            errands: OnceLock::new(),
            moving: AtomicBool::new(false),
            free: Notify::new(),
            uncopied: AtomicBool::new(false),
        }
    }

    /// Which replica this is.
    pub(crate) fn me(&self) -> Peer {
        self.lock().me().clone()
    }

    /// Takes what the configuration says of sessions, from now on.
    pub(crate) fn configure(&self, snapshot: Arc<Snapshot>) {
        self.lock().view.set_alone(self.is_alone || snapshot.replicas.is_none());
        let former = self.snapshot.swap(Some(snapshot.clone()));
        if former.is_some_and(|former| !former.keyring.shares_keys_with(&snapshot.keyring)) {
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

    /// What peers and endings have somebody do, who has a way to the server. To be taken once.
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

    /// Opens a session, and gives its id for the client.
    pub(crate) fn open(
        &self,
        place: Place,
        opened: Opened,
        snapshot: &Snapshot,
    ) -> Result<(Arc<Session>, HeaderValue), NoId> {
        let Opened { upstream, kept_here, revision, server_revision, capabilities } = opened;
        let (mut key, mut nonce) = ([0; 16], [0; 12]);
        getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut nonce)).map_err(|_| NoId)?;
        let said =
            capabilities.as_ref().and_then(|it| self.subscriptions.take_said(place.principal(), it.len()));
        // There may be no room for it.
        let capabilities = capabilities.filter(|_| said.is_some());
        let owner = self.me();
        let issued = unix();
        let capsule = Capsule {
            owner,
            key: SessionKey::new(key),
            principal: PrincipalDigest::of(place.principal()),
            revision,
            server_revision,
            server: match upstream.as_ref().map(HeaderValue::to_str) {
                _ if kept_here => ServerSession::KeptHere,
                None => ServerSession::None,
                Some(Ok(id)) => ServerSession::Id(id.into()),
                Some(Err(_)) => ServerSession::Unfit,
            },
            capabilities,
            issued,
            expires: issued.saturating_add(max_age(snapshot)),
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
    fn compare_keys(&self, session: &Session, snapshot: &Snapshot) {
        let current = self.snapshot.load();
        if current.as_ref().is_some_and(|current| !current.keyring.shares_keys_with(&snapshot.keyring)) {
            session.lose_keys();
        }
    }

    /// The name of something that lives as long as this process and belongs to one principal: sealed as the ids of
    /// sessions are, so that other replicas know where it is. It is no session's.
    pub(crate) fn name(&self, principal: &str, snapshot: &Snapshot) -> Result<(SessionKey, String), NoId> {
        let (mut key, mut nonce) = ([0; 16], [0; 12]);
        getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut nonce)).map_err(|_| NoId)?;
        let owner = self.me();
        let (key, issued) = (SessionKey::new(key), unix());
        let capsule = Capsule {
            owner,
            key,
            principal: PrincipalDigest::of(principal),
            revision: Revision::V2024_11_05,
            server_revision: Revision::V2024_11_05,
            // Nobody could go on with it.
            server: ServerSession::Unfit,
            capabilities: None,
            issued,
            expires: issued.saturating_add(max_age(snapshot)),
        };
        let name = snapshot.keyring.seal(&capsule, nonce).map_err(|_| NoId)?;
        Ok((key, name))
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
        let is_here = *self.lock().me() == owner;
        Some((key, (!is_here).then_some(owner)))
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
        self.journal.add(&[tombstone], || self.lock().tombstones().iter().collect());
        if let Some(session) = &ended {
            session.streams.close();
        }
        ended
    }

    /// Ends those that nobody used for a while, that are too old, or whose ids nobody can open any more. Gives what the server is to be told now, and what the
    /// other replicas are.
    fn expire(&self) -> (Vec<Farewell>, Vec<Tombstone>) {
        let Some(snapshot) = self.snapshot.load_full() else { return Default::default() };
        let (now, unix) = (self.now(), unix());
        let idle = Duration::from_millis(snapshot.config.sessions.idle_timeout_ms);
        let (mut over, mut ended) = (Vec::new(), Vec::new());
        {
            let mut replica = self.lock();
            replica.forget_endings(unix);
            for (_, session) in replica.all_held() {
                if session.is_keyless() {
                    // Requests under way are answered still. Nobody can come back for that.
                    if !session.is_busy() {
                        over.push((session.clone(), SessionEnd::Keys));
                    }
                } else if is_too_old(&session.capsule, &snapshot) {
                    // Requests under way are answered still, also to clients that come back for it, and what these say is
                    // heard.
                    if session.is_free() {
                        over.push((session.clone(), SessionEnd::Aged));
                    }
                } else if session.is_idle(now, idle) {
                    over.push((session.clone(), SessionEnd::Idle));
                }
            }
            for (session, why) in &over {
                let tombstone = Self::tombstone(&session.capsule);
                // An id that is past its own time, or opens with no key, is refused everywhere, and nothing need be remembered
                // of it. Where the age that sessions may have was lowered since, it is not: that may be raised again.
                if session.is_keyless() || tombstone.expires <= unix {
                    replica.lose(&tombstone.key);
                } else {
                    replica.end(tombstone);
                    ended.push(tombstone);
                }
                self.metrics.session_ended(*why);
            }
        }
        self.journal.add(&ended, || self.lock().tombstones().iter().collect());
        let close = |(session, _): (Arc<Session>, SessionEnd)| {
            session.streams.close();
            session.farewell()
        };
        (over.into_iter().filter_map(close).collect(), ended)
    }

    /// How often to look for sessions that are over.
    pub(crate) fn tick(&self) -> Duration {
        let snapshot = self.snapshot.load();
        let shortest = snapshot.as_ref().map_or(0, |snapshot| {
            snapshot.config.sessions.idle_timeout_ms.min(snapshot.config.sessions.max_age_ms)
        });
        Duration::from_millis(shortest / 4).clamp(Duration::from_millis(50), Duration::from_secs(30))
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

    /// The same of one that is held here. Another replica knows of it what its id says.
    fn can_leave(&self, session: &Session) -> bool {
        let is_known = session.fits || session.capsule.server == ServerSession::None;
        is_known && !session.is_keyless() && self.can_move(&session.capsule)
    }

    /// Waits until a session is used by nobody that was in use.
    pub(crate) async fn one_is_free(&self) {
        self.moving.store(true, Ordering::Relaxed);
        self.free.notified().await;
    }

    /// Nobody uses a session any more that was in use.
    fn freed(&self) {
        if self.moving.load(Ordering::Relaxed) {
            self.free.notify_one();
        }
    }

    /// Has somebody do something who has a way to the server.
    fn send(&self, errand: Errand) {
        if let Some(Err(_)) = self.errands.get().map(|errands| errands.try_send(errand)) {
            tracing::debug!("too much is to be done for sessions at once");
        }
    }

    fn now(&self) -> Moment {
        Moment::default().after(self.began.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Replica<Arc<Session>>> {
        // Nothing that holds the lock can leave the replica half changed.
        self.replica.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There are no random numbers, or the id could not be sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoId;

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
