//! Whose turn it is: first of those that somebody waits for, then of the others, and of either one of each principal after
//! the other.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many have theirs at once: a server that has only just started may have thousands of sessions.
pub(super) const ALL: usize = 8;
/// How many of them one principal may have, where there are others: its server may take long for each.
pub(super) const OWN: usize = ALL / 2;

/// Those that wait for their turns, and whose the others are that have one.
#[derive(Default)]
pub(super) struct Turns<T> {
    awaited: Lines<T>,
    others: Lines<T>,
    /// How many each principal has.
    taken: HashMap<Arc<str>, usize>,
}

/// A line for each principal.
#[derive(Default)]
struct Lines<T> {
    lines: HashMap<Arc<str>, VecDeque<T>>,
    /// Whose it is next.
    order: VecDeque<Arc<str>>,
}

impl<T> Turns<T> {
    /// Puts one at the end of its line.
    pub(super) fn wait(&mut self, whose: &Arc<str>, what: T, is_awaited: bool) {
        if is_awaited { &mut self.awaited } else { &mut self.others }.push(whose, what);
    }

    /// Who has a turn now, of those whose principals have fewer than they may.
    pub(super) fn take(&mut self, may_have: usize) -> Option<(Arc<str>, T)> {
        let Self { awaited, others, taken } = self;
        let may = |whose: &Arc<str>| taken.get(whose).is_none_or(|taken| *taken < may_have);
        let (whose, what) = awaited.pop(may).or_else(|| others.pop(may))?;
        *taken.entry(whose.clone()).or_default() += 1;
        Some((whose, what))
    }

    /// One of this principal's turns is over.
    pub(super) fn give_back(&mut self, whose: &Arc<str>) {
        if let Some(taken) = self.taken.get_mut(whose) {
            *taken -= 1;
            self.taken.retain(|_, taken| *taken > 0);
        }
    }
}

impl<T> Lines<T> {
    fn push(&mut self, whose: &Arc<str>, what: T) {
        let line = self.lines.entry(whose.clone()).or_default();
        if line.is_empty() {
            self.order.push_back(whose.clone());
        }
        line.push_back(what);
    }

    fn pop(&mut self, may: impl Fn(&Arc<str>) -> bool) -> Option<(Arc<str>, T)> {
        let whose = self.order.remove(self.order.iter().position(may)?)?;
        let line = self.lines.get_mut(&whose)?;
        let what = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&whose);
        } else {
            self.order.push_back(whose.clone());
        }
        Some((whose, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_have_turns_one_after_the_other_and_who_is_awaited_goes_first() {
        let mut turns = Turns::default();
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let wait = |turns: &mut Turns<_>, whose, what, is_awaited| turns.wait(whose, what, is_awaited);
        let take = |turns: &mut Turns<_>| turns.take(2).map(|(_, what)| what);
        for (whose, what) in [(&a, "a1"), (&a, "a2"), (&a, "a3"), (&a, "a4"), (&b, "b1"), (&b, "b2")] {
            wait(&mut turns, whose, what, false);
        }
        assert_eq!([(); 2].map(|()| take(&mut turns)), [Some("a1"), Some("b1")]);
        for (whose, what) in [(&c, "c1"), (&c, "c2"), (&a, "a5")] {
            wait(&mut turns, whose, what, true);
        }
        let taken = [(); 5].map(|()| take(&mut turns));
        assert_eq!(
            taken,
            [Some("c1"), Some("a5"), Some("c2"), Some("b2"), None],
            "the rest is of whom has all"
        );
        turns.give_back(&b);
        assert_eq!(take(&mut turns), None);
        turns.give_back(&a);
        assert_eq!([(); 2].map(|()| take(&mut turns)), [Some("a2"), None]);
        turns.give_back(&a);
        turns.give_back(&a);
        assert_eq!([(); 3].map(|()| take(&mut turns)), [Some("a3"), Some("a4"), None]);
        for whose in [&a, &a, &b, &c, &c] {
            turns.give_back(whose);
        }
        assert!(turns.taken.is_empty() && turns.others.lines.is_empty() && turns.awaited.order.is_empty());
    }
}
