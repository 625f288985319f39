//! Servers that speak HTTP+SSE, the transport of 2024-11-05: what they say comes in one stream of events, and what they
//! are told is posted to the place that the first event of that stream names.
//!
//! A session is a stream of its own. Behind it is a [`talk::Talk`]: a task that reads the stream, and ends with it. It
//! lives on the thread on which the session was opened; others reach it by its [`Channel`].

mod begin;
mod incoming;
mod posts;
mod talk;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use longshore_mcp::endpoint::BadEndpoint;
use parking_lot::Mutex;
use thiserror::Error;

use super::call;
use super::channel::{self, Channel, Name};
use super::http::{Connections, Place};
use super::letter::Trace;
use super::message::{Command, Known};
use super::{Answer, Hold, Letter, Post};
use crate::held::Coming;
use crate::metrics::Metrics;
use begin::{Begun, begin};
use talk::Talk;

/// All sessions with a server over HTTP+SSE.
pub(crate) struct Sse {
    metrics: Arc<Metrics>,
    open: Mutex<HashMap<Name, Session>>,
}

/// A session of the server that is, or was, at a place.
struct Session {
    place: Place,
    channel: Channel<Traced>,
}

/// A message for the server.
struct Traced {
    command: Command,
    /// What goes with it that is no part of it.
    trace: Trace,
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
        Post { body, trace, .. }: Post,
    ) -> Result<(Answer, Hold), super::Failure> {
        let (channel, ends) = Channel::new();
        let (caller, waiting) = call::pair(channel.control.clone());
        let name = super::random().ok_or(call::Failure::NoNumbers)?;
        let command = Command::of(name, body, None, caller)?;
        let stream = match begin(http, &place, coming).await? {
            Begun::Stream(stream) => stream,
            Begun::Refused(answer) => return Ok((*answer, Hold::nothing())),
        };
        let registered = Registered { sse: self.clone(), name };
        let talk = Talk::new(registered, http.clone(), place.port, stream, ends);
        let hold = channel.hold(name);
        // There is room for the first.
        let _ = channel.letters.try_send(Traced { command, trace });
        self.open.lock().insert(name, Session { place, channel });
        tokio::task::spawn_local(talk.run());
        Ok((channel::opened(name, waiting).await?, hold))
    }

    /// Sends a message in a session.
    pub(super) async fn send(
        &self,
        place: &Place,
        letter: Letter,
        known: Option<&Known>,
    ) -> Result<Answer, call::Failure> {
        let Some((name, channel)) = letter.session().and_then(|id| self.find(place, id)) else {
            return Ok(Answer::empty(StatusCode::NOT_FOUND));
        };
        match letter {
            Letter::Post(_, Post { body, trace, .. }) => {
                channel.send(name, body, known, |command| Traced { command, trace }).await
            }
            Letter::Stream(..) => Ok(channel.listen(name)),
            Letter::End(..) => {
                self.open.lock().remove(&name);
                drop(channel.hold(name));
                Ok(Answer::empty(StatusCode::NO_CONTENT))
            }
        }
    }

    /// The session of this id, if it is one with this server.
    fn find(&self, place: &Place, id: &HeaderValue) -> Option<(Name, Channel<Traced>)> {
        let name = channel::name_of(id)?;
        let mut open = self.open.lock();
        let session = open.get(&name)?;
        let channel = session.channel.clone();
        if session.place != *place {
            // Of the server from before.
            open.remove(&name);
            drop(channel.hold(name));
            return None;
        }
        Some((name, channel))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.sse.open.lock().remove(&self.name);
    }
}
