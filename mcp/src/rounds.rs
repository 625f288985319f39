//! A call of a legacy client whose modern server wants to be called again: multi round-trip requests (MRTR), where the
//! server's questions come in an `InputRequiredResult`.
//!
//! The server answers with the questions that it has, and with a state that it wants back. The client is asked with
//! requests of the server's, as it is used to; once all are answered, the call goes to the server again, with the
//! answers. The client's own call stays open all the while.
//!
//! ```text
//! client                      proxy                         server
//!   call ----------------------> call ------------------------->
//!   <----- question, question    <------- input required (keys)
//!   answer, answer ------------> call (answers by key, state) ->
//!   <----------------------------------------------- result
//! ```
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr>

use std::borrow::Cow;

use crate::capabilities::ClientCapabilities;
use crate::envelope::Id;
use crate::error::Code;
use crate::method::{Method, ServerRequest};
use crate::object::{Object, quote, string};
use crate::translate::names::{NoPlace, with_id};
use crate::translate::{Pair, Way, errors, questions};

/// The most rounds of one call that ask its client: as many as the usual clients of that revision go.
pub const MAX_ROUNDS: u32 = 8;
/// The most questions of one round.
pub const MAX_QUESTIONS: usize = 16;

/// A call of a legacy client, at a modern server, that may have to be sent again.
#[derive(Debug)]
pub struct Rounds {
    way: Way,
    method: Method,
    /// What was sent to the server, without anything of an earlier round.
    request: String,
    can: ClientCapabilities,
    rounds: u32,
    open: Vec<Question>,
    /// The server's own state, as it was written.
    state: Option<String>,
}

#[derive(Debug)]
struct Question {
    key: String,
    /// What it is known by on the client's side, as JSON.
    id: String,
    request: ServerRequest,
    answer: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These requests go to the client, on the stream of its call.
    Ask(Vec<String>),
    /// Some answers are still to come.
    Wait,
    /// The call goes to the server again: [`Rounds::again`].
    Again,
    /// The same after a pause: the server has no question, and only wants to be left alone for a while.
    AgainLater,
    /// The client's call ends with this result.
    Result(String),
    /// The client's call ends with this error object.
    Error(String),
}

/// Names for what is asked.
pub trait Mint {
    /// An id for a request to the client, as JSON, which is not in use in its session.
    fn id(&mut self) -> String;
    /// A name for a visit to a URL that nobody can guess.
    fn visit(&mut self) -> String;
}

impl Rounds {
    /// A call that has gone to the server as this message, with the envelope of its revision, from a client that can do this.
    pub fn new(pair: Pair, method: Method, request: &str, can: ClientCapabilities) -> Self {
        let (way, request) = (pair.down(), request.to_owned());
        Self { way, method, request, can, rounds: 0, open: Vec::new(), state: None }
    }

    /// The server has answered with this result, which asks for input.
    pub fn input_required(&mut self, result: &str, mint: &mut impl Mint) -> Next {
        if !self.method.may_need_input() {
            return self.refuse("the server asked back where its revision does not allow it");
        }
        let unusable = "the server asked its client for something that is not usable";
        let Ok(result) = Object::read(result) else { return self.refuse(unusable) };
        self.state = result.get("requestState").filter(|state| state.starts_with('"')).map(str::to_owned);
        self.open.clear();
        let Some(requests) = result.present("inputRequests") else {
            return if self.state.is_some() { Next::AgainLater } else { self.refuse(unusable) };
        };
        let Ok(requests) = Object::read(requests) else { return self.refuse(unusable) };
        if requests.names().count() > MAX_QUESTIONS {
            return self.refuse("the server asked its client for too much at once");
        }
        let mut messages = Vec::new();
        let keys: Vec<&str> = requests.names().collect();
        for key in keys {
            match requests.original(key).map(|question| self.question(key, question, mint)) {
                Some(Ok(message)) => messages.push(message),
                Some(Err(next)) => {
                    self.open.clear();
                    return next;
                }
                None => {}
            }
        }
        match (messages.is_empty(), &self.state) {
            // One that asks nobody has the time of the call.
            (false, _) => {
                self.rounds += 1;
                if self.rounds > MAX_ROUNDS {
                    self.open.clear();
                    let words = "the server asked its client more than";
                    return self.refuse(&format!("{words} {MAX_ROUNDS} times in one call"));
                }
                Next::Ask(messages)
            }
            (true, Some(_)) => Next::AgainLater,
            (true, None) => self.refuse(unusable),
        }
    }

