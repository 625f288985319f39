//! Takes the messages out of a response, for clients that get them in another one.

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use longshore_mcp::headers::{self, EVENT_STREAM, JSON};
use longshore_mcp::sse::Decoder;
use tokio::sync::mpsc;
use tokio::time::Duration;

use super::respond::{Body, Piece};
use crate::upstream::EDITABLE;

/// How many pieces wait for a slow client before what it reads has to wait too.
pub(super) const PIECES: usize = 8;
/// How long a stream is silent before something is said in it, so that proxies do not take it for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// Gives each message of a response to whoever wants it, and says whether all were whole.
pub(super) async fn messages(response: Response<Body>, out: &mpsc::Sender<Bytes>) -> bool {
    let (head, mut body) = response.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if headers::is_type(content_type, EVENT_STREAM) {
        return events(body, out).await;
    }
    if !headers::is_type(content_type, JSON) {
        return true;
    }
    let mut message = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        if let Ok(data) = frame.into_data() {
            if message.len() + data.len() > EDITABLE {
                return false;
            }
            message.extend_from_slice(&data);
        }
    }
    if !message.is_empty() {
        // Whoever wanted it may have gone.
        let _ = out.send(message.freeze()).await;
    }
    true
}

async fn events(mut body: Body, out: &mpsc::Sender<Bytes>) -> bool {
    let mut decoder = Decoder::new(EDITABLE);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let Ok(data) = frame.into_data() else { continue };
        let mut found = Vec::new();
        let read = decoder.push(&data, |event| {
            let data = event.data.filter(|data| event.event.is_none() && !data.is_empty());
            found.extend(data.map(|data| Bytes::from(data.into_owned())));
        });
        if read.is_err() {
            return false;
        }
        for message in found {
            if out.send(message).await.is_err() {
                return true;
            }
        }
    }
    true
}

/// Says something in a stream. Says whether anybody is there to hear it.
pub(super) async fn say(out: &mpsc::Sender<Piece>, text: impl Into<Bytes>) -> bool {
    out.send(Ok(text.into())).await.is_ok()
}
