//! Takes a request to the replica that serves its session, and its answer back to the client.
//!
//! Whoever forwards has checked host, origin, credentials and sizes; it does not look into the message. The replica
//! that serves reads it, decides with its own configuration, and writes the audit line. Only where it cannot do that
//! any more, because it is gone, is there an error and an audit line from here.
//!
//! A request is read whole before it is forwarded, and only what comes back streams: as long as no byte of it was written to
//! one replica it can be taken to another, which what has gone through piece by piece cannot.

mod relay;

use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Response};
use http_body::Body as _;
use longshore_mcp::envelope;
use longshore_mcp::method::Method as McpMethod;
use longshore_mcp::revision::Revision;
use longshore_sessions::bounds::DECIDE;
use longshore_sessions::routing::{self, NotForwarded};
use longshore_sessions::{Peer, PodId};
use longshore_sidecar_config::{Config, Upstream};
use tokio::time::{Duration, timeout};

use super::respond::{self, Body};
use super::{Authenticated, Through, Trail, body, conversation, parked, standing, stream, tasks};
use crate::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};
use crate::metrics::Forward;
use crate::peers::{self, Failure, Notice, Sent};
use crate::refusal::Refusal;
use crate::sessions::{HELD, Place};
use crate::streamed_body::UnderWay;
use crate::upstream::{Form, starts};
use crate::whole_body::Gathered;
use crate::worker::Worker;
use relay::Elsewhere;
pub(crate) use relay::Relay;

/// How much later than the call itself the wait for it ends: the replica that serves it says better what happened.
const LATER: Duration = Duration::from_secs(5);
/// The least of a wait for a stream, which the other replica may have to begin the session again for, and ask for twice,
/// however short calls are.
const OPENS: Duration = Duration::from_secs(60);
/// Up to this size an answer that is one message is read whole before the client sees its head, so that a replica that
/// dies in the middle of it can still be answered for.
const HOLD: usize = 64 * 1024;

/// Returns when a stream is over that has no end of its own, and how.
type Ends = Pin<Box<dyn Future<Output = Over>>>;

/// How such a stream is over here.
pub(super) enum Over {
    /// Its client listens elsewhere.
    Elsewhere,
    /// It may not listen any more.
    Revoked,
}

/// What became of a request that was taken to another replica.
pub(crate) enum Forwarded {
    /// It is being answered.
    Answered(Response<Body>),
    /// It is not: nothing of it was served there.
    Not(NotForwarded),
}

