//! Servers that speak over stdin and stdout. Towards everybody else here they speak Streamable HTTP: a POST is a
//! message, answered by JSON or, when something else comes before the answer, by events; a DELETE ends a session; a
//! GET hears what belongs to no call.
//!
//! Behind each session is a [`conversation::Conversation`]: a task that owns a process, and starts another when that has died. It is
//! the session's alone, or serves several that share the process. It lives on the thread on which it was begun; others
//! reach it by message.

mod alone;
mod conversation;
mod failure;
mod former;
mod handshake;
mod limits;
mod lines;
mod members;
mod open;
mod outgoing;
mod process;
mod registry;
mod restarts;
mod talk;
mod warm;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use longshore_mcp::headers::{EVENT_STREAM, JSON};
use longshore_mcp::level::Level;
use longshore_sidecar_config::{Config, Processes};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, Instant, timeout};

pub(crate) use super::hold::Hold;
use super::starts::Starts;
use super::{Body, Former, Opener, Recalled, call, message, random, routes};
use crate::metrics::Metrics;
use crate::names::SESSION_ID;
use crate::shares::Shares;
use call::{Events, First, Waiting};
use conversation::Joining;
pub(crate) use failure::{Failure, Gone, Why};
pub(crate) use former::keep_former;
use limits::Places;
use message::{Command, Key};
use registry::{Handle, Limits, Open, Registered};
use warm::Warm;
pub(crate) use warm::keep as keep_warm;

/// How many messages of a conversation wait while others are being written.
pub(super) const QUEUE: usize = 16;
/// How long a DELETE waits for the process to end. It ends all the same.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long the end of all processes is waited for: longer than they are given.
const ALL_FAREWELLS: Duration = Duration::from_secs(8);

/// All sessions with a server over stdio.
pub(crate) struct Stdio {
    /// Where the shim listens.
    socket: PathBuf,
    metrics: Arc<Metrics>,
    /// How long a process may say nothing that was asked whether it is there.
    hang: Duration,
    places: Arc<Places>,
    /// What sessions are subscribed to that share a process.
    subscriptions: Arc<Shares>,
    /// Where what processes write is counted.
    held: Arc<Shares>,
    warm: Warm,
    /// What its start takes.
    pub(super) starts: Starts,
    open: Mutex<Open>,
    /// How many conversations there are, those included that are ending.
    count: watch::Sender<usize>,
    /// Sessions are taken up again one after the other.
    recalls: tokio::sync::Mutex<()>,
    /// What the ids begin with under which clients are asked something. Another sidecar's are others.
    epoch: u64,
    questions: AtomicU64,
    /// The first line since the sidecar's own handshake that was no message.
    pub(crate) noise: watch::Sender<Option<String>>,
}

/// What a session is called between here and the rest of the sidecar, and what the shim knows its process by.
pub(super) type Name = u128;

/// For whom a process is.
#[derive(Clone)]
struct Client {
    /// Nobody in particular, where it is for all.
    principal: Option<Arc<str>>,
    limits: Processes,
}

/// What a conversation hears besides messages, and while it cannot take any. There are no more of them than there are
/// messages, streams, sessions and configurations.
pub(super) enum Control {
    /// Nobody waits for a call any more.
    Gone(u64),
    /// A session took a call back at that time, and nobody waits any more until there is room to say so: see [`late`].
    Cancelled(Name, Key, Instant),
    /// Somebody listens to what belongs to no call of a session.
    Listen(Name, call::Caller),
    /// A session begins.
    Join(Joining),
    /// A call that stands alone does, and wants to hear so much of the log.
    Enter(Name, Option<Level>),
    /// A session ends. Who waits for that is told by the end of this.
    End(Name, Option<oneshot::Sender<()>>),
    /// All do. Who waits for that is told by the end of this.
    EndAll(oneshot::Sender<()>),
    /// Another conversation needs a process more than one without sessions.
    GiveWay,
    /// From now on these hold for a process that sessions of clients share.
    Limits(Limits),
}

impl Stdio {
    pub(crate) fn new(
        socket: PathBuf,
        hang: Duration,
        metrics: Arc<Metrics>,
        subscriptions: Arc<Shares>,
        held: Arc<Shares>,
    ) -> Self {
        Self {
            socket,
            metrics,
            hang,
            places: Arc::default(),
            subscriptions,
            held,
            warm: Warm::default(),
            starts: Starts::default(),
            open: Mutex::default(),
            count: watch::Sender::new(0),
            recalls: tokio::sync::Mutex::default(),
            // Without random numbers no session is opened either.
            epoch: random().map_or(0, |number| u64::try_from(number >> 64).unwrap_or(0)),
            questions: AtomicU64::new(0),
            noise: watch::Sender::new(None),
        }
    }

