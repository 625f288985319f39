//! Messages over stdin and stdout: one a line.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio>

use std::borrow::Cow;

/// A message as a line, without the line feed at its end. White space between the parts of a message may hold line
/// ends, which a reader of lines would take for the end of the message; in strings they are escaped anyway.
pub fn line(message: &str) -> Cow<'_, str> {
    if message.contains(['\n', '\r']) {
        Cow::Owned(message.replace(['\n', '\r'], " "))
    } else {
        message.into()
    }
}

/// Whether a line can be a message at all. Servers write other things to stdout too; those are noise, not errors.
pub fn may_be_message(line: &[u8]) -> bool {
    matches!(line.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(line("{\"a\":\r\n 1}"), "{\"a\":   1}");
        assert!(matches!(line(r#"{"a":"\n"}"#), Cow::Borrowed(_)));
        for (line, expected) in [("{}", true), (" \t[", true), ("listening on 8080", false), ("", false)] {
            assert_eq!(may_be_message(line.as_bytes()), expected, "{line}");
        }
    }
}
