//! Errors: the `error` member of a response.
//!
//! Codes that mean something in one revision mean nothing, or something else, in another. What is kept is the
//! meaning; the words and `data` stay as they are wherever the code does.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes>

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{Pair, Way};
use crate::capabilities::Need;
use crate::error::{Code, code_of};
use crate::lossy_json;
use crate::method::Method;
use crate::object::{self, Object, elements, quote};
use crate::revision::{Era, Revision};

/// The codes that belong to MCP since 2026-07-28. A server of an older revision that uses one means something else.
const RESERVED: std::ops::RangeInclusive<i64> = -32099..=-32020;

/// A server's error for its client: the error object. `uri` is what the request named, if it was a resource.
pub fn error<'a>(pair: Pair, method: Option<Method>, uri: Option<&str>, json: &'a str) -> Cow<'a, str> {
    let way = pair.down();
    if way.is_same() {
        return Cow::Borrowed(json);
    }
    let (Some(number), Ok(object)) = (code_of(json), Object::read(json)) else {
        return Cow::Owned(plain(Code::InternalError, "the server answered with an error that is none"));
    };
    let Some(words) = object.get("message").and_then(lossy_json::text) else {
        return Cow::Owned(plain(Code::InternalError, "the server answered with an error that says nothing"));
    };
    let code = Code::of(number);
    match pair.eras() {
        (Era::Modern, Era::Legacy) => match code {
            Some(Code::ResourceNotFound) => Cow::Owned(about_resource(object, Code::InvalidParams, uri)),
            // Whoever may be asked to go there has been, see `urls_to_visit`; for others there is no way to say it.
            Some(Code::UrlElicitationRequired) if way.from.features().url_elicitation_error => {
                let why = way.unknown("an error that has the user visit a URL").to_string();
                Cow::Owned(plain(Code::InternalError, &why))
            }
            _ if RESERVED.contains(&number) => Cow::Owned(with_code(object, Code::InternalError)),
            _ => Cow::Borrowed(json),
        },
        (Era::Legacy, Era::Modern) => match code {
            // The uri in it is what tells it from other bad parameters.
            Some(Code::InvalidParams)
                if method == Some(Method::ResourcesRead) && object::at(json, &["data", "uri"]).is_some() =>
            {
                Cow::Owned(with_code(object, Code::ResourceNotFound))
            }
            // These two are about what this proxy wrote: a mistake of its own.
            Some(Code::HeaderMismatch | Code::UnsupportedProtocolVersion) => {
                let mut why = format!(
                    "the server, of revision {} of MCP, and the proxy that speaks it for a client of {} disagree",
                    way.from, way.to
                );
                // Or about an argument that no header holds.
                say(&mut why, &words);
                Cow::Owned(plain(Code::InternalError, &why))
            }
            _ => within_legacy(way, code, json),
        },
        _ => within_legacy(way, code, json),
    }
}

/// An error that only some of the legacy revisions know.
fn within_legacy<'a>(way: Way, code: Option<Code>, json: &'a str) -> Cow<'a, str> {
    let knows = |revision: Revision| revision.features().url_elicitation_error;
    // No code was reserved before.
    let is_its_own = way.from.era() == Era::Legacy && !knows(way.from);
    if code == Some(Code::UrlElicitationRequired) && !is_its_own && !knows(way.to) {
        return Cow::Owned(lacking(Need::ElicitationUrl, way));
    }
    Cow::Borrowed(json)
}

/// The URLs that a user has to visit before the server answers, as parameters of `elicitation/create`. `None` if the
/// error is another one.
pub fn urls_to_visit(error: &str) -> Option<Vec<&str>> {
    if code_of(error).and_then(Code::of) != Some(Code::UrlElicitationRequired) {
        return None;
    }
    let urls = elements(object::at(error, &["data", "elicitations"])?).ok()?;
    (!urls.is_empty()).then_some(urls)
}

/// The most of a server's own words in an error of the proxy's.
const MAX_WORDS: usize = 1000;

/// The error for a request that needs what its client did not declare, in the words of the client's revision.
pub fn lacking(need: Need, way: Way) -> String {
    lacking_says(need, way, None)
}

/// The same where the server has said something else instead.
pub fn lacking_says(need: Need, way: Way, words: Option<&str>) -> String {
    let mut message = format!(
        "the server needs {}, which the client did not declare or its revision {} does not have",
        need.as_str(),
        way.to
    );
    if let Some(words) = words {
        say(&mut message, words);
    }
    match way.to.era() {
        Era::Modern => {
            let data = json!({"requiredCapabilities": need.as_capabilities()});
            written(Code::MissingClientCapability, &message, Some(&data))
        }
        Era::Legacy => written(Code::InternalError, &format!("{message} (server: {})", way.from), None),
    }
}

/// Adds the server's own words.
fn say(message: &mut String, words: &str) {
    message.push_str("; it says: ");
    message.extend(words.chars().take(MAX_WORDS));
}

/// An error object.
pub fn plain(code: Code, message: &str) -> String {
    written(code, message, None)
}

