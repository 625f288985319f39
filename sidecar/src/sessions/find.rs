//! Finds who serves a session, by the rules of `longshore-sessions`: this is what they look like with a network.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Response;
use longshore_mcp::revision::Revision;
use longshore_sessions::membership::State;
use longshore_sessions::message::Copy;
use longshore_sessions::routing::{Entry, Event, Failure, NotForwarded, Take};
use longshore_sessions::tombstones::Tombstone;
use longshore_sessions::{Capsule, Peer, PodId, Question, Route, SessionKey, Step};
use tokio::time::{Instant, sleep, timeout};

use super::begin::{self, Begun};
use super::{Session, Sessions, Use, is_too_old, unix};
use crate::configuration::Snapshot;
use crate::metrics::SessionTaken;
use crate::peers::Local;
use crate::refusal::Refusal;
use crate::stack::forward::Forwarded;
use crate::stack::respond::Body;
use crate::worker::Worker;

/// How often a call that waits for its session to move looks.
const LOOK: Duration = Duration::from_millis(20);
/// For how long it waits. A call that is under way may itself wait for this one, where the server has asked something
/// for which its client calls it.
pub(crate) const HELD: Duration = Duration::from_secs(10);

/// What a session is looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be used.
    Use,
    /// It is too old, and takes no more requests. But those under way may need to hear of their client, which may come
    /// back for their answers.
    Tell,
    /// To be ended: nobody begins it again for that.
    End,
}

/// Where a session is.
pub(crate) enum Way {
    /// Here, in use by this request.
    Here(Use),
    /// No replica holds it, and it is ended now: only for [`Purpose::End`]. Says how this one would have taken it.
    Nowhere(Box<Capsule>, Take),
    /// Somewhere else, and the request is answered from there.
    Answered(Response<Body>),
    /// Not here. The replica that forwarded the request is told so, and at which peer the session may be.
    Moved(Option<Peer>),
    /// There is no room for it here. That replica is told so, and which peer may have some.
    Full(Option<Peer>),
    /// It was handed over to this replica, which has no room for it: it is to be handed on to this peer. These pods have no
    /// room either.
    HandOn(Peer, Vec<PodId>),
}

/// How a request came, and the pods that are known to have no room for its session, if it may go on to others for that.
type Came = (Entry, Option<Vec<PodId>>);

/// Finds the session of an id for a principal. `forward` takes the request to another replica. `only_tells` says whether the
/// request begins nothing new (a notification, an answer, a client that comes back to a stream): then the session may have
/// reached its age.
pub(crate) async fn find(
    worker: &Rc<Worker>,
    snapshot: &Arc<Snapshot>,
    principal: &Arc<str>,
    id: &str,
    (came, purpose, only_tells): (Came, Purpose, impl FnOnce() -> bool),
    forward: impl AsyncFnMut(&Peer, Option<&[PodId]>) -> Result<Forwarded, Refusal>,
) -> Result<Way, Refusal> {
    let sessions = &worker.shared.sessions;
    let capsule = worker.ids.open(sessions, snapshot, principal, id).ok_or(Refusal::UnknownSession)?;
    let purpose = match purpose {
        purpose if !is_too_old(&capsule, snapshot) => purpose,
        Purpose::Use if only_tells() => Purpose::Tell,
        _ => return Err(Refusal::UnknownSession),
    };
    if let Some(session) = sessions.enter(&capsule.key) {
        return Ok(Way::Here(session));
    }
    let search = Search::new(sessions.clone(), Capsule::clone(&capsule), came);
    let way = Box::pin(search.run(worker, snapshot, principal, purpose, forward)).await?;
    if let (Way::Here(session), Purpose::Use) = (&way, purpose) {
        sessions.until_set_or_late(&session.session).await;
    }
    Ok(way)
}

