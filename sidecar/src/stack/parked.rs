//! Calls that wait for their clients: a client's next request goes to the replica that holds its call.

use std::rc::Rc;

use bytes::Bytes;
use http::Response;
use longshore_mcp::detect::Modern;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::meta::Outline;
use longshore_mcp::method::Method;
use longshore_mcp::revision::Revision;
use longshore_sessions::routing::{Failure, NotForwarded};
use longshore_sessions::{Peer, Question};

use super::forward::{self, Forwarded};
use super::respond::Body;
use super::{Authenticated, Through, Trail};
use crate::audit::Again;
use crate::peers::Failure as Unanswered;
use crate::refusal::Refusal;
use crate::upstream::asked_state;
use crate::worker::Worker;

/// The other replica that has what a request is about.
pub(crate) struct Holder {
    pub(crate) peer: Peer,
    /// Whether it is there again when the sidecar restarts: the server has it, and not the sidecar.
    pub(crate) outlives: bool,
}

/// Whether a request goes on with a call in which its client was asked something. Anybody could say so of any call, and most
/// say nothing.
pub(crate) fn again(worker: &Worker, caller: &Authenticated, outline: &Outline<'_>) -> Option<Again> {
    if !outline.goes_on() {
        return None;
    }
    if worker.pool.speaks().get().is_some_and(|spoken| spoken.modern.is_some()) {
        return Some(Again::Claimed);
    }
    let state = outline.request_state().ok().flatten()?;
    worker.shared.legacy_as_modern.has_asked(caller.principal(), &state).then_some(Again::Known)
}

/// The other replica that holds the call which a request goes on with. None: it is served here, if only to say that there
/// is no such call any more.
pub(crate) fn holder(worker: &Worker, caller: &Authenticated, modern: &Modern<'_>) -> Option<Holder> {
    let state = asked_state(modern.method, &modern.outline)?;
    let peer = worker.shared.legacy_as_modern.elsewhere(&state)?;
    let (Through::Client, Some(_)) = (caller.through, &caller.snapshot.replicas) else { return None };
    // Otherwise the call went with it.
    (!worker.shared.peers.is_gone(&peer)).then_some(Holder { peer, outlives: false })
}

/// Takes a request there. None: it is served here after all.
pub(crate) async fn go_on(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    holder: Holder,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<Option<Response<Body>>, Refusal> {
    let Holder { peer, outlives } = holder;
    let peer = worker.shared.peers.located(peer);
    let silent = || Refusal::SessionOutOfReach(Failure::Unreachable);
    let refused = || if outlives { Err(silent()) } else { Ok(None) };
    // What it holds goes on while nobody hears it, and may not be begun a second time.
    if !worker.shared.peers.lives(&peer.pod) {
        match worker.shared.peers.ask(peer.address, Question::Heartbeat).await {
            Ok(word) if word.from.pod == peer.pod => {}
            Ok(_) => return Ok(None),
            Err(Unanswered::Refused) => return refused(),
            Err(Unanswered::TimedOut | Unanswered::Broken | Unanswered::Declined) => return Err(silent()),
        }
    }
    match forward::forward(worker, caller, body, &peer, None, trail).await? {
        Forwarded::Answered(response) => Ok(Some(response)),
        Forwarded::Not(NotForwarded::Silent | NotForwarded::Broken) => Err(silent()),
        Forwarded::Not(NotForwarded::Refused) => refused(),
        Forwarded::Not(NotForwarded::Moved(_) | NotForwarded::Full(_)) => Ok(None),
    }
}

/// Whether a request goes on with a call that is held here, or at a replica that is there: no other could serve it.
pub(crate) fn is_held(worker: &Worker, body: &[u8]) -> bool {
    let Ok(Message::Request(request)) = envelope::read(body) else { return false };
    let method = Method::of(Revision::V2026_07_28, &request.method);
    let (Some(method), Ok(outline)) = (method, Outline::read(request.params)) else { return false };
    let Some(state) = asked_state(method, &outline) else { return false };
    let legacy_as_modern = &worker.shared.legacy_as_modern;
    legacy_as_modern.holds(&state)
        || legacy_as_modern.elsewhere(&state).is_some_and(|peer| !worker.shared.peers.is_gone(&peer))
}
