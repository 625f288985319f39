//! A query against the index.

use std::cmp::Reverse;

use super::expansions::{LOOKED_AT, chosen, look_at};
use super::namespace::{Beginning, end_of};
use super::tokenizer::{Word, is_of_a_word, stem, words};
use super::{Index, Posting, Stem};

/// How many words of a query count.
const WORDS: usize = Words::BITS as usize;
/// What a word counts that only begins as the query's does.
const PREFIX: f32 = 0.6;
/// What a word counts that differs from the query's by a letter.
const SLIP: f32 = 0.4;
/// So many words of a query that nobody has may be others, the longest: each may be many, and those say the most.
const FORGIVEN: usize = 4;
/// Shorter words are too many others with a letter changed.
const SHORTEST_FORGIVEN: usize = 4;
/// What a server's own words count for its tools.
const OF_SERVER: f32 = 0.25;
/// What its tools' words count for a server.
const OF_TOOLS: f32 = 0.5;

/// What somebody looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    words: Vec<Sought>,
    /// The last word, if it may go on.
    prefix: Option<String>,
    /// What several of them are as one: `create issue` is also `createissue`, and so is `createIssue`.
    wholes: Vec<Whole>,
}

/// A word of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sought {
    stem: String,
    typed: String,
}

/// Several words of a query as one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whole {
    stem: String,
    /// Which they are.
    of: Words,
    /// As it was typed, if that was one word, and the last, which may go on: `GitHu`.
    prefix: Option<String>,
}

/// Some of the words of a query, a bit for each.
type Words = u16;

/// What is looked for: the documents 0, or the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Servers.
    Servers,
    /// Tools.
    Tools,
}

/// A document that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hit {
    /// Its server's slot.
    pub slot: u32,
    /// Its number there.
    pub document: u32,
    /// How good it is; more is better.
    pub score: f32,
}

// === impl Query ===

impl Query {
    /// Reads what somebody typed.
    pub(crate) fn of(text: &str) -> Self {
        let found: Vec<Word> = words(text).take(WORDS).collect();
        let goes_on = text.chars().next_back().is_some_and(is_of_a_word);
        let mut sought: Vec<Sought> = Vec::new();
        for word in &found {
            let word = Sought::of(word);
            if !sought.iter().any(|it| it.stem == word.stem) {
                sought.push(word);
            }
        }
        // The last word comes last, wherever else it stands.
        if let Some(last) = found.last().map(Sought::of) {
            sought.retain(|word| word.stem != last.stem);
            sought.push(last);
        }
        let place = |part: &Word| sought.iter().position(|it| it.stem == stem(&part.word));
        let bits = |parts: &[Word]| parts.iter().filter_map(place).fold(0, |bits, place| bits | bit(place));
        let mut wholes: Vec<Whole> = Vec::new();
        for (at, Word { whole, .. }) in found.iter().enumerate() {
            let Some((whole, parts)) = whole else { continue };
            let of = bits(&found[(at + 1).saturating_sub(*parts)..=at]);
            let prefix = (goes_on && at + 1 == found.len()).then(|| whole.clone());
            wholes.push(Whole { stem: stem(whole).into_owned(), of, prefix });
        }
        if found.len() > 1 {
            let joined: String = found.iter().map(|part| &*part.word).collect();
            wholes.push(Whole { stem: stem(&joined).into_owned(), of: bits(&found), prefix: None });
        }
        // One word may be all of it.
        wholes.dedup_by(|joined, typed| (&joined.stem, joined.of) == (&typed.stem, typed.of));
        let last = found.last().map(|last| &last.word);
        let prefix = last.filter(|word| goes_on && word.chars().count() > 1).cloned();
        Self { words: sought, prefix, wholes }
    }
}

// === impl Sought ===

impl Sought {
    fn of(Word { word, .. }: &Word) -> Self {
        Self { stem: stem(word).into_owned(), typed: word.clone() }
    }

    /// Whether a longer word may be meant. Many begin with any one letter.
    fn may_begin(&self) -> bool {
        self.typed.chars().count() > 1
    }

