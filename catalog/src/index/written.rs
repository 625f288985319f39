//! Every word as it is written.

use std::array;
use std::collections::HashMap;
use std::sync::Arc;

use super::tokenizer::LONGEST;

/// Names as one word may be longer than any word. The last map has all that no word is nearly as long as.
const LENGTHS: usize = LONGEST + 3;

/// All words, by how many letters they have: those that differ by a letter are in the same map, or in the next.
#[derive(Debug)]
pub(super) struct Written {
    lengths: [HashMap<Arc<str>, Word>; LENGTHS],
}

/// What there is to know of a word.
#[derive(Debug)]
pub(super) struct Word {
    /// The namespace whose it is.
    pub(super) of: Arc<str>,
    /// How many servers have it.
    pub(super) servers: u32,
    /// Which letters it has.
    pub(super) letters: Letters,
}

/// Which letters a word has, without their number and their order: a bit for some each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letters(u32);

// === impl Written ===

impl Default for Written {
    fn default() -> Self {
        Self { lengths: array::from_fn(|_| HashMap::new()) }
    }
}

impl Written {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lengths.iter().map(HashMap::len).sum()
    }

    /// Those that have as many letters as this.
    pub(super) fn as_long_as(&mut self, word: &str) -> &mut HashMap<Arc<str>, Word> {
        &mut self.lengths[word.chars().count().min(LENGTHS - 1)]
    }

    /// All of them, by how many letters they have.
    pub(super) fn lengths(&self) -> impl Iterator<Item = (usize, &HashMap<Arc<str>, Word>)> {
        self.lengths.iter().enumerate()
    }

    /// Nobody has a word any more.
    pub(super) fn forget(&mut self, word: &str) {
        let words = self.as_long_as(word);
        words.remove(word);
        // All the room may go to words of one length, and then to those of another.
        if words.capacity() > 64 && words.capacity() / 4 > words.len() {
            words.shrink_to_fit();
        }
    }
}

// === impl Letters ===

impl Letters {
    pub(super) fn of(word: &str) -> Self {
        Self(word.chars().fold(0, |letters, letter| letters | (1 << (u32::from(letter) % u32::BITS))))
    }

    /// Whether words with these may differ by a letter: neither has two that the other lacks.
    pub(super) fn may_be_near(self, other: Self) -> bool {
        [self.0 & !other.0, other.0 & !self.0].iter().all(|lacking| lacking.count_ones() < 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_words_of_one_length_had_is_there_for_others() {
        let mut written = Written::default();
        let words = || (0..1000).map(|number| format!("w{number:04}"));
        for word in words() {
            let known = Word { of: "a".into(), servers: 1, letters: Letters::of(&word) };
            written.as_long_as(&word).insert(word.into(), known);
        }
        assert_eq!(written.len(), 1000);
        words().for_each(|word| written.forget(&word));
        assert_eq!(written.len(), 0);
        let capacity = written.as_long_as("w0000").capacity();
        assert!(capacity < 200, "{capacity}");
    }
}
