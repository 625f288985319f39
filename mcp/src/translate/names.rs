//! Ids and progress tokens in messages: what stands for one request on one side stands for another on the other.
//! All of them are JSON: a string has its quotes.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress>,
//! <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/cancellation>

use std::borrow::Cow;

use crate::object::{Object, at};

/// A message that cannot be given another id or token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message has no place for an id or a token")]
pub struct NoPlace;

/// A request or a response under another id.
pub fn with_id<'a>(message: &'a str, id: &str) -> Result<Cow<'a, str>, NoPlace> {
    set(message, &["id"], id)
}

/// A request that reports progress under another token. One that asks for no progress still does not.
pub fn with_progress_token<'a>(request: &'a str, token: &str) -> Result<Cow<'a, str>, NoPlace> {
    if at(request, &["params", "_meta", "progressToken"]).is_none() {
        return Ok(Cow::Borrowed(request));
    }
    set(request, &["params", "_meta", "progressToken"], token)
}

/// `notifications/progress` under another token.
pub fn with_reported_token<'a>(notification: &'a str, token: &str) -> Result<Cow<'a, str>, NoPlace> {
    set(notification, &["params", "progressToken"], token)
}

/// `notifications/cancelled` for a request that has another id there.
pub fn with_cancelled_id<'a>(notification: &'a str, id: &str) -> Result<Cow<'a, str>, NoPlace> {
    set(notification, &["params", "requestId"], id)
}

/// The token that progress is reported under.
pub fn reported_token(notification: &str) -> Option<&str> {
    at(notification, &["params", "progressToken"])
}

/// The request that is cancelled.
pub fn cancelled_id(notification: &str) -> Option<&str> {
    at(notification, &["params", "requestId"])
}

/// Sets the value at a path; objects that are not there are made.
pub(crate) fn set<'a>(json: &'a str, path: &[&str], value: &str) -> Result<Cow<'a, str>, NoPlace> {
    let [name, rest @ ..] = path else {
        return Ok(if json == value { Cow::Borrowed(json) } else { Cow::Owned(value.to_owned()) });
    };
    let mut object = Object::read(json).map_err(|_| NoPlace)?;
    match object.original(name) {
        None if rest.is_empty() => object.set(name, value.to_owned()),
        None => {
            let made = set("{}", rest, value)?.into_owned();
            object.set(name, made);
        }
        Some(_) => object.edit(name, |inner| set(inner, rest, value))?,
    }
    Ok(object.into_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_and_tokens_change() {
        let request = r#"{"id":1,"jsonrpc":"2.0","method":"m","params":{"a":1.0,"_meta":{"x":[ ],"progressToken":"t"}}}"#;
        assert_eq!(
            with_progress_token(&with_id(request, "7").unwrap(), "9").unwrap(),
            r#"{"id":7,"jsonrpc":"2.0","method":"m","params":{"a":1.0,"_meta":{"x":[ ],"progressToken":9}}}"#
        );
        assert!(matches!(with_id(request, "1").unwrap(), Cow::Borrowed(_)));
        let silent = r#"{"id":1,"params":{}}"#;
        assert_eq!(with_progress_token(silent, "9").unwrap(), silent);
        let progress = r#"{"method":"notifications/progress","params":{"progressToken":9,"progress":0.50}}"#;
        assert_eq!(reported_token(progress), Some("9"));
        assert_eq!(
            with_reported_token(progress, "\"t\"").unwrap(),
            r#"{"method":"notifications/progress","params":{"progressToken":"t","progress":0.50}}"#
        );
        let cancelled = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(cancelled_id(cancelled), Some("1"));
        assert!(with_cancelled_id(cancelled, "7").unwrap().contains("\"requestId\":7"));
        assert_eq!(with_id("[]", "7"), Err(NoPlace));
        assert_eq!(set("{}", &["a", "b"], "1").unwrap(), r#"{"a":{"b":1}}"#);
    }
}