    /// Sends a message in a session.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Failure> {
        let Some((name, handle)) = self.find(&request) else { return Ok(empty(StatusCode::NOT_FOUND)) };
        match *request.method() {
            Method::POST => {
                let (caller, waiting) = call::pair(handle.control.clone());
                let command = Command::read(name, request.into_body(), caller)?;
                let (patience, late) = (command.patience(), late(&command, &handle.control));
                if handle.commands.send(command).await.is_err() {
                    return Ok(empty(StatusCode::NOT_FOUND));
                }
                late.keep();
                respond(waiting, patience).await
            }
            Method::GET => {
                let (caller, waiting) = call::pair(handle.control.clone());
                if handle.control.send(Control::Listen(name, caller)).is_err() {
                    return Ok(empty(StatusCode::NOT_FOUND));
                }
                Ok(events(Events::new(waiting, None)))
            }
            Method::DELETE => {
                let (told, over) = oneshot::channel();
                if handle.control.send(Control::End(name, Some(told))).is_ok() {
                    // Whether it has ended or takes longer.
                    let _ = timeout(FAREWELL, over).await;
                }
                Ok(empty(StatusCode::NO_CONTENT))
            }
            _ => Ok(empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
    }

    /// Takes the limits of a configuration. They are in force for whoever comes from now on, also in sessions that were
    /// begun under others.
    pub(crate) fn configure(&self, config: &Config) {
        let limits = warm::limits_of(config);
        self.places.limit(limits);
        // After that: who opens a conversation meanwhile is here, or finds the new ones.
        if let Some(limits) = limits {
            self.lock().limit(&limits);
        }
    }

    /// Ends all sessions for good, and waits until all processes have ended, those included that were ending already.
    pub(crate) async fn close(&self) {
        // The sidecar's own would be opened again at once.
        self.lock().close();
        self.tell_all_to_end();
        let mut count = self.count.subscribe();
        in_time(async move { drop(count.wait_for(|count| *count == 0).await) }).await;
    }

    /// Ends all sessions, and waits until their processes have ended. Clients may come back at once: those are not
    /// waited for.
    pub(crate) async fn end_all(&self) {
        let told = self.tell_all_to_end();
        in_time(async move {
            for over in told {
                // Told by the end of it.
                let _ = over.await;
            }
        })
        .await;
    }

    /// Gives what tells of the end of each conversation.
    fn tell_all_to_end(&self) -> Vec<oneshot::Receiver<()>> {
        self.warm.end_all();
        let tell = |control: &mpsc::UnboundedSender<Control>| {
            let (told, over) = oneshot::channel();
            // One that is over has dropped it.
            let _ = control.send(Control::EndAll(told));
            over
        };
        self.lock().controls().map(tell).collect()
    }

    /// How many processes wait for a session.
    pub(crate) fn warm(&self) -> usize {
        self.warm.count()
    }

    /// How many wait for a place.
    pub(crate) fn queued(&self) -> usize {
        self.places.queued()
    }

    /// Whether there will be no more sessions.
    fn is_closed(&self) -> bool {
        self.lock().is_closed()
    }

    fn find(&self, request: &Request<Bytes>) -> Option<(Name, Handle)> {
        let name = name_of(request.headers().get(SESSION_ID)?)?;
        Some((name, self.lock().find(name)?))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing that holds the lock can leave it half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a question to a client, and the id that the client sees, as JSON.
    fn question(&self) -> (u64, String) {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        (number, self.id_of_question(number))
    }

    /// The id of a question that the client sees, as JSON.
    fn id_of_question(&self, number: u64) -> String {
        format!("\"{:016x}-{number}\"", self.epoch)
    }

    /// The number of the question that an answer is for.
    fn question_of(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        (u64::from_str_radix(epoch, 16).ok()? == self.epoch).then(|| number.parse().ok()).flatten()
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

/// What is done about a message that waits until others have been taken, if whoever sends it waits no longer: a call that
/// is taken back would go on at the server, so that is told in another way.
pub(super) fn late(command: &Command, control: &mpsc::UnboundedSender<Control>) -> Hold {
    let Some(id) = command.takes_back().cloned() else { return Hold::nothing() };
    let (from, since, control) = (command.from, command.caller.since, control.clone());
    Hold::of(move || drop(control.send(Control::Cancelled(from, id, since))))
}

/// Waits for the end of all processes, and not for ever.
async fn in_time(end: impl Future<Output = ()>) {
    if timeout(ALL_FAREWELLS, end).await.is_err() {
        tracing::warn!("processes of the server did not end in time");
    }
}

/// Whether a response has to begin after a while, though there is nothing in it yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// It has: proxies give up on those that are silent, and a stream can be kept alive.
    Short,
    /// It has not.
    Endless,
}

/// The session of that id.
pub(super) fn name_of(id: &HeaderValue) -> Option<Name> {
    Name::from_str_radix(id.to_str().ok()?, 16).ok()
}

pub(super) async fn respond(mut waiting: Waiting, patience: Patience) -> Result<Response<Body>, Failure> {
    Ok(match waiting.first(patience).await {
        Ok(First::Answer(message, came)) => with_type(Body::counted(message, came), JSON),
        Ok(First::Written) => empty(StatusCode::ACCEPTED),
        Ok(First::Aside(message)) => events(Events::new(waiting, Some(message))),
        Ok(First::Silence) => events(Events::new(waiting, None)),
        Err(Failure::Forgotten) => empty(StatusCode::NOT_FOUND),
        Err(Failure::Status(status)) => empty(status),
        Err(failure) => return Err(failure),
    })
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = status;
    response
}

pub(super) fn events(events: Events) -> Response<Body> {
    with_type(Body::Events(Box::new(events)), EVENT_STREAM)
}

fn with_type(body: Body, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
