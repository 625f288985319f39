//! What can go wrong between the sidecar and its server, in words for people.

use std::sync::Arc;

use http::StatusCode;
use longshore_mcp::lossy_json;
use longshore_mcp::method::List;
use longshore_mcp::revision::Revision;
use longshore_sidecar_config::inventory::ConnectionReason;
use serde_json::Value;
use thiserror::Error;

use super::MAX_ANSWER;
use crate::monitor::state::Problem;
use crate::upstream::forgotten::is_not_now;
use crate::upstream::sse;
use crate::upstream::stdio::{Gone, Why};
use crate::upstream::{Broken, Failure, Unanswered, call, modern_as_legacy};

/// The most of a server's own words in a message for people.
const MAX_QUOTE: usize = 200;
/// The most of what a process wrote to stderr: its last lines, and bytes of them.
const MAX_LINES: usize = 5;
const MAX_STDERR: usize = 500;

/// Why the server did not do what it was asked for.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    #[error("nothing listens on port {port}")]
    Refused { port: u16 },
    #[error("the server broke the connection off")]
    Lost,
    #[error("the server answers on its port with something that is not HTTP")]
    NotHttp,
    #[error("the server does not know the session any more")]
    SessionGone,
    #[error("the server answered {path} with HTTP status {status}{to}", to = redirect(location.as_deref()))]
    Status {
        status: u16,
        path: String,
        /// Where it redirects to, if it does.
        location: Option<String>,
    },
    /// Over HTTP+SSE: it has not heard what it was to be asked.
    #[error(
        "the server answered a GET of {path} with HTTP status {status}{to}: is this the path of its stream, and does it \
         speak HTTP+SSE?",
        to = redirect(location.as_deref())
    )]
    NoStream {
        status: u16,
        path: String,
        /// Where it redirects to, if it does.
        location: Option<String>,
    },
    #[error("the server's answer at {path} is not MCP: {what}")]
    NotMcp { path: String, what: &'static str },
    #[error("the server answered with error {code}: {message}")]
    Rpc {
        code: i64,
        message: String,
        status: u16,
        /// The revisions that the error names: as those that would do, or else in its words.
        named: Vec<Revision>,
    },
    #[error("{0}; so it did for older revisions, and transport.protocol can say which one it speaks")]
    OlderToo(Box<CallError>),
    #[error("the server speaks revision {0} of MCP, which is not served here: {served} are", served = served())]
    Revision(String),
    #[error("the server does not answer when it is asked what it speaks")]
    Silent,
    #[error("the server speaks revision {speaks} of MCP, and transport.protocol says {pin}")]
    Pinned { pin: Revision, speaks: String },
    #[error("the server's answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
    #[error("{why}{stderr}", why = .0.why, stderr = said(.0))]
    Process(Arc<Gone>),
    #[error(transparent)]
    Call(call::Failure),
    #[error(transparent)]
    ModernAsLegacy(modern_as_legacy::Failure),
    #[error(transparent)]
    Sse(sse::Failure),
}

/// The revisions that are served, in words.
fn served() -> String {
    Revision::ALL.map(Revision::as_str).join(", ")
}

/// Where a server redirects to, in words.
fn redirect(location: Option<&str>) -> String {
    let words = |location| format!(", a redirect to {location}, and redirects are not followed");
    location.map(words).unwrap_or_default()
}

/// The last lines of what a process wrote to stderr.
fn said(gone: &Gone) -> String {
    let mut lines: Vec<_> = gone.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let last = lines.split_off(lines.len().saturating_sub(MAX_LINES));
    let text = last.join(" | ");
    // The end says more than the beginning.
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_STDERR));
    format!("; it wrote to stderr: {}", &text[start..])
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Http(Unanswered::Refused { port, .. }) => Self::Refused { port },
            Failure::Http(Unanswered::Lost(error)) if error.is_parse() => Self::NotHttp,
            Failure::Http(Unanswered::Lost(_)) => Self::Lost,
            Failure::Call(failure) => failure.into(),
            Failure::ModernAsLegacy(
                modern_as_legacy::Failure::Forgotten | modern_as_legacy::Failure::Ended,
            ) => Self::SessionGone,
            Failure::ModernAsLegacy(
                modern_as_legacy::Failure::BrokenOff | modern_as_legacy::Failure::Late,
            ) => Self::Lost,
            Failure::ModernAsLegacy(modern_as_legacy::Failure::TooLarge) => Self::TooLarge,
            Failure::ModernAsLegacy(failure) => Self::ModernAsLegacy(failure),
            Failure::Sse(failure) => Self::Sse(failure),
            // Nothing of the monitor's own goes that way.
            Failure::LegacyAsModern(_) | Failure::Unknown => Self::Lost,
        }
    }
}

impl From<Broken> for CallError {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Http(_) => Self::Lost,
            Broken::Call(failure) => failure.into(),
            Broken::Made(failure) => failure.into(),
        }
    }
}

