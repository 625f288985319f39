//! Why a request has no result, or not the one that it asked for.

use longshore_mcp::capabilities::Need;
use longshore_mcp::revision::Revision;
use longshore_mcp::status::{self, Problem};
use serde_json::{Value, json};

use crate::message;
use crate::stream::Answer;

/// Why.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It is answered with an error.
    Problem {
        /// What kind.
        problem: Problem,
        /// In words.
        message: String,
        /// What a program may want to know.
        data: Option<Value>,
    },
    /// A tool failed in a way that its model is to read.
    Tool(String),
    /// The user has to visit these URLs first, in 2025-11-25: each is an elicitation.
    Visit(Vec<Value>),
    /// Something has to be asked first, in 2026-07-28: the result that says so.
    Input(Value),
}

impl Failure {
    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::Problem { problem: Problem::InvalidParams, message: message.into(), data: None }
    }

    /// What is asked for is none of the methods that there are, in this way.
    pub(crate) fn method(message: impl Into<String>) -> Self {
        Self::Problem { problem: Problem::UnknownMethod, message: message.into(), data: None }
    }

    pub(crate) fn capability(need: Need) -> Self {
        Self::Problem {
            problem: Problem::MissingCapability,
            message: format!("this needs a client with {}", need.as_str()),
            data: Some(json!({"requiredCapabilities": need.as_capabilities()})),
        }
    }

    pub(crate) fn resource(uri: &str) -> Self {
        Self::Problem {
            problem: Problem::UnknownResource,
            message: "Resource not found".to_owned(),
            data: Some(json!({"uri": uri})),
        }
    }

    /// The answer to the request of this id, if it is an error.
    pub(crate) fn answer(self, id: &str, revision: Revision) -> (String, Answer) {
        let (problem, text, data) = match self {
            Self::Problem { problem, message, data } => (problem, message, data),
            Self::Tool(message) => (Problem::ServerFailed, message, None),
            Self::Visit(elicitations) => {
                let code = longshore_mcp::error::Code::UrlElicitationRequired;
                let data = json!({"elicitations": elicitations});
                let text = message::error(id, code, "visit the URLs first", Some(&data));
                return (text, Answer::Error(200));
            }
            Self::Input(result) => return (message::result(id, &result), Answer::Result),
        };
        let answer = status::answer(problem, revision);
        (message::error(id, answer.code, &text, data.as_ref()), Answer::Error(answer.status))
    }
}
