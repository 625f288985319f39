//! The tokenizer, from text to words: as people read identifiers and sentences, whatever their case, accents and endings.

use std::borrow::Cow;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation as _;

/// How many letters a word has at most, as it is folded: longer ones are nobody's.
pub(super) const LONGEST: usize = 40;

static ENGLISH: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// A word of a text, folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) word: String,
    /// What ends with it as it is written, if that is more, and how many words it is: `GitHub` is `git` and `hub`, and two
    /// words as `github`.
    pub(super) whole: Option<(String, usize)>,
}

/// The words of a text in their order: `createIssue` and `create_issue` are both `create`, `issue`.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word> {
    text.unicode_words()
        .flat_map(|written| written.split(|character| !is_of_a_word(character)))
        .flat_map(|written| {
            let parts = humps(written);
            let (many, last) = (parts.len(), parts.len().saturating_sub(1));
            parts.into_iter().enumerate().map(move |(at, part)| {
                let is_end = many > 1 && at == last && written.len() <= 4 * LONGEST;
                let whole = is_end.then(|| fold(written)).filter(|whole| is_somebodys(whole));
                Word { word: fold(part), whole: whole.map(|whole| (whole, many)) }
            })
        })
        .filter(|word| is_somebodys(&word.word))
}

fn is_somebodys(word: &str) -> bool {
    !word.is_empty() && word.chars().count() <= LONGEST
}

/// Whether a word may have this character, and go on after it.
pub(super) fn is_of_a_word(character: char) -> bool {
    character.is_alphanumeric() || is_combining_mark(character)
}

/// A word without its ending, if it is of a language whose endings are known here.
pub(super) fn stem(word: &str) -> Cow<'_, str> {
    if word.bytes().all(|byte| byte.is_ascii_lowercase()) { ENGLISH.stem(word) } else { Cow::Borrowed(word) }
}

/// Splits where an identifier begins a new word: `getHTTPResponse2` is `get`, `HTTP`, `Response2`.
fn humps(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut previous: Option<char> = None;
    for (at, character) in word.char_indices() {
        let rest = &word[at + character.len_utf8()..];
        // `URLs` is one word.
        let next_is_lower = rest != "s" && rest.starts_with(char::is_lowercase);
        let begins = previous.is_some_and(|previous| {
            character.is_uppercase()
                && (!previous.is_uppercase() || next_is_lower)
                && previous.is_alphanumeric()
        });
        if begins && at > start {
            parts.push(&word[start..at]);
            start = at;
        }
        previous = Some(character);
    }
    parts.push(&word[start..]);
    parts
}

/// One spelling for all: lower case, one width, and none of the signs that people leave out when they type.
fn fold(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    word.nfkd()
        .filter(|&character| !is_optional(character))
        .flat_map(char::to_lowercase)
        .map(|character| if character == 'ς' { 'σ' } else { character })
        .collect()
}

/// Accents, and the points of Hebrew and Arabic. Marks of other scripts are letters: without the vowels of Hindi, or the
/// voicing of Japanese, words fall together that are not the same.
fn is_optional(mark: char) -> bool {
    matches!(mark,
        '\u{300}'..='\u{36f}'
        | '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}'..='\u{5c2}' | '\u{5c4}'..='\u{5c5}' | '\u{5c7}'
        | '\u{610}'..='\u{61a}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6dc}'
        | '\u{6df}'..='\u{6e4}' | '\u{6e7}'..='\u{6e8}' | '\u{6ea}'..='\u{6ed}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> Vec<String> {
        words(text).map(|word| word.word).collect()
    }

    #[test]
    fn words_are_what_people_read() {
        for (text, expected) in [
            ("createIssue", vec!["create", "issue"]),
            ("create_issue-now.please/v2", vec!["create", "issue", "now", "please", "v2"]),
            ("getHTTPResponse2", vec!["get", "http", "response2"]),
            ("IDs and URLs", vec!["ids", "and", "urls"]),
            ("Straße ÉTÉ Ｆｕｌｌ", vec!["straße", "ete", "full"]),
            ("日本語", vec!["日", "本", "語"]),
            ("ΟΔΟΣ οδός", vec!["οδοσ", "οδοσ"]),
            ("Ёлка Ça", vec!["елка", "ca"]),
            ("שָׁלוֹם كَتَبَ", vec!["שלום", "كتب"]),
            ("प्रौद्योगिकीविश्वविद्यालय", vec!["प्रौद्योगिकीविश्वविद्यालय"]),
            ("достопримечательностями", vec!["достопримечательностями"]),
            ("don't <b>shout</b>!", vec!["don", "t", "b", "shout", "b"]),
            ("... --- ...", vec![]),
        ] {
            assert_eq!(folded(text), expected, "{text}");
        }
        for (text, wholes) in [
            (
                "GitHub, macOS and createIssue_inJira",
                &[("github", 2), ("macos", 2), ("createissue", 2), ("injira", 2)][..],
            ),
            ("getHTTPResponse2", &[("gethttpresponse2", 3)]),
            ("github IDs create_issue", &[]),
            (&"aB".repeat(21), &[]),
        ] {
            let found: Vec<_> = words(text).filter_map(|word| word.whole).collect();
            let found: Vec<_> = found.iter().map(|(whole, parts)| (&**whole, *parts)).collect();
            assert_eq!(found, wholes, "{text}");
        }
        for letter in ["y", "я", "\u{fdfa}"] {
            assert_eq!(words(&letter.repeat(LONGEST + 1)).count(), 0, "{letter}");
        }
        for (one, other) in [("कल", "कुल"), ("ハハ", "パパ"), ("한국", "하구"), ("ก็", "กี")]
        {
            assert_ne!(folded(one), folded(other), "{one}");
        }
        for (one, other) in [("ﾊﾟﾊﾟ", "パパ"), ("फ\u{93c}", "\u{95e}"), ("é", "e\u{301}")] {
            assert_eq!(folded(one), folded(other), "{one}");
        }
        for (word, expected) in
            [("issues", "issu"), ("creating", "creat"), ("straße", "straße"), ("v2", "v2")]
        {
            assert_eq!(stem(word), expected);
        }
    }
}
