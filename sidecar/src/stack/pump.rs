//! Takes the messages out of a response, for clients that get them in another one.

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::headers::{self, EVENT_STREAM, JSON};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::Decoder;
use tokio::sync::mpsc;
use tokio::time::Duration;

use super::respond::{Body, Piece};
use crate::rescue::{self, Kind, Refusal};
use crate::upstream::EDITABLE;

/// How many pieces wait for a slow client before what it reads has to wait too.
pub(super) const PIECES: usize = 8;
/// How long a stream is silent before something is said in it, so that proxies do not take it for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// Gives each message of the response to a request to whoever wants it. If the answer is not among them, an error takes
/// its place: nobody could come back for it.
pub(super) async fn answer(
    response: Response<Body>,
    id: &str,
    revision: Revision,
    out: &mpsc::Sender<Bytes>,
) {
    let id = Id::from_json(id);
    let mut answered = false;
    let see = |message: &Bytes| {
        let read = envelope::read(message);
        answered |=
            matches!(read, Ok(Message::Response(response)) if response.id.is_some_and(|of| of.is(&id)));
    };
    pass(response, out, see).await;
    if !answered {
        let rescued = rescue::rescue(&Refusal::ServerLost, Some(id), Kind::Request, revision);
        let _ = out.send(rescued.json.into()).await;
    }
}

/// Gives each message of a response to whoever wants it.
pub(super) async fn messages(response: Response<Body>, out: &mpsc::Sender<Bytes>) {
    pass(response, out, |_| ()).await;
}

async fn pass(response: Response<Body>, out: &mpsc::Sender<Bytes>, mut see: impl FnMut(&Bytes)) {
    let (head, mut body) = response.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if headers::is_type(content_type, EVENT_STREAM) {
        return events(body, out, see).await;
    }
    if !headers::is_type(content_type, JSON) {
        return;
    }
    let mut message = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return };
        if let Ok(data) = frame.into_data() {
            if message.len() + data.len() > EDITABLE {
                return;
            }
            message.extend_from_slice(&data);
        }
    }
    if !message.is_empty() {
        let message = message.freeze();
        see(&message);
        // Whoever wanted it may have gone.
        let _ = out.send(message).await;
    }
}

async fn events(mut body: Body, out: &mpsc::Sender<Bytes>, mut see: impl FnMut(&Bytes)) {
    let mut decoder = Decoder::new(EDITABLE);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return };
        let Ok(data) = frame.into_data() else { continue };
        let mut found = Vec::new();
        let read = decoder.push(&data, |event| {
            let data = event.data.filter(|data| event.event.is_none() && !data.is_empty());
            found.extend(data.map(|data| Bytes::from(data.into_owned())));
        });
        if read.is_err() {
            return;
        }
        for message in found {
            see(&message);
            if out.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// Says something in a stream. Says whether anybody is there to hear it.
pub(super) async fn say(out: &mpsc::Sender<Piece>, text: impl Into<Bytes>) -> bool {
    out.send(Ok(text.into())).await.is_ok()
}
