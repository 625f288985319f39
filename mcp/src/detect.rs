//! Which conversation an HTTP request belongs to, when both eras are served at one address. What comes without headers is
//! judged by [`without_headers`].
//!
//! The body decides, and the header is checked against it: a request that says in `_meta` which revision it is of is
//! a modern one, whatever else it looks like. Mistakes are found in a fixed order, so that each request has one
//! answer: the body is JSON, and one message; the envelope is complete; the headers say what it says; the revision is
//! served; the method exists.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions>

use serde_json::{Value, json};
use thiserror::Error;

use crate::batch::{self, BadBatch, Batch, Body};
use crate::envelope::{Id, Malformed, Message, Request};
use crate::error;
use crate::headers::standard::{self, Mismatch};
use crate::headers::{Field, Fields, PROTOCOL_VERSION};
use crate::meta::{Envelope, Incomplete, Outline};
use crate::method::Method;
use crate::params::Invalid;
use crate::revision::{Era, Revision, era_of};
use crate::status::{self, Answer, Problem};

/// The HTTP methods that a revision gives a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpMethod {
    /// A message.
    Post,
    /// A stream.
    Get,
    /// The end of a session.
    Delete,
}

/// The conversation that a request belongs to.
#[derive(Clone, Debug)]
pub enum Conversation<'a> {
    /// A request that stands alone.
    Modern(Box<Modern<'a>>),
    /// A notification of a modern client. It concerns nothing that goes on: it is accepted and dropped.
    ModernNotification,
    /// A handshake: it begins a session.
    Handshake(Request<'a>),
    /// A message of a session.
    Session(Message<'a>),
    /// Messages of a session, which has to be of a revision with batches.
    SessionBatch(Batch<'a>),
    /// The stream of a session.
    Stream,
    /// The end of a session.
    End,
}

/// A modern request that has passed every check that needs no knowledge of the server.
#[derive(Clone, Debug)]
pub struct Modern<'a> {
    /// Its revision.
    pub revision: Revision,
    /// What it says of itself.
    pub envelope: Envelope<'a>,
    /// Its method.
    pub method: Method,
    /// What its parameters hold.
    pub outline: Outline<'a>,
    /// All of it.
    pub request: Request<'a>,
}

/// What is wrong with a request.
#[derive(Debug)]
pub struct Mistake<'a> {
    /// What it is.
    pub wrong: Wrong,
    /// The request's id, if it could be read.
    pub id: Option<Id<'a>>,
    /// The revision whose rules the answer follows.
    pub revision: Revision,
}

/// The mistakes.
#[derive(Debug, Error)]
pub enum Wrong {
    /// The body is no message and no batch.
    #[error(transparent)]
    Body(#[from] BadBatch),
    /// A response: no modern server asks anything.
    #[error("revision {0} has no requests of servers, so there is nothing to respond to")]
    Response(Revision),
    /// A message that claims to be modern within a batch.
    #[error("a message of revision 2026-07-28 or later cannot be part of a batch")]
    ModernInBatch,
    /// The parameters cannot be read.
    #[error(transparent)]
    Params(#[from] Invalid),
    /// The envelope is not complete.
    #[error(transparent)]
    Envelope(#[from] Incomplete),
    /// A header contradicts the body.
    #[error(transparent)]
    Header(#[from] Mismatch),
    /// The revision is not served.
    #[error("revision {requested:?} is not served here: use one of data.supported")]
    Revision {
        /// What was asked for.
        requested: String,
        /// What is served.
        supported: Vec<Revision>,
    },
    /// Nobody knows the method.
    #[error("Method not found")]
    Method,
    /// The HTTP method has no meaning in any revision that is served.
    #[error("revision 2026-07-28 and later serve POST alone")]
    HttpMethod,
    /// The header with the revision cannot be that of any conversation.
    #[error("\"MCP-Protocol-Version\" is not usable")]
    VersionHeader,
}

/// Judges a request without a body.
pub fn without_body<'a>(
    method: HttpMethod,
    fields: &Fields<'_>,
    served: &[Revision],
) -> Result<Conversation<'a>, Mistake<'a>> {
    let mistake = |wrong| Mistake { wrong, id: None, revision: Revision::V2026_07_28 };
    let has_streams = serves(served, Era::Legacy);
    // A modern client does not ask for streams; one that names a session means one all the same.
    let is_modern = fields.session == Field::Absent
        && fields.version.one().is_some_and(|version| era_of(version) == Era::Modern);
    match method {
        HttpMethod::Get if has_streams && !is_modern => Ok(Conversation::Stream),
        HttpMethod::Delete if has_streams && !is_modern => Ok(Conversation::End),
        HttpMethod::Get | HttpMethod::Delete | HttpMethod::Post => Err(mistake(Wrong::HttpMethod)),
    }
}

/// Judges a request to where nothing but revisions without a handshake is `served`, over a transport without headers, as
/// stdio is.
pub fn without_headers<'a>(request: Request<'a>, served: &[Revision]) -> Result<Modern<'a>, Mistake<'a>> {
    let id = Some(request.id);
    judge_alone(request, served).map_err(|wrong| Mistake { wrong, id, revision: Revision::V2026_07_28 })
}

fn judge_alone<'a>(request: Request<'a>, served: &[Revision]) -> Result<Modern<'a>, Wrong> {
    let outline = Outline::read(request.params)?;
    if request.is(Method::Initialize) && !outline.claims_modern() {
        // A client of another era: all that it can learn is which revisions there are.
        return Err(unsupported(&asked_version(&request).unwrap_or_default(), served));
    }
    let envelope = outline.envelope()?;
    let revision = modern_revision(&envelope.version, served)?;
    let method = Method::of(revision, &request.method).ok_or(Wrong::Method)?;
    Ok(Modern { revision, envelope, method, outline, request })
}

/// Whether revisions of an era are served.
fn serves(served: &[Revision], era: Era) -> bool {
    served.iter().any(|revision| revision.era() == era)
}

/// Judges a `POST`.
pub fn with_body<'a>(
    body: &'a [u8],
    fields: &Fields<'_>,
    served: &[Revision],
) -> Result<Conversation<'a>, Mistake<'a>> {
    let header_is_modern = fields.version.one().is_some_and(|version| era_of(version) == Era::Modern);
    let serves_legacy = serves(served, Era::Legacy);
    let assumed = if header_is_modern || !serves_legacy {
        Revision::V2026_07_28
    } else {
        Revision::NEWEST_WITH_INITIALIZE
    };
    let refuse = |wrong: Wrong| Mistake { wrong, id: None, revision: assumed };

    // Whether a batch is in order depends on its session, if it can be of one at all.
    let reading = if header_is_modern || !serves_legacy { assumed } else { Revision::V2025_03_26 };
    match batch::read(body, reading).map_err(|bad| refuse(bad.into()))? {
        Body::One(Message::Request(request)) => judge_request(request, fields, served, header_is_modern),
        Body::One(Message::Notification(notification)) => {
            let claims = Outline::of_modern(notification.params).map_err(|invalid| refuse(invalid.into()))?;
            let serves_modern = serves(served, Era::Modern);
            if header_is_modern || is_of_no_session(fields) || claims.is_some() && serves_modern {
                // What such a notification has to have beside its header is said nowhere: nothing more is asked.
                if fields.version != Field::Absent {
                    let version = standard::version(fields).map_err(|mismatch| refuse(mismatch.into()))?;
                    modern_revision(version, served).map_err(refuse)?;
                }
                return Ok(Conversation::ModernNotification);
            }
            legacy(Conversation::Session(Message::Notification(notification)), fields, served)
        }
        Body::One(Message::Response(response)) => {
            if header_is_modern {
                return Err(refuse(Wrong::Response(Revision::V2026_07_28)));
            }
            legacy(Conversation::Session(Message::Response(response)), fields, served)
        }
        Body::Batch(batch) => {
            for (message, _) in batch.iter() {
                let params = match message {
                    Message::Request(request) => request.params,
                    Message::Notification(notification) => notification.params,
                    Message::Response(_) => None,
                };
                let claims = Outline::of_modern(params);
                if claims.map_err(|invalid| refuse(invalid.into()))?.is_some() {
                    return Err(refuse(Wrong::ModernInBatch));
                }
            }
            legacy(Conversation::SessionBatch(batch), fields, served)
        }
    }
}

