//! What HTTP headers say of a message.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#server-validation>

pub mod argument;
mod fields;
pub mod sentinel;
pub mod standard;

pub use fields::{Field, Fields};

/// The header that names a session, from 2025-03-26 to 2025-11-25.
pub const SESSION_ID: &str = "mcp-session-id";
/// The header that names the revision of a message, from 2025-06-18.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The header that repeats the method, since 2026-07-28.
pub const METHOD: &str = "mcp-method";
/// The header that repeats what a request is about, since 2026-07-28.
pub const NAME: &str = "mcp-name";
/// What the headers begin with that repeat arguments, since 2026-07-28.
pub const ARGUMENT_PREFIX: &str = "mcp-param-";
/// The header that says where a stream broke off, from 2025-03-26 to 2025-11-25.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// One message as the whole body.
pub const JSON: &str = "application/json";
/// Messages as events.
pub const EVENT_STREAM: &str = "text/event-stream";

/// Whether an `Accept` header (its values joined by commas, `None` if there is none) takes both kinds of answers. A
/// server may choose either for each request, so a client has to accept both.
pub fn accepts_both(accept: Option<&str>) -> bool {
    // As the specification writes it, and nearly every client.
    accept == Some("application/json, text/event-stream")
        || (accepts(accept, JSON) && accepts(accept, EVENT_STREAM))
}

/// Whether an `Accept` header takes this type.
pub fn accepts(accept: Option<&str>, wanted: &str) -> bool {
    accept.is_some_and(|accept| accept.split(',').any(|range| range_takes(range, wanted)))
}

/// Whether one media range of an `Accept` header takes a type.
fn range_takes(range: &str, wanted: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let Some(kind) = parts.next() else { return false };
    let refused = parts.any(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return false };
        name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>().is_ok_and(|q| q <= 0.0)
    });
    let matches = kind == "*/*"
        || kind.eq_ignore_ascii_case(wanted)
        || kind.strip_suffix("/*").is_some_and(|family| {
            wanted.split('/').next().is_some_and(|wanted| wanted.eq_ignore_ascii_case(family))
        });
    matches && !refused
}

/// Whether a `Content-Type` is this type, whatever its parameters.
pub fn is_type(content_type: Option<&str>, wanted: &str) -> bool {
    let is = |kind: &str| kind.eq_ignore_ascii_case(wanted);
    // Most have no parameters.
    content_type.is_some_and(|value| is(value) || value.split(';').next().is_some_and(|kind| is(kind.trim())))
}

/// Whether text can be a session id: visible ASCII, not empty, bounded.
pub fn is_session_id(text: &str) -> bool {
    (1..=1024).contains(&text.len()) && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_needs_both_types() {
        for (accept, expected) in [
            (None, false),
            (Some(""), false),
            (Some("application/json"), false),
            (Some("text/event-stream"), false),
            (Some("application/json, text/event-stream"), true),
            (Some("Application/JSON;q=0.9 ,text/event-stream; charset=utf-8"), true),
            (Some("*/*"), true),
            (Some("application/*, text/*"), true),
            (Some("application/*, text/plain"), false),
            (Some("application/json, text/event-stream;q=0"), false),
            (Some("application/jsonx, text/event-stream"), false),
        ] {
            assert_eq!(accepts_both(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn content_types_are_compared_without_parameters() {
        for (content_type, expected) in [
            (None, false),
            (Some("application/json"), true),
            (Some("Application/Json ; charset=utf-8"), true),
            (Some("application/json-seq"), false),
            (Some("text/plain"), false),
        ] {
            assert_eq!(is_type(content_type, JSON), expected, "{content_type:?}");
        }
    }

    #[test]
    fn session_ids_are_visible_ascii() {
        for (text, expected) in [("", false), ("a b", false), ("é", false), ("!~", true)] {
            assert_eq!(is_session_id(text), expected, "{text}");
        }
    }
}
