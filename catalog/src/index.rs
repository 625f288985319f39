//! Ranked search over tools and servers: an inverted index in memory, scored by BM25 over weighted fields.
//!
//! Libraries were tried first, over 10,000 tools of the same language, with queries whose last word is a prefix. Times of
//! a search are those of the thread on its processor; an update is a server with ten tools, until it is found, on the
//! clock of a crowded machine:
//!
//! | | p50 | p99 | update, p50 and p99 | crates more |
//! |---|---|---|---|---|
//! | `tantivy` 0.27, in memory, 50 hits and their number | 0.24 ms | 1.7 ms | 52 and 124 ms | 59 |
//! | this | 0.47 ms | 0.80 ms | 1.1 and 15 ms | 5 |
//!
//! `tantivy` is fast enough. What speaks against it here: a write is a commit, on threads of its own that nobody
//! supervises; collecting all hits, for filters whose state is not in the index and for cursors that outlive a change,
//! took 9 ms; and the words of identifiers, their beginnings and several fields as one would be code of our own around
//! it, about as much as is in here. `bm25` 2.3 took 5.6 ms at p99, and stands on a hash that nobody looks after. Words,
//! their folding and their stems are libraries' work: `unicode-segmentation`, `unicode-normalization`, `rust-stemmers`.
//!
//! Each server has a slot, and each of its documents a number: 0 is the server, the tools come after it by name. A
//! list of postings is ordered by both, so a server is replaced by exchanging one run in each of its lists; what other
//! servers have is not touched. A word's weight in a document does not depend on the other documents, which is what
//! lets that work; how rare the word is counts when it is searched for.

mod document;
mod edit_distance;
mod expansions;
mod namespace;
mod search;
#[cfg(test)]
mod tests;
mod tokenizer;
mod written;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use document::{Document, Segment};
use namespace::Namespace;
pub(crate) use search::{Hit, Kind, Query};
use written::{Letters, Word, Written};

/// How many different words all servers together are found by. Words beyond are not; names come before descriptions.
const WORDS: usize = 400_000;
/// How many entries all lists have: that a server has a word, and that it stands in one of its documents. A word beyond is
/// one that the server is not found by.
const ENTRIES: usize = 12_000_000;
/// So much of all that one namespace may have, as a divisor. A word is of the namespace that had it first, and costs nobody
/// else anything.
const NAMESPACES: usize = 2;

/// The inverted index.
#[derive(Debug)]
pub(crate) struct Index {
    stems: HashMap<Arc<str>, Stem>,
    /// Every word as it is written.
    words: Written,
    slots: Vec<Slot>,
    free: Vec<u32>,
    documents: usize,
    /// How many different words there may be.
    room: usize,
    /// How many entries there are.
    entries: usize,
    /// How many there may be.
    room_for_entries: usize,
    namespaces: HashMap<Arc<str>, Namespace>,
}

/// A word without its ending.
#[derive(Debug)]
struct Stem {
    /// The namespace whose it is.
    of: Arc<str>,
    /// Where it stands.
    list: Vec<Posting>,
}

/// That a document has a word, and how much the word says about it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Posting {
    slot: u32,
    document: u32,
    weight: f32,
}

/// The place of one server.
#[derive(Debug, Default)]
struct Slot {
    namespace: Arc<str>,
    documents: u32,
    entries: usize,
    stems: Vec<Arc<str>>,
    words: Vec<Arc<str>>,
}

// === impl Index ===

impl Default for Index {
    fn default() -> Self {
        Self {
            stems: HashMap::new(),
            words: Written::default(),
            slots: Vec::new(),
            free: Vec::new(),
            documents: 0,
            room: WORDS,
            entries: 0,
            room_for_entries: ENTRIES,
            namespaces: HashMap::new(),
        }
    }
}

