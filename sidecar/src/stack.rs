//! The request path, as one list. What each step needs from the ones before it is in its type, so the order cannot be
//! changed by accident: only [`authenticate`] makes an [`Authenticated`] request, only [`access`] an
//! [`Authorised`](access::Authorised) one, and [`upstream`] takes nothing else.
//!
//! * A message of a session: [`origin`], [`route`], [`authenticate`], [`crowd`], [`conversation`], [`body`], [`session`] (or
//!   [`forward`], if another replica serves it), [`access`], [`tasks`], [`translate`], [`ids`], [`upstream`], [`mod@respond`];
//! * one that stands alone: [`modern`] from where it is known to be one, with [`marks`] and [`parked`];
//! * several at once: [`batch`]; clients that listen: [`stream`], for as long as they are [`standing`]; those of HTTP+SSE:
//!   [`mod@sse`], with [`pump`].

pub(crate) mod access;
pub(crate) mod authenticate;
pub(crate) mod batch;
pub(crate) mod body;
pub(crate) mod conversation;
mod crowd;
pub(crate) mod forward;
mod ids;
pub(crate) mod marks;
pub(crate) mod modern;
pub(crate) mod origin;
pub(crate) mod parked;
mod pump;
pub(crate) mod respond;
pub(crate) mod route;
pub(crate) mod session;
pub(crate) mod sse;
pub(crate) mod standing;
pub(crate) mod stream;
pub(crate) mod tasks;
pub(crate) mod translate;
pub(crate) mod upstream;

use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use longshore_mcp::detect::Conversation;
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::revision::Revision;

use crate::audit::Entry;
use crate::headers::SESSION_ID;
use crate::peers::Forwarded;
use crate::refusal::{self, Kind, Refusal};
use crate::worker::{Place, Reading, Worker};
pub(crate) use authenticate::{Authenticated, Through};
use respond::Body;
pub(crate) use route::Received;
use route::Routed;
use upstream::Said;

/// A request but for its body. Boxed, since each step hands it on to the next.
pub(crate) type Head = Box<Request<()>>;

/// What an error response needs to know of a request, as far as it was read.
pub(crate) struct Trail {
    /// The audit line.
    pub(crate) entry: Entry,
    /// The request's id, as JSON.
    pub(crate) id: Option<String>,
    /// Whether it is a request at all.
    pub(crate) kind: Kind,
    /// The revision of the conversation.
    pub(crate) revision: Revision,
    /// The body, until it is read.
    pub(crate) body: Option<Incoming>,
    /// Where it is said that it is with whoever serves it.
    pub(crate) reading: Reading,
    /// The place of the connection that it came on, if its client has that.
    place: Option<Rc<Place>>,
}

/// Serves one request: whatever happens on the path, there is a response and an audit line.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    request: Request<Incoming>,
    reading: Reading,
    place: Rc<Place>,
) -> Response<Body> {
    let mut trail = Trail { place: Some(place), ..Trail::reading(worker, &request, reading) };
    let allowed_origin = origin::allowed(worker, request.headers());
    let waits = request.headers().contains_key(EXPECT);
    let request = trail.keep_body(request);
    let passed = walk(worker, request, &mut trail).await;
    let unread = trail.body.take();
    let mut response = respond(passed, trail);
    body::leave(unread, waits, &mut response).await;
    respond::finish(worker, &mut response, allowed_origin);
    response
}

/// The response, and the audit line.
fn respond(passed: Result<Passed, Refusal>, mut trail: Trail) -> Response<Body> {
    match passed {
        Ok(Passed::Answered(response)) => {
            trail.entry.answered(response.status().as_u16(), None);
            response
        }
        // The call goes on after its response has begun: it has taken the audit line with it.
        Ok(Passed::Handed(response)) => response,
        Err(refusal) => {
            let id = trail.id.as_deref().map(Id::from_json);
            let answer = refusal::error_response(&refusal, id, trail.kind, trail.revision);
            if refusal.is_failure(trail.revision) {
                trail.entry.reason(refusal.reason());
            } else {
                trail.entry.deny(refusal.reason());
            }
            trail.entry.answered(answer.status.as_u16(), Some(answer.code));
            tracing::debug!(reason = refusal.reason(), status = answer.status.as_u16(), "request refused");
            refusal::response(&refusal, answer)
        }
    }
}

/// Serves one request that another replica has taken here. Host, origin and credentials were looked at there.
pub(crate) async fn serve_forwarded(
    worker: &Rc<Worker>,
    forwarded: Forwarded,
    reading: Reading,
) -> Response<Body> {
    let (request, principal) = forwarded.into_parts();
    let mut trail = Trail::reading(worker, &request, reading);
    let request = trail.keep_body(request);
    let passed = walk_forwarded(worker, request, &principal, &mut trail).await;
    let unread = trail.body.take();
    let mut response = respond(passed, trail);
    body::leave(unread, false, &mut response).await;
    response
}

