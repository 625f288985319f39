//! The limit of busy connections of one caller, so that others find some. Those of other replicas are no caller's: what comes
//! by way of one was judged there.
//!
//! What a client takes a call back with, or answers the server, has some more room, and so has the end of a session: that is
//! what makes room.

use bytes::Bytes;
use http::Method;
use longshore_mcp::detect::Conversation;
use longshore_mcp::envelope::Message;
use longshore_sidecar_config::Auth;

use super::{Authenticated, Trail, body, conversation};
use crate::refusal::{Kind, Refusal};

/// From now on the connection counts as its caller's, if callers are told from each other.
pub(super) fn enter(caller: &Authenticated, trail: &Trail) {
    if let Some(place) = trail.place.as_ref().filter(|_| caller.snapshot.config.auth != Auth::None) {
        place.is_called_on_by(caller.principal());
    }
}

/// Refuses to have one more connection listened on, or a session ended on one that is too many for that too.
pub(super) fn asks(caller: &Authenticated, trail: &mut Trail) -> Result<(), Refusal> {
    let method = caller.request.method();
    if *method != Method::GET && *method != Method::DELETE {
        return Ok(());
    }
    judge(trail, *method == Method::DELETE).inspect_err(|_| {
        trail.kind = Kind::Other;
        trail.entry.method(method.as_str());
    })
}

/// Refuses a message for which there is one connection too many. It is read, so that its client hears what is refused.
pub(super) fn says(caller: &Authenticated, body: &Bytes, trail: &mut Trail) -> Result<(), Refusal> {
    let Err(refusal) = judge(trail, false) else { return Ok(()) };
    if body::only_tells(body) && judge(trail, true).is_ok() {
        return Ok(());
    }
    match conversation::with_body(&caller.fields(), body, trail)? {
        Conversation::Modern(modern) => {
            trail.revision = modern.revision;
            trail.note_request(&modern.request);
        }
        Conversation::Handshake(request) => trail.note(&Message::Request(request)),
        Conversation::Session(message) => trail.note(&message),
        Conversation::SessionBatch(_) => {
            trail.kind = Kind::Other;
            trail.entry.method("batch");
        }
        Conversation::ModernNotification | Conversation::Stream | Conversation::End => {
            trail.kind = Kind::Other;
        }
    }
    Err(refusal)
}

/// Refuses what there is one connection too many for, by now.
pub(super) fn judge(trail: &Trail, makes_room: bool) -> Result<(), Refusal> {
    match trail.place.as_ref().and_then(|place| place.exceeds(makes_room)) {
        Some(limit) => {
            Err(Refusal::TooManyOwnConnections { limit: u32::try_from(limit).unwrap_or(u32::MAX) })
        }
        None => Ok(()),
    }
}
