//! The client's end of an exchange. It can go away at any time, and nothing else changes then.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use longshore_mcp::sse;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant, timeout_at};

use crate::rescue::{self, Refusal, Rescued};
use crate::stack::respond::{self, Body, BrokenOff, Piece};

/// How many pieces wait for a slow client before the server has to wait too.
const PIECES: usize = 8;
/// How long a client may take to take an error.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The client's end.
pub(crate) struct Client {
    state: State,
    /// What ends an event that was left unfinished.
    pub(crate) abandon: &'static str,
}

enum State {
    /// It waits for the head of the response.
    Waiting(oneshot::Sender<Response<Body>>),
    /// It reads events.
    Events(mpsc::Sender<Piece>),
    /// It reads a message in pieces.
    Json(mpsc::Sender<Piece>),
    /// It has everything, or has gone.
    Done,
}

impl Client {
    pub(crate) fn new(reply: oneshot::Sender<Response<Body>>) -> Self {
        Self { state: State::Waiting(reply), abandon: "" }
    }

    /// Whether nothing of a response was given yet.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Gives the whole response. Says whether anybody was there to take it.
    pub(crate) fn respond(&mut self, response: Response<Body>) -> bool {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting(reply) => reply.send(response).is_ok(),
            State::Events(_) | State::Json(_) | State::Done => false,
        }
    }

    /// Begins a response of events.
    pub(crate) fn begin_events(&mut self) {
        let (pieces, body) = mpsc::channel(PIECES);
        if self.respond(respond::events(Body::Stream(body), None)) {
            self.state = State::Events(pieces);
        }
    }

    /// Begins a response of one message that comes in pieces.
    pub(crate) fn begin_json(&mut self, session: Option<HeaderValue>) {
        let (pieces, body) = mpsc::channel(PIECES);
        if self.respond(respond::json(Body::Stream(body), session)) {
            self.state = State::Json(pieces);
        }
    }

    /// Gives a piece. Waits for a slow client until the deadline; one that is slower still is given up.
    pub(crate) async fn send(&mut self, piece: impl Into<Bytes>, deadline: Instant) {
        let (State::Events(pieces) | State::Json(pieces)) = &self.state else { return };
        match timeout_at(deadline, pieces.send(Ok(piece.into()))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => self.state = State::Done,
        }
    }

    /// Ends the response with an error, in whatever way is left, and says which status the client saw.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal, rescued: Rescued) -> StatusCode {
        let status = rescued.status;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting(reply) => {
                // Nobody there is as good as somebody.
                let _ = reply.send(rescue::response(refusal, rescued));
                status
            }
            State::Events(pieces) => {
                let event = format!("{}{}", self.abandon, sse::message(&rescued.json));
                let _ = timeout_at(Instant::now() + LAST_WORDS, pieces.send(Ok(event.into()))).await;
                StatusCode::OK
            }
            State::Json(pieces) => {
                // Half a message cannot be turned into an error. The connection breaks, and the client sees that.
                let _ = timeout_at(Instant::now() + LAST_WORDS, pieces.send(Err(BrokenOff))).await;
                StatusCode::OK
            }
            State::Done => status,
        }
    }
}
