//! How long a server may take for a handshake, by what its start has been seen to take.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Duration;

/// What every server is given.
pub(crate) const AT_LEAST: Duration = Duration::from_secs(30);
/// The most that one over stdio is given: there each handshake begins with a process, which may have to install what it
/// is made of, or to load a model. Who ends it too early and starts it again gets nowhere.
pub(crate) const AT_MOST: Duration = Duration::from_secs(300);
/// How many processes of such a server start at once, at most: more of them would not be there sooner on a few processors.
const AT_ONCE: u64 = 8;
/// The shortest time in which others wait for one that starts.
const SHORTEST_TURN: Duration = Duration::from_secs(5);

/// What the start of a server over stdio has been seen to take.
#[derive(Debug, Default)]
pub(super) struct Starts {
    /// In milliseconds: that of the sidecar's own process.
    last: AtomicU64,
    /// The shortest since then. The first one may have had to install what the others find.
    shortest: AtomicU64,
}

impl Starts {
    /// Notes how long the sidecar's own process took to its first answer.
    pub(super) fn saw(&self, took: Duration) {
        let took = milliseconds(took);
        self.last.store(took, Ordering::Relaxed);
        self.shortest.store(took, Ordering::Relaxed);
    }

    /// Notes how long another one took at most, beside others.
    pub(super) fn saw_another(&self, took: Duration) {
        self.shortest.fetch_min(milliseconds(took), Ordering::Relaxed);
    }

    /// How many may start at once: as many as are there in the time that each of them has, where all of them have one
    /// processor.
    pub(super) fn at_once(&self) -> usize {
        let fit = milliseconds(self.patience()) / self.shortest.load(Ordering::Relaxed).max(1);
        usize::try_from(fit.clamp(1, AT_ONCE)).unwrap_or(1)
    }

    /// For how long others wait for one that starts: as long as it takes where so many start on one processor. One that
    /// takes longer, or says nothing, is in nobody's way any more.
    pub(super) fn turn(&self) -> Duration {
        let shortest = Duration::from_millis(self.shortest.load(Ordering::Relaxed));
        let all = shortest.saturating_mul(u32::try_from(self.at_once()).unwrap_or(1));
        all.clamp(SHORTEST_TURN, self.patience())
    }

    /// What the next one is given.
    pub(super) fn patience(&self) -> Duration {
        self.twice().max(AT_LEAST)
    }

    /// What a client's session is given to begin with a process, where a call has `usual` and a place and turns may be
    /// waited for for so long as is `queued`. Ended any sooner, a process that takes longer than a call may would never be there.
    pub(super) fn patience_of_client(&self, usual: Duration, queued: Duration) -> Duration {
        usual.max(queued + self.twice())
    }

    /// Twice what the last one took: others may start beside the next one.
    fn twice(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        last.saturating_mul(2).min(AT_MOST)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
    fn as_many_start_at_once_as_have_the_time_for_it() {
        let starts = Starts::default();
        let now = |starts: &Starts| (starts.at_once(), starts.turn().as_millis());
        assert_eq!(now(&starts), (8, 5_000), "nothing is known");
        for (took, at_once, turn) in [
            (50, 8, 5_000),
            (1_500, 8, 12_000),
            (5_000, 6, 30_000),
            (10_000, 3, 30_000),
            (20_000, 2, 40_000),
            (100_000, 2, 200_000),
            (250_000, 1, 250_000),
            (400_000, 1, 300_000),
        ] {
            starts.saw(Duration::from_millis(took));
            assert_eq!(now(&starts), (at_once, turn), "{took}");
        }
        // The first one has installed what the next ones find; that one takes longer is nothing new.
        starts.saw(Duration::from_secs(20));
        for took in [2, 30] {
            starts.saw_another(Duration::from_secs(took));
            assert_eq!(now(&starts), (8, 16_000), "{took}");
        }
        assert_eq!(starts.patience(), Duration::from_secs(40), "who installs it again has the time");
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