    /// Whether another word may be meant. Another number is another thing.
    fn may_have_a_slip(&self) -> bool {
        self.typed.chars().count() >= SHORTEST_FORGIVEN && !self.typed.contains(char::is_numeric)
    }
}

/// The word at this place of a query.
fn bit(place: usize) -> Words {
    1_u16.checked_shl(u32::try_from(place).unwrap_or(u32::MAX)).unwrap_or(0)
}

// === impl Index ===

impl Index {
    /// Everything that has a word of the query, in the order of slots, of the documents that are asked for: those of a slot
    /// and a number that are admitted. A word may be another one where none of them has it.
    pub(crate) fn search(&self, query: &Query, kind: Kind, admits: &dyn Fn(u32, u32) -> bool) -> Vec<Hit> {
        let mut scan = Scan::of(self, kind, admits);
        let mut known: Words = 0;
        for (number, Sought { stem, .. }) in query.words.iter().enumerate() {
            let mut is_known = scan.word(stem, 1.0);
            if number + 1 == query.words.len()
                && let Some(prefix) = &query.prefix
            {
                is_known |= scan.prefix(prefix, stem, 1.0, LOOKED_AT).is_known;
            }
            if is_known {
                known |= bit(number);
            }
            scan.next_word(bit(number));
        }
        for Whole { stem, of, prefix } in &query.wholes {
            // It is worth what its words are.
            let worth = of.count_ones() as f32;
            let mut is_known = scan.word(stem, worth);
            if let Some(prefix) = prefix {
                is_known |= scan.prefix(prefix, stem, worth, LOOKED_AT).is_known;
            }
            if is_known {
                known |= *of;
            }
            scan.next_word(*of);
        }
        let words = query.words.iter().enumerate();
        scan.forgive(words.filter(|(number, word)| known & bit(*number) == 0 && word.may_begin()).collect());
        scan.hits(query.words.len())
    }
}

/// One search under way.
struct Scan<'a> {
    index: &'a Index,
    kind: Kind,
    admits: &'a dyn Fn(u32, u32) -> bool,
    /// The place of each slot's first document among all.
    bases: Vec<usize>,
    /// What each document's words add up to.
    scores: Vec<f32>,
    /// Which words of the query each has.
    matched: Vec<Words>,
    /// Of each document the best of the words that stand for the query's present word.
    best: Vec<f32>,
    /// Whether any has one.
    is_any: bool,
}

/// What came of looking for the words that begin so.
struct Begun {
    /// Whether anything that is asked for has any.
    is_known: bool,
    looked_at: usize,
}

impl<'a> Scan<'a> {
    fn of(index: &'a Index, kind: Kind, admits: &'a dyn Fn(u32, u32) -> bool) -> Self {
        let mut bases = Vec::with_capacity(index.slots.len());
        let mut size = 0_usize;
        for slot in &index.slots {
            bases.push(size);
            size += slot.documents as usize;
        }
        let (scores, best) = (vec![0.0; size], vec![0.0; size]);
        Self { index, kind, admits, bases, scores, matched: vec![0; size], best, is_any: false }
    }

    /// Looks for what may be meant by these words, which nothing has: what begins so, and else what differs by a letter.
    fn forgive(&mut self, mut unknown: Vec<(usize, &Sought)>) {
        unknown.sort_by_key(|(_, word)| Reverse(word.typed.chars().count()));
        let (mut words, mut left) = (unknown.len(), FORGIVEN);
        let mut to_look_at = LOOKED_AT;
        let mut slips = Vec::new();
        for (number, word) in unknown {
            if left == 0 {
                break;
            }
            // All of them take no longer than one.
            let begun = self.prefix(&word.typed, &word.stem, 1.0, to_look_at / words.min(left));
            to_look_at = to_look_at.saturating_sub(begun.looked_at);
            words -= 1;
            if begun.is_known {
                left -= 1;
            } else if word.may_have_a_slip() {
                left -= 1;
                slips.push((number, &*word.typed));
            }
            self.next_word(bit(number));
        }
        let index = self.index;
        let typed: Vec<_> = slips.iter().map(|(_, typed)| *typed).collect();
        for ((number, _), near) in slips.into_iter().zip(index.near(&typed)) {
            self.slip(near);
            self.next_word(bit(number));
        }
    }

