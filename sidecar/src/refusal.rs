//! Refusals: error responses that the sidecar makes itself. This is the one place that does. (Whoever answers in the
//! place of a server of another era, or answers the server, makes error responses too: tests here list them.)
//!
//! A [`Refusal`] is a closed list: whoever adds one has to say here what the client is told, with which status and
//! code, and what the log is told. What the client hears and what the log hears are different things.

mod causes;
mod reason;

use std::sync::Arc;

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use longshore_mcp::capabilities::Need;
use longshore_mcp::detect::Wrong;
use longshore_mcp::envelope::{Id, Malformed};
use longshore_mcp::initialize::Unusable;
use longshore_mcp::params::Invalid;
use longshore_mcp::revision::Revision;
use longshore_mcp::session::OutOfOrder;
use longshore_mcp::status::{self, Problem};
use longshore_mcp::translate::Untranslatable;
use longshore_mcp::{error, headers, sse};
use longshore_sessions::routing::Failure as Undecided;
use serde_json::{Value, json};
use thiserror::Error;

use crate::access::Denial;
use crate::audit;
use crate::authenticate::Unknown;
use crate::stack::respond::{self, Body};
use crate::upstream::stdio::Gone;

/// The most that is said to a client, who may not read it: names, URIs and the like are repeated as far as this goes.
const MAX_MESSAGE: usize = 1024;
/// The longest URI that is repeated as a whole.
const MAX_URI: usize = 2048;

/// After how many seconds it is worth another try where all processes are in use: nobody knows for how long, and each try
/// has a place in the queue.
const IN_USE: u64 = 30;

/// The HTTP methods that the MCP endpoint serves.
pub(crate) const ALLOWED_METHODS: &str = "GET, POST, DELETE, OPTIONS";

/// Those that it serves where the server has no stream of its own.
const METHODS_WITHOUT_STREAM: &str = "POST, DELETE, OPTIONS";

/// Those that have a meaning without a session.
const METHODS_WITHOUT_SESSION: &str = "POST, OPTIONS";

