//! A modern server (of 2026-07-28) served to legacy clients (with sessions). Towards them it is a server over
//! Streamable HTTP, of whichever older revision each of them asks for: `initialize` begins a session, a POST is a message, a
//! GET hears what belongs to no call, a DELETE ends the session. The server itself sees requests that stand alone.
//!
//! What a session is, is kept here, since the server keeps nothing: what the client can do, its log level, what it wants
//! to hear of. All of that is in the sidecar's session id and in the copy of another replica too, so that any replica
//! can begin the session again.
//!
//! * [`session`]: what is known of one session, and [`registry`]: all of them;
//! * [`mod@open`]: how one begins; [`local`]: what the server never hears of;
//! * [`call`]: one call, with the questions that the server asks back; [`listen`]: what belongs to no call;
//! * [`way`]: how requests get to the server, and [`source`] what comes back; [`tools`]: what is remembered of tools.

mod call;
mod listen;
mod local;
mod open;
mod registry;
mod session;
mod source;
mod tools;
mod way;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use longshore_mcp::envelope::{self, Message, Outcome};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_sessions::bounds::MAX_SUBSCRIPTION;
use longshore_sidecar_config::Upstream;
use thiserror::Error;

use super::{Answer, Body, Failure as Any, Letter, NoRoom, Post, Speaks, Transport};
pub(super) use open::{Opened, may_be_modern, open};
pub(crate) use registry::ModernAsLegacy;
use session::Session;
use way::Way;

/// Why a message in such a session got no answer.
#[derive(Clone, Copy, Debug, Error)]
pub(crate) enum Failure {
    /// The client does not want the answer any more.
    #[error("the call was cancelled by its client")]
    Cancelled,
    /// The session was ended meanwhile.
    #[error("the session was ended while the call was under way")]
    Ended,
    /// There is no such session, or the server has become one that it was not begun with.
    #[error("the session is not known any more")]
    Forgotten,
    /// The server stopped in the middle of its answer.
    #[error("the server broke the connection off")]
    BrokenOff,
    /// It has not said in time that it has understood.
    #[error("the server did not say that it has understood")]
    Late,
    /// What it said is larger than what is read as a whole.
    #[error("the server's answer is too large")]
    TooLarge,
    /// Large answers are held, and there is no room for this one.
    #[error("there is no room for the server's answer")]
    NotHeld,
    /// What a client says of itself and is subscribed to is kept with its session, and there is no room for so much.
    #[error("there is no room for what the client says of itself, or for one more subscription")]
    NotKept,
    /// There is no room for the request.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// What it said is no answer.
    #[error("the server's answer is none")]
    Nonsense,
    /// It answered with an error of HTTP alone.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// The session has as many subscriptions as it may.
    #[error("there are too many subscriptions")]
    TooManySubscriptions,
    /// The URI is longer than another replica would keep it.
    #[error("a subscription may name a resource by a URI of {MAX_SUBSCRIPTION} bytes at most")]
    LongSubscription,
    /// A request with its id is under way.
    #[error("the id is in use")]
    IdInUse,
    /// As many answers of clients are waited for as may be.
    #[error("too many calls wait for answers of their clients")]
    TooManyQuestions,
    /// The system gives no random numbers.
    #[error("there are no random numbers")]
    NoNumbers,
}

/// Sends a message in a session.
pub(super) async fn send(
    modern_as_legacy: &Arc<ModernAsLegacy>,
    transport: &Rc<Transport>,
    speaks: &Arc<Speaks>,
    upstream: &Upstream,
    session: Arc<Session>,
    letter: Letter,
) -> Result<Answer, Any> {
    let way = |session, trace| Way::new(modern_as_legacy, transport, speaks, upstream, session, trace);
    match letter {
        Letter::Post(_, Post { body, trace, .. }) => post(way(session, trace), body).await,
        Letter::Stream(..) => listen::listen(way(session, None)).await,
        Letter::End(..) => {
            modern_as_legacy.end(session.name);
            Ok(Answer::empty(StatusCode::NO_CONTENT))
        }
    }
}

async fn post(way: Way, body: Bytes) -> Result<Answer, Any> {
    let Ok(message) = envelope::read(&body) else { return Ok(Answer::empty(StatusCode::BAD_REQUEST)) };
    match message {
        Message::Request(request) => {
            let text = std::str::from_utf8(&body).map_err(|_| Failure::Nonsense)?;
            return call::call(way, &request, text).await;
        }
        Message::Notification(notification) => {
            let text = std::str::from_utf8(&body).map_err(|_| Failure::Nonsense)?;
            if let Told::Cancels = notifications::to_server(way.session.pair, &notification.method, text) {
                way.session.cancel(text);
            }
        }
        Message::Response(response) => {
            let outcome = match response.outcome {
                Outcome::Result(result) => Ok(result.get().to_owned()),
                Outcome::Error(error) => Err(error.get().to_owned()),
            };
            if let Some(id) = response.id {
                way.session.answered(id, outcome);
            }
        }
    }
    // The server has no use for anything else: whatever it would have told a session is in the next request.
    Ok(Answer::empty(StatusCode::ACCEPTED))
}

/// An answer of one message.
fn message(text: impl Into<Bytes>) -> Answer {
    Answer::of(Body::Whole(Some(text.into())))
}
