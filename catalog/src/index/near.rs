//! Words that differ by a letter.

use std::collections::HashMap;

use strsim::osa_distance;

use super::expansions::{MostHad, chosen};
use super::{Index, Word};

// === impl Index ===

impl Index {
    /// For each of these words those that differ from it by a letter: one more, one less, another, or two exchanged that
    /// stand side by side. All words are gone through, and once, however many of these there are.
    pub(super) fn near(&self, typed: &[&str]) -> Vec<Vec<&str>> {
        if typed.is_empty() {
            return Vec::new();
        }
        // By whose they are: who else has them would take longer to find out.
        let mut near: Vec<HashMap<&str, MostHad<'_>>> = typed.iter().map(|_| HashMap::new()).collect();
        for (word, Word { of, servers }) in &self.words {
            for (typed, near) in typed.iter().zip(&mut near) {
                if is_near(word, typed) {
                    near.entry(of).or_default().put(word, *servers);
                }
            }
        }
        near.into_iter().map(|near| chosen(near.into_values())).collect()
    }
}

/// Whether two words differ by a letter. Without what both begin with, and what both end with, no more than two letters
/// of either are left then: whatever the words are, they are read once and hardly compared.
fn is_near(one: &str, other: &str) -> bool {
    // A letter has four bytes at most.
    if one.len().abs_diff(other.len()) > 4 {
        return false;
    }
    let begin = in_common(one.chars(), other.chars());
    let (one, other) = (&one[begin..], &other[begin..]);
    let end = in_common(one.chars().rev(), other.chars().rev());
    let (one, other) = (&one[..one.len() - end], &other[..other.len() - end]);
    [one, other].iter().all(|rest| rest.chars().nth(2).is_none()) && osa_distance(one, other) == 1
}

/// How many bytes are alike before a letter is not.
fn in_common(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(letter, _)| letter.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::expansions::EXPANSIONS;
    use super::super::{Document, Segment};
    use super::*;

    fn put(index: &mut Index, namespace: &str, words: &str) {
        let slot = index.reserve(namespace);
        let documents = [Document { description: Some(words), ..Document::default() }];
        index.put(slot, Segment::of(&documents));
    }

    /// Also where one namespace has very many of them, on more servers than others have theirs.
    #[test]
    fn so_many_words_are_near_whoever_has_them() {
        let mut index = Index::default();
        // Letters of one script, of which there are more than of any alphabet.
        let letters: Vec<_> = ('\u{a000}'..'\u{a080}').collect();
        let texts = letters.chunks(50).map(|letters| {
            letters.iter().map(|letter| format!("is{letter}ue i{letter}ue ")).collect::<String>()
        });
        for text in texts {
            put(&mut index, "hostile", &text);
            put(&mut index, "hostile", &text);
        }
        put(&mut index, "a", "issue tissue");
        put(&mut index, "b", "isles");
        let near = index.near(&["isue", "tisue", "isle", "zebra"]);
        let counts: Vec<_> = near.iter().map(Vec::len).collect();
        assert_eq!(counts, [EXPANSIONS, 1, 1, 0]);
        assert!(near[0].contains(&"issue"), "{:?}", near[0]);
        assert_eq!((&*near[1], &*near[2]), (&["tissue"][..], &["isles"][..]));
    }

    proptest! {
        #[test]
        fn what_both_have_at_their_ends_is_no_matter(one in "[abé日]{0,7}", other in "[abé日]{0,7}") {
            prop_assert_eq!(is_near(&one, &other), osa_distance(&one, &other) == 1);
        }
    }
}
