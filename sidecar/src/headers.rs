//! The names of headers, as the HTTP library has them: it reads one that is given as text each time.

use http::{HeaderMap, HeaderName, HeaderValue};
use longshore_mcp::headers;

/// Which session a message is in.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static(headers::SESSION_ID);
/// What a message that stands alone asks for.
pub(crate) const METHOD: HeaderName = HeaderName::from_static(headers::METHOD);
/// Which revision it is of.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(headers::PROTOCOL_VERSION);
/// Where a stream broke off.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(headers::LAST_EVENT_ID);
/// The other header that a key may come in, beside `Authorization`.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Has nginx pass on what it gets as it comes.
pub(crate) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// The trace that a message is part of (W3C Trace Context, and Baggage).
pub(crate) const TRACE: [HeaderName; 3] = [
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
];

/// What the server calls a session, if it has sessions and this can be the name of one.
pub(crate) fn session_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut id = headers.get(SESSION_ID).filter(|id| id.to_str().is_ok_and(headers::is_session_id))?.clone();
    // Keeps it out of debug output.
    id.set_sensitive(true);
    Some(id)
}