/// Holds the session of an id open for a stream, if it is held here.
pub(crate) fn hold(worker: &Worker, snapshot: &Arc<Snapshot>, principal: &Arc<str>, id: &str) -> Option<Use> {
    let sessions = &worker.shared.sessions;
    let capsule = worker.ids.open(sessions, snapshot, principal, id)?;
    sessions.enter(&capsule.key).map(|session| session.for_stream())
}

/// What the client of a session speaks, if the id is this principal's and the session has not reached its age.
pub(crate) fn revision_of(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    principal: &Arc<str>,
    id: &str,
) -> Option<Revision> {
    let sessions = &worker.shared.sessions;
    worker.ids.open_current(sessions, snapshot, principal, id).map(|capsule| capsule.revision)
}

/// Ends a session here whose replica is lost. Gives its key, for the others to be told.
pub(crate) fn end_elsewhere(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    principal: &Arc<str>,
    id: &str,
) -> Result<SessionKey, Refusal> {
    let sessions = &worker.shared.sessions;
    let capsule = opened(worker, snapshot, principal, id)?;
    sessions.bury(Sessions::tombstone(&capsule));
    Ok(capsule.key)
}

/// What stands in the id of a session that may still live.
fn opened(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    principal: &Arc<str>,
    id: &str,
) -> Result<Rc<Capsule>, Refusal> {
    worker.ids.open_current(&worker.shared.sessions, snapshot, principal, id).ok_or(Refusal::UnknownSession)
}

/// Before a call in a session of a replica that takes no more calls: waits until the session has moved to another replica.
/// A session that cannot move ends with this replica, and its client is told so.
pub(crate) async fn let_go(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    principal: &Arc<str>,
    id: &str,
) -> Result<(), Refusal> {
    let sessions = &worker.shared.sessions;
    let capsule = opened(worker, snapshot, principal, id)?;
    let moved = async {
        loop {
            match sessions.fate(&capsule) {
                Fate::Nothing => return Ok(()),
                Fate::Moves => sleep(LOOK).await,
                Fate::Ends => return Err(Refusal::PodEnds),
            }
        }
    };
    timeout(HELD, moved).await.unwrap_or(Ok(()))
}

/// The same for what does not wait here, and only has to hear that its session ends.
pub(crate) fn goes_on(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    principal: &Arc<str>,
    id: &str,
) -> Result<(), Refusal> {
    let sessions = &worker.shared.sessions;
    let capsule = opened(worker, snapshot, principal, id)?;
    match sessions.fate(&capsule) {
        Fate::Nothing | Fate::Moves => Ok(()),
        Fate::Ends => Err(Refusal::PodEnds),
    }
}

/// What becomes of a session here when its replica ends.
enum Fate {
    /// It is not here, or nobody else could serve its client.
    Nothing,
    /// It goes on elsewhere when nobody uses it.
    Moves,
    /// It ends too.
    Ends,
}

/// A search that is under way. Dropped, it gives back what it has claimed.
pub(super) struct Search {
    sessions: Arc<Sessions>,
    capsule: Capsule,
    route: Route,
}

/// The next step of a search.
enum Next {
    Here(Use),
    Forward(Peer),
    Ask(Vec<IpAddr>),
    Wait(Duration),
    /// And whether there may be room elsewhere if there is none here.
    Take(Take, Copy, bool),
    Moved(Option<Peer>),
    Full(Option<Peer>),
    HandOn(Peer),
    Ended(Tombstone),
    Fail(Failure),
}

// === impl Sessions ===

impl Sessions {
    /// What is in an id, if it is this principal's.
    pub(super) fn open_id(&self, snapshot: &Snapshot, principal: &str, id: &str) -> Option<Capsule> {
        snapshot.keyring.open(id).filter(|capsule| capsule.is_of(principal))
    }

    /// The same, if the session has not reached its age.
    pub(super) fn open_current(&self, snapshot: &Snapshot, principal: &str, id: &str) -> Option<Capsule> {
        self.open_id(snapshot, principal, id).filter(|capsule| !is_too_old(capsule, snapshot))
    }