/// Why a request is not answered by the server. The text is what the client is told.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    // Before anything is known of the caller.
    #[error("no configuration is loaded yet")]
    NotConfigured,
    #[error("this server is shutting down")]
    Draining,
    #[error(
        "this server is not known by that host name: use the URL in the McpServer's status, or have its owner set \
         spec.expose.host"
    )]
    ForeignHost,
    #[error(
        "calls from this origin are not allowed: have the McpServer's owner add it to spec.expose.allowedOrigins"
    )]
    ForeignOrigin,
    #[error("nothing is served at this path: the MCP endpoint is /mcp, and for HTTP+SSE /sse and /messages")]
    NoSuchPath,
    #[error("this server takes API keys, not OAuth: send Authorization: Bearer KEY")]
    NoOAuth,
    #[error("this path serves {allowed}")]
    MethodNotAllowed { allowed: &'static str },

    // Who calls.
    #[error("a valid key is needed, as \"Authorization: Bearer KEY\" or \"X-API-Key: KEY\", of up to 8 KiB")]
    Unauthenticated(Unknown),

    // What came.
    #[error("\"Accept\" has to name application/json and text/event-stream")]
    NotAcceptable,
    #[error("\"Accept\" has to name text/event-stream")]
    NoEvents,
    #[error("\"Content-Type\" has to be application/json")]
    UnsupportedMediaType,
    #[error("the body is compressed, as \"Content-Encoding\" says, and has to be JSON as it is")]
    Compressed,
    #[error("the body is larger than {limit} bytes")]
    BodyTooLarge { limit: u64 },
    #[error("the body did not arrive in time")]
    BodyTooSlow,
    #[error("the connection ended before the whole body had arrived")]
    BodyBroken,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("a header occurs more than once or is not text: {0}")]
    BadHeader(HeaderName),

    // In which conversation.
    #[error(transparent)]
    Mistake(Wrong),
    #[error(transparent)]
    OutOfOrder(#[from] OutOfOrder),
    #[error("\"Mcp-Session-Id\" is missing: begin with initialize")]
    NoSession,
    #[error("the query names no stream: post to the place that the stream names in its first event")]
    NoStreamName,
    #[error("over HTTP+SSE messages are posted one by one, whichever revision was agreed on")]
    BatchOverSse,
    #[error("the session does not exist: begin with initialize")]
    UnknownSession,
    #[error("there are too many sessions: try again later")]
    TooManySessions,
    #[error(
        "you have as many sessions with this server as one caller may ({limit}): end one that is not needed, or try again \
         later"
    )]
    TooManyOwnSessions { limit: u32 },
    #[error("{}", out_of_reach(*.0))]
    SessionOutOfReach(Undecided),
    #[error(
        "the session has ended here, but no other replica could be told: if this replica is lost too, the session's id may \
         work again"
    )]
    EndNotNoted,
    #[error("there are too many calls under way: try again later")]
    TooManyCalls,
    #[error(
        "you have as many calls under way with this server as one caller may ({limit}): wait for one, or try again later"
    )]
    TooManyOwnCalls { limit: u32 },
    #[error(
        "one caller may have {limit} busy connections to this server, and you have: wait for an answer, read the answers \
         that have come, close a stream, or try again later"
    )]
    TooManyOwnConnections { limit: u32 },
    #[error("the sidecar holds as many bytes of other calls' messages as it may: try again later")]
    TooMuchHeld,
    #[error(
        "your subscriptions and your clients' declarations leave no room for what this client says: say less in \
         \"capabilities\" and \"clientInfo\", subscribe to less, or end a session or a subscription"
    )]
    TooMuchKept,
    #[error(
        "the call was made, but its answer is lost: large answers to other calls are held until their clients read them"
    )]
    AnswerNotHeld,
    #[error(
        "as many processes of this server run as may ({limit}): {}, or have the server's owner lower \
         spec.sessions.idleTimeout or raise spec.transport.stdio.maxProcesses",
        until_free(*.again)
    )]
    TooManyProcesses { limit: u32, again: Option<u64> },
    #[error(
        "as many processes of this server run for you as may ({limit}): {}, or have the server's owner lower \
         spec.sessions.idleTimeout or raise spec.transport.stdio.maxProcesses or maxProcessesPerPrincipal",
        until_free(*.again)
    )]
    TooManyOwnProcesses { limit: u32, again: Option<u64> },
    #[error(
        "this session has as many streams open as it may ({limit}): wait for one of its calls, close a stream, or \
         begin another session"
    )]
    TooManyStreams { limit: u32 },
    #[error("this session has a GET stream already: read that one, or close it first")]
    SecondStream,
    #[error(
        "the events after this \"Last-Event-ID\" are not kept any more, or never were: the session goes on, so make \
         the call again, or open another stream with a GET without \"Last-Event-ID\""
    )]
    EventsGone,
    /// For whoever comes back to the call of the request with this id, as JSON.
    #[error(
        "the call was made, but its answer is lost: it is not kept any more, or the replica that served the call went \
         away; to make it again may do it twice"
    )]
    AnswerGone {
        /// The id of the call's request, as JSON.
        request: Box<str>,
        /// The id of the event that says so.
        event: String,
    },
    #[error("the MCP server offers no stream for GET")]
    NoServerStream,
    #[error("no process of this server came free in time: try again later")]
    NothingFree,
    #[error("there are too many subscriptions: try again later")]
    TooManyListeners,
    #[error(
        "you listen to this server with as many subscriptions as one caller may ({limit}): close one, or try again later"
    )]
    TooManyOwnListeners { limit: u32 },
    #[error("this session is subscribed to as many resources as it may be: unsubscribe from some")]
    TooManySubscriptions,
    #[error(
        "too many calls wait for input from their clients: answer what the server has asked, or try again later"
    )]
    TooManyQuestions,
    #[error("a request with this id is under way in this session: use another id")]
    IdInUse,
    #[error("the handshake cannot be used: {0}")]
    Handshake(Unusable),

    // What is asked for.
    #[error(transparent)]
    InvalidParams(#[from] Invalid),
    #[error("Method not found")]
    UnknownMethod,
    #[error("Unknown tool: {name}")]
    UnknownTool { name: String, why: Denial },
    #[error("Unknown prompt: {name}")]
    UnknownPrompt { name: String, why: Denial },
    #[error("Resource not found: {uri}")]
    UnknownResource { uri: String, why: Denial },
    #[error("there is no such task")]
    UnknownTask,
    #[error(
        "the tasks of revision {client} are not those of revision {server}, which the MCP server speaks: call its tools \
         without them"
    )]
    TasksDiffer { client: Revision, server: Revision },
    #[error("this needs a client that has declared {need}", need = .0.as_str())]
    Lacking(Need),
    /// The same, found when the server had made a task of the call.
    #[error("this needs a client that has declared {need}", need = Need::Tasks.as_str())]
    BegunTask,
    #[error(transparent)]
    Untranslatable(#[from] Untranslatable),

    // What the server did.
    #[error(
        "the MCP server does not answer: it is not there, or has not said yet which revision it speaks; try again later"
    )]
    ServerDown,
    #[error("the MCP server went away before it answered")]
    ServerLost,
    #[error("the MCP server did not answer within {seconds} seconds")]
    ServerTimedOut { seconds: f64 },
    #[error("the MCP server answered with HTTP status {status}")]
    ServerStatus { status: u16 },
    #[error("the MCP server refused the handshake, with error {code}: {words}")]
    HandshakeRefused { code: i64, words: String },
    #[error("the MCP server answered with something that is not an answer to this request")]
    ServerNonsense,
    #[error(
        "the MCP server's answer is larger than {limit} bytes, and has to be whole to be looked into, or to be sent as an event"
    )]
    AnswerTooLarge { limit: usize },
    #[error("the MCP server speaks revision {version:?} of MCP, which is not served here")]
    ServerRevision { version: String },
    #[error("the MCP server has ended this session: begin with initialize")]
    SessionLost,
    #[error(transparent)]
    Process(Arc<Gone>),
    #[error(
        "the server's process has died too often lately: another one is started in {seconds} seconds at the earliest"
    )]
    ProcessKeepsDying { seconds: u64 },
    #[error("the call was cancelled by its client")]
    Cancelled,
    #[error(
        "the call was ended: its client read nothing of what the server wrote for it, and others share the server's \
         process"
    )]
    Unread,
    #[error("the session was ended while the call was under way")]
    SessionEnded,
    #[error("another MCP server is configured by now: make the call again")]
    ServerReplaced,
    #[error("the replica of this session ends, and the session with it: begin with initialize")]
    PodEnds,
    #[error("the replica that served this call went away before it answered")]
    ReplicaLost,
    #[error("an internal error")]
    Internal,
}

