//! The point where a client's message becomes one of the server's revision. Within a session both sides have one with
//! sessions; what an era asks of the other is done behind the server's two faces (`upstream`).

use std::borrow::Cow;

use longshore_mcp::envelope::{Malformed, Message};
use longshore_mcp::error::{self, Code};
use longshore_mcp::initialize;
use longshore_mcp::method::{Method, ServerRequest};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::requests::{self, Client};
use longshore_mcp::translate::{Pair, Untranslatable, Way, handshake, questions};

use super::Trail;
use super::access::{Asks, Authorised};
use crate::SERVED;
use crate::refusal::Refusal;
use crate::upstream::Speaks;

/// What goes to the server.
pub(crate) enum Outgoing {
    /// The client's own bytes.
    AsItIs,
    /// Other ones.
    Rewritten(String),
}

impl Outgoing {
    /// The message, of a client's that is this.
    pub(super) fn text<'a>(&'a self, body: &'a [u8]) -> Result<&'a str, Refusal> {
        match self {
            Self::AsItIs => std::str::from_utf8(body).map_err(|_| Refusal::Malformed(Malformed::NotJson)),
            Self::Rewritten(text) => Ok(text),
        }
    }
}

/// Makes the server's message of a client's.
pub(crate) fn translate(
    authorised: &Authorised,
    message: &Message<'_>,
    body: &[u8],
    speaks: &Speaks,
    trail: &mut Trail,
) -> Result<Outgoing, Refusal> {
    let text = || std::str::from_utf8(body).map_err(|_| Refusal::Malformed(Malformed::NotJson));
    let session = match &authorised.asks {
        Asks::Handshake => return offer(text()?, authorised.snapshot.protocol, speaks, trail),
        Asks::Answer { session, .. } | Asks::Nothing { session, .. } => session,
        Asks::Ignored => return Ok(Outgoing::AsItIs),
    };
    let pair = Pair { client: session.revision, server: session.server_revision };
    if pair.is_same() {
        return Ok(Outgoing::AsItIs);
    }
    let said = match message {
        Message::Request(request) => {
            let method = Method::parse(&request.method);
            requests::request(pair, method, text()?, &Client { capabilities: "{}", info: None, level: None })?
        }
        Message::Response(answer) => response(pair.up(), text()?).unwrap_or_else(|why| {
            // The server waits for an answer, and no other will come.
            tracing::debug!(%why, "a client's answer is an error for its server");
            Cow::Owned(error::response(answer.id, Code::InternalError, &why.to_string(), None))
        }),
        // Within the era of sessions they are the same in all revisions.
        Message::Notification(_) => return Ok(Outgoing::AsItIs),
    };
    Ok(match said {
        Cow::Borrowed(_) => Outgoing::AsItIs,
        Cow::Owned(text) => Outgoing::Rewritten(text),
    })
}

/// A handshake for the server. The client gets the revision that it asks for; the server is asked for the same, or for
/// its newest if that is older. One that is to be spoken to in a single revision is asked for no other.
fn offer(text: &str, pin: Option<Revision>, speaks: &Speaks, trail: &mut Trail) -> Result<Outgoing, Refusal> {
    let offer = initialize::offer(text, &SERVED).map_err(Refusal::Handshake)?;
    trail.revision = offer.revision;
    let newest = speaks.get().and_then(|spoken| spoken.legacy);
    let pin = pin.filter(|pin| pin.features().handshake);
    let to = pin.unwrap_or_else(|| newest.map_or(offer.revision, |newest| newest.min(offer.revision)));
    let said =
        handshake::offer(Way { from: offer.revision, to }, offer.rewritten.as_deref().unwrap_or(text))?;
    Ok(match (said, &offer.rewritten) {
        (Cow::Borrowed(_), None) => Outgoing::AsItIs,
        (said, _) => Outgoing::Rewritten(said.into_owned()),
    })
}

/// A client's answer to what the server asked. Only one of sampling is not the same in all revisions, and such a one
/// is known by its members.
fn response(way: Way, text: &str) -> Result<Cow<'_, str>, Untranslatable> {
    const SAMPLING: ServerRequest = ServerRequest::SamplingCreateMessage;
    let result = longshore_mcp::object::at(text, &["result"]);
    if result.is_some_and(|result| questions::is_answer(SAMPLING, result)) {
        return questions::response(way, SAMPLING, text);
    }
    Ok(Cow::Borrowed(text))
}

/// The revision that a server has chosen in a handshake, if it is one of those that have it.
pub(crate) fn chosen(version: &str) -> Option<Revision> {
    Revision::parse(version).filter(|revision| revision.features().handshake)
}
