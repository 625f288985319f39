//! The words that stand for one that was typed, where there may be very many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many they are: those that most namespaces have, and of each those that most of its servers have.
pub(super) const EXPANSIONS: usize = 64;

/// Words of one namespace: those that most servers have, and of those that equally many have the first of the alphabet.
#[derive(Default)]
pub(super) struct MostHad<'a> {
    /// The least of them on top.
    words: BinaryHeap<Reverse<(u32, Reverse<&'a str>)>>,
}

// === impl MostHad ===

impl<'a> MostHad<'a> {
    /// Keeps a word that so many servers have, if it is one of those.
    pub(super) fn put(&mut self, word: &'a str, servers: u32) {
        let next = Reverse((servers, Reverse(word)));
        if self.words.len() < EXPANSIONS {
            self.words.push(next);
        } else if let Some(mut least) = self.words.peek_mut()
            && next < *least
        {
            *least = next;
        }
    }

    /// All that were kept, the one first that most servers have.
    pub(super) fn in_order(self) -> impl Iterator<Item = &'a str> {
        self.words.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(word)))| word)
    }
}

/// The words that most namespaces have, and then those that come first in any.
pub(super) fn chosen<'a>(namespaces: impl Iterator<Item = MostHad<'a>>) -> Vec<&'a str> {
    let mut places: Vec<(&str, usize)> = namespaces.flat_map(|words| words.in_order().zip(0..)).collect();
    // A word is in memory once, whoever has it.
    places.sort_unstable_by_key(|(word, place)| (word.as_ptr(), *place));
    let same = places.chunk_by(|(one, _), (other, _)| std::ptr::eq(*one, *other));
    let mut found: Vec<_> =
        same.filter_map(|of| of.first().map(|(word, best)| (Reverse(of.len()), *best, *word))).collect();
    if found.len() > EXPANSIONS {
        found.select_nth_unstable(EXPANSIONS);
        found.truncate(EXPANSIONS);
    }
    found.into_iter().map(|(_, _, word)| word).collect()
}