    /// Looks for these, each of which may be what was meant.
    fn slip(&mut self, near: Vec<&str>) {
        let stems = self.stems(near, None);
        // None is rarer than the one that most have.
        let most = stems.iter().map(|stem| stem.list.len()).max().unwrap_or(0);
        for stem in stems {
            self.count(stem, most, SLIP);
        }
    }

    /// Every word that begins so, but for the one that was looked for already.
    fn prefix(&mut self, prefix: &str, known: &str, factor: f32, look_at_most: usize) -> Begun {
        let (index, end) = (self.index, end_of(prefix));
        let mut beginnings: Vec<_> =
            index.namespaces.values().filter_map(|namespace| namespace.beginning(prefix, &end)).collect();
        let looked_at = look_at(&mut beginnings, look_at_most);
        let found = chosen(beginnings.into_iter().map(Beginning::most_had));
        let stems = self.stems(found, Some(known));
        // No rarer than what was typed, if that is a word, or else than the one that most have.
        let least = index.stems.get(known).map_or_else(
            || stems.iter().map(|stem| stem.list.len()).max().unwrap_or(0),
            |known| known.list.len(),
        );
        let is_known = stems.iter().any(|stem| self.is_known(stem));
        for stem in stems {
            self.count(stem, stem.list.len().max(least), PREFIX * factor);
        }
        Begun { is_known, looked_at }
    }

