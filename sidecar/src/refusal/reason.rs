//! What the log is told of a refusal.

use longshore_mcp::batch::BadBatch;
use longshore_mcp::detect::Wrong;
use longshore_mcp::envelope::Malformed;
use longshore_mcp::session::OutOfOrder;
use longshore_sessions::routing::Failure as Undecided;

use super::Refusal;

impl Refusal {
    /// What the audit log says: a closed list, without anything that the client sent.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotConfigured => "no configuration is loaded",
            Self::Draining => "draining",
            Self::ForeignHost => "foreign host",
            Self::ForeignOrigin => "foreign origin",
            Self::NoSuchPath | Self::NoOAuth => "unknown path",
            Self::MethodNotAllowed { .. } => "HTTP method not allowed",
            Self::Unauthenticated(unknown) => unknown.reason(),
            Self::NotAcceptable | Self::NoEvents => "Accept leaves out a type",
            Self::UnsupportedMediaType | Self::Compressed => "wrong content type",
            Self::BodyTooLarge { .. } => "body too large",
            Self::BodyTooSlow => "body too slow",
            Self::BodyBroken => "body broke off",
            Self::Malformed(malformed) => of_malformed(malformed),
            Self::Mistake(wrong) => of_mistake(wrong),
            Self::OutOfOrder(OutOfOrder::Version(_)) => "not the session's revision",
            Self::OutOfOrder(OutOfOrder::SecondInitialize) => "second initialize",
            Self::BadHeader(_) => "malformed header",
            Self::NoSession => "no session",
            Self::NoStreamName => "no stream named",
            Self::BatchOverSse => "batch",
            Self::UnknownSession => "unknown session",
            Self::PodEnds => "session ends with its replica",
            Self::TooManySessions => "too many sessions",
            Self::TooManyOwnSessions { .. } => "too many sessions of one principal",
            Self::SessionOutOfReach(Undecided::Unreachable) => "replica out of reach",
            Self::SessionOutOfReach(Undecided::Unsettled) => "replicas not known",
            Self::SessionOutOfReach(_) => "session not found in time",
            Self::EndNotNoted => "end not noted by another replica",
            Self::TooManyCalls => "too many calls",
            Self::TooManyOwnCalls { .. } => "too many calls of one caller",
            Self::TooManyOwnConnections { .. } => "too many connections of one caller",
            Self::TooMuchHeld => "too many bytes held",
            Self::TooMuchKept => "too many bytes kept",
            Self::AnswerNotHeld => "answer not held",
            Self::TooManyStreams { .. } => "too many streams",
            Self::SecondStream => "second GET stream",
            Self::EventsGone => "events not kept",
            Self::AnswerGone { .. } => "answer not kept",
            Self::NoServerStream => "server offers no GET stream",
            Self::TooManyProcesses { .. } => "too many processes",
            Self::TooManyOwnProcesses { .. } => "too many processes of one principal",
            Self::NothingFree => "no process came free in time",
            Self::TooManyListeners => "too many listeners",
            Self::TooManyOwnListeners { .. } => "too many listeners of one principal",
            Self::TooManySubscriptions => "too many subscriptions",
            Self::TooManyQuestions => "too many questions to clients",
            Self::IdInUse => "id in use",
            Self::Handshake(_) => "unusable handshake",
            Self::InvalidParams(_) => "invalid parameters",
            Self::UnknownMethod => "unknown method",
            Self::UnknownTool { why, .. }
            | Self::UnknownPrompt { why, .. }
            | Self::UnknownResource { why, .. } => why.reason(),
            Self::UnknownTask => "unknown task",
            Self::TasksDiffer { .. } | Self::Untranslatable(_) => "revisions differ",
            Self::Lacking(_) | Self::BegunTask => "capability not declared",
            Self::ServerDown => "server down",
            Self::ServerLost => "server broke off",
            Self::ServerTimedOut { .. } => "server timed out",
            Self::ServerStatus { .. } => "server answered with an HTTP error",
            Self::HandshakeRefused { .. } => "server refused the handshake",
            Self::ServerNonsense => "server answered nonsense",
            Self::AnswerTooLarge { .. } => "server's answer too large",
            Self::ServerRevision { .. } => "server speaks another revision",
            Self::SessionLost => "server ended the session",
            Self::Process(gone) => gone.why.name(),
            Self::ProcessKeepsDying { .. } => "server's process keeps dying",
            Self::Cancelled => "cancelled by its client",
            Self::Unread => "not read by its client",
            Self::SessionEnded => "session ended during the call",
            Self::ServerReplaced => "another server configured",
            Self::ReplicaLost => "replica broke off",
            Self::Internal => "internal error",
        }
    }
}

/// What is wrong with bytes that are no message, for the log.
fn of_malformed(malformed: &Malformed) -> &'static str {
    match malformed {
        Malformed::NotJson => "not JSON",
        Malformed::Batch => "batch",
        Malformed::TooDeep => "nested too deeply",
        Malformed::NotMessage(_) => "not a JSON-RPC message",
    }
}

/// What is wrong with a request that belongs to no conversation, for the log.
fn of_mistake(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong::Body(BadBatch::Malformed(malformed)) => of_malformed(malformed),
        Wrong::Body(_) => "malformed batch",
        Wrong::Response(_) => "response out of place",
        Wrong::ModernInBatch => "modern message in a batch",
        Wrong::Params(_) => "invalid parameters",
        Wrong::Envelope(_) => "incomplete envelope",
        Wrong::Header(_) => "header against body",
        Wrong::Revision { .. } => "revision not served",
        Wrong::Method => "unknown method",
        Wrong::HttpMethod => "HTTP method not allowed",
        Wrong::VersionHeader => "malformed header",
    }
}
