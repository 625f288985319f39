//! What a server answers to one message, as messages.

use bytes::Bytes;
use http::{Method, StatusCode};
use longshore_mcp::envelope::{self, Id, Message, Outcome};

use super::failure::Failure as Unusable;
use super::session::Session;
use crate::sessions::refuses_unread;
use crate::upstream::forgotten::is_not_now;
use crate::upstream::message::{span, with};
use crate::upstream::source::{Source, Unread};
use crate::upstream::waiting::Sender;
use crate::upstream::{Answer, Broken, EDITABLE, Failure, Form, Letter, Transport, call, rest};

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
    /// The server was not reached.
    Failed(Failure),
    /// What it says could not be read to its end.
    Unread(Unread),
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Unread> for Ending {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
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
            Self::Ended => Unusable::Gone.into(),
            Self::Nonsense => Unusable::Nonsense.into(),
            Self::Forgotten => Unusable::Forgotten.into(),
            Self::Status(status) => Unusable::Status(status).into(),
            Self::Failed(failure) => failure,
            Self::Unread(unread) => Unusable::from(unread).into(),
        }
    }
}

/// Sends a message in a session and gives what comes back to `to`, until the answer to the request of this id. Says whether
/// the server only does not do it now, also where that answer is an error.
pub(super) async fn read(
    session: &Session,
    transport: &Transport,
    letter: Letter,
    id: &str,
    to: Sender<Heard>,
) -> bool {
    let ending = follow(session, transport, letter, id, &to).await.unwrap_or_else(|ending| ending);
    let is_for_now = ending.is_for_now();
    // Nobody there: it was given up.
    let _ = to.send(Heard::Over(ending)).await;
    is_for_now
}

async fn follow(
    session: &Session,
    transport: &Transport,
    letter: Letter,
    id: &str,
    to: &Sender<Heard>,
) -> Result<Ending, Ending> {
    let Answer { status, body, lease, .. } = transport.send(&session.upstream, letter).await?;
    let form = body.form();
    let mut source =
        Source::new(body, lease, transport.coming_for(&session.opener)).speaking(session.revision);
    if !status.is_success() {
        let text = source.whole(MAX_REFUSAL).await.unwrap_or_default();
        if Box::pin(session.is_forgotten(transport, &Method::POST, status)).await {
            return Ok(Ending::Forgotten);
        }
        if !is_error(&text) {
            return Ok(Ending::Status(status.as_u16()));
        }
        source.into_tail().leave();
        let heard = Heard::of(text, id, true);
        let is_answer = matches!(heard, Heard::Answer(_));
        let _ = to.send(heard).await;
        return Ok(if is_answer { Ending::Status(status.as_u16()) } else { Ending::Nonsense });
    }
    match form {
        Form::Json => {
            let text = source.whole(EDITABLE).await?;
            source.into_tail().leave();
            let heard = Heard::of(text, id, true);
            let is_answer = matches!(heard, Heard::Answer(_));
            let _ = to.send(heard).await;
            return Ok(if is_answer { Ending::Ended } else { Ending::Nonsense });
        }
        Form::Events => {}
        Form::Other => return Ok(Ending::Nonsense),
    }
    loop {
        let broken = loop {
            let messages = match source.messages().await {
                Ok(Some(messages)) => messages,
                Ok(None) => break None,
                // Its answer has begun since its process took long, which was another server's then.
                Err(Unread::Broken(Broken::Call(call::Failure::Forgotten))) => return Ok(Ending::Forgotten),
                // As good as an early end.
                Err(Unread::Broken(broken)) => break Some(broken),
                Err(unread) => return Err(unread.into()),
            };
            for message in messages {
                let heard = Heard::of(message, id, false);
                let over = matches!(heard, Heard::Answer(_));
                if to.send(heard).await.is_err() {
                    return Ok(Ending::Ended);
                }
                if over {
                    source.into_tail().leave();
                    return Ok(Ending::Ended);
                }
            }
        };
        if to.is_closed() {
            return Ok(Ending::Ended);
        }
        let again = transport.doubt.unless_gone(broken.is_some(), again(&mut source, session, transport));
        match Box::pin(again).await {
            Some(answer) => source.go_on(answer),
            None => return Ok(broken.map_or(Ending::Ended, |broken| Unread::Broken(broken).into())),
        }
    }
}

/// Asks, after a while, for the rest of a stream that ended early. None: there is none to be had, for want of an event to go
/// on after, or of a session to say so in.
async fn again(source: &mut Source, session: &Session, transport: &Transport) -> Option<Answer> {
    if source.last().is_none() || !session.is_named() {
        return None;
    }
    source.ended().await;
    rest(async || get(session, transport, source.last()).await.ok()).await
}

/// Asks for a stream of events: for the rest of one, or for what belongs to no call.
pub(super) async fn get(
    session: &Session,
    transport: &Transport,
    last: Option<&str>,
) -> Result<Answer, Failure> {
    transport.send(&session.upstream, Letter::stream(session.within(), last)).await
}

fn is_error(text: &[u8]) -> bool {
    matches!(envelope::read_servers(text), Ok(Message::Response(response)) if matches!(response.outcome, Outcome::Error(_)))
}
