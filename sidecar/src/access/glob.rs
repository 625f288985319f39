//! Globs, as all those read them who have to know what a rule says: the sidecar, which decides by it, and the operator,
//! which tells people of it.

use globset::{ErrorKind, Glob, GlobBuilder};
use longshore_sidecar_config::glob::{has_wide_class, nesting};
use thiserror::Error;

/// How deeply braces may nest. The matcher's own limit is a panic.
const MAX_NESTING: usize = 16;

/// Why a text is no glob.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoGlob {
    /// It does not follow the syntax.
    #[error("{0}")]
    Syntax(ErrorKind),
    /// `[é]`: see [`has_wide_class`].
    #[error("between brackets there may be characters of ASCII alone")]
    Wide,
    /// `{{{…}}}`.
    #[error("braces nest deeper than {MAX_NESTING} levels")]
    Deep,
}

/// Whether a glob matches itself and nothing else, since none of its characters stands for others.
pub fn is_plain(glob: &str) -> bool {
    !glob.contains(['*', '?', '[', ']', '{', '}', '\\', '!'])
}

/// Reads a glob. In `{a,b}` one side may be empty: `delete{,_all}` stands for `delete`, too.
pub fn read(glob: &str) -> Result<Glob, NoGlob> {
    if has_wide_class(glob) {
        return Err(NoGlob::Wide);
    }
    if nesting(glob) > MAX_NESTING {
        return Err(NoGlob::Deep);
    }
    let built = GlobBuilder::new(glob).empty_alternates(true).build();
    built.map_err(|error| NoGlob::Syntax(error.kind().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_stand_for_what_they_say() {
        for (glob, text, matches) in [
            ("delete{,_all}", "delete", true),
            ("delete{,_all}", "delete_all", true),
            ("delete{,_all}", "delete_", false),
            ("{,x}", "", true),
            ("{a,}b", "b", true),
            ("{}a", "a", true),
            ("a{b,c}", "a", false),
            ("**/admin", "admin", true),
            ("internal://**/public", "internal://public", true),
            ("internal://**/public", "internal://a/b/public", true),
            ("internal://*/public", "internal://public", false),
            ("?", "\u{e9}", false),
            ("??", "\u{e9}", true),
            ("[!a][!b]", "\u{e9}", true),
        ] {
            let matcher = read(glob).unwrap().compile_matcher();
            assert_eq!(matcher.is_match(text), matches, "{glob} {text:?}");
        }
    }

    #[test]
    fn what_is_no_glob_says_why() {
        let nested = |depth: usize| format!("{}a{}", "{".repeat(depth), "}".repeat(depth));
        for (glob, why) in [
            ("[é]", "between brackets there may be characters of ASCII alone"),
            ("[z-a]", "invalid range; 'z' > 'a'"),
            (&nested(MAX_NESTING + 1), "braces nest deeper than 16 levels"),
            (&nested(5_000), "braces nest deeper than 16 levels"),
        ] {
            assert_eq!(read(glob).unwrap_err().to_string(), why, "{glob}");
        }
        let deep = read(&nested(MAX_NESTING)).unwrap().compile_matcher();
        assert!(deep.is_match("a"));
        assert!(read(&"{a}".repeat(MAX_NESTING + 1)).is_ok());
        for open in [r"{\}", "{[}]", "{[!}]", "{[]}]"] {
            let deep = format!("{}{}", open.repeat(150), "}".repeat(150));
            assert_eq!(read(&deep).unwrap_err(), NoGlob::Deep, "{deep}");
        }
        for shut in [r"\{", "[{]"] {
            assert!(read(&shut.repeat(150)).is_ok());
        }
    }
}
