//! What comes back from the server.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use longshore_mcp::envelope::{self, Id, Message, Outcome};
use longshore_mcp::headers::{self, EVENT_STREAM, JSON, SESSION_ID};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::{self, Decoder, Event};
use longshore_mcp::{error, initialize, listing};
use tokio::time::{Duration, Instant, timeout_at};

use super::client::Client;
use super::{Call, Done, Edit, request};
use crate::rescue::Refusal;
use crate::sessions::Place;
use crate::stack::SERVED;
use crate::stack::respond::{self, Body};
use crate::upstream::{Answer, Failure, Lease};

/// Up to this size a message is whole before its response begins, so that a server that dies in the middle of it can
/// still be answered for. No client can use half a message anyway.
const HOLD: usize = 64 * 1024;
/// The largest message that can be edited, and the largest event that is looked into.
const EDITABLE: usize = 32 * 1024 * 1024;
/// How long a silent stream is left silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the rest of an answer is waited for when everything in it has been delivered.
const REST: Duration = Duration::from_secs(1);

/// Sends the call and gives the client what comes back.
pub(super) async fn answer(call: &mut Call, client: &mut Client, deadline: Instant) -> Result<Done, Refusal> {
    let shared = call.worker.shared.clone();
    let place = match call.edit {
        Edit::OpenSession => Some(shared.sessions.reserve().map_err(|_| Refusal::TooManySessions)?),
        Edit::Pass | Edit::Filter(_) | Edit::Tell => None,
    };
    let Answer { response, lease } = timeout_at(deadline, request::send(call))
        .await
        .map_err(|_| timed_out())?
        .map_err(|failure| match failure {
            Failure::Refused { .. } => Refusal::ServerDown,
            Failure::Lost(_) => Refusal::ServerLost,
        })?;
    let (head, body) = response.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is = |wanted| headers::is_type(content_type, wanted);

    if !head.status.is_success() {
        return failed(call, client, head.status, body, lease, deadline).await;
    }
    if call.edit == Edit::Tell {
        rest(body, lease);
        client.respond(respond::accepted());
        return Ok(Done { status: StatusCode::ACCEPTED.as_u16(), code: None });
    }
    let opening = place.map(|place| Opening { place, upstream: session_id(&head.headers) });
    match opening {
        Some(opening) if is(JSON) => {
            let message = collect(body, lease, EDITABLE, deadline).await?.whole()?;
            opening.finish(call, client, Vec::new(), &message).await
        }
        Some(opening) if is(EVENT_STREAM) => {
            let (before, message) = first_answer(call, body, lease, deadline).await?;
            opening.finish(call, client, before, &message).await
        }
        None if is(JSON) => message(call, client, body, lease, deadline).await,
        None if is(EVENT_STREAM) => events(call, client, body, lease, deadline).await,
        Some(_) | None => Err(Refusal::ServerNonsense),
    }
}

fn timed_out() -> Refusal {
    // Whoever logs it knows the limit.
    Refusal::ServerTimedOut { seconds: 0.0 }
}

fn session_id(headers: &http::HeaderMap) -> Option<HeaderValue> {
    let mut id = headers.get(SESSION_ID).filter(|id| id.to_str().is_ok_and(headers::is_session_id))?.clone();
    id.set_sensitive(true);
    Some(id)
}

// === one message as the whole body ===

/// What was read of a body before it became too much to hold.
enum Collected {
    Whole(Bytes, Lease),
    Start(Bytes, Incoming, Lease),
}

impl Collected {
    /// The body, if it was not too large.
    fn whole(self) -> Result<Bytes, Refusal> {
        match self {
            Self::Whole(bytes, lease) => {
                lease.give_back();
                Ok(bytes)
            }
            Self::Start(..) => Err(Refusal::ServerNonsense),
        }
    }
}

async fn collect(
    mut body: Incoming,
    lease: Lease,
    hold: usize,
    deadline: Instant,
) -> Result<Collected, Refusal> {
    let mut bytes = BytesMut::new();
    loop {
        match timeout_at(deadline, body.frame()).await.map_err(|_| timed_out())? {
            None => return Ok(Collected::Whole(bytes.freeze(), lease)),
            Some(Err(_)) => return Err(Refusal::ServerLost),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    bytes.extend_from_slice(&data);
                }
            }
        }
        if bytes.len() > hold {
            return Ok(Collected::Start(bytes.freeze(), body, lease));
        }
    }
}

