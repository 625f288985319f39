//! Whose turn it is: of each principal after the other, first of those sessions that somebody waits for. Every fourth turn is of
//! the next principal, whether or not anybody waits for what it has: so neither keeps the other from having any.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How many have theirs at once: a server that has only just started may have thousands of sessions.
pub(super) const ALL: usize = 8;
/// How many of them one principal may have, where there are others: its server may take long for each.
pub(super) const OWN: usize = ALL / 2;
/// Of so many turns one is of whoever is next.
const FAIR: usize = 4;

/// What waits for its turn, and how many turns each principal has.
#[derive(Default)]
pub(super) struct Turns<T> {
    lines: HashMap<Arc<str>, Lines<T>>,
    /// Whose it is next.
    order: VecDeque<Arc<str>>,
    /// How many each principal has.
    taken: HashMap<Arc<str>, usize>,
    /// How many there were.
    given: usize,
}

/// Those of one principal.
struct Lines<T> {
    awaited: VecDeque<T>,
    others: VecDeque<T>,
}

impl<T> Turns<T> {
    /// Puts one at the end of its line.
    pub(super) fn wait(&mut self, whose: &Arc<str>, what: T, is_awaited: bool) {
        let lines = self.lines.entry(whose.clone()).or_insert_with(|| {
            self.order.push_back(whose.clone());
            Lines { awaited: VecDeque::new(), others: VecDeque::new() }
        });
        if is_awaited { &mut lines.awaited } else { &mut lines.others }.push_back(what);
    }

    /// Who has a turn now, of those whose principals have fewer than they may.
    pub(super) fn take(&mut self, may_have: usize) -> Option<(Arc<str>, T)> {
        let Self { lines, order, taken, given } = self;
        let may = |whose: &Arc<str>| taken.get(whose).is_none_or(|taken| *taken < may_have);
        let is_awaited = |whose: &Arc<str>| lines.get(whose).is_some_and(|own| !own.awaited.is_empty());
        let awaited = || order.iter().position(|whose| may(whose) && is_awaited(whose));
        let is_fair = (*given + 1).is_multiple_of(FAIR);
        let next = if is_fair { None } else { awaited() }.or_else(|| order.iter().position(may));
        let whose = order.remove(next?)?;
        let own = lines.get_mut(&whose)?;
        let (first, second) =
            if is_fair { (&mut own.others, &mut own.awaited) } else { (&mut own.awaited, &mut own.others) };
        let what = first.pop_front().or_else(|| second.pop_front())?;
        if own.awaited.is_empty() && own.others.is_empty() {
            lines.remove(&whose);
        } else {
            order.push_back(whose.clone());
        }
        *taken.entry(whose.clone()).or_default() += 1;
        *given = given.wrapping_add(1);
        Some((whose, what))
    }

    /// The turn that this principal was given was for nothing: whoever is next is given it.
    pub(super) fn was_void(&mut self, whose: &Arc<str>) {
        self.given = self.given.wrapping_sub(1);
        self.give_back(whose);
    }

    /// One of this principal's turns is over.
    pub(super) fn give_back(&mut self, whose: &Arc<str>) {
        if let Some(taken) = self.taken.get_mut(whose) {
            *taken -= 1;
            self.taken.retain(|_, taken| *taken > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_have_turns_one_after_the_other_and_who_is_awaited_goes_before_others_of_its_own() {
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
            [Some("a5"), Some("b2"), Some("c1"), Some("c2"), None],
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
        assert!(turns.taken.is_empty() && turns.lines.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn who_is_awaited_does_not_wait_for_all_principals_that_are_not() {
        let mut turns = Turns::default();
        for other in 0..100 {
            turns.wait(&Arc::from(format!("other {other}")), "other", false);
        }
        turns.wait(&Arc::from("c"), "awaited", true);
        assert_eq!(turns.take(4).map(|(_, what)| what), Some("awaited"));
    }

    #[test]
    fn who_is_not_awaited_has_turns_however_many_others_are() {
        let mut turns = Turns::default();
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        for _ in 0..10 {
            turns.wait(&a, "a", true);
            turns.wait(&b, "b", true);
        }
        turns.wait(&c, "c", false);
        let first = [(); 4].map(|()| {
            let (whose, what) = turns.take(4).unwrap();
            turns.give_back(&whose);
            what
        });
        assert_eq!(first, ["a", "b", "a", "c"]);

        let mut of_one = Turns::default();
        for _ in 0..10 {
            of_one.wait(&a, "awaited", true);
        }
        of_one.wait(&a, "other", false);
        assert!([(); 4].map(|()| of_one.take(8).unwrap().1).contains(&"other"));
    }

    /// Whoever is awaited only after it has taken its place among the others has two, of which that one is void.
    #[test]
    fn places_that_are_void_take_nobodys_turn() {
        let (mut turns, a) = (Turns::default(), Arc::from("a"));
        for number in 0..10 {
            turns.wait(&a, (number, false), false);
            turns.wait(&a, (number, true), true);
        }
        let other = 10;
        turns.wait(&a, (other, false), false);
        let mut in_order = Vec::new();
        while let Some((whose, (what, is_awaited))) = turns.take(8) {
            if is_awaited == (what < other) {
                in_order.push(what);
                turns.give_back(&whose);
            } else {
                turns.was_void(&whose);
            }
        }
        assert_eq!(in_order, [0, 1, 2, other, 3, 4, 5, 6, 7, 8, 9]);
    }
}
