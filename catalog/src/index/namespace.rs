//! What one namespace has of the index.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::Bound;
use std::sync::Arc;

use super::expansions::MostHad;

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
    prefix: &'a str,
    /// Those that were not.
    following: Range<'a, Arc<str>, u32>,
    found: MostHad<'a>,
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

    /// Its words that begin so, if it has any.
    pub(super) fn beginning<'a>(&'a self, prefix: &'a str) -> Option<Beginning<'a>> {
        let following = self.written.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let (first, _) = following.clone().next()?;
        first.starts_with(prefix).then(|| Beginning { prefix, following, found: MostHad::default() })
    }
}

// === impl Beginning ===

impl<'a> Beginning<'a> {
    /// Looks at so many more of them, in the order of the alphabet. Says how many there were to look at.
    pub(super) fn look_at(&mut self, words: usize) -> usize {
        for looked_at in 0..words {
            let next = self.following.next().filter(|(word, _)| word.starts_with(self.prefix));
            let Some((word, &servers)) = next else { return looked_at };
            self.found.put(word, servers);
        }
        words
    }

    /// Those of them that most servers have.
    pub(super) fn most_had(self) -> MostHad<'a> {
        self.found
    }
}
