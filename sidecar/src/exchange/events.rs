//! Answers that come as events.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use longshore_mcp::sse::{self, Decoder, Event};
use tokio::time::{Duration, Instant, timeout_at};

use super::answer::{EDITABLE, timed_out};
use super::client::Client;
use super::edit::edit;
use super::{Call, Done, Edit};
use crate::rescue::Refusal;
use crate::upstream::Lease;

/// How long a silent stream is left silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the rest of an answer is waited for when everything in it has been delivered.
const REST: Duration = Duration::from_secs(1);

/// Passes events on until the answer has come. Nothing follows it.
pub(super) async fn events(
    call: &Call,
    client: &mut Client,
    mut body: Incoming,
    lease: Lease,
    deadline: Instant,
) -> Result<Done, Refusal> {
    client.begin_events();
    let edits = matches!(call.edit, Edit::Filter(_));
    let mut decoder = Decoder::new(EDITABLE);
    // An event that is too large to be looked into is taken for the answer.
    let mut watched = true;
    let done = |code| Ok(Done { status: StatusCode::OK.as_u16(), code });
    loop {
        let silence = Instant::now() + KEEP_ALIVE;
        let data = match timeout_at(deadline.min(silence), body.frame()).await {
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
            Ok(None) if !watched => return done(None),
            Ok(None | Some(Err(_))) => {
                client.abandon = if edits { "" } else { decoder.abandon() };
                return Err(Refusal::ServerLost);
            }
            Err(_) if Instant::now() >= deadline => {
                client.abandon = if edits { "" } else { decoder.abandon() };
                return Err(timed_out());
            }
            Err(_) => {
                if watched && decoder.is_between_events() {
                    client.send(sse::KEEP_ALIVE, deadline).await;
                }
                continue;
            }
        };
        let mut answered = None;
        if edits {
            let mut complete = Vec::new();
            decoder.push(&data, |event| complete.push(event)).map_err(|_| Refusal::ServerNonsense)?;
            for event in complete {
                let edited = edit(call, message_of(&event))?;
                let text = edited.as_ref().and_then(|edited| edited.text.as_deref());
                let piece = text.map_or_else(
                    || Bytes::from(event.raw.clone()),
                    |text| sse::replace_data(&event, text).into(),
                );
                client.send(piece, deadline).await;
                if let Some(edited) = edited {
                    answered = Some(edited.code);
                    break;
                }
            }
        } else {
            let mut failure = None;
            if watched {
                let looked = decoder.push(&data, |event| match edit(call, message_of(&event)) {
                    Ok(Some(edited)) => answered = Some(edited.code),
                    Ok(None) => {}
                    Err(refusal) => failure = Some(refusal),
                });
                watched = looked.is_ok();
            }
            client.send(data, deadline).await;
            if let Some(refusal) = failure {
                return Err(refusal);
            }
        }
        if let Some(code) = answered {
            rest(body, lease);
            return done(code);
        }
    }
}

/// The message in an event; nothing if it holds none.
fn message_of(event: &Event) -> &[u8] {
    match (&event.event, &event.data) {
        (None, Some(data)) => data,
        _ => &[],
    }
}

/// Reads events until the answer: the events before it, and the answer.
pub(super) async fn first_answer(
    call: &Call,
    mut body: Incoming,
    lease: Lease,
    deadline: Instant,
) -> Result<(Vec<u8>, Bytes), Refusal> {
    let mut decoder = Decoder::new(EDITABLE);
    let mut before = Vec::new();
    let mut answer = None;
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| timed_out())?;
        let data = frame.ok_or(Refusal::ServerLost)?.map_err(|_| Refusal::ServerLost)?.into_data();
        let Ok(data) = data else { continue };
        let mut failure = None;
        let looked = decoder.push(&data, |event| match edit(call, message_of(&event)) {
            Ok(Some(_)) => answer = event.data.map(Bytes::from),
            Ok(None) if answer.is_none() => before.extend_from_slice(&event.raw),
            Ok(None) => {}
            Err(refusal) => failure = Some(refusal),
        });
        if looked.is_err() || before.len() > EDITABLE {
            return Err(Refusal::ServerNonsense);
        }
        if let Some(refusal) = failure {
            return Err(refusal);
        }
        if let Some(answer) = answer.take() {
            rest(body, lease);
            return Ok((before, answer));
        }
    }
}

/// Reads what follows an answer, which should be nothing, so that the connection can be used again.
pub(super) fn rest(mut body: Incoming, lease: Lease) {
    use http_body::Body as _;
    if body.is_end_stream() {
        lease.give_back();
        return;
    }
    tokio::task::spawn_local(async move {
        let deadline = Instant::now() + REST;
        while let Ok(frame) = timeout_at(deadline, body.frame()).await {
            match frame {
                Some(Ok(_)) => {}
                Some(Err(_)) => return,
                None => {
                    lease.give_back();
                    return;
                }
            }
        }
    });
}
