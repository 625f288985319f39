//! 2025-03-26 to 2025-11-25: sessions, streams, and coming back to a stream that broke off.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use longshore_mcp::batch::{self, BadBatch, Body};
use longshore_mcp::envelope::{Malformed, Message};
use longshore_mcp::headers::{self, Field, Fields, SESSION_ID};
use longshore_mcp::method::Method;
use longshore_mcp::revision::{Revision, VersionHeader};
use longshore_mcp::status::Problem;
use parking_lot::Mutex;

use super::events::{self, Events};
use super::{Reply, accepted, fields, joined, json, refuse};
use crate::server::Server;
use crate::session::{Refusal, Session};
use crate::stream::Stream;

/// The most sessions. When there are as many, the one that nobody uses for longest ends: its client begins anew.
const MAX_SESSIONS: usize = 1024;
/// The most streams of a session that a client can come back to.
const MAX_STREAMS: usize = 256;

/// All sessions, by their ids.
#[derive(Default)]
pub(super) struct Sessions {
    all: Mutex<HashMap<String, Arc<Held>>>,
    clock: AtomicU64,
}

/// A session, and its streams.
struct Held {
    session: Arc<Session>,
    streams: Mutex<Streams>,
    used: AtomicU64,
}

#[derive(Default)]
struct Streams {
    last: u64,
    /// What is not forgotten yet, oldest first. The stream of number 0 is that of the session itself.
    recent: VecDeque<(u64, Arc<Stream>)>,
}

/// Why nothing came of a request.
struct No(Problem, String);

impl From<Refusal> for No {
    fn from(Refusal { problem, why }: Refusal) -> Self {
        Self(problem, why)
    }
}

impl Sessions {
    pub(super) async fn post(&self, server: &Arc<Server>, headers: &HeaderMap, body: &[u8]) -> Reply {
        let revision = server.revision;
        let body = match batch::read(body, revision) {
            Ok(body) => body,
            Err(bad) => {
                let problem = match bad {
                    BadBatch::Malformed(Malformed::NotJson) => Problem::NotJson,
                    _ => Problem::InvalidMessage,
                };
                return refuse(None, problem, &bad.to_string(), None, revision);
            }
        };
        let id = match &body {
            Body::One(message) => message.request_id().map(|id| id.as_json().to_owned()),
            Body::Batch(_) => None,
        };
        match self.take(server, &fields(headers), body).await {
            Ok(reply) => reply,
            Err(No(problem, why)) => refuse(id.as_deref(), problem, &why, None, revision),
        }
    }

    async fn take(&self, server: &Arc<Server>, fields: &Fields<'_>, body: Body<'_>) -> Result<Reply, No> {
        if let Body::One(message @ Message::Request(request)) = &body
            && request.is(Method::Initialize)
            && fields.session == Field::Absent
        {
            return self.begin(server, message).await;
        }
        let held = self.find(fields, server.revision)?;
        let stream = match &body {
            Body::One(message) => {
                let stream = Arc::new(Stream::answering(usize::from(message.request_id().is_some())));
                held.session.receive(message, &stream)?;
                message.request_id().is_some().then_some(stream)
            }
            Body::Batch(batch) => {
                let requests = batch.iter().filter(|(message, _)| message.request_id().is_some()).count();
                let stream = Arc::new(Stream::answering(requests));
                for (message, _) in batch.iter() {
                    if let Err(Refusal { problem, why }) = held.session.receive(message, &stream) {
                        // The others have been taken already, so this one alone is refused.
                        let Some(id) = message.request_id() else { continue };
                        let code = longshore_mcp::status::answer(problem, server.revision).code;
                        let text = longshore_mcp::error::response(Some(id), code, &why, None);
                        stream.answer(text, crate::stream::Answer::Error(200));
                    }
                }
                (requests > 0).then_some(stream)
            }
        };
        let Some(stream) = stream else { return Ok(accepted()) };
        let number = held.keep(&stream);
        match stream.begins().await {
            Some(entries) if !entries.is_empty() => Ok(match body {
                Body::One(_) => {
                    let answer = entries.into_iter().next().map(|entry| entry.message);
                    json(StatusCode::OK, answer.unwrap_or_default())
                }
                Body::Batch(_) => {
                    let answers = entries.into_iter().map(|entry| entry.message);
                    json(StatusCode::OK, longshore_mcp::object::array(answers))
                }
            }),
            begun => {
                // What was cancelled has no answer, and its request a response all the same: one that ends at once, and
                // has no id to come back with.
                let events = if begun.is_some() { Events::Plain } else { numbered(server.revision, number) };
                let reader = stream.read(Some(0)).ok_or_else(gone)?;
                Ok(events::respond(stream, reader, events, None))
            }
        }
    }

    /// Begins a session.
    async fn begin(&self, server: &Arc<Server>, message: &Message<'_>) -> Result<Reply, No> {
        let session = Session::new(server.clone(), Arc::new(Stream::endless()));
        let stream = Arc::new(Stream::answering(1));
        let refused = session.receive(message, &stream);
        if refused.is_err() || !session.has_begun() {
            session.end();
        }
        refused?;
        let entries = stream.begins().await.unwrap_or_default();
        let text = entries.into_iter().next().map(|entry| entry.message).unwrap_or_default();
        let mut reply = json(StatusCode::OK, text);
        if session.has_begun() {
            let id = crate::random::name();
            if let Ok(value) = HeaderValue::from_str(&id) {
                reply.headers_mut().insert(SESSION_ID, value);
            }
            self.keep(id, session);
        }
        Ok(reply)
    }

