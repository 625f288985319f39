//! The beginning of a session: the server's stream, up to the event that says where messages are posted to.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL};
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use longshore_mcp::endpoint::{self, BadEndpoint};
use longshore_mcp::headers::EVENT_STREAM;
use longshore_mcp::sse::{Decoder, Event};
use tokio::time::{Duration, Instant, timeout_at};

use super::Failure;
use crate::held::{Came, Coming};
use crate::upstream::http::{Connections, Place, Unanswered};
use crate::upstream::{self, Also, Answer, Body, EDITABLE, Form, Lease};

/// How long the server may take to say where messages are posted to. Nobody computes anything for it.
const OPEN: Duration = Duration::from_secs(10);
/// How much may come before that of one event, in bytes: nobody counts it, and no place takes as much to say.
const MAX_BEFORE: usize = 64 * 1024;
/// What the server may call itself: it is reached over loopback and nowhere else.
const HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// How a session begins.
pub(super) enum Begun {
    /// With this stream.
    Stream(Box<Stream>),
    /// Not: the server answers with this status, and perhaps says where it is.
    Refused(Box<Answer>),
}

/// A server's stream.
pub(super) struct Stream {
    body: Body,
    /// Held for as long as the stream is read.
    _lease: Lease,
    decoder: Decoder,
    /// What has come of the next message, counted.
    coming: Coming,
    /// Messages that have come and are not taken yet: of one piece of the body, at most. And what counts those that are
    /// large.
    pub(super) waiting: VecDeque<(Bytes, Option<Came>)>,
    /// The path and query that messages are posted to.
    pub(super) endpoint: String,
}

/// Why nothing more comes in a stream.
pub(super) struct Over;

/// Asks the server for a stream, and reads it until it says where messages are posted to.
pub(super) async fn begin(
    http: &Rc<Connections>,
    place: &Place,
    coming: Coming,
) -> Result<Begun, upstream::Failure> {
    let deadline = Instant::now() + OPEN;
    let late = || Failure::NoEndpoint { seconds: OPEN.as_secs_f64() };
    let mut request = Request::new(Bytes::new());
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
    request.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let sent =
        timeout_at(deadline, http.send_to(place.port, &place.path, request)).await.map_err(|_| late())?;
    let Answer { status, also, mut body, lease } = sent?;
    if !status.is_success() {
        let also = if matches!(also, Also::Moved(_)) { also } else { Also::Nothing };
        return Ok(Begun::Refused(Box::new(Answer { also, ..Answer::empty(status) })));
    }
    if body.form() != Form::Events {
        return Err(Failure::NotEvents.into());
    }
    let mut decoder = Decoder::new(EDITABLE);
    let (mut named, mut waiting) = (None, VecDeque::new());
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| late())?;
        let data = match frame {
            Some(Ok(frame)) => frame.into_data(),
            Some(Err(upstream::Broken::Http(error))) => return Err(Unanswered::Lost(error).into()),
            Some(Err(_)) | None => return Err(Failure::Ended.into()),
        };
        let Ok(data) = data else { continue };
        let read = decoder.push(&data, |event| match (&named, &event.data) {
            (None, Some(data)) if event.event.as_deref() == Some(endpoint::EVENT) => {
                named = Some(resolve(place, &String::from_utf8_lossy(data)));
            }
            // Nothing can be said before that; what follows in the same piece is kept.
            (None, _) => {}
            (Some(_), _) => waiting.extend(message(event).map(|message| (message, None))),
        });
        read.map_err(|_| Failure::Ended)?;
        if let Some(endpoint) = named.take() {
            let endpoint = endpoint.map_err(Failure::from)?;
            let stream = Stream { body, _lease: lease, decoder, coming, waiting, endpoint };
            return Ok(Begun::Stream(Box::new(stream)));
        }
        if decoder.pending() > MAX_BEFORE {
            return Err(Failure::NotEvents.into());
        }
    }
}

/// Where messages are posted to: on the server that the stream comes from, whatever name it has for itself.
fn resolve(place: &Place, reference: &str) -> Result<String, BadEndpoint> {
    let mut resolved = Err(BadEndpoint::Unusable);
    for host in HOSTS {
        resolved = endpoint::resolve(&format!("http://{host}:{}{}", place.port, place.path), reference);
        if resolved.is_ok() {
            break;
        }
    }
    resolved
}

/// The message of an event, if it has one.
fn message(event: Event<'_>) -> Option<Bytes> {
    event.into_message().map(Bytes::from)
}

// === impl Stream ===

impl Stream {
    /// Whoever has what was read was waited for.
    pub(super) fn put_off(&mut self) {
        self.coming.put_off();
    }

    /// Reads some more, as soon as there is room for it, and gives its length. Nothing is lost when this is not awaited to
    /// its end.
    pub(super) async fn read(&mut self) -> Result<usize, Over> {
        self.coming.room_at_last().await;
        let Some(Some(Ok(frame))) = self.coming.more(self.body.frame()).await else { return Err(Over) };
        let Ok(data) = frame.into_data() else { return Ok(0) };
        let Self { decoder, coming, waiting, .. } = self;
        let read = decoder.push(&data, |event| {
            if let Some(message) = message(event) {
                let came = coming.hand_on(message.len());
                waiting.push_back((message, came));
            }
        });
        coming.came(decoder.pending());
        read.map_err(|_| Over)?;
        Ok(data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_nowhere_but_to_the_server() {
        use BadEndpoint::{Foreign, Unusable};
        let place = Place { port: 3000, path: "/app/sse".to_owned() };
        for (reference, expected) in [
            ("/messages?session=1", Ok("/messages?session=1")),
            ("messages", Ok("/app/messages")),
            ("http://localhost:3000/m", Ok("/m")),
            ("http://127.0.0.1:3000/m", Ok("/m")),
            ("http://[::1]:3000/m", Ok("/m")),
            ("http://localhost:3001/m", Err(Foreign)),
            ("http://localhost/m", Err(Foreign)),
            ("https://localhost:3000/m", Err(Foreign)),
            ("http://0.0.0.0:3000/m", Err(Foreign)),
            ("http://example.com:3000/m", Err(Foreign)),
            ("//169.254.169.254/latest", Err(Foreign)),
            ("", Err(Unusable)),
        ] {
            let resolved = resolve(&place, reference);
            assert_eq!(resolved.as_deref(), expected.as_ref().map(|path| *path), "{reference}");
        }
    }
}