/// What a client can do that gets no process, of which one may come free in so many seconds.
fn until_free(again: Option<u64>) -> String {
    match again {
        Some(seconds) => format!(
            "end a session that is not needed, or try again in {seconds} seconds, when one may end that nobody uses"
        ),
        None => {
            "end a session that is not needed, or try again later, since all of them are in use".to_owned()
        }
    }
}

/// What a client is told whose session may live, but not where it can be served just now.
fn out_of_reach(why: Undecided) -> &'static str {
    match why {
        Undecided::Unreachable => "a replica that may hold this session cannot be reached: try again later",
        Undecided::Unsettled => {
            "it is not known just now which replicas there are, so this session cannot be served: try again later"
        }
        Undecided::Undecided | Undecided::NotFound => {
            "the replica that holds this session was not found in time: try again"
        }
    }
}

/// Whether the message that is refused was a request: notifications and responses have no answer that an error could
/// ride in, so what would be HTTP 200 for a request is a status of its own for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Other,
}

impl Refusal {
    /// Whether what was permitted went wrong at the server, or on the way to it, where there may have been no room for a session
    /// or a process. Everything else is refused here.
    pub(crate) fn is_failure(&self, revision: Revision) -> bool {
        matches!(self, Self::NoServerStream | Self::BegunTask)
            || self.lacks_room()
            || self.problem(revision) == Problem::ServerFailed
    }

