//! What a message is, without looking into it: one pass over the bytes, nothing copied.
//!
//! The reader is strict where two readers of one message could understand it differently, because the server behind
//! reads it again: a member that occurs twice is refused (also when one of the two is written with escapes), so is one that
//! resembles another (`Method`), and an array is never taken for an object.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/index#messages>

use std::borrow::Cow;

use thiserror::Error;

use crate::error::{self, Code};
use crate::method::Method;
use crate::scan::{Fault, MAX_DEPTH, Raw};
use crate::spelling::{self, Unreadable};
use crate::{Text, object};

/// Why bytes are no message.
#[derive(Debug, Error)]
pub enum Malformed {
    /// Not JSON at all, or not UTF-8.
    #[error("the body is not JSON")]
    NotJson,
    /// A JSON array. Only the revision 2025-03-26 knows batches.
    #[error("batches are not part of this revision: send one message in a body")]
    Batch,
    /// Nested so deeply that the next reader might not survive it.
    #[error("the body is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// JSON, and no JSON-RPC message.
    #[error("not a JSON-RPC message: {0}")]
    NotMessage(String),
}

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// It wants an answer.
    Request(Request<'a>),
    /// It wants none.
    Notification(Notification<'a>),
    /// It is one.
    Response(Response<'a>),
}

/// A message that wants an answer.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What its answer will be known by.
    pub id: Id<'a>,
    /// What is asked for.
    pub method: Text<'a>,
    /// With what.
    pub params: Option<Raw<'a>>,
}

/// A message that wants no answer.
#[derive(Clone, Debug)]
pub struct Notification<'a> {
    /// What happened.
    pub method: Text<'a>,
    /// With what.
    pub params: Option<Raw<'a>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response<'a> {
    /// Which request it answers. An error may lack it: that of a request whose id could not be read.
    pub id: Option<Id<'a>>,
    /// What the answer is.
    pub outcome: Outcome<'a>,
    /// Whether the other outcome is written too, as `null`: some programs do that, and no reader takes it for one.
    pub has_both: bool,
}

impl Response<'_> {
    /// Whether it is the answer to the request of this id, in JSON.
    pub fn answers(&self, asked: &str) -> bool {
        self.id.is_some_and(|id| id.answers(&Id::from_json(asked)))
    }
}

/// The two kinds of answers.
#[derive(Clone, Debug)]
pub enum Outcome<'a> {
    /// The result.
    Result(Raw<'a>),
    /// The error object.
    Error(Raw<'a>),
}

/// A request's id, as it was written: a string or an integer.
#[derive(Clone, Copy, Debug)]
pub struct Id<'a>(&'a str);

/// The longest id that is accepted. Ids are echoed and remembered, so somebody has to bound them.
pub(crate) const MAX_ID: usize = 512;

/// The largest integer that every reader of JSON keeps as it is: many keep numbers as doubles.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// What a message is made of.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Reads one message of a client, or of a server that writes ids as it was given them.
pub fn read(body: &[u8]) -> Result<Message<'_>, Malformed> {
    read_with(body, Id::read)
}

/// Reads one message of a server. Some write the id of a request in another way when they answer it, as `"5"` or `5.0`:
/// the answer can be to no other request, and [`Id::answers`] says to which.
pub fn read_servers(body: &[u8]) -> Result<Message<'_>, Malformed> {
    read_with(body, Id::read_loosely)
}

