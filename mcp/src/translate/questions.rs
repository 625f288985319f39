//! What servers ask of clients: sampling, elicitation and roots.
//!
//! Until 2025-11-25 they are requests of the server; since 2026-07-28 they are parts of a result, without an id. Only
//! their parameters and the answers to them are translated here. How they travel is the business of
//! [`crate::parked`] and [`crate::rounds`].
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation>

mod form;
mod sampling;

use std::borrow::Cow;

use super::{Untranslatable, Way, names};
use crate::capabilities::{ClientCapabilities, Need};
use crate::envelope::Id;
use crate::error::{self, Code};
use crate::method::ServerRequest;
use crate::object::{self, few_elements, string};
use crate::revision::{Elicitation, Era};

/// What a client has to be able to do to be asked this.
pub fn need(request: ServerRequest, params: &str) -> Option<Need> {
    match request {
        ServerRequest::Ping => None,
        ServerRequest::RootsList => Some(Need::Roots),
        ServerRequest::ElicitationCreate if is_visit(params) => Some(Need::ElicitationUrl),
        ServerRequest::ElicitationCreate => Some(Need::ElicitationForm),
        ServerRequest::SamplingCreateMessage if sampling::has_tools(params) => Some(Need::SamplingTools),
        ServerRequest::SamplingCreateMessage => Some(Need::Sampling),
    }
}

/// Whether an elicitation asks for a visit to a URL.
pub fn is_visit(params: &str) -> bool {
    object::at(params, &["mode"]).and_then(string).as_deref() == Some("url")
}

/// The parameters of a question, for the client. The id of a visit is left out where there is none, and has to be
/// added where there is one: [`with_elicitation_id`].
pub fn ask<'a>(
    way: Way,
    request: ServerRequest,
    params: &'a str,
    can: &ClientCapabilities,
) -> Result<Cow<'a, str>, Untranslatable> {
    if way.is_same() {
        return Ok(Cow::Borrowed(params));
    }
    let mut asked = way.object("the parameters of a server's request", params)?;
    // Tasks are not carried between revisions: the client would answer with one that nobody can reach.
    asked.remove("task");
    // What is not there some servers write as `null`.
    asked.remove_null("_meta");
    if way.to.era() == Era::Modern {
        // A question within a result has no progress of its own.
        asked.edit("_meta", |meta| {
            let mut meta = way.object("\"_meta\" of a server's request", meta)?;
            meta.remove("progressToken");
            Ok(meta.into_text())
        })?;
    }
    match request {
        ServerRequest::Ping | ServerRequest::RootsList => {}
        ServerRequest::SamplingCreateMessage => sampling::ask(way, &mut asked, can)?,
        ServerRequest::ElicitationCreate => {
            let elicitation = way.to.features().elicitation;
            if is_visit(params) {
                if elicitation < Elicitation::FormAndUrl {
                    return Err(way.unknown("a request to visit a URL"));
                }
                if way.to.era() == Era::Modern {
                    asked.remove("elicitationId");
                }
            } else {
                match elicitation {
                    Elicitation::None => return Err(way.unknown("a form for the user")),
                    Elicitation::Form => asked.edit("requestedSchema", |schema| form::older(way, schema))?,
                    Elicitation::FormAndUrl => {}
                }
            }
        }
    }
    Ok(asked.into_text())
}

/// The answer to what a legacy server asks while no request of a modern client is under way that may be answered with a
/// question: there is nobody to ask. The way is that of the question, the id is JSON, the answer the whole message.
pub fn outside_of_calls(way: Way, id: Id<'_>, method: &str) -> String {
    match ServerRequest::parse(method) {
        Some(ServerRequest::Ping) => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id.as_json()),
        Some(_) => {
            let why = way.unknown("a question outside of tools/call, prompts/get and resources/read");
            error::response(Some(id), Code::MethodNotFound, &why.to_string(), None)
        }
        None => error::response(Some(id), Code::MethodNotFound, "Method not found", None),
    }
}

/// A server's request for its client, between two sides that both ask with requests: the whole message.
pub fn request<'a>(
    way: Way,
    request: ServerRequest,
    message: &'a str,
    can: &ClientCapabilities,
) -> Result<Cow<'a, str>, Untranslatable> {
    if way.is_same() {
        return Ok(Cow::Borrowed(message));
    }
    let mut whole = way.object("a server's request", message)?;
    whole.remove_null("params");
    whole.edit("params", |params| ask(way, request, params, can))?;
    Ok(whole.into_text())
}

/// A client's response to it: the whole message. An error is one in every revision.
pub fn response<'a>(
    way: Way,
    request: ServerRequest,
    message: &'a str,
) -> Result<Cow<'a, str>, Untranslatable> {
    if way.is_same() {
        return Ok(Cow::Borrowed(message));
    }
    let mut whole = way.object("a client's response", message)?;
    whole.edit("result", |result| answer(way, request, result))?;
    Ok(whole.into_text())
}

/// The parameters of a visit with an id, which 2025-11-25 knows visits by.
pub fn with_elicitation_id(params: &str, id: &str) -> Result<String, names::NoPlace> {
    names::set(params, &["elicitationId"], &crate::object::quote(id)).map(Cow::into_owned)
}

/// A client's answer, for the server: the result alone. The way is that of the answer.
pub fn answer<'a>(way: Way, request: ServerRequest, result: &'a str) -> Result<Cow<'a, str>, Untranslatable> {
    if !is_answer(request, result) {
        return Err(way.unreadable("the client's answer"));
    }
    match request {
        _ if way.is_same() => Ok(Cow::Borrowed(result)),
        ServerRequest::SamplingCreateMessage => sampling::answer(way, result),
        // Some clients write `null` where they have nothing to say; a server may insist on the schema.
        ServerRequest::ElicitationCreate => {
            let mut result = way.object("the client's answer", result)?;
            result.remove_null("content");
            Ok(result.into_text())
        }
        ServerRequest::Ping | ServerRequest::RootsList => Ok(Cow::Borrowed(result)),
    }
}

/// Whether a result has the form of an answer to this question.
pub fn is_answer(request: ServerRequest, result: &str) -> bool {
    let member = |name: &str| object::at(result, &[name]);
    match request {
        ServerRequest::Ping => crate::envelope::is_object(result),
        ServerRequest::RootsList => member("roots").is_some_and(|roots| {
            few_elements(roots).is_ok_and(|roots| {
                roots.iter().all(|root| object::at(root, &["uri"]).and_then(string).is_some())
            })
        }),
        ServerRequest::ElicitationCreate => {
            let action = member("action").and_then(string);
            matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
                && member("content")
                    .is_none_or(|content| content == "null" || crate::envelope::is_object(content))
        }
        ServerRequest::SamplingCreateMessage => {
            let role = member("role").and_then(string);
            matches!(role.as_deref(), Some("assistant" | "user"))
                && member("model").and_then(string).is_some()
                && member("content").is_some_and(|content| content.starts_with(['{', '[']))
        }
    }
}

#[cfg(test)]
mod tests;
