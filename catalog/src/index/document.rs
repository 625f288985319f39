//! What one server is found by: its words and their weights. Made beside the index, so that searching never waits for
//! it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::iter;

use super::tokenizer::{Word, stem, words};

/// How many words of a description count.
const DESCRIPTION: usize = 160;
/// How many words of a name, a title or a list of parameters count.
const FIELD: usize = 64;
/// How many different words one server is found by. Names, titles and parameters take theirs first.
const WORDS: usize = 30_000;

/// How much a word counts by where it stands, and how long such a text is as a rule.
struct Field {
    weight: f32,
    usual: f32,
}

const NAME: Field = Field { weight: 5.0, usual: 3.0 };
const TITLE: Field = Field { weight: 3.0, usual: 4.0 };
const PARAMETERS: Field = Field { weight: 1.5, usual: 6.0 };
const TEXT: Field = Field { weight: 1.0, usual: 30.0 };

/// BM25: how soon more of the same word counts less, and how much a long text is held against it.
const SATURATION: f32 = 1.2;
const LENGTH: f32 = 0.6;

/// The texts of one document, borrowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document<'a> {
    /// Its name, and what it is called besides.
    pub names: Vec<&'a str>,
    /// Titles, tags, owner.
    pub titles: Vec<&'a str>,
    /// Names of parameters.
    pub parameters: Vec<&'a str>,
    /// What it does.
    pub description: Option<&'a str>,
}

/// All documents of one server, ready for the index.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(super) documents: u32,
    /// Each stem with the documents that have it, in order.
    pub(super) stems: HashMap<String, Vec<(u32, f32)>>,
    /// Every word as it is written.
    pub(super) words: BTreeSet<String>,
    /// The words beyond [`WORDS`], by their hashes.
    beyond: HashSet<u64>,
}

impl Segment {
    /// Reads the documents of a server: itself, and then its tools.
    pub(crate) fn of(documents: &[Document<'_>]) -> Self {
        let mut segment =
            Self { documents: 0, stems: HashMap::new(), words: BTreeSet::new(), beyond: HashSet::new() };
        // Weights of the fields add up before they saturate: a word in the name and in the text is one word.
        for pass in [Self::short_fields, Self::long_fields] {
            for (number, document) in (0_u32..).zip(documents) {
                pass(&mut segment, number, document);
            }
        }
        for found in segment.stems.values_mut() {
            found.sort_unstable_by_key(|(document, _)| *document);
            found.dedup_by(|later, first| {
                let same = later.0 == first.0;
                if same {
                    first.1 += later.1;
                }
                same
            });
            found.shrink_to_fit();
            for (_, weight) in found {
                *weight = *weight * (SATURATION + 1.0) / (SATURATION + *weight);
            }
        }
        segment.documents = u32::try_from(documents.len()).unwrap_or(u32::MAX);
        segment
    }

    /// How many words of the server it is not found by, since it has too many.
    pub(super) fn left_out(&self) -> usize {
        self.beyond.len()
    }

    fn short_fields(&mut self, number: u32, document: &Document<'_>) {
        for name in &document.names {
            let parts: Vec<Word> = words(name).take(FIELD).collect();
            // `create_issue` is also found by `createissue`.
            let joined = (parts.len() > 1).then(|| parts.iter().map(|part| &*part.word).collect::<String>());
            let mut spellings = spellings(parts);
            spellings.extend(joined.filter(|joined| spellings.last() != Some(joined)));
            self.add(number, &NAME, spellings);
        }
        let titles = document.titles.iter().flat_map(|title| words(title));
        self.add(number, &TITLE, spellings(titles.take(FIELD)));
        let parameters = document.parameters.iter().flat_map(|name| words(name));
        self.add(number, &PARAMETERS, spellings(parameters.take(FIELD)));
    }

    fn long_fields(&mut self, number: u32, document: &Document<'_>) {
        let Some(description) = document.description else { return };
        self.add(number, &TEXT, spellings(words(description).take(DESCRIPTION)));
    }

    fn add(&mut self, number: u32, field: &Field, words: Vec<String>) {
        let length = words.len() as f32;
        let weight = field.weight / (1.0 - LENGTH + LENGTH * length / field.usual);
        for word in words {
            let stem = stem(&word);
            let is_full = self.stems.len() >= WORDS;
            match self.stems.get_mut(&*stem) {
                Some(found) => match found.last_mut() {
                    Some((last, sum)) if *last == number => *sum += weight,
                    _ => found.push((number, weight)),
                },
                None if is_full => {
                    self.leave_out(&word);
                    continue;
                }
                None => {
                    self.stems.insert(stem.into_owned(), vec![(number, weight)]);
                }
            }
            if self.words.len() < WORDS {
                self.words.insert(word);
            } else if !self.words.contains(&word) {
                self.leave_out(&word);
            }
        }
    }

    /// A word that is left out may come again.
    fn leave_out(&mut self, word: &str) {
        let hash = self.beyond.hasher().hash_one(word);
        self.beyond.insert(hash);
    }
}

/// Words, and what of them are one as it is written: whoever looks for `github` finds `GitHub`.
fn spellings(words: impl IntoIterator<Item = Word>) -> Vec<String> {
    words
        .into_iter()
        .flat_map(|Word { word, whole }| iter::once(word).chain(whole.map(|(whole, _)| whole)))
        .collect()
}
