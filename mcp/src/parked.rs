//! A call of a modern client whose legacy server asks back: multi round-trip requests (MRTR), where the server's questions
//! reach the client as an `InputRequiredResult`.
//!
//! The server's questions are requests of its own, and it goes on with the call once they are answered. The client
//! hears of them in a result that asks for input, and answers when it asks again. In between the call is parked: it
//! is still under way at the server, and this is all that has to be kept of it.
//!
//! ```text
//! client                      proxy                        server
//!   call ----------------------> call ------------------------>
//!                                <------------- question, question
//!   <-- input required (keys)    asked, asked, round
//!   call (answers by key) -----> answered ---- answer, answer ->
//!   <---------------------------------------------- result
//! ```
//!
//! Questions that arrive close together are asked in one round; how long to wait for more is up to who has a clock.
//! What the client brings back as `requestState` is sealed and opened elsewhere: here it is a text.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr>

use std::borrow::Cow;

use thiserror::Error;

use crate::capabilities::{ClientCapabilities, Need};
use crate::envelope::Id;
use crate::error::{self, Code};
use crate::meta::SERVER_INFO;
use crate::method::ServerRequest;
use crate::object::{self, Object, quote, string};
use crate::tasks;
use crate::translate::{Pair, Way, errors, names, questions};

/// The most questions that may be open in one call. More is no conversation with a user.
pub const MAX_QUESTIONS: usize = 16;
/// The most rounds of one call. A server that never has enough would hold it for ever.
pub const MAX_ROUNDS: u32 = 32;

/// A call of a modern client, at a legacy server, that may have to wait for answers.
#[derive(Debug)]
pub struct Parked {
    way: Way,
    /// The call's id at the server, as JSON.
    call: String,
    can: ClientCapabilities,
    open: Vec<Question>,
    /// How many questions there have been: their keys never repeat.
    asked: u64,
    rounds: u32,
    /// Whether a visit was not made.
    declined: bool,
    /// What the client lacked for which the server was refused something when it answered last.
    lacking: Option<Need>,
}

#[derive(Debug)]
struct Question {
    key: String,
    /// The server's id for it, as JSON; `None` if the server only named a URL and ended the call.
    id: Option<String>,
    request: ServerRequest,
    params: Option<String>,
}

/// What becomes of a server's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It waits for the next round.
    Kept,
    /// It is answered at once, with this message.
    Answered(String),
}

/// What follows a client's answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These messages go to the server, which goes on with the call.
    Tell(Vec<String>),
    /// These messages go to the server, and the client is asked again for what it left out: another
    /// [`Parked::round`].
    AskAgain(Vec<String>),
    /// The call has ended at the server, and has to be sent again from the start: the user has been where it wanted.
    CallAgain,
    /// The call has ended at the server, and the user did not go where it wanted, or cannot: this is the error for the
    /// client.
    Declined(String),
}

/// An answer that is none. Nothing was passed on; the client may try again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadAnswer {
    /// `inputResponses` is no object.
    #[error("\"inputResponses\" has to be an object")]
    NotObject,
    /// It does not have the form of an answer to its question, or the server's revision cannot read it.
    #[error("the answer {key:?} cannot be used: {why}")]
    Unusable {
        /// The question's key.
        key: String,
        /// What is wrong.
        why: String,
    },
}

/// The server has asked too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the server asked its client more than {MAX_ROUNDS} times in one call")]
pub struct TooManyRounds;

impl Parked {
    /// A call that has gone to the server under this id (as JSON), from a client that can do this.
    pub fn new(pair: Pair, call: &str, can: ClientCapabilities) -> Self {
        let (way, call) = (pair.down(), call.to_owned());
        Self { way, call, can, open: Vec::new(), asked: 0, rounds: 0, declined: false, lacking: None }
    }