    /// What becomes of a session when this replica ends.
    fn fate(&self, capsule: &Capsule) -> Fate {
        let replica = self.lock();
        let leaves = replica.state() == State::Leaving;
        if leaves || replica.held(&capsule.key).is_none() || replica.view.serving(self.now()).next().is_none()
        {
            return Fate::Nothing;
        }
        if self.can_move(capsule) { Fate::Moves } else { Fate::Ends }
    }

    /// The session, in use from now on, if it is held here. A replica that leaves serves only where nobody else does, or
    /// may: others may have taken the session, and its server may end at any moment.
    pub(super) fn enter(self: &Arc<Self>, key: &SessionKey) -> Option<Use> {
        let replica = self.lock();
        if replica.state() == State::Leaving && replica.view.may_serve(self.now()) {
            return None;
        }
        replica.held(key).map(|session| Use::new(session.clone(), self.clone()))
    }
}

// === impl Search ===

impl Search {
    pub(super) fn new(sessions: Arc<Sessions>, capsule: Capsule, (entry, full): Came) -> Self {
        let route = Route::new(&capsule, entry, sessions.now(), unix());
        let route = match full {
            Some(full) => route.past(full),
            None => route,
        };
        // Its client begins anew, rather than wait for somebody silent who cannot have it.
        let route = if sessions.can_move(&capsule) { route } else { route.staying() };
        Self { sessions, capsule, route }
    }

    pub(super) async fn run(
        mut self,
        worker: &Rc<Worker>,
        snapshot: &Arc<Snapshot>,
        principal: &Arc<str>,
        purpose: Purpose,
        mut forward: impl AsyncFnMut(&Peer, Option<&[PodId]>) -> Result<Forwarded, Refusal>,
    ) -> Result<Way, Refusal> {
        let key = self.capsule.key;
        let mut event = Event::Begin;
        loop {
            event = match self.step(event) {
                Next::Here(session) => return Ok(Way::Here(session)),
                Next::Forward(peer) => match forward(&peer, self.route.full()).await? {
                    Forwarded::Answered(response) => return Ok(Way::Answered(response)),
                    Forwarded::Not(why) => Event::NotForwarded(why),
                },
                Next::Ask(peers) => {
                    Event::Asked(worker.shared.peers.ask_all(&peers, &Question::Holds(key)).await)
                }
                Next::Wait(time) => {
                    sleep(time).await;
                    Event::Waited
                }
                Next::Take(take, ..) if purpose == Purpose::End => {
                    self.sessions.bury(Sessions::tombstone(&self.capsule));
                    return Ok(Way::Nowhere(Box::new(self.capsule.clone()), take));
                }
                Next::Take(..) if purpose == Purpose::Tell => return Err(Refusal::UnknownSession),
                Next::Take(take, copy, may_go_on) => {
                    // A client that goes away does not leave it half begun.
                    let (worker, snapshot, principal) = (worker.clone(), snapshot.clone(), principal.clone());
                    let taking = self.take(worker, snapshot, principal, (take, may_go_on), copy);
                    let (search, taken) =
                        tokio::task::spawn_local(taking).await.map_err(|_| Refusal::Internal)?;
                    self = search;
                    match taken {
                        Err(refusal) if may_go_on && refusal.lacks_room() => {
                            tracing::debug!(reason = refusal.reason(), "a session is taken elsewhere");
                            Event::Full
                        }
                        taken => {
                            taken?;
                            Event::Begin
                        }
                    }
                }
                Next::Moved(hint) => return Ok(Way::Moved(hint)),
                Next::Full(next) => return Ok(Way::Full(next)),
                Next::HandOn(next) => {
                    return Ok(Way::HandOn(next, self.route.full().unwrap_or_default().to_vec()));
                }
                Next::Ended(tombstone) => {
                    Local::bury(&*self.sessions, &[tombstone]);
                    return Err(Refusal::UnknownSession);
                }
                Next::Fail(Failure::NotFound) => return Err(Refusal::UnknownSession),
                Next::Fail(failure) => return Err(Refusal::SessionOutOfReach(failure)),
            }
        }
    }

