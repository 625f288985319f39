//! What a server answers to one message, as messages.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use longshore_mcp::batch;
use longshore_mcp::envelope::{self, Id, Message, Outcome};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::Decoder;
use tokio::time::{Duration, sleep};

use super::failure::Failure as Unusable;
use super::session::Session;
use crate::gathered::Gathered;
use crate::held::Coming;
use crate::sessions::refuses_unread;
use crate::upstream::forgotten::is_not_now;
use crate::upstream::message::{span, with};
use crate::upstream::waiting::Sender;
use crate::upstream::{self, Answer, Broken, EDITABLE, Failure, Form, Lease, Tail, Transport, request, rest};

/// How long to wait before a stream is asked for again that a server ended early, if it does not say, and at least.
pub(super) const RETRY: Duration = Duration::from_secs(1);
const RETRY_MINIMUM: Duration = Duration::from_millis(50);
/// How often in a row a stream in which nothing comes is asked for again as soon as the server says, and how much later
/// after that.
const AGAIN: u32 = 8;
const BREATHER: Duration = Duration::from_secs(1);
/// The most that is read of an answer that is no success.
const MAX_REFUSAL: usize = 64 * 1024;

/// What a call hears of its server.
#[derive(Debug)]
pub(super) enum Heard {
    /// The answer to this call.
    Answer(Bytes),
    /// A message that is certainly about this call.
    Own(Bytes),
    /// A message of the session that can only be about this call, since no other is under way.
    Aside(Bytes),
    /// Nothing more comes for the call.
    Over(Ending),
}

impl Heard {
    /// A message, or the whole, of what belongs to the call with this id. An error without an id can be to no other one.
    fn of(message: Bytes, id: &str, is_whole: bool) -> Self {
        match envelope::read_servers(&message) {
            Ok(Message::Response(response)) => match (response.id, &response.outcome) {
                // From here on under the id as it was given.
                (Some(answered), _)
                    if answered.answers(&Id::from_json(id)) || is_whole && refuses_unread(&response) =>
                {
                    Self::Answer(with(&message, &span(&message, answered.as_json()), id))
                }
                (None, Outcome::Error(_)) => Self::Answer(message),
                _ => Self::Own(message),
            },
            _ => Self::Own(message),
        }
    }
}

/// How an answer ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// In an orderly way.
    Ended,
    /// The server does not know the session any more. It has not seen the message.
    Forgotten,
    /// With this HTTP status, and without an error of JSON-RPC that is not given yet.
    Status(u16),
    /// Nothing of it can be used.
    Nonsense,
    /// An event was too large.
    TooLarge,
    /// There was no room for it.
    NotHeld,
    /// The server was not reached.
    Failed(Failure),
    /// The connection broke.
    Broken(Broken),
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Broken> for Ending {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl Ending {
    /// Whether the server may do later what it was asked for.
    fn is_for_now(&self) -> bool {
        matches!(self, Self::Status(status) if StatusCode::from_u16(*status).is_ok_and(is_not_now))
    }

    /// Why a call came to nothing, for those who tell clients.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Ended | Self::Nonsense => Unusable::Nonsense.into(),
            Self::Forgotten => Unusable::Forgotten.into(),
            Self::Status(status) => Unusable::Status(status).into(),
            Self::TooLarge => Unusable::TooLarge.into(),
            Self::NotHeld => Unusable::NotHeld.into(),
            Self::Failed(failure) => failure,
            Self::Broken(broken) => Unusable::Broken(Box::new(broken)).into(),
        }
    }
}

/// A stream of events as messages, and where it stands.
pub(super) struct Events {
    body: upstream::Body,
    decoder: Decoder,
    coming: Coming,
    /// What the server speaks. None: it is being greeted.
    revision: Option<Revision>,
    last: Option<String>,
    retry: Duration,
}

