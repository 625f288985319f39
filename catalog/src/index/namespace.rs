//! What one namespace has of the index.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::Bound;
use std::sync::Arc;

use super::expansions::{Candidates, MostHad};

/// What a namespace has of the index.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// How many stems are its own.
    pub(super) stems: usize,
    /// How many words are.
    pub(super) words: usize,
    /// How many entries its servers have.
    pub(super) entries: usize,
    /// All words of its servers as they are written, whoever had them first, and how many of its servers have each: for
    /// prefixes.
    written: BTreeMap<Arc<str>, u32>,
}

/// The words of a namespace that begin so, as far as they were looked at.
pub(super) struct Beginning<'a> {
    /// Those that were not.
    following: Range<'a, Arc<str>, u32>,
    /// How many were.
    looked_at: usize,
    /// By their places among these, which are the alphabet's.
    found: MostHad<'a, usize>,
}

/// What comes after every word that begins so: none has the last of all characters.
pub(super) fn end_of(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

// === impl Namespace ===

impl Namespace {
    /// Whether there is no need to know it.
    pub(super) fn has_nothing(&self) -> bool {
        self.words == 0 && self.stems == 0 && self.entries == 0 && self.written.is_empty()
    }

    /// One more of its servers has a word.
    pub(super) fn writes(&mut self, word: &Arc<str>) {
        *self.written.entry(word.clone()).or_default() += 1;
    }

    /// One of its servers no longer has a word.
    pub(super) fn unwrites(&mut self, word: &str) {
        let Some(servers) = self.written.get_mut(word) else { return };
        *servers -= 1;
        if *servers == 0 {
            self.written.remove(word);
        }
    }

    /// Its words that begin so, if it has any: those before the [end](end_of).
    pub(super) fn beginning(&self, prefix: &str, end: &str) -> Option<Beginning<'_>> {
        let following = self.written.range::<str, _>((Bound::Included(prefix), Bound::Excluded(end)));
        following.clone().next()?;
        Some(Beginning { following, looked_at: 0, found: MostHad::default() })
    }
}

// === impl Beginning ===

impl<'a> Beginning<'a> {
    /// Those that most servers have of them that were looked at.
    pub(super) fn most_had(self) -> MostHad<'a, usize> {
        self.found
    }
}

impl Candidates for Beginning<'_> {
    /// In the order of the alphabet. None but those that are kept is read.
    fn look_at(&mut self, words: usize) -> usize {
        let before = self.looked_at;
        for (word, &servers) in self.following.by_ref().take(words) {
            self.found.put(servers, self.looked_at, word);
            self.looked_at += 1;
        }
        self.looked_at - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_has_all_that_begin_so() {
        let mut namespace = Namespace::default();
        for word in ["cq", "crz", "cr", "cr𠀀", "cr日", "cs", "crz"] {
            namespace.writes(&word.into());
        }
        let mut beginning = namespace.beginning("cr", &end_of("cr")).unwrap();
        assert_eq!((beginning.look_at(1), beginning.look_at(9)), (1, 3));
        assert!(beginning.most_had().in_order().eq(["crz", "cr", "cr日", "cr𠀀"]));
        assert!(namespace.beginning("d", &end_of("d")).is_none());
    }
}