fn read_with<'a>(
    body: &'a [u8],
    id_of_answer: fn(Raw<'a>) -> Result<Id<'a>, Malformed>,
) -> Result<Message<'a>, Malformed> {
    let text = std::str::from_utf8(body).map_err(|_| Malformed::NotJson)?;
    match first_byte(text) {
        Some(b'{') => {}
        Some(b'[') if is_json(text) => return Err(Malformed::Batch),
        _ if is_json(text) => return Err(not_message("it has to be an object")),
        _ => return Err(Malformed::NotJson),
    }
    let [jsonrpc, id, method, params, result, error] = spelling::read(text, MEMBERS, &MEMBERS)?;
    let has_both = result.is_some() && error.is_some();
    let (result, error) = one_outcome(result, error);
    let read = |member| spelling::text(member).map_err(|error| not_message(plain(&error)));
    if read(jsonrpc)?.as_deref() != Some("2.0") {
        return Err(not_message("\"jsonrpc\" has to be \"2.0\""));
    }
    match (read(method)?, result, error) {
        (Some(method), None, None) => match id {
            Some(id) => Ok(Message::Request(Request { id: Id::read(id)?, method, params })),
            None => Ok(Message::Notification(Notification { method, params })),
        },
        (None, Some(result), None) => {
            let id = id.ok_or_else(|| not_message("a result needs an \"id\""))?;
            let (id, outcome) = (Some(id_of_answer(id)?), Outcome::Result(result));
            Ok(Message::Response(Response { id, outcome, has_both }))
        }
        (None, None, Some(error)) => {
            let id = id.filter(|id| id.get() != "null").map(id_of_answer).transpose()?;
            Ok(Message::Response(Response { id, outcome: Outcome::Error(error), has_both }))
        }
        (None, None, None) => Err(not_message("it has no \"method\"")),
        (None, Some(_), Some(_)) => Err(not_message("it has a result and an error")),
        (Some(_), ..) => Err(not_message("it is a request and a response at once")),
    }
}

/// Some programs write both outcomes, and `null` for the one that it is not: no reader takes that for an outcome. A
/// result alone may be `null`.
fn one_outcome<'a>(result: Option<Raw<'a>>, error: Option<Raw<'a>>) -> (Option<Raw<'a>>, Option<Raw<'a>>) {
    let is_null = |outcome: Raw<'_>| outcome.get() == "null";
    match (result, error) {
        (Some(result), Some(error)) if is_null(error) && !is_null(result) => (Some(result), None),
        (Some(result), Some(error)) if is_null(result) && !is_null(error) => (None, Some(error)),
        outcomes => outcomes,
    }
}

/// The answer to a request under a number that not every reader holds, which is no message here: whoever wrote it waits for
/// an answer, and no other would come. `None`: it is something else.
pub fn refusal_of_number(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let [jsonrpc, id, method, _, result, error] = spelling::read(text, MEMBERS, &MEMBERS).ok()?;
    let is_text = |member: Option<Raw<'_>>| spelling::text(member).is_ok_and(|text| text.is_some());
    let id = id.filter(|id| matches!(id.get().as_bytes().first(), Some(b'-' | b'0'..=b'9')))?;
    if id.get().len() > MAX_ID || !is_text(jsonrpc) || !is_text(method) || result.is_some() || error.is_some()
    {
        return None;
    }
    let why = Id::read(id).err()?.to_string();
    Some(error::response(Some(Id(id.get())), Code::InvalidRequest, &why, None))
}

/// The integer that a JSON number is, if every reader keeps it as it is.
pub(crate) fn whole(number: &str) -> Option<i64> {
    let number: f64 = number.parse().ok()?;
    let is_whole = number.fract() == 0.0 && number.abs() <= MAX_INTEGER as f64;
    // Exact, within these bounds.
    is_whole.then_some(number as i64)
}

/// Whether a text begins, after white space, with an opening brace. Derived readers take arrays for objects, so this
/// is asked before any of them is used.
pub(crate) fn is_object(text: &str) -> bool {
    first_byte(text) == Some(b'{')
}

fn first_byte(text: &str) -> Option<u8> {
    text.bytes().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn not_message(why: impl Into<String>) -> Malformed {
    Malformed::NotMessage(why.into())
}

/// serde_json's message without the position, which would mean nothing to who reads an error response.
pub(crate) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

impl From<Fault> for Malformed {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotJson => Self::NotJson,
            Fault::TooDeep => Self::TooDeep,
            Fault::TooMany(_) => not_message(fault.to_string()),
        }
    }
}

impl From<Unreadable> for Malformed {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Fault(fault) => fault.into(),
            wrong => not_message(wrong.to_string()),
        }
    }
}

