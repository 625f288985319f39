//! Servers that speak over stdin and stdout. Towards everybody else here they speak Streamable HTTP: a POST is a
//! message, answered by JSON or, when something else comes before the answer, by events; a DELETE ends a session; a
//! GET hears what belongs to no call.
//!
//! One session is one [`Conversation`]: a task that owns the session's process, and starts another when that has died.
//! It lives on the thread on which the session was opened; others reach it by message.

mod call;
mod conversation;
mod failure;
mod limits;
mod lines;
mod message;
mod outgoing;
mod process;
mod restarts;
mod routes;
mod talk;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use longshore_mcp::headers::{EVENT_STREAM, JSON, SESSION_ID};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, timeout};

use super::{Body, Former, Opener, Recalled};
use crate::metrics::Metrics;
pub(crate) use call::Events;
use call::{First, Waiting};
use conversation::Conversation;
pub(crate) use failure::{Failure, Gone, Why};
use limits::Places;
use message::Command;

/// How many messages of a session wait while another is being written.
const QUEUE: usize = 16;
/// How long a DELETE waits for the process to end. It ends all the same.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long the end of all processes is waited for: longer than they are given.
const ALL_FAREWELLS: Duration = Duration::from_secs(8);

/// All sessions with a server over stdio.
pub(crate) struct Stdio {
    /// Where the shim listens.
    socket: PathBuf,
    metrics: Arc<Metrics>,
    places: Arc<Places>,
    open: Mutex<Open>,
    /// How many conversations there are, those included that are ending.
    count: watch::Sender<usize>,
    /// The first line since the sidecar's own handshake that was no message.
    pub(crate) noise: watch::Sender<Option<String>>,
}

/// The sessions that are open.
#[derive(Default)]
struct Open {
    handles: HashMap<Name, Handle>,
    /// There will be no more of them.
    closed: bool,
}

/// What a session is called between here and the rest of the sidecar.
type Name = u128;

/// The way to a conversation.
#[derive(Clone)]
struct Handle {
    commands: mpsc::Sender<Command>,
    control: mpsc::UnboundedSender<Control>,
}

/// What a conversation hears besides messages, and while it cannot take any. There are no more of them than there are
/// calls.
enum Control {
    /// Nobody waits for a call any more.
    Gone(u64),
    /// Somebody listens to what belongs to no call.
    Listen(call::Caller),
    /// The session ends. Who waits for that is told by the end of this.
    End(Option<oneshot::Sender<()>>),
}

/// Ends a session when it is dropped, unless somebody else sees to that.
#[must_use]
pub(crate) struct Hold(Option<mpsc::UnboundedSender<Control>>);

/// A conversation's entry.
struct Registered {
    stdio: Arc<Stdio>,
    name: Name,
}

impl Stdio {
    pub(crate) fn new(socket: PathBuf, metrics: Arc<Metrics>) -> Self {
        Self {
            socket,
            metrics,
            places: Arc::default(),
            open: Mutex::default(),
            count: watch::Sender::new(0),
            noise: watch::Sender::new(None),
        }
    }

    /// Starts a process for a session, and sends it the first message.
    pub(super) async fn open(
        self: &Arc<Self>,
        opener: Opener,
        request: Request<Bytes>,
    ) -> Result<(Response<Body>, Hold), Failure> {
        let place = match opener {
            Opener::Own => None,
            Opener::Client { principal, limits } => Some(self.places.take(principal, limits)?),
        };
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(|_| Failure::NoNumbers)?;
        let name = Name::from_ne_bytes(name);

        let (commands, queue) = mpsc::channel(QUEUE);
        let (control, events) = mpsc::unbounded_channel();
        let (caller, waiting) = call::pair(control.clone());
        let first = Command::read(request.into_body(), caller)?;
        let hold = Hold(Some(control.clone()));
        let registered = self.register(name, Handle { commands, control })?;
        tokio::task::spawn_local(Conversation::new(registered, place, queue, events).run(first));

        let mut response = respond(waiting, Patience::Endless).await?;
        if let Ok(id) = HeaderValue::try_from(format!("{name:032x}")) {
            response.headers_mut().insert(HeaderName::from_static(SESSION_ID), id);
        }
        Ok((response, hold))
    }

