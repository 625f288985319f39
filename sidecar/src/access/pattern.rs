//! Globs over names and URIs.

use globset::{Candidate, Glob, GlobMatcher};
use thiserror::Error;

/// A glob that is none.
#[derive(Debug, Error)]
#[error("the glob {glob:?} cannot be read")]
pub(crate) struct PatternError {
    glob: String,
    source: globset::Error,
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
    /// Everything else. Only the compiled expression is used: globset's quicker strategies think of paths.
    Glob(Box<str>, Box<GlobMatcher>),
}

impl Patterns {
    pub(crate) fn compile(globs: &[String]) -> Result<Self, PatternError> {
        globs.iter().map(|glob| Pattern::compile(glob)).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn match_any(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(text))
    }
}

impl Pattern {
    fn compile(glob: &str) -> Result<Self, PatternError> {
        if glob == "*" {
            return Ok(Self::Any);
        }
        if !glob.contains(['*', '?', '[', ']', '{', '}', '\\', '!']) {
            return Ok(Self::Exact(glob.into()));
        }
        match Glob::new(glob) {
            Ok(compiled) => Ok(Self::Glob(glob.into(), Box::new(compiled.compile_matcher()))),
            Err(source) => Err(PatternError { glob: glob.to_owned(), source }),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *text,
            Self::Glob(glob, matcher) => {
                **glob == *text || matcher.is_match_candidate(&Candidate::from_bytes(text.as_bytes()))
            }
        }
    }
}
