//! A stream of messages as a response.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::{Response, header};
use longshore_mcp::sse;

use super::Reply;
use crate::stream::{Next, Reader, Stream};

/// How long a stream may be silent before it says that it lives.
const SILENCE: Duration = Duration::from_secs(15);
/// How long a client is to wait before it comes back, in milliseconds: short, since what it waits for is there soon.
const RETRY: u64 = 100;

/// How events are written.
#[derive(Clone, Debug)]
pub(crate) enum Events {
    /// Without ids: whoever breaks off has lost the rest.
    Plain,
    /// With ids, which begin with this number of the stream.
    Numbered(u64),
    /// The same, with an event at the start that has an id and no message.
    Primed(u64),
    /// Without ids, after an event that is no message.
    After(String),
}

/// What is dropped when the client goes.
pub(crate) type Held = Box<dyn std::any::Any + Send + Sync>;

struct Source {
    stream: Arc<Stream>,
    reader: Reader,
    events: Events,
    state: Progress,
    _held: Option<Held>,
}

#[derive(PartialEq, Eq)]
enum Progress {
    Fresh,
    Going,
    Over,
}

/// The response. `held` lives as long as its body.
pub(crate) fn respond(stream: Arc<Stream>, reader: Reader, events: Events, held: Option<Held>) -> Reply {
    let source = Source { stream, reader, events, state: Progress::Fresh, _held: held };
    let body = stream::unfold(source, |mut source| async move {
        let bytes = source.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(bytes)), source))
    });
    let response = Response::builder()
        .header(header::CONTENT_TYPE, longshore_mcp::headers::EVENT_STREAM)
        .header(header::CACHE_CONTROL, "no-cache, no-transform")
        .header("x-accel-buffering", "no")
        .body(Body::from_stream(body));
    response.unwrap_or_default()
}

impl Source {
    async fn next(&mut self) -> Option<Vec<u8>> {
        match self.state {
            Progress::Over => return None,
            Progress::Fresh => {
                self.state = Progress::Going;
                match &mut self.events {
                    Events::Primed(number) => {
                        return Some(sse::numbered(&id(*number, self.reader.position()), b""));
                    }
                    Events::After(first) => return Some(std::mem::take(first).into_bytes()),
                    Events::Plain | Events::Numbered(_) => {}
                }
            }
            Progress::Going => {}
        }
        match tokio::time::timeout(SILENCE, self.stream.next(&mut self.reader)).await {
            Err(_) => Some(sse::KEEP_ALIVE.into()),
            Ok(Next::Entry(entry)) => Some(match self.events {
                Events::Plain | Events::After(_) => sse::message(entry.message.as_bytes()),
                Events::Numbered(stream) | Events::Primed(stream) => {
                    sse::numbered(&id(stream, entry.number), entry.message.as_bytes())
                }
            }),
            Ok(Next::Broken) => {
                self.state = Progress::Over;
                Some(sse::retry(RETRY).into_bytes())
            }
            Ok(Next::End) => None,
        }
    }
}

/// The id of an event: which stream, and which message of it.
pub(crate) fn id(stream: u64, number: u64) -> String {
    format!("{stream}-{number}")
}

/// What an id says.
pub(crate) fn parse(id: &str) -> Option<(u64, u64)> {
    let (stream, number) = id.split_once('-')?;
    Some((stream.parse().ok()?, number.parse().ok()?))
}
