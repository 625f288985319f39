//! How often something else's changes of the number of a Deployment's pods were undone lately. Pure.
//!
//! Each makes pods come and go. An autoscaler that is left over, or another operator, would never end.

use std::time::Duration;

use tokio::time::Instant;

/// So many are undone at once.
const AT_ONCE: u32 = 5;
/// The time between two after that.
const PAUSE: Duration = Duration::from_secs(60);
/// Whoever has changed nothing for so long begins anew.
const QUIET: Duration = Duration::from_secs(120);

/// What was undone lately.
#[derive(Debug, Default)]
pub(crate) struct Undone {
    times: u32,
    last: Option<Instant>,
}

// === impl Undone ===

impl Undone {
    /// A change is undone now.
    pub(crate) fn again(&mut self, now: Instant) {
        let goes_on = self.last.is_some_and(|last| now.saturating_duration_since(last) < QUIET);
        self.times = if goes_on { self.times.saturating_add(1) } else { 1 };
        self.last = Some(now);
    }

    /// Whether the next one has to wait.
    pub(crate) fn is_often(&self) -> bool {
        self.times >= AT_ONCE
    }

    /// When the next one may be undone, if not now.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let next = self.last.filter(|_| self.is_often())? + PAUSE;
        (next > now).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_changes_are_undone_at_once_and_then_one_a_minute_until_it_is_quiet() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut undone = Undone::default();
        for second in 0..u64::from(AT_ONCE) {
            assert_eq!(undone.next(at(second)), None, "at {second} s");
            undone.again(at(second));
        }
        assert_eq!(undone.next(at(5)), Some(at(64)));
        assert_eq!(undone.next(at(64)), None);
        undone.again(at(64));
        assert_eq!(undone.next(at(65)), Some(at(124)), "it goes on");
        undone.again(at(64 + QUIET.as_secs()));
        assert!(!undone.is_often());
        assert_eq!(undone.next(at(65 + QUIET.as_secs())), None, "it was quiet");
    }
}