/// How a request got to the end of the path.
pub(crate) enum Passed {
    /// It is answered.
    Answered(Response<Body>),
    /// It is being answered, by somebody who writes the audit line.
    Handed(Response<Body>),
}

/// The path.
///
/// Before it: the listener, which bounds connections, and hyper, which bounds heads (`worker`).
async fn walk(worker: &Rc<Worker>, request: Head, trail: &mut Trail) -> Result<Passed, Refusal> {
    // One configuration for the whole request. None: deny.
    let snapshot = worker.shared.snapshot.load_full().ok_or(Refusal::NotConfigured)?;
    trail.entry.server(&snapshot.server);

    // Host and origin come before anything is looked at: a foreign page must not learn even which paths exist.
    let request = origin::check(request, &snapshot)?;
    // Paths and HTTP methods are public, and preflights carry no credentials.
    let received = match route::route(request, snapshot)? {
        Routed::Preflight(response) => {
            trail.entry.method("OPTIONS");
            trail.entry.permit(None);
            return Ok(Passed::Answered(response));
        }
        Routed::Received(received) => received,
    };
    // Before the body is read: strangers may not make the process buffer anything.
    let caller = authenticate::authenticate(received)?;
    crowd::enter(&caller, trail);
    serve_known(worker, caller, trail).await
}

/// The path of a request that another replica has taken here: from where its caller is known.
async fn walk_forwarded(
    worker: &Rc<Worker>,
    request: Head,
    principal: &str,
    trail: &mut Trail,
) -> Result<Passed, Refusal> {
    let snapshot = worker.shared.snapshot.load_full().ok_or(Refusal::NotConfigured)?;
    trail.entry.server(&snapshot.server);
    serve_known(worker, authenticate::by_replica(request, snapshot, principal)?, trail).await
}

/// The rest of the path.
async fn serve_known(
    worker: &Rc<Worker>,
    caller: Authenticated,
    trail: &mut Trail,
) -> Result<Passed, Refusal> {
    trail.entry.principal(caller.principal());
    crowd::asks(&caller, trail)?;
    if sse::concerns(&caller) {
        return Box::pin(sse::serve(worker, caller, trail)).await;
    }
    match conversation::without_body(&caller, trail)? {
        Some(Conversation::Stream) => {
            body::accepts_events(&caller)?;
            trail.entry.method("GET");
            return Box::pin(stream::open(worker, caller, trail)).await.map(Passed::Answered);
        }
        Some(_) => {
            trail.entry.method("DELETE");
            return Box::pin(session::end(worker, &caller, trail)).await.map(Passed::Answered);
        }
        None => {}
    }
    let body = body::read(worker, &caller, trail).await?;
    let caller = caller.once_more(worker)?;
    trail.entry.principal(caller.principal());
    crowd::says(&caller, &body, trail)?;
    serve_message(worker, caller, body, trail).await
}

/// One message of several that came together, or in a stream: it has its own response and its own audit line. `reading`
/// ends when it is with whoever serves it.
fn serve_one(
    worker: Rc<Worker>,
    caller: Authenticated,
    body: Bytes,
    reading: Reading,
) -> Pin<Box<dyn Future<Output = Response<Body>>>> {
    Box::pin(async move {
        let mut trail = Trail { reading, ..Trail::new(&worker) };
        trail.entry.server(&caller.snapshot.server);
        trail.entry.principal(caller.principal());
        let passed = serve_message(&worker, caller, body, &mut trail).await;
        respond(passed, trail)
    })
}

/// The same of a request without a body.
fn serve_without_body(
    worker: Rc<Worker>,
    caller: Authenticated,
) -> Pin<Box<dyn Future<Output = Response<Body>>>> {
    Box::pin(async move {
        let mut trail = Trail::new(&worker);
        trail.entry.server(&caller.snapshot.server);
        let passed = serve_known(&worker, caller, &mut trail).await;
        respond(passed, trail)
    })
}

