//! What is changed in an answer: it is said in the client's revision, and entries of lists that the caller may not call
//! are taken out.

use std::borrow::Cow;

use longshore_mcp::envelope::{self, Id, Message, Outcome, Response};
use longshore_mcp::object::Object;
use longshore_mcp::splice::replaced;
use longshore_mcp::{error, listing, tasks};

use super::{Call, Edit, carry};
use crate::refusal::Refusal;
use crate::sessions::refuses_unread;

/// An answer, edited.
pub(super) struct Edited {
    /// The message; none if it can go as it is.
    pub(super) text: Option<String>,
    /// The code, if it is an error.
    pub(super) code: Option<i64>,
}

/// What a message is to a call.
pub(super) enum Looked {
    /// Its answer.
    Answer(Edited),
    /// An answer, and not its own: nobody waits for it.
    Unasked,
    /// No answer.
    Aside,
    /// Nor is this: a question to the client, and none of a task. A task asks in whatever call waits for what comes of it,
    /// and goes on without that.
    Question,
    /// No message at all.
    Unreadable,
}

/// Edits the whole of what the server said to a call. `None`: it is no answer to it.
pub(super) fn edit(call: &Call, message: &[u8]) -> Result<Option<Edited>, Refusal> {
    Ok(match look_at(call, message, true)? {
        Looked::Answer(edited) => Some(edited),
        Looked::Unasked | Looked::Aside | Looked::Question | Looked::Unreadable => None,
    })
}

/// Looks at one message of several, and edits it if it is the answer to this call.
pub(super) fn look(call: &Call, message: &[u8]) -> Result<Looked, Refusal> {
    look_at(call, message, false)
}

fn look_at(call: &Call, message: &[u8], is_whole: bool) -> Result<Looked, Refusal> {
    let mut response = match envelope::read_servers(message) {
        Ok(Message::Response(response)) => response,
        Ok(Message::Request(asked)) => {
            let is_of_task = asked.params.is_some_and(|params| tasks::is_related(params.get()));
            return Ok(if is_of_task { Looked::Aside } else { Looked::Question });
        }
        Ok(Message::Notification(_)) => return Ok(Looked::Aside),
        Err(_) => return Ok(Looked::Unreadable),
    };
    let Some(asked) = call.id.as_deref() else { return Ok(Looked::Unasked) };
    let mut id_there = None;
    match (response.id, call.id_at_server()) {
        (Some(id), Some(there)) if id.answers(&Id::from_json(there)) => {
            if call.alias.is_some() || !id.is(&Id::from_json(there)) {
                id_there = Some(id.as_json());
            }
        }
        // Only an error may lack it, and here was one request that it can be about: see `named` below.
        (None, Some(_)) => {}
        (Some(_), Some(_)) if is_whole && refuses_unread(&response) => response.id = None,
        _ => return Ok(Looked::Unasked),
    }
    if let Some(pair) = call.session.as_deref().and_then(carry::pair) {
        let text = text(message)?;
        if let Some(said) = carry::answer(pair, call.method, &response, asked, text)? {
            let Ok(Message::Response(response)) = envelope::read(said.as_bytes()) else {
                return Err(Refusal::ServerNonsense);
            };
            let Edited { text, code } = filter(call, &response, said.as_bytes())?;
            return Ok(Looked::Answer(Edited { text: text.or(Some(said)), code }));
        }
    }
    // From here on under the id that its client knows.
    let other = match id_there {
        Some(id) => Some(replaced(text(message)?, [Some((id, asked))]).ok_or(Refusal::ServerNonsense)?),
        None => None,
    };
    let message = other.as_ref().map_or(message, String::as_bytes);
    let mut edited = filter(call, &response, message)?;
    if response.id.is_none() {
        edited.text = Some(named(text(message)?, asked)?);
    }
    edited.text = edited.text.or(other);
    Ok(Looked::Answer(edited))
}

/// An error that does not say what it is about, as the answer to the request that it can only be about. Many servers
/// write none, or `null`, where they refuse a request without reading it.
fn named(message: &str, id: &str) -> Result<String, Refusal> {
    let mut named = Object::read(message).map_err(|_| Refusal::ServerNonsense)?;
    named.set("id", id.to_owned());
    Ok(named.write())
}

/// Takes out of a list what its caller may not call, and calls tasks as it does.
fn filter(call: &Call, response: &Response<'_>, message: &[u8]) -> Result<Edited, Refusal> {
    let list = match (&response.outcome, call.edit) {
        (Outcome::Error(error), _) => return Ok(Edited { text: None, code: error::code_of(error.get()) }),
        (Outcome::Result(_), Edit::Filter(list)) => list,
        (Outcome::Result(_), _) => {
            let named = call
                .naming
                .as_ref()
                .map(|naming| naming.answer(text(message)?).map_err(|_| Refusal::ServerNonsense));
            let text = match named.transpose()? {
                Some(Cow::Owned(text)) => Some(text),
                Some(Cow::Borrowed(_)) | None => None,
            };
            return Ok(Edited { text, code: None });
        }
    };
    let shows = |name: &str| call.snapshot.access.shows(&call.caller, list, name);
    // What cannot be read cannot be permitted.
    let filtered = listing::filter(text(message)?, list, shows).map_err(|_| Refusal::ServerNonsense)?;
    Ok(Edited { text: filtered.rewritten, code: None })
}

fn text(message: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(message).map_err(|_| Refusal::ServerNonsense)
}
