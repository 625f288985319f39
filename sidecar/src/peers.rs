//! The replicas of one server among themselves: who there is, what they ask each other, and how a request gets to the
//! one that serves its session. Not to be confused with the rules of who that is, which are in `longshore-sessions`.
//!
//! * [`tls`]: a replica proves with a key from the server's Secret that it is one;
//! * [`names`] and [`members`]: DNS says whom to ask, heartbeats say who lives; [`entry`]: where DNS is behind, somebody
//!   else says it; [`overlooked`]: it may be wrong instead;
//! * [`ask`] and [`mod@listen`]: questions and requests of others, both ways, over [`connection`]s that are kept;
//! * [`wire`]: what a forwarded request looks like.

mod ask;
mod connection;
mod entry;
mod listen;
mod members;
mod names;
mod overlooked;
mod tls;
mod wire;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use longshore_sessions::membership::State;
use longshore_sessions::message::HandOver;
use longshore_sessions::routing::Outcome;
use longshore_sessions::tombstones::Tombstone;
use longshore_sessions::{Answer, Introduction, Keyring, Message, Peer, PodId, Question};
use tokio::sync::{oneshot, watch};
use tokio::time::{Duration, Instant, sleep, timeout_at};

use crate::stack::Authenticated;
use ask::{Ask, Asked, Asks};
use connection::{Connections, Unanswered};
use tls::Tls;

pub(crate) use connection::{Failure, Lease};
pub(crate) use listen::{Forwarded, full, moved, serve as listen};
pub(crate) use members::{cut_the_silent, watch};
pub(crate) use tls::TlsError;
pub(crate) use wire::{ENDING, Notice, comes_from_one_that_ends, full as without_room};

/// How long it is waited at most until the others have heard the farewell, with the requests that they sent before.
const FAREWELL: Duration = Duration::from_secs(3);
/// After how long without one there are no more: longer than one takes from one replica to another.
const QUIET: Duration = Duration::from_millis(250);

/// What a configuration says of the other replicas.
pub(crate) struct Replicas {
    /// The name that lists them.
    service: String,
    tls: Tls,
}