// === impl Message ===

impl<'a> Message<'a> {
    /// The id of a request.
    pub fn request_id(&self) -> Option<Id<'a>> {
        match self {
            Self::Request(request) => Some(request.id),
            Self::Notification(_) | Self::Response(_) => None,
        }
    }
}

// === impl Request ===

impl Request<'_> {
    /// Whether it asks for this.
    pub fn is(&self, method: Method) -> bool {
        self.method.as_str() == method.as_str()
    }
}

// === impl Id ===

impl<'a> Id<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, Malformed> {
        let text = raw.get();
        if text.len() > MAX_ID {
            return Err(not_message(format!("the \"id\" is longer than {MAX_ID} bytes")));
        }
        if Self::is_readable(text) {
            Ok(Self(text))
        } else {
            Err(not_message("the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1"))
        }
    }

    /// Whoever answers has to write the same id again: one that another reader could take for another value, or could
    /// not read, would be answered under a name that nobody waits for.
    fn is_readable(json: &str) -> bool {
        if json.starts_with('"') {
            object::string(json).is_some()
        } else {
            json != "-0" && json.parse().is_ok_and(|id: i64| id.unsigned_abs() <= MAX_INTEGER)
        }
    }

    /// That of an answer, which may also be a number that is written with a point or an exponent.
    fn read_loosely(raw: Raw<'a>) -> Result<Self, Malformed> {
        let id = Self(raw.get());
        let is_short = raw.get().len() <= MAX_ID;
        if is_short && !raw.get().starts_with('"') && id.integer().is_some() {
            Ok(id)
        } else {
            Self::read(raw)
        }
    }

    /// The integer that it is, or that its digits are, however that was written.
    pub fn integer(&self) -> Option<i64> {
        if let Ok(integer) = self.0.parse() {
            return Some(integer);
        }
        if self.0.starts_with('"') {
            let text = object::string(self.0)?;
            // No other text is what it is written as.
            return text.parse().ok().filter(|integer: &i64| integer.to_string() == text.as_str());
        }
        whole(self.0)
    }

    /// The same of a number that was given here, as an id or as a token. What a server repeats of it need not be written as it
    /// was given.
    pub fn number(&self) -> Option<u64> {
        self.integer().and_then(|integer| u64::try_from(integer).ok())
    }

    /// Whether this is what an answer to that request says, also if it says it in another way.
    pub fn answers(&self, asked: &Id<'_>) -> bool {
        // Those of strings are strings.
        self.is(asked) || asked.0.parse().is_ok_and(|asked: i64| self.integer() == Some(asked))
    }

    /// The id as JSON.
    pub fn as_json(&self) -> &'a str {
        self.0
    }

    /// Whether two ids are the same, however their strings were escaped.
    pub fn is(&self, other: &Id<'_>) -> bool {
        let decode = |id: &str| serde_json::from_str::<String>(id).ok();
        self.0 == other.0 || decode(self.0).is_some_and(|id| decode(other.0) == Some(id))
    }

    /// It as JSON, written as every id is that is the same: two of these are equal where [`Self::is`] says so.
    pub fn in_one_spelling(&self) -> Cow<'a, str> {
        // Only a string that has escapes can be written in another way.
        let text = if self.0.contains('\\') { object::string(self.0) } else { None };
        text.map_or(Cow::Borrowed(self.0), |text| Cow::Owned(object::quote(&text)))
    }

    /// An id that somebody else has kept, and gives back as JSON. `None`: it is none, or not that alone.
    pub fn parse(json: &'a str) -> Option<Self> {
        let is_alone = json.len() <= MAX_ID && json.trim_ascii() == json && is_json(json);
        (is_alone && Self::is_readable(json)).then_some(Self(json))
    }

    /// An id that was kept as JSON. It is taken at its word, and written as it is: what a stranger gives back is for
    /// [`Self::parse`].
    pub fn from_json(json: &'a str) -> Self {
        Self(json)
    }
}

#[cfg(test)]
mod tests;
