//! Requests to the server's MCP endpoint. Which server that is knows whoever sends them ([`super::Pool`]). Nothing of a
//! client's request is in them that is not named here: neither its credentials nor its cookies nor its query.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request};
use longshore_mcp::headers::{EVENT_STREAM, JSON};
use longshore_mcp::revision::{Revision, VersionHeader};
use serde_json::{Value, json};

use crate::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID, TRACE};
use crate::kept;

/// What a server answers with, in either form.
pub(crate) const ACCEPT_BOTH: &str = "application/json, text/event-stream";

/// The session that a request belongs to: the server's id of it, if it has one, and the revision that is spoken in it.
pub(crate) type Within = (Option<HeaderValue>, Revision);

/// One that says something, or ends a session.
pub(crate) fn build(method: Method, within: Option<Within>, body: Bytes) -> Request<Bytes> {
    let mut request = of(method, within, body);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(ACCEPT_BOTH));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    request
}

/// One for a stream of events: for what belongs to no call, or for the rest of one after the event of this id.
pub(crate) fn stream(within: Option<Within>, last: Option<&str>) -> Request<Bytes> {
    let mut request = of(Method::GET, within, Bytes::new());
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
    if let Some(last) = last.and_then(|last| HeaderValue::try_from(last).ok()) {
        request.headers_mut().insert(LAST_EVENT_ID, last);
    }
    request
}

/// The trace context of a client's request, which is part of the message and not of who sent it. It is kept for as long as
/// the call, whose client may have gone.
pub(crate) fn trace(headers: &HeaderMap) -> HeaderMap {
    let mut trace = HeaderMap::new();
    for name in TRACE {
        if let Some(value) = headers.get(&name).and_then(kept::value) {
            trace.insert(name, value);
        }
    }
    trace
}

/// Who the sidecar says that it is.
pub(crate) fn own_info() -> Value {
    json!({"name": "longshore-sidecar", "version": env!("CARGO_PKG_VERSION")})
}

fn of(method: Method, within: Option<Within>, body: Bytes) -> Request<Bytes> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    if let Some((id, revision)) = within {
        let headers = request.headers_mut();
        if let Some(id) = id {
            headers.insert(SESSION_ID, id);
        }
        if let Some(version) = version(revision) {
            headers.insert(PROTOCOL_VERSION, version);
        }
    }
    request
}

/// What the headers say of the revision that is spoken: nothing where they did not yet in that one.
pub(super) fn version(revision: Revision) -> Option<HeaderValue> {
    let is_known = revision.features().version_header != VersionHeader::Unknown;
    is_known.then(|| HeaderValue::from_static(revision.as_str()))
}
