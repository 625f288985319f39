//! Answers that come as events.

mod first;

use std::borrow::Cow;
use std::pin::pin;

use bytes::Bytes;
pub(super) use first::first_answer;
use http::StatusCode;
use longshore_mcp::batch;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::sse::Event;
use tokio::time::Instant;

use super::answer::hold_in_time;
use super::carry;
use super::client::Client;
use super::deadline::Deadline;
use super::edit::{Looked, look};
use super::{Call, Done, Edit, request};
use crate::held::Coming;
use crate::refusal::Refusal;
use crate::stack::standing;
use crate::upstream::source::Source;
use crate::upstream::{self, Lease};

/// Passes events on until the answer has come. Nothing follows it.
pub(super) async fn events(
    call: &Call,
    client: &mut Client,
    body: upstream::Body,
    lease: Lease,
    deadline: Deadline,
) -> Result<Done, Refusal> {
    client.expect_events(call, &body)?;
    let is_own = body.is_of_one_call();
    let mut source = Source::new(body, lease, Coming::new(Some(call.nothing_held())));
    if let Some(session) = &call.session {
        source = source.speaking(session.server_revision);
    }
    let code = loop {
        let next = client.wait(call, deadline, pin!(source.next())).await?;
        let (next, is_broken) = match next.map_err(Refusal::from) {
            // A connection that breaks is as good as an early end.
            Err(Refusal::ServerLost) => (None, true),
            next => (next?, false),
        };
        let Some(data) = next else {
            // There has to be an event to go on after, and a session to say so in.
            if source.last().is_none() || request::within_still(call).is_none() {
                return Err(Refusal::ServerLost);
            }
            let again = async {
                source.ended().await;
                request::resume(call, source.last()?).await
            };
            let again = Box::pin(call.worker.shared.doubt.unless_gone(is_broken, again));
            let answer = client.wait(call, deadline, again).await?.ok_or(Refusal::ServerLost)?;
            source.go_on(answer);
            continue;
        };
        let mut passed = Ok(None);
        let mut unheld = None;
        source.read(&data, |event| {
            if let Ok(None) = passed {
                passed = pass(call, client, &event, is_own, &mut unheld);
            }
        })?;
        // Its client may take its time.
        drop(data);
        if let Some(event) = unheld {
            let mut share = call.nothing_held();
            // Not while it waits for its client, which could begin a stream meanwhile: this has to be the only event.
            hold_in_time(&mut share, event.len(), deadline).await?;
            client.only_event(share.keep(event));
        }
        if let Some(code) = passed? {
            break code;
        }
        source.settle();
        let waits = Instant::now();
        // Whoever has the turn holds others up, and is waited for no longer than a server would be.
        source.while_it_may(client.room(deadline)).await.ok_or(Refusal::AnswerNotHeld)?;
        source.held_up(waits.elapsed());
    };
    Ok(Done { status: StatusCode::OK.as_u16(), code, rest: Some(source.into_tail()) })
}

/// Passes an event on, which certainly is of this call if it `is_own`. If it is the answer: its code, if it is an error. An
/// answer that there is no room for now is left in `unheld`.
///
/// Where the answer is edited, only what certainly is none may pass unedited: the client could recognise as its answer
/// what is none here.
fn pass(
    call: &Call,
    client: &mut Client,
    event: &Event<'_>,
    is_own: bool,
    unheld: &mut Option<Bytes>,
) -> Result<Option<Option<i64>>, Refusal> {
    // Clients ignore types that they do not know, and so does this: what is in them may not be a message.
    let Some(data) = event.message() else { return Ok(None) };
    let is_edited = matches!(call.edit, Edit::Filter(_));
    let looked = look(call, data)?;
    let is_question = matches!(looked, Looked::Question);
    match looked {
        Looked::Answer(edited) => {
            *unheld = match &edited.text {
                Some(text) => client.answer(call, text.as_bytes(), None)?,
                None => client.answer(call, data, event.shared_data())?,
            };
            return Ok(Some(edited.code));
        }
        Looked::Unasked if !is_edited => {
            tracing::debug!("the server answered what nobody asked in this call");
            return Ok(None);
        }
        Looked::Unreadable => {
            if let (Some(session), Some(refusal)) = (&call.session, envelope::refusal_of_number(data)) {
                request::tell(&call.worker, &call.snapshot, session, refusal);
                return Ok(None);
            }
        }
        Looked::Unasked | Looked::Aside | Looked::Question => {}
    }
    if is_edited && !is_aside(data) {
        return Err(Refusal::ServerNonsense);
    }
    // A batch of a server that may not write any: nobody has looked at what is in it.
    if batch::is_array(data) {
        return Ok(None);
    }
    let principal = &call.caller.principal;
    if call.session.is_some() && !standing::may_hear(&call.worker.shared, principal, data) {
        return Ok(None);
    }
    let heard = match &call.session {
        Some(session) => carry::heard(call, session, data),
        None => Some(Cow::Borrowed(data)),
    };
    if let Some(data) = heard {
        match &call.session {
            Some(session) if is_question => client.ask(call, session, &data, is_own)?,
            _ => client.event(call, &data)?,
        }
    }
    Ok(None)
}

/// Whether data is none that a client could take for an answer: a request or a notification.
pub(super) fn is_aside(data: &[u8]) -> bool {
    matches!(envelope::read(data), Ok(Message::Request(_) | Message::Notification(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_answer_passes_beside_one() {
        for (data, aside) in [
            (r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#, false),
            (r#"{"jsonrpc":"2.0","id":-0,"result":{"tools":[]}}"#, false),
            (r#"{"jsonrpc":"2.0","id":1.0,"result":{"tools":[]}}"#, false),
            (r#"{"jsonrpc":"2.0","error":{}}"#, false),
            (r#"{"jsonrpc":"2.0","Id":1,"Result":{"tools":[]}}"#, false),
            (r#"[{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}]"#, false),
            ("hello", false),
        ] {
            assert_eq!(is_aside(data.as_bytes()), aside, "{data}");
        }
    }
}
