//! What a message is, without looking into it: one pass over the bytes, nothing copied.
//!
//! The reader is strict where two readers of one message could understand it differently, because the server behind
//! reads it again: a member that occurs twice is refused (also when one of the two is written with escapes), so is one that
//! resembles another (`Method`), and an array is never taken for an object.

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
const MAX_ID: usize = 512;

/// The largest integer that every reader of JSON keeps as it is: many keep numbers as doubles.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// What a message is made of.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Reads one message.
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
            Ok(Message::Response(Response { id: Some(id_of_answer(id)?), outcome: Outcome::Result(result) }))
        }
        (None, None, Some(error)) => {
            let id = id.filter(|id| id.get() != "null").map(id_of_answer).transpose()?;
            Ok(Message::Response(Response { id, outcome: Outcome::Error(error) }))
        }
        (None, None, None) => Err(not_message("it has no \"method\"")),
        _ => Err(not_message("it is a request and a response at once")),
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
        // Whoever answers has to write the same id again: one that another reader could take for another value, or
        // could not read, would be answered under a name that nobody waits for.
        let readable = if text.starts_with('"') {
            object::string(text).is_some()
        } else {
            text != "-0" && text.parse().is_ok_and(|id: i64| id.unsigned_abs() <= MAX_INTEGER)
        };
        if readable {
            Ok(Self(text))
        } else {
            Err(not_message("the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1"))
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
        let number: f64 = self.0.parse().ok()?;
        let is_whole = number.fract() == 0.0 && number.abs() <= MAX_INTEGER as f64;
        // Exact, within these bounds.
        is_whole.then_some(number as i64)
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

    /// An id that was kept as JSON. It is only ever compared, so it need not be checked again.
    pub fn from_json(json: &'a str) -> Self {
        Self(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(body: &str) -> String {
        match read(body.as_bytes()) {
            Ok(Message::Request(request)) => format!("request {} {}", request.id.as_json(), request.method),
            Ok(Message::Notification(notification)) => format!("notification {}", notification.method),
            Ok(Message::Response(response)) => {
                let outcome = match response.outcome {
                    Outcome::Result(_) => "result",
                    Outcome::Error(_) => "error",
                };
                format!("{outcome} {}", response.id.map_or("-", |id| id.as_json()))
            }
            Err(Malformed::NotJson) => "not json".to_owned(),
            Err(Malformed::Batch) => "batch".to_owned(),
            Err(Malformed::TooDeep) => "too deep".to_owned(),
            Err(Malformed::NotMessage(why)) => format!("not message: {why}"),
        }
    }

    #[test]
    fn messages_are_told_apart() {
        for (body, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping"),
            (" \r\n{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0062\",\"method\":\"x\"}\n", "request \"a\\u0062\" x"),
            (
                r#"{"jsonrpc":"2.0","method":"notifications\/initialized"}"#,
                "notification notifications/initialized",
            ),
            (r#"{"result":{},"jsonrpc":"2.0","id":-7}"#, "result -7"),
            (r#"{"result":null,"jsonrpc":"2.0","id":7}"#, "result 7"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#, "error -"),
            (r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#, "error -"),
            // Both, and `null` for the one that it is not.
            (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#, "result 7"),
            (r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"},"result":null}"#, "error 7"),
        ] {
            assert_eq!(kind(body), expected, "{body}");
        }
    }

    #[test]
    fn an_answer_may_write_its_number_in_another_way() {
        for (id, asked, answers) in [
            ("5", "5", true),
            ("\"5\"", "5", true),
            ("5.0", "5", true),
            ("5e0", "5", true),
            ("50E-1", "5", true),
            ("-5.0", "-5", true),
            ("1.073741824e9", "1073741824", true),
            ("6", "5", false),
            ("5.5", "5", false),
            ("\"05\"", "5", false),
            ("\"+5\"", "5", false),
            ("\" 5\"", "5", false),
            ("\"5.0\"", "5", false),
            ("\"a\\u0062\"", "\"ab\"", true),
            // A string is no number that is written in another way.
            ("5", "\"5\"", false),
        ] {
            assert_eq!(Id::from_json(id).answers(&Id::from_json(asked)), answers, "{id}, {asked}");
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            let read = read_servers(answer.as_bytes());
            assert_eq!(matches!(read, Ok(Message::Response(_))), id != "5.5", "{answer}");
        }
        for id in ["5.0", "9007199254740993.0", "true", "[5]", "1e400"] {
            let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            assert!(read_servers(request.as_bytes()).is_err(), "{request}");
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            assert!(read(answer.as_bytes()).is_err(), "{answer}");
            assert_eq!(read_servers(answer.as_bytes()).is_ok(), id == "5.0", "{answer}");
        }
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for (body, expected) in [
            ("", "not json"),
            ("{", "not json"),
            ("\u{feff}{}", "not json"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, "not json"),
            (r#"{"jsonrpc":1,"id":1,"method":"#, "not json"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "batch"),
            (r#"["2.0",1,"ping"]"#, "batch"),
            ("7", "not message: it has to be an object"),
            ("{}", "not message: \"jsonrpc\" has to be \"2.0\""),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "not message: \"jsonrpc\" has to be \"2.0\""),
            (r#"{"jsonrpc":"2.0","id":1}"#, "not message: it has no \"method\""),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#,
                "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
                "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
                "not message: duplicate field `method`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}"#,
                "not message: duplicate field `method`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}"#,
                "not message: duplicate field `params`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#,
                "not message: it is a request and a response at once",
            ),
            (r#"{"jsonrpc":"2.0","result":{}}"#, "not message: a result needs an \"id\""),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
                "not message: it is a request and a response at once",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#,
                "not message: it is a request and a response at once",
            ),
        ] {
            assert_eq!(kind(body), expected, "{body}");
        }
        for (member, meant) in [
            ("JSONRPC", "jsonrpc"),
            ("j\u{17f}onrpc", "jsonrpc"),
            ("ID", "id"),
            ("Method", "method"),
            ("m\\u0045thod", "method"),
            ("Params", "params"),
            ("param\\u017f", "params"),
            ("rE\u{17f}ult", "result"),
            ("Error", "error"),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{member}":{{}}}}"#);
            assert_eq!(
                kind(&body),
                format!("not message: the member `{meant}` has to be spelled so"),
                "{body}"
            );
        }
        for member in ["methods", "_method", "m\u{e9}thod", "x", ""] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{member}":{{"Method":1}}}}"#);
            assert_eq!(kind(&body), "request 1 ping", "{body}");
        }
        assert!(matches!(read(b"{\"jsonrpc\":\"\xff\"}"), Err(Malformed::NotJson)));
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(MAX_ID));
        assert!(kind(&long).starts_with("not message: the \"id\" is longer"));
    }

    #[test]
    fn who_asks_under_a_number_that_is_none_hears_so_under_the_same() {
        for (id, answered) in
            [("9007199254740993", true), ("-0", true), ("1.5", true), ("1", false), ("null", false)]
        {
            let refusal =
                refusal_of_number(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).as_bytes());
            assert_eq!(refusal.is_some(), answered, "{id}");
            assert!(refusal.is_none_or(|refusal| refusal.contains(&format!(r#""id":{id},"error""#))), "{id}");
        }
        let long = "1".repeat(MAX_ID + 1);
        for other in [
            r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,
            r#"{"jsonrpc":"2.0","method":"ping"}"#,
            r#"{"id":1.5,"method":"ping"}"#,
            "hello",
            &format!(r#"{{"jsonrpc":"2.0","id":{long},"method":"ping"}}"#),
        ] {
            assert_eq!(refusal_of_number(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn ids_are_such_that_every_reader_keeps_them() {
        for (id, taken) in [
            ("0", true),
            ("-1", true),
            ("9007199254740991", true),
            ("-9007199254740991", true),
            (r#""""#, true),
            (r#""\ud83d\ude00""#, true),
            ("-0", false),
            ("9007199254740992", false),
            ("9007199254740993", false),
            ("-9007199254740992", false),
            ("18446744073709551617", false),
            ("1.0", false),
            ("1E0", false),
            (r#""\ud800""#, false),
            (r#""a\udc00b""#, false),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let expected = if taken {
                format!("request {id} ping")
            } else {
                "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1".to_owned()
            };
            assert_eq!(kind(&body), expected, "{id}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize, text: &str| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{open}{close},"b":"{text}"}}}}"#)
        };
        assert_eq!(kind(&nested(MAX_DEPTH - 2, "")), "request 1 x");
        assert_eq!(kind(&nested(MAX_DEPTH - 1, "")), "too deep");
        assert_eq!(kind(&nested(1_000_000, "")), "too deep");
        // Brackets in strings are text.
        assert_eq!(kind(&nested(1, &"[\\\"[".repeat(1000))), "request 1 x");
        assert_eq!(kind(&"[".repeat(1_000_000)), "not json");
    }

    #[test]
    fn ids_are_compared_by_value() {
        for (one, other, same) in
            [("1", "1", true), ("1", "\"1\"", false), ("\"ab\"", "\"a\\u0062\"", true), ("1", "2", false)]
        {
            assert_eq!(Id::from_json(one).is(&Id::from_json(other)), same, "{one} {other}");
        }
    }
}
