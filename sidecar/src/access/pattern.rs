//! Globs over names and URIs.

use thiserror::Error;

use super::glob::{self, NoGlob};
use super::steps::{Steps, Walk};

/// A glob that is none.
#[derive(Debug, Error)]
#[error("the glob {glob:?} cannot be read")]
pub struct PatternError {
    glob: String,
    source: NoGlob,
}

/// Globs of which one has to match.
///
/// `*` matches any characters, `/` included: names and URIs are no paths. A glob also matches the text that is the
/// glob itself, so that a resource template such as `a://{id}` can be named as it is.
#[derive(Debug)]
pub(crate) struct Patterns(Vec<Pattern>);

#[derive(Debug)]
enum Pattern {
    /// `*`.
    Any,
    /// No special character at all.
    Exact(Box<str>),
    /// Everything else.
    Glob(Box<str>, Steps),
}

impl Patterns {
    pub(crate) fn compile(globs: &[String]) -> Result<Self, PatternError> {
        globs.iter().map(|glob| Pattern::compile(glob)).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn match_any(&self, text: &str) -> bool {
        let mut walk = Walk::default();
        self.0.iter().any(|pattern| pattern.matches(text, &mut walk))
    }

    /// Whether one matches everything.
    pub(crate) fn match_all(&self) -> bool {
        self.0.iter().any(|pattern| matches!(pattern, Pattern::Any))
    }
}

/// Whether those who parse URIs would make something else of this one: they strip white space and control characters,
/// take a backslash for a slash, and resolve the segments `.` and `..`. Some decode dots and slashes before that, more than
/// once, or drop what follows a semicolon. Then no glob over the URI as it is written says anything about it.
pub(super) fn is_ambiguous(uri: &str) -> bool {
    let rewritten = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\';
    let decoded = with_percent_signs(&uri.to_ascii_lowercase());
    let decoded = decoded.replace("%2e", ".").replace("%2f", "/").replace("%5c", "/").replace("%3b", ";");
    uri.contains(rewritten)
        || decoded.split(['/', '?', '#', ':']).any(|segment| {
            let name = segment.split(';').next().unwrap_or(segment);
            matches!(name, "." | "..")
        })
}

/// A URI in which `%25`, a percent sign, is decoded until there is none any more.
fn with_percent_signs(uri: &str) -> String {
    let mut parts = uri.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        decoded.push('%');
        decoded.push_str(part.trim_start_matches("25"));
    }
    decoded
}

impl Pattern {
    fn compile(glob: &str) -> Result<Self, PatternError> {
        if glob == "*" {
            return Ok(Self::Any);
        }
        if glob::is_plain(glob) {
            return Ok(Self::Exact(glob.into()));
        }
        match glob::read(glob).and_then(|read| Steps::of(&read)) {
            Ok(steps) => Ok(Self::Glob(glob.into(), steps)),
            Err(source) => Err(PatternError { glob: glob.to_owned(), source }),
        }
    }

    fn matches(&self, text: &str, walk: &mut Walk) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *text,
            Self::Glob(glob, steps) => **glob == *text || steps.lead_through(text.as_bytes(), walk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_ambiguous_that_can_be_read_in_two_ways() {
        for (uri, is_one) in [
            ("file:///public/a", true),
            ("file:///public/a.txt", true),
            ("file:///public/.hidden", true),
            ("file:///public/a..b/c.", true),
            ("file:///public/...", true),
            ("file:///public/%2e%2e%2e", true),
            ("file:///public/%2egit", true),
            ("file:///public/%20a", true),
            ("file:///public/{name}", true),
            ("file:///public/\u{e9}", true),
            ("file:///public/../private/x", false),
            ("file:///public/..", false),
            ("file:///public/.", false),
            ("file:///public/./x", false),
            ("file:///public/a/../../private/x", false),
            ("file:///public/..?x", false),
            ("file:///public/..#x", false),
            ("file:///public/%2e%2e/private/x", false),
            ("file:///public/%2E./private/x", false),
            ("file:///public/.%2e/private/x", false),
            ("file:///public/%2E", false),
            ("file:///public/..%2Fprivate", false),
            ("file:///public/a%5c..%5cprivate", false),
            ("file:///public/a%2fb", true),
            ("file:///public/..;/private/x", false),
            ("file:///public/..;a=b/private/x", false),
            ("file:///public/..%3b/private/x", false),
            ("file:///public/a;b..", true),
            ("file:///public/;..", true),
            ("file:///public/%252e%252e/private/x", false),
            ("file:///public/..%252Fprivate", false),
            ("file:///public/%25252e./private/x", false),
            ("file:///public/100%25", true),
            ("file:///public/%2525a", true),
            ("file:///public/.\t./private/x", false),
            ("file:///public/.\r\n./private/x", false),
            ("file:///public/a\u{0}", false),
            ("file:///public/a\u{7f}", false),
            ("file:///public/a b", false),
            ("file:///public/a\u{a0}b", false),
            ("file:///public/..\\private", false),
            ("file:///public/a\\b", false),
            ("file:///public/{name}/../x", false),
        ] {
            assert_eq!(is_ambiguous(uri), !is_one, "{uri:?}");
        }
    }
}
