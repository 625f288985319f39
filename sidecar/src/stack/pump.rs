//! Moves messages from one response into another: into the answer to a batch, or into a client's HTTP+SSE stream.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt};
use http::Response;
use http_body_util::BodyExt;
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::{self, Decoder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Duration, timeout};

use super::Authenticated;
use super::respond::Body;
use crate::held::{Share, Shares};
use crate::refusal::{self, Kind, Refusal};
use crate::streamed_body::Piece;
use crate::upstream::{EDITABLE, Form};
use crate::worker::Worker;

/// How many pieces wait for a slow client before what it reads has to wait too.
pub(super) const PIECES: usize = 8;
/// How long a stream is silent before something is said in it, so that proxies do not take it for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// How many bytes of messages are not counted, of all that are taken out for one response: as many as elsewhere of one.
const UNCOUNTED: usize = 8 * 1024;

/// A message that was taken out. It is held whole, so it counts until the client has it.
pub(super) struct Said {
    pub(super) message: Bytes,
    pub(super) share: Share,
    /// Its part of what is not counted.
    pub(super) uncounted: Option<OwnedSemaphorePermit>,
}

/// For whom messages are taken out, and where they are counted.
#[derive(Clone)]
pub(super) struct To {
    out: mpsc::Sender<Said>,
    shares: Arc<Shares>,
    principal: Arc<str>,
    /// How much more of it need not be counted.
    uncounted: Arc<Semaphore>,
}

/// Gives each message of the response to a request to whoever wants it. If the answer is not among them, an error takes
/// its place: nobody could come back for it.
pub(super) async fn answer(response: Response<Body>, id: &str, revision: Revision, to: &To) {
    let id = Id::from_json(id);
    let mut answered = false;
    let see = |message: &Bytes| {
        let read = envelope::read(message);
        answered |=
            matches!(read, Ok(Message::Response(response)) if response.id.is_some_and(|of| of.is(&id)));
    };
    let passed = pass(response, to, see).await;
    if !answered {
        let refusal = passed.err().unwrap_or(Refusal::ServerLost);
        let answer = refusal::error_response(&refusal, Some(id), Kind::Request, revision);
        let message = answer.json.into();
        let _ = to.say(Said { message, share: to.nothing(), uncounted: None }).await;
    }
}

/// Gives each message of a response to whoever wants it.
pub(super) async fn messages(response: Response<Body>, to: &To) {
    if let Err(refusal) = pass(response, to, |_| ()).await {
        tracing::debug!(reason = refusal.reason(), "a stream of messages ends early");
    }
}

async fn pass(response: Response<Body>, to: &To, mut see: impl FnMut(&Bytes)) -> Result<(), Refusal> {
    let (head, mut body) = response.into_parts();
    match Form::of(&head.headers) {
        Form::Json => {}
        Form::Events => return events(body, to, see).await,
        Form::Other => return Err(Refusal::ServerLost),
    }
    let (mut gathered, mut share) = (BytesMut::new(), to.nothing());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::ServerLost)?.into_data() else { continue };
        gathered.extend_from_slice(&data);
        // Whoever read it from the server may have counted it, which ends here.
        drop(data);
        if gathered.len() > EDITABLE {
            return Err(Refusal::AnswerTooLarge { limit: EDITABLE });
        }
        if !share.reach_in_time(gathered.len()).await {
            return Err(Refusal::AnswerNotHeld);
        }
    }
    let message = gathered.freeze();
    if !message.is_empty() {
        let said = to.hold(message, share).await?;
        see(&said.message);
        // Whoever wanted it may have gone.
        let _ = to.say(said).await;
    }
    Ok(())
}

