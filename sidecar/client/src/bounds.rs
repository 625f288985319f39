//! What reading sidecars may cost.

use std::time::Duration;

use longshore_sidecar_config::inventory;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What reading sidecars may cost, whatever they do. Beside these, at most a tenth of one CPU's time goes into the answers
/// of one server's sidecars, however many they are: who sends long ones is read less often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest answer that is read, in bytes. A longer one counts as a failure.
    pub answer_bytes: usize,
    /// How many answers of more than 64 KiB are read at the same time: one of each server at most, and half of them of each
    /// namespace. With [`Bounds::answer_bytes`] it bounds what reading holds, but for the 64 KiB and a little more that
    /// each of the others may hold while it waits.
    pub concurrent_answers: usize,
    /// How many answers of one sidecar are read as fast as they come, so that a start is seen in all its steps.
    pub burst: u32,
    /// After a burst one answer is read in this time. A server that changes its list all the time is seen as it was
    /// then, and costs no more.
    pub interval: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            answer_bytes: inventory::LONGEST,
            concurrent_answers: 8,
            burst: 32,
            interval: Duration::from_millis(250),
        }
    }
}

impl Bounds {
    /// The places for long answers in memory.
    pub(crate) fn places(&self) -> usize {
        self.concurrent_answers.clamp(1, Semaphore::MAX_PERMITS)
    }

    /// Those of one namespace, which are never all, unless there is only one.
    pub(crate) fn places_of_namespace(&self) -> usize {
        self.places().div_ceil(2)
    }
}

/// Holds the answers of one sidecar to [`Bounds::burst`] and [`Bounds::interval`].
pub(crate) struct Pace {
    interval: Duration,
    allowance: Duration,
    /// When everything that was let through is paid for, at one interval an answer.
    paid: Instant,
}

impl Pace {
    pub(crate) fn new(bounds: &Bounds, now: Instant) -> Self {
        let allowance = bounds.interval.saturating_mul(bounds.burst.saturating_sub(1));
        Self { interval: bounds.interval, allowance, paid: now }
    }

    /// Takes note of an answer. Says how long to wait before the next is asked for.
    pub(crate) fn answered(&mut self, now: Instant) -> Duration {
        self.paid = self.paid.max(now) + self.interval;
        self.paid.saturating_duration_since(now).saturating_sub(self.allowance)
    }
}

/// Holds the sidecars of one server to their part of a CPU.
pub(crate) struct Share {
    /// When everything that their answers have cost is paid for.
    paid: Mutex<Instant>,
}

impl Share {
    pub(crate) fn new(now: Instant) -> Self {
        Self { paid: Mutex::new(now) }
    }

    /// Takes note of what an answer cost. Says how long to wait before that sidecar is asked again: those that said
    /// something new at the same time wait for each other's cost too, and one that had nothing to say for nobody's.
    pub(crate) fn took(&self, now: Instant, cost: Duration) -> Duration {
        if cost.is_zero() {
            return Duration::ZERO;
        }
        let mut paid = self.paid.lock();
        let began = now.checked_sub(cost).unwrap_or(now);
        *paid = (*paid).max(began) + cost * 10;
        paid.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_half_of_the_places_and_never_all() {
        for (all, expected) in [(0, (1, 1)), (1, (1, 1)), (2, (2, 1)), (3, (3, 2)), (8, (8, 4))] {
            let bounds = Bounds { concurrent_answers: all, ..Bounds::default() };
            assert_eq!((bounds.places(), bounds.places_of_namespace()), expected);
        }
    }

    #[test]
    fn a_burst_is_free_and_then_an_answer_costs_its_interval() {
        let interval = Duration::from_millis(100);
        let bounds = Bounds { burst: 3, interval, ..Bounds::default() };
        let start = Instant::now();
        let mut pace = Pace::new(&bounds, start);
        let waits: Vec<_> = (0..5).map(|_| pace.answered(start)).collect();
        let expected: Vec<_> = [0, 0, 100, 200, 300].map(Duration::from_millis).into();
        assert_eq!(waits, expected);
        // Whoever waits as told gets one an interval, and a pause earns the burst back.
        assert_eq!(pace.answered(start + Duration::from_millis(300)), Duration::from_millis(100));
        let later = start + Duration::from_secs(10);
        assert_eq!(pace.answered(later), Duration::ZERO);
        assert_eq!(pace.answered(later), Duration::ZERO);
        assert_eq!(pace.answered(later), interval);
    }

    #[test]
    fn the_sidecars_of_a_server_have_a_tenth_of_a_cpu_however_many_they_are() {
        let (start, cost) = (Instant::now(), Duration::from_millis(200));
        for sidecars in [1, 3, 100] {
            let share = Share::new(start);
            let mut next = vec![start; sidecars];
            let (mut spent, end) = (Duration::ZERO, start + Duration::from_secs(3600));
            // Each has always something new to say. One is read after the other, at the earliest when it may be asked.
            let mut now = start;
            while now < end {
                let (index, at) = next.iter().copied().enumerate().min_by_key(|(_, at)| *at).unwrap();
                now = now.max(at) + cost;
                spent += cost;
                next[index] = now + share.took(now, cost);
                assert_eq!(share.took(now, Duration::ZERO), Duration::ZERO, "it had nothing to say");
            }
            let all_at_once = cost * u32::try_from(sidecars).unwrap();
            assert!(spent <= end.duration_since(start) / 10 + all_at_once, "{spent:?} for {sidecars}");
        }
    }
}