async fn message(
    call: &Call,
    client: &mut Client,
    body: Incoming,
    lease: Lease,
    deadline: Instant,
) -> Result<Done, Refusal> {
    let hold = if matches!(call.edit, Edit::Filter(_)) { EDITABLE } else { HOLD };
    let status = StatusCode::OK.as_u16();
    match collect(body, lease, hold, deadline).await? {
        Collected::Whole(bytes, lease) => {
            lease.give_back();
            let edited = edit(call, &bytes)?.ok_or(Refusal::ServerNonsense)?;
            let body = edited.text.map_or(bytes, Bytes::from);
            client.respond(respond::json(Body::whole(body), None));
            Ok(Done { status, code: edited.code })
        }
        Collected::Start(..) if matches!(call.edit, Edit::Filter(_)) => Err(Refusal::ServerNonsense),
        // Too large to be held, and nothing in it is edited.
        Collected::Start(bytes, mut body, lease) => {
            client.begin_json(None);
            client.send(bytes, deadline).await;
            while let Some(frame) = timeout_at(deadline, body.frame()).await.map_err(|_| timed_out())? {
                if let Ok(data) = frame.map_err(|_| Refusal::ServerLost)?.into_data() {
                    client.send(data, deadline).await;
                }
            }
            lease.give_back();
            Ok(Done { status, code: None })
        }
    }
}

// === editing ===

/// An answer, edited.
struct Edited {
    /// The message; none if it can go as it is.
    text: Option<String>,
    /// The code, if it is an error.
    code: Option<i64>,
}

/// Edits a message if it is the answer to this call. `None`: it is something else.
fn edit(call: &Call, message: &[u8]) -> Result<Option<Edited>, Refusal> {
    let Ok(Message::Response(response)) = envelope::read(message) else { return Ok(None) };
    let asked = call.id.as_deref().map(Id::from_json);
    match (response.id, asked) {
        (Some(id), Some(asked)) if id.is(&asked) => {}
        _ => return Ok(None),
    }
    let list = match (response.outcome, call.edit) {
        (Outcome::Error(error), _) => {
            return Ok(Some(Edited { text: None, code: error::code_of(error.get()) }));
        }
        (Outcome::Result(_), Edit::Filter(list)) => list,
        (Outcome::Result(_), _) => return Ok(Some(Edited { text: None, code: None })),
    };
    let text = std::str::from_utf8(message).map_err(|_| Refusal::ServerNonsense)?;
    let shows = |name: &str| call.snapshot.access.shows(&call.caller, list, name);
    // What cannot be read cannot be permitted.
    let filtered = listing::filter(text, list, shows).map_err(|_| Refusal::ServerNonsense)?;
    Ok(Some(Edited { text: filtered.rewritten, code: None }))
}

// === messages as events ===

/// Passes events on until the answer has come. Nothing follows it.
async fn events(
    call: &Call,
    client: &mut Client,
    mut body: Incoming,
    lease: Lease,
    deadline: Instant,
) -> Result<Done, Refusal> {
    client.begin_events();
    let edits = matches!(call.edit, Edit::Filter(_));
    let mut decoder = Decoder::new(EDITABLE);
    // An event that is too large to be looked into is taken for the answer.
    let mut watched = true;
    let done = |code| Ok(Done { status: StatusCode::OK.as_u16(), code });
    loop {
        let silence = Instant::now() + KEEP_ALIVE;
        let data = match timeout_at(deadline.min(silence), body.frame()).await {
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
            Ok(None) if !watched => return done(None),
            Ok(None | Some(Err(_))) => {
                client.abandon = if edits { "" } else { decoder.abandon() };
                return Err(Refusal::ServerLost);
            }
            Err(_) if Instant::now() >= deadline => {
                client.abandon = if edits { "" } else { decoder.abandon() };
                return Err(timed_out());
            }
            Err(_) => {
                if watched && decoder.is_between_events() {
                    client.send(sse::KEEP_ALIVE, deadline).await;
                }
                continue;
            }
        };
        let mut answered = None;
        if edits {
            let mut complete = Vec::new();
            decoder.push(&data, |event| complete.push(event)).map_err(|_| Refusal::ServerNonsense)?;
            for event in complete {
                let edited = edit(call, message_of(&event))?;
                let text = edited.as_ref().and_then(|edited| edited.text.as_deref());
                let piece = text.map_or_else(
                    || Bytes::from(event.raw.clone()),
                    |text| sse::replace_data(&event, text).into(),
                );
                client.send(piece, deadline).await;
                if let Some(edited) = edited {
                    answered = Some(edited.code);
                    break;
                }
            }
        } else {
            let mut failure = None;
            if watched {
                let looked = decoder.push(&data, |event| match edit(call, message_of(&event)) {
                    Ok(Some(edited)) => answered = Some(edited.code),
                    Ok(None) => {}
                    Err(refusal) => failure = Some(refusal),
                });
                watched = looked.is_ok();
            }
            client.send(data, deadline).await;
            if let Some(refusal) = failure {
                return Err(refusal);
            }
        }
        if let Some(code) = answered {
            rest(body, lease);
            return done(code);
        }
    }
}

/// The message in an event; nothing if it holds none.
fn message_of(event: &Event) -> &[u8] {
    match (&event.event, &event.data) {
        (None, Some(data)) => data,
        _ => &[],
    }
}