async fn events(mut body: Body, to: &To, mut see: impl FnMut(&Bytes)) -> Result<(), Refusal> {
    if let Body::Events(reader) = &body {
        reader.read_once();
    }
    let mut decoder = Decoder::new(EDITABLE);
    // Of the event that is not complete yet.
    let mut share = to.nothing();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::ServerLost)?.into_data() else { continue };
        let mut found = Vec::new();
        let read = decoder.push(&data, |event| found.extend(event.into_message().map(Bytes::from)));
        read.map_err(|_| Refusal::AnswerTooLarge { limit: EDITABLE })?;
        // As above.
        drop(data);
        for message in found {
            let said = to.hold(message, share.split(usize::MAX)).await?;
            see(&said.message);
            if to.say(said).await.is_err() {
                return Ok(());
            }
        }
        if !share.reach_in_time(decoder.pending()).await {
            return Err(Refusal::AnswerNotHeld);
        }
    }
    Ok(())
}

/// Nobody reads any more.
struct Unread;

impl To {
    pub(super) fn new(worker: &Worker, caller: &Authenticated, out: mpsc::Sender<Said>) -> Self {
        let (shares, principal) = (worker.shared.held.clone(), caller.principal().clone());
        Self { out, shares, principal, uncounted: Arc::new(Semaphore::new(UNCOUNTED)) }
    }

    async fn say(&self, said: Said) -> Result<(), Unread> {
        self.out.send(said).await.map_err(|_| Unread)
    }

    /// Holds a message, of which so much is held already, until the client has it: as soon as there is room for it.
    async fn hold(&self, message: Bytes, mut share: Share) -> Result<Said, Refusal> {
        let few = u32::try_from(message.len()).ok().filter(|_| message.len() <= UNCOUNTED);
        let uncounted = few.and_then(|few| self.uncounted.clone().try_acquire_many_owned(few).ok());
        let counted = if uncounted.is_some() { 0 } else { message.len() };
        share.shrink(counted);
        if !share.reach_wholly_in_time(counted).await {
            return Err(Refusal::AnswerNotHeld);
        }
        Ok(Said { message, share, uncounted })
    }

    /// A share of nothing yet.
    pub(super) fn nothing(&self) -> Share {
        self.shares.nothing(&self.principal)
    }
}

impl Said {
    /// As an event.
    pub(super) fn event(self) -> Bytes {
        let Self { message, share, uncounted } = self;
        share.of(Text { text: sse::message(&message), _uncounted: uncounted })
    }
}

/// A message as an event, with its part of what is not counted.
struct Text {
    text: Vec<u8>,
    _uncounted: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Pieces as they come, and something said in between where none does for long, but not within an event.
pub(super) fn kept_alive(pieces: impl Stream<Item = Piece> + Unpin) -> impl Stream<Item = Piece> {
    stream::unfold((pieces, true), |(mut pieces, is_between)| async move {
        let silence = Ok(Bytes::from_static(sse::KEEP_ALIVE.as_bytes()));
        let piece = if is_between {
            timeout(SILENCE, pieces.next()).await.unwrap_or(Some(silence))?
        } else {
            pieces.next().await?
        };
        let is_between = piece.as_ref().is_ok_and(|piece| piece.ends_with(b"\n\n"));
        Some((piece, (pieces, is_between)))
    })
}

/// Says something in a stream. Says whether anybody is there to hear it.
pub(super) async fn say(out: &mpsc::Sender<Piece>, text: impl Into<Bytes>) -> bool {
    out.send(Ok(text.into())).await.is_ok()
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_silent_for_long_is_no_dead_stream() {
        let late = async {
            sleep(SILENCE * 5 / 2).await;
            Ok(Bytes::from_static(b"data: a"))
        };
        let rest = async {
            sleep(SILENCE * 5 / 2).await;
            Ok(Bytes::from_static(b"b\n\n"))
        };
        let pieces = stream::once(late).chain(stream::once(rest));
        let said = kept_alive(Box::pin(pieces)).map(Result::unwrap).collect::<Vec<_>>().await;
        assert_eq!(said, [sse::KEEP_ALIVE, sse::KEEP_ALIVE, "data: a", "b\n\n"], "and none within an event");
    }
}