    /// Whether it is room that is lacking for a session: there may be some at another replica.
    pub(crate) fn lacks_room(&self) -> bool {
        matches!(
            self,
            Self::TooManySessions
                | Self::TooManyOwnSessions { .. }
                | Self::TooManyProcesses { .. }
                | Self::TooManyOwnProcesses { .. }
                | Self::NothingFree
        )
    }

    /// What kind of problem it is, in a conversation of this revision.
    fn problem(&self, revision: Revision) -> Problem {
        match self {
            Self::Mistake(wrong) => wrong.problem(revision),
            Self::OutOfOrder(order) => order.problem(),
            Self::NotConfigured
            | Self::Draining
            | Self::TooManySessions
            | Self::SessionOutOfReach(_)
            | Self::EndNotNoted
            | Self::TooManyCalls
            | Self::TooMuchHeld
            | Self::TooMuchKept
            | Self::TooManyStreams { .. }
            | Self::TooManyProcesses { .. }
            | Self::TooManyListeners
            | Self::TooManySubscriptions
            | Self::TooManyQuestions
            | Self::NothingFree => Problem::Unavailable,
            Self::TooManyOwnSessions { .. }
            | Self::TooManyOwnCalls { .. }
            | Self::TooManyOwnConnections { .. }
            | Self::TooManyOwnProcesses { .. }
            | Self::TooManyOwnListeners { .. } => Problem::TooMany,
            Self::ForeignHost | Self::ForeignOrigin => Problem::Foreign,
            Self::NoSuchPath | Self::NoOAuth => Problem::NoSuchPath,
            Self::MethodNotAllowed { .. } | Self::NoServerStream => Problem::MethodNotAllowed,
            Self::Unauthenticated(_) => Problem::Unauthenticated,
            Self::NotAcceptable | Self::NoEvents => Problem::NotAcceptable,
            Self::UnsupportedMediaType | Self::Compressed => Problem::UnsupportedMediaType,
            Self::BodyTooLarge { .. } => Problem::BodyTooLarge,
            Self::BodyTooSlow => Problem::RequestTooSlow,
            Self::Malformed(Malformed::NotJson) => Problem::NotJson,
            Self::Malformed(Malformed::Batch | Malformed::TooDeep | Malformed::NotMessage(_))
            | Self::BodyBroken
            | Self::BatchOverSse
            | Self::BadHeader(_)
            | Self::IdInUse => Problem::InvalidMessage,
            Self::NoSession | Self::NoStreamName => Problem::NoSession,
            Self::SecondStream => Problem::SecondStream,
            Self::EventsGone => Problem::EventsGone,
            Self::UnknownSession | Self::SessionLost | Self::PodEnds => Problem::UnknownSession,
            Self::UnknownMethod | Self::TasksDiffer { .. } => Problem::UnknownMethod,
            Self::Lacking(_) | Self::BegunTask => Problem::MissingCapability,
            Self::InvalidParams(_)
            | Self::UnknownTask
            | Self::Handshake(_)
            | Self::UnknownTool { .. }
            | Self::UnknownPrompt { .. } => Problem::InvalidParams,
            Self::UnknownResource { .. } => Problem::UnknownResource,
            Self::Untranslatable(_)
            | Self::ServerDown
            | Self::ServerLost
            | Self::ServerTimedOut { .. }
            | Self::ServerStatus { .. }
            | Self::HandshakeRefused { .. }
            | Self::ServerNonsense
            | Self::AnswerTooLarge { .. }
            | Self::AnswerNotHeld
            | Self::AnswerGone { .. }
            | Self::ServerRevision { .. }
            | Self::Process(_)
            | Self::ProcessKeepsDying { .. }
            | Self::Cancelled
            | Self::Unread
            | Self::SessionEnded
            | Self::ServerReplaced
            | Self::ReplicaLost
            | Self::Internal => Problem::ServerFailed,
        }
    }