/// The path of a message that was read.
async fn serve_message(
    worker: &Rc<Worker>,
    caller: Authenticated,
    body: Bytes,
    trail: &mut Trail,
) -> Result<Passed, Refusal> {
    let fields = caller.fields();
    let in_session = conversation::names_session(&fields);
    if !in_session {
        trail.reading.end();
    }
    // New sessions begin where they can stay, and what stands alone is served where it can be.
    if forward::may_begin_elsewhere(worker, &caller, &body)
        && let Some(response) = Box::pin(forward::begin_elsewhere(worker, &caller, &body, trail)).await?
    {
        return Ok(Passed::Handed(response));
    }
    // Sessions exist per principal, so this needs to know who calls. A message that another replica serves is read
    // there and not here; from here on this replica serves it. What went wrong with the session is said after what is
    // wrong with the message.
    let session = if in_session {
        match session::find(worker, &caller, &body, trail).await {
            // Who begins anew is begun here, once it is known that there is nothing left of the session that it names.
            Ok(session::Found::Elsewhere(response))
                if response.status() == StatusCode::NOT_FOUND && body::shakes_hands(&body) =>
            {
                // That replica has written a line; what is begun here has its own.
                trail.entry = worker.shared.audit.begin();
                trail.entry.server(&caller.snapshot.server);
                trail.entry.principal(caller.principal());
                Err(Refusal::UnknownSession)
            }
            Ok(session::Found::Elsewhere(response)) => return Ok(Passed::Handed(response)),
            Ok(session::Found::Here(session)) => Ok(session),
            Err(refusal) => Err(refusal),
        }
    } else {
        Ok(None)
    };
    trail.reading.end();
    // The era decides how everything after it is read.
    let mut conversation = conversation::with_body(&fields, &body, trail)?;
    let bare = conversation::without_null(&conversation, &body);
    let text = bare.as_ref().unwrap_or(&body);
    if bare.is_some() {
        conversation = conversation::with_body(&fields, text, trail)?;
    }
    // Who begins anew may name the session from before still. If that is nothing of theirs any more, or never was, they
    // begin as if they had not. Over HTTP+SSE the session is the stream's, which ends with it.
    let session = match (&conversation, session) {
        (Conversation::Handshake(_), Err(Refusal::UnknownSession | Refusal::PodEnds))
            if !sse::is_letter(&caller) && !forward::begins_no_session(worker, &caller) =>
        {
            let (mut caller, body) = (caller, text.clone());
            caller.request.headers_mut().remove(SESSION_ID);
            return Box::pin(serve_message(worker, caller, body, trail)).await;
        }
        (_, session) => session,
    };
    let message = match conversation {
        Conversation::Modern(modern) => {
            return Box::pin(modern::serve(worker, caller, &modern, text, trail)).await;
        }
        Conversation::ModernNotification => return Ok(modern::drop_notification(text, trail)),
        Conversation::Handshake(_) if session.is_ok() && forward::begins_no_session(worker, &caller) => {
            return Ok(Passed::Handed(forward::not_begun(trail)));
        }
        Conversation::Handshake(request) => Message::Request(request),
        Conversation::Session(message) => message,
        Conversation::SessionBatch(batch) => {
            return Box::pin(batch::serve(worker, &caller, session?, &batch, text, trail)).await;
        }
        // They have no body.
        Conversation::Stream | Conversation::End => return Err(Refusal::Internal),
    };
    trail.note(&message);
    let params = access::params(&message)?;
    let session = conversation::fits(&fields, &message, session?, trail)?;
    // To look for a session may have taken its time.
    let caller = caller.still(worker)?;
    let naming = tasks::in_session(worker, &caller, &message, &params, session.as_ref(), trail)?;
    // The decision. From here on the request may reach the server.
    let authorised = access::decide(caller, &message, &params, session, trail)?;
    tasks::may_be_called(worker, &authorised, &params).await?;
    // The point of translation: between equals a message keeps its bytes.
    let outgoing = translate::translate(&authorised, &message, text, worker.pool.speaks(), trail)?;
    let outgoing = tasks::outgoing(worker, &authorised, naming.as_ref(), outgoing, text)?;
    let (outgoing, alias) = ids::outgoing(&authorised, &message, &params, naming.as_ref(), outgoing, text)?;
    let known = upstream::known(&authorised, &message, &params, &outgoing, text);
    drop((message, params));
    let said = Said { body: bare.unwrap_or(body), outgoing, known };
    let sent = upstream::send(worker, authorised, said, naming, alias, trail)?;
    Ok(Passed::Handed(sent.response().await))
}

impl Trail {
    fn new(worker: &Worker) -> Self {
        Self {
            entry: worker.shared.audit.begin(),
            id: None,
            kind: Kind::Request,
            revision: Revision::NEWEST_WITH_INITIALIZE,
            body: None,
            reading: Reading::default(),
            place: None,
        }
    }

    /// That of a request whose client may go before anybody has it who serves it. What is only listened to ends with its
    /// client.
    fn reading(worker: &Worker, request: &Request<Incoming>, reading: Reading) -> Self {
        if request.method() == Method::GET {
            reading.end();
        }
        Self { reading, ..Self::new(worker) }
    }

    /// Keeps the body of a request: what nobody has read of it when there is a response decides what becomes of the
    /// connection.
    fn keep_body(&mut self, request: Request<Incoming>) -> Head {
        let (head, body) = request.into_parts();
        self.body = Some(body);
        Box::new(Request::from_parts(head, ()))
    }

    /// Notes what a request is, for the log and for error responses.
    fn note_request(&mut self, request: &envelope::Request<'_>) {
        self.id = Some(request.id.as_json().to_owned());
        self.entry.method(&request.method);
    }

    /// Notes what a message is, for the log and for error responses.
    fn note(&mut self, message: &Message<'_>) {
        match message {
            Message::Request(request) => self.note_request(request),
            Message::Notification(notification) => {
                self.kind = Kind::Other;
                self.entry.method(&notification.method);
            }
            Message::Response(_) => {
                self.kind = Kind::Other;
                self.entry.method("response");
            }
        }
    }
}
