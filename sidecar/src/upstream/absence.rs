//! A server that was there and is not: its container restarts, which takes a second or two. Calls that come meanwhile
//! wait for it, since nothing of them was seen by anybody; but not for long, and not for a server that stays away.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::{Duration, Instant};

/// How long a server is waited for: most containers are back by then, and callers have not given up yet.
const RESTART: Duration = Duration::from_secs(4);
/// After how long without a call in vain it is another absence.
const ANOTHER: Duration = Duration::from_secs(8);
/// How long until it is looked for again.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);

/// Since when nobody has found the server.
#[derive(Debug)]
pub(crate) struct Absence {
    began: Instant,
    /// In milliseconds since then, plus one: when it was first missed, and when last. 0: never.
    first: AtomicU64,
    last: AtomicU64,
}

impl Absence {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), first: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    /// Notes that it was not found, and says whether it is to be waited for.
    pub(crate) fn is_short(&self, now: Instant) -> bool {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = milliseconds(now.saturating_duration_since(self.began)).saturating_add(1);
        let last = self.last.swap(now, Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last) > milliseconds(ANOTHER) {
            self.first.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.first.load(Ordering::Relaxed)) < milliseconds(RESTART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_absence_is_waited_out_and_a_long_one_is_not() {
        let absence = Absence::new();
        let begin = Instant::now();
        for (milliseconds, short) in [
            (0, true),
            (2_000, true),
            (3_900, true),
            (4_100, false),
            (9_000, false),
            (16_000, false),
            // Somebody must have found it in between, or nobody looked.
            (30_000, true),
            (33_000, true),
            (35_000, false),
        ] {
            assert_eq!(
                absence.is_short(begin + Duration::from_millis(milliseconds)),
                short,
                "{milliseconds}"
            );
        }
    }
}