    fn data(&self) -> Option<Value> {
        match self {
            Self::Mistake(wrong) => wrong.data(),
            Self::UnknownResource { uri, .. } if uri.len() <= MAX_URI => Some(json!({"uri": uri})),
            Self::Lacking(need) => Some(json!({"requiredCapabilities": need.as_capabilities()})),
            Self::BegunTask => Self::Lacking(Need::Tasks).data(),
            Self::Process(gone) if !gone.stderr.is_empty() => Some(json!({"stderr": gone.stderr})),
            _ => None,
        }
    }
}

/// An error response as parts: for one that is a whole response, and for one that ends a stream.
pub(crate) struct ErrorResponse {
    /// The HTTP status.
    pub(crate) status: StatusCode,
    /// The JSON-RPC code.
    pub(crate) code: i64,
    /// The JSON-RPC error response.
    pub(crate) json: String,
}

/// What a refusal is answered with.
pub(crate) fn error_response(
    refusal: &Refusal,
    id: Option<Id<'_>>,
    kind: Kind,
    revision: Revision,
) -> ErrorResponse {
    let problem = match (refusal.problem(revision), kind) {
        (Problem::ServerFailed, Kind::Other) => Problem::ServerUnreachable,
        (Problem::InvalidParams | Problem::UnknownMethod, Kind::Other) => Problem::InvalidMessage,
        (problem, _) => problem,
    };
    let answer = status::answer(problem, revision);
    ErrorResponse {
        status: StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        code: answer.code.number().into(),
        json: error::response(
            id,
            answer.code,
            &audit::bounded(&refusal.to_string(), MAX_MESSAGE),
            refusal.data().as_ref(),
        ),
    }
}

/// The whole response to a refused request.
pub(crate) fn response(refusal: &Refusal, answer: ErrorResponse) -> Response<Body> {
    let text = match refusal {
        // Who asks here expects an error of OAuth's.
        Refusal::NoOAuth => {
            json!({"error": "invalid_request", "error_description": refusal.to_string()}).to_string()
        }
        // Who comes back for an answer reads events, and may come back once more after an error that has no id.
        Refusal::AnswerGone { event, .. } => {
            return respond::events(Body::whole(sse::numbered(event, answer.json.as_bytes())), None);
        }
        _ => answer.json,
    };
    let mut response = Response::new(Body::whole(text));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
    match refusal {
        Refusal::Unauthenticated(_) => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Refusal::MethodNotAllowed { allowed } => {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        Refusal::Mistake(Wrong::HttpMethod) => {
            headers.insert(ALLOW, HeaderValue::from_static(METHODS_WITHOUT_SESSION));
        }
        Refusal::NoServerStream => {
            headers.insert(ALLOW, HeaderValue::from_static(METHODS_WITHOUT_STREAM));
        }
        Refusal::NotConfigured
        | Refusal::Draining
        | Refusal::TooManySessions
        | Refusal::TooManyOwnSessions { .. }
        | Refusal::SessionOutOfReach(_)
        | Refusal::TooManyCalls
        | Refusal::TooManyOwnCalls { .. }
        | Refusal::TooManyOwnConnections { .. }
        | Refusal::TooMuchHeld
        | Refusal::TooManyStreams { .. }
        | Refusal::TooManyListeners
        | Refusal::TooManyOwnListeners { .. }
        | Refusal::TooManyQuestions
        | Refusal::NothingFree => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // Whoever asks sooner waits in vain once more, in the way of others.
        Refusal::TooManyProcesses { again, .. } | Refusal::TooManyOwnProcesses { again, .. } => {
            headers.insert(RETRY_AFTER, HeaderValue::from(again.unwrap_or(IN_USE)));
        }
        _ => {}
    }
    response
}

#[cfg(test)]
mod tests;
