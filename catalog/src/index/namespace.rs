//! What one namespace has of the index.

use std::cmp::Reverse;
use std::collections::btree_map::Range;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

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
    looked_at: usize,
    /// Those that were not.
    following: Range<'a, Arc<str>, u32>,
    /// The least of them on top. Of those that equally many servers have, the first of the alphabet stay.
    found: BinaryHeap<Reverse<(u32, Reverse<usize>, &'a str)>>,
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
        first.starts_with(prefix).then(|| Beginning {
            prefix,
            looked_at: 0,
            following,
            found: BinaryHeap::new(),
        })
    }
}

// === impl Beginning ===

impl<'a> Beginning<'a> {
    /// Looks at so many more of them, in the order of the alphabet, and keeps so many that most servers have. Says how many
    /// there were to look at.
    pub(super) fn look_at(&mut self, words: usize, most: usize) -> usize {
        let before = self.looked_at;
        for _ in 0..words {
            let next = self.following.next().filter(|(word, _)| word.starts_with(self.prefix));
            let Some((word, &servers)) = next else { break };
            let next = Reverse((servers, Reverse(self.looked_at), &**word));
            self.looked_at += 1;
            if self.found.len() < most {
                self.found.push(next);
            } else if let Some(mut least) = self.found.peek_mut()
                && least.0.0 < servers
            {
                *least = next;
            }
        }
        self.looked_at - before
    }

    /// Those that were kept, the one first that most servers have.
    pub(super) fn most_had(self) -> impl Iterator<Item = &'a str> {
        self.found.into_sorted_vec().into_iter().map(|Reverse((_, _, word))| word)
    }
}