    /// Sends a message in a session.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Failure> {
        let Some(handle) = self.find(&request) else { return Ok(empty(StatusCode::NOT_FOUND)) };
        match *request.method() {
            Method::POST => {
                let (caller, waiting) = call::pair(handle.control.clone());
                let command = Command::read(request.into_body(), caller)?;
                let patience = command.patience();
                if handle.commands.send(command).await.is_err() {
                    return Ok(empty(StatusCode::NOT_FOUND));
                }
                respond(waiting, patience).await
            }
            Method::GET => {
                let (caller, waiting) = call::pair(handle.control.clone());
                if handle.control.send(Control::Listen(caller)).is_err() {
                    return Ok(empty(StatusCode::NOT_FOUND));
                }
                Ok(events(Events::new(waiting, None)))
            }
            Method::DELETE => {
                let (told, over) = oneshot::channel();
                if handle.control.send(Control::End(Some(told))).is_ok() {
                    // Whether it has ended or takes longer.
                    let _ = timeout(FAREWELL, over).await;
                }
                Ok(empty(StatusCode::NO_CONTENT))
            }
            _ => Ok(empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
    }

    /// Takes a session up again whose sidecar has died. Nothing is found yet.
    pub(super) async fn recall(&self, session: &HeaderValue, _: Former) -> Result<Recalled, Failure> {
        let known = name_of(session).is_some_and(|name| self.lock().handles.contains_key(&name));
        Ok(if known { Recalled::GoesOn } else { Recalled::Forgotten })
    }

    /// Ends all sessions for good.
    pub(crate) async fn close(&self) {
        // The sidecar's own would be opened again at once.
        self.lock().closed = true;
        self.end_all().await;
    }

    /// Ends all sessions, and waits until their processes have ended.
    pub(crate) async fn end_all(&self) {
        for handle in self.lock().handles.values() {
            let _ = handle.control.send(Control::End(None));
        }
        let mut count = self.count.subscribe();
        if timeout(ALL_FAREWELLS, count.wait_for(|count| *count == 0)).await.is_err() {
            tracing::warn!("processes of the server did not end in time");
        }
    }

    fn find(&self, request: &Request<Bytes>) -> Option<Handle> {
        let name = name_of(request.headers().get(SESSION_ID)?)?;
        self.lock().handles.get(&name).cloned()
    }

    fn register(self: &Arc<Self>, name: Name, handle: Handle) -> Result<Registered, Failure> {
        let mut open = self.lock();
        if open.closed {
            return Err(Gone::failure(Why::Stopping, &[]));
        }
        open.handles.insert(name, handle);
        self.count.send_modify(|count| *count += 1);
        Ok(Registered { stdio: self.clone(), name })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing that holds the lock can leave it half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a line that is no message, if it is the first.
    fn note_noise(&self, line: &str) {
        self.noise.send_if_modified(|noise| {
            let first = noise.is_none();
            if first {
                *noise = Some(line.to_owned());
            }
            first
        });
    }

    /// The sidecar's own handshake is done; this was the first such line in it.
    fn begin_noise(&self, first: Option<String>) {
        self.noise.send_if_modified(|noise| {
            let changed = *noise != first;
            *noise = first;
            changed
        });
    }
}

impl Registered {
    /// Takes no more messages. Those who come find no session.
    fn close(&self) {
        self.stdio.lock().handles.remove(&self.name);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.close();
        self.stdio.count.send_modify(|count| *count -= 1);
    }
}

impl Hold {
    /// Where nothing has to be ended.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// The session goes on; somebody else ends it.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(control) = &self.0 {
            // One that has ended already need not be ended.
            let _ = control.send(Control::End(None));
        }
    }
}

/// Whether a response has to begin after a while, though there is nothing in it yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// It has: proxies give up on those that are silent, and a stream can be kept alive.
    Short,
    /// It has not.
    Endless,
}

/// The session of that id.
fn name_of(id: &HeaderValue) -> Option<Name> {
    Name::from_str_radix(id.to_str().ok()?, 16).ok()
}

async fn respond(mut waiting: Waiting, patience: Patience) -> Result<Response<Body>, Failure> {
    Ok(match waiting.first(patience).await {
        Ok(First::Answer(message)) => with_type(Body::Whole(Some(message)), JSON),
        Ok(First::Written) => empty(StatusCode::ACCEPTED),
        Ok(First::Aside(message)) => events(Events::new(waiting, Some(message))),
        Ok(First::Silence) => events(Events::new(waiting, None)),
        Err(Failure::Forgotten) => empty(StatusCode::NOT_FOUND),
        Err(failure) => return Err(failure),
    })
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = status;
    response
}

fn events(events: Events) -> Response<Body> {
    with_type(Body::Events(Box::new(events)), EVENT_STREAM)
}

fn with_type(body: Body, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
