//! Responses: their bodies, and the headers that all of them have.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, CACHE_CONTROL,
    CONNECTION, CONTENT_TYPE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use longshore_mcp::headers::{EVENT_STREAM, JSON};
use tokio::sync::mpsc;

use super::forward::Relay;
use crate::headers::{ACCEL_BUFFERING, SESSION_ID};
use crate::refusal::ALLOWED_METHODS;
use crate::streamed_body::{BrokenOff, Piece};
use crate::streams::Reader;
use crate::worker::Worker;

/// A response's body.
pub(crate) enum Body {
    /// All of it.
    Whole(Option<Bytes>),
    /// All of it, in parts that need not be put together.
    Parts(Box<std::array::IntoIter<Bytes, 3>>),
    /// Messages that come one by one.
    Pieces(mpsc::Receiver<Piece>),
    /// One message that comes in pieces. Broken off before its end was marked, it is an error: half a message must not
    /// pass for a whole one.
    Message(mpsc::Receiver<Piece>, End),
    /// Events, for as long as there are any.
    Events(Box<Reader>),
    /// What the server says to a request that stands alone. Dropped, it ends the request.
    Live(Pin<Box<dyn Stream<Item = Piece>>>),
    /// What comes from another replica.
    Relayed(Box<Relay>),
}

/// Whether the last piece of a message was given.
pub(crate) type End = Rc<Cell<bool>>;

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Whole(None)
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    pub(crate) fn parts(parts: [Bytes; 3]) -> Self {
        Self::Parts(Box::new(parts.into_iter()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Parts(parts) => Poll::Ready(parts.next().map(|part| Ok(Frame::data(part)))),
            Self::Pieces(pieces) => {
                pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Message(pieces, end) => Poll::Ready(match ready!(pieces.poll_recv(cx)) {
                None if !end.get() => Some(Err(BrokenOff)),
                piece => piece.map(|piece| piece.map(Frame::data)),
            }),
            Self::Relayed(relay) => relay.poll_frame(cx),
            Self::Live(pieces) => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Events(reader) => {
                reader.poll_next(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Parts(parts) => parts.as_slice().is_empty(),
            Self::Pieces(_) | Self::Message(..) | Self::Events(_) | Self::Live(_) => false,
            Self::Relayed(relay) => relay.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Parts(parts) => {
                SizeHint::with_exact(parts.as_slice().iter().map(Bytes::len).sum::<usize>() as u64)
            }
            Self::Pieces(_) | Self::Message(..) | Self::Events(_) | Self::Live(_) => SizeHint::default(),
            Self::Relayed(relay) => relay.size_hint(),
        }
    }
}

/// A message as the whole response.
pub(crate) fn json(body: Body, session: Option<HeaderValue>) -> Response<Body> {
    with_type(body, JSON, session)
}

/// Messages as events.
pub(crate) fn events(body: Body, session: Option<HeaderValue>) -> Response<Body> {
    let mut response = with_type(body, EVENT_STREAM, session);
    let headers = response.headers_mut();
    // An event that a proxy holds back has not been sent.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// There is nothing more to come. This is how a client of events is told not to ask again.
pub(crate) fn nothing() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// A notification or a response was taken.
pub(crate) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn with_type(body: Body, content_type: &'static str, session: Option<HeaderValue>) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(session) = session {
        headers.insert(SESSION_ID, session);
    }
    response
}

/// The headers that MCP and this server have. Pages may send others too, for their own reasons or for the arguments of
/// tools: those that they ask for.
const ALLOWED_HEADERS: &str = "Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, \
                               Mcp-Name, Mcp-Session-Id, X-API-Key";
/// The most other headers that one answer allows: more than any tool repeats.
const MAX_OTHERS: usize = 64;

/// What a browser may send, where it may send anything.
pub(crate) fn preflight(asked: &HeaderMap, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
    let asked = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).and_then(|names| names.to_str().ok());
    let mut allowed = ALLOWED_HEADERS.to_owned();
    let is_other = |name: &&str| {
        let is_listed = ALLOWED_HEADERS.split(", ").any(|listed| listed.eq_ignore_ascii_case(name));
        !is_listed && HeaderName::from_bytes(name.as_bytes()).is_ok()
    };
    for name in asked.unwrap_or_default().split(',').map(str::trim).filter(is_other).take(MAX_OTHERS) {
        allowed.push_str(", ");
        allowed.push_str(name);
    }
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
}

/// Has a connection end with this response: its client still sends a request that nobody reads.
pub(crate) fn end_unread(response: &mut Response<Body>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.extensions_mut().insert(Unread);
}

/// Marks the response to a request that was not read to its end.
#[derive(Clone, Copy)]
pub(crate) struct Unread;

/// The response to a client that listens to what belongs to no call.
pub(crate) fn of_no_call(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(OfNoCall);
    response
}

/// Marks such a response: at the end nobody waits until it is read, since its client may have the rest elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct OfNoCall;

/// The headers that every response gets.
pub(crate) fn finish(worker: &Worker, response: &mut Response<Body>, allowed_origin: Option<HeaderValue>) {
    let headers = response.headers_mut();
    if let Some(origin) = allowed_origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate"),
        );
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    if worker.shared.is_draining() {
        // The client comes back on another connection, which leads to another replica.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
