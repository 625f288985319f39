//! How long readers are waited for that are slower than the process writes, while other sessions wait too. One that
//! reads at a good pace earns the time that it takes; the rest is little, and the same for all of them together: else a
//! client that takes a byte now and then would hold up everybody's answers.

use tokio::time::{Duration, Instant};

/// The most of it.
const MOST: Duration = Duration::from_millis(5);
/// One part in so many of the time that goes by comes back.
const REGAINED: u32 = 100;

/// What is left of it.
#[derive(Debug)]
pub(super) struct Indulgence {
    left: Duration,
    at: Option<Instant>,
}

impl Default for Indulgence {
    fn default() -> Self {
        Self { left: MOST, at: None }
    }
}

impl Indulgence {
    /// What is left.
    pub(super) fn left(&mut self, now: Instant) -> Duration {
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.left = (self.left + passed / REGAINED).min(MOST);
        self.left
    }

    /// Somebody was waited for, who had not earned it.
    pub(super) fn spend(&mut self, time: Duration, now: Instant) {
        self.left = self.left(now).saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_a_part_of_the_time() {
        let begin = Instant::now();
        let mut indulgence = Indulgence::default();
        let (mut waited, mut now) = (Duration::ZERO, begin);
        while now < begin + Duration::from_secs(10) {
            let time = indulgence.left(now);
            now += time;
            waited += time;
            indulgence.spend(time, now);
            now += Duration::from_millis(1);
        }
        let most = MOST + (now - begin) / REGAINED;
        assert!(waited <= most && waited > most / 2, "{waited:?} of {most:?}");
        assert_eq!(indulgence.left(now + Duration::from_secs(60)), MOST);
    }
}
