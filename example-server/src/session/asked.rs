//! What the server has asked its client.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_mcp::envelope::{Outcome, Response};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Refusal, Session};
use crate::failure::Failure;
use crate::message;
use crate::question::Question;
use crate::stream::Stream;

/// The most questions that are remembered after nobody waits for their answers any more: those are still on their way.
const MAX_WITHDRAWN: usize = 1024;

/// The questions.
#[derive(Debug, Default)]
pub(super) struct Asked {
    last: u64,
    open: HashMap<u64, oneshot::Sender<Result<Value, String>>>,
    withdrawn: HashSet<u64>,
}

/// A question that somebody waits for the answer of.
struct Waiting {
    session: Arc<Session>,
    stream: Arc<Stream>,
    number: u64,
}

impl Session {
    /// Asks the client something, as part of what `stream` answers.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        question: Question,
        stream: &Arc<Stream>,
    ) -> Result<Value, Failure> {
        let (sender, receiver) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            state.asked.last += 1;
            let number = state.asked.last;
            state.asked.open.insert(number, sender);
            number
        };
        let waiting = Waiting { session: self.clone(), stream: stream.clone(), number };
        stream.send(message::request(number, question.method, &question.params));
        let answer = receiver.await;
        drop(waiting);
        match answer {
            Ok(Ok(answer)) => match question.judge(&answer) {
                Ok(()) => Ok(answer),
                Err(wrong) => Err(Failure::Tool(format!("the client's answer is not usable: {wrong}"))),
            },
            Ok(Err(refused)) => Err(Failure::Tool(format!("the client refused: {refused}"))),
            Err(_) => Err(Failure::Tool("the session has ended".to_owned())),
        }
    }

    /// A page was visited that the client was told of.
    pub(crate) fn visited(&self, id: &str) {
        let params = json!({"elicitationId": id});
        self.unrelated.send(message::notification("notifications/elicitation/complete", &params));
    }

    /// The id of the visit that has to come first. `None` if it has come.
    pub(crate) fn visit_first(&self) -> Option<String> {
        let had_visited = std::mem::replace(&mut self.state.lock().has_visited, true);
        (!had_visited).then(|| {
            let id = crate::random::name();
            self.visited(&id);
            id
        })
    }

    pub(super) fn answered(&self, response: &Response<'_>) -> Result<(), Refusal> {
        let number = response.id.and_then(|id| id.as_json().parse().ok());
        let number: u64 = number.ok_or_else(|| Refusal::invalid("this answers nothing that was asked"))?;
        let mut state = self.state.lock();
        let Some(sender) = state.asked.open.remove(&number) else {
            // Whoever answers cannot know that nobody waits any more.
            return if state.asked.withdrawn.remove(&number) {
                Ok(())
            } else {
                Err(Refusal::invalid("this answers nothing that was asked, or answers it again"))
            };
        };
        drop(state);
        let answer = match response.outcome {
            Outcome::Result(result) => serde_json::from_str(result.get()).map_err(|error| error.to_string()),
            Outcome::Error(error) => Err(serde_json::from_str::<Value>(error.get())
                .ok()
                .and_then(|error| error["message"].as_str().map(str::to_owned))
                .unwrap_or_default()),
        };
        // Who asked may have gone this very moment.
        let _ = sender.send(answer);
        Ok(())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        if state.asked.open.remove(&self.number).is_none() {
            return;
        }
        if state.asked.withdrawn.len() >= MAX_WITHDRAWN {
            state.asked.withdrawn.clear();
        }
        state.asked.withdrawn.insert(self.number);
        drop(state);
        let params = json!({"requestId": self.number, "reason": "the call that asked was cancelled"});
        self.stream.send(message::notification("notifications/cancelled", &params));
    }
}
