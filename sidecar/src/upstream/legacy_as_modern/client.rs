//! The client's end of a call. It can go away at any time, and that cancels the call.

use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use longshore_mcp::envelope::Id;
use longshore_mcp::error::{self, Code};
use longshore_mcp::{sse, status};
use tokio::sync::oneshot;

use super::asked::Asked;
use super::failure::Failure as Unusable;
use super::state::BadState;
use crate::detached_work::Carried;
use crate::upstream::waiting::{Receiver, Sender, channel};
use crate::upstream::{Answer, Body, Broken, Failure};

/// How many messages wait for a slow client before the server has to wait too.
const EVENTS: usize = 64;

/// What a client waits for: the beginning of its response.
pub(super) struct Reply {
    begun: Carried<Result<Begun, Failure>>,
    /// What it is told if nobody serves it.
    unserved: Option<Begun>,
}

/// How a response begins. It may come from another thread, so it is not the response itself.
pub(super) enum Begun {
    /// With all of it: the status, and the message.
    Whole(StatusCode, String),
    /// With events.
    Events(Receiver<Result<Bytes, Broken>>),
}

/// The client of one request.
pub(super) struct Client {
    pub(super) asked: Arc<Asked>,
    state: State,
    /// Something that the server said was given.
    given: bool,
}

enum State {
    /// It waits for the head of the response.
    Waiting(oneshot::Sender<Result<Begun, Failure>>),
    /// It reads events.
    Events(Sender<Result<Bytes, Broken>>),
    /// It has everything.
    Done,
}

impl Client {
    /// The client of this request, and what it waits for.
    pub(super) fn new(asked: Asked) -> (Self, Reply) {
        let (reply, response) = oneshot::channel();
        let begun = Carried::new(response);
        let client = Self { asked: Arc::new(asked), state: State::Waiting(reply), given: false };
        (client, Reply { begun, unserved: None })
    }

    /// Returns when the client has gone. One that has everything is not waited for.
    pub(super) async fn gone(&mut self) {
        match &mut self.state {
            State::Waiting(reply) => reply.closed().await,
            State::Events(events) => events.closed().await,
            State::Done => pending().await,
        }
    }

    /// Whether nothing of a response was given yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Whether nothing that the server said was given yet, though the response may have begun.
    pub(super) fn has_nothing(&self) -> bool {
        !self.given
    }

    /// Begins the response as events, if it has not begun.
    pub(super) fn begin(&mut self) {
        if let State::Waiting(_) = self.state {
            let (events, body) = channel(EVENTS);
            if let State::Waiting(reply) = std::mem::replace(&mut self.state, State::Events(events)) {
                // Nobody there is as good as somebody.
                let _ = reply.send(Ok(Begun::Events(body)));
            }
        }
    }

    /// Gives a message before the answer. Waits for a client that reads slowly.
    pub(super) async fn event(&mut self, message: &str) {
        self.begin();
        self.given = true;
        if let State::Events(events) = &self.state {
            // One that has gone is noticed by whoever waits for that.
            let _ = events.send(Ok(sse::message(message.as_bytes()).into())).await;
        }
    }

    /// Gives the answer: the whole message, with the status that it has if nothing came before it.
    pub(super) async fn answer(&mut self, status: u16, message: String) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting(reply) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                let _ = reply.send(Ok(Begun::Whole(status, message)));
            }
            State::Events(events) => {
                let _ = events.send(Ok(sse::message(message.as_bytes()).into())).await;
            }
            State::Done => {}
        }
    }

    /// Gives a result, which is JSON.
    pub(super) async fn result(&mut self, result: &str) {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.asked.id);
        self.answer(StatusCode::OK.as_u16(), message).await;
    }

    /// Gives an error object, which is JSON.
    pub(super) async fn error(&mut self, error: &str) {
        let status = error::code_of(error).map_or(200, |code| status::of_error(code, self.asked.revision));
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.asked.id);
        self.answer(status, message).await;
    }

    /// Gives an error.
    pub(super) async fn refuse(&mut self, code: Code, why: &str) {
        let (status, message) = self.refusal(code, why);
        self.answer(status, message).await;
    }

    /// The status and the message of an error.
    fn refusal(&self, code: Code, why: &str) -> (u16, String) {
        let status = status::of_error(code.number().into(), self.asked.revision);
        (status, error::response(Some(Id::from_json(&self.asked.id)), code, why, None))
    }

    /// Has whoever is in front of this tell the client what went wrong.
    pub(super) async fn fail(&mut self, failure: Failure) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting(reply) => {
                let _ = reply.send(Err(failure));
            }
            State::Events(events) => {
                let _ = events.send(Err(Broken::Made(failure))).await;
            }
            State::Done => {}
        }
    }
}

impl Reply {
    /// The same for a client that comes back to its call. That may be over, or end at any moment: then it lets go of whoever
    /// is on the way to it.
    pub(super) fn of_one_that_comes_back(self, client: &Client) -> Self {
        let (status, message) = client.refusal(Code::InvalidParams, &BadState::Over.to_string());
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        Self { unserved: Some(Begun::Whole(status, message)), ..self }
    }

    /// The same for a client that this work serves.
    pub(super) fn of(self, work: impl Future<Output = ()> + 'static) -> Self {
        Self { begun: self.begun.with(work), ..self }
    }

    /// Waits for it.
    pub(super) async fn begun(self) -> Result<Begun, Failure> {
        let Self { begun, unserved } = self;
        // Whoever serves a client always answers, or ends with the process.
        begun.await.unwrap_or_else(|| unserved.ok_or_else(|| Unusable::Internal.into()))
    }
}

impl Begun {
    /// The response.
    pub(super) fn respond(self) -> Answer {
        match self {
            Self::Whole(status, message) => {
                Answer { status, ..Answer::of(Body::Whole(Some(message.into()))) }
            }
            Self::Events(events) => Answer::of(Body::LegacyAsModern(events)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::upstream::legacy_as_modern::asked::tests::read;

    fn client() -> (Client, Reply) {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": "t", "_meta": meta});
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        Client::new(read(message.to_string()))
    }

    /// Its call may end on another thread, with whoever is on the way to it.
    #[test]
    fn who_comes_back_to_a_call_that_has_just_ended_hears_that_it_is_over() {
        let (client, reply) = client();
        let reply = reply.of_one_that_comes_back(&client);
        drop(client);
        let Some(Ok(Begun::Whole(status, message))) = reply.begun().now_or_never() else {
            panic!("no answer")
        };
        assert_eq!(status, StatusCode::OK);
        assert!(message.contains(r#""id":7"#) && message.contains("-32602"), "{message}");
        assert!(message.contains("does not wait any more"), "{message}");
    }

    #[test]
    fn who_is_served_by_nobody_otherwise_hears_of_a_mistake() {
        let (client, reply) = client();
        drop(client);
        let failure = reply.begun().now_or_never().unwrap().err();
        assert!(matches!(failure, Some(Failure::LegacyAsModern(Unusable::Internal))), "{failure:?}");
    }
}
