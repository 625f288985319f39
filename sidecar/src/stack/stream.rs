//! A GET: a client that wants to hear what belongs to no call, or the rest of a stream that it has lost.

use std::rc::Rc;

use bytes::Bytes;
use futures::stream::{self, TryStreamExt};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Duration, sleep};

use super::forward::{Over, heard_out, knows_ends};
use super::pump::kept_alive;
use super::respond::{self, Body};
use super::{Authenticated, Through, Trail, conversation, session};
use crate::exchange::{self, is_absence};
use crate::headers::LAST_EVENT_ID;
use crate::refusal::{Kind, Refusal};
use crate::sessions::Place;
use crate::streamed_body::BrokenOff;
use crate::streams;
use crate::upstream::Form;
use crate::worker::Worker;

/// After how long a session is looked for again whose server is not there to begin it again: at first, and at most.
const SOON: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(10);

/// Opens the stream, which needs no rule: the server speaks in a session whose client was let in, and what a call is
/// answered with was decided on when it was made. News of resources and tasks is decided on as it comes.
pub(crate) async fn open(
    worker: &Rc<Worker>,
    caller: Authenticated,
    trail: &mut Trail,
) -> Result<Response<Body>, Refusal> {
    trail.kind = Kind::Other;
    match session::find(worker, &caller, &Bytes::new(), trail).await {
        // That says nothing of the session, and its client need not know, as where the server goes later.
        Err(refusal) if is_absence(&refusal) => {
            tracing::debug!(
                reason = refusal.reason(),
                "a stream waits for the server to begin its session again"
            );
            let response = open_late(worker, &caller)?;
            trail.entry.permit(None);
            Ok(if is_of_no_call(&caller) { respond::of_no_call(response) } else { response })
        }
        found => listen(worker, caller, found?, trail).await,
    }
}

/// Whether a GET is for what belongs to no call, as far as can be told without its session.
pub(super) fn is_of_no_call(caller: &Authenticated) -> bool {
    caller.header(LAST_EVENT_ID).is_ok_and(|last| last.is_none_or(streams::says_of_no_call))
}

async fn listen(
    worker: &Rc<Worker>,
    caller: Authenticated,
    found: session::Found,
    trail: &mut Trail,
) -> Result<Response<Body>, Refusal> {
    let session = match found {
        session::Found::Here(session) => session.ok_or(Refusal::NoSession)?,
        session::Found::Elsewhere(response) => return Ok(response),
    };
    conversation::agrees(&caller, session.revision, trail)?;
    // Those who come here themselves have places of their own.
    let place = match caller.through {
        Through::Client | Through::Within => None,
        Through::Replica => {
            let (shared, config) = (&worker.shared, &caller.snapshot.config);
            Some(shared.room(&shared.rooms.heard, caller.principal(), config)?)
        }
    };
    trail.entry.permit(None);
    let mut response = exchange::listen(worker, caller, session).await.inspect_err(|refusal| {
        // It is the call that has this answer.
        if let Refusal::AnswerGone { request, .. } = refusal {
            (trail.id, trail.kind) = (Some(request.to_string()), Kind::Request);
        }
    })?;
    if let Body::Events(reader) = response.body_mut() {
        reader.takes(place);
    }
    Ok(response)
}

/// Opens it before there is anything to hear. No session counts it yet, so it is one of those that are heard elsewhere.
fn open_late(worker: &Rc<Worker>, caller: &Authenticated) -> Result<Response<Body>, Refusal> {
    let shared = &worker.shared;
    let place = shared.room(&shared.rooms.listening, caller.principal(), &caller.snapshot.config)?;
    let begun = stream::once(begin_late(worker.clone(), caller.kept(), place));
    let pieces = begun.map_ok(Body::into_data_stream).try_flatten();
    Ok(respond::events(Body::Live(Box::pin(kept_alive(Box::pin(pieces)))), None))
}

/// What is heard in it from then on. Where that is nothing its client comes back, and hears what is the matter.
async fn begin_late(worker: Rc<Worker>, caller: Authenticated, _place: Place) -> Result<Body, BrokenOff> {
    let comes_back = knows_ends(&caller);
    let over = heard_out(worker.clone(), caller.caller_alone());
    let response = tokio::select! {
        over = over => match over {
            Over::Revoked => return Ok(Body::empty()),
            Over::Elsewhere => None,
        },
        response = listen_late(&worker, caller) => response.ok(),
    };
    let is_stream = |response: &Response<Body>| {
        response.status() == StatusCode::OK && Form::of(response.headers()) == Form::Events
    };
    match response.filter(is_stream) {
        Some(response) => Ok(response.into_body()),
        None if comes_back => Ok(Body::empty()),
        None => Err(BrokenOff),
    }
}

async fn listen_late(worker: &Rc<Worker>, mut caller: Authenticated) -> Result<Response<Body>, Refusal> {
    let mut trail = Trail::new(worker);
    // The line of this request is written.
    trail.entry.hand_over().leave();
    let mut pause = SOON;
    loop {
        sleep(pause).await;
        caller = caller.still(worker)?;
        match session::find(worker, &caller, &Bytes::new(), &mut trail).await {
            Err(refusal) if is_absence(&refusal) => pause = LATEST.min(pause * 2),
            found => return listen(worker, caller, found?, &mut trail).await,
        }
    }
}
