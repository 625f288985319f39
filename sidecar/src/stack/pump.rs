//! Takes the messages out of a response, for clients that get them in another one.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body_util::BodyExt;
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::{self, Decoder};
use tokio::sync::mpsc;
use tokio::time::Duration;

use super::respond::{Body, Piece};
use crate::rescue::{self, Kind, Refusal};
use crate::shares::{Share, Shares};
use crate::upstream::{EDITABLE, Form};

/// How many pieces wait for a slow client before what it reads has to wait too.
pub(super) const PIECES: usize = 8;
/// How long a stream is silent before something is said in it, so that proxies do not take it for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// A message that was taken out. It is held whole, so it counts until the client has it.
pub(super) struct Said {
    pub(super) message: Bytes,
    pub(super) share: Share,
}

/// For whom messages are taken out, and where they are counted.
#[derive(Clone)]
pub(super) struct To {
    pub(super) out: mpsc::Sender<Said>,
    pub(super) shares: Arc<Shares>,
    pub(super) principal: Arc<str>,
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
        let rescued = rescue::rescue(&refusal, Some(id), Kind::Request, revision);
        let _ = to.say(rescued.json.into(), to.nothing()).await;
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
        let (held, more) = (gathered.len(), data.len());
        gathered.extend_from_slice(&data);
        // Whoever read it from the server may have counted it, which ends here.
        drop(data);
        hold(&mut share, held, more)?;
    }
    let message = gathered.freeze();
    if !message.is_empty() {
        see(&message);
        // Whoever wanted it may have gone.
        let _ = to.say(message, share).await;
    }
    Ok(())
}

async fn events(mut body: Body, to: &To, mut see: impl FnMut(&Bytes)) -> Result<(), Refusal> {
    let mut decoder = Decoder::new(EDITABLE);
    // Of the event that is not complete yet.
    let mut share = to.nothing();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::ServerLost)?.into_data() else { continue };
        let more = data.len();
        let mut found = Vec::new();
        let read = decoder.push(&data, |event| found.extend(event.into_message().map(Bytes::from)));
        read.map_err(|_| Refusal::AnswerTooLarge { limit: EDITABLE })?;
        // As above.
        drop(data);
        hold(&mut share, 0, more)?;
        let found: Vec<_> = found.into_iter().map(|message| (share.split(message.len()), message)).collect();
        if decoder.is_between_events() {
            share.shrink(0);
        } else if !found.is_empty() {
            share.shrink(more);
        }
        for (share, message) in found {
            see(&message);
            if to.say(message, share).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Makes room for more of a message.
fn hold(share: &mut Share, held: usize, more: usize) -> Result<(), Refusal> {
    if held + more > EDITABLE {
        return Err(Refusal::AnswerTooLarge { limit: EDITABLE });
    }
    if share.add(more) { Ok(()) } else { Err(Refusal::AnswerNotHeld) }
}

/// Nobody reads any more.
struct Unread;

impl To {
    async fn say(&self, message: Bytes, share: Share) -> Result<(), Unread> {
        self.out.send(Said { message, share }).await.map_err(|_| Unread)
    }

    /// A share of nothing yet.
    pub(super) fn nothing(&self) -> Share {
        self.shares.nothing(&self.principal)
    }
}

impl Said {
    /// As an event.
    pub(super) fn event(self) -> Bytes {
        let Self { message, share } = self;
        share.of(sse::message(&message))
    }
}

/// Says something in a stream. Says whether anybody is there to hear it.
pub(super) async fn say(out: &mpsc::Sender<Piece>, text: impl Into<Bytes>) -> bool {
    out.send(Ok(text.into())).await.is_ok()
}
