//! What a message of a session has to be in order, in the revisions that have a handshake.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management>

use thiserror::Error;

use crate::envelope::Message;
use crate::headers::Field;
use crate::method::Method;
use crate::revision::{Revision, VersionHeader};
use crate::status::Problem;

/// Why a message is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OutOfOrder {
    /// The header names another revision than the session's.
    #[error("\"MCP-Protocol-Version\" has to be {0}, the revision of the session")]
    Version(Revision),
    /// A second handshake.
    #[error("this session has been initialized already")]
    SecondInitialize,
}

impl OutOfOrder {
    /// What kind of problem it is.
    pub fn problem(self) -> Problem {
        match self {
            Self::Version(_) => Problem::WrongRevision,
            Self::SecondInitialize => Problem::InvalidMessage,
        }
    }
}

/// Judges a message of a session of this revision. Requests before `notifications/initialized` are in order: nothing
/// in the protocol depends on their waiting, and clients do not all wait.
pub fn judge(message: &Message<'_>, version: Field<'_>, session: Revision) -> Result<(), OutOfOrder> {
    if matches!(message, Message::Request(request) if request.is(Method::Initialize)) {
        return Err(OutOfOrder::SecondInitialize);
    }
    judge_version(version, session)
}

/// Judges the header alone, for what has no body. Without it the session's own revision counts.
pub fn judge_version(version: Field<'_>, session: Revision) -> Result<(), OutOfOrder> {
    match (session.features().version_header, version) {
        // Older revisions do not know the header, so it says nothing about them.
        (VersionHeader::Unknown, _) | (_, Field::Absent) => Ok(()),
        (_, Field::One(name)) if Revision::parse(name) == Some(session) => Ok(()),
        _ => Err(OutOfOrder::Version(session)),
    }
}

/// The revision that a handshake ends in: the one that was asked for, if it is served, or else the newest that is.
/// 2026-07-28 has no handshake, so none ever ends in it. `None` if no revision with a handshake is served.
pub fn negotiate(asked: &str, served: &[Revision]) -> Option<Revision> {
    Revision::parse(asked)
        .filter(|revision| revision.features().handshake && served.contains(revision))
        .or_else(|| Revision::newest_with_initialize(served, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_held_to_the_session() {
        use Revision::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25};
        for (session, header, fits) in [
            (V2025_11_25, Field::Absent, true),
            (V2025_11_25, Field::One("2025-11-25"), true),
            (V2025_11_25, Field::One("2025-06-18"), false),
            (V2025_06_18, Field::One("banana"), false),
            (V2025_06_18, Field::Twice, false),
            (V2025_03_26, Field::One("banana"), true),
            (V2025_03_26, Field::One("2025-06-18"), true),
            (V2024_11_05, Field::Unreadable, true),
        ] {
            assert_eq!(judge_version(header, session).is_ok(), fits, "{session} {header:?}");
        }
    }

    #[test]
    fn handshakes_end_in_what_is_served() {
        let some = [Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2026_07_28];
        for (asked, expected) in [
            ("2025-03-26", Some(Revision::V2025_03_26)),
            ("2024-11-05", Some(Revision::V2025_06_18)),
            ("2026-07-28", Some(Revision::V2025_06_18)),
            ("banana", Some(Revision::V2025_06_18)),
        ] {
            assert_eq!(negotiate(asked, &some), expected, "{asked}");
        }
        assert_eq!(negotiate("2025-06-18", &some[2..]), None);
    }
}
