//! Paths and HTTP methods.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ALLOW};
use http::{HeaderValue, Method, Request, Response, StatusCode};

use crate::configuration::Snapshot;
use crate::refusal::{ALLOWED_METHODS, Refusal};

use super::respond::{self, Body};
use super::{Head, sse};

/// The path of the MCP endpoint, whatever the server's own path is.
const ENDPOINT: &str = "/mcp";

/// A request that is addressed to this server, with an HTTP method that it serves.
pub(crate) struct Received {
    pub(crate) request: Head,
    pub(crate) snapshot: Arc<Snapshot>,
}

/// Where a request goes.
pub(crate) enum Routed {
    /// A browser asks whether it may ask.
    Preflight(Response<Body>),
    /// Everything else.
    Received(Received),
}

/// The path that a request is for. Many clients end every address with a slash.
pub(super) fn path<B>(request: &Request<B>) -> &str {
    let path = request.uri().path();
    path.strip_suffix('/').unwrap_or(path)
}

/// Finds out what a request is for.
pub(crate) fn route(mut request: Head, snapshot: Arc<Snapshot>) -> Result<Routed, Refusal> {
    // What this says is said here alone.
    request.headers_mut().remove(sse::MARK);
    let (methods, allowed): (&[Method], _) = match path(&request) {
        ENDPOINT => (&[Method::POST, Method::GET, Method::DELETE], ALLOWED_METHODS),
        sse::STREAM => (&[Method::GET], sse::STREAM_METHODS),
        sse::MESSAGES => (&[Method::POST], sse::MESSAGES_METHODS),
        path if snapshot.authenticator.wants_keys() && is_of_oauth(path) => return Err(Refusal::NoOAuth),
        _ => return Err(Refusal::NoSuchPath),
    };
    match *request.method() {
        ref method if methods.contains(method) => {
            sse::mark(&mut request);
            Ok(Routed::Received(Received { request, snapshot }))
        }
        Method::OPTIONS => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            if request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
                respond::preflight(request.headers(), response.headers_mut());
            }
            Ok(Routed::Preflight(response))
        }
        _ => Err(Refusal::MethodNotAllowed { allowed }),
    }
}

/// Whether a client looks for an authorization server here, as those do who were refused for want of a key. Some show
/// people what they are answered then, and nothing else.
fn is_of_oauth(path: &str) -> bool {
    path.starts_with("/.well-known/oauth-") || matches!(path, "/register" | "/authorize" | "/token")
}
