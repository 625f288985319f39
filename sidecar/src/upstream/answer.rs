//! An answer of the server, as far as anybody has to know it. Only one of a server over HTTP has a head, which is read
//! where it comes ([`mod@super::http`]).

use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use longshore_mcp::headers::{self, EVENT_STREAM, JSON};

use super::{Body, Lease};
use crate::headers::session_id;

/// An answer, with the connection that it is still coming from.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) also: Also,
    pub(crate) body: Body,
    pub(crate) lease: Lease,
}

/// What an answer says beside its status and its body.
pub(crate) enum Also {
    Nothing,
    /// It begins a session, which the server calls so. Some say it again in each answer.
    Begins(HeaderValue),
    /// It begins one that is kept here under this id: the server itself knows nothing of it.
    BeginsHere(HeaderValue),
    /// What was asked for is elsewhere.
    Moved(HeaderValue),
    /// The server has no time (429, 503), and says when to come again: its `Retry-After`.
    HasNoTime(HeaderValue),
}

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

impl Answer {
    /// One that no connection is held for.
    pub(crate) fn of(body: Body) -> Self {
        Self { status: StatusCode::OK, also: Also::Nothing, body, lease: Lease::nothing() }
    }

    /// One with nothing in it but its status.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self { status, ..Self::nothing() }
    }

    /// One with nothing in it at all: as of a server that has ended its stream at once.
    pub(crate) fn nothing() -> Self {
        Self::of(Body::Whole(None))
    }

    /// Whether a request for a stream of events was answered with one.
    pub(crate) fn is_stream(&self) -> bool {
        self.status == StatusCode::OK && self.body.form() == Form::Events
    }
}

impl Also {
    /// What the head of an answer over HTTP says.
    pub(super) fn of(head: &Parts) -> Self {
        let says = |name| head.headers.get(name).cloned();
        if let Some(id) = session_id(&head.headers) {
            return Self::Begins(id);
        }
        let also = match head.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                says(RETRY_AFTER).map(Self::HasNoTime)
            }
            status if status.is_redirection() => says(LOCATION).map(Self::Moved),
            _ => None,
        };
        also.unwrap_or(Self::Nothing)
    }

    /// What the session is called that begins.
    pub(crate) fn session(&self) -> Option<HeaderValue> {
        match self {
            Self::Begins(id) | Self::BeginsHere(id) => Some(id.clone()),
            Self::Nothing | Self::Moved(_) | Self::HasNoTime(_) => None,
        }
    }
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
}
