//! Answers that come as events.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::sse::{self, Decoder, Event};
use tokio::time::{Duration, Instant, sleep_until, timeout_at};

use super::answer::timed_out;
use super::client::Client;
use super::edit::edit;
use super::{Call, Done, Edit, request};
use crate::rescue::Refusal;
use crate::upstream::{self, Answer, EDITABLE, Lease};

/// How long a silent stream is left silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the rest of an answer is waited for when everything in it has been delivered.
const REST: Duration = Duration::from_secs(1);

/// How long to wait before a stream is asked for again, if the server does not say, and at least.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MINIMUM: Duration = Duration::from_millis(50);

/// A stream of events from the server.
struct Source {
    body: upstream::Body,
    lease: Lease,
    decoder: Decoder,
    /// Where the stream can be taken up again when it ends early: its last event's id.
    last: Option<String>,
    retry: Duration,
}

/// What comes next.
enum Next {
    Data(Bytes),
    /// Nothing has come for a while.
    Silence,
    /// The stream has ended in an orderly way.
    End,
}

/// Passes events on until the answer has come. Nothing follows it.
pub(super) async fn events(
    call: &Call,
    client: &mut Client,
    body: upstream::Body,
    lease: Lease,
    deadline: Instant,
) -> Result<Done, Refusal> {
    client.begin_events();
    let mut source = Source::new(body, lease);
    let passed = match call.edit {
        Edit::Filter(_) => pass_edited(call, client, &mut source, deadline).await,
        Edit::Pass | Edit::OpenSession | Edit::Tell => {
            let passed = pass(call, client, &mut source, deadline).await;
            client.abandon = source.decoder.abandon();
            passed
        }
    };
    let code = passed?;
    rest(source.body, source.lease);
    Ok(Done { status: StatusCode::OK.as_u16(), code })
}

/// Passes bytes as they come, and looks into them for the answer. Gives its code, if it is an error.
async fn pass(
    call: &Call,
    client: &mut Client,
    source: &mut Source,
    deadline: Instant,
) -> Result<Option<i64>, Refusal> {
    // An event that is too large to be looked into is taken for the answer.
    let mut watched = true;
    loop {
        let data = match source.next(deadline).await? {
            Next::Data(data) => data,
            Next::Silence if watched && source.decoder.is_between_events() => {
                client.send(sse::KEEP_ALIVE, deadline).await;
                continue;
            }
            Next::Silence => continue,
            Next::End if !watched => return Ok(None),
            Next::End => {
                source.resume(call, deadline).await?;
                continue;
            }
        };
        let mut answered = None;
        if watched {
            watched = source
                .read(&data, |event| {
                    // Nothing is edited here, so nothing can fail.
                    if let Ok(Some(edited)) = edit(call, message_of(&event)) {
                        answered = Some(edited.code);
                    }
                })
                .is_ok();
        }
        client.send(data, deadline).await;
        if let Some(code) = answered {
            return Ok(code);
        }
    }
}

/// Passes whole events, and edits the answer. Gives its code, if it is an error. Only what certainly is no answer may
/// pass unedited: the client could recognise as its answer what is none here.
async fn pass_edited(
    call: &Call,
    client: &mut Client,
    source: &mut Source,
    deadline: Instant,
) -> Result<Option<i64>, Refusal> {
    loop {
        let data = match source.next(deadline).await? {
            Next::Data(data) => data,
            Next::Silence => {
                client.send(sse::KEEP_ALIVE, deadline).await;
                continue;
            }
            Next::End => {
                source.resume(call, deadline).await?;
                continue;
            }
        };
        let mut complete = Vec::new();
        source.read(&data, |event| complete.push(event))?;
        for event in complete {
            let edited = edit(call, message_of(&event))?;
            if edited.is_none() && !is_aside(&event) {
                return Err(Refusal::ServerNonsense);
            }
            let text = edited.as_ref().and_then(|edited| edited.text.as_deref());
            let piece = match text {
                Some(text) => sse::replace_data(&event, text).into(),
                None => Bytes::from(event.raw),
            };
            client.send(piece, deadline).await;
            if let Some(edited) = edited {
                return Ok(edited.code);
            }
        }
    }
}

