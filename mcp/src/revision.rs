//! The revisions of the protocol.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning>

mod features;

use std::fmt;

pub use features::{Elicitation, Features, LogLevels, Questions, Structured, Tasks, VersionHeader};

/// A published revision, in the order of their dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// HTTP+SSE: a stream to hear, an endpoint to post to.
    V2024_11_05,
    /// The first with Streamable HTTP, and the only one with batches.
    V2025_03_26,
    /// Without batches, with `MCP-Protocol-Version`, elicitation and structured results.
    V2025_06_18,
    /// With experimental tasks, and events that a client can resume from.
    V2025_11_25,
    /// Without handshake and sessions: each request says all that it needs.
    V2026_07_28,
}

/// The two ways in which a client and a server hold a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// `initialize`, sessions, requests in both directions.
    Legacy,
    /// Every request stands alone.
    Modern,
}

impl Revision {
    /// All of them, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// The newest revision that has a handshake: what `initialize` is answered with if it asks for something else.
    pub const NEWEST_WITH_INITIALIZE: Self = Self::V2025_11_25;

    /// The revision of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == name)
    }

    /// The name: the date of its release.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The newest revision among some that has a handshake and, if that is asked for, is not newer than another.
    pub fn newest_with_initialize(among: &[Self], not_newer_than: Option<Self>) -> Option<Self> {
        let fits = |revision: &Self| {
            revision.features().handshake && not_newer_than.is_none_or(|limit| *revision <= limit)
        };
        among.iter().copied().filter(fits).max()
    }

    /// How this revision converses.
    pub fn era(self) -> Era {
        if self.features().handshake { Era::Legacy } else { Era::Modern }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which era a version name belongs to, also one that is not published yet: names are dates, and dates order as
/// text. What is no date is taken for a legacy client's mistake.
pub fn era_of(name: &str) -> Era {
    let is_date = name.len() == 10
        && name.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if is_date && name >= Revision::V2026_07_28.as_str() { Era::Modern } else { Era::Legacy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for revision in Revision::ALL {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        }
        assert_eq!(Revision::parse("2025-06-19"), None);
    }

    #[test]
    fn unknown_versions_have_an_era() {
        for (name, era) in [
            ("2024-11-05", Era::Legacy),
            ("2025-11-25", Era::Legacy),
            ("2026-07-28", Era::Modern),
            ("2099-01-01", Era::Modern),
            ("v999", Era::Legacy),
            ("", Era::Legacy),
            ("2026-07-2x", Era::Legacy),
        ] {
            assert_eq!(era_of(name), era, "{name}");
        }
    }
}
