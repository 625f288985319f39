//! How often a session may have another process.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

/// How many processes one session may start within [`WINDOW`], beside its first; those of calls that stand alone have no
/// first one.
const OFTEN: usize = 5;
/// The time over which starts are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// When the last processes were started: one that dies on each call would otherwise keep the machine busy with
/// starting it.
#[derive(Clone, Debug, Default)]
pub(super) struct Restarts {
    starts: VecDeque<Instant>,
    /// Nothing has died since the last one: the next one is in its place, and is not counted.
    replaces: bool,
    /// The last one was counted.
    counted: bool,
}

impl Restarts {
    /// Counts a start; refused, it says after how many seconds the next one may be.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), u64> {
        match self.until(now) {
            Some(until) => Err((until - now).as_secs() + 1),
            None => {
                let over = self.over(now);
                self.starts.drain(..over);
                self.counted = !std::mem::replace(&mut self.replaces, true);
                if self.counted {
                    self.starts.push_back(now);
                }
                Ok(())
            }
        }
    }

    /// The same where nobody calls, and who listens comes back by itself: it is counted in any case.
    pub(super) fn take_uncalled(&mut self, now: Instant) -> Result<(), u64> {
        let replaces = std::mem::take(&mut self.replaces);
        let taken = self.take(now);
        self.replaces |= replaces;
        taken
    }

    /// The last one never came to be: it is as if it had not been asked for.
    pub(super) fn give_back(&mut self) {
        if std::mem::take(&mut self.counted) {
            self.starts.pop_back();
            self.replaces = false;
        }
    }

    /// Until when there may be no other start, if there may be none now.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        let over = self.over(now);
        let often = !self.replaces && self.starts.len() - over >= OFTEN;
        self.starts.get(over).filter(|_| often).map(|first| *first + WINDOW)
    }

    /// Whether any start is counted still.
    pub(super) fn count(&self, now: Instant) -> bool {
        self.over(now) < self.starts.len()
    }

    /// The process has died.
    pub(super) fn died(&mut self) {
        self.replaces = false;
    }

    /// The process has ended because nobody called it.
    pub(super) fn rested(&mut self) {
        self.replaces = true;
    }

    /// How many starts are counted no more.
    fn over(&self, now: Instant) -> usize {
        self.starts.partition_point(|start| now.saturating_duration_since(*start) >= WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_free_and_then_time_has_to_pass() {
        let mut restarts = Restarts::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        // Lets one be started that dies at once.
        let start = |restarts: &mut Restarts, seconds| {
            let started = restarts.take(at(seconds));
            restarts.died();
            started
        };
        for second in 0..5 {
            assert_eq!(restarts.until(at(second)), None);
            assert_eq!(start(&mut restarts, second), Ok(()));
        }
        assert_eq!(restarts.until(at(5)), Some(at(60)));
        assert_eq!(start(&mut restarts, 5), Err(56));
        assert_eq!(start(&mut restarts, 59), Err(2));
        assert_eq!(start(&mut restarts, 60), Ok(()));
        assert_eq!(start(&mut restarts, 60), Err(2));
        assert_eq!(start(&mut restarts, 61), Ok(()));
        assert!(restarts.count(at(120)) && !restarts.count(at(121)));
    }

    #[test]
    fn what_does_not_die_is_replaced_as_often_as_it_ends() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(restarts.take(now), Ok(()));
            restarts.died();
        }
        // The first of these takes the place of one that died.
        for _ in 0..9 {
            assert_eq!((restarts.take(now), restarts.until(now)), (Ok(()), None));
            restarts.rested();
        }
        // The others were not counted, so one more may be.
        restarts.died();
        assert_eq!(restarts.take(now), Ok(()));
        restarts.died();
        assert!(restarts.take(now).is_err());
        // Who listens is counted all the same, and a call is none the worse for it.
        restarts.rested();
        assert!(restarts.take_uncalled(now).is_err() && restarts.take(now).is_ok());
        // The first one of a session is there before anything is counted.
        let mut restarts = Restarts::default();
        restarts.rested();
        assert!(restarts.take(now).is_ok() && !restarts.count(now));
        assert!(restarts.take_uncalled(now).is_ok() && restarts.count(now));
    }

    #[test]
    fn what_never_came_to_be_is_not_counted() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        // There is none yet.
        restarts.give_back();
        for _ in 0..9 {
            assert_eq!(restarts.take(now), Ok(()));
            restarts.give_back();
            assert!(!restarts.count(now));
        }
        assert_eq!(restarts.take(now), Ok(()));
        restarts.rested();
        assert_eq!(restarts.take(now), Ok(()));
        restarts.give_back();
        assert!(restarts.count(now), "what was there before");
    }
}
