//! Clients that speak HTTP+SSE, the transport of 2024-11-05: they ask for a stream, hear in it where to post messages,
//! and get everything in it.
//!
//! Behind the stream is a session like every other, and each message that is posted walks the path as if it had come
//! to the MCP endpoint: see [`talk`]. The stream is at the replica that the client asked for it, and
//! the name in the place for messages says which that is, so that another one can take a message there.

mod open;
mod talk;

use std::rc::Rc;

use http::header::{ACCEPT, HeaderValue};
use http::{HeaderName, Method, Request, Response, StatusCode, Uri};
use longshore_mcp::endpoint;
use longshore_mcp::envelope::{self, Malformed};
use longshore_mcp::headers::JSON;
use longshore_sessions::routing::{Failure, NotForwarded};
use tokio::sync::{mpsc, oneshot};

use super::forward::{self, Forwarded};
use super::pump::PIECES;
use super::respond::{self, Body};
use super::route;
use super::{Authenticated, Passed, Through, Trail, body, crowd};
use crate::headers::SESSION_ID;
use crate::refusal::{Kind, Refusal};
use crate::request_copy;
use crate::worker::Worker;
pub(crate) use open::Open;
use open::{Letter, Receipt, Status};
use talk::Talk;

/// Where the stream is, beside the MCP endpoint.
pub(crate) const STREAM: &str = "/sse";
/// Where messages are posted to; the query says in which stream they are answered.
pub(crate) const MESSAGES: &str = "/messages";
/// What those two serve.
pub(crate) const STREAM_METHODS: &str = "GET, OPTIONS";
pub(crate) const MESSAGES_METHODS: &str = "POST, OPTIONS";

/// A header that no client sends, since it is taken out of what clients send: the request is one of this transport.
/// Other replicas see it too.
pub(crate) const MARK: HeaderName = HeaderName::from_static("mcp-http-sse");

/// The parameter of the query that names the stream.
const STREAM_NAME: &str = "session=";

/// Whether a message was posted to a stream that is here, also once it walks the path as if it had not been.
pub(crate) fn is_letter(caller: &Authenticated) -> bool {
    route::path(&caller.request) == MESSAGES
}

/// Marks a request that is one of this transport. What the query names takes the place of what the MCP endpoint has a
/// header for.
pub(crate) fn mark<B>(request: &mut Request<B>) {
    let is_message = match route::path(request) {
        STREAM => false,
        MESSAGES => true,
        _ => return,
    };
    let mut parameters = request.uri().query().unwrap_or_default().split('&');
    let name = parameters.find_map(|parameter| parameter.strip_prefix(STREAM_NAME));
    let name = name.filter(|_| is_message).and_then(|name| HeaderValue::try_from(name).ok());
    let headers = request.headers_mut();
    headers.insert(MARK, HeaderValue::from_static("1"));
    headers.remove(SESSION_ID);
    if let Some(mut name) = name {
        // Keeps it out of debug output.
        name.set_sensitive(true);
        headers.insert(SESSION_ID, name);
    }
    if is_message {
        // Nothing is answered here, so clients say nothing of what they take.
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    }
}

/// Whether a request is one of this transport.
pub(crate) fn concerns(caller: &Authenticated) -> bool {
    caller.request.headers().contains_key(MARK)
}

