//! What the threads of a process share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use longshore_sidecar_config::inventory::ExposedSocket;
use longshore_sidecar_config::{Auth, Config};
use tokio::sync::{Notify, watch};
use tokio::time::Duration;

use crate::audit::Audit;
use crate::configuration::Snapshot;
use crate::doubt::Doubt;
use crate::drain::{Arrivals, Ending};
use crate::held::Shares;
use crate::metrics::Metrics;
use crate::monitor::{Relist, View};
use crate::options::Options;
use crate::peers::Peers;
use crate::rescue::Refusal;
use crate::sessions::{Full, Place, Places, Sessions};
use crate::stack::sse;
use crate::streams::Store;
use crate::tasks::Tasks;
use crate::upstream::sse::Sse;
use crate::upstream::stdio::Stdio;
use crate::upstream::{Absence, Lifted, Lowered, Speaks};
use crate::worker::Unfinished;

/// One of these per process.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// The configuration that runs. None means that nothing is served.
    pub(crate) snapshot: ArcSwapOption<Snapshot>,
    pub(crate) sessions: Arc<Sessions>,
    /// What is kept of the events that clients read.
    pub(crate) streams: Arc<Store>,
    /// Where the server speaks over stdio: its processes.
    pub(crate) stdio: Arc<Stdio>,
    /// Where it speaks HTTP+SSE: the sessions with it.
    pub(crate) sse: Arc<Sse>,
    /// The messages that are held whole for clients.
    pub(crate) held: Arc<Shares>,
    /// Those of clients that are no calls, where those have taken up all room.
    pub(crate) told: Arc<Shares>,
    /// The streams of clients that speak HTTP+SSE.
    pub(crate) callers_streams: Arc<sse::Open>,
    /// The other replicas.
    pub(crate) peers: Peers,
    pub(crate) audit: Audit,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) calls: Arc<Calls>,
    /// Those of them that open sessions.
    pub(crate) openings: Arc<Calls>,
    pub(crate) rooms: Rooms,
    /// What requests hold of which nothing is known yet.
    pub(crate) unfinished: Unfinished,
    /// Who listens without a session.
    pub(crate) listeners: Arc<Places>,
    /// The calls that were taken to other replicas.
    pub(crate) forwards: Arc<Calls>,
    /// Counts the configurations, so that those who follow from one are told.
    pub(crate) config_changed: watch::Sender<u64>,
    /// Why the files on disk are not the configuration that runs.
    pub(crate) config_error: watch::Sender<Option<String>>,
    /// What the monitor knows of the server.
    pub(crate) view: watch::Sender<View>,
    /// The sockets that can be reached around the sidecar.
    pub(crate) exposed: watch::Sender<Vec<ExposedSocket>>,
    /// What the server speaks.
    pub(crate) speaks: Arc<Speaks>,
    /// The sessions of clients with a server that has none.
    pub(crate) lowered: Arc<Lowered>,
    /// What a server with sessions is asked by requests that stand alone.
    pub(crate) lifted: Arc<Lifted>,
    /// How clients call the tasks of the server.
    pub(crate) tasks: Arc<Tasks>,
    /// Since when calls have not found the server.
    pub(crate) absence: Absence,
    /// A request found the server failing: the monitor should look at once.
    pub(crate) doubt: Arc<Doubt>,
    /// A request does not fit what the server has listed: the monitor should read that again.
    pub(crate) relist: Relist,
    /// How many hooks of the server are open.
    pub(crate) hooks: watch::Sender<usize>,
    /// The process ends.
    pub(crate) draining: watch::Sender<bool>,
    /// How far the end is.
    pub(crate) ending: Ending,
    /// When clients have connected.
    pub(crate) arrivals: Arrivals,
}

/// How much is under way, in all and of each principal, so that none of them takes up the room of the others.
#[derive(Default)]
pub(crate) struct Rooms {
    /// The calls to the server.
    pub(crate) calls: Arc<Places>,
    /// What it is told: answers to its questions, and notifications, with which a client takes a call back. Calls leave
    /// them room.
    pub(crate) words: Arc<Places>,
    /// What is taken to other replicas.
    pub(crate) forwards: Arc<Places>,
    /// And the streams of which that is so that clients listen to, for as long as they like.
    pub(crate) listening: Arc<Places>,
}

impl Shared {
    /// Room for one more of a principal.
    pub(crate) fn room(
        &self,
        places: &Arc<Places>,
        principal: &Arc<str>,
        config: &Config,
    ) -> Result<Place, Refusal> {
        let total = u32::try_from(self.options.bounds.calls).unwrap_or(u32::MAX);
        // Nobody is told from others.
        let own = if config.auth == Auth::None { total } else { total.div_ceil(2) };
        places.take_of(principal, total, own).map_err(|full| match full {
            Full::Total => Refusal::TooManyCalls,
            Full::Principal(limit) => Refusal::TooManyOwnCalls { limit },
        })
    }

