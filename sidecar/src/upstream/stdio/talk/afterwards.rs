//! Whose calls a process that is everybody's may be busy with although it has answered them. Some servers go on in the
//! background, and what one asks or logs there names no call: it would be taken for the next caller's.

use std::sync::Arc;

use longshore_mcp::envelope::Outcome;
use tokio::time::{Duration, Instant};

use super::Talk;
use crate::upstream::stdio::Name;
use crate::upstream::stdio::members::Member;
use crate::upstream::stdio::routes::Call;

/// For how long after its answer a call may go on. Nothing tells of one that does for longer: docs/stdio.md says so.
const LATELY: Duration = Duration::from_secs(60);

/// Who was answered last.
#[derive(Default)]
pub(super) struct Afterwards {
    calls: Last<Instant>,
    /// In whose calls tasks were begun. Nobody hears when those end.
    tasks: Last<()>,
}

/// What holds for the last of several principals, and for the last who is another.
struct Last<T> {
    of: Option<(Arc<str>, T)>,
    before: Option<T>,
}

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self { of: None, before: None }
    }
}

impl<T: Copy> Last<T> {
    fn note(&mut self, whose: &Arc<str>, it: T) {
        match &mut self.of {
            Some((last, held)) if last == whose => *held = it,
            of => self.before = of.replace((whose.clone(), it)).map(|(_, it)| it).or(self.before),
        }
    }

    /// Of somebody else.
    fn other_than(&self, whose: &str) -> Option<T> {
        let (last, it) = self.of.as_ref()?;
        if &**last == whose { self.before } else { Some(*it) }
    }
}

impl Afterwards {
    fn answered(&mut self, whose: &Arc<str>, is_task: bool, now: Instant) {
        self.calls.note(whose, now);
        if is_task {
            self.tasks.note(whose, ());
        }
    }

    /// Whether a call of somebody else's may go on.
    fn may_be_of_others(&self, whose: &str, now: Instant) -> bool {
        let lately = |answered: Instant| now < answered + LATELY;
        self.tasks.other_than(whose).is_some() || self.calls.other_than(whose).is_some_and(lately)
    }
}

impl Talk<'_> {
    /// A call was answered, maybe with a task.
    pub(super) fn note_answered(&mut self, call: &Call, outcome: &Outcome<'_>) {
        if !self.conversation.is_of_many() || !call.about().may_go_on() {
            return;
        }
        let member = call.from.and_then(|name| self.conversation.members.get(name));
        if let Some(whose) = member.and_then(Member::principal) {
            let is_task = matches!(outcome, Outcome::Result(result) if call.becomes_task(result.get()));
            self.afterwards.answered(whose, is_task, Instant::now());
        }
    }

    /// Whether what the process says of no call could be about somebody else's call than this session's, though that is the
    /// only one under way.
    pub(super) fn is_in_doubt(&self, name: Name) -> bool {
        if !self.conversation.is_of_many() {
            return false;
        }
        let whose = self.conversation.members.get(name).and_then(Member::principal);
        let now = Instant::now();
        self.routes.abandoned || whose.is_none_or(|whose| self.afterwards.may_be_of_others(whose, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_leaves_behind_is_nobody_elses() {
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        // Who was answered when, whether with a task, and whether it could be about others for each of three a minute after
        // the process began, and much later.
        for (answers, soon, late) in [
            (&[][..], [false, false, false], [false, false, false]),
            (&[(&a, 1, false)], [false, true, true], [false, false, false]),
            (&[(&a, 1, false), (&b, 2, false)], [true, true, true], [false, false, false]),
            (&[(&a, 0, false), (&b, 2, false)], [true, false, true], [false, false, false]),
            (&[(&b, 1, false), (&a, 2, false), (&b, 3, false)], [true, true, true], [false, false, false]),
            (&[(&b, 0, false), (&a, 0, false), (&a, 3, false)], [false, true, true], [false, false, false]),
            (&[(&c, 0, false), (&b, 1, false), (&a, 2, false), (&a, 3, false)], [true; 3], [false; 3]),
            (&[(&a, 0, true)], [false, true, true], [false, true, true]),
            (&[(&a, 0, true), (&b, 0, false), (&c, 0, false)], [false, true, true], [false, true, true]),
            (&[(&a, 0, true), (&b, 0, true)], [true; 3], [true; 3]),
        ] {
            let mut afterwards = Afterwards::default();
            for (whose, second, is_task) in answers {
                afterwards.answered(whose, *is_task, at(*second));
            }
            for (second, expected) in [(60, soon), (3_600, late)] {
                let found = [&a, &b, &c].map(|whose| afterwards.may_be_of_others(whose, at(second)));
                assert_eq!(found, expected, "{answers:?} {second}");
            }
        }
    }
}