    /// What these words are found by, each once, but for one that was looked for already.
    fn stems(&self, words: Vec<&str>, known: Option<&str>) -> Vec<&'a Stem> {
        let mut stems: Vec<_> = words.into_iter().map(stem).filter(|stem| Some(&**stem) != known).collect();
        stems.sort_unstable();
        stems.dedup();
        stems.iter().filter_map(|stem| self.index.stems.get(&**stem)).collect()
    }

    /// Whether anything that is asked for has the word.
    fn is_known(&self, stem: &Stem) -> bool {
        stem.list.iter().any(|posting| match self.kind {
            Kind::Servers => (self.admits)(posting.slot, 0),
            Kind::Tools => (self.admits)(posting.slot, posting.document),
        })
    }

    /// Says whether anything that is asked for has the word.
    fn word(&mut self, stem: &str, factor: f32) -> bool {
        let Some(stem) = self.index.stems.get(stem) else { return false };
        self.count(stem, stem.list.len(), factor);
        self.is_known(stem)
    }

    /// Counts a word as one that so many documents have: what only begins as what was typed is no rarer than that, and
    /// whoever is called just so comes first.
    fn count(&mut self, stem: &Stem, having: usize, factor: f32) {
        let (all, having) = (self.index.documents as f32, having.min(self.index.documents) as f32);
        let rarity = factor * (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
        self.is_any = true;
        for &Posting { slot, document, weight } in &stem.list {
            let Some(&base) = self.bases.get(slot as usize) else { continue };
            let score = weight * rarity;
            match (self.kind, document) {
                (Kind::Servers, 0) => self.offer(base, score),
                (Kind::Servers, _) => self.offer(base, score * OF_TOOLS),
                (Kind::Tools, 0) => {
                    let documents =
                        self.index.slots.get(slot as usize).map_or(0, |slot| slot.documents as usize);
                    (base + 1..base + documents).for_each(|at| self.offer(at, score * OF_SERVER));
                }
                (Kind::Tools, _) => self.offer(base + document as usize, score),
            }
        }
    }

    fn offer(&mut self, at: usize, score: f32) {
        if let Some(best) = self.best.get_mut(at) {
            *best = best.max(score);
        }
    }

    /// Adds up what the word brought, which stands for these of the query: a document that lacks one of those lacks a part of
    /// what was looked for.
    fn next_word(&mut self, of: Words) {
        if !std::mem::take(&mut self.is_any) {
            return;
        }
        let documents = self.best.iter_mut().zip(&mut self.scores).zip(&mut self.matched);
        for ((best, score), matched) in documents {
            *score += *best;
            // No branch: which documents have the word nobody can guess, a processor neither.
            *matched |= if *best > 0.0 { of } else { 0 };
            *best = 0.0;
        }
    }

    fn hits(self, words: usize) -> Vec<Hit> {
        let mut hits = Vec::new();
        for ((slot, base), place) in (0_u32..).zip(&self.bases).zip(&self.index.slots) {
            let documents = *base..*base + place.documents as usize;
            let scores = self.scores.get(documents.clone()).unwrap_or_default();
            let matched = self.matched.get(documents).unwrap_or_default();
            for ((document, score), matched) in (0_u32..).zip(scores).zip(matched) {
                if *score > 0.0 && (self.admits)(slot, document) {
                    // Whoever has a half of the words is worth a half.
                    let part = matched.count_ones() as f32 / words.max(1) as f32;
                    hits.push(Hit { slot, document, score: score * part });
                }
            }
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::super::expansions::EXPANSIONS;
    use super::super::{Document, Namespace, Segment};
    use super::*;

    fn put(index: &mut Index, namespace: &str, words: &str) -> u32 {
        let slot = index.reserve(namespace);
        let documents = [Document { description: Some(words), ..Document::default() }];
        index.put(slot, Segment::of(&documents));
        slot
    }

    fn finds(index: &Index, query: &str, slot: u32) -> bool {
        index.search(&Query::of(query), Kind::Servers, &|_, _| true).iter().any(|hit| hit.slot == slot)
    }

    /// A namespace with a beginning full of one server's words, which come first in the alphabet.
    fn crowded(index: &mut Index, namespace: &str) -> u32 {
        let words: String = (0..100).map(|n| format!("craa{namespace}{n:03}x ")).collect();
        put(index, namespace, &words);
        put(index, namespace, "create");
        put(index, namespace, "create")
    }

    #[test]
    fn namespaces_without_such_a_beginning_cost_the_others_nothing() {
        let mut index = Index::default();
        for number in 0..LOOKED_AT / EXPANSIONS + 1 {
            put(&mut index, &format!("other{number}"), "list");
        }
        let last = crowded(&mut index, "crowded");
        assert!(finds(&index, "cr", last));
    }
    /// Many namespaces with many such words each take no longer than one, and one that has more of them than its part
    /// has what the others have no use for.
    #[test]
    fn so_many_words_are_looked_at_whoever_has_them() {
        for (namespaces, words) in [(1, LOOKED_AT + 1), (1_000, 30), (2, 11_000)] {
            let mut all: Vec<_> = (0..namespaces).map(|_| Namespace::default()).collect();
            for namespace in &mut all {
                (0..words).for_each(|number| namespace.writes(&format!("cr{number}").into()));
            }
            let mut few = Namespace::default();
            few.writes(&"create".into());
            all.push(few);
            let end = end_of("cr");
            let mut found: Vec<_> =
                all.iter().filter_map(|namespace| namespace.beginning("cr", &end)).collect();
            let looked_at = look_at(&mut found, LOOKED_AT);
            assert!((LOOKED_AT - namespaces..=LOOKED_AT).contains(&looked_at), "{looked_at}");
            assert!(found.pop().unwrap().most_had().in_order().eq(["create"]));
            let most = EXPANSIONS.min(LOOKED_AT / (namespaces + 1));
            assert!(found.into_iter().all(|beginning| beginning.most_had().in_order().count() == most));
        }
    }

    #[test]
    fn a_word_that_ends_with_a_mark_may_go_on() {
        let mut index = Index::default();
        for (begun, word) in [("हिन्", "हिन्दी"), ("cafe\u{301}", "cafeteria")] {
            let slot = put(&mut index, "a", word);
            assert!(finds(&index, begun, slot), "{begun}");
        }
        let slot = put(&mut index, "a", "endings");
        put(&mut index, "a", "endin");
        assert!(!finds(&index, "endin ", slot), "that word is over");
    }
}
