//! What is known of every sidecar, and which are to be asked.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::convert::Infallible;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;

use crate::bounds::Share;
use crate::poll::Poll;
use crate::{AdminAddress, Bounds, TokenFile};

/// The UID of a pod.
pub type PodUid = String;

/// What is known of one sidecar. `S` is what is kept of its inventory.
#[derive(Debug, PartialEq)]
pub struct Observation<S> {
    /// What it said last. `None`: nothing yet.
    pub summary: Option<Arc<S>>,
    /// Why it does not answer, if it has not for some seconds.
    pub unreachable: Option<String>,
}

/// Hands out what is known, and names the sidecars to ask. Cheap to clone. `K` names a server.
pub struct Inventories<K, S> {
    shared: Arc<Shared<S>>,
    tracked: mpsc::UnboundedSender<Tracked<K>>,
}

/// The servers whose sidecars said something new.
pub type Changes<K> = mpsc::UnboundedReceiver<K>;

/// Asks the sidecars.
pub struct Poller<K, S> {
    shared: Arc<Shared<S>>,
    read: Read<K, S>,
    tracked: mpsc::UnboundedReceiver<Tracked<K>>,
    changes: mpsc::UnboundedSender<K>,
    token: TokenFile,
}

/// How answers are read.
pub struct Read<K, S> {
    /// Makes of the JSON of an answer, by the sidecar of this server, what is kept of it. Of a long one it does so beside
    /// everything else.
    pub keep: Arc<Keep<K, S>>,
    /// Whether more would be kept of the same answer if it were read again. It is asked for again then, at the pace of
    /// a sidecar that has no news.
    pub is_short: Arc<IsShort<S>>,
    /// The namespace of a server: whoever has one may have as many servers in it as it likes.
    pub namespace: fn(&K) -> &str,
}

type Keep<K, S> = dyn Fn(&K, &[u8]) -> serde_json::Result<S> + Send + Sync;
type IsShort<S> = dyn Fn(&S) -> bool + Send + Sync;

/// The parts, for a type that reads itself: the handle, the stream of changes, and the future to run.
pub fn inventories<K, S: DeserializeOwned>(
    token: TokenFile,
    bounds: Bounds,
    namespace: fn(&K) -> &str,
) -> (Inventories<K, S>, Changes<K>, Poller<K, S>) {
    let read = Read {
        keep: Arc::new(|_: &K, json| serde_json::from_slice(json)),
        is_short: Arc::new(|_| false),
        namespace,
    };
    inventories_with(token, bounds, read)
}

/// The parts: the handle, the stream of changes, and the future to run.
///
/// The channels are unbounded in type and bounded by nature: their users look at each server in turn, and a change is
/// sent only when what is kept differs, at the pace of [`Bounds`].
pub fn inventories_with<K, S>(
    token: TokenFile,
    bounds: Bounds,
    read: Read<K, S>,
) -> (Inventories<K, S>, Changes<K>, Poller<K, S>) {
    let shared = Arc::new(Shared {
        known: Mutex::new(HashMap::new()),
        unauthorized: Notify::new(),
        refuses: Mutex::new(None),
        answers: Arc::new(Semaphore::new(bounds.places())),
        bounds,
    });
    let (track, tracked) = mpsc::unbounded_channel();
    let (change, changes) = mpsc::unbounded_channel();
    let handle = Inventories { shared: shared.clone(), tracked: track };
    (handle, changes, Poller { shared, read, tracked, changes: change, token })
}

/// What the handle, the poller and its polls share.
pub(crate) struct Shared<S> {
    known: Mutex<HashMap<PodUid, Observation<S>>>,
    unauthorized: Notify,
    /// Which pod's sidecar refused the token last.
    refuses: Mutex<Option<PodUid>>,
    pub(crate) answers: Arc<Semaphore>,
    pub(crate) bounds: Bounds,
}

struct Tracked<K> {
    server: K,
    sidecars: BTreeMap<PodUid, AdminAddress>,
}

/// The polls of one server's sidecars.
struct OfServer {
    sidecars: HashMap<PodUid, Running>,
    /// One of them at a time reads a long answer: a server that has them read slowly leaves the others theirs.
    turn: Arc<Semaphore>,
    /// The places of its namespace.
    of_namespace: Arc<Semaphore>,
    share: Arc<Share>,
}

struct Running {
    address: AdminAddress,
    abort: AbortHandle,
}

// === impl Observation ===

impl<S> Default for Observation<S> {
    fn default() -> Self {
        Self { summary: None, unreachable: None }
    }
}

impl<S> Clone for Observation<S> {
    fn clone(&self) -> Self {
        Self { summary: self.summary.clone(), unreachable: self.unreachable.clone() }
    }
}

// === impl Inventories ===