/// Serves a request of this transport.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    caller: Authenticated,
    trail: &mut Trail,
) -> Result<Passed, Refusal> {
    trail.kind = Kind::Other;
    if caller.request.method() == Method::GET {
        return begin(worker, caller, trail).map(Passed::Answered);
    }
    let body = body::read(worker, &caller, trail).await?;
    let caller = caller.once_more(worker)?;
    trail.entry.principal(caller.principal());
    crowd::says(&caller, &body, trail)?;
    let name = caller.header(SESSION_ID)?.ok_or(Refusal::NoStreamName)?;
    let only_tells = || body::only_tells(&body);
    let named = worker.shared.sessions.named(caller.principal(), &caller.snapshot, name, only_tells);
    let (key, elsewhere) = named.ok_or(Refusal::UnknownSession)?;
    let Some(letters) = worker.shared.callers_streams.find(&key) else {
        // Its stream can be nowhere else, and is forwarded once.
        let owner = elsewhere.filter(|_| caller.through == Through::Client).ok_or(Refusal::UnknownSession)?;
        let owner = worker.shared.peers.located(owner);
        return match forward::forward(worker, &caller, &body, &owner, None, trail).await? {
            Forwarded::Answered(response) => Ok(Passed::Handed(response)),
            // It may be there all the same.
            Forwarded::Not(NotForwarded::Silent | NotForwarded::Broken) => {
                Err(Refusal::SessionOutOfReach(Failure::Unreachable))
            }
            Forwarded::Not(NotForwarded::Refused | NotForwarded::Moved(_) | NotForwarded::Full(_)) => {
                Err(Refusal::UnknownSession)
            }
        };
    };
    // Nobody could be told in the stream what is wrong with something that is no message.
    let id = match envelope::read(&body) {
        Ok(message) => {
            trail.note(&message);
            message.request_id().map(|id| id.as_json().to_owned())
        }
        Err(Malformed::Batch) => return Err(Refusal::BatchOverSse),
        Err(malformed) => return Err(malformed.into()),
    };
    // It may wait for long, and so may others.
    let mut caller = caller.kept();
    // Another replica may have taken it here, at a path of its own.
    *caller.request.uri_mut() = Uri::from_static(MESSAGES);
    let size = body.len() + request_copy::size(caller.request.headers());
    let room = worker.shared.callers_streams.room(&letters, caller.principal(), size, id.is_some())?;
    let (reply, status) = oneshot::channel();
    // From here on the line is written by whoever takes the message, or loses it.
    let receipt = Receipt::new(reply, trail.entry.hand_over());
    trail.reading.end();
    letters.post(Letter { caller, body, id, receipt, room });
    let Status { status, text } = match status.await {
        Ok(Ok(status)) => status,
        Ok(Err(refused)) => {
            let refusal;
            (refusal, trail.entry) = *refused;
            return Err(refusal);
        }
        Err(_) => return Err(Refusal::UnknownSession),
    };
    let mut response =
        if text.is_empty() { Response::new(Body::empty()) } else { respond::json(Body::whole(text), None) };
    *response.status_mut() = status;
    Ok(Passed::Handed(response))
}

/// Begins a stream. It counts as a session from now on, though one begins only with the handshake.
fn begin(worker: &Rc<Worker>, caller: Authenticated, trail: &mut Trail) -> Result<Response<Body>, Refusal> {
    trail.entry.method("GET");
    body::accepts_events(&caller)?;
    let shared = &worker.shared;
    if shared.is_draining() {
        // Another replica serves it for longer.
        return Err(Refusal::Draining);
    }
    let place = shared.sessions.reserve(caller.principal(), &caller.snapshot)?;
    let named = shared.sessions.name(caller.principal(), &caller.snapshot);
    let (key, name) = named.map_err(|_| Refusal::Internal)?;
    let (out, pieces) = mpsc::channel(PIECES);
    let event = endpoint::event(&format!("{MESSAGES}?{STREAM_NAME}{name}"));
    // There is room for the first.
    let _ = out.try_send(Ok(event.into()));
    let (registered, letters) = shared.callers_streams.add(key);
    trail.entry.permit(None);
    // It ends with its client.
    tokio::task::spawn_local(Talk::new(worker.clone(), caller, place, registered, letters, out).run());
    Ok(respond::events(Body::Pieces(pieces), None))
}

impl Status {
    /// That of a response.
    async fn of(response: Response<Body>) -> Self {
        use http_body_util::BodyExt;
        let (head, body) = response.into_parts();
        let is_json = head.headers.get(http::header::CONTENT_TYPE).is_some_and(|value| value == JSON);
        let text = match body.collect().await {
            Ok(whole) if is_json => whole.to_bytes(),
            _ => bytes::Bytes::new(),
        };
        Self { status: head.status, text }
    }

    /// The message is taken.
    const ACCEPTED: Self = Self { status: StatusCode::ACCEPTED, text: bytes::Bytes::new() };
}
