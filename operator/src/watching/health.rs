//! The health of all watches: whether each has had its first list, and whether what is known may be out of date. Pure.

use std::collections::BTreeMap;

use crate::scope::Scope;

/// Which watch: of which kind, and where.
pub(super) type Name = (String, Scope);

/// All watches that there are.
#[derive(Debug, Default)]
pub(super) struct Watches {
    known: BTreeMap<Name, Known>,
}

/// What there is to say of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It is heard.
    Heard,
    /// It failed.
    Failed,
    /// The API server has refused it for some time.
    Refused {
        /// Something in its namespace is known.
        known: bool,
    },
}

/// What is known of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    /// Whether it was ever heard.
    ever: bool,
    /// What was said of it last. `None`: it has just been asked for.
    now: Option<Word>,
}

impl Watches {
    /// From now on there is this one.
    pub(super) fn add(&mut self, watch: Name) {
        self.known.insert(watch, Known::default());
    }

    /// Takes down what is heard of a watch. Says whether that is news.
    pub(super) fn enter(&mut self, watch: &Name, word: Word) -> bool {
        let Some(known) = self.known.get_mut(watch) else { return false };
        let now = Known { ever: known.ever || word == Word::Heard, now: Some(word) };
        std::mem::replace(known, now) != now
    }

    /// Whether all of them have been heard once, but for those of namespaces that are out.
    pub(super) fn have_begun(&self) -> bool {
        self.known.iter().all(|((_, scope), known)| known.ever || self.is_out(scope))
    }

    /// Whether what was heard may no longer be so.
    pub(super) fn are_stale(&self) -> bool {
        let fails = |known: &Known| known.now.is_some_and(|word| word != Word::Heard);
        self.known.iter().any(|((_, scope), known)| fails(known) && !self.is_out(scope))
    }

    /// Whether a namespace is one of which nothing is granted and nothing known: it is gone, and its Role with it. Where
    /// some of it is granted, half of its servers' story would be told; and where everything was to be watched, all would
    /// be out.
    pub(super) fn is_out(&self, scope: &Scope) -> bool {
        let mut of_scope = self.known.iter().filter(|((_, other), _)| other == scope);
        scope.is_some() && of_scope.all(|(_, known)| known.is_out())
    }
}

// === impl Known ===

impl Known {
    /// Whether it is not going to be heard as long as nobody grants it, and nothing is known any more that may have changed.
    fn is_out(self) -> bool {
        matches!(self.now, Some(Word::Refused { known }) if !(self.ever && known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_grants_nothing_is_out_and_all_others_are_waited_for() {
        use Word::{Failed, Heard};
        const REFUSED: Word = Word::Refused { known: false };
        const TAKEN_BACK: Word = Word::Refused { known: true };
        let one = Some("one");
        for (scope, words, begun, stale, why) in [
            (one, &[("a", Heard)][..], false, false, "b is still to come"),
            (one, &[("a", Heard), ("b", Heard)], true, false, "all are heard"),
            (one, &[("a", Heard), ("b", Heard), ("b", Failed)], true, true, "what was heard is served"),
            (
                one,
                &[("a", Heard), ("b", Heard), ("a", TAKEN_BACK), ("b", TAKEN_BACK)],
                true,
                true,
                "and so it is if it is taken back",
            ),
            (one, &[("a", Heard), ("b", Heard), ("b", REFUSED)], true, true, "half of it is taken back"),
            (
                one,
                &[("a", Heard), ("b", Heard), ("a", REFUSED), ("b", REFUSED)],
                true,
                false,
                "its servers went before it did",
            ),
            (one, &[("a", Failed), ("b", Failed)], false, true, "nothing is known"),
            (one, &[("a", REFUSED), ("b", REFUSED)], true, false, "the namespace is out"),
            (one, &[("a", Heard), ("b", REFUSED)], false, true, "half of it is granted"),
            (None, &[("a", REFUSED), ("b", REFUSED)], false, true, "everything would be out"),
            (one, &[("a", REFUSED), ("b", REFUSED), ("a", Heard)], false, true, "it is granted again"),
            (one, &[("a", REFUSED), ("b", REFUSED), ("b", Failed)], false, true, "nobody knows any longer"),
        ] {
            let mut watches = Watches::default();
            for kind in ["a", "b"] {
                watches.add((kind.to_owned(), scope.map(str::to_owned)));
                watches.add((kind.to_owned(), Some("other".to_owned())));
                watches.enter(&(kind.to_owned(), Some("other".to_owned())), Heard);
            }
            for (kind, word) in words {
                assert!(watches.enter(&((*kind).to_owned(), scope.map(str::to_owned)), *word), "{why}");
            }
            assert_eq!((watches.have_begun(), watches.are_stale()), (begun, stale), "{why}");
        }
    }
}