/// Sends a message in a session and gives what comes back to `to`, until the answer to the request of this id. Says whether
/// the server only does not do it now, also where that answer is an error.
pub(super) async fn read(
    session: &Session,
    transport: &Transport,
    request: Request<Bytes>,
    id: &str,
    to: Sender<Heard>,
) -> bool {
    let ending = follow(session, transport, request, id, &to).await.unwrap_or_else(|ending| ending);
    let is_for_now = ending.is_for_now();
    // Nobody there: it was given up.
    let _ = to.send(Heard::Over(ending)).await;
    is_for_now
}

async fn follow(
    session: &Session,
    transport: &Transport,
    request: Request<Bytes>,
    id: &str,
    to: &Sender<Heard>,
) -> Result<Ending, Ending> {
    let Answer { response, lease } = transport.send(&session.upstream, request).await?;
    let (head, body) = response.into_parts();
    let mut coming = transport.coming_for(&session.opener);
    if !head.status.is_success() {
        let text = collect(body, MAX_REFUSAL, &mut coming).await.unwrap_or_default();
        if Box::pin(session.is_forgotten(transport, &Method::POST, head.status)).await {
            return Ok(Ending::Forgotten);
        }
        if !is_error(&text) {
            return Ok(Ending::Status(head.status.as_u16()));
        }
        lease.give_back();
        let heard = Heard::of(text, id, true);
        let is_answer = matches!(heard, Heard::Answer(_));
        let _ = to.send(heard).await;
        return Ok(if is_answer { Ending::Status(head.status.as_u16()) } else { Ending::Ended });
    }
    match Form::of(&head.headers) {
        Form::Json => {
            let text = collect(body, EDITABLE, &mut coming).await?;
            lease.give_back();
            let _ = to.send(Heard::of(text, id, true)).await;
            return Ok(Ending::Ended);
        }
        Form::Events => {}
        Form::Other => return Ok(Ending::Nonsense),
    }
    let mut lease = lease;
    let mut events = Events::new(body, coming, Some(session.revision));
    let mut vain = 0;
    loop {
        let broken = loop {
            let messages = match events.next().await {
                Ok(Some(messages)) => messages,
                Ok(None) => break None,
                // As good as an early end.
                Err(Ending::Broken(broken)) => break Some(broken),
                Err(ending) => return Err(ending),
            };
            vain = 0;
            for message in messages {
                let heard = Heard::of(message, id, false);
                let over = matches!(heard, Heard::Answer(_));
                if to.send(heard).await.is_err() {
                    return Ok(Ending::Ended);
                }
                if over {
                    Tail::of(events.body, lease).leave();
                    return Ok(Ending::Ended);
                }
            }
        };
        if to.is_closed() {
            return Ok(Ending::Ended);
        }
        vain += 1;
        if vain > AGAIN {
            // Whoever waits for the answer has a deadline; until then the server may take its time.
            sleep(BREATHER).await;
        }
        let again = transport.doubt.unless_gone(broken.is_some(), events.again(session, transport));
        match Box::pin(again).await {
            Some((next, from)) => (events, lease) = (next, from),
            None => return Ok(broken.map_or(Ending::Ended, Ending::Broken)),
        }
    }
}

impl Events {
    pub(super) fn new(body: upstream::Body, coming: Coming, revision: Option<Revision>) -> Self {
        Self { body, decoder: Decoder::new(EDITABLE), coming, revision, last: None, retry: RETRY }
    }

    /// The same for a stream that goes on with another one, from this place in it. What says nothing anew has that place.
    pub(super) fn after(self, (last, retry): (Option<String>, Duration)) -> Self {
        Self { last, retry, ..self }
    }