    /// The server asks something while the call is under way.
    pub fn asked(&mut self, id: Id<'_>, method: &str, params: Option<&str>) -> Asked {
        let refuse = |code, why: &str| Asked::Answered(error::response(Some(id), code, why, None));
        let request = match ServerRequest::parse(method) {
            Some(request) if request != ServerRequest::Ping => request,
            _ => return Asked::Answered(questions::outside_of_calls(self.way, id, method)),
        };
        if let Some(need) = lacks(&self.can, request, params) {
            return Asked::Answered(refused(id, request, need));
        }
        if self.open.iter().any(|open| open.id.as_deref().is_some_and(|open| Id::from_json(open).is(&id))) {
            return refuse(Code::InvalidRequest, "a request with this id is open already");
        }
        if self.open.len() >= MAX_QUESTIONS {
            return refuse(Code::InternalError, "too many requests of the server are open in one call");
        }
        match self.keep(Some(id.as_json()), request, params) {
            Ok(()) => Asked::Kept,
            Err(why) => refuse(Code::InvalidParams, &why),
        }
    }

    /// The server has taken a question back. Says whether it was open.
    pub fn withdrawn(&mut self, id: Id<'_>) -> bool {
        let before = self.open.len();
        self.open.retain(|open| !open.id.as_deref().is_some_and(|open| Id::from_json(open).is(&id)));
        self.open.len() != before
    }

    /// The server has ended the call with an error that names URLs to visit first
    /// ([`errors::urls_to_visit`]), and the client that waits now can do this. `Err` is the error for one that visits
    /// none.
    pub fn visit(&mut self, urls: &[&str], can: &ClientCapabilities) -> Result<(), String> {
        let request = ServerRequest::ElicitationCreate;
        if !can.has(Need::ElicitationUrl) {
            return Err(errors::lacking(Need::ElicitationUrl, self.way));
        }
        self.open.clear();
        let wrong = |why: &str| errors::plain(Code::InternalError, why);
        for url in urls.iter().take(MAX_QUESTIONS) {
            // Whatever else such an error may leave out: a visit is all that it can ask for.
            let visit = names::set(url, &["mode"], "\"url\"").map_err(|error| wrong(&error.to_string()))?;
            self.keep(None, request, Some(visit.as_ref())).map_err(|why| wrong(&why))?;
        }
        Ok(())
    }

    /// Whether the server has ended the call, and it will be sent again when the user has been where it wanted.
    pub fn has_ended(&self) -> bool {
        self.open.iter().any(|open| open.id.is_none())
    }

    /// The call was sent again, under this id (as JSON).
    pub fn sent_again(&mut self, call: &str) {
        call.clone_into(&mut self.call);
    }

    fn keep(&mut self, id: Option<&str>, request: ServerRequest, params: Option<&str>) -> Result<(), String> {
        let params = params.filter(|params| *params != "null");
        let asked =
            params.map(|params| questions::ask(self.way, request, params, &self.can).map(Cow::into_owned));
        let params = asked.transpose().map_err(|error| error.to_string())?;
        self.asked += 1;
        let kind = match request {
            ServerRequest::Ping => "ping",
            ServerRequest::SamplingCreateMessage => "sampling",
            ServerRequest::ElicitationCreate => "elicitation",
            ServerRequest::RootsList => "roots",
        };
        let key = format!("{kind}-{}", self.asked);
        self.open.push(Question { key, id: id.map(str::to_owned), request, params });
        Ok(())
    }

