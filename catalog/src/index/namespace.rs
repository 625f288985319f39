//! What one namespace has of the index.

use std::cmp::Reverse;
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

    /// The words that begin so and that most of its servers have: so many, of the first so many of the alphabet.
    pub(super) fn beginning(&self, prefix: &str, looked_at: usize, most: usize) -> Vec<&str> {
        let following = self.written.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let beginning = following.take_while(|(word, _)| word.starts_with(prefix));
        // The least of them on top. Of those that equally many servers have, the first of the alphabet stay.
        let mut found = BinaryHeap::new();
        for (number, (word, &servers)) in beginning.take(looked_at).enumerate() {
            let next = Reverse((servers, Reverse(number), &**word));
            if found.len() < most {
                found.push(next);
            } else if let Some(mut least) = found.peek_mut()
                && least.0.0 < servers
            {
                *least = next;
            }
        }
        found.into_sorted_vec().into_iter().map(|Reverse((_, _, word))| word).collect()
    }
}
