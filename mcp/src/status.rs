//! Which HTTP status and which JSON-RPC code answer what: one table for all revisions.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes>

use crate::error::Code;
use crate::revision::{Era, Revision};

/// What can be wrong with a request, as far as the protocol tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// `Host` or `Origin` is not one of the server's.
    Foreign,
    /// No or no valid credentials.
    Unauthenticated,
    /// Nothing is served at this path.
    NoSuchPath,
    /// The endpoint does not serve this HTTP method.
    MethodNotAllowed,
    /// `Accept` leaves out one of the two kinds of answers.
    NotAcceptable,
    /// The body is not declared as JSON.
    UnsupportedMediaType,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// The request did not arrive in time.
    RequestTooSlow,
    /// The body is not JSON.
    NotJson,
    /// The body is no message, or one that is out of place.
    InvalidMessage,
    /// A message of an era that is not served.
    UnsupportedEra,
    /// `MCP-Protocol-Version` is not the revision of the session, or none that is served.
    WrongRevision,
    /// A request of 2026-07-28 or later lacks one of the members that each of them has.
    IncompleteEnvelope,
    /// A header says something else than the body, is missing, or occurs twice.
    HeaderMismatch,
    /// The request needs a capability that its client did not declare.
    MissingCapability,
    /// A message that needs a session names none.
    NoSession,
    /// The session does not exist, has ended, or is somebody else's.
    UnknownSession,
    /// The session has a stream of the kind already.
    SecondStream,
    /// The events after the last one that a client has seen are not known any more.
    EventsGone,
    /// Nobody knows the method.
    UnknownMethod,
    /// The parameters are wrong, or name something that does not exist for this caller.
    InvalidParams,
    /// The resource does not exist for this caller.
    UnknownResource,
    /// The server behind failed to answer a request.
    ServerFailed,
    /// The server behind could not be told a notification or a response.
    ServerUnreachable,
    /// The request cannot be served now, and can be later or elsewhere.
    Unavailable,
    /// The caller has as much of something as one caller may.
    TooMany,
}

/// How a problem is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The code of the JSON-RPC error in the body.
    pub code: Code,
}

/// How a problem is answered in a conversation of this revision.
pub fn answer(problem: Problem, revision: Revision) -> Answer {
    let (status, code) = match problem {
        Problem::Foreign => (403, Code::InvalidRequest),
        Problem::Unauthenticated => (401, Code::InvalidRequest),
        Problem::NoSuchPath => (404, Code::InvalidRequest),
        Problem::MethodNotAllowed => (405, Code::InvalidRequest),
        Problem::NotAcceptable => (406, Code::InvalidRequest),
        Problem::UnsupportedMediaType => (415, Code::InvalidRequest),
        Problem::BodyTooLarge => (413, Code::InvalidRequest),
        Problem::RequestTooSlow => (408, Code::InvalidRequest),
        Problem::NotJson => (400, Code::ParseError),
        Problem::InvalidMessage => (400, Code::InvalidRequest),
        Problem::UnsupportedEra => (400, Code::UnsupportedProtocolVersion),
        Problem::WrongRevision => match revision.era() {
            Era::Legacy => (400, Code::InvalidRequest),
            Era::Modern => (400, Code::UnsupportedProtocolVersion),
        },
        Problem::IncompleteEnvelope => (400, Code::InvalidParams),
        Problem::HeaderMismatch => (400, Code::HeaderMismatch),
        Problem::MissingCapability => match revision.era() {
            Era::Legacy => (200, Code::InvalidParams),
            Era::Modern => (400, Code::MissingClientCapability),
        },
        Problem::NoSession => (400, Code::InvalidRequest),
        Problem::UnknownSession => (404, Code::InvalidRequest),
        Problem::SecondStream => (409, Code::InvalidRequest),
        // Never 404, which would say that the session is gone.
        Problem::EventsGone => (400, Code::InvalidRequest),
        Problem::UnknownMethod => match revision.era() {
            Era::Legacy => (200, Code::MethodNotFound),
            Era::Modern => (404, Code::MethodNotFound),
        },
        Problem::InvalidParams => (200, Code::InvalidParams),
        Problem::UnknownResource => match revision.era() {
            Era::Legacy => (200, Code::ResourceNotFound),
            // A code of its own is not known there any more; `data.uri` says which resource it was.
            Era::Modern => (200, Code::InvalidParams),
        },
        Problem::ServerFailed => (200, Code::InternalError),
        Problem::ServerUnreachable => (502, Code::InternalError),
        Problem::Unavailable => (503, Code::InternalError),
        Problem::TooMany => (429, Code::InternalError),
    };
    Answer { status, code }
}

/// The HTTP status that a server's own error rides on, if the response has not begun yet.
pub fn of_error(code: i64, revision: Revision) -> u16 {
    match (Code::of(code), revision.era()) {
        (_, Era::Legacy) => 200,
        (Some(Code::MethodNotFound), Era::Modern) => 404,
        (
            Some(Code::HeaderMismatch | Code::MissingClientCapability | Code::UnsupportedProtocolVersion),
            Era::Modern,
        ) => 400,
        (_, Era::Modern) => 200,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revision_has_its_answer() {
        use Problem::{
            HeaderMismatch, IncompleteEnvelope, InvalidMessage, InvalidParams, MissingCapability, NotJson,
            UnknownMethod, UnknownResource, UnsupportedEra, WrongRevision,
        };
        for (problem, legacy, modern) in [
            (NotJson, (400, -32700), (400, -32700)),
            (InvalidMessage, (400, -32600), (400, -32600)),
            (UnknownMethod, (200, -32601), (404, -32601)),
            (InvalidParams, (200, -32602), (200, -32602)),
            (UnknownResource, (200, -32002), (200, -32602)),
            (WrongRevision, (400, -32600), (400, -32022)),
            (UnsupportedEra, (400, -32022), (400, -32022)),
            (IncompleteEnvelope, (400, -32602), (400, -32602)),
            (HeaderMismatch, (400, -32020), (400, -32020)),
            (MissingCapability, (200, -32602), (400, -32021)),
        ] {
            for revision in Revision::ALL {
                let expected = if revision.era() == Era::Modern { modern } else { legacy };
                let answer = answer(problem, revision);
                assert_eq!((answer.status, answer.code.number()), expected, "{problem:?} {revision}");
            }
        }
    }

    #[test]
    fn servers_errors_have_a_status() {
        for (code, status) in [(-32601, 404), (-32602, 200), (-32603, 200), (-32021, 400), (7, 200)] {
            assert_eq!(of_error(code, Revision::V2026_07_28), status, "{code}");
            assert_eq!(of_error(code, Revision::V2025_11_25), 200, "{code}");
        }
    }
}