    /// Puts a configuration into force.
    pub(crate) fn swap(&self, snapshot: Arc<Snapshot>) {
        self.sessions.configure(snapshot.clone());
        self.lifted.configure(snapshot.clone());
        self.lowered.configure(&snapshot.config.limits);
        self.stdio.configure(&snapshot.config);
        self.snapshot.store(Some(snapshot));
        self.set_config_error(None);
        self.config_changed.send_modify(|count| *count += 1);
    }

    /// Notes why the files are not used.
    pub(crate) fn set_config_error(&self, error: Option<String>) {
        self.config_error.send_if_modified(|current| {
            let changed = *current != error;
            *current = error;
            changed
        });
    }

    /// The configuration that runs, for a look.
    pub(crate) fn config(&self) -> Guard<Option<Arc<Snapshot>>> {
        self.snapshot.load()
    }

    /// The longest that a call under way may take, whatever configuration it began under.
    pub(crate) fn longest_call(&self) -> Duration {
        let configured =
            || self.config().as_ref().map_or(0, |snapshot| snapshot.config.limits.request_timeout_ms);
        Duration::from_millis(self.options.longest_call_ms.unwrap_or_else(configured))
    }

    /// Whether the process ends.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}

/// The calls under way, in generations: a drain waits for the calls that began before it while new ones begin. There
/// may be several drains at once, and those that were given up.
pub(crate) struct Calls {
    count: AtomicUsize,
    newest: ArcSwap<Generation>,
    /// Those before it, as far as calls of them are under way.
    former: Mutex<Vec<Weak<Generation>>>,
    /// The last call has ended, or the last one of a generation.
    ended: Arc<Notify>,
}

/// The calls that began between two drains. There is one for as long as one of them is under way.
struct Generation(Arc<Notify>);

/// One call under way.
pub(crate) struct CallGuard {
    calls: Arc<Calls>,
    _generation: Arc<Generation>,
}

impl Calls {
    /// Begins a call.
    pub(crate) fn begin(self: &Arc<Self>) -> CallGuard {
        let generation = self.newest.load_full();
        self.count.fetch_add(1, Ordering::SeqCst);
        CallGuard { calls: self.clone(), _generation: generation }
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until none is under way.
    pub(crate) async fn all_ended(&self) {
        self.until(|| self.count() == 0).await;
    }

    /// Waits until those have ended that are under way now; newer ones are not waited for.
    pub(crate) async fn current_ended(&self) {
        let before = self.turn();
        self.until(|| before.iter().all(|generation| generation.strong_count() == 0)).await;
    }

    /// Begins a generation. Gives those before it.
    fn turn(&self) -> Vec<Weak<Generation>> {
        // Nothing that holds the lock can leave the list half changed.
        let mut former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.newest.swap(Arc::new(Generation(self.ended.clone())));
        former.push(Arc::downgrade(&last));
        drop(last);
        former.retain(|generation| generation.strong_count() > 0);
        former.clone()
    }

    async fn until(&self, done: impl Fn() -> bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registers before it looks, so that no end is missed.
            ended.as_mut().enable();
            if done() {
                return;
            }
            ended.await;
        }
    }
}

impl Default for Calls {
    fn default() -> Self {
        let ended = Arc::new(Notify::new());
        let newest = ArcSwap::from_pointee(Generation(ended.clone()));
        Self { count: AtomicUsize::new(0), newest, former: Mutex::default(), ended }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if self.calls.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.calls.ended.notify_waiters();
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::timeout;

    use super::*;

    async fn is_over(drain: impl Future<Output = ()>) -> bool {
        timeout(Duration::ZERO, drain).await.is_ok()
    }

    #[tokio::test]
    async fn each_drain_waits_for_the_calls_before_it_alone() {
        let calls = Arc::new(Calls::default());
        let first = calls.begin();
        let mut one = pin!(calls.current_ended());
        assert!(!is_over(one.as_mut()).await);
        let second = calls.begin();
        let mut another = pin!(calls.current_ended());
        assert!(!is_over(another.as_mut()).await);
        let third = calls.begin();
        drop(first);
        assert!(is_over(one).await && !is_over(another.as_mut()).await);
        drop(second);
        assert!(is_over(another).await);

        // One that nobody waits for any more.
        assert!(!is_over(calls.current_ended()).await);
        let fourth = calls.begin();
        let mut last = pin!(calls.current_ended());
        assert!(!is_over(last.as_mut()).await);
        drop(fourth);
        assert!(!is_over(last.as_mut()).await, "the third one began before it too");
        assert!(!is_over(calls.all_ended()).await);
        drop(third);
        assert!(is_over(last).await && is_over(calls.all_ended()).await);
        assert_eq!((calls.count(), calls.turn().len()), (0, 0));
    }
}
