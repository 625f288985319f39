//! The server over HTTP+SSE, the transport of 2024-11-05: a stream to hear at `/sse`, whose first event says where to
//! post to. The stream is the session: it ends with it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use http::{Method, Request, header};
use longshore_mcp::endpoint;
use longshore_mcp::envelope::{self, Malformed};
use longshore_mcp::headers;
use longshore_mcp::revision::Revision;
use longshore_mcp::status::Problem;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::events::{self, Events};
use super::guard::Guard;
use super::{HttpError, MAX_BODY, Reply, Served, accepted, joined, refuse};
use crate::server::{Change, Server};
use crate::session::{Refusal, Session};
use crate::stream::Stream;

/// The most streams that are open at once: each is a connection.
const MAX_SESSIONS: usize = 1024;
/// Where messages are posted to.
const MESSAGES: &str = "/messages";

struct Sse {
    server: Arc<Server>,
    guard: Guard,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

/// Ends a session when its stream does.
struct Ending {
    sse: Arc<Sse>,
    id: String,
}

/// Serves until `stop` is done; `started` is told where, once it listens.
pub async fn over_sse(
    server: Arc<Server>,
    address: SocketAddr,
    started: impl FnOnce(Served),
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    if server.revision != Revision::V2024_11_05 {
        return Err(HttpError::Sse(server.revision));
    }
    let refused = |source| HttpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    let sse = Arc::new(Sse { guard: Guard::of(bound), sessions: Mutex::default(), server: server.clone() });
    let router = Router::new()
        .route("/sse", axum::routing::any(listen))
        .route(MESSAGES, axum::routing::any(post))
        .with_state(sse.clone());
    started(Served { address: bound, url: format!("http://{bound}/sse") });
    let stop = async move {
        stop.await;
        // Streams would keep their connections open for ever.
        server.tell(Change::End);
        for (_, session) in sse.sessions.lock().drain() {
            session.end();
        }
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await.map_err(HttpError::Serve)
}

async fn listen(State(sse): State<Arc<Sse>>, request: Request<Body>) -> Reply {
    let revision = sse.server.revision;
    let refuse = |problem, why: &str| refuse(None, problem, why, None, revision);
    let (method, headers) = (request.method(), request.headers());
    if let Err(why) = sse.guard.judge(headers) {
        return refuse(Problem::Foreign, why);
    }
    if method != Method::GET {
        return not_allowed(revision, "GET");
    }
    if !headers::accepts(joined(headers, &header::ACCEPT).as_deref(), headers::EVENT_STREAM) {
        return refuse(Problem::NotAcceptable, "\"Accept\" has to have text/event-stream");
    }
    let stream = Arc::new(Stream::endless());
    let Some(reader) = stream.read(None) else { return refuse(Problem::Unavailable, "no stream") };
    let id = crate::random::name();
    {
        let mut sessions = sse.sessions.lock();
        if sessions.len() >= MAX_SESSIONS {
            return refuse(Problem::Unavailable, "as many streams are open as may be");
        }
        let session = Session::new(sse.server.clone(), stream.clone());
        sessions.insert(id.clone(), session);
    }
    let first = endpoint::event(&format!("{MESSAGES}?sessionId={id}"));
    let ending = Ending { sse, id };
    events::respond(stream, reader, Events::After(first), Some(Box::new(ending)))
}

async fn post(State(sse): State<Arc<Sse>>, request: Request<Body>) -> Reply {
    let (parts, body) = request.into_parts();
    let revision = sse.server.revision;
    let refuse = |problem, why: &str| refuse(None, problem, why, None, revision);
    if let Err(why) = sse.guard.judge(&parts.headers) {
        return refuse(Problem::Foreign, why);
    }
    if parts.method != Method::POST {
        return not_allowed(revision, "POST");
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !headers::is_type(content_type, headers::JSON) {
        return refuse(Problem::UnsupportedMediaType, "\"Content-Type\" has to be application/json");
    }
    let id = parts.uri.query().and_then(|query| query.strip_prefix("sessionId="));
    let Some(id) = id else { return refuse(Problem::NoSession, "post to the endpoint of your stream") };
    let held = sse.sessions.lock().get(id).cloned();
    let Some(session) = held else {
        return refuse(Problem::UnknownSession, "this stream has ended, or never was");
    };
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return refuse(Problem::BodyTooLarge, "the body is too large, or was not sent to its end");
    };
    match envelope::read(&body) {
        // Whatever comes of it is heard in the stream.
        Ok(message) => match session.receive(&message, session.unrelated()) {
            Ok(()) => accepted(),
            Err(Refusal { problem, why }) => refuse(problem, &why),
        },
        Err(Malformed::NotJson) => refuse(Problem::NotJson, "the body is not JSON"),
        Err(malformed) => refuse(Problem::InvalidMessage, &malformed.to_string()),
    }
}

fn not_allowed(revision: Revision, allowed: &'static str) -> Reply {
    let mut reply =
        refuse(None, Problem::MethodNotAllowed, "this method has no meaning here", None, revision);
    reply.headers_mut().insert(header::ALLOW, http::HeaderValue::from_static(allowed));
    reply
}

impl Drop for Ending {
    fn drop(&mut self) {
        let ended = self.sse.sessions.lock().remove(&self.id);
        if let Some(session) = ended {
            session.end();
        }
    }
}
