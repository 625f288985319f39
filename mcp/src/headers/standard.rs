//! The headers of 2026-07-28 that repeat what the body says, so that what stands between can route without reading
//! it. The body is the truth; whoever reads it has to check them.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers>

use std::borrow::Cow;

use thiserror::Error;

use super::fields::{Field, Fields};
use super::{METHOD, NAME, PROTOCOL_VERSION, sentinel};
use crate::meta::Outline;
use crate::method::Method;

/// How a header and the body disagree.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// It is not there.
    #[error("the header \"{0}\" is missing")]
    Missing(Cow<'static, str>),
    /// It is there more than once.
    #[error("the header \"{0}\" occurs more than once")]
    Twice(Cow<'static, str>),
    /// It holds bytes that no header may have, or base64 that is none.
    #[error("the header \"{0}\" is malformed")]
    Malformed(Cow<'static, str>),
    /// It says something else than the body.
    #[error("the header \"{0}\" says something else than the body")]
    Different(Cow<'static, str>),
    /// It is there, and the body has nothing that it could repeat.
    #[error("the header \"{0}\" repeats what the body does not have")]
    Unfounded(Cow<'static, str>),
    /// What it would repeat is not clear: readers differ in what they take of such a body.
    #[error("the arguments cannot be read, so it is not known what the header \"{0}\" has to say")]
    Unclear(Cow<'static, str>),
}

/// What `MCP-Protocol-Version` says.
pub fn version<'a>(fields: &Fields<'a>) -> Result<&'a str, Mismatch> {
    one(fields.version, PROTOCOL_VERSION)
}

/// Checks the revision, which the body says to be `version`.
pub(crate) fn check_version(fields: &Fields<'_>, version: &str) -> Result<(), Mismatch> {
    if self::version(fields)? == version { Ok(()) } else { Err(Mismatch::Different(PROTOCOL_VERSION.into())) }
}

/// Checks `Mcp-Method`. Its value counts with its case.
pub fn check_method(fields: &Fields<'_>, method: &str) -> Result<(), Mismatch> {
    if one(fields.method, METHOD)? == method { Ok(()) } else { Err(Mismatch::Different(METHOD.into())) }
}

/// Checks `Mcp-Name`, for the methods that have it. A body without the name is another mistake, and is left to who
/// reads the parameters.
pub fn check_name(fields: &Fields<'_>, method: Method, outline: &Outline<'_>) -> Result<(), Mismatch> {
    let Some(name) = outline.name(method.subject()) else { return Ok(()) };
    let said = sentinel::decode(one(fields.name, NAME)?).map_err(|_| Mismatch::Malformed(NAME.into()))?;
    if said == name.as_str() { Ok(()) } else { Err(Mismatch::Different(NAME.into())) }
}

/// The headers that a request of 2026-07-28 is sent with, `MCP-Protocol-Version` and those of arguments aside.
pub fn headers(method: Method, outline: &Outline<'_>) -> Vec<(&'static str, String)> {
    let mut headers = vec![(METHOD, method.as_str().to_owned())];
    if let Some(name) = outline.name(method.subject()) {
        headers.push((NAME, sentinel::encode(&name).into_owned()));
    }
    headers
}

/// The one value of a header.
fn one<'a>(field: Field<'a>, name: &'static str) -> Result<&'a str, Mismatch> {
    match field {
        Field::One(value) => Ok(value),
        Field::Absent => Err(Mismatch::Missing(name.into())),
        Field::Twice => Err(Mismatch::Twice(name.into())),
        Field::Unreadable => Err(Mismatch::Malformed(name.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{self, Message};

    fn with_request<T>(method: &str, params: &str, check: impl FnOnce(Method, &Outline<'_>) -> T) -> T {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let Message::Request(request) = envelope::read(body.as_bytes()).unwrap() else { panic!("{body}") };
        check(
            Method::ALL.into_iter().find(|known| known.as_str() == method).unwrap(),
            &Outline::read(request.params).unwrap(),
        )
    }

    #[test]
    fn names_are_compared_with_the_body() {
        for (method, params, header, expected) in [
            ("tools/call", r#"{"name":"echo"}"#, Some("echo"), Ok(())),
            ("tools/call", r#"{"name":"\u0065cho"}"#, Some(" echo\t"), Ok(())),
            ("tools/call", r#"{"name":"h\u00e9"}"#, Some("=?base64?aMOp?="), Ok(())),
            ("tools/call", r#"{"name":"echo"}"#, Some("Echo"), Err(Mismatch::Different(NAME.into()))),
            ("tools/call", r#"{"name":"echo"}"#, None, Err(Mismatch::Missing(NAME.into()))),
            ("tools/call", r#"{"name":"a"}"#, Some("=?base64?YR==?="), Err(Mismatch::Malformed(NAME.into()))),
            ("prompts/get", r#"{"name":"p"}"#, Some("p"), Ok(())),
            ("resources/read", r#"{"uri":"a://b"}"#, Some("a://b"), Ok(())),
            ("resources/read", r#"{"uri":"a://b"}"#, Some("a://c"), Err(Mismatch::Different(NAME.into()))),
            ("tasks/get", r#"{"taskId":"t"}"#, None, Err(Mismatch::Missing(NAME.into()))),
            ("tools/list", "{}", None, Ok(())),
            ("tools/call", "{}", None, Ok(())),
        ] {
            let fields = Fields::read(header.map(|value| ("Mcp-Name", value.as_bytes())));
            let found = with_request(method, params, |method, request| check_name(&fields, method, request));
            assert_eq!(found, expected, "{method} {params} {header:?}");
        }
    }

    #[test]
    fn what_is_sent_passes_the_check() {
        for (method, params) in [
            ("tools/call", r#"{"name":" \u00e9\n"}"#),
            ("resources/read", r#"{"uri":"=?base64?x?="}"#),
            ("tools/list", "{}"),
        ] {
            with_request(method, params, |known, request| {
                let headers = headers(known, request);
                let fields = Fields::read(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
                assert_eq!(check_method(&fields, method), Ok(()));
                assert_eq!(check_name(&fields, known, request), Ok(()));
            });
        }
    }
}
