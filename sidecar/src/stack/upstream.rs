//! Hands an authorised message to the server and gives back what the client gets.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http::Response;
use longshore_mcp::envelope::Message;
use longshore_mcp::params::Params;

use super::Trail;
use super::access::{Asks, Authorised};
use super::respond::{self, Body};
use super::translate::Outgoing;
use crate::exchange::{self, Begun, Call, Edit};
use crate::refusal::Refusal;
use crate::sessions::Alias;
use crate::tasks::Naming;
use crate::upstream::{Known, letter};
use crate::worker::Worker;

/// What a client has said, and how the server hears it.
pub(crate) struct Said {
    pub(crate) body: Bytes,
    pub(crate) outgoing: Outgoing,
    /// See [`known`].
    pub(crate) known: Option<Known>,
}

/// What became of a message.
pub(crate) enum Sent {
    /// The server hears nothing of it.
    Answered(Response<Body>),
    /// It is on its way.
    Begun(Begun),
}

impl Sent {
    /// The response, once its head is there.
    pub(crate) async fn response(self) -> Response<Body> {
        match self {
            Self::Answered(response) => response,
            Self::Begun(begun) => begun.response().await,
        }
    }
}

/// What a message is that was read already, if the server hears just that.
pub(crate) fn known(
    authorised: &Authorised,
    message: &Message<'_>,
    params: &Params<'_>,
    outgoing: &Outgoing,
    body: &[u8],
) -> Option<Known> {
    match outgoing {
        Outgoing::AsItIs => Known::of(&authorised.snapshot.config.upstream, body, message, params),
        Outgoing::Rewritten(_) => None,
    }
}

/// Sends the message. The exchange with the server goes on when the client disconnects: in the revisions that are served
/// here a disconnect cancels nothing.
pub(crate) fn send(
    worker: &Rc<Worker>,
    authorised: Authorised,
    Said { body, outgoing, known }: Said,
    naming: Option<Naming>,
    alias: Option<Alias>,
    trail: &mut Trail,
) -> Result<Sent, Refusal> {
    let body = match outgoing {
        Outgoing::AsItIs => body,
        Outgoing::Rewritten(text) => {
            // What the client sent stops counting before what takes its place begins to.
            drop(body);
            let (principal, text) = (&authorised.caller.principal, Bytes::from(text));
            let held = worker.shared.held.hold(principal, text.clone());
            let told = || match &authorised.asks {
                Asks::Nothing { .. } => worker.shared.told.hold(principal, text),
                _ => None,
            };
            held.or_else(told).ok_or(Refusal::TooMuchHeld)?
        }
    };
    let Authorised { snapshot, caller, headers, asks, .. } = authorised;
    let mut change = None;
    if let Asks::Answer { session, .. } = &asks {
        // Before the server hears of a call whose answer could not be given.
        let limit = snapshot.config.sessions.streams;
        if session.streams.is_full(limit) {
            return Err(Refusal::TooManyStreams { limit });
        }
    }
    let (mut asked, mut telling) = (None, None);
    let (session, edit) = match asks {
        Asks::Ignored => {
            let response = respond::accepted();
            trail.entry.answered(response.status().as_u16(), None);
            return Ok(Sent::Answered(response));
        }
        Asks::Handshake if worker.shared.is_draining() => return Err(Refusal::Draining),
        Asks::Handshake => (None, Edit::OpenSession),
        Asks::Answer { session, method, list, change: sets } => {
            (asked, change) = (Some(method), sets);
            (Some(session), list.map_or(Edit::Pass, Edit::Filter))
        }
        Asks::Nothing { session, telling: tells } => {
            telling = tells;
            (Some(session), Edit::Tell)
        }
    };
    // A client may leave its calls behind, and they go on; each holds a connection to the server.
    let rooms = &worker.shared.rooms;
    let room = if edit == Edit::Tell { &rooms.words } else { &rooms.calls };
    let place = worker.shared.room(room, &caller.principal, &snapshot.config)?;
    let call = Call {
        worker: worker.clone(),
        snapshot,
        caller,
        session,
        within: RefCell::default(),
        method: asked,
        edit,
        change,
        telling,
        naming,
        trace: letter::trace(&headers),
        body,
        known,
        id: trail.id.clone(),
        alias,
        revision: trail.revision,
        entry: trail.entry.hand_over(),
    };
    Ok(Sent::Begun(exchange::begin(call, place)))
}