/// The replica of this process, as the others see it. Who implements it keeps all of it behind one lock, and never waits.
pub(crate) trait Local: Send + Sync {
    /// How it introduces itself.
    fn introduction(&self) -> Introduction;
    /// Begins to serve, or to drain.
    fn set_state(&self, state: State);
    /// Notes whether the server was lost soon after its handshake, and has not stayed since.
    fn set_shaken(&self, shaken: bool);
    /// Notes whether all places of sessions, or of their processes, are taken.
    fn set_full(&self, full: bool);
    /// Answers a question, and does what follows from it.
    fn answer(&self, question: Message<Question>) -> Message<Answer>;
    /// Notes that some sessions are ended.
    fn bury(&self, ended: &[Tombstone]);
    /// Notes something about the others.
    fn note(&self, news: News<'_>);
    /// Whom to send heartbeats.
    fn to_greet(&self) -> Vec<IpAddr>;
    /// Who may be alive.
    fn to_ask(&self) -> Vec<IpAddr>;
    /// Who is alive, and what they are doing.
    fn alive(&self) -> Vec<(Peer, State)>;
    /// Who takes what is new: those with room for sessions, and those without.
    fn serving(&self) -> [Vec<Peer>; 2];
    /// Gives up sessions for their successors: those that can move and that nobody uses just now.
    fn give_up(&self, at_most: usize) -> Vec<(Peer, HandOver)>;
    /// Whether there are sessions that can move, or may be in a moment, when they become idle and somebody serves who
    /// takes them.
    fn has_movable(&self) -> bool;
    /// Whether somebody else serves, or may, who is silent just now.
    fn may_serve(&self) -> bool;
    /// Whether everybody who is listed was reached once, or could not be.
    fn is_greeted(&self) -> bool;
    /// Whether another process of this pod was there before.
    fn is_resumed(&self) -> bool;
    /// Whether DNS answers and does not list this replica.
    fn is_overlooked(&self) -> bool;
    /// Whether an address has been silent for so long that nothing more is to be waited for.
    fn is_lost(&self, address: IpAddr) -> bool;
    /// Where a pod was heard last, be it silent by now.
    fn last_heard(&self, pod: &PodId) -> Option<Peer>;
    /// Whether a pod will not come back, however long ago it was there, or has been down for long enough to count as gone.
    fn is_gone(&self, peer: &Peer) -> bool;
}

/// What was noticed of other replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// DNS lists these.
    Listed(&'a [IpAddr]),
    /// One said something.
    Heard(&'a Introduction),
    /// A port refused a connection.
    Refused(IpAddr),
    /// Nothing came from there in time.
    Silent(IpAddr),
    /// All was fetched that is known to be ended there.
    Fetched(IpAddr),
}

/// A handle to the other replicas, for any thread.
#[derive(Clone)]
pub(crate) struct Peers(Arc<Inner>);

struct Inner {
    local: Arc<dyn Local>,
    pod: PodId,
    port: u16,
    asks: Asks,
    /// How many requests were forwarded here.
    arrived: AtomicUsize,
    /// Everybody has been greeted, or it took too long.
    greeted: watch::Sender<bool>,
    /// The state has changed: the others are to hear of it at once.
    changed: watch::Sender<State>,
}

/// The tasks behind a [`Peers`], to be run on the control thread.
pub(crate) struct Errands(Asked);

// === impl Replicas ===

impl Replicas {
    /// The replicas behind this name, known by these keys.
    pub(crate) fn new(service: &str, keys: &Keyring) -> Result<Self, TlsError> {
        let accepted: Vec<_> = keys.peer_seeds().copied().collect();
        Ok(Self { service: service.to_owned(), tls: Tls::new(keys.peer_seed(), &accepted)? })
    }
}

// === impl Peers ===

impl Peers {
    /// A handle, and what has to run for it to work. All replicas listen at the same port.
    pub(crate) fn new(local: Arc<dyn Local>, port: u16) -> (Self, Errands) {
        let (asks, asked) = ask::queues();
        let pod = local.introduction().pod;
        let (greeted, changed) = (watch::Sender::new(false), watch::Sender::new(State::Starting));
        (
            Self(Arc::new(Inner { local, pod, port, asks, arrived: AtomicUsize::new(0), greeted, changed })),
            Errands(asked),
        )
    }

    /// Which pod this is.
    pub(crate) fn pod(&self) -> &PodId {
        &self.0.pod
    }

    /// Where replicas listen.
    pub(crate) fn port(&self) -> u16 {
        self.0.port
    }

    /// Asks whoever is at an address. What can be learned of them from the answer, or from its absence, is noted.
    pub(crate) async fn ask(&self, to: IpAddr, question: Question) -> Result<Message<Answer>, Failure> {
        let answer = self.try_ask(to, question).await;
        let news = match &answer {
            Ok(message) => Some(News::Heard(&message.from)),
            Err(Failure::Refused) => Some(News::Refused(to)),
            Err(Failure::TimedOut | Failure::Broken) => Some(News::Silent(to)),
            Err(Failure::Declined) => None,
        };
        if let Some(news) = news {
            self.0.local.note(news);
        }
        answer
    }

    async fn try_ask(&self, to: IpAddr, question: Question) -> Result<Message<Answer>, Failure> {
        let asks = self.0.asks.of(&question);
        let question = Message { from: self.0.local.introduction(), body: question };
        let text = serde_json::to_vec(&question).map_err(|_| Failure::Broken)?.into();
        let (reply, answer) = oneshot::channel();
        // That many are asked here says nothing of who is asked.
        asks.send(Ask { to, text, reply }).await.map_err(|_| Failure::Broken)?;
        let text = answer.await.map_err(|_| Failure::TimedOut)??;
        serde_json::from_slice(&text).map_err(|_| Failure::Declined)
    }

    /// Asks all of these at once.
    pub(crate) async fn ask_all(&self, to: &[IpAddr], question: &Question) -> Vec<(IpAddr, Outcome)> {
        let asked = to.iter().map(async |address| {
            let outcome = match self.ask(*address, question.clone()).await {
                Ok(message) => Outcome::Said(Box::new(message)),
                Err(Failure::Refused) => Outcome::Refused,
                Err(Failure::TimedOut | Failure::Broken) => Outcome::Silent,
                Err(Failure::Declined) => Outcome::Declined,
            };
            (*address, outcome)
        });
        join_all(asked).await
    }

    /// Tells everybody who may be alive. Returns when each of them has heard it, or cannot be reached.
    pub(crate) async fn tell_all(&self, question: &Question) {
        self.ask_all(&self.0.local.to_ask(), question).await;
    }

    /// Whether everybody has been greeted, or it took too long.
    pub(crate) fn greeted(&self) -> watch::Receiver<bool> {
        self.0.greeted.subscribe()
    }

    /// Who is alive, and what they are doing.
    pub(crate) fn alive(&self) -> Vec<(Peer, State)> {
        self.0.local.alive()
    }

    /// Who takes what is new: they serve, and their servers stay. Those with room for sessions, and those without.
    pub(crate) fn serving(&self) -> [Vec<Peer>; 2] {
        self.0.local.serving()
    }

    /// Whether a replica was heard just now.
    pub(crate) fn lives(&self, pod: &PodId) -> bool {
        self.alive().iter().any(|(peer, _)| peer.pod == *pod)
    }

    /// A replica where it was heard last, if it was.
    pub(crate) fn located(&self, peer: Peer) -> Peer {
        self.0.local.last_heard(&peer.pod).unwrap_or(peer)
    }

    /// Whether a pod will not come back, or counts as gone.
    pub(crate) fn is_gone(&self, peer: &Peer) -> bool {
        self.0.local.is_gone(peer)
    }

    /// Gives up sessions for their successors: those that can move and that nobody uses just now.
    pub(crate) fn give_up(&self, at_most: usize) -> Vec<(Peer, HandOver)> {
        self.0.local.give_up(at_most)
    }

    /// Whether there are sessions that can move, or may be in a moment, when they become idle and somebody serves who
    /// takes them.
    pub(crate) fn has_movable(&self) -> bool {
        self.0.local.has_movable()
    }

    /// Whether another sidecar was in this pod before.
    pub(crate) fn is_resumed(&self) -> bool {
        self.0.local.is_resumed()
    }

    /// Has the others hear what this replica is doing from now on, before anything else is done.
    pub(crate) async fn announce(&self, state: State) {
        self.0.local.set_state(state);
        self.tell_all(&Question::Heartbeat).await;
    }

    /// Whether another replica serves, so that sessions and calls can go there.
    pub(crate) fn has_serving(&self) -> bool {
        self.alive().iter().any(|(_, state)| *state == State::Serving)
    }

    /// Whether another replica may serve, though none may have been heard just now.
    pub(crate) fn may_serve(&self) -> bool {
        self.0.local.may_serve()
    }

    /// Has the others forward nothing here any more, and waits for what is under way by then, but no longer than until
    /// `latest`. If the pod ends, they need not ask here any more either, and take what was left; otherwise they wait for
    /// the next sidecar.
    pub(crate) async fn farewell(
        &self,
        under_way: impl Fn() -> usize,
        pod_ends: impl Fn() -> bool,
        latest: Instant,
    ) {
        // As after a restart: it is there, and does not serve. That the pod ends may show while this goes on.
        let last = || if pod_ends() { State::Leaving } else { State::Starting };
        let heard = Instant::now() + FAREWELL;
        let quiet = async {
            loop {
                // Said again, since an older word of this replica may have arrived later than a newer one.
                self.announce(last()).await;
                let may_serve = self.may_serve();
                if self.0.local.alive().is_empty() && !may_serve && under_way() == 0 {
                    break;
                }
                // What they had sent just before is on its way, or waits to be read.
                let arrived = self.0.arrived.load(Ordering::Relaxed);
                sleep(QUIET).await;
                self.announce(last()).await;
                sleep(QUIET).await;
                // Who is silent has not heard it, and what comes here could go nowhere.
                let is_heard = !may_serve || self.has_serving();
                let is_quiet = self.0.arrived.load(Ordering::Relaxed) == arrived;
                if (is_quiet && is_heard || Instant::now() >= heard) && under_way() == 0 {
                    break;
                }
            }
        };
        if timeout_at(latest.max(heard), quiet).await.is_err() {
            tracing::debug!("calls go on at this replica, which ends");
        }
    }

    /// A request was forwarded here.
    fn arrived(&self) {
        self.0.arrived.fetch_add(1, Ordering::Relaxed);
    }

    fn answer(&self, question: Message<Question>) -> Message<Answer> {
        self.0.local.answer(question)
    }
}

/// The ways of one thread to the other replicas.
pub(crate) struct Ways {
    peers: Peers,
    connections: Connections,
}

/// An answer, with the connection that it is still coming from.
pub(crate) struct Sent {
    pub(crate) response: Response<Incoming>,
    pub(crate) lease: Lease,
}

impl Ways {
    pub(crate) fn new(peers: Peers) -> Self {
        Self { peers, connections: Connections::default() }
    }

    /// Sends a client's request to another replica, and waits for the head of the answer. `ends` says whether this one does,
    /// and `full` who has no room for it, if it goes on to somebody else then.
    pub(crate) async fn forward(
        &self,
        caller: &Authenticated,
        body: Bytes,
        to: &Peer,
        ends: bool,
        full: Option<&[PodId]>,
    ) -> Result<Sent, Unanswered> {
        let unsent = Unanswered { failure: Failure::TimedOut, written: false };
        let replicas = caller.snapshot.replicas.as_ref().ok_or(unsent)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = caller.request.method().clone();
        *request.uri_mut() = Uri::from_static(wire::FORWARD);
        *request.headers_mut() =
            wire::outgoing(caller.request.headers(), &to.pod, caller.principal(), ends, full)
                .ok_or(unsent)?;
        let address = SocketAddr::new(to.address, self.peers.port());
        let (response, lease) =
            self.connections.send(&replicas.tls, address, request).await.inspect_err(|unanswered| {
                // Others need not find it out again.
                match unanswered.failure {
                    Failure::Refused => self.peers.0.local.note(News::Refused(to.address)),
                    Failure::TimedOut => self.peers.0.local.note(News::Silent(to.address)),
                    Failure::Broken | Failure::Declined => {}
                }
            })?;
        Ok(Sent { response, lease })
    }
}
