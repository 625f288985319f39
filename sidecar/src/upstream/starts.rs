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
        self.twice().max(AT_LEAST)
    }

    /// What a client's session is given to begin with a process, where a call has `usual` and a place may be waited for
    /// for so long as is `queued`. Ended any sooner, a process that takes longer than a call may would never be there.
    pub(super) fn patience_of_client(&self, usual: Duration, queued: Duration) -> Duration {
        usual.max(queued + self.twice())
    }

    /// Twice what the last one took: others may start beside the next one.
    fn twice(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        last.saturating_mul(2).min(AT_MOST)
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

    #[test]
    fn a_client_waits_for_a_start_that_takes_longer_than_a_call_may() {
        let starts = Starts::default();
        let patience = |usual, queued| {
            starts.patience_of_client(Duration::from_secs(usual), Duration::from_secs(queued)).as_secs()
        };
        assert_eq!(patience(60, 5), 60, "nothing is known");
        for (took, usual, queued, given) in [
            (1, 60, 5, 60),
            (1, 5, 0, 5),
            (29, 60, 0, 60),
            (40, 60, 0, 80),
            (75, 60, 5, 155),
            // Who has waited for a place for most of the time has the whole time of a start left.
            (10, 60, 54, 74),
            (1, 60, 54, 60),
            (75, 600, 5, 600),
            (1_000, 60, 0, 300),
        ] {
            starts.saw(Duration::from_secs(took));
            assert_eq!(patience(usual, queued), given, "{took} {usual} {queued}");
        }
    }
}
