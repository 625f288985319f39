//! How often conversations of calls that stand alone had another process, which are over. Such a conversation ends with each
//! call that kills its process, if nobody else calls, so the next one goes on counting.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::upstream::stdio::restarts::Restarts;

/// What they leave behind: those of a principal, or of everybody. It is forgotten once it does not count any more.
#[derive(Default)]
pub(super) struct Worn(HashMap<Option<Arc<str>>, Vec<Restarts>>);

impl Worn {
    /// One is over.
    pub(super) fn leave(&mut self, whose: Option<Arc<str>>, restarts: Restarts, now: Instant) {
        self.forget(now);
        if restarts.count(now) {
            self.0.entry(whose).or_default().push(restarts);
        }
    }

    /// How many of them could start no process now.
    pub(super) fn tired(&self, whose: Option<&Arc<str>>, now: Instant) -> usize {
        let left = self.0.get(&whose.cloned());
        left.map_or(0, |left| left.iter().filter(|restarts| restarts.until(now).is_some()).count())
    }

    /// Where the next one goes on: as one that may start a process, or as none of them if there may be another, or as the
    /// one that may start a process first.
    pub(super) fn take(&mut self, whose: Option<&Arc<str>>, another: bool, now: Instant) -> Restarts {
        self.forget(now);
        let Some(left) = self.0.get_mut(&whose.cloned()) else { return Restarts::default() };
        let untils = left.iter().map(|restarts| restarts.until(now)).enumerate();
        match untils.min_by_key(|(_, until)| *until) {
            Some((index, until)) if until.is_none() || !another => left.swap_remove(index),
            _ => Restarts::default(),
        }
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|_, left| {
            left.retain(|restarts| restarts.count(now));
            !left.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

    use super::*;

    /// So many processes, each of which has died at once.
    fn started(times: usize, at: Instant) -> Restarts {
        let mut restarts = Restarts::default();
        for _ in 0..times {
            assert!(restarts.take(at).is_ok());
            restarts.died();
        }
        restarts
    }

    #[test]
    fn the_next_one_goes_on_where_it_may_start_a_process() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let now = at(10);
        let mut worn = Worn::default();
        assert!(!worn.take(None, false, now).count(now));
        for (times, second) in [(5, 2), (1, 3), (5, 1)] {
            worn.leave(None, started(times, at(second)), now);
        }
        assert_eq!((worn.tired(None, now), worn.tired(Some(&"a".into()), now)), (2, 0));
        let first = worn.take(None, true, now);
        assert!(first.count(now) && first.until(now).is_none());
        assert!(!worn.take(None, true, now).count(now), "there may be another");
        assert_eq!(worn.take(None, false, now).until(now), Some(at(61)), "the sooner one");
        assert_eq!(worn.take(None, false, now).until(now), Some(at(62)));
        assert!(!worn.take(None, false, now).count(now));
    }

    #[test]
    fn what_does_not_count_any_more_is_forgotten() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let mut worn = Worn::default();
        worn.leave(Some("a".into()), Restarts::default(), now);
        assert!(worn.0.is_empty(), "nothing was counted");
        worn.leave(Some("a".into()), started(5, now), now);
        worn.leave(Some("b".into()), started(1, later), later);
        assert_eq!(worn.0.len(), 1);
        assert!(worn.take(Some(&"b".into()), false, later).count(later));
        assert!(!worn.take(Some(&"b".into()), false, later).count(later));
        assert!(worn.0.is_empty());
    }
}