impl<K, S> Inventories<K, S> {
    /// From now on these are the sidecars of `server` to ask, by the UID of their pods; none when it is deleted.
    pub fn track<A: Into<AdminAddress>>(&self, server: K, pods: BTreeMap<PodUid, A>) {
        let sidecars = pods.into_iter().map(|(pod, address)| (pod, address.into())).collect();
        // The poller ends only with the process.
        let _ = self.tracked.send(Tracked { server, sidecars });
    }

    /// What is known of the sidecar of this pod.
    pub fn of(&self, pod: &str) -> Observation<S> {
        self.shared.known.lock().get(pod).cloned().unwrap_or_default()
    }

    /// Completes when a sidecar refused the token: the keys that it was given may be out of date. Gives the pod of the
    /// last one that did.
    pub async fn unauthorized(&self) -> PodUid {
        loop {
            self.shared.unauthorized.notified().await;
            let refuses = self.shared.refuses.lock().take();
            if let Some(pod) = refuses {
                return pod;
            }
        }
    }
}

impl<K, S> Clone for Inventories<K, S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), tracked: self.tracked.clone() }
    }
}

// === impl Read ===

impl<K, S> Clone for Read<K, S> {
    fn clone(&self) -> Self {
        Self { keep: self.keep.clone(), is_short: self.is_short.clone(), namespace: self.namespace }
    }
}

// === impl Shared ===

impl<S> Shared<S> {
    /// What the sidecar of this pod said last.
    pub(crate) fn summary(&self, pod: &str) -> Option<Arc<S>> {
        self.known.lock().get(pod)?.summary.clone()
    }
}

impl<S: PartialEq> Shared<S> {
    /// The sidecar of this pod refused the token.
    pub(crate) fn refused(&self, pod: &PodUid) {
        *self.refuses.lock() = Some(pod.clone());
        self.unauthorized.notify_one();
    }

    /// Keeps what a sidecar said now. Whether that is news.
    pub(crate) fn answered(&self, pod: &PodUid, kept: Option<S>) -> bool {
        let mut known = self.known.lock();
        let known = known.entry(pod.clone()).or_default();
        let mut news = known.unreachable.take().is_some();
        if let Some(kept) = kept
            && known.summary.as_deref() != Some(&kept)
        {
            known.summary = Some(Arc::new(kept));
            news = true;
        }
        news
    }

    /// Keeps that a sidecar does not answer. Whether that is news.
    pub(crate) fn failed(&self, pod: &PodUid, because: String) -> bool {
        let mut known = self.known.lock();
        let known = known.entry(pod.clone()).or_default();
        let news = known.unreachable.as_ref() != Some(&because);
        known.unreachable = Some(because);
        news
    }
}

// === impl OfServer ===

impl OfServer {
    fn new(of_namespace: Arc<Semaphore>) -> Self {
        let share = Arc::new(Share::new(Instant::now()));
        Self { sidecars: HashMap::new(), turn: Arc::new(Semaphore::new(1)), of_namespace, share }
    }
}

// === impl Poller ===

impl<K, S> Poller<K, S>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    S: PartialEq + Send + Sync + 'static,
{
    /// Asks every tracked sidecar, for ever.
    pub async fn run(mut self) -> Infallible {
        let mut polls: HashMap<K, OfServer> = HashMap::new();
        let mut namespaces: HashMap<String, Arc<Semaphore>> = HashMap::new();
        let places = self.shared.bounds.places_of_namespace();
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(tracked) = self.tracked.recv() => {
                    let of_server = polls.entry(tracked.server.clone()).or_insert_with(|| {
                        let namespace = (self.read.namespace)(&tracked.server).to_owned();
                        let of_namespace = namespaces.entry(namespace);
                        OfServer::new(of_namespace.or_insert_with(|| Arc::new(Semaphore::new(places))).clone())
                    });
                    of_server.sidecars.retain(|uid, poll| {
                        let keep = tracked.sidecars.get(uid) == Some(&poll.address);
                        if !keep {
                            poll.abort.abort();
                            self.shared.known.lock().remove(uid);
                        }
                        keep
                    });
                    for (uid, address) in tracked.sidecars {
                        if let Entry::Vacant(vacant) = of_server.sidecars.entry(uid) {
                            let (abort, registration) = AbortHandle::new_pair();
                            let poll = Poll {
                                shared: self.shared.clone(),
                                read: self.read.clone(),
                                changes: self.changes.clone(),
                                token: self.token.clone(),
                                turn: of_server.turn.clone(),
                                of_namespace: of_server.of_namespace.clone(),
                                share: of_server.share.clone(),
                                server: tracked.server.clone(),
                                pod: vacant.key().clone(),
                                address,
                            };
                            running.push(Abortable::new(poll.run(), registration));
                            vacant.insert(Running { address, abort });
                        }
                    }
                    if of_server.sidecars.is_empty() {
                        polls.remove(&tracked.server);
                        // Nothing is read any more of the others.
                        namespaces.retain(|_, places| Arc::strong_count(places) > 1);
                    }
                }
                Some(_aborted) = running.next(), if !running.is_empty() => {}
            }
        }
    }
}