impl From<call::Failure> for CallError {
    fn from(failure: call::Failure) -> Self {
        match failure {
            call::Failure::Process(gone) => Self::Process(gone),
            call::Failure::Ended | call::Failure::Forgotten => Self::SessionGone,
            call::Failure::Absent { port } => Self::Refused { port },
            call::Failure::Cut => Self::Lost,
            failure => Self::Call(failure),
        }
    }
}

impl CallError {
    /// Which revision a server that has refused a handshake in this one so says that it speaks: the newest of them.
    pub(super) fn named_instead(&self, asked: Revision) -> Option<Revision> {
        Revision::newest_with_initialize(&self.others(asked), None)
    }

    /// Which revisions may be worth a try where it names none: the older ones, the newest first. Each costs a process, if
    /// it is one: then only for what is said of parameters or revisions.
    pub(super) fn older_instead(&self, asked: Revision, is_process: bool) -> Vec<Revision> {
        let may_be_for_its_revision = match self {
            Self::Rpc { code: -32602 | -32022, .. } => true,
            Self::Rpc { .. } if is_process => false,
            Self::Rpc { code, status, .. } => matches!(code, -32600 | -32000) || *status == 400,
            Self::Status { status, .. } => *status == 400,
            _ => false,
        };
        // One that names others speaks none of these, and one that has no time has not looked at it.
        if !may_be_for_its_revision || self.is_busy() || !self.others(asked).is_empty() {
            return Vec::new();
        }
        let is_older = |revision: &Revision| revision.features().handshake && *revision < asked;
        let mut older: Vec<_> = Revision::ALL.into_iter().filter(is_older).collect();
        older.sort_unstable_by(|one, other| other.cmp(one));
        older
    }

    /// The revisions that it names, but this one.
    fn others(&self, asked: Revision) -> Vec<Revision> {
        let Self::Rpc { named, .. } = self else { return Vec::new() };
        named.iter().copied().filter(|named| *named != asked).collect()
    }

    /// What it means when it happens in a handshake.
    pub(in crate::monitor) fn in_handshake(self) -> Problem {
        let reason = match &self {
            Self::Silent | Self::Refused { .. } | Self::Lost | Self::Call(_) => {
                ConnectionReason::ConnectionRefused
            }
            Self::Process(gone) => match gone.why {
                Why::Unavailable(_) | Why::Slow(_) | Why::Stopping | Why::Lost => {
                    ConnectionReason::ShimUnavailable
                }
                Why::NotFound(_) => ConnectionReason::CommandNotFound,
                Why::NotExecutable(_) => ConnectionReason::CommandNotExecutable,
                Why::LineTooLong | Why::HalfLine(_) | Why::Noise => ConnectionReason::NotMcp,
                Why::NotStarted(_)
                | Why::Exited(_)
                | Why::Killed(_)
                | Why::Closed
                | Why::Mute(_)
                | Why::Hung(_)
                | Why::StderrFlood
                | Why::Asked => ConnectionReason::ProcessExited,
            },
            Self::NotHttp
            | Self::NoStream { .. }
            | Self::NotMcp { .. }
            | Self::TooLarge
            | Self::SessionGone
            | Self::ModernAsLegacy(_)
            | Self::Sse(_) => ConnectionReason::NotMcp,
            Self::Status { status: 404 | 405 | 300..=399, .. } => ConnectionReason::NotMcp,
            Self::Status { .. } | Self::Rpc { .. } | Self::OlderToo(_) => ConnectionReason::InitializeRefused,
            Self::Revision(_) | Self::Pinned { .. } => ConnectionReason::UnsupportedRevision,
        };
        Problem { reason, message: self.to_string(), is_busy: self.is_busy() }
    }

    /// Whether the server is there and has no time, which says nothing of the session or of what was asked.
    pub(in crate::monitor) fn is_busy(&self) -> bool {
        matches!(self.answered(), Some(408 | 425 | 429))
    }

    /// Whether it may do a moment later what it was asked for: it has no time now, or is not there. Many say 500 of whatever
    /// they do not know, each time.
    pub(super) fn has_no_time(&self) -> bool {
        matches!(self, Self::Lost | Self::Refused { .. }) || self.is_busy() || self.answered() == Some(503)
    }

