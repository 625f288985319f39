//! The words that stand for one that was typed, where there may be very many.

use std::cmp::Reverse;

/// How many they are: those that most namespaces have, and of each those that most of its servers have.
pub(super) const EXPANSIONS: usize = 64;
/// How many words are looked at for those that stand for one that was typed: there may be very many, and the search would
/// take as long. Each namespace that has such words has its own part of that, and what it has no use for is the others'.
pub(super) const LOOKED_AT: usize = 20_000;

/// Words of one namespace that may stand for what was typed.
pub(super) trait Candidates {
    /// Looks at so many more of them. Says how many there were to look at.
    fn look_at(&mut self, words: usize) -> usize;
}

/// Words of one namespace: those that most servers have, and of those that equally many have the first in an order.
pub(super) struct MostHad<'a, Order> {
    /// The one first that most servers have. Words come in their order as a rule, so most find their place at the end.
    words: Vec<(u32, Reverse<Order>, &'a str)>,
}

/// Looks at words of these namespaces, at so many as a rule, and says at how many: at one of each in any case.
pub(super) fn look_at(namespaces: &mut [impl Candidates], most: usize) -> usize {
    let mut looked_at = 0;
    let mut more: Vec<_> = namespaces.iter_mut().collect();
    while !more.is_empty() {
        let part = (most.saturating_sub(looked_at) / more.len()).max(1);
        more.retain_mut(|namespace| {
            let words = namespace.look_at(part);
            looked_at += words;
            words == part
        });
        if looked_at + more.len() > most {
            break;
        }
    }
    looked_at
}

// === impl MostHad ===

impl<Order> Default for MostHad<'_, Order> {
    fn default() -> Self {
        Self { words: Vec::new() }
    }
}

impl<'a, Order: Ord> MostHad<'a, Order> {
    /// Keeps a word that so many servers have, if it is one of those.
    pub(super) fn put(&mut self, servers: u32, order: Order, word: &'a str) {
        let next = (servers, Reverse(order), word);
        let place = match self.words.last() {
            Some(least) if next > *least => self.words.partition_point(|before| *before > next),
            _ => self.words.len(),
        };
        if place < EXPANSIONS {
            self.words.truncate(EXPANSIONS - 1);
            self.words.insert(place, next);
        }
    }

    /// All that were kept, the one first that most servers have.
    pub(super) fn in_order(self) -> impl Iterator<Item = &'a str> {
        self.words.into_iter().map(|(_, _, word)| word)
    }
}

/// The words that most namespaces have, and then those that come first in any.
pub(super) fn chosen<'a, Order: Ord>(namespaces: impl Iterator<Item = MostHad<'a, Order>>) -> Vec<&'a str> {
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
