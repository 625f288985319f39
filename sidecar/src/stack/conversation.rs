//! Which conversation a request belongs to: one of a session, or one that is a request and its answer. Both are
//! served at one address.

use bytes::Bytes;
use http::{HeaderMap, Method};
use longshore_mcp::detect::{self, Conversation, HttpMethod, Mistake};
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::headers::{Field, Fields};
use longshore_mcp::object::Object;
use longshore_mcp::revision::{Era, Revision, era_of};
use longshore_mcp::session;

use super::session::InSession;
use super::{Authenticated, Trail};
use crate::SERVED;
use crate::refusal::Refusal;

/// What a request without a body wants. None: it has a body.
pub(crate) fn without_body(
    caller: &Authenticated,
    trail: &mut Trail,
) -> Result<Option<Conversation<'static>>, Refusal> {
    let method = match *caller.request.method() {
        Method::GET => HttpMethod::Get,
        Method::DELETE => HttpMethod::Delete,
        _ => return Ok(None),
    };
    let judged = detect::without_body(method, &caller.fields(), &SERVED);
    judged.map(Some).map_err(|mistake| trail.mistaken(mistake))
}

/// What a request with a body wants.
pub(crate) fn with_body<'a>(
    fields: &Fields<'_>,
    body: &'a Bytes,
    trail: &mut Trail,
) -> Result<Conversation<'a>, Refusal> {
    detect::with_body(body, fields, &SERVED).map_err(|mistake| {
        // What it was is for the log; most mistakes are found in messages that can be read.
        if let Ok(message) = envelope::read(body) {
            trail.note(&message);
        }
        trail.mistaken(mistake)
    })
}

/// A message with `params` that are `null` as its server is to read it: that is what many programs write where they have
/// none, and others refuse it. None: it is as it came.
pub(crate) fn without_null(conversation: &Conversation<'_>, body: &Bytes) -> Option<Bytes> {
    let params = match conversation {
        Conversation::Handshake(request) | Conversation::Session(Message::Request(request)) => request.params,
        Conversation::Session(Message::Notification(notification)) => notification.params,
        _ => None,
    };
    params.filter(|params| params.get() == "null")?;
    let mut message = Object::read(std::str::from_utf8(body).ok()?).ok()?;
    message.remove("params").then(|| message.write().into())
}

/// The session that a request names, if its head does not say that it is in none: since 2026-07-28 the name of one
/// means nothing.
pub(crate) fn names_session(fields: &Fields<'_>) -> bool {
    let is_modern = fields.version.one().is_some_and(|version| era_of(version) == Era::Modern);
    fields.session != Field::Absent && !is_modern
}

/// Holds a message to the session that it came in: only a handshake has none.
pub(crate) fn fits(
    fields: &Fields<'_>,
    message: &Message<'_>,
    session: Option<InSession>,
    trail: &mut Trail,
) -> Result<Option<InSession>, Refusal> {
    let Some(session) = session else {
        let is_handshake = matches!(
            message,
            Message::Request(request) if request.is(longshore_mcp::method::Method::Initialize)
        );
        return if is_handshake { Ok(None) } else { Err(Refusal::NoSession) };
    };
    trail.revision = session.revision;
    session::judge(message, fields.version, session.revision)?;
    Ok(Some(session))
}

/// Holds what has no body, or many, to its session, which speaks this.
pub(crate) fn agrees(caller: &Authenticated, revision: Revision, trail: &mut Trail) -> Result<(), Refusal> {
    trail.revision = revision;
    Ok(session::judge_version(caller.fields().version, revision)?)
}

/// The headers that MCP gives a meaning.
pub(crate) fn fields(headers: &HeaderMap) -> Fields<'_> {
    Fields::read(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

impl Authenticated {
    /// The headers that MCP gives a meaning.
    pub(crate) fn fields(&self) -> Fields<'_> {
        fields(self.request.headers())
    }
}

impl Trail {
    /// Notes what is known of a request that is a mistake.
    fn mistaken(&mut self, mistake: Mistake<'_>) -> Refusal {
        let Mistake { wrong, id, revision } = mistake;
        if let Some(id) = id {
            self.id = Some(id.as_json().to_owned());
        }
        self.revision = revision;
        Refusal::Mistake(wrong)
    }
}