impl Index {
    /// How many places there are, or were.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// A place for a server of a namespace, empty.
    pub(crate) fn reserve(&mut self, namespace: &str) -> u32 {
        let namespace = match self.namespaces.get_key_value(namespace) {
            Some((known, _)) => known.clone(),
            None => namespace.into(),
        };
        let place = Slot { namespace, ..Slot::default() };
        if let Some(free) = self.free.pop() {
            if let Some(slot) = self.slots.get_mut(free as usize) {
                *slot = place;
            }
            return free;
        }
        self.slots.push(place);
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    /// Gives a place back, with what is in it.
    pub(crate) fn release(&mut self, slot: u32) {
        self.clear(slot);
        self.free.push(slot);
    }

    /// From now on this is what the server in the slot is found by. Returns how many of its words there is no room for.
    pub(crate) fn put(&mut self, slot: u32, segment: Segment) -> usize {
        self.clear(slot);
        let Some(place) = self.slots.get(slot as usize) else { return 0 };
        let namespace = place.namespace.clone();
        let (all_words, all_stems) = (segment.words.len(), segment.stems.len());
        let beyond = segment.left_out();
        let taken = self.namespaces.entry(namespace.clone()).or_default();
        let all = self.room_for_entries;
        let room = all.saturating_sub(self.entries).min((all / NAMESPACES).saturating_sub(taken.entries));
        let mut left = room;
        let mut places: Vec<_> = segment.stems.into_iter().collect();
        if places.iter().map(|(_, found)| found.len()).sum::<usize>() > room {
            // Those that stand in few places say the most.
            places.sort_unstable_by(|(one, few), (other, many)| (few.len(), one).cmp(&(many.len(), other)));
        }
        let mut stems = Vec::with_capacity(all_stems);
        for (stem, found) in places {
            let Some(rest) = left.checked_sub(found.len()) else { continue };
            let stem: Arc<str> = match self.stems.get_key_value(&*stem) {
                Some((known, _)) => known.clone(),
                None if self.stems.len() >= self.room || taken.stems >= self.room / NAMESPACES => continue,
                None => stem.into(),
            };
            let Stem { list, .. } = self.stems.entry(stem.clone()).or_insert_with(|| {
                taken.stems += 1;
                Stem { of: namespace.clone(), list: Vec::new() }
            });
            let at = list.partition_point(|posting| posting.slot < slot);
            list.splice(
                at..at,
                found.into_iter().map(|(document, weight)| Posting { slot, document, weight }),
            );
            stems.push(stem);
            left = rest;
        }
        let mut words = Vec::with_capacity(all_words);
        for word in segment.words {
            let Some(rest) = left.checked_sub(1) else { break };
            let is_full = self.words.len() >= self.room || taken.words >= self.room / NAMESPACES;
            let as_long = self.words.as_long_as(&word);
            let word: Arc<str> = match as_long.get_key_value(&*word) {
                Some((known, _)) => known.clone(),
                None if is_full => continue,
                None => word.into(),
            };
            let known = as_long.entry(word.clone()).or_insert_with(|| {
                taken.words += 1;
                Word { of: namespace.clone(), servers: 0, letters: Letters::of(&word) }
            });
            known.servers += 1;
            taken.writes(&word);
            words.push(word);
            left = rest;
        }
        let entries = room - left;
        taken.entries += entries;
        self.entries += entries;
        // Of a word whose stem found no room the beginning may have.
        let left_out = beyond + (all_words - words.len()).max(all_stems - stems.len());
        self.tidy(&namespace);
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Slot { namespace, documents: segment.documents, entries, stems, words };
            self.documents += segment.documents as usize;
        }
        left_out
    }

    fn clear(&mut self, slot: u32) {
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let namespace = place.namespace.clone();
        let empty = Slot { namespace: namespace.clone(), ..Slot::default() };
        let Slot { documents, entries, stems, words, .. } = std::mem::replace(place, empty);
        self.documents -= documents as usize;
        self.entries -= entries;
        for stem in stems {
            let Some(Stem { of, list }) = self.stems.get_mut(&*stem) else { continue };
            let start = list.partition_point(|posting| posting.slot < slot);
            let end = list.partition_point(|posting| posting.slot <= slot);
            list.drain(start..end);
            if list.is_empty() {
                let of = of.clone();
                self.stems.remove(&*stem);
                self.give_back(&of, |taken| &mut taken.stems);
            } else if list.capacity() > 64 && list.capacity() / 4 > list.len() {
                list.shrink_to_fit();
            }
        }
        if let Some(namespace) = self.namespaces.get_mut(&namespace) {
            namespace.entries -= entries;
            words.iter().for_each(|word| namespace.unwrites(word));
        }
        for word in words {
            let Some(known) = self.words.as_long_as(&word).get_mut(&*word) else { continue };
            known.servers -= 1;
            if known.servers == 0 {
                let of = known.of.clone();
                self.words.forget(&word);
                self.give_back(&of, |taken| &mut taken.words);
            }
        }
        self.tidy(&namespace);
    }

    fn give_back(&mut self, namespace: &Arc<str>, count: fn(&mut Namespace) -> &mut usize) {
        let Some(count) = self.namespaces.get_mut(namespace).map(count) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.tidy(namespace);
        }
    }

    /// Forgets a namespace that has no words.
    fn tidy(&mut self, namespace: &Arc<str>) {
        if self.namespaces.get(namespace).is_some_and(Namespace::has_nothing) {
            self.namespaces.remove(namespace);
        }
    }
}