/// Takes a request to `to`. The body is whole, so that it can be taken somewhere else after that, as it is where there is no
/// room for its session if `full` says who has none.
pub(crate) async fn forward(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    body: &Bytes,
    to: &Peer,
    full: Option<&[PodId]>,
    trail: &mut Trail,
) -> Result<Forwarded, Refusal> {
    // A stream that a client listens to has no end of its own, so none is to be waited for.
    // In sessions the header means nothing, and anybody could have said so of a call.
    let in_session = conversation::names_session(&caller.fields());
    let listens = !in_session
        && caller.header(METHOD).is_ok_and(|it| it == Some(McpMethod::SubscriptionsListen.as_str()));
    let is_get = caller.request.method() == Method::GET;
    let is_call = !is_get && !listens;
    let is_of_no_call = listens || is_get && stream::is_of_no_call(caller);
    // Whoever forwards holds a connection for each call, as it does for those that it serves.
    let place = place(worker, caller, is_call, body)?;
    let call = is_call.then(|| worker.shared.forwards.begin());
    let (counts, config) = (&worker.shared.metrics, &caller.snapshot.config);
    let usual = Duration::from_millis(config.limits.request_timeout_ms);
    let opening = worker.pool.opening_patience(config) + turns_there(config);
    // What a message is matters only where it may have a process of the server started, and takes longer for that.
    let opens = opening > usual && is_call && !in_session && body::shakes_hands(body);
    let longest = if opens { opening } else { usual };
    let limit = longest + LATER;
    let limit = if in_session { limit + until_found(worker, config) } else { limit };
    let limit = if is_get { limit.max(OPENS) } else { limit };
    let mut line = Elsewhere(Some(trail.entry.hand_over()));
    let sent = worker.peers.forward(caller, body.clone(), to, worker.shared.is_draining(), full);
    let Sent { response, lease } = match timeout(limit, sent).await {
        Ok(Ok(sent)) => sent,
        // Nothing was done there for a GET that could be done twice.
        Ok(Err(unanswered)) if !unanswered.written || is_get => {
            line.comes_back(trail);
            counts.forwarded(Forward::Unreachable);
            return Ok(Forwarded::Not(match unanswered.failure {
                Failure::Refused => NotForwarded::Refused,
                Failure::Broken if unanswered.written => NotForwarded::Broken,
                Failure::TimedOut | Failure::Broken | Failure::Declined => NotForwarded::Silent,
            }));
        }
        Err(_) if is_get => return Err(unanswered(worker, line, trail)),
        Ok(Err(_)) | Err(_) => return Err(lost(worker, body, line, trail)),
    };
    let (mut head, mut from) = response.into_parts();
    if let Some(notice) = Notice::read(head.status, &head.headers) {
        line.comes_back(trail);
        counts.forwarded(Forward::Moved);
        // Nothing follows it, so the connection is good for the next request.
        lease.give_back();
        return Ok(Forwarded::Not(match notice {
            Notice::OtherPod => NotForwarded::Moved(None),
            Notice::Moved(holder) => NotForwarded::Moved(holder),
            Notice::Full(next) => NotForwarded::Full(next),
        }));
    }
    // They are about the connection between the replicas.
    for name in [CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    let small = from.size_hint().exact().is_some_and(|size| size <= HOLD as u64);
    let events = is_events(&head.headers);
    let body = if small && !events {
        match timeout(limit, Gathered::whole(&mut from, HOLD)).await {
            Ok(Ok(bytes)) => {
                lease.give_back();
                Body::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
            }
            Ok(Err(_)) if is_get => {
                line.comes_back(trail);
                counts.forwarded(Forward::Unreachable);
                return Ok(Forwarded::Not(NotForwarded::Broken));
            }
            Err(_) if is_get => return Err(unanswered(worker, line, trail)),
            Ok(Err(_)) | Err(_) => return Err(lost(worker, body, line, trail)),
        }
    } else {
        Body::Relayed(Box::new(Relay {
            worker: worker.clone(),
            from,
            lease: Some(lease),
            events,
            last: b'\n',
            request: body.clone(),
            line,
            is_get,
            in_session,
            breaks: is_get && !knows_ends(caller),
            ends: (!is_call).then(|| Box::pin(heard_out(worker.clone(), caller.caller_alone())) as Ends),
            breaks_off: false,
            under_way: UnderWay::default(),
            _call: call,
            _place: place,
        }))
    };
    counts.forwarded(Forward::Answered);
    let response = Response::from_parts(head, body);
    Ok(Forwarded::Answered(if is_of_no_call { respond::of_no_call(response) } else { response }))
}

/// Returns when a client has to listen elsewhere, since this replica ends, or may not listen any more: which of its keys it
/// came with only this replica knows.
pub(super) async fn heard_out(worker: Rc<Worker>, caller: Authenticated) -> Over {
    tokio::select! {
        () = worker.stopped() => Over::Elsewhere,
        () = standing::revoked(worker.clone(), caller) => Over::Revoked,
    }
}

/// How long the other replica may take until it has a session, when the call's own time begins: it waits until that may go
/// elsewhere, finds out who has it, once more where all have passed it on, and shakes hands with its server, for which it
/// may have to wait until others have. One that is gone is not waited for so long (`peers::cut_the_silent`).
fn until_found(worker: &Worker, config: &Config) -> Duration {
    HELD + 2 * DECIDE + 2 * worker.pool.handshake_patience(&config.upstream) + turns_there(config)
}

/// How long a process of the server may wait there for its turn to start. How many are before it nobody knows here, so this
/// is the most.
fn turns_there(config: &Config) -> Duration {
    match config.upstream {
        Upstream::Stdio {} => starts::AT_MOST,
        Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => Duration::ZERO,
    }
}

/// Whether a client comes back to a stream that has ended. All do to one that has broken off, but newer ones take that for
/// an error, and tell of it.
pub(super) fn knows_ends(caller: &Authenticated) -> bool {
    let said = caller.header(PROTOCOL_VERSION).ok().flatten().and_then(Revision::parse);
    said.is_some_and(|revision| revision.features().ends)
}

/// Room for a request on its way to another replica.
fn place(worker: &Worker, caller: &Authenticated, is_call: bool, body: &Bytes) -> Result<Place, Refusal> {
    let rooms = &worker.shared.rooms;
    let take = |places| worker.shared.room(places, caller.principal(), &caller.snapshot.config);
    if *caller.request.method() == Method::DELETE {
        return take(&rooms.words);
    }
    // However many clients listen, others can call.
    if !is_call {
        return take(&rooms.listening);
    }
    // A message is looked at only where there is no room: it may be what makes some.
    take(&rooms.forwards).or_else(|full| if body::only_tells(body) { take(&rooms.words) } else { Err(full) })
}

/// Whether a request may be better served by any other replica: this one ends, and no replica has anything of it.
pub(crate) fn may_begin_elsewhere(worker: &Worker, caller: &Authenticated, body: &Bytes) -> bool {
    worker.shared.is_draining()
        && caller.through == Through::Client
        && !caller.request.headers().contains_key(SESSION_ID)
        && !parked::is_held(worker, body)
        && !tasks::is_held(worker, caller, body)
}

/// Whether a new session is better begun by a third replica: this one, to which it was taken, has begun to end since.
pub(crate) fn begins_no_session(worker: &Worker, caller: &Authenticated) -> bool {
    worker.shared.is_draining() && caller.through == Through::Replica
}

/// Says so to the replica that took it here.
pub(crate) fn not_begun(trail: &mut Trail) -> Response<Body> {
    trail.entry.hand_over().leave();
    peers::moved(None)
}

/// Takes such a request to a replica that goes on. None: there is none, and it stays here.
pub(crate) async fn begin_elsewhere(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<Option<Response<Body>>, Refusal> {
    let [mut first, mut full] = worker.shared.peers.serving();
    // What stands alone needs no place of a session. What does is taken where there is one, but by the time that it is
    // there, who had none may have one, and who had one may have gone.
    if !body::shakes_hands(body) {
        first.append(&mut full);
    }
    let forwards = worker.shared.metrics.forwards();
    // Each to another one, as they come.
    for part in [&mut first, &mut full] {
        let turn = forwards % part.len().max(1);
        part.rotate_left(turn);
    }
    for peer in first.into_iter().chain(full) {
        if let Forwarded::Answered(response) = forward(worker, caller, body, &peer, None, trail).await? {
            return Ok(Some(response));
        }
    }
    Ok(None)
}

/// The replica has not answered a GET, for so long that it is not asked for elsewhere in the same request.
fn unanswered(worker: &Worker, mut line: Elsewhere, trail: &mut Trail) -> Refusal {
    line.comes_back(trail);
    worker.shared.metrics.forwarded(Forward::Unreachable);
    Refusal::SessionOutOfReach(routing::Failure::Unreachable)
}

/// The replica was lost with the request.
fn lost(worker: &Worker, body: &Bytes, mut line: Elsewhere, trail: &mut Trail) -> Refusal {
    worker.shared.metrics.forwarded(Forward::Lost);
    if let Some(entry) = line.of_one_lost() {
        trail.entry = entry;
    }
    if let Ok(message) = envelope::read(body) {
        trail.note(&message);
    }
    Refusal::ReplicaLost
}

fn is_events(headers: &HeaderMap) -> bool {
    Form::of(headers) == Form::Events
}
