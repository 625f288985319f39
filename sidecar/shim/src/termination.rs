//! Termination: how a process is brought to its end, decided without touching one. Its stdin is closed, SIGTERM follows, then
//! SIGKILL.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown>

use std::time::{Duration, Instant};

use crate::protocol::Patience;

/// What is given to a process when nobody says otherwise: what most servers need to write their state, within the
/// shortest time that Kubernetes gives by default.
pub(crate) const DEFAULT: Patience =
    Patience { input: Duration::from_secs(2), terminate: Duration::from_secs(5) };

/// How far one process is on its way to the end. Its stdin is closed already.
pub(crate) struct Termination {
    step: Step,
    due: Instant,
    terminate: Duration,
}

#[derive(PartialEq, Eq)]
enum Step {
    Input,
    Terminate,
    Kill,
}

/// What is to be done to the process now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Terminate,
    Kill,
}

impl Termination {
    pub(crate) fn begin(now: Instant, patience: Patience) -> Self {
        Self { step: Step::Input, due: now + patience.input, terminate: patience.terminate }
    }

    /// Goes on as if it had begun now with this patience, if that is sooner.
    pub(crate) fn hurry(&mut self, now: Instant, patience: Patience) {
        let due = match self.step {
            Step::Input => now + patience.input,
            Step::Terminate | Step::Kill => now + patience.terminate,
        };
        self.due = self.due.min(due);
        self.terminate = self.terminate.min(patience.terminate);
    }

    /// The next step, if its time has come. To be asked again until there is none.
    pub(crate) fn advance(&mut self, now: Instant) -> Option<Action> {
        if now < self.due {
            return None;
        }
        match self.step {
            Step::Input => {
                self.step = Step::Terminate;
                self.due = now + self.terminate;
                Some(Action::Terminate)
            }
            Step::Terminate => {
                self.step = Step::Kill;
                Some(Action::Kill)
            }
            Step::Kill => None,
        }
    }

    /// When to ask again. After SIGKILL there is nothing left to do but to wait.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.step != Step::Kill).then_some(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn patience(input: u64, terminate: u64) -> Patience {
        Patience { input: Duration::from_secs(input), terminate: Duration::from_secs(terminate) }
    }

    fn actions(termination: &mut Termination, now: Instant) -> Vec<Action> {
        std::iter::from_fn(|| termination.advance(now)).collect()
    }

    #[test]
    fn each_step_waits_for_its_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut termination = Termination::begin(start, patience(2, 5));
        assert_eq!(actions(&mut termination, at(1)), []);
        assert_eq!(actions(&mut termination, at(2)), [Action::Terminate]);
        assert_eq!(termination.due(), Some(at(7)));
        assert_eq!(actions(&mut termination, at(6)), []);
        assert_eq!(actions(&mut termination, at(7)), [Action::Kill]);
        assert_eq!(termination.due(), None);
        assert_eq!(actions(&mut termination, at(60)), []);
    }

    #[test]
    fn no_patience_is_all_steps_at_once() {
        let now = Instant::now();
        let mut termination = Termination::begin(now, patience(0, 0));
        assert_eq!(actions(&mut termination, now), [Action::Terminate, Action::Kill]);
    }

    #[test]
    fn hurrying_never_gives_more_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut termination = Termination::begin(start, patience(10, 10));
        termination.hurry(at(1), patience(60, 60));
        assert_eq!(termination.due(), Some(at(10)));
        termination.hurry(at(2), patience(1, 1));
        assert_eq!(actions(&mut termination, at(3)), [Action::Terminate]);
        assert_eq!(actions(&mut termination, at(4)), [Action::Kill]);
    }
}
