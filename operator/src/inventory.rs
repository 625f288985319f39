//! What the sidecars say of their servers.
//!
//! For every pod that a reconciliation names ([`Inventories::track`]) a long poll of the sidecar's inventory runs: the
//! request waits at the sidecar until something changes, so a change is known within milliseconds and a settled
//! cluster costs one request a pod and half a minute. What came last is kept as a [`Summary`]; when it changes, the
//! server is due for reconciliation ([`Changes`]).
//!
//! All polls run inside the one future [`Poller::run`]: no task can end unseen.

mod client;
mod summary;
mod token;

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable};
use futures::stream::FuturesUnordered;
use kube::runtime::reflector::ObjectRef;
use longshore_crds::McpServer;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

pub use summary::{ServerSummary, Summary, ToolsSummary};
pub use token::TokenFile;

use client::Answer;

/// A sidecar that does not answer for less than this is not worth a word: it may be restarting.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(3);
/// While a pod starts, the next try comes soon.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// The UID of a pod.
pub type PodUid = String;

/// What is known of one sidecar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// What it said last. `None`: nothing yet.
    pub summary: Option<Arc<Summary>>,
    /// Why it does not answer, if it has not for some seconds.
    pub unreachable: Option<String>,
}

/// Hands out what is known, and names the pods to ask. Cheap to clone.
#[derive(Clone)]
pub struct Inventories {
    known: Known,
    tracked: mpsc::UnboundedSender<Tracked>,
    unauthorized: Arc<Notify>,
}

/// The servers whose sidecars said something new.
pub type Changes = mpsc::UnboundedReceiver<ObjectRef<McpServer>>;

/// Asks the sidecars.
pub struct Poller {
    known: Known,
    tracked: mpsc::UnboundedReceiver<Tracked>,
    changes: mpsc::UnboundedSender<ObjectRef<McpServer>>,
    unauthorized: Arc<Notify>,
    token: TokenFile,
}

type Known = Arc<Mutex<HashMap<PodUid, Observation>>>;

struct Tracked {
    server: ObjectRef<McpServer>,
    pods: BTreeMap<PodUid, IpAddr>,
}

struct Poll {
    address: IpAddr,
    abort: AbortHandle,
}

/// The parts: the handle, the stream of changes, and the future to run.
///
/// The channels are unbounded in type and bounded by nature: a server has at most one pending [`Tracked`] a
/// reconciliation, and a change is sent only when a summary differs.
pub fn inventories(token: TokenFile) -> (Inventories, Changes, Poller) {
    let known = Known::default();
    let unauthorized = Arc::new(Notify::new());
    let (track, tracked) = mpsc::unbounded_channel();
    let (change, changes) = mpsc::unbounded_channel();
    let handle = Inventories { known: known.clone(), tracked: track, unauthorized: unauthorized.clone() };
    (handle, changes, Poller { known, tracked, changes: change, unauthorized, token })
}

// === impl Inventories ===

impl Inventories {
    /// From now on these are the pods of `server` to ask; none when it is deleted.
    pub fn track(&self, server: ObjectRef<McpServer>, pods: BTreeMap<PodUid, IpAddr>) {
        // The poller ends only with the process.
        let _ = self.tracked.send(Tracked { server, pods });
    }

    /// What is known of the sidecar of this pod.
    pub fn of(&self, pod: &str) -> Observation {
        lock(&self.known).get(pod).cloned().unwrap_or_default()
    }

    /// Completes when a sidecar refused the operator's token: the keys that it was given may be out of date.
    pub async fn unauthorized(&self) {
        self.unauthorized.notified().await;
    }
}

fn lock(known: &Known) -> MutexGuard<'_, HashMap<PodUid, Observation>> {
    // Every critical section is a single map operation, so a poisoned map is still whole.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Poller ===

impl Poller {
    /// Asks every tracked sidecar, for ever.
    pub async fn run(mut self) -> Infallible {
        let mut polls: HashMap<ObjectRef<McpServer>, HashMap<PodUid, Poll>> = HashMap::new();
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(tracked) = self.tracked.recv() => {
                    let of_server = polls.entry(tracked.server.clone()).or_default();
                    of_server.retain(|uid, poll| {
                        let keep = tracked.pods.get(uid) == Some(&poll.address);
                        if !keep {
                            poll.abort.abort();
                            lock(&self.known).remove(uid);
                        }
                        keep
                    });
                    for (uid, address) in tracked.pods {
                        if let Entry::Vacant(vacant) = of_server.entry(uid) {
                            let (abort, registration) = AbortHandle::new_pair();
                            let poll = self.poll(tracked.server.clone(), vacant.key().clone(), address);
                            running.push(Abortable::new(poll, registration));
                            vacant.insert(Poll { address, abort });
                        }
                    }
                    if of_server.is_empty() {
                        polls.remove(&tracked.server);
                    }
                }
                Some(_aborted) = running.next(), if !running.is_empty() => {}
            }
        }
    }

    fn poll(
        &self,
        server: ObjectRef<McpServer>,
        pod: PodUid,
        address: IpAddr,
    ) -> impl Future<Output = Infallible> + Send + use<> {
        let Self { known, changes, unauthorized, token, .. } = self;
        let (known, changes, unauthorized, token) =
            (known.clone(), changes.clone(), unauthorized.clone(), token.clone());
        async move {
            let mut tag: Option<String> = None;
            let mut failing: Option<Instant> = None;
            let mut retry = FIRST_RETRY;
            let publish = |observation: Observation| {
                let mut known = lock(&known);
                if known.get(&pod) != Some(&observation) {
                    known.insert(pod.clone(), observation);
                    // The receiver ends only with the process.
                    let _ = changes.send(server.clone());
                }
            };
            loop {
                match client::ask(address, &token, tag.as_deref()).await {
                    Ok(Answer::Changed { summary, tag: new }) => {
                        tag = new;
                        publish(Observation { summary: Some(summary), unreachable: None });
                    }
                    Ok(Answer::Unchanged) => {
                        let summary =
                            lock(&known).get(&pod).and_then(|observation| observation.summary.clone());
                        publish(Observation { summary, unreachable: None });
                    }
                    Err(error) => {
                        if error.is_unauthorized() {
                            unauthorized.notify_one();
                        }
                        let since = *failing.get_or_insert_with(Instant::now);
                        if since.elapsed() >= UNREACHABLE_AFTER {
                            let summary =
                                lock(&known).get(&pod).and_then(|observation| observation.summary.clone());
                            publish(Observation { summary, unreachable: Some(error.to_string()) });
                        }
                        sleep(jittered(retry)).await;
                        // A pod takes a second or two to start; after that there is no hurry.
                        let longest =
                            if since.elapsed() < UNREACHABLE_AFTER { FIRST_RETRY * 5 } else { LAST_RETRY };
                        retry = (retry * 3 / 2).min(longest);
                        continue;
                    }
                }
                failing = None;
                retry = FIRST_RETRY;
                if tag.is_none() {
                    // A sidecar that gives no tag cannot hold the request either.
                    sleep(LAST_RETRY).await;
                }
            }
        }
    }
}

/// Between 75 % and 125 % of `delay`, so that many polls that failed together do not come back together.
fn jittered(delay: Duration) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    let random = RandomState::new().hash_one(0_u8) % 512;
    delay * 3 / 4 + delay * u32::try_from(random).unwrap_or(0) / 1024
}
