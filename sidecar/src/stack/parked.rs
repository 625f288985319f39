//! Calls that wait for their clients: a client's next request goes to the replica that holds its call.

use std::rc::Rc;

use bytes::Bytes;
use http::Response;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::meta::Outline;
use longshore_sessions::Peer;
use longshore_sessions::routing::{Failure, NotForwarded};

use super::forward::{self, Forwarded};
use super::respond::Body;
use super::{Authenticated, Through, Trail};
use crate::rescue::Refusal;
use crate::worker::Worker;

/// The other replica that holds the call which a request goes on with. None: it is served here, if only to say that there
/// is no such call any more.
pub(crate) fn holder(worker: &Worker, caller: &Authenticated, outline: &Outline<'_>) -> Option<Peer> {
    let state = outline.request_state().ok().flatten()?;
    let holder = worker.shared.lifted.elsewhere(&state)?;
    let (Through::Client, Some(_)) = (caller.through, &caller.snapshot.replicas) else { return None };
    // Otherwise the call went with it.
    let lives = worker.shared.peers.alive().iter().any(|(peer, _)| peer.pod == holder.pod);
    lives.then_some(holder)
}

/// Takes a request there. None: it is served here after all.
pub(crate) async fn go_on(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    holder: &Peer,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<Option<Response<Body>>, Refusal> {
    match forward::forward(worker, caller, body, holder, trail).await? {
        Forwarded::Answered(response) => Ok(Some(response)),
        Forwarded::Not(NotForwarded::Silent) => Err(Refusal::SessionOutOfReach(Failure::Unreachable)),
        Forwarded::Not(NotForwarded::Refused | NotForwarded::Moved(_)) => Ok(None),
    }
}

/// Whether a request goes on with a call that is held here: no other replica could serve it.
pub(crate) fn is_held_here(worker: &Worker, body: &[u8]) -> bool {
    let Ok(Message::Request(request)) = envelope::read(body) else { return false };
    let state = Outline::read(request.params).ok().and_then(|outline| outline.request_state().ok().flatten());
    state.is_some_and(|state| worker.shared.lifted.holds(&state))
}
