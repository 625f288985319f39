//! Values that HTTP headers cannot carry as they are: `=?base64?...?=`.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#value-encoding>

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

const BEGIN: &str = "=?base64?";
const END: &str = "?=";

/// A value that begins and ends like an encoded one, and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the base64 in it is malformed")]
pub struct Malformed;

/// A text as a header's value.
pub fn encode(text: &str) -> Cow<'_, str> {
    let edge = |byte: Option<u8>| byte.is_none_or(|byte| byte == b' ');
    let is_safe = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && !edge(text.bytes().next())
        && !edge(text.bytes().last())
        && !is_encoded(text);
    if is_safe { Cow::Borrowed(text) } else { Cow::Owned(format!("{BEGIN}{}{END}", STANDARD.encode(text))) }
}

/// The text that a header's value stands for.
pub fn decode(value: &str) -> Result<Cow<'_, str>, Malformed> {
    if !is_encoded(value) {
        return Ok(Cow::Borrowed(value));
    }
    let inner = &value[BEGIN.len()..value.len() - END.len()];
    // The engine refuses what has another spelling too: missing padding, and bits that no byte is made of.
    let bytes = STANDARD.decode(inner).map_err(|_| Malformed)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Malformed)
}

fn is_encoded(value: &str) -> bool {
    value.len() >= BEGIN.len() + END.len() && value.starts_with(BEGIN) && value.ends_with(END)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_back() {
        for (text, value) in [
            ("get_weather", "get_weather"),
            ("a b", "a b"),
            ("file:///a%20b", "file:///a%20b"),
            ("", "=?base64??="),
            (" a", "=?base64?IGE=?="),
            ("a ", "=?base64?YSA=?="),
            ("h\u{e9}", "=?base64?aMOp?="),
            ("a\nb", "=?base64?YQpi?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(encode(text), value, "{text:?}");
            assert_eq!(decode(value).unwrap(), text, "{value}");
        }
        // Markers of another case are text.
        assert_eq!(decode("=?BASE64?YQ==?=").unwrap(), "=?BASE64?YQ==?=");
        for value in
            ["=?base64?YQ?=", "=?base64?YR==?=", "=?base64?Y Q==?=", "=?base64?/w==?=", "=?base64?-_==?="]
        {
            assert_eq!(decode(value), Err(Malformed), "{value}");
        }
    }
}
