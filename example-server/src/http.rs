//! The server over Streamable HTTP, at `/mcp`.

mod events;
mod guard;
mod legacy;
mod modern;
mod sse;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use longshore_mcp::envelope::Id;
use longshore_mcp::headers::{self, Fields};
use longshore_mcp::revision::Revision;
use longshore_mcp::status::{self, Problem};
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::server::{Change, Server};
use guard::Guard;
use legacy::Sessions;
pub use sse::over_sse;

/// The largest body.
const MAX_BODY: usize = 4 << 20;

/// Why the server over HTTP ended.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The port is taken, or may not be used.
    #[error("cannot listen on {address}: choose another with --port and --host")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The listener broke.
    #[error("cannot go on listening")]
    Serve(#[source] io::Error),
    /// The revision does not have the transport.
    #[error("{0} is not spoken over Streamable HTTP: choose --transport sse or stdio")]
    Revision(Revision),
    /// The revision has left the transport behind.
    #[error("{0} is not spoken over HTTP+SSE: choose --transport http or stdio")]
    Sse(Revision),
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub struct Served {
    /// The address.
    pub address: SocketAddr,
    /// The URL that a client is to be given.
    pub url: String,
}

struct Http {
    server: Arc<Server>,
    guard: Guard,
    sessions: Sessions,
}

/// What a request has come to.
type Reply = Response<Body>;

/// Serves until `stop` is done; `started` is told where, once it listens.
pub async fn over_http(
    server: Arc<Server>,
    address: SocketAddr,
    started: impl FnOnce(Served),
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    if server.revision == Revision::V2024_11_05 {
        return Err(HttpError::Revision(server.revision));
    }
    let refused = |source| HttpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    let http =
        Arc::new(Http { guard: Guard::of(bound), sessions: Sessions::default(), server: server.clone() });
    let router = Router::new().route("/mcp", axum::routing::any(respond)).with_state(http.clone());
    started(Served { address: bound, url: format!("http://{bound}/mcp") });
    let stop = async move {
        stop.await;
        // Streams would keep their connections open for ever.
        server.tell(Change::End);
        http.sessions.end();
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await.map_err(HttpError::Serve)
}

async fn respond(State(http): State<Arc<Http>>, request: Request<Body>) -> Reply {
    let (parts, body) = request.into_parts();
    let revision = http.server.revision;
    if let Err(why) = http.guard.judge(&parts.headers) {
        return refuse(None, Problem::Foreign, why, None, revision);
    }
    match parts.method {
        Method::POST => {
            if let Err((problem, why)) = judge_post(&parts.headers) {
                return refuse(None, problem, why, None, revision);
            }
            let Ok(body) = to_bytes(body, MAX_BODY).await else {
                let why = "the body is too large, or was not sent to its end";
                return refuse(None, Problem::BodyTooLarge, why, None, revision);
            };
            http.post(&parts.headers, &body).await
        }
        Method::GET if !http.server.is_modern() => http.sessions.listen(&http.server, &parts.headers),
        Method::DELETE if !http.server.is_modern() => http.sessions.delete(&http.server, &parts.headers),
        _ => {
            let mut reply =
                refuse(None, Problem::MethodNotAllowed, "this method has no meaning here", None, revision);
            let allowed = if http.server.is_modern() { "POST" } else { "POST, GET, DELETE" };
            reply.headers_mut().insert(header::ALLOW, http::HeaderValue::from_static(allowed));
            reply
        }
    }
}

impl Http {
    async fn post(&self, headers: &HeaderMap, body: &Bytes) -> Reply {
        if self.server.is_modern() {
            modern::post(&self.server, headers, body).await
        } else {
            self.sessions.post(&self.server, headers, body).await
        }
    }
}

/// What can be wrong with a `POST` before anybody looks at its body.
fn judge_post(headers: &HeaderMap) -> Result<(), (Problem, &'static str)> {
    if !headers::accepts_both(joined(headers, &header::ACCEPT).as_deref()) {
        let why = "\"Accept\" has to have application/json and text/event-stream";
        return Err((Problem::NotAcceptable, why));
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if headers::is_type(content_type, headers::JSON) {
        Ok(())
    } else {
        Err((Problem::UnsupportedMediaType, "\"Content-Type\" has to be application/json"))
    }
}

/// All values of a header, joined by commas.
fn joined(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

fn fields(headers: &HeaderMap) -> Fields<'_> {
    Fields::read(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// Says what is wrong with a request.
fn refuse(id: Option<&str>, problem: Problem, why: &str, data: Option<&Value>, revision: Revision) -> Reply {
    let answer = status::answer(problem, revision);
    let text = longshore_mcp::error::response(id.map(Id::from_json), answer.code, why, data);
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(status, text)
}

fn accepted() -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply
}

fn json(status: StatusCode, text: String) -> Reply {
    (status, [(header::CONTENT_TYPE, headers::JSON)], text).into_response()
}
