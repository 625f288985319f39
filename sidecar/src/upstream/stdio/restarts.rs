//! How often a session may have another process.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

/// How many processes one session may start within [`WINDOW`].
const OFTEN: usize = 5;
/// The time over which starts are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// When the last processes were started: one that dies on each call would otherwise keep the machine busy with
/// starting it.
#[derive(Default)]
pub(super) struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Counts a start; refused, it says after how many seconds the next one may be.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), u64> {
        match self.until(now) {
            Some(until) => Err((until - now).as_secs() + 1),
            None => {
                self.0.push_back(now);
                Ok(())
            }
        }
    }

    /// Until when there may be no other start, if there may be none now.
    pub(super) fn until(&mut self, now: Instant) -> Option<Instant> {
        while self.0.front().is_some_and(|start| now.saturating_duration_since(*start) >= WINDOW) {
            self.0.pop_front();
        }
        self.0.front().filter(|_| self.0.len() >= OFTEN).map(|first| *first + WINDOW)
    }

    /// The last one that was counted never came to be.
    pub(super) fn give_back(&mut self) {
        self.0.pop_back();
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
        for second in 0..5 {
            assert_eq!(restarts.until(at(second)), None);
            assert_eq!(restarts.take(at(second)), Ok(()));
        }
        assert_eq!(restarts.until(at(5)), Some(at(60)));
        assert_eq!(restarts.take(at(5)), Err(56));
        assert_eq!(restarts.take(at(59)), Err(2));
        assert_eq!(restarts.take(at(60)), Ok(()));
        assert_eq!(restarts.take(at(60)), Err(2));
        assert_eq!(restarts.take(at(61)), Ok(()));
    }
}
