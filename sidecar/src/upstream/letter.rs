//! What is sent to the server. Which server that is knows whoever sends it ([`super::Pool`]). Nothing of a client's
//! request is in it that is not named here: neither its credentials nor its cookies nor its query. Only a server over HTTP
//! sees a head, which is written when it leaves.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use longshore_mcp::headers::{EVENT_STREAM, JSON};
use longshore_mcp::revision::{Revision, VersionHeader};
use serde_json::{Value, json};

use crate::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID, TRACE};
use crate::request_copy;

/// What a server answers with, in either form.
const ACCEPT_BOTH: &str = "application/json, text/event-stream";
/// How long each part of a trace may be, in bytes, as W3C Baggage has it. What is longer is left out: it would be kept with
/// each call, and counted nowhere.
const MAX_TRACE: usize = 8 * 1024;

/// A session: the server's id of it, if it has one, and the revision that is spoken in it.
pub(crate) type Within = (Option<HeaderValue>, Revision);

/// The trace context of a client's request, if it has any.
pub(crate) type Trace = Option<Arc<HeaderMap>>;

/// What a head repeats of a message.
pub(crate) type Repeated = Vec<(HeaderName, HeaderValue)>;

/// What is sent in a session.
pub(crate) enum Letter {
    /// A message, and what the server calls the session, if it has a name for it.
    Post(Option<HeaderValue>, Post),
    /// It asks for a stream of events: for what belongs to no call, or for the rest of one after the event of this id.
    Stream(Within, Option<HeaderValue>),
    /// It ends the session.
    End(HeaderValue, Revision),
}

/// A message, and what goes with it.
#[derive(Clone, Default)]
pub(crate) struct Post {
    pub(crate) body: Bytes,
    /// The revision that it is of, where one was chosen.
    pub(crate) revision: Option<Revision>,
    /// Part of the message, and not of who sent it.
    pub(crate) trace: Trace,
    pub(crate) repeated: Repeated,
}

impl Post {
    pub(crate) fn of(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// The same in a session.
    pub(crate) fn within(self, (id, revision): Within) -> Letter {
        Letter::Post(id, Self { revision: Some(revision), ..self })
    }
}

impl Letter {
    pub(crate) fn stream(within: Within, last: Option<&str>) -> Self {
        Self::Stream(within, last.and_then(|last| HeaderValue::try_from(last).ok()))
    }

    /// What the server calls the session.
    pub(super) fn session(&self) -> Option<&HeaderValue> {
        match self {
            Self::Post(id, _) | Self::Stream((id, _), _) => id.as_ref(),
            Self::End(id, _) => Some(id),
        }
    }
}

impl From<Post> for Request<Bytes> {
    fn from(post: Post) -> Self {
        let Post { body, revision, trace, repeated } = post;
        let mut request = request(Method::POST, ACCEPT_BOTH, None, revision, body);
        let headers = request.headers_mut();
        headers.extend(trace.map(Arc::unwrap_or_clone).unwrap_or_default());
        for (name, value) in repeated {
            headers.insert(name, value);
        }
        request
    }
}

impl From<Letter> for Request<Bytes> {
    fn from(letter: Letter) -> Self {
        let none = Bytes::new();
        match letter {
            Letter::Post(id, post) => {
                let mut request = Self::from(post);
                if let Some(id) = id {
                    request.headers_mut().insert(SESSION_ID, id);
                }
                request
            }
            Letter::Stream((id, revision), last) => {
                let mut request = request(Method::GET, EVENT_STREAM, id, Some(revision), none);
                if let Some(last) = last {
                    request.headers_mut().insert(LAST_EVENT_ID, last);
                }
                request
            }
            Letter::End(id, revision) => request(Method::DELETE, ACCEPT_BOTH, Some(id), Some(revision), none),
        }
    }
}

fn request(
    method: Method,
    accept: &'static str,
    id: Option<HeaderValue>,
    revision: Option<Revision>,
    body: Bytes,
) -> Request<Bytes> {
    let mut request = Request::new(body);
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    if method != Method::GET {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    }
    if let Some(id) = id {
        headers.insert(SESSION_ID, id);
    }
    if let Some(version) = revision.and_then(version) {
        headers.insert(PROTOCOL_VERSION, version);
    }
    *request.method_mut() = method;
    request
}

/// What the headers say of the revision that is spoken: nothing where they did not yet in that one.
pub(super) fn version(revision: Revision) -> Option<HeaderValue> {
    let is_known = revision.features().version_header != VersionHeader::Unknown;
    is_known.then(|| HeaderValue::from_static(revision.as_str()))
}

/// The trace context of a client's request. It is kept for as long as the call, whose client may have gone. What occurs several
/// times may be one list in parts, and stays so.
pub(crate) fn trace(headers: &HeaderMap) -> Trace {
    let kept = |name: HeaderName| {
        let parts = headers.get_all(&name);
        let fits = parts.iter().map(HeaderValue::len).sum::<usize>() <= MAX_TRACE;
        let values = parts.iter().filter(|_| fits).filter_map(request_copy::value);
        values.map(|value| (name.clone(), value)).collect::<Vec<_>>()
    };
    let trace: HeaderMap = TRACE.into_iter().flat_map(kept).collect();
    (!trace.is_empty()).then(|| Arc::new(trace))
}

/// Who the sidecar says that it is.
pub(crate) fn own_info() -> Value {
    json!({"name": "longshore-sidecar", "version": env!("CARGO_PKG_VERSION")})
}