    /// The messages that come next. None: the stream has ended in an orderly way.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Ending> {
        // Whoever has those before was waited for.
        self.coming.put_off();
        loop {
            room(&mut self.coming).await?;
            let more = self.coming.more(self.body.frame()).await;
            let Some(frame) = more.ok_or(Ending::NotHeld)? else { return Ok(None) };
            self.coming.take_turn(self.body.take_turn());
            let Ok(data) = frame?.into_data() else { continue };
            let Self { decoder, coming, revision, last, retry, .. } = self;
            let mut messages = Vec::new();
            let read = decoder.push(&data, |event| {
                coming.complete();
                if let Some(id) = &event.id {
                    // What no header can say is nothing to come back with.
                    let can_be_said = |id: &String| !id.is_empty() && HeaderValue::from_str(id).is_ok();
                    *last = Some(id.clone().into_owned()).filter(can_be_said);
                }
                if let Some(milliseconds) = event.retry {
                    *retry = Duration::from_millis(milliseconds);
                }
                let Some(message) = event.into_message().map(Bytes::from) else { return };
                match batch::parts(&message, *revision) {
                    Some(parts) => {
                        messages.extend(parts.into_iter().map(|part| message.slice_ref(part.as_bytes())));
                    }
                    None => messages.push(message),
                }
            });
            read.map_err(|_| Ending::TooLarge)?;
            coming.came(decoder.pending());
            coming.settle();
            if !messages.is_empty() {
                return Ok(Some(messages));
            }
        }
    }

    /// Asks, after a while, for the rest of a stream that the server ended early, as it may from 2025-11-25 on, or whose
    /// connection broke. None: there is none to be had, for want of an event to go on after, or of a session to say so in.
    async fn again(&mut self, session: &Session, transport: &Transport) -> Option<(Self, Lease)> {
        let last = self.last.clone().filter(|_| session.is_named())?;
        // Half an event was never sent, and comes again.
        self.decoder = Decoder::new(EDITABLE);
        self.coming.finish();
        sleep(self.retry.max(RETRY_MINIMUM)).await;
        let ask = async || get(session, transport, Some(&last)).await.ok();
        let Answer { response, lease } = rest(ask).await?;
        let coming = transport.coming_for(&session.opener);
        let next = Self::new(response.into_body(), coming, self.revision);
        Some((next.after((Some(last), self.retry)), lease))
    }

    /// The last event's id, and how long to wait before the rest is asked for.
    pub(super) fn place(&self) -> (Option<String>, Duration) {
        (self.last.clone(), self.retry.max(RETRY_MINIMUM))
    }
}

/// Asks for a stream of events: for the rest of one, or for what belongs to no call.
pub(super) async fn get(
    session: &Session,
    transport: &Transport,
    last: Option<&str>,
) -> Result<Answer, Failure> {
    transport.send(&session.upstream, request::stream(Some(session.within()), last)).await
}

/// The body of a response that is a stream of events.
pub(super) fn stream(response: Response<upstream::Body>) -> Option<upstream::Body> {
    Form::is_stream(&response).then(|| response.into_body())
}

/// A whole body, or why not.
pub(super) async fn collect(
    mut body: upstream::Body,
    limit: usize,
    coming: &mut Coming,
) -> Result<Bytes, Ending> {
    let mut gathered = Gathered::of(&body, limit);
    let is_counted = coming.take_over(body.take_came());
    while let Some(frame) = coming.more(body.frame()).await.ok_or(Ending::NotHeld)? {
        if let Ok(data) = frame?.into_data() {
            gathered.push(data);
        }
        if gathered.len() > limit {
            return Err(Ending::TooLarge);
        }
        coming.came(gathered.len());
        if !is_counted {
            room(coming).await?;
        }
    }
    coming.finish();
    Ok(gathered.freeze())
}

async fn room(coming: &mut Coming) -> Result<(), Ending> {
    if coming.room().await { Ok(()) } else { Err(Ending::NotHeld) }
}

fn is_error(text: &[u8]) -> bool {
    matches!(envelope::read_servers(text), Ok(Message::Response(response)) if matches!(response.outcome, Outcome::Error(_)))
}