    /// One question as a request to the client.
    fn question(&mut self, key: &str, question: &str, mint: &mut impl Mint) -> Result<String, Next> {
        let unusable = || self.refuse("the server asked its client for something that is not usable");
        let question = Object::read(question).map_err(|_| unusable())?;
        let method = question.get("method").and_then(string);
        let request = method
            .and_then(|method| ServerRequest::parse(&method))
            .filter(|request| *request != ServerRequest::Ping)
            .ok_or_else(unusable)?;
        let params = question.present("params");
        if let Some(need) = questions::need(request, params.unwrap_or("{}"))
            && !self.can.has(need)
        {
            return Err(self.lacking(need));
        }
        let params = match params {
            None => String::new(),
            Some(params) => {
                let asked = questions::ask(self.way, request, params, &self.can);
                let mut asked = asked.map_err(|error| self.refuse(&error.to_string()))?;
                if request == ServerRequest::ElicitationCreate && questions::is_visit(params) {
                    asked = questions::with_elicitation_id(&asked, &mint.visit())
                        .map(Cow::Owned)
                        .map_err(|NoPlace| unusable())?;
                }
                format!(",\"params\":{asked}")
            }
        };
        let id = mint.id();
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{}"{params}}}"#, request.as_str());
        self.open.push(Question { key: key.to_owned(), id, request, answer: None });
        Ok(message)
    }

    /// The client has answered: with a result, or with an error. `None` if it was not asked that, or has answered
    /// already.
    pub fn answered(&mut self, id: Id<'_>, outcome: Result<&str, &str>) -> Option<Next> {
        let up = Way { from: self.way.to, to: self.way.from };
        let is_open = |open: &Question| open.answer.is_none() && Id::from_json(&open.id).is(&id);
        let at = self.open.iter().position(is_open)?;
        let request = self.open[at].request;
        let answer = match (outcome, request) {
            (Ok(result), _) => match questions::answer(up, request, result) {
                Ok(result) => result.into_owned(),
                Err(error) => return Some(self.refuse(&error.to_string())),
            },
            // Nobody saw the form, which is what this says.
            (Err(_), ServerRequest::ElicitationCreate) => r#"{"action":"cancel"}"#.to_owned(),
            (Err(_), _) => return Some(self.refuse("the client failed to answer what the server asked")),
        };
        self.open[at].answer = Some(answer);
        Some(if self.open.iter().all(|open| open.answer.is_some()) { Next::Again } else { Next::Wait })
    }

    /// What was sent to the server, without anything of a round.
    pub fn request(&self) -> &str {
        &self.request
    }

    /// How many bytes of the call are kept while the client is asked: the request, the server's state, and what it knows its
    /// questions by.
    pub fn kept(&self) -> usize {
        let keys = self.open.iter().map(|open| open.key.len()).sum::<usize>();
        self.request.len() + self.state.as_ref().map_or(0, String::len) + keys
    }

    /// The ids, as JSON, of what the client has not answered.
    pub fn unanswered(&self) -> impl Iterator<Item = &str> {
        self.open.iter().filter(|open| open.answer.is_none()).map(|open| open.id.as_str())
    }

    /// The call once more, under a new id (as JSON), with the answers of the last round and the server's state.
    pub fn again(&self, id: &str) -> Result<String, NoPlace> {
        let mut request = Object::read(&self.request).map_err(|_| NoPlace)?;
        let mut params = Object::read(request.original("params").ok_or(NoPlace)?).map_err(|_| NoPlace)?;
        let mut answers = Object::empty();
        for Question { key, answer, .. } in &self.open {
            if let Some(answer) = answer {
                answers.set(key, answer.clone());
            }
        }
        if !answers.is_empty() {
            params.set("inputResponses", answers.write());
        }
        if let Some(state) = &self.state {
            params.set("requestState", state.clone());
        }
        request.set("params", params.write());
        with_id(&request.write(), id).map(Cow::into_owned)
    }

    /// The end of a call whose client cannot answer. A tool's failure is a result that the model reads; everything
    /// else is an error.
    pub fn refuse(&self, why: &str) -> Next {
        if self.method == Method::ToolsCall {
            Next::Result(format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":true}}"#, quote(why)))
        } else {
            Next::Error(errors::plain(Code::InternalError, why))
        }
    }

    fn lacking(&self, need: crate::capabilities::Need) -> Next {
        let why = format!(
            "the server (revision {}) needs {}, which this client (revision {}) did not declare",
            self.way.from,
            need.as_str(),
            self.way.to
        );
        self.refuse(&why)
    }
}

#[cfg(test)]
mod tests;
