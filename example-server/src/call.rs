//! One request that is being served: what it may use while it is.
//!
//! A tool asks its client in the same way whatever the revision. In a session the question goes out as a request, and
//! the tool waits. In 2026-07-28 the call ends with a result that says what is asked; the client calls again, and the
//! tool runs from its beginning, with the answers at hand.

use std::sync::Arc;
use std::time::Duration;

use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::level::Level;
use longshore_mcp::revision::Revision;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::message;
use crate::question::Question;
use crate::server::Server;
use crate::session::Session;
use crate::stream::Stream;
use crate::tasks::Task;

/// The request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    pub(crate) client: ClientCapabilities,
    /// Where what belongs to it goes.
    pub(crate) stream: Arc<Stream>,
    /// What its progress is reported under.
    pub(crate) token: Option<Value>,
    pub(crate) side: Side,
}

/// Who asked.
#[derive(Debug)]
pub(crate) enum Side {
    /// Somebody in a session.
    Session(Arc<Session>),
    /// Somebody of whom nothing else is known.
    Alone(Round),
    /// Nobody: the client will ask what has become of it.
    Task(Arc<Task>),
}

/// One of the requests that make up a call in 2026-07-28.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) level: Option<Level>,
    /// What the client answered to the last round's questions.
    pub(crate) responses: Map<String, Value>,
    /// Whether what the server gave along with them came back.
    pub(crate) has_state: bool,
    /// All answers that are known: those of earlier rounds, and those of the last one as far as they were asked for.
    pub(crate) answers: Mutex<Map<String, Value>>,
    /// What makes this request the same one as in the last round.
    pub(crate) about: String,
}

/// Whether a result with questions carries `requestState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carry {
    /// Only to remember answers of earlier rounds.
    IfNeeded,
    /// Always, and an answer without it does not count.
    Always,
}

impl Call {
    pub(crate) fn revision(&self) -> Revision {
        self.server.revision
    }

    /// Sends a log message, if its client wants it.
    pub(crate) fn log(&self, level: Level, text: &str) {
        let wanted = match &self.side {
            Side::Session(session) => Some(session.level()),
            Side::Alone(round) => round.level,
            Side::Task(_) => None,
        };
        if wanted.is_some_and(|wanted| level >= wanted) {
            let params = json!({"level": level, "logger": "example", "data": text});
            self.stream.send(message::notification("notifications/message", &params));
        }
    }

    /// Reports how far it is, if somebody wants to know.
    pub(crate) fn progress(&self, done: f64, total: f64, text: Option<&str>) {
        let Some(token) = &self.token else { return };
        let mut params = json!({"progressToken": token, "progress": done, "total": total});
        if let Some(text) = text.filter(|_| self.revision() >= Revision::V2025_03_26) {
            params["message"] = text.into();
        }
        self.stream.send(message::notification("notifications/progress", &params));
    }

    pub(crate) async fn wait(&self, milliseconds: u64) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    /// Asks one question.
    pub(crate) async fn ask(&self, question: Question) -> Result<Value, Failure> {
        let answers = self.ask_all(vec![question], Carry::IfNeeded).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Asks several at once. The answers come in the order of the questions.
    pub(crate) async fn ask_all(
        &self,
        questions: Vec<Question>,
        carry: Carry,
    ) -> Result<Vec<Value>, Failure> {
        if let Some(question) = questions.iter().find(|question| !self.client.has(question.need)) {
            return Err(Failure::capability(question.need));
        }
        match &self.side {
            Side::Session(session) => {
                let asked: Vec<_> =
                    questions.into_iter().map(|question| session.ask(question, &self.stream)).collect();
                futures::future::try_join_all(asked).await
            }
            Side::Alone(round) => self.look_up(round, &questions, carry),
            Side::Task(task) => task.ask(questions).await,
        }
    }

    /// The answers that the client brought along, or the result that asks for those that are missing.
    fn look_up(&self, round: &Round, questions: &[Question], carry: Carry) -> Result<Vec<Value>, Failure> {
        let mut answers = round.answers.lock();
        if carry == Carry::IfNeeded || round.has_state {
            for question in questions {
                let Some(response) = round.responses.get(question.key) else { continue };
                question.judge(response).map_err(|wrong| {
                    Failure::params(format!("the answer to {:?} is not usable: {wrong}", question.key))
                })?;
                answers.entry(question.key).or_insert_with(|| response.clone());
            }
        }
        let missing: Vec<_> =
            questions.iter().filter(|question| !answers.contains_key(question.key)).collect();
        if missing.is_empty() {
            return Ok(questions.iter().filter_map(|question| answers.get(question.key).cloned()).collect());
        }
        let requests: Map<String, Value> =
            missing.into_iter().map(|question| (question.key.to_owned(), question.write())).collect();
        let mut result = json!({"resultType": "input_required", "inputRequests": requests});
        result["_meta"] = json!({longshore_mcp::meta::SERVER_INFO: self.server.info()});
        if carry == Carry::Always || !answers.is_empty() {
            result["requestState"] = self.server.seal.close(&round.about, answers.clone()).into();
        }
        Err(Failure::Input(result))
    }
}
