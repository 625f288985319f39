//! Calls that a client does not want the answers of any more. Servers give none then, and many of those over HTTP leave
//! the response open: what waits for it would wait for as long as a call may take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use longshore_mcp::envelope::Id;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

use super::Session;

/// How long an answer may still come, which crosses the cancellation.
const GRACE: Duration = Duration::from_secs(1);
/// For how many calls there is room in a session that has none.
const FEW: usize = 4;

/// The calls of one session that its client may cancel: few, so they are searched one by one. What is cancelled beside
/// them is not remembered: ids are used again.
#[derive(Default)]
pub(super) struct Cancellable(Mutex<Vec<Arc<Word>>>);

/// Whether a call was cancelled, and when.
struct Word {
    /// Its id, in one spelling.
    id: Box<str>,
    at: OnceLock<Instant>,
    news: Notify,
    /// The server was told in its client's words.
    told: AtomicBool,
}

/// The words that cancel these calls, on their way to the server. Where it does not have them when its answer was waited for
/// as long as it may still come, whoever makes the calls tells it: better twice than never.
pub(crate) struct Cancelling(Vec<Arc<Word>>);

/// One call that may be cancelled, until this is dropped.
pub(crate) struct Cancellation {
    session: Arc<Session>,
    word: Arc<Word>,
}

impl Cancellable {
    /// The client does not want the answers of the calls under this id, of which there may be none any more.
    pub(super) fn cancel(&self, id: &Id<'_>) -> Cancelling {
        let (lock, id) = (self.0.lock(), id.in_one_spelling());
        let words: Vec<_> = lock.iter().filter(|word| *word.id == *id).cloned().collect();
        for word in &words {
            // It may have been said before.
            if word.at.set(Instant::now()).is_ok() {
                word.news.notify_waiters();
            }
        }
        Cancelling(words)
    }

    fn begin(&self, id: &Id<'_>) -> Arc<Word> {
        let id = id.in_one_spelling().into();
        let word =
            Arc::new(Word { id, at: OnceLock::new(), news: Notify::new(), told: AtomicBool::new(false) });
        self.0.lock().push(word.clone());
        word
    }

    fn end(&self, word: &Arc<Word>) {
        let mut lock = self.0.lock();
        if let Some(at) = lock.iter().position(|call| Arc::ptr_eq(call, word)) {
            lock.swap_remove(at);
        }
        if lock.is_empty() {
            // Idle sessions are many.
            lock.shrink_to(FEW);
        }
    }
}

impl Cancellation {
    pub(super) fn of(session: Arc<Session>, id: &Id<'_>) -> Self {
        let word = session.cancellable.begin(id);
        Self { session, word }
    }

    /// Returns when the call has been cancelled for a while.
    pub(crate) async fn heard(&self) {
        self.word.heard().await;
    }

    /// Whether it has been cancelled.
    pub(crate) fn is_said(&self) -> bool {
        self.word.at.get().is_some()
    }

    /// Whether it has been cancelled, and what its client said of that is not known to have got to the server.
    pub(crate) fn is_untold(&self) -> bool {
        self.is_said() && !self.word.told.load(Ordering::Relaxed)
    }
}

impl Cancelling {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The server has them.
    pub(super) fn arrived(self) {
        for word in self.0 {
            word.told.store(true, Ordering::Relaxed);
        }
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
        self.session.cancellable.end(&self.word);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_makes_a_call_hears_that_it_is_cancelled() {
        let calls = Cancellable::default();
        let cancel = |id| !calls.cancel(&Id::from_json(id)).is_empty();
        let hears = async |word: &Word| timeout(GRACE * 10, word.heard()).await.is_ok();
        let begin = |id| calls.begin(&Id::from_json(id));
        let [first, second, other] = ["1", "1", r#""1""#].map(begin);
        let (heard, ()) = tokio::join!(hears(&first), async { assert!(cancel("1")) });
        assert!(heard);
        assert!(hears(&second).await, "it was told before it waited");
        assert!(!hears(&other).await, "an id of another type");
        let next = begin("1");
        assert!(!hears(&next).await, "a call that began later");
        calls.end(&first);
        assert!(cancel("1"));
        assert!(hears(&next).await, "whichever of the others has ended");
        assert!(cancel(r#""\u0031""#));
        assert!(hears(&other).await, "an id that is spelled differently");
        for word in [next, second, other] {
            calls.end(&word);
        }
        assert!(!cancel("2"));
        assert!(calls.0.lock().is_empty(), "and nothing is kept of calls that are over, or never were");
    }
}