impl Source {
    fn new(body: upstream::Body, lease: Lease) -> Self {
        Self { body, lease, decoder: Decoder::new(EDITABLE), last: None, retry: RETRY }
    }

    async fn next(&mut self, deadline: Instant) -> Result<Next, Refusal> {
        let silence = Instant::now() + KEEP_ALIVE;
        loop {
            match timeout_at(deadline.min(silence), self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Next::Data(data));
                    }
                }
                Ok(Some(Err(broken))) => return Err(broken.into()),
                Ok(None) => return Ok(Next::End),
                Err(_) if Instant::now() >= deadline => return Err(timed_out()),
                Err(_) => return Ok(Next::Silence),
            }
        }
    }

    /// Takes data apart, and remembers where the stream is.
    fn read(&mut self, data: &[u8], mut each: impl FnMut(Event)) -> Result<(), Refusal> {
        let Self { decoder, last, retry, .. } = self;
        let read = decoder.push(data, |event| {
            if let Some(id) = &event.id {
                *last = Some(id.clone()).filter(|id| !id.is_empty());
            }
            if let Some(milliseconds) = event.retry {
                *retry = Duration::from_millis(milliseconds);
            }
            each(event);
        });
        read.map_err(|_| Refusal::ServerNonsense)
    }

    /// Takes a stream up again that a server ended before its answer, as it may from 2025-11-25 on. The client need
    /// not know: its own stream goes on.
    async fn resume(&mut self, call: &Call, deadline: Instant) -> Result<(), Refusal> {
        let last =
            self.last.clone().filter(|_| self.decoder.is_between_events()).ok_or(Refusal::ServerLost)?;
        sleep_until(deadline.min(Instant::now() + self.retry.max(RETRY_MINIMUM))).await;
        let asked = timeout_at(deadline, request::resume(call, &last)).await.map_err(|_| timed_out())?;
        let Answer { response, lease } = asked.ok_or(Refusal::ServerLost)?;
        (self.body, self.lease) = (response.into_body(), lease);
        Ok(())
    }
}

/// The message in an event; nothing if it holds none.
fn message_of(event: &Event) -> &[u8] {
    match (&event.event, &event.data) {
        (None, Some(data)) => data,
        _ => &[],
    }
}

/// Whether an event is none that a client could take for an answer: it holds nothing, or a request or a notification.
/// The event's type does not count, since not every client looks at it.
fn is_aside(event: &Event) -> bool {
    let Some(data) = event.data.as_deref().filter(|data| !data.is_empty()) else { return true };
    matches!(envelope::read(data), Ok(Message::Request(_) | Message::Notification(_)))
}

/// Reads events until the answer: the events before it, and the answer.
pub(super) async fn first_answer(
    call: &Call,
    mut body: upstream::Body,
    lease: Lease,
    deadline: Instant,
) -> Result<(Vec<u8>, Bytes), Refusal> {
    let mut decoder = Decoder::new(EDITABLE);
    let mut before = Vec::new();
    let mut answer = None;
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| timed_out())?;
        let data = frame.ok_or(Refusal::ServerLost)??.into_data();
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
pub(super) fn rest(mut body: upstream::Body, lease: Lease) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_answer_passes_beside_one() {
        for (event, aside) in [
            (": nothing\n\n", true),
            ("id: 1\ndata:\n\n", true),
            ("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n", true),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\n", true),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}\n\n", false),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":-0,\"result\":{\"tools\":[]}}\n\n", false),
            ("data: {\"jsonrpc\":\"2.0\",\"id\":1.0,\"result\":{\"tools\":[]}}\n\n", false),
            ("data: {\"jsonrpc\":\"2.0\",\"error\":{}}\n\n", false),
            ("data: {\"jsonrpc\":\"2.0\",\"Id\":1,\"Result\":{\"tools\":[]}}\n\n", false),
            ("data: [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}]\n\n", false),
            ("event: other\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[]}}\n\n", false),
            ("data: hello\n\n", false),
        ] {
            let mut decoder = Decoder::new(1000);
            let mut events = Vec::new();
            decoder.push(event.as_bytes(), |event| events.push(event)).unwrap();
            assert_eq!(events.iter().map(is_aside).collect::<Vec<_>>(), [aside], "{event}");
        }
    }
}
