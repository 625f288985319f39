//! Which tasks of the server are known here, and whose they are.
//!
//! A server may give an id twice, against the protocol: where it counts, and is another one than it was, or counts in each
//! process or session by itself. At one place the newest has its id. Where it is not known whether two places are one, as
//! with the sessions of a server over HTTP, a task has its id where it was begun, and elsewhere the newest has it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use http::HeaderValue;
use longshore_sessions::capsule::PrincipalDigest;

use super::Named;

/// The most tasks that are remembered of all principals, each of some hundred bytes, and of one.
const MAX_KNOWN: usize = 4096;
const MAX_OF_PRINCIPAL: usize = 512;

/// Where the server keeps a task, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// There is one place, or nobody knows which.
    Anywhere,
    /// In the processes that serve this principal's requests alone.
    Principal(PrincipalDigest),
    /// In this process of several.
    Process(u64),
    /// In what the server calls so, a session of its own.
    Session(HeaderValue),
}

/// What is known of a task.
struct Known {
    task: Named,
    at: At,
    /// Its number in the order in which tasks began. 0: it was only asked for, and may be another's by now.
    number: u64,
}

/// How likely a task is to be the one of its id at a place: that it was begun there comes first, and then how new it is.
type Rank = (bool, u64);

/// All tasks that are known.
#[derive(Default)]
pub(super) struct All {
    /// The oldest first.
    of: HashMap<PrincipalDigest, VecDeque<Known>>,
    count: usize,
    last: u64,
}

impl At {
    /// Whether this may be that place.
    fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Process(_) | Self::Principal(_), Self::Process(_) | Self::Principal(_)) => self == other,
            _ => true,
        }
    }

    /// Whether this certainly is that place.
    fn is(&self, other: &Self) -> bool {
        self == other && *self != Self::Anywhere
    }
}

impl Known {
    fn rank(&self, at: &At) -> Rank {
        (self.at.is(at), self.number)
    }
}

impl All {
    /// What a principal knows the task of this id by that is kept there.
    pub(super) fn named(&self, principal: PrincipalDigest, id: &str, at: &At) -> Option<&Named> {
        let own = self.likeliest(id, at, |of, _| of == principal)?;
        let other = self.likeliest(id, at, |of, _| of != principal);
        other.is_none_or(|other| other.rank(at) <= own.rank(at)).then_some(&own.task)
    }

    /// Whether the task of this id there is known to be somebody else's than this principal's, or another tool's.
    pub(super) fn is_another(&self, principal: PrincipalDigest, tool: &str, id: &str, at: &At) -> bool {
        let is_same = |of, task: &Named| of == principal && *task.tool == *tool;
        let same = self.likeliest(id, at, is_same).map(|it| it.rank(at)).unwrap_or_default();
        let other = self.likeliest(id, at, |of, task| !is_same(of, task));
        other.is_some_and(|other| other.rank(at) > same)
    }

    /// What a task is called that has begun there, if it is known already.
    pub(super) fn again(&self, principal: PrincipalDigest, tool: &str, id: &str, at: &At) -> Option<&Named> {
        let mut own = self.of.get(&principal)?.iter();
        let is_it = |it: &&Known| *it.task.id == *id && *it.task.tool == *tool && it.at == *at;
        own.find(is_it).map(|it| &it.task)
    }

    /// A task has begun there, and is the newest of its id.
    pub(super) fn begin(&mut self, principal: PrincipalDigest, task: Named, at: At) {
        self.forget(principal, &task.id, &at);
        self.last += 1;
        self.add(principal, Known { task, at, number: self.last });
    }

    /// A principal has asked for a task of which nothing else is known.
    pub(super) fn note(&mut self, principal: PrincipalDigest, task: Named) {
        let mut own = self.of.get(&principal).into_iter().flatten();
        if !own.any(|it| it.task.id == task.id) {
            self.add(principal, Known { task, at: At::Anywhere, number: 0 });
        }
    }

    /// A principal knows a task by another name from now on.
    pub(super) fn rename(&mut self, principal: PrincipalDigest, former: &str, name: &Arc<str>) {
        let own = self.of.get_mut(&principal).into_iter().flatten();
        for it in own.filter(|it| *it.task.name == *former) {
            it.task.name = name.clone();
        }
    }

    fn likeliest(&self, id: &str, at: &At, is: impl Fn(PrincipalDigest, &Named) -> bool) -> Option<&Known> {
        let all = self.of.iter().flat_map(|(of, tasks)| tasks.iter().map(move |it| (*of, it)));
        let may_be = |it: &Known| *it.task.id == *id && it.at.may_be(at);
        let all = all.filter(|(of, it)| may_be(it) && is(*of, &it.task)).map(|(_, it)| it);
        all.max_by_key(|it| it.rank(at))
    }

    fn add(&mut self, principal: PrincipalDigest, task: Known) {
        let own = self.of.entry(principal).or_default();
        own.push_back(task);
        if own.len() > MAX_OF_PRINCIPAL {
            own.pop_front();
            return;
        }
        self.count += 1;
        if self.count > MAX_KNOWN {
            self.forget_one();
        }
    }

    /// Forgets the tasks that had an id there, and what this principal has only asked for by it.
    fn forget(&mut self, principal: PrincipalDigest, id: &str, at: &At) {
        let count = &mut self.count;
        self.of.retain(|of, tasks| {
            *count -= tasks.len();
            tasks.retain(|it| *it.task.id != *id || it.at != *at && (it.number > 0 || *of != principal));
            *count += tasks.len();
            !tasks.is_empty()
        });
    }

