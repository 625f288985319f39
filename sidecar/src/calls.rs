//! The calls under way, of which a drain waits for some.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

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
        let mut former = self.former.lock();
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

    use tokio::time::{Duration, timeout};

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
