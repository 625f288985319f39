//! How fast is read what a process writes for nobody. It must not keep the thread busy, so there are pauses. But others'
//! calls may wait for what is behind it, and most of it ends soon, since the calls that it is about are ended: so there
//! are none at first.

use tokio::time::{Duration, Instant};

/// How many bytes of it are read without a pause.
const TURN: usize = 32 * 1024;
/// The pause: with them some 20 MiB are read in a second.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
/// How many bytes are read without any while others wait, and how many of them come back in a second.
const MOST: usize = 512 << 20;
const REGAINED: usize = 16 << 20;

/// What was read of it.
#[derive(Debug)]
pub(super) struct Unwanted {
    /// In a row; a line that somebody waited for begins anew.
    row: usize,
    /// What is left of what is read without pauses.
    left: usize,
    at: Option<Instant>,
}

impl Default for Unwanted {
    fn default() -> Self {
        Self { row: 0, left: MOST, at: None }
    }
}

impl Unwanted {
    /// So much more was for nobody.
    pub(super) fn add(&mut self, bytes: usize) {
        self.row += bytes;
    }

    /// Something was for somebody.
    pub(super) fn interrupt(&mut self) {
        self.row = 0;
    }

    /// Whether it is time for a pause.
    pub(super) fn is_enough(&mut self, others_wait: bool) -> bool {
        self.row >= TURN && self.is_enough_at(others_wait, Instant::now())
    }

    fn is_enough_at(&mut self, others_wait: bool, now: Instant) -> bool {
        let bytes = std::mem::take(&mut self.row);
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        // Turns come much closer to each other than a millisecond.
        let regained = REGAINED as u128 * passed.as_nanos() / 1_000_000_000;
        self.left =
            usize::try_from(regained).map_or(MOST, |regained| self.left.saturating_add(regained)).min(MOST);
        if !others_wait || self.left < bytes {
            return true;
        }
        self.left -= bytes;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_come_at_once_where_nobody_waits_and_after_a_while_where_somebody_does() {
        let begin = Instant::now();
        let read = |unwanted: &mut Unwanted, others_wait, now| {
            unwanted.add(TURN);
            !unwanted.is_enough_at(others_wait, now)
        };
        let mut unwanted = Unwanted::default();
        assert!(!read(&mut unwanted, false, begin));
        let turns = |unwanted: &mut Unwanted, now| (0..).take_while(|_| read(unwanted, true, now)).count();
        assert_eq!(turns(&mut unwanted, begin), MOST / TURN);
        let later = begin + Duration::from_secs(1);
        assert_eq!(turns(&mut unwanted, later), REGAINED / TURN);
        // Also if it was asked often meanwhile.
        let steps = 10_000;
        let often = (1..=steps)
            .filter(|step| read(&mut unwanted, true, later + Duration::from_secs(1) * *step / steps));
        assert!(often.count() + 1 >= REGAINED / TURN);
        assert_eq!(turns(&mut unwanted, later + Duration::from_secs(3600)), MOST / TURN);
    }

    #[test]
    fn what_somebody_wants_begins_anew() {
        let mut unwanted = Unwanted::default();
        unwanted.add(TURN - 1);
        assert!(!unwanted.is_enough(false));
        unwanted.interrupt();
        unwanted.add(TURN - 1);
        assert!(!unwanted.is_enough(false));
        unwanted.add(1);
        assert!(unwanted.is_enough(false) && !unwanted.is_enough(false));
    }
}
