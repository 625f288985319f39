//! From text to words: as people read identifiers and sentences, whatever their case, accents and endings.

use std::borrow::Cow;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation as _;

/// Longer words are nobody's.
const LONGEST: usize = 40;

static ENGLISH: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// The words of a text in their order, folded: `createIssue` and `create_issue` are both `create`, `issue`.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    text.unicode_words()
        .flat_map(|word| {
            word.split(|character: char| !character.is_alphanumeric() && !is_combining_mark(character))
        })
        .flat_map(humps)
        .filter(|word| !word.is_empty() && word.len() <= LONGEST)
        .map(fold)
        .filter(|word| !word.is_empty())
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

/// One spelling for all: lower case, no accents, one width.
fn fold(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    word.nfkd().filter(|&character| !is_combining_mark(character)).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_people_read() {
        for (text, expected) in [
            ("createIssue", vec!["create", "issue"]),
            ("create_issue-now.please/v2", vec!["create", "issue", "now", "please", "v2"]),
            ("getHTTPResponse2", vec!["get", "http", "response2"]),
            ("IDs and URLs", vec!["ids", "and", "urls"]),
            ("Straße ÉTÉ Ｆｕｌｌ", vec!["straße", "ete", "full"]),
            ("日本語", vec!["日", "本", "語"]),
            ("don't <b>shout</b>!", vec!["don", "t", "b", "shout", "b"]),
            ("... --- ...", vec![]),
        ] {
            assert_eq!(words(text).collect::<Vec<_>>(), expected, "{text}");
        }
        assert_eq!(words(&"y".repeat(LONGEST + 1)).count(), 0);
        for (word, expected) in
            [("issues", "issu"), ("creating", "creat"), ("straße", "straße"), ("v2", "v2")]
        {
            assert_eq!(stem(word), expected);
        }
    }
}
