//! How an answer is written.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use longshore_mcp::headers::{self, EVENT_STREAM, JSON};

/// The form of a body. A server chooses between two for each answer (Streamable HTTP, "Sending Messages to the Server").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One message.
    Json,
    /// A stream of events that hold messages.
    Events,
    /// Nothing that MCP knows.
    Other,
}

impl Form {
    /// That of a body with these headers before it.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if headers::is_type(content_type, JSON) {
            Self::Json
        } else if headers::is_type(content_type, EVENT_STREAM) {
            Self::Events
        } else {
            Self::Other
        }
    }

    /// Whether a request for a stream of events was answered with one.
    pub(crate) fn is_stream<B>(response: &Response<B>) -> bool {
        response.status() == StatusCode::OK && Self::of(response.headers()) == Self::Events
    }
}
