//! Ranked search over tools and servers: an inverted index in memory, scored by BM25 over weighted fields.
//!
//! Libraries were tried first, over 10,000 tools of the same language, with queries whose last word is a prefix. Times of
//! a search are those of the thread on its processor; an update is a server with ten tools, until it is found, on the
//! clock of a crowded machine:
//!
//! | | p50 | p99 | update, p50 and p99 | crates more |
//! |---|---|---|---|---|
//! | `tantivy` 0.27, in memory, 50 hits and their number | 0.24 ms | 1.7 ms | 52 and 124 ms | 59 |
//! | this | 0.47 ms | 0.80 ms | 1.1 and 15 ms | 4 |
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
mod namespace;
mod search;
mod words;

use std::collections::HashMap;
use std::sync::Arc;

pub use document::{Document, Segment};
use namespace::Namespace;
pub use search::{Hit, Kind, Query};

/// How many different words all servers together are found by. Words beyond are not; names come before descriptions.
const WORDS: usize = 400_000;
/// How many entries all lists have: that a server has a word, and that it stands in one of its documents. A word beyond is
/// one that the server is not found by.
const ENTRIES: usize = 12_000_000;
/// So much of all that one namespace may have, as a divisor. A word is of the namespace that had it first, and costs nobody else
/// anything.
const NAMESPACES: usize = 2;