fn judge_request<'a>(
    request: Request<'a>,
    fields: &Fields<'_>,
    served: &[Revision],
    header_is_modern: bool,
) -> Result<Conversation<'a>, Mistake<'a>> {
    let id = Some(request.id);
    let refuse = |wrong: Wrong, revision| Mistake { wrong, id, revision };
    let era = if header_is_modern { Revision::V2026_07_28 } else { Revision::NEWEST_WITH_INITIALIZE };
    let claims = Outline::of_modern(request.params).map_err(|invalid| refuse(invalid.into(), era))?;
    let is_handshake = request.is(Method::Initialize);
    if claims.is_some() || header_is_modern || !is_handshake && is_of_no_session(fields) {
        let outline = claims.map_or_else(|| Outline::read(request.params), Ok);
        let outline = outline.map_err(|invalid| refuse(invalid.into(), era))?;
        return judge_modern(request, outline, fields, served)
            .map(|modern| Conversation::Modern(Box::new(modern)))
            .map_err(|wrong| refuse(wrong, Revision::V2026_07_28));
    }
    let conversation = if is_handshake {
        Conversation::Handshake(request)
    } else {
        Conversation::Session(Message::Request(request))
    };
    legacy(conversation, fields, served).map_err(|mistake| Mistake { id, ..mistake })
}

