//! Waiting for something to be seen, never for a time to pass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// When something is taken for stuck. A busy machine is slow, not broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a look gives: that something is so, or is not yet; or something that is there in the end.
pub(crate) trait Look {
    type Seen;

    fn seen(self) -> Option<Self::Seen>;
}

impl Look for bool {
    type Seen = ();

    fn seen(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Look for Option<T> {
    type Seen = T;

    fn seen(self) -> Self {
        self
    }
}

/// Looks again and again until there is something to see.
pub(crate) fn eventually<L: Look>(what: &str, look: impl FnMut() -> L) -> L::Seen {
    within(PATIENCE, what, look)
}

/// The same, with a deadline that matters.
pub(crate) fn within<L: Look>(limit: Duration, what: &str, mut look: impl FnMut() -> L) -> L::Seen {
    let began = Instant::now();
    loop {
        if let Some(seen) = look().seen() {
            return seen;
        }
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Tries until something has taken less than this. A machine that is busy now and then is not busy each time.
pub(crate) fn once_within(limit: Duration, what: &str, mut attempt: impl FnMut() -> Duration) {
    let began = Instant::now();
    loop {
        let took = attempt();
        if took < limit {
            return;
        }
        assert!(began.elapsed() < 2 * PATIENCE, "not once within {limit:?}, but {took:?} in the end: {what}");
    }
}

/// Says to those who go on until then that it is over, also where the test fails: it would wait for them without end.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A gate at which a server waits until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Waits until it is open, and not for ever.
    pub(crate) fn pass(&self) {
        let (open, opened) = &*self.0;
        let open = open.lock().expect("no panic");
        drop(opened.wait_timeout_while(open, Duration::from_secs(60), |open| !*open).expect("no panic"));
    }

    /// Opens it for good.
    pub(crate) fn open(&self) {
        let (open, opened) = &*self.0;
        *open.lock().expect("no panic") = true;
        opened.notify_all();
    }
}