/// Reads events until the answer: the events before it, and the answer.
async fn first_answer(
    call: &Call,
    mut body: Incoming,
    lease: Lease,
    deadline: Instant,
) -> Result<(Vec<u8>, Bytes), Refusal> {
    let mut decoder = Decoder::new(EDITABLE);
    let mut before = Vec::new();
    let mut answer = None;
    loop {
        let frame = timeout_at(deadline, body.frame()).await.map_err(|_| timed_out())?;
        let data = frame.ok_or(Refusal::ServerLost)?.map_err(|_| Refusal::ServerLost)?.into_data();
        let Ok(data) = data else { continue };
        let mut failure = None;
        let looked = decoder.push(&data, |event| match edit(call, message_of(&event)) {
            Ok(Some(_)) => answer = event.data.map(Bytes::from),
            Ok(None) if answer.is_none() => before.extend_from_slice(&event.raw),
            Ok(None) => {}
            Err(refusal) => failure = Some(refusal),
        });
        if looked.is_err() || before.len() > EDITABLE {
            return Err(Refusal::ServerNonsense);
        }
        if let Some(refusal) = failure {
            return Err(refusal);
        }
        if let Some(answer) = answer.take() {
            rest(body, lease);
            return Ok((before, answer));
        }
    }
}

/// Reads what follows an answer, which should be nothing, so that the connection can be used again.
fn rest(mut body: Incoming, lease: Lease) {
    use http_body::Body as _;
    if body.is_end_stream() {
        lease.give_back();
        return;
    }
    tokio::task::spawn_local(async move {
        let deadline = Instant::now() + REST;
        while let Ok(frame) = timeout_at(deadline, body.frame()).await {
            match frame {
                Some(Ok(_)) => {}
                Some(Err(_)) => return,
                None => {
                    lease.give_back();
                    return;
                }
            }
        }
    });
}

// === a session ===

/// A session that is being opened.
struct Opening<'a> {
    place: Place<'a>,
    /// What the server calls it.
    upstream: Option<HeaderValue>,
}

impl Opening<'_> {
    /// Reads the server's answer to `initialize`, opens the session and tells the client.
    async fn finish(
        self,
        call: &Call,
        client: &mut Client,
        before: Vec<u8>,
        message: &Bytes,
    ) -> Result<Done, Refusal> {
        let status = StatusCode::OK.as_u16();
        let edited = edit(call, message)?.ok_or(Refusal::ServerNonsense)?;
        let respond = |body: Bytes, session| -> Response<Body> {
            if before.is_empty() {
                respond::json(Body::whole(body), session)
            } else {
                let text = String::from_utf8_lossy(&body);
                let events = [before.as_slice(), sse::message(&text).as_bytes()].concat();
                respond::events(Body::whole(events), session)
            }
        };
        if let Some(code) = edited.code {
            client.respond(respond(message.clone(), None));
            return Ok(Done { status, code: Some(code) });
        }
        let text = std::str::from_utf8(message).map_err(|_| Refusal::ServerNonsense)?;
        let accepted = initialize::accepted(text).map_err(|_| Refusal::ServerNonsense)?;
        let known = Revision::parse(&accepted.version).filter(|revision| SERVED.contains(revision));
        // A session that the client never hears of would stay open at the server.
        let (upstream, principal) = (self.upstream, call.caller.principal.clone());
        let revision = known.unwrap_or(Revision::NEWEST_WITH_INITIALIZE);
        let (session, id) = self.place.open(principal, upstream, revision).map_err(|_| Refusal::Internal)?;
        let delivered = known.is_some() && {
            let body = accepted.rewritten.map_or_else(|| message.clone(), Bytes::from);
            client.respond(respond(body, Some(id)))
        };
        if !delivered {
            call.worker.shared.sessions.end(&session);
            request::end_upstream(&call.worker.pool, &call.snapshot, &session).await;
        }
        match known {
            Some(_) => Ok(Done { status, code: None }),
            None => Err(Refusal::ServerRevision { version: accepted.version }),
        }
    }
}

// === no success ===

async fn failed(
    call: &Call,
    client: &mut Client,
    status: StatusCode,
    body: Incoming,
    lease: Lease,
    deadline: Instant,
) -> Result<Done, Refusal> {
    let message = match collect(body, lease, HOLD, deadline).await? {
        Collected::Whole(bytes, lease) => {
            lease.give_back();
            bytes
        }
        Collected::Start(..) => Bytes::new(),
    };
    if let Some(session) = call.session.as_ref().filter(|session| session.upstream.is_some()) {
        // 404 is what the protocol has for a session that ended. Many servers say 400 for one that they do not know,
        // which could mean anything; a ping in the same session tells.
        let lost = status == StatusCode::NOT_FOUND
            || (status.is_client_error() && !request::is_alive(call, session).await);
        if lost {
            return Err(Refusal::SessionLost);
        }
    }
    let refusal = Refusal::ServerStatus { status: status.as_u16() };
    if call.edit == Edit::Tell {
        return Err(refusal);
    }
    // JSON-RPC errors ride on 200 in these revisions.
    match edit(call, &message)? {
        Some(Edited { code: Some(code), .. }) => {
            client.respond(respond::json(Body::whole(message), None));
            Ok(Done { status: StatusCode::OK.as_u16(), code: Some(code) })
        }
        _ => Err(refusal),
    }
}
