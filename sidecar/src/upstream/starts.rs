//! How long a server may take for a handshake, by what its start has been seen to take.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Duration;

/// What every server is given.
pub(crate) const AT_LEAST: Duration = Duration::from_secs(30);
/// The most that one over stdio is given: there each handshake begins with a process, which may have to install what it
/// is made of, or to load a model. Who ends it too early and starts it again gets nowhere.
pub(crate) const AT_MOST: Duration = Duration::from_secs(300);

/// What the start of a server over stdio has been seen to take.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// In milliseconds.
    last: AtomicU64,
}

impl Starts {
    /// Notes how long a process took to its first answer.
    pub(super) fn saw(&self, took: Duration) {
        self.last.store(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What the next one is given.
    pub(super) fn patience(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        last.saturating_mul(2).clamp(AT_LEAST, AT_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_starts_slowly_is_given_more() {
        let starts = Starts::default();
        assert_eq!(starts.patience(), Duration::from_secs(30), "nothing is known");
        for (took, given) in [(1, 30), (20, 40), (100, 200), (200, 300), (u64::MAX / 1000, 300), (2, 30)] {
            starts.saw(Duration::from_secs(took));
            assert_eq!(starts.patience(), Duration::from_secs(given), "{took}");
        }
    }
}