    fn keep(&self, id: String, session: Arc<Session>) {
        let streams = Streams { last: 0, recent: VecDeque::new() };
        let held = Held { session, streams: Mutex::new(streams), used: AtomicU64::new(self.tick()) };
        let mut all = self.all.lock();
        if all.len() >= MAX_SESSIONS {
            let oldest = |idle: bool| {
                all.iter()
                    .filter(|(_, held)| !idle || held.session.is_idle())
                    .min_by_key(|(_, held)| held.used.load(Ordering::Relaxed))
                    .map(|(id, _)| id.clone())
            };
            if let Some(held) = oldest(true).or_else(|| oldest(false)).and_then(|id| all.remove(&id)) {
                held.session.end();
            }
        }
        all.insert(id, Arc::new(held));
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// The session that a request is part of.
    fn find(&self, fields: &Fields<'_>, revision: Revision) -> Result<Arc<Held>, No> {
        let id = match fields.session {
            Field::One(id) => id,
            Field::Absent => return Err(No(Problem::NoSession, "\"Mcp-Session-Id\" is missing".to_owned())),
            _ => return Err(No(Problem::NoSession, "\"Mcp-Session-Id\" is not usable".to_owned())),
        };
        let held = self.all.lock().get(id).cloned();
        let held = held.ok_or_else(|| No(Problem::UnknownSession, "Session not found".to_owned()))?;
        judge_version(fields.version, revision)?;
        held.used.store(self.tick(), Ordering::Relaxed);
        Ok(held)
    }

    /// `GET`.
    pub(super) fn listen(&self, server: &Server, headers: &HeaderMap) -> Reply {
        if !headers::accepts(joined(headers, &header::ACCEPT).as_deref(), headers::EVENT_STREAM) {
            let why = "\"Accept\" has to have text/event-stream";
            return refuse(None, Problem::NotAcceptable, why, None, server.revision);
        }
        let fields = fields(headers);
        let reply =
            self.find(&fields, server.revision).and_then(|held| held.listen(&fields, server.revision));
        reply.unwrap_or_else(|No(problem, why)| refuse(None, problem, &why, None, server.revision))
    }

    /// `DELETE`.
    pub(super) fn delete(&self, server: &Server, headers: &HeaderMap) -> Reply {
        let fields = fields(headers);
        match self.find(&fields, server.revision) {
            Ok(held) => {
                self.all.lock().retain(|_, other| !Arc::ptr_eq(other, &held));
                held.session.end();
                let mut reply = Reply::default();
                *reply.status_mut() = StatusCode::NO_CONTENT;
                reply
            }
            Err(No(problem, why)) => refuse(None, problem, &why, None, server.revision),
        }
    }

    /// Ends all of them.
    pub(super) fn end(&self) {
        for (_, held) in self.all.lock().drain() {
            held.session.end();
        }
    }
}

impl Held {
    /// Remembers a stream, and says its number.
    fn keep(&self, stream: &Arc<Stream>) -> u64 {
        let mut streams = self.streams.lock();
        streams.last += 1;
        let number = streams.last;
        streams.recent.push_back((number, stream.clone()));
        if streams.recent.len() > MAX_STREAMS {
            streams.recent.pop_front();
        }
        number
    }

    fn listen(&self, fields: &Fields<'_>, revision: Revision) -> Result<Reply, No> {
        let (number, stream, after) = match fields.last_event {
            Field::Absent => {
                let stream = self.session.unrelated();
                if stream.is_read() {
                    return Err(No(Problem::SecondStream, "this session has a stream already".to_owned()));
                }
                (0, stream.clone(), None)
            }
            Field::One(id) => {
                let (number, after) = events::parse(id).ok_or_else(gone)?;
                let stream = match number {
                    0 => Some(self.session.unrelated().clone()),
                    _ => {
                        let streams = self.streams.lock();
                        streams
                            .recent
                            .iter()
                            .find(|(known, _)| *known == number)
                            .map(|(_, stream)| stream.clone())
                    }
                };
                (number, stream.ok_or_else(gone)?, Some(after))
            }
            _ => return Err(gone()),
        };
        let reader = stream.read(after).ok_or_else(gone)?;
        Ok(events::respond(stream, reader, numbered(revision, number), None))
    }
}

/// Holds a message of a session to the revision that the session is of. Older revisions do not know the header.
fn judge_version(version: Field<'_>, revision: Revision) -> Result<(), No> {
    if revision.features().version_header == VersionHeader::Unknown {
        return Ok(());
    }
    match version {
        Field::One(name) if name == revision.as_str() => Ok(()),
        Field::Absent => Err(No(
            Problem::WrongRevision,
            format!("\"MCP-Protocol-Version\" is missing: it has to be {revision}"),
        )),
        _ => Err(No(Problem::WrongRevision, format!("\"MCP-Protocol-Version\" has to be {revision}"))),
    }
}

fn numbered(revision: Revision, stream: u64) -> Events {
    if revision.features().priming { Events::Primed(stream) } else { Events::Numbered(stream) }
}

fn gone() -> No {
    No(Problem::EventsGone, "nothing is known of this \"Last-Event-ID\"".to_owned())
}
