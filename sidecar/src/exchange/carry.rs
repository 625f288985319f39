//! What a message of the server becomes for its client in a session: above all where the two speak different revisions.

use std::borrow::Cow;

use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{self, Message, Notification, Request, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::method::{Method, ServerRequest};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::responses::{self, Answer, Asked};
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, questions};

use super::{Call, request};
use crate::refusal::Refusal;
use crate::sessions::Session;
use crate::stack::tasks;

/// What becomes of a message that is no answer.
pub(super) enum Aside<'a> {
    /// It goes on, like this.
    On(Cow<'a, str>),
    /// The client has no use for it.
    Nowhere,
    /// The client's revision has no such question: this is what the server hears.
    Unasked(String),
}

/// The revisions of a session, if they differ.
pub(super) fn pair(session: &Session) -> Option<Pair> {
    let pair = Pair { client: session.revision, server: session.server_revision };
    (!pair.is_same()).then_some(pair)
}

/// A message of the server that is no answer, as the client of the session hears it, if it hears it at all. What became
/// of it is known from now on: a client may be quick.
pub(super) fn heard<'a>(call: &Call, session: &Session, data: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let said = match pair(session) {
        None => tasks::aside(&call.worker, &call.caller.principal, session, data)?,
        Some(pair) => match aside(session, pair, data) {
            Aside::On(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
            Aside::On(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
            Aside::Nowhere => return None,
            Aside::Unasked(answer) => {
                request::tell(&call.worker, &call.snapshot, session, answer);
                return None;
            }
        },
    };
    match said {
        Cow::Borrowed(said) => session.hears(said),
        Cow::Owned(said) => session.hears(&said).map(|heard| Cow::Owned(heard.into_owned())),
    }
}

/// A message of the server that is no answer to the client's.
pub(super) fn aside<'a>(session: &Session, pair: Pair, data: &'a [u8]) -> Aside<'a> {
    let Ok(text) = std::str::from_utf8(data) else { return Aside::Nowhere };
    match envelope::read(data) {
        Ok(Message::Notification(notification)) => told(pair, &notification, text),
        Ok(Message::Request(request)) => asked(session, pair, &request, text),
        // An answer that nobody waits for, or no message at all.
        Ok(Message::Response(_)) | Err(_) => Aside::Nowhere,
    }
}

/// The answer to a client's request; none if it can go as it is.
pub(super) fn answer(
    pair: Pair,
    method: Option<Method>,
    response: &Response<'_>,
    id: &str,
    text: &str,
) -> Result<Option<String>, Refusal> {
    let asked = Asked { id, method, uri: None };
    match responses::response(pair, &asked, response, text, &Hints::default())? {
        Answer::Message(Cow::Borrowed(_)) => Ok(None),
        Answer::Message(Cow::Owned(text)) => Ok(Some(text)),
        // Both are of revisions without sessions.
        Answer::InputRequired(_) | Answer::Visit(_) => Err(Refusal::ServerNonsense),
    }
}

fn told<'a>(pair: Pair, notification: &Notification<'_>, text: &'a str) -> Aside<'a> {
    match notifications::to_client(pair, &notification.method, text) {
        Ok(Told::On(text) | Told::Log(text)) => Aside::On(text),
        // Ids are the same on both sides.
        Ok(Told::Cancels) => Aside::On(Cow::Borrowed(text)),
        Ok(Told::Nowhere | Told::Subscriptions) => Aside::Nowhere,
        Err(error) => {
            tracing::debug!(%error, "a notification of the server is dropped");
            Aside::Nowhere
        }
    }
}

fn asked<'a>(session: &Session, pair: Pair, request: &Request<'_>, text: &'a str) -> Aside<'a> {
    // One that nobody knows is the client's to refuse.
    let Some(question) = ServerRequest::parse(&request.method) else { return Aside::On(Cow::Borrowed(text)) };
    let can = session.capsule.capabilities.as_deref().map(ClientCapabilities::read);
    let can = can.and_then(Result::ok).unwrap_or_default();
    match questions::request(pair.down(), question, text, &can) {
        Ok(text) => Aside::On(text),
        Err(why) => {
            let id = Some(request.id);
            Aside::Unasked(error::response(id, Code::InvalidParams, &why.to_string(), None))
        }
    }
}