/// The inverted index.
#[derive(Debug)]
pub struct Index {
    stems: HashMap<Arc<str>, Stem>,
    /// Every word as it is written.
    words: HashMap<Arc<str>, Word>,
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

/// A word as it is written.
#[derive(Debug)]
struct Word {
    /// The namespace whose it is.
    of: Arc<str>,
    /// How many servers have it.
    servers: u32,
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
            words: HashMap::new(),
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
    /// A place for a server of a namespace, empty.
    pub fn reserve(&mut self, namespace: &str) -> u32 {
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
    pub fn release(&mut self, slot: u32) {
        self.clear(slot);
        self.free.push(slot);
    }

    /// From now on this is what the server in the slot is found by. Returns how many of its words there is no room for.
    pub fn put(&mut self, slot: u32, segment: Segment) -> usize {
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
            let word: Arc<str> = match self.words.get_key_value(&*word) {
                Some((known, _)) => known.clone(),
                None if self.words.len() >= self.room || taken.words >= self.room / NAMESPACES => continue,
                None => word.into(),
            };
            let known = self.words.entry(word.clone()).or_insert_with(|| {
                taken.words += 1;
                Word { of: namespace.clone(), servers: 0 }
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
            if let Some(known) = self.words.get_mut(&*word) {
                known.servers -= 1;
                if known.servers == 0 {
                    let of = known.of.clone();
                    self.words.remove(&*word);
                    self.give_back(&of, |taken| &mut taken.words);
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(server: &str, tools: &[(&str, &str, &[&str])]) -> Segment {
        let mut documents = vec![Document { names: vec![server], ..Document::default() }];
        documents.extend(tools.iter().map(|(name, description, parameters)| Document {
            names: vec![name],
            description: Some(description),
            parameters: parameters.to_vec(),
            ..Document::default()
        }));
        Segment::of(&documents)
    }

    fn index() -> Index {
        let mut index = Index::default();
        for segment in [
            segment(
                "github",
                &[
                    ("createIssue", "Open a new issue in a repository", &["title", "body"]),
                    ("list_issues", "List the issues of a repository", &["state"]),
                    ("merge_pull_request", "Merge a pull request", &["number"]),
                ],
            ),
            segment(
                "calendar",
                &[
                    ("create_event", "Put an event into a calendar", &["title", "attendees"]),
                    ("überblick", "Kalenderwoche zeigen", &[]),
                ],
            ),
            segment("files", &[("read_text_file", "Read a file as text", &["path", "encoding"])]),
        ] {
            let slot = index.reserve("a");
            index.put(slot, segment);
        }
        index
    }

    /// Slot and document of what is found, the best first.
    fn tools(index: &Index, query: &str) -> Vec<(u32, u32)> {
        let mut hits = index.search(&Query::of(query), Kind::Tools);
        hits.sort_by(|one, other| {
            other
                .score
                .total_cmp(&one.score)
                .then((one.slot, one.document).cmp(&(other.slot, other.document)))
        });
        hits.into_iter().map(|hit| (hit.slot, hit.document)).collect()
    }

    #[test]
    fn finds_by_what_people_type() {
        let index = index();
        for (query, best) in [
            ("create issue", (0, 1)),
            ("createIssue", (0, 1)),
            ("CREATE_ISSUE", (0, 1)),
            ("createissue", (0, 1)),
            ("creating issues", (0, 1)),
            ("issues", (0, 2)),
            ("merge", (0, 3)),
            ("attendee", (1, 1)),
            ("event title", (1, 1)),
            ("ÜBERBLICK", (1, 2)),
            ("uberblick", (1, 2)),
            ("kalend", (1, 2)),
            ("read fil", (2, 1)),
            ("encod", (2, 1)),
            ("file text", (2, 1)),
        ] {
            assert_eq!(tools(&index, query).first(), Some(&best), "{query}: {:?}", tools(&index, query));
        }
        for query in ["", "!!!", "zebra", "\u{202e}", "x".repeat(500).as_str()] {
            assert_eq!(tools(&index, query), [], "{query}");
        }
    }

    #[test]
    fn whoever_has_all_words_comes_before_whoever_has_one() {
        let found = tools(&index(), "list repository");
        assert_eq!(found[0], (0, 2));
        assert!(found.contains(&(0, 1)), "{found:?}");
    }

    #[test]
    fn a_servers_own_words_find_its_tools_and_its_tools_find_the_server() {
        let index = index();
        let found = tools(&index, "github merge");
        assert_eq!((found[0], found.len()), ((0, 3), 3));
        let servers = |query: &str| {
            let mut hits = index.search(&Query::of(query), Kind::Servers);
            hits.sort_by(|one, other| other.score.total_cmp(&one.score));
            hits.into_iter().map(|hit| hit.slot).collect::<Vec<_>>()
        };
        assert_eq!(servers("github"), [0]);
        assert_eq!(servers("attendees"), [1]);
        assert_eq!(servers("calendar issue")[0], 1);
    }

    #[test]
    fn a_server_that_changes_leaves_nothing_behind_and_the_others_alone() {
        let mut index = index();
        let before = tools(&index, "create title");
        index.put(0, segment("github", &[("archive", "Archive a repository", &[])]));
        assert_eq!(tools(&index, "issue"), []);
        assert_eq!(tools(&index, "archive"), [(0, 1)]);
        assert_eq!(tools(&index, "event"), [(1, 1)]);
        index.release(0);
        assert_eq!(tools(&index, "archive repository"), []);
        assert!(!index.words.contains_key("repository") && !index.stems.contains_key("repositori"));
        assert_eq!(index.documents, 5);
        assert_eq!(index.reserve("a"), 0);
        index.put(0, index_of_github());
        assert_eq!(tools(&index, "create title"), before);
    }

    fn index_of_github() -> Segment {
        segment(
            "github",
            &[
                ("createIssue", "Open a new issue in a repository", &["title", "body"]),
                ("list_issues", "List the issues of a repository", &["state"]),
                ("merge_pull_request", "Merge a pull request", &["number"]),
            ],
        )
    }

    #[test]
    fn a_namespace_has_half_of_the_words_and_what_others_had_first_costs_it_nothing() {
        let mut index = Index { room: 40, ..Index::default() };
        let text = |from: usize, to: usize| (from..to).map(|n| format!("w{n:03} ")).collect::<String>();
        let put = |index: &mut Index, namespace: &str, from: usize, to: usize| {
            let (slot, text) = (index.reserve(namespace), text(from, to));
            let documents = [Document { description: Some(&text), ..Document::default() }];
            (slot, index.put(slot, Segment::of(&documents)))
        };
        let (first, left_out) = put(&mut index, "hostile", 0, 15);
        assert_eq!(left_out, 0);
        assert_eq!(put(&mut index, "hostile", 15, 30).1, 10, "half of the room");
        assert_eq!(put(&mut index, "honest", 0, 15).1, 0, "these are there already");
        assert_eq!(put(&mut index, "honest", 30, 50).1, 0, "the other half");
        assert_eq!(put(&mut index, "late", 0, 15).1, 0, "these too");
        assert_eq!(put(&mut index, "late", 90, 95).1, 5, "then there is no room");
        index.release(first);
        let (_, left_out) = put(&mut index, "hostile", 60, 61);
        assert_eq!(left_out, 1, "others have what it had, so that is still there");
        for slot in 0..6 {
            index.release(slot);
        }
        assert_eq!((index.words.len(), index.stems.len(), index.namespaces.len()), (0, 0, 0));
    }

    #[test]
    fn a_namespace_has_half_of_the_entries_and_rare_words_before_usual_ones() {
        let mut index = Index { room_for_entries: 100, ..Index::default() };
        let put = |index: &mut Index, namespace: &str, usual: &str, rare: &str| {
            let mut documents = vec![Document { description: Some(usual), ..Document::default() }; 10];
            documents[3].names = vec![rare];
            let slot = index.reserve(namespace);
            index.put(slot, Segment::of(&documents))
        };
        // Each word stands in ten documents and in the list of words, the rare one in one and in the list.
        assert_eq!(put(&mut index, "hostile", "one two six", "amber"), 0);
        assert_eq!(put(&mut index, "hostile", "one two six", "brown"), 2);
        assert_eq!(put(&mut index, "honest", "one two six", "coral"), 0);
        assert_eq!(put(&mut index, "late", "one two six", "delft"), 2);
        for (slot, rare) in (0..).zip(["amber", "brown", "coral", "delft"]) {
            assert_eq!(tools(&index, rare), [(slot, 3)]);
        }
        for slot in 0..4 {
            index.release(slot);
        }
        assert_eq!(
            (index.entries, index.words.len(), index.stems.len(), index.namespaces.len()),
            (0, 0, 0, 0)
        );
    }

    /// One of them has many words that nobody else has, and the alphabet on its side.
    #[test]
    fn a_beginning_finds_the_words_that_most_servers_have() {
        let mut index = Index::default();
        let words: String = (0..200).map(|n| format!("craa{n:03}x ")).collect();
        let hostile = words.split_inclusive(' ').collect::<Vec<_>>();
        let hostile: Vec<_> = hostile.chunks(100).map(|words| ("t", words.concat())).collect();
        let hostile: Vec<_> = hostile.iter().map(|(name, text)| (*name, &**text, &[][..])).collect();
        for segment in [
            segment("hostile", &hostile),
            segment("github", &[("create_issue", "x", &[])]),
            segment("calendar", &[("create_event", "x", &[])]),
        ] {
            let slot = index.reserve("a");
            index.put(slot, segment);
        }
        let found = tools(&index, "cr");
        assert!(found.contains(&(1, 1)) && found.contains(&(2, 1)), "{found:?}");
    }

    /// A namespace with a beginning full of its words hides none of the others', whether they share them or not, and
    /// whoever had them first.
    #[test]
    fn a_beginning_finds_words_of_every_namespace() {
        let mut index = Index::default();
        for part in 0..3 {
            for _server in 0..2 {
                let words: String = (0..12_000).map(|n| format!("cr{part}{n:05} ")).collect();
                let hostile: Vec<_> = words.split_inclusive(' ').collect();
                let hostile: Vec<_> = hostile.chunks(160).map(|words| ("create", words.concat())).collect();
                let hostile: Vec<_> = hostile.iter().map(|(name, text)| (*name, &**text, &[][..])).collect();
                let slot = index.reserve("hostile");
                assert_eq!(index.put(slot, segment("hostile", &hostile)), 0);
            }
        }
        for (namespace, tool) in [("a", "create"), ("b", "create"), ("c", "croak")] {
            let slot = index.reserve(namespace);
            index.put(slot, segment("honest", &[(tool, "x", &[])]));
        }
        let found = tools(&index, "cr");
        for slot in 6..9 {
            assert!(found.contains(&(slot, 1)), "{slot}");
        }
    }

    #[test]
    fn hostile_text_is_found_by_a_bounded_number_of_words() {
        let words: String = (0..100_000).map(|n| format!("word{n} ")).collect();
        let long = "x".repeat(1 << 20);
        let documents = [Document {
            names: vec!["t"],
            description: Some(&words),
            parameters: vec![&long],
            ..Document::default()
        }];
        let segment = Segment::of(&documents);
        assert!(segment.words.len() < 1000, "{}", segment.words.len());
    }
}
