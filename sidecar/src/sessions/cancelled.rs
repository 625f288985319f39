//! Calls that a client does not want the answers of any more. Servers give none then, and many of those over HTTP leave
//! the response open: what waits for it would wait for as long as a call may take.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_mcp::envelope::Id;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

/// How many bytes of them are remembered, if there are not more calls under way: a call may look only a while later.
const ROOM: usize = 32 << 10;
/// How long an answer may still come, which crosses the cancellation.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of one session that its client has cancelled.
#[derive(Default)]
pub(super) struct Cancelled {
    count: AtomicU64,
    list: Mutex<List>,
    news: Notify,
}

#[derive(Default)]
struct List {
    /// Oldest first.
    entries: VecDeque<Entry>,
    bytes: usize,
}

struct Entry {
    /// Its place in the order of cancellations, from 1.
    number: u64,
    /// The id, as JSON.
    id: Box<str>,
    at: Instant,
}

impl Cancelled {
    /// How many there were so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The client has cancelled the call with this id, one of so many.
    pub(super) fn note(&self, id: &Id<'_>, calls: usize) {
        let mut list = self.lock();
        while list.bytes > ROOM && list.entries.len() >= calls && list.drop_first() {}
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = Entry { number, id: id.as_json().into(), at: Instant::now() };
        list.bytes += entry.bytes();
        list.entries.push_back(entry);
        drop(list);
        self.news.notify_waiters();
    }

    /// Forgets the first so many: there has been a moment since without a call.
    pub(super) fn forget(&self, count: u64) {
        if count == 0 {
            return;
        }
        let mut list = self.lock();
        while list.entries.front().is_some_and(|entry| entry.number <= count) && list.drop_first() {}
        if list.entries.is_empty() {
            // Idle sessions are many.
            list.entries = VecDeque::new();
        }
    }

    /// Returns when a call with this id has been cancelled for a while, which began when there were so many: ids are used
    /// again.
    pub(super) async fn heard(&self, id: &Id<'_>, since: u64) {
        loop {
            // It is told of everything from now on, whether it waits yet or not.
            let news = self.news.notified();
            if let Some(at) = self.find(id, since) {
                // Boxed, since few calls come here, and all would be as large as if they did.
                return Box::pin(sleep_until(at + GRACE)).await;
            }
            news.await;
        }
    }

    fn find(&self, id: &Id<'_>, since: u64) -> Option<Instant> {
        // Nearly always.
        if self.count() == since {
            return None;
        }
        let is_it = |entry: &&Entry| entry.number > since && Id::from_json(&entry.id).is(id);
        self.lock().entries.iter().find(is_it).map(|entry| entry.at)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        // Nothing that holds the lock can leave it half changed.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl List {
    /// Says whether there was one.
    fn drop_first(&mut self) -> bool {
        let first = self.entries.pop_front();
        self.bytes -= first.as_ref().map_or(0, Entry::bytes);
        first.is_some()
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.id.len()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_makes_a_call_hears_that_it_is_cancelled() {
        let cancelled = Cancelled::default();
        let hears = async |id, since| {
            let id = Id::from_json(id);
            timeout(GRACE * 10, cancelled.heard(&id, since)).await.is_ok()
        };
        let (heard, ()) = tokio::join!(hears("1", 0), async { cancelled.note(&Id::from_json("1"), 1) });
        assert!(heard);
        assert!(hears("1", 0).await, "it was told before it waited");
        assert!(!hears("1", cancelled.count()).await, "another call with the same id");
        assert!(!hears("\"1\"", 0).await, "an id of another type");
        let long = format!("\"{}\"", "x".repeat(500));
        let many = 2 * ROOM / 500;
        for calls in [many + 1, 1] {
            for _ in 0..many {
                cancelled.note(&Id::from_json(&long), calls);
            }
            assert_eq!(hears("1", 0).await, calls > 1, "it is remembered for as many calls as there are");
        }
        assert!(cancelled.lock().bytes < 2 * ROOM);
        let count = cancelled.count();
        cancelled.note(&Id::from_json("3"), 1);
        cancelled.forget(count);
        assert!(hears("3", count).await, "that came later");
        assert!(!hears(&long, 0).await, "its call is over");
    }
}