    /// The status of its answer, where that is of no use.
    fn answered(&self) -> Option<u16> {
        match self {
            Self::Rpc { status, .. }
            | Self::Status { status, .. }
            | Self::ModernAsLegacy(modern_as_legacy::Failure::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// Whether the server has a stream of its own, and only gives it later. A server that ends, or whatever is between, cuts
    /// streams off; the session may live on all the same.
    pub(super) fn may_give_its_stream(&self) -> bool {
        let says = |status| StatusCode::from_u16(status).is_ok_and(is_not_now);
        matches!(self, Self::TooLarge | Self::Lost | Self::Refused { .. })
            || self.answered().is_some_and(says)
    }

    /// Whether the server answered, in the session as it was, and what it answered is of no use.
    pub(in crate::monitor) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Rpc { .. }
                | Self::Status { .. }
                | Self::ModernAsLegacy(modern_as_legacy::Failure::Status(_))
                | Self::NotMcp { .. }
                | Self::TooLarge
        )
    }

    /// What it means when it happens while a list is read.
    pub(in crate::monitor) fn in_list(self, list: List) -> Problem {
        let message = format!("{} failed: {self}", list.method().as_str());
        Problem { reason: ConnectionReason::ListFailed, message, is_busy: self.is_busy() }
    }
}

/// The error of a JSON-RPC error object.
pub(super) fn rpc(error: &str, status: StatusCode) -> CallError {
    let error = lossy_json::value(error).unwrap_or_default();
    CallError::Rpc {
        code: error["code"].as_i64().unwrap_or_default(),
        message: quote(error["message"].as_str().unwrap_or_default()),
        status: status.as_u16(),
        named: named(&error),
    }
}

/// The revisions that an error names which says that the one that was asked for is not spoken.
fn named(error: &Value) -> Vec<Revision> {
    let names = error["data"]["supported"].as_array();
    let names = names.into_iter().flatten().filter_map(Value::as_str).filter_map(Revision::parse).collect();
    if !Vec::is_empty(&names) {
        return names;
    }
    let words = error["message"].as_str().unwrap_or_default();
    Revision::ALL.into_iter().filter(|revision| words.contains(revision.as_str())).collect()
}

/// The text of an untrusted server, bounded, on one line.
pub(super) fn quote(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(MAX_QUOTE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_handshake_says_what_to_ask_for_instead() {
        use Revision::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25};
        const OLDER: &[Revision] = &[V2025_06_18, V2025_03_26, V2024_11_05];
        for (status, error, instead) in [
            (
                200,
                r#"{"code":-32602,"message":"no","data":{"supported":["2025-03-26","x"]}}"#,
                &[V2025_03_26][..],
            ),
            // It says so in no words that anybody has agreed on.
            (
                200,
                r#"{"code":-32602,"message":"2025-11-25 is not one of 2024-11-05, 2025-06-18"}"#,
                &[V2025_06_18],
            ),
            (200, r#"{"code":1,"message":"use 2024-11-05"}"#, &[V2024_11_05]),
            (200, r#"{"code":-32602,"message":"Unsupported protocol version: 2025-11-25"}"#, OLDER),
            (200, r#"{"code":-32000,"message":"no"}"#, OLDER),
            (400, r#"{"code":1,"message":"no"}"#, OLDER),
            (
                400,
                r#"{"code":-32602,"message":"\ud83d","data":{"supported":["2025-03-26"]}}"#,
                &[V2025_03_26],
            ),
            // It has not looked at it.
            (429, r#"{"code":-32000,"message":"no"}"#, &[]),
            (200, r#"{"code":-32603,"message":"no"}"#, &[]),
            (200, r#"{"code":-32601,"message":"no"}"#, &[]),
            // It speaks what has no handshake.
            (200, r#"{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}"#, &[]),
        ] {
            let refused = rpc(error, StatusCode::from_u16(status).unwrap());
            let named = refused.named_instead(V2025_11_25).map_or_else(Vec::new, |named| vec![named]);
            assert_eq!([named, refused.older_instead(V2025_11_25, false)].concat(), instead, "{error}");
        }
        for (status, instead) in [(400, OLDER), (401, &[]), (404, &[]), (500, &[])] {
            let refused = CallError::Status { status, path: "/mcp".to_owned(), location: None };
            assert_eq!(refused.older_instead(V2025_11_25, false), instead, "{status}");
        }
    }

    #[test]
    fn who_has_no_time_answers_all_the_same() {
        for (status, is_busy, has_no_time) in [
            (408, true, true),
            (409, false, false),
            (425, true, true),
            (429, true, true),
            (500, false, false),
            (502, false, false),
            (503, false, true),
        ] {
            for error in [
                rpc(r#"{"code":-32000,"message":"later"}"#, StatusCode::from_u16(status).unwrap()),
                CallError::Status { status, path: "/mcp".to_owned(), location: None },
                CallError::ModernAsLegacy(modern_as_legacy::Failure::Status(status)),
            ] {
                assert!(error.is_answer() && error.is_busy() == is_busy, "{error}");
                assert_eq!(error.has_no_time(), has_no_time, "{error}");
            }
        }
    }

    #[test]
    fn a_stranger_is_quoted_on_one_short_line() {
        assert_eq!(quote("a\n\u{1b}[31mb"), "a[31mb");
        assert_eq!(quote(&"x".repeat(500)).len(), MAX_QUOTE);
    }
}