    fn step(&mut self, event: Event) -> Next {
        let now = self.sessions.now();
        let mut replica = self.sessions.lock();
        match self.route.step(event, &mut *replica, now) {
            Step::Serve => match replica.held(&self.capsule.key) {
                Some(session) => Next::Here(Use::new(session.clone(), self.sessions.clone())),
                // It is held, or the step would be another one.
                None => Next::Fail(Failure::Undecided),
            },
            Step::Forward(peer) => Next::Forward(peer),
            Step::Ask(peers) => Next::Ask(peers),
            Step::Wait(until) => Next::Wait(until.since(now)),
            Step::Take(take, copy) => Next::Take(take, copy, self.route.may_go_on(&replica, now)),
            Step::Moved(hint) => Next::Moved(hint),
            Step::Full(next) => Next::Full(next),
            Step::HandOn(next) => Next::HandOn(next),
            Step::Ended(tombstone) => Next::Ended(tombstone),
            Step::Fail(failure) => Next::Fail(failure),
        }
    }

    /// Begins the session with the server, or goes on with it, and holds it. Where it may go on elsewhere it does not wait
    /// for room, and nobody's session ends for it.
    async fn take(
        mut self,
        worker: Rc<Worker>,
        snapshot: Arc<Snapshot>,
        principal: Arc<str>,
        (take, may_go_on): (Take, bool),
        copy: Copy,
    ) -> (Self, Result<(), Refusal>) {
        let lacking = (may_go_on && self.sessions.can_move(&self.capsule))
            .then(|| begin::lacks_place(&worker.pool, &snapshot, &principal, &self.capsule))
            .flatten();
        let taken = match lacking {
            Some(refusal) => Err(refusal),
            None => self.take_here(&worker, &snapshot, &principal, (take, may_go_on), copy).await,
        };
        (self, taken)
    }

    async fn take_here(
        &mut self,
        worker: &Rc<Worker>,
        snapshot: &Arc<Snapshot>,
        principal: &Arc<str>,
        take: (Take, bool),
        copy: Copy,
    ) -> Result<(), Refusal> {
        let metrics = &worker.shared.metrics;
        match begin::begin(&worker.pool, &self.sessions, snapshot, principal, &self.capsule, take, copy)
            .await?
        {
            Begun::Session(session, how) => {
                let session = Arc::<Session>::from(session);
                let has_copy = session.has_copy();
                let taken = {
                    let mut replica = self.sessions.lock();
                    self.route.take(&mut *replica, session.clone())
                };
                match taken {
                    Ok(()) => {
                        metrics.session_taken(how);
                        // Whoever has opened it: its server may be another one since, or was not told all.
                        self.sessions.set_again(&session, Instant::now());
                        self.sessions.compare_keys(&session, snapshot);
                        if has_copy {
                            self.sessions.uncopied.store(true, Ordering::Relaxed);
                            self.sessions.notes.note(session.capsule.key);
                        }
                    }
                    // Somebody ended it meanwhile.
                    Err(ended) => self.sessions.close(&ended.0),
                }
            }
            Begun::Lost => {
                metrics.session_taken(SessionTaken::Lost);
                self.sessions.bury(Sessions::tombstone(&self.capsule));
            }
        }
        Ok(())
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let mut replica = self.sessions.lock();
        self.route.abandon(&mut *replica);
    }
}

/// Where nothing is forwarded.
pub(super) async fn nowhere(_: &Peer, _: Option<&[PodId]>) -> Result<Forwarded, Refusal> {
    Ok(Forwarded::Not(NotForwarded::Moved(None)))
}

impl Sessions {
    /// Ends the streams of a session that is over, and has the server told.
    pub(super) fn close(&self, session: &Session) {
        session.streams.close();
        if let Some(farewell) = session.farewell() {
            self.send(super::Errand::Close(farewell));
        }
    }
}
