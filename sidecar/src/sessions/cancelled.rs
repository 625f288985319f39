//! Calls that a client does not want the answers of any more. Servers give none then, and many of those over HTTP leave
//! the response open: what waits for it would wait for as long as a call may take.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use longshore_mcp::envelope::Id;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

use super::Session;

/// How long an answer may still come, which crosses the cancellation.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of one session that its client may cancel, by their ids in one spelling. What is cancelled beside them is
/// not remembered: ids are used again.
#[derive(Default)]
pub(super) struct Cancellable(Mutex<HashMap<Box<str>, Calls>>);

/// The calls under one id: how many are under way, and what they hear.
struct Calls {
    under_way: usize,
    word: Arc<Word>,
}

/// Whether the calls under an id were cancelled, and when.
#[derive(Default)]
struct Word {
    at: OnceLock<Instant>,
    news: Notify,
}

/// One call that may be cancelled, until this is dropped.
pub(crate) struct Cancellation {
    session: Arc<Session>,
    id: Box<str>,
    word: Arc<Word>,
}

impl Cancellable {
    /// The client does not want the answers of the calls under this id. False: there are none.
    pub(super) fn cancel(&self, id: &Id<'_>) -> bool {
        let lock = self.0.lock();
        // It may be about a call that has just been answered.
        let Some(Calls { word, .. }) = lock.get(&*id.in_one_spelling()) else { return false };
        // It may have been said before.
        if word.at.set(Instant::now()).is_ok() {
            word.news.notify_waiters();
        }
        true
    }

    fn begin(&self, id: &str) -> Arc<Word> {
        let first = || Calls { under_way: 0, word: Arc::default() };
        let mut lock = self.0.lock();
        let calls = lock.entry(id.into()).or_insert_with(first);
        // A call that begins under the id of one that was cancelled is another one.
        if calls.word.at.get().is_some() {
            *calls = first();
        }
        calls.under_way += 1;
        calls.word.clone()
    }

    fn end(&self, id: &str, word: &Arc<Word>) {
        let mut lock = self.0.lock();
        // They may have been cancelled, and others be called so since.
        let Some(calls) = lock.get_mut(id).filter(|calls| Arc::ptr_eq(&calls.word, word)) else { return };
        calls.under_way -= 1;
        if calls.under_way == 0 {
            lock.remove(id);
        }
        if lock.is_empty() {
            // Idle sessions are many.
            *lock = HashMap::new();
        }
    }
}

impl Cancellation {
    pub(super) fn of(session: Arc<Session>, id: &Id<'_>) -> Self {
        let id = id.in_one_spelling().into_owned().into_boxed_str();
        let word = session.cancellable.begin(&id);
        Self { session, id, word }
    }

    /// Returns when the call has been cancelled for a while.
    pub(crate) async fn heard(&self) {
        self.word.heard().await;
    }
}

impl Word {
    async fn heard(&self) {
        // It is told of everything from now on, whether it waits yet or not.
        let news = self.news.notified();
        if self.at.get().is_none() {
            news.await;
        }
        if let Some(at) = self.at.get() {
            // Boxed, since few calls come here, and all would be as large as if they did.
            Box::pin(sleep_until(*at + GRACE)).await;
        }
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        self.session.cancellable.end(&self.id, &self.word);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_makes_a_call_hears_that_it_is_cancelled() {
        let calls = Cancellable::default();
        let cancel = |id| calls.cancel(&Id::from_json(id));
        let hears = async |word: &Word| timeout(GRACE * 10, word.heard()).await.is_ok();
        let [first, second, other] = ["1", "1", r#""1""#].map(|id| calls.begin(id));
        let (heard, ()) = tokio::join!(hears(&first), async { assert!(cancel("1")) });
        assert!(heard);
        assert!(hears(&second).await, "it was told before it waited");
        assert!(!hears(&other).await, "an id of another type");
        let next = calls.begin("1");
        assert!(!hears(&next).await, "a call that began later");
        calls.end("1", &first);
        assert!(cancel("1"));
        assert!(hears(&next).await, "whichever of the others has ended");
        assert!(cancel(r#""\u0031""#));
        assert!(hears(&other).await, "an id that is spelled differently");
        for (id, word) in [("1", next), ("1", second), (r#""1""#, other)] {
            calls.end(id, &word);
        }
        assert!(!cancel("2"));
        assert!(calls.0.lock().is_empty(), "and nothing is kept of calls that are over, or never were");
    }
}
