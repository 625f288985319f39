//! Globs over names and URIs.

use thiserror::Error;

use super::glob::{self, NoGlob};
use super::steps::{Steps, Walk};
use super::uri::{Marks, Uri, read};

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

    /// The same of a URI, which one has to match whichever of its [readings](Uri::readings) the server takes it for.
    pub(super) fn match_any_uri(&self, uri: &Uri<'_>) -> bool {
        let mut walk = Walk::default();
        self.0.iter().any(|pattern| pattern.matches_uri(uri, &mut walk))
    }

    /// Whether one matches everything.
    pub(crate) fn match_all(&self) -> bool {
        self.0.iter().any(|pattern| matches!(pattern, Pattern::Any))
    }
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

    /// What is written in the glob itself is read as it is in the URI.
    fn matches_uri(&self, uri: &Uri<'_>, walk: &mut Walk) -> bool {
        let glob = match self {
            Self::Any => return true,
            Self::Exact(exact) => return **exact == *uri.text,
            Self::Glob(glob, _) => &**glob,
        };
        let matches_as_read = |(marks, reading): &(Marks, String), walk: &mut Walk| {
            self.matches(reading, walk) || {
                let read = read(glob, *marks, true);
                read != glob && Self::compile(&read).is_ok_and(|read| read.matches(reading, walk))
            }
        };
        glob == uri.text
            || self.matches(uri.text, walk)
                && uri.readings().iter().all(|reading| matches_as_read(reading, walk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_matches_whatever_its_server_reads_in_it() {
        for (glob, uri, expected) in [
            ("file:///docs/*.md", "file:///docs/a.md", true),
            ("file:///docs/*.md", "file:///docs/secret.txt#.md", false),
            ("file:///docs/*.md", "file:///docs/secret.txt?.md", false),
            ("file:///docs/*.md", "file:///docs/secret.txt;.md", false),
            ("file:///docs/*.md", "file:///docs/secret.txt;.md?z.md", false),
            ("file:///docs/*.md", "file:///docs/secret.txt?.md#z.md", false),
            ("file:///docs/*.md", "file:///docs/v;1/a.md", true),
            ("file:///docs/*.md", "file:///docs/100%25/%61.md", true),
            ("internal://*/public", "internal://secrets/all#/public", false),
            ("file:///docs/[!.]*", "file:///docs/%2egit/config", false),
            ("file:///docs/[!.]*", "file:///docs/%2Egit/config", false),
            ("file:///docs/[!.]*", "file:///docs/git%2e", true),
            ("file:///docs/%7Eme/*", "file:///docs/%7Eme/a", true),
            ("file:///docs/*", "file:///docs/a?b;c#d%", true),
            ("https://x/q?of=*", "https://x/q?of=a", true),
            ("https://x/q#*", "https://x/q#a", true),
            ("repo://{owner}/readme{?ref}", "repo://{owner}/readme{?ref}", true),
            ("repo://*/readme*", "repo://{owner}/readme{?ref}", true),
            ("repo://*/readme*", "repo://a/readme?ref=main", true),
            ("a://x#b", "a://x#b", true),
            ("*", "a://x?#;%2e", true),
            ("file:///docs/20??-*.md", "file:///docs/2024-a.md", true),
            ("file:///docs/20??-*.md", "file:///docs/2024-secret.txt?.md", false),
            ("file:///docs/20??-*", "file:///docs/2024-a?b", true),
            ("file:///docs/*?.md", "file:///docs/ab.md", true),
            ("file:///docs/*?.md", "file:///docs/secret.txt?a.md", false),
            ("file:///docs/*?.md", "file:///docs/secret.txt%3fa.md", false),
            ("file:///docs/*/v?/public.md", "file:///docs/a/v1/public.md", true),
            ("file:///docs/*/v?/public.md", "file:///docs/secret/v?/v1/public.md", false),
            ("https://x/q\\?of=*", "https://x/q?of=a", true),
            ("https://x/q\\?*", "https://x/q?a", true),
            ("https://x/q?*", "https://x/q?a", true),
            ("https://x/q\\?of=*", "https://x/qaof=a", false),
            ("file:///My%20Docs/[!.]*", "file:///My%20Docs/%2egit/config", false),
            ("file:///My%20Docs/[!.]*", "file:///My%20Docs/git", true),
            ("internal://[!#]*/public", "internal://secrets#/public", false),
            ("file:///docs/[!.]*", "file:///docs//.git/config", false),
            ("file:///docs/[!.]*", "file:///docs/%2f.git/config", false),
            ("file:///docs/[!.]*", "file:///docs/%5c.git/config", false),
            ("file:///docs/[!.]*", "file:///docs/%25%35C.git/config", false),
            ("file:///docs/[!.]*", "file:///docs/a%5Cd", true),
            ("file:///docs/*.md", "file:///docs/secret.txt%3b%5c.md", false),
            ("file:///docs/*.md", "file:///docs/secret.txt%3b%252f.md", false),
            ("file:///docs/*.md", "file:///docs/a%252fb.md", true),
            ("file:///docs/[!.]*", "file:///docs/;/.git/config", false),
            ("file:///docs/[!.]*", "file:///docs/%252egit/config", false),
            ("file:///docs/[!.]*", "file:///docs/%25%32%65git/config", false),
            ("file:///docs/[!.]*", "file:///docs/a//b", true),
            ("file:///docs/*.md", "file:///docs/secret.txt%23.md", false),
            ("file:///docs/*.md", "file:///docs/secret.txt%3F.md", false),
            ("repo://*/readme", "repo://a%2Fb/readme", true),
            ("repo://a%2Fb/*", "repo://a%2Fb/readme", true),
            ("repo://a%5Cb/*", "repo://a%5Cb/readme", true),
            ("repo://a%3Fb/*", "repo://a%3Fb/readme", true),
            ("repo://a%3Fb/?.md", "repo://a%3Fb/c.md", true),
            ("a:////x/*", "a:////x/b", true),
        ] {
            let patterns = Patterns::compile(&[glob.to_owned()]).unwrap();
            assert_eq!(patterns.match_any_uri(&Uri::new(uri)), expected, "{glob}: {uri}");
        }
    }
}