fn written(code: Code, message: &str, data: Option<&Value>) -> String {
    let data = data.map(|data| format!(",\"data\":{data}")).unwrap_or_default();
    format!(r#"{{"code":{},"message":{}{data}}}"#, code.number(), quote(message))
}

fn with_code(mut error: Object<'_>, code: Code) -> String {
    error.set("code", code.number().to_string());
    error.write()
}

/// The error says which resource it is about, as far as there is a place for that: `data` may be anything.
fn about_resource(mut error: Object<'_>, code: Code, uri: Option<&str>) -> String {
    if let Some(uri) = uri {
        let data = match error.present("data").map(Object::read) {
            None => Some(Object::empty()),
            Some(Ok(data)) if data.get("uri").is_none() => Some(data),
            Some(Ok(_) | Err(_)) => None,
        };
        if let Some(mut data) = data {
            data.set("uri", quote(uri));
            let data = data.write();
            error.set("data", data);
        }
    }
    with_code(error, code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision::{V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28};

    fn made(client: Revision, server: Revision, json: &str) -> String {
        error(Pair { client, server }, Some(Method::ResourcesRead), Some("a://b"), json).into_owned()
    }

    #[test]
    fn codes_keep_their_meaning() {
        let required = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url"}]}}"#;
        for (client, server, json, expected) in [
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32002,"message":"m"}"#,
                r#"{"code":-32602,"message":"m","data":{"uri":"a://b"}}"#,
            ),
            (
                V2026_07_28,
                V2024_11_05,
                r#"{"message":"m","data":{"uri":"c"},"code":-32002}"#,
                r#"{"message":"m","data":{"uri":"c"},"code":-32602}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32002,"message":"m","data":null}"#,
                r#"{"code":-32602,"message":"m","data":{"uri":"a://b"}}"#,
            ),
            // What a server says besides stays, and so does what has no place for it.
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32002,"message":"m","data":{"hint": 1.0e2}}"#,
                r#"{"code":-32602,"message":"m","data":{"hint":1.0e2,"uri":"a://b"}}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32002,"message":"m","data":[ "gone" ]}"#,
                r#"{"code":-32602,"message":"m","data":[ "gone" ]}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32021,"message":"mine"}"#,
                r#"{"code":-32603,"message":"mine"}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32601 ,"message":"m"}"#,
                r#"{"code":-32601 ,"message":"m"}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32000 ,"message":"m"}"#,
                r#"{"code":-32000 ,"message":"m"}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                required,
                r#"{"code":-32603,"message":"an error that has the user visit a URL cannot be passed on from revision 2025-11-25 to revision 2026-07-28 of MCP"}"#,
            ),
            (
                V2025_06_18,
                V2025_11_25,
                required,
                r#"{"code":-32603,"message":"the server needs elicitation with a URL, which the client did not declare or its revision 2025-06-18 does not have (server: 2025-11-25)"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"code":-32602,"message":"m","data":{"uri":"a://b"}}"#,
                r#"{"code":-32002,"message":"m","data":{"uri":"a://b"}}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"code":-32602,"message":"m"}"#,
                r#"{"code":-32602,"message":"m"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"code":-32021,"message":"m","data":{}}"#,
                r#"{"code":-32021,"message":"m","data":{}}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"code":-32020,"message":"m"}"#,
                r#"{"code":-32603,"message":"the server, of revision 2026-07-28 of MCP, and the proxy that speaks it for a client of 2025-11-25 disagree; it says: m"}"#,
            ),
            (
                V2024_11_05,
                V2026_07_28,
                r#"{"code":-32022,"message":"m","data":{"supported":[],"requested":"2026-07-28"}}"#,
                r#"{"code":-32603,"message":"the server, of revision 2026-07-28 of MCP, and the proxy that speaks it for a client of 2024-11-05 disagree; it says: m"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                "7",
                r#"{"code":-32603,"message":"the server answered with an error that is none"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"code":1}"#,
                r#"{"code":-32603,"message":"the server answered with an error that says nothing"}"#,
            ),
            (V2025_11_25, V2025_11_25, required, required),
            // Before 2025-11-25 that code is a server's own.
            (
                V2026_07_28,
                V2025_06_18,
                r#"{"code":-32042,"message":"mine"}"#,
                r#"{"code":-32603,"message":"mine"}"#,
            ),
            (V2024_11_05, V2025_06_18, required, required),
            // A text that is cut within a character is one.
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"code":-32000,"message":"a\ud83d"}"#,
                r#"{"code":-32000,"message":"a\ud83d"}"#,
            ),
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"code":-32020,"message":"a\ud83d"}"#,
                "{\"code\":-32603,\"message\":\"the server, of revision 2026-07-28 of MCP, and the proxy that speaks it for a client of 2025-11-25 disagree; it says: a\u{fffd}\"}",
            ),
        ] {
            assert_eq!(made(client, server, json), expected, "{client} {server} {json}");
        }
        assert_eq!(urls_to_visit(required).unwrap(), [r#"{"mode":"url"}"#]);
        assert_eq!(urls_to_visit(r#"{"code":-32042,"message":"m","data":{"elicitations":[]}}"#), None);
        assert_eq!(urls_to_visit(r#"{"code":-32043,"message":"m"}"#), None);
    }
}
