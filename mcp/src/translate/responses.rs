//! Whole responses of servers, for whoever has a message in hand rather than its parts. Those to a handshake are for
//! [`super::handshake`].

use std::borrow::Cow;

use super::results::{self, Hints, Kind};
use super::{Pair, Untranslatable, errors};
use crate::envelope::{Outcome, Response};
use crate::method::Method;
use crate::object::Object;
use crate::revision::Questions;
use crate::splice::replaced;

/// What a request was about, which its response does not say.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its id on the client's side, as JSON.
    pub id: &'a str,
    /// Its method, if it is known.
    pub method: Option<Method>,
    /// The resource that it named, if it did.
    pub uri: Option<&'a str>,
}

/// What a response is for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// This message.
    Message(Cow<'a, str>),
    /// Nothing yet: this result asks for input, and the client's revision knows no such result. See
    /// [`crate::rounds`].
    InputRequired(&'a str),
    /// Nothing yet: the user has to visit these URLs, and the client's revision knows no such error. See
    /// [`crate::parked`].
    Visit(Vec<&'a str>),
}

/// A server's response for its client. `message` is the whole of what was read as `response`.
pub fn response<'a>(
    pair: Pair,
    asked: &Asked<'_>,
    response: &Response<'a>,
    message: &'a str,
    hints: &Hints<'_>,
) -> Result<Answer<'a>, Untranslatable> {
    let way = pair.down();
    let (member, outcome, text) = match response.outcome {
        Outcome::Result(result) => {
            if way.is_same() {
                ("result", result, Cow::Borrowed(result.get()))
            } else {
                let read = way.object("a result", result.get())?;
                let asks_here = way.from.features().questions == Questions::InputRequired;
                if asks_here && results::kind_of(&read) == Kind::InputRequired {
                    return Ok(Answer::InputRequired(result.get()));
                }
                ("result", result, results::edit(way, asked.method, read, hints)?)
            }
        }
        Outcome::Error(error) => {
            if !way.is_same()
                && way.to.features().questions == Questions::InputRequired
                && asked.method.is_some_and(Method::may_need_input)
                && let Some(urls) = errors::urls_to_visit(error.get())
            {
                return Ok(Answer::Visit(urls));
            }
            ("error", error, errors::error(pair, asked.method, asked.uri, error.get()))
        }
    };
    let has_id = response.id.is_some_and(|id| id.as_json() == asked.id);
    if let (Cow::Borrowed(_), true) = (&text, has_id) {
        return Ok(Answer::Message(Cow::Borrowed(message)));
    }
    // Nothing is read again where both parts stand for all to see.
    if let (Some(id), false) = (response.id, response.has_both)
        && let Some(whole) = replaced(message, [Some((id.as_json(), asked.id)), Some((outcome.get(), &text))])
    {
        return Ok(Answer::Message(Cow::Owned(whole)));
    }
    let mut whole: Object<'a> = way.object("a response", message)?;
    if !has_id {
        whole.set("id", asked.id.to_owned());
    }
    if let Cow::Owned(text) = text {
        whole.set(member, text);
    }
    // Written by servers that write both.
    whole.remove_null(if member == "result" { "error" } else { "result" });
    Ok(Answer::Message(whole.into_text()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{self, Message};
    use crate::revision::Revision::{self, V2025_11_25, V2026_07_28};

    fn made(client: Revision, server: Revision, message: &str) -> String {
        let Message::Response(read) = envelope::read(message.as_bytes()).unwrap() else {
            panic!("{message}")
        };
        let asked = Asked { id: "\"c\"", method: Some(Method::ToolsCall), uri: None };
        match response(Pair { client, server }, &asked, &read, message, &Hints::default()) {
            Ok(Answer::Message(text)) => text.into_owned(),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn responses_go_to_who_asked() {
        let result = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[ ]},"x":1.0}"#;
        for (client, server, message, expected) in [
            (
                V2025_11_25,
                V2025_11_25,
                result,
                r#"{"jsonrpc":"2.0","id":"c","result":{"content":[ ]},"x":1.0}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                result,
                r#"{"jsonrpc":"2.0","id":"c","result":{"content":[ ],"resultType":"complete"},"x":1.0}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"jsonrpc":"2.0","error":{"code":-32002,"message":"m"}}"#,
                r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"m"},"id":"c"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required"}}"#,
                r#"InputRequired("{\"resultType\":\"input_required\"}")"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32042,"message":"m","data":{"elicitations":[{}]}}}"#,
                r#"Visit(["{}"])"#,
            ),
        ] {
            assert_eq!(made(client, server, message), expected, "{client} {server} {message}");
        }
        let own = r#"{ "jsonrpc":"2.0","id":"c","result":{ } }"#;
        assert_eq!(made(V2026_07_28, V2026_07_28, own), own);
    }
}
