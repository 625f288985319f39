//! What targets make of bytes.

use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::level::Level;
use longshore_mcp::method::Method;
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::requests::Client;
use longshore_mcp::translate::{Pair, Way};
use serde_json::Value;

/// A client that can do everything.
pub(crate) const ABLE: &str =
    r#"{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#;

/// What is known of a legacy client.
pub(crate) const CLIENT: Client<'_> =
    Client { capabilities: ABLE, info: Some(r#"{"name":"c","version":"1"}"#), level: Some(Level::Info) };

/// Bytes that are taken from the front, one after the other.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next byte; 0 at the end.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// One of these, by the next byte. Letters and digits choose too, so that inputs can be read.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    pub(crate) fn revision(&mut self) -> Revision {
        self.pick(&Revision::ALL)
    }

    pub(crate) fn pair(&mut self) -> Pair {
        Pair { client: self.revision(), server: self.revision() }
    }

    pub(crate) fn way(&mut self) -> Way {
        Way { from: self.revision(), to: self.revision() }
    }

    pub(crate) fn method(&mut self) -> Method {
        self.pick(&Method::ALL)
    }

    /// All that is left.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.rest
    }

    /// All that is left, if it is text.
    pub(crate) fn text(self) -> Option<&'a str> {
        str::from_utf8(self.rest).ok()
    }

    /// The next line, without its end; none at the end.
    pub(crate) fn line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', self.rest);
        let line = &self.rest[..end.unwrap_or(self.rest.len())];
        self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
        Some(line)
    }

    /// The next line, if it is text.
    pub(crate) fn text_line(&mut self) -> Option<&'a str> {
        self.line().and_then(|line| str::from_utf8(line).ok())
    }
}

pub(crate) fn able() -> ClientCapabilities {
    ClientCapabilities::read(ABLE).expect("it can be read")
}

/// Whether there may be a number in it that is too large for a tree: one with three and more digits of exponent, or with
/// hundreds of digits.
pub(crate) fn has_vast_number(input: &[u8]) -> bool {
    let digits = |from: usize| input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (0..input.len()).any(|at| match input[at] {
        b'e' | b'E' => digits(at + 1 + usize::from(input.get(at + 1) == Some(&b'+'))) >= 3,
        byte if byte.is_ascii_digit() && (at == 0 || !input[at - 1].is_ascii_digit()) => digits(at) >= 300,
        _ => false,
    })
}

/// Whether there may be half of a pair of UTF-16 in it, written as an escape: JSON has those, and clients send them where
/// they have cut a text in two, but the strings of a tree cannot hold them.
pub(crate) fn has_half_character(input: &[u8]) -> bool {
    let unit = |at: usize| {
        let digits = input.get(at..)?.strip_prefix(b"\\u")?.get(..4)?;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let is_first = |at: usize| matches!(unit(at), Some(0xd800..=0xdbff));
    let is_second = |at: usize| matches!(unit(at), Some(0xdc00..=0xdfff));
    (0..input.len()).any(|at| {
        is_first(at) && !is_second(at + 6) || is_second(at) && !at.checked_sub(6).is_some_and(is_first)
    })
}

/// What a text says, for comparison; none if it is too deep for a tree, or no JSON.
pub(crate) fn value(json: &str) -> Option<Value> {
    serde_json::from_str(json).ok()
}

/// Fails unless it is JSON, as far as a tree can be made of it.
#[track_caller]
pub(crate) fn is_json(json: &str) {
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(json) {
        panic!("this was written, and is no JSON ({error}): {json}");
    }
}

/// The most that a message may grow by on its way: an envelope, hints, and one id.
pub(crate) const GROWTH: usize = 4096;

/// Fails if something is much longer than what it was made of. Each part may be escaped once, which makes a byte six.
#[track_caller]
pub(crate) fn is_bounded(made: &str, from: usize) {
    assert!(made.len() <= from * 8 + GROWTH, "{} bytes of {from}", made.len());
}

/// Fails if the members of an object that nobody knows are not as they were. Those begin with `x` here.
#[track_caller]
pub(crate) fn strangers_survive(before: &str, after: &str) {
    use longshore_mcp::object::Object;
    let (Ok(before), Ok(after)) = (Object::read(before), Object::read(after)) else { return };
    for name in before.names().filter(|name| name.starts_with('x')) {
        assert_eq!(before.get(name), after.get(name), "{name:?}");
    }
}
