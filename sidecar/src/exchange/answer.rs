//! What comes back from the server.

use std::borrow::Cow;
use std::pin::pin;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use longshore_mcp::pieces::IdInPieces;
use tokio::time::timeout_at;

use super::client::Client;
use super::deadline::Deadline;
use super::edit::{Edited, edit};
use super::events::{events, first_answer};
use super::opening::{self, Opening};
use super::{Call, Done, Edit, request};
use crate::held::Share;
use crate::refusal::Refusal;
use crate::stack::respond::{self, Body};
use crate::upstream::call::Matched;
use crate::upstream::forgotten::{self, Says};
use crate::upstream::{self, Answer, EDITABLE, Form, Lease, Tail};
use crate::whole_body::Gathered;

/// Up to this size a message is whole before its response begins, so that a server that dies in the middle of it can
/// still be answered for. No client can use half a message anyway.
pub(super) const HOLD: usize = 64 * 1024;

/// Sends the call and gives the client what comes back.
pub(super) async fn answer(
    call: &mut Call,
    client: &mut Client,
    deadline: Deadline,
) -> Result<Done, Refusal> {
    let shared = call.worker.shared.clone();
    let place = match call.edit {
        Edit::OpenSession => Some(shared.sessions.reserve(&call.caller.principal, &call.snapshot)?),
        Edit::Pass | Edit::Filter(_) | Edit::Tell => None,
    };
    let (Answer { status, also, body, lease }, hold) = {
        let sent = pin!(request::send(call));
        client.wait(call, deadline, sent).await??
    };
    let ended = if status.is_success() {
        if call.edit == Edit::Tell {
            Tail::of(body, lease).leave();
            client.respond(respond::accepted());
            return Ok(Done { status: StatusCode::ACCEPTED.as_u16(), code: None, rest: None });
        }
        let opening = place.map(|place| Opening::new(place, also, hold));
        match (opening, body.form()) {
            (Some(opening), _) => Box::pin(open(call, client, opening, body, lease, deadline)).await?,
            (None, Form::Json) => return message(call, client, body, lease, deadline).await,
            (None, Form::Events) => return events(call, client, body, lease, deadline).await,
            (None, Form::Other) => return Err(Refusal::ServerNonsense),
        }
    } else {
        let ended = Box::pin(failed(call, client, status, body, lease, deadline)).await?;
        // Before another attempt needs as much.
        drop((place, hold));
        ended
    };
    match ended {
        Ended::Done(done) => Ok(*done),
        Ended::Again(body) => {
            call.body = body;
            Box::pin(answer(call, client, deadline)).await
        }
    }
}

/// How an attempt ended.
enum Ended {
    Done(Box<Done>),
    /// As a handshake that is to be made once more, like this.
    Again(Bytes),
}

/// Opens the session. Whatever is wrong with the answer, the server may have begun it.
async fn open(
    call: &Call,
    client: &mut Client,
    mut opening: Opening,
    body: upstream::Body,
    lease: Lease,
    deadline: Deadline,
) -> Result<Ended, Refusal> {
    let opened = async {
        let (before, message) = match body.form() {
            Form::Json => {
                (Vec::new(), collect(call, client, body, lease, EDITABLE, deadline).await?.whole()?)
            }
            Form::Events => first_answer(call, client, body, lease, deadline).await?,
            Form::Other => return Err(Refusal::ServerNonsense),
        };
        if let Some(body) = opening::again(call, &message) {
            return Ok(Ended::Again(body));
        }
        let done = opening.finish(call, client, &before, &message).await?;
        Ok(Ended::Done(Box::new(done)))
    };
    let ended = opened.await;
    opening.leave(call);
    ended
}

/// What was read of a body before it became too much to hold.
enum Collected {
    Whole(Bytes, Share, Lease),
    Start(Bytes, upstream::Body, Lease),
}

impl Collected {
    /// The body, if it was not too large.
    fn whole(self) -> Result<Bytes, Refusal> {
        match self {
            Self::Whole(bytes, share, lease) => {
                lease.give_back();
                Ok(share.keep(bytes))
            }
            Self::Start(..) => Err(Refusal::AnswerTooLarge { limit: EDITABLE }),
        }
    }
}

/// Holds so many bytes, once there is room for them.
pub(super) async fn hold_in_time(share: &mut Share, bytes: usize, deadline: Deadline) -> Result<(), Refusal> {
    let is_held = timeout_at(deadline.at(), share.reach_in_time(bytes)).await.unwrap_or(false);
    if is_held { Ok(()) } else { Err(Refusal::AnswerNotHeld) }
}

async fn collect(
    call: &Call,
    client: &mut Client,
    mut body: upstream::Body,
    lease: Lease,
    hold: usize,
    deadline: Deadline,
) -> Result<Collected, Refusal> {
    let mut gathered = Gathered::of(&body, hold);
    let mut share = call.nothing_held();
    let _turn = body.take_came().map(|came| came.count_in(&mut share));
    while let Some(frame) = client.wait(call, deadline, body.frame()).await? {
        if let Ok(data) = frame?.into_data() {
            gathered.push(data);
        }
        // What is larger than all that there is waits for nothing.
        if gathered.len() <= EDITABLE {
            hold_in_time(&mut share, gathered.len(), deadline).await?;
        }
        // What becomes an event has to be whole.
        let hold = if client.reads_events() { EDITABLE } else { hold };
        if gathered.len() > hold {
            return Ok(Collected::Start(share.keep(gathered.freeze()), body, lease));
        }
    }
    Ok(Collected::Whole(gathered.freeze(), share, lease))
}