    /// Whether the client has to be asked something.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// The result that asks the client for everything that is open, while [`Self::is_waiting`]. `state` is what it has to bring
    /// back: a text. The result is JSON, and so is what says who the server is.
    pub fn round(&mut self, state: &str, server_info: Option<&str>) -> Result<String, TooManyRounds> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Err(TooManyRounds);
        }
        let mut requests = Object::empty();
        for Question { key, request, params, .. } in &self.open {
            let params = params.as_ref().map(|params| format!(",\"params\":{params}")).unwrap_or_default();
            requests.set(key, format!(r#"{{"method":"{}"{params}}}"#, request.as_str()));
        }
        let mut result = Object::empty();
        result.set("resultType", "\"input_required\"".to_owned());
        result.set("inputRequests", requests.write());
        result.set("requestState", quote(state));
        if let Some(info) = server_info {
            let mut meta = Object::empty();
            meta.set(SERVER_INFO, info.to_owned());
            result.set("_meta", meta.write());
        }
        Ok(result.write())
    }

    /// The client calls again, with these answers, and can do this now. Answers to what nobody asked are ignored;
    /// what is left out stays open, but for what the client cannot be asked any more: that is refused. If one answer is
    /// wrong, none is passed on.
    pub fn answered(&mut self, responses: Option<&str>, can: ClientCapabilities) -> Result<Next, BadAnswer> {
        let given = Object::read(responses.unwrap_or("{}")).map_err(|_| BadAnswer::NotObject)?;
        let up = Way { from: self.way.to, to: self.way.from };
        let mut usable = Vec::new();
        for Question { key, id, request, .. } in &self.open {
            let Some(answer) = given.original(key) else { continue };
            let unusable = |why: String| BadAnswer::Unusable { key: key.clone(), why };
            let answer =
                questions::answer(up, *request, answer).map_err(|error| unusable(error.to_string()))?;
            let unrelated = tasks::unrelated(&answer).map_err(|error| unusable(error.to_string()))?;
            usable.push((key.clone(), id.clone(), unrelated.into_owned()));
        }
        self.can = can;
        let mut messages = Vec::new();
        let was_ended = self.has_ended();
        for (key, id, answer) in usable {
            self.open.retain(|open| open.key != key);
            match id {
                Some(id) => messages.push(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{answer}}}"#)),
                None => self.declined |= !is_accepted(&answer),
            }
        }
        let mut unvisited = None;
        self.lacking = None;
        self.open.retain(|Question { id, request, params, .. }| {
            let Some(need) = lacks(&self.can, *request, params.as_deref()) else { return true };
            match id {
                Some(id) => {
                    messages.push(refused(Id::from_json(id), *request, need));
                    self.lacking = Some(need);
                }
                None => unvisited = Some(errors::lacking(need, self.way)),
            }
            false
        });
        if let Some(error) = unvisited {
            return Ok(Next::Declined(error));
        }
        Ok(match (self.open.is_empty(), was_ended) {
            (_, true) if self.declined => Next::Declined(errors::plain(
                Code::InvalidParams,
                "the server needs the user to visit a URL first, and the user did not",
            )),
            (true, true) => Next::CallAgain,
            (true, false) => Next::Tell(messages),
            (false, _) => Next::AskAgain(messages),
        })
    }

    /// What the client lacked when it answered last, which the server was told: a call may come to nothing for that.
    pub fn lacking(&self) -> Option<Need> {
        self.lacking
    }

    /// The server has ended the call without waiting for what it asked in it. These messages go to it: each question
    /// has an answer.
    pub fn ended(&mut self, why: &str) -> Vec<String> {
        self.open
            .drain(..)
            .filter_map(|open| {
                let id = open.id.as_deref()?;
                Some(match open.request {
                    ServerRequest::ElicitationCreate => {
                        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"cancel"}}}}"#)
                    }
                    _ => error::response(Some(Id::from_json(id)), Code::InternalError, why, None),
                })
            })
            .collect()
    }

    /// Nobody will answer any more: the client has gone, or took too long. These messages go to the server, so that
    /// it waits for nothing.
    pub fn abandon(mut self, why: &str) -> Vec<String> {
        let has_ended = self.has_ended();
        let mut messages = self.ended(why);
        if !has_ended {
            messages.push(self.cancelled(why));
        }
        messages
    }

    /// What tells the server that nobody waits for its answer.
    pub fn cancelled(&self, why: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":{}}}}}"#,
            self.call,
            quote(why)
        )
    }
}

/// What a question needs that a client did not declare.
fn lacks(can: &ClientCapabilities, request: ServerRequest, params: Option<&str>) -> Option<Need> {
    questions::need(request, params.unwrap_or("{}")).filter(|need| !can.has(*need))
}

/// What a server hears that asks for what its client did not declare, before the name of it. One that quotes it has failed
/// of that.
pub const UNDECLARED: &str = "the client did not declare";

/// The answer to a question for which a client lacks this.
fn refused(id: Id<'_>, request: ServerRequest, need: Need) -> String {
    let code = match request {
        ServerRequest::ElicitationCreate => Code::InvalidParams,
        _ => Code::MethodNotFound,
    };
    error::response(Some(id), code, &format!("{UNDECLARED} {}", need.as_str()), None)
}

fn is_accepted(answer: &str) -> bool {
    object::at(answer, &["action"]).and_then(string).as_deref() == Some("accept")
}

#[cfg(test)]
mod tests;
