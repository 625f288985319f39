//! Servers that speak HTTP+SSE, the transport of 2024-11-05: what they say comes in one stream of events, and what they
//! are told is posted to the place that the first event of that stream names. Towards everybody else here they speak
//! Streamable HTTP, as servers over stdio do.
//!
//! A session is a stream of its own. Behind it is a [`talk::Talk`]: a task that reads the stream, and ends with it. It
//! lives on the thread on which the session was opened; others reach it by message.

mod begin;
mod incoming;
mod posts;
mod talk;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use longshore_mcp::endpoint::BadEndpoint;
use thiserror::Error;
use tokio::sync::mpsc;

use super::call;
use super::http::Connections;
use super::message::Command;
use super::stdio::{self, Control, Name, Patience, QUEUE};
use super::{Body, Events, Hold};
use crate::metrics::Metrics;
use crate::names::SESSION_ID;
use crate::shares::Coming;
use begin::{Begun, begin};
use talk::Talk;

/// All sessions with a server over HTTP+SSE.
pub(crate) struct Sse {
    metrics: Arc<Metrics>,
    open: Mutex<HashMap<Name, Handle>>,
}

/// Where the server's stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) port: u16,
    pub(super) path: String,
}

/// The way to a session.
#[derive(Clone)]
struct Handle {
    place: Place,
    commands: mpsc::Sender<Letter>,
    control: mpsc::UnboundedSender<Control>,
}

/// A message for the server.
struct Letter {
    command: Command,
    /// What goes with it that is no part of it.
    headers: HeaderMap,
}

/// A session's entry, for as long as the session lives.
struct Registered {
    sse: Arc<Sse>,
    name: Name,
}

/// Why a session does not begin.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// What is there is no stream of events.
    #[error(
        "the server answers a GET with something that is not a stream of events: is this the path of its stream?"
    )]
    NotEvents,
    /// It says nothing.
    #[error("the server's stream did not begin with the event `endpoint` within {seconds} seconds")]
    NoEndpoint { seconds: f64 },
    /// It ends at once.
    #[error("the server's stream ended before the event `endpoint`")]
    Ended,
    /// What it names is no place that messages are sent to.
    #[error(transparent)]
    Endpoint(#[from] BadEndpoint),
}

// === impl Sse ===

impl Sse {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, open: Mutex::default() }
    }

    /// Opens a session with its first message.
    pub(super) async fn open(
        self: &Arc<Self>,
        http: &Rc<Connections>,
        place: Place,
        coming: Coming,
        request: Request<Bytes>,
    ) -> Result<(Response<Body>, Hold), super::Failure> {
        let (head, body) = request.into_parts();
        let (control, events) = mpsc::unbounded_channel();
        let (caller, waiting) = call::pair(control.clone());
        let name = super::random().ok_or(stdio::Failure::NoNumbers)?;
        let command = Command::read(name, body, caller)?;
        let stream = match begin(http, &place, coming).await? {
            Begun::Stream(stream) => stream,
            Begun::Refused(status) => return Ok((stdio::empty(status), Hold::nothing())),
        };
        let (commands, letters) = mpsc::channel(QUEUE);
        let handle = Handle { place: place.clone(), commands, control: control.clone() };
        self.lock().insert(name, handle.clone());
        let registered = Registered { sse: self.clone(), name };
        let talk = Talk::new(registered, http.clone(), place.port, stream, letters, events);
        let hold = Hold::of(move || drop(control.send(Control::End(name, None))));
        // There is room for the first.
        let _ = handle.commands.try_send(Letter { command, headers: head.headers });
        drop(handle);
        tokio::task::spawn_local(talk.run());
        let mut response = stdio::respond(waiting, Patience::Endless).await?;
        if let Ok(id) = HeaderValue::try_from(format!("{name:032x}")) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        Ok((response, hold))
    }

    /// Sends a message in a session.
    pub(super) async fn send(
        &self,
        place: &Place,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, stdio::Failure> {
        let Some((name, handle)) = self.find(place, &request) else {
            return Ok(stdio::empty(StatusCode::NOT_FOUND));
        };
        match *request.method() {
            Method::POST => {
                let (head, body) = request.into_parts();
                let (caller, waiting) = call::pair(handle.control.clone());
                let command = Command::read(name, body, caller)?;
                let (patience, late) = (command.patience(), stdio::late(&command, &handle.control));
                if handle.commands.send(Letter { command, headers: head.headers }).await.is_err() {
                    return Ok(stdio::empty(StatusCode::NOT_FOUND));
                }
                late.keep();
                drop(handle);
                stdio::respond(waiting, patience).await
            }
            Method::GET => {
                let (caller, waiting) = call::pair(handle.control.clone());
                if handle.control.send(Control::Listen(name, caller)).is_err() {
                    return Ok(stdio::empty(StatusCode::NOT_FOUND));
                }
                Ok(stdio::events(Events::new(waiting, None)))
            }
            Method::DELETE => {
                self.lock().remove(&name);
                // One that has ended already need not be ended.
                let _ = handle.control.send(Control::End(name, None));
                Ok(stdio::empty(StatusCode::NO_CONTENT))
            }
            _ => Ok(stdio::empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
    }

    /// The session that a request names, if it is one with this server.
    fn find(&self, place: &Place, request: &Request<Bytes>) -> Option<(Name, Handle)> {
        let name = stdio::name_of(request.headers().get(SESSION_ID)?)?;
        let mut open = self.lock();
        if open.get(&name)?.place != *place {
            // Of the server from before.
            let handle = open.remove(&name)?;
            let _ = handle.control.send(Control::End(name, None));
            return None;
        }
        Some((name, open.get(&name)?.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Handle>> {
        // Nothing that holds the lock can leave it half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sse.lock().remove(&self.name);
    }
}