    /// Forgets the oldest task of whoever has the most, so that nobody crowds others out.
    fn forget_one(&mut self) {
        let most = self.of.iter().max_by_key(|(_, own)| own.len()).map(|(principal, _)| *principal);
        let Some(principal) = most else { return };
        if let Some(own) = self.of.get_mut(&principal) {
            self.count -= usize::from(own.pop_front().is_some());
            if own.is_empty() {
                self.of.remove(&principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str, name: &str) -> Named {
        Named { id: id.into(), name: name.into(), tool: "tool".into() }
    }

    fn session(name: &'static str) -> At {
        At::Session(HeaderValue::from_static(name))
    }

    /// Whether ann's task, begun first, and bob's, begun after it under the same id, are theirs at a place.
    #[test]
    fn an_id_is_whose_it_was_last_at_its_own_place() {
        let (ann, bob) = (PrincipalDigest::of("ann"), PrincipalDigest::of("bob"));
        let (one, two, three) = (At::Process(1), At::Process(2), At::Process(3));
        let (own_of_ann, own_of_bob) = (At::Principal(ann), At::Principal(bob));
        for (of_ann, of_bob, asked, is_anns, is_bobs) in [
            (At::Anywhere, At::Anywhere, At::Anywhere, false, true),
            (one.clone(), one.clone(), one.clone(), false, true),
            // Each counts for itself.
            (one.clone(), two.clone(), one.clone(), true, false),
            (one.clone(), two.clone(), two.clone(), false, true),
            (own_of_ann.clone(), own_of_bob.clone(), own_of_ann, true, false),
            (one.clone(), two, three, false, false),
            // Or perhaps does not.
            (session("a"), session("b"), session("a"), true, false),
            (session("a"), session("b"), session("b"), false, true),
            (session("a"), session("b"), session("c"), false, true),
            (session("a"), session("b"), At::Anywhere, false, true),
            (session("a"), At::Anywhere, session("a"), true, false),
            (At::Anywhere, session("b"), session("a"), false, true),
            (one, session("b"), At::Anywhere, false, true),
        ] {
            let mut all = All::default();
            all.begin(ann, named("1", "of ann"), of_ann.clone());
            all.begin(bob, named("1", "of bob"), of_bob.clone());
            let case = format!("{of_ann:?} {of_bob:?} {asked:?}");
            for (who, is_theirs) in [(ann, is_anns), (bob, is_bobs)] {
                assert_eq!(all.named(who, "1", &asked).is_some(), is_theirs, "{case}");
                // Where neither is, the server is asked.
                let is_another = all.is_another(who, "tool", "1", &asked);
                assert_eq!(is_another, !is_theirs && (is_anns || is_bobs), "{case}");
            }
        }
    }

    #[test]
    fn who_only_asks_takes_nothing_from_anybody() {
        let (ann, bob) = (PrincipalDigest::of("ann"), PrincipalDigest::of("bob"));
        let at = session("b");
        let mut all = All::default();
        all.note(ann, named("1", "of ann"));
        all.note(ann, named("1", "again"));
        assert_eq!(
            (&*all.named(ann, "1", &at).unwrap().name, all.count),
            ("of ann", 1),
            "what it knows it by"
        );
        assert!(!all.is_another(bob, "tool", "1", &at));
        all.note(bob, named("1", "of bob"));
        assert!(all.named(ann, "1", &at).is_some() && all.named(bob, "1", &at).is_some());
        // What has begun is known to be.
        all.begin(bob, named("1", "begun"), at.clone());
        assert!(all.is_another(ann, "tool", "1", &at) && all.named(ann, "1", &at).is_none());
        assert_eq!((&*all.named(bob, "1", &at).unwrap().name, all.count), ("begun", 2));
        assert!(all.again(bob, "tool", "1", &at).is_some() && all.again(bob, "other", "1", &at).is_none());
        // Its tool is a part of it.
        assert!(!all.is_another(bob, "tool", "1", &at) && all.is_another(bob, "other", "1", &at));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nobody_crowds_others_out() {
        let (ann, bob) = (PrincipalDigest::of("ann"), PrincipalDigest::of("bob"));
        let mut all = All::default();
        let begin = |all: &mut All, of, number: usize| {
            all.begin(of, named(&number.to_string(), "name"), At::Anywhere);
        };
        begin(&mut all, bob, 100_000);
        (0..=MAX_OF_PRINCIPAL).for_each(|number| begin(&mut all, ann, number));
        let is_known = |all: &All, of, id| all.named(of, id, &At::Anywhere).is_some();
        assert!(!is_known(&all, ann, "0"));
        assert!(is_known(&all, ann, "1") && is_known(&all, bob, "100000"));
        for some in 1..=MAX_KNOWN / MAX_OF_PRINCIPAL {
            let principal = PrincipalDigest::of(&some.to_string());
            let numbers = some * 1_000..some * 1_000 + MAX_OF_PRINCIPAL;
            numbers.for_each(|number| begin(&mut all, principal, number));
        }
        assert_eq!(all.count, MAX_KNOWN);
        assert_eq!(all.of.values().map(VecDeque::len).sum::<usize>(), MAX_KNOWN);
        assert!(is_known(&all, bob, "100000"));
    }
}
