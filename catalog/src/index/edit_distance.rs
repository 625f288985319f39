//! Words at an edit distance of one: they differ by a letter.

use std::collections::HashMap;

use super::Index;
use super::expansions::{Candidates, LOOKED_AT, MostHad, chosen, look_at};
use super::written::Letters;

/// A word that was typed, and what may differ from it by a letter.
struct Typed<'a> {
    typed: &'a str,
    length: usize,
    letters: Letters,
    /// By whose they are: who else has them would take longer to find out.
    near: HashMap<&'a str, MayBeNear<'a>>,
}

/// Words of one namespace of which nobody knows but that their letters are nearly the same.
struct MayBeNear<'a> {
    typed: &'a str,
    /// Those that were not looked at, and how many servers have each.
    words: Vec<(&'a str, u32)>,
    found: MostHad<'a, &'a str>,
}

// === impl Index ===

impl Index {
    /// For each of these words those that differ from it by a letter: one more, one less, another, or two exchanged that
    /// stand side by side. All words that are as long, or nearly, are gone through, and once, however many of these there
    /// are; few of them are read.
    pub(super) fn near<'a>(&'a self, typed: &[&'a str]) -> Vec<Vec<&'a str>> {
        let part = LOOKED_AT / typed.len().max(1);
        let mut sought: Vec<Typed<'a>> = typed.iter().map(|typed| Typed::of(typed)).collect();
        for (length, words) in self.words.lengths() {
            let mut as_long: Vec<_> =
                sought.iter_mut().filter(|it| it.length.abs_diff(length) <= 1).collect();
            if as_long.is_empty() {
                continue;
            }
            for (word, known) in words {
                for it in as_long.iter_mut().filter(|it| it.letters.may_be_near(known.letters)) {
                    let typed = it.typed;
                    let near = it.near.entry(&known.of).or_insert_with(|| MayBeNear::to(typed));
                    near.put(word, known.servers, part);
                }
            }
        }
        let near = sought.into_iter().map(|it| {
            let mut near: Vec<_> = it.near.into_values().collect();
            let own = part / near.len().max(1);
            near.iter_mut().filter(|near| near.words.len() > own).for_each(|near| near.sort(part));
            look_at(&mut near, part);
            chosen(near.into_iter().map(|near| near.found))
        });
        near.collect()
    }
}

// === impl Typed ===

impl<'a> Typed<'a> {
    fn of(typed: &'a str) -> Self {
        let (length, letters) = (typed.chars().count(), Letters::of(typed));
        Self { typed, length, letters, near: HashMap::new() }
    }
}

// === impl MayBeNear ===

impl<'a> MayBeNear<'a> {
    fn to(typed: &'a str) -> Self {
        Self { typed, words: Vec::new(), found: MostHad::default() }
    }

    /// Adds one. Of very many no more are in memory than twice as many as are looked at.
    fn put(&mut self, word: &'a str, servers: u32, most: usize) {
        if self.words.len() >= 2 * most {
            self.sort(most);
        }
        self.words.push((word, servers));
    }

    /// Leaves so many, those that most servers have: others may have them too. They are looked at in that order.
    fn sort(&mut self, most: usize) {
        self.words.sort_unstable_by_key(|(_, servers)| *servers);
        let beyond = self.words.len().saturating_sub(most);
        self.words.drain(..beyond);
    }
}

impl Candidates for MayBeNear<'_> {
    /// From the end, so that none is moved.
    fn look_at(&mut self, words: usize) -> usize {
        let rest = self.words.len().saturating_sub(words);
        let mut looked_at = 0;
        for (word, servers) in self.words.drain(rest..) {
            looked_at += 1;
            if is_near(word, self.typed) {
                self.found.put(servers, word, word);
            }
        }
        looked_at
    }
}

/// Whether two words differ by a letter. Without what both begin with, and what both end with, no more than two letters
/// of either are left then.
fn is_near(one: &str, other: &str) -> bool {
    // A letter has four bytes at most.
    if one.len().abs_diff(other.len()) > 4 {
        return false;
    }
    let begin = in_common(one.chars(), other.chars());
    let (one, other) = (&one[begin..], &other[begin..]);
    let end = in_common(one.chars().rev(), other.chars().rev());
    let rests = [&one[..one.len() - end], &other[..other.len() - end]];
    match rests.map(two) {
        [Some([one, None]), Some([other, None])] => one != other,
        [Some([Some(first), Some(second)]), Some([Some(other_first), Some(other_second)])] => {
            (first, second) == (other_second, other_first)
        }
        _ => false,
    }
}

/// How many bytes are alike before a letter is not.
fn in_common(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(letter, _)| letter.len_utf8()).sum()
}

/// The letters of a text that has no more than two.
fn two(text: &str) -> Option<[Option<char>; 2]> {
    let mut letters = text.chars();
    let two = [letters.next(), letters.next()];
    letters.next().is_none().then_some(two)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use strsim::osa_distance;

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

    /// A namespace that had it first has more beside it than are looked at.
    #[test]
    fn a_word_that_others_have_too_is_found_among_very_many() {
        let mut index = Index::default();
        // None of them tells a word from another before it is read.
        let letters: Vec<_> = ('\u{a000}'..'\u{a480}').step_by(32).collect();
        let mut texts = vec!["issue".to_owned()];
        for begun in ["isu", "ius", "sui", "siu", "uis", "usi"] {
            texts.extend(
                letters.iter().map(|one| {
                    letters.iter().map(|other| format!("{begun}{one}{other} ")).collect::<String>()
                }),
            );
        }
        let described = |text| Document { description: Some(text), ..Document::default() };
        let documents: Vec<_> = texts.iter().map(|text| described(text.as_str())).collect();
        let slot = index.reserve("hostile");
        assert_eq!(index.put(slot, Segment::of(&documents)), 0);
        assert!(index.words.len() > LOOKED_AT / 4, "{}", index.words.len());
        put(&mut index, "honest", "issue");
        assert_eq!(index.near(&["isue", "abcd", "bcde", "cdef"])[0], ["issue"]);
    }

    proptest! {
        #[test]
        fn words_are_near_where_they_are_one_step_apart(one in "[abé日]{0,7}", other in "[abé日]{0,7}") {
            let near = osa_distance(&one, &other) == 1;
            prop_assert_eq!(is_near(&one, &other), near);
            prop_assert!(!near || Letters::of(&one).may_be_near(Letters::of(&other)));
        }

        /// However they are looked for.
        #[test]
        fn all_that_are_near_are_found(texts in vec("[abcé]{1,5}", 1..40), typed in vec("[abcé]{4,6}", 1..5)) {
            let mut index = Index::default();
            for (number, words) in (0..).zip(texts.chunks(8)) {
                put(&mut index, &format!("n{number}"), &words.join(" "));
            }
            let words = index.words.lengths().flat_map(|(_, words)| words.keys().cloned());
            let written: BTreeSet<_> = words.collect();
            let typed: Vec<_> = typed.iter().map(String::as_str).collect();
            for (typed, near) in typed.iter().zip(index.near(&typed)) {
                let expected: BTreeSet<_> =
                    written.iter().map(|word| &**word).filter(|word| osa_distance(word, typed) == 1).collect();
                prop_assert_eq!(near.into_iter().collect::<BTreeSet<_>>(), expected);
            }
        }
    }
}