async fn message(
    call: &mut Call,
    client: &mut Client,
    body: upstream::Body,
    lease: Lease,
    deadline: Deadline,
) -> Result<Done, Refusal> {
    let edits = call.edits();
    // What was read where it came is not read again, unless something is edited in it. It is whole already.
    let matched = body.matched().filter(|_| !edits && call.alias.is_none());
    let hold = if edits || matched.is_some() { EDITABLE } else { HOLD };
    let status = StatusCode::OK.as_u16();
    match collect(call, client, body, lease, hold, deadline).await? {
        Collected::Whole(bytes, share, lease) => {
            lease.give_back();
            let edited = match matched {
                Some(Matched { code }) => Edited { text: None, code },
                None => edit(call, &bytes)?.ok_or(Refusal::ServerNonsense)?,
            };
            let done = Done { status, code: edited.code, rest: None };
            // What the client hears of is kept by then.
            call.note_change(&done).await;
            deliver(client, share.keep(edited.text.map_or(bytes, Bytes::from)));
            Ok(done)
        }
        Collected::Start(..) if client.reads_events() || edits => {
            Err(Refusal::AnswerTooLarge { limit: EDITABLE })
        }
        // Too large to be held, and nothing in it is edited but its id.
        Collected::Start(bytes, mut body, lease) => {
            let mut ids = call.ids_in_pieces().ok_or(Refusal::ServerNonsense)?;
            let bytes = match under_clients_id(&mut ids, &bytes)? {
                Some(other) => {
                    // In its place.
                    drop(bytes);
                    call.hold(other).ok_or(Refusal::AnswerNotHeld)?
                }
                None => bytes,
            };
            client.begin_json();
            client.piece(bytes, deadline).await?;
            while !body.is_end_stream() {
                client.piece_room(deadline).await?;
                let Some(frame) = deadline.within(body.frame()).await? else { break };
                if let Ok(data) = frame?.into_data() {
                    let data = under_clients_id(&mut ids, &data)?.unwrap_or(data);
                    client.piece(data, deadline).await?;
                }
            }
            if !ids.is_replaced() {
                return Err(Refusal::ServerNonsense);
            }
            client.whole();
            lease.give_back();
            Ok(Done { status, code: None, rest: None })
        }
    }
}

/// A piece of an answer with the id that its client knows; none if it can go as it is.
pub(super) fn under_clients_id(ids: &mut IdInPieces, piece: &[u8]) -> Result<Option<Bytes>, Refusal> {
    let other = match ids.push(piece) {
        Cow::Owned(other) => Some(other.into()),
        Cow::Borrowed(_) => None,
    };
    if ids.is_anothers() { Err(Refusal::ServerNonsense) } else { Ok(other) }
}

/// Gives a whole answer to the client in the form that its response has.
fn deliver(client: &mut Client, answer: Bytes) {
    if client.reads_events() {
        client.last_event(&answer);
    } else {
        client.respond(respond::json(Body::whole(answer), None));
    }
}

/// Makes an error of an answer that is no success.
async fn failed(
    call: &Call,
    client: &mut Client,
    status: StatusCode,
    body: upstream::Body,
    lease: Lease,
    deadline: Deadline,
) -> Result<Ended, Refusal> {
    let message = match collect(call, client, body, lease, HOLD, deadline).await? {
        Collected::Whole(bytes, share, lease) => {
            lease.give_back();
            share.keep(bytes)
        }
        Collected::Start(..) => Bytes::new(),
    };
    if let Some(session) = call.session.as_ref().filter(|session| session.may_be_unknown()) {
        let ping = request::ping(&call.worker.pool, &call.snapshot, session);
        // Another call may have begun it again meanwhile.
        let is_begun = session.upstream() != *call.within.borrow();
        let is_named = session.is_known_to_server();
        let is_lost =
            async { is_begun || forgotten::is_forgotten(&Method::POST, status, is_named, ping).await };
        if forgotten::says(&Method::POST, status) != Says::Nothing && is_lost.await {
            return Err(Refusal::SessionLost);
        }
    }
    let refusal = Refusal::ServerStatus { status: status.as_u16() };
    if call.edit == Edit::Tell {
        return Err(refusal);
    }
    if let Some(body) = opening::again(call, &message) {
        return Ok(Ended::Again(body));
    }
    // JSON-RPC errors ride on 200 in these revisions.
    match edit(call, &message)? {
        Some(Edited { code: Some(code), text }) => {
            deliver(client, text.map_or(message, Bytes::from));
            let done = Done { status: StatusCode::OK.as_u16(), code: Some(code), rest: None };
            Ok(Ended::Done(Box::new(done)))
        }
        _ => Err(refusal),
    }
}
