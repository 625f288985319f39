//! In which session a message is, and which replica serves it.

use std::rc::Rc;

use bytes::Bytes;
use http::{Method as HttpMethod, Response};
use longshore_mcp::batch::Batch;
use longshore_mcp::envelope::{self, Malformed, Message};
use longshore_mcp::method::Method;
use longshore_sessions::routing::{Entry, Outcome};
use longshore_sessions::{Question, SessionKey};

use super::body::only_tells;
use super::respond::{self, Body};
use super::{Authenticated, Through, Trail, conversation, forward};
use crate::drain;
use crate::exchange;
use crate::headers::{LAST_EVENT_ID, SESSION_ID};
use crate::metrics::SessionEnd;
use crate::peers;
use crate::refusal::{Kind, Refusal};
use crate::sessions::{self, Purpose, Use, Way};
use crate::worker::Worker;

/// A session in use by a message.
pub(crate) type InSession = Use;

/// Where a message is served.
pub(crate) enum Found {
    /// Here, in this session, if it names one.
    Here(Option<InSession>),
    /// By another replica: this is its response, or the notice that it is not here.
    Elsewhere(Response<Body>),
}

/// Finds the session of a message or of a GET, and takes it to the replica that serves it.
pub(crate) async fn find(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<Found, Refusal> {
    let Some(id) = caller.header(SESSION_ID)? else { return Ok(Found::Here(None)) };
    if drain::takes_no_calls(&worker.shared) && is_call(body) {
        // The drain waits for it: it is still to go elsewhere.
        let _waits = worker.shared.forwards.begin();
        sessions::let_go(worker, &caller.snapshot, caller.principal(), id).await?;
    }
    // What is in a batch waits by itself. But no client begins anew because of errors that are the answers in one.
    if drain::takes_no_calls(&worker.shared) && holds_calls(body) {
        sessions::goes_on(worker, &caller.snapshot, caller.principal(), id)?;
    }
    let is_left =
        || caller.through == Through::Replica && drain::leaves_calls(&worker.shared) && is_call(body);
    Ok(match search(worker, caller, id, Purpose::Use, body, trail).await? {
        Way::Here(_) if is_left() => {
            Found::Elsewhere(elsewhere(Way::Moved(Some(worker.shared.sessions.me())), trail)?)
        }
        Way::Here(session) => Found::Here(Some(session)),
        way => Found::Elsewhere(elsewhere(way, trail)?),
    })
}

/// Whether a message is a call that may take long. Answers to the server and the like belong to calls that are under way,
/// and a client that hears nothing of a ping gives those up. Batches go with what they may hold of that.
fn is_call(body: &[u8]) -> bool {
    envelope::read(body).is_ok_and(|message| calls(&message))
}

/// Whether it is a batch with such calls in it.
fn holds_calls(body: &[u8]) -> bool {
    let is_batch = matches!(envelope::read(body), Err(Malformed::Batch));
    is_batch && Batch::read(body).is_ok_and(|batch| batch.iter().any(|(message, _)| calls(message)))
}

fn calls(message: &Message<'_>) -> bool {
    matches!(message, Message::Request(request) if !request.is(Method::Ping))
}

/// Ends a session, because its client says so.
pub(crate) async fn end(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    trail: &mut Trail,
) -> Result<Response<Body>, Refusal> {
    // Clients take 200 for the end of it.
    trail.kind = Kind::Other;
    let id = caller.header(SESSION_ID)?.ok_or(Refusal::NoSession)?;
    // Before anybody looks for it: one that nobody holds is ended by being found so.
    if let Some(revision) = sessions::revision_of(worker, &caller.snapshot, caller.principal(), id) {
        conversation::agrees(caller, revision, trail)?;
    }
    let way = match search(worker, caller, id, Purpose::End, &Bytes::new(), trail).await {
        // Nobody knows whether the other replica has noted it.
        Err(Refusal::ReplicaLost) => return end_lost(worker, caller, id, trail).await,
        way => way?,
    };
    match way {
        Way::Here(session) => {
            trail.entry.permit(None);
            // Here first: whatever the server says, nobody can use it any more.
            worker.shared.sessions.end(&session, SessionEnd::Deleted);
            let told = tell(worker, session.capsule.key);
            let ((), told) =
                tokio::join!(exchange::end_upstream(&worker.pool, &caller.snapshot, &session), told);
            told?;
        }
        Way::Nowhere(capsule, take) => {
            trail.entry.permit(None);
            let (pool, snapshot) = (&worker.pool, &caller.snapshot);
            let ended = sessions::end_former(pool, snapshot, caller.principal(), &capsule, take);
            let ((), told) = tokio::join!(ended, tell(worker, capsule.key));
            told?;
        }
        way => return elsewhere(way, trail),
    }
    Ok(respond::nothing())
}

/// Ends a session that another replica was to end, which was lost with the request.
async fn end_lost(
    worker: &Worker,
    caller: &Authenticated,
    id: &str,
    trail: &mut Trail,
) -> Result<Response<Body>, Refusal> {
    let key = sessions::end_elsewhere(worker, &caller.snapshot, caller.principal(), id)?;
    trail.entry.permit(None);
    tell(worker, key).await?;
    Ok(respond::nothing())
}

/// Tells the other replicas that a session is ended, before its client hears that it is. One that is down learns it
/// before it serves again, and one that cannot be reached from those that were told; but somebody has to know it beside
/// this one.
async fn tell(worker: &Worker, key: SessionKey) -> Result<(), Refusal> {
    let Some((tombstone, peers)) = worker.shared.sessions.ending(&key) else { return Ok(()) };
    let outcomes = worker.shared.peers.ask_all(&peers, &Question::Ended(vec![tombstone])).await;
    let noted = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Said(_)));
    let unsure = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Silent | Outcome::Declined));
    if noted || !unsure { Ok(()) } else { Err(Refusal::EndNotNoted) }
}

async fn search(
    worker: &Rc<Worker>,
    caller: &Authenticated,
    id: &str,
    purpose: Purpose,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<Way, Refusal> {
    let (entry, full) = match caller.through {
        Through::Client | Through::Within => (Entry::Client, Some(Vec::new())),
        Through::Replica => (Entry::Forwarded, peers::without_room(caller.request.headers())),
    };
    let forward = async |peer: &_, full: Option<&_>| {
        // To find it may have taken its time.
        caller.check_still(worker)?;
        forward::forward(worker, caller, body, peer, full, trail).await
    };
    // A client that has lost the stream of a call comes back to it.
    let resumes =
        || caller.request.method() == HttpMethod::GET && caller.request.headers().contains_key(LAST_EVENT_ID);
    let how = ((entry, full), purpose, || only_tells(body) || resumes());
    sessions::find(worker, &caller.snapshot, caller.principal(), id, how, forward).await
}

/// What a request is answered with that is not served here.
fn elsewhere(way: Way, trail: &mut Trail) -> Result<Response<Body>, Refusal> {
    match way {
        Way::Answered(response) => Ok(response),
        Way::Moved(hint) => {
            // The replica that serves it writes the audit line.
            trail.entry.hand_over().leave();
            Ok(peers::moved(hint))
        }
        Way::Full(next) => {
            trail.entry.hand_over().leave();
            Ok(peers::full(next))
        }
        Way::Here(_) | Way::Nowhere(..) | Way::HandOn(..) => Err(Refusal::Internal),
    }
}