/// Whether the headers name a revision that no session can have, and no session.
fn is_of_no_session(fields: &Fields<'_>) -> bool {
    fields.session == Field::Absent
        && fields.version.one().is_some_and(|version| Revision::parse(version).is_none())
}

fn judge_modern<'a>(
    request: Request<'a>,
    outline: Outline<'a>,
    fields: &Fields<'_>,
    served: &[Revision],
) -> Result<Modern<'a>, Wrong> {
    let envelope = outline.envelope()?;
    standard::check_version(fields, &envelope.version)?;
    standard::check_method(fields, &request.method)?;
    let revision = modern_revision(&envelope.version, served)?;
    let method = Method::of(revision, &request.method).ok_or(Wrong::Method)?;
    standard::check_name(fields, method, &outline)?;
    Ok(Modern { revision, envelope, method, outline, request })
}

/// The revision of a modern message, if it is served.
fn modern_revision(version: &str, served: &[Revision]) -> Result<Revision, Wrong> {
    Revision::parse(version)
        .filter(|revision| revision.era() == Era::Modern && served.contains(revision))
        .ok_or_else(|| unsupported(version, served))
}

/// A legacy message, if such are served. Who it belongs to is a question of sessions.
fn legacy<'a>(
    conversation: Conversation<'a>,
    fields: &Fields<'_>,
    served: &[Revision],
) -> Result<Conversation<'a>, Mistake<'a>> {
    let mistake = |wrong| Mistake { wrong, id: None, revision: Revision::NEWEST_WITH_INITIALIZE };
    if matches!(fields.version, Field::Twice | Field::Unreadable) {
        return Err(mistake(Wrong::VersionHeader));
    }
    if serves(served, Era::Legacy) {
        return Ok(conversation);
    }
    // Such a client has no way to go on; all that it gets is a name for it.
    let requested = match &conversation {
        Conversation::Handshake(request) => asked_version(request),
        _ => fields.version.one().map(str::to_owned),
    };
    Err(mistake(unsupported(&requested.unwrap_or_default(), served)))
}

/// The revision that a handshake asks for.
fn asked_version(request: &Request<'_>) -> Option<String> {
    let params = crate::object::Object::read(request.params?.get()).ok()?;
    params.string("protocolVersion").map(crate::Text::into_owned)
}

fn unsupported(requested: &str, served: &[Revision]) -> Wrong {
    let mut supported = served.to_vec();
    supported.sort_unstable_by(|one, other| other.cmp(one));
    Wrong::Revision { requested: requested.to_owned(), supported }
}

// === impl Mistake ===

impl Mistake<'_> {
    /// The HTTP status and the code.
    pub fn answer(&self) -> Answer {
        status::answer(self.wrong.problem(self.revision), self.revision)
    }

    /// The error response.
    pub fn response(&self) -> String {
        error::response(self.id, self.answer().code, &self.wrong.to_string(), self.wrong.data().as_ref())
    }
}

// === impl Wrong ===

impl Wrong {
    /// What kind of problem it is, for a side of this revision.
    pub fn problem(&self, revision: Revision) -> Problem {
        match self {
            Self::Body(BadBatch::Malformed(Malformed::NotJson)) => Problem::NotJson,
            Self::Body(_) | Self::Response(_) | Self::ModernInBatch | Self::VersionHeader => {
                Problem::InvalidMessage
            }
            Self::Params(_) if revision.era() == Era::Legacy => Problem::InvalidParams,
            // What cannot be read is no envelope.
            Self::Params(_) | Self::Envelope(_) => Problem::IncompleteEnvelope,
            Self::Header(_) => Problem::HeaderMismatch,
            Self::Revision { .. } => Problem::UnsupportedEra,
            Self::Method => Problem::UnknownMethod,
            Self::HttpMethod => Problem::MethodNotAllowed,
        }
    }

    /// What the error says in `data`.
    pub fn data(&self) -> Option<Value> {
        match self {
            Self::Revision { requested, supported } => {
                let supported: Vec<_> = supported.iter().map(|revision| revision.as_str()).collect();
                Some(json!({"supported": supported, "requested": requested}))
            }
            Self::Header(
                Mismatch::Missing(header)
                | Mismatch::Twice(header)
                | Mismatch::Malformed(header)
                | Mismatch::Different(header)
                | Mismatch::Unfounded(header)
                | Mismatch::Unclear(header),
            ) => Some(json!({"header": header})),
            Self::VersionHeader => Some(json!({"header": PROTOCOL_VERSION})),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
