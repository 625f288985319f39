//! How the conversation with a process began, so that it can begin again with another.

use bytes::{Bytes, BytesMut};
use longshore_mcp::initialize;
use longshore_mcp::object::Object;
use longshore_mcp::revision::Revision;
use longshore_sessions::bounds::MAX_CAPABILITIES;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message::{Span, with, write_line};
use crate::upstream::letter::own_info;

/// The number of the first message to a process.
pub(super) const FIRST: u64 = 0;
/// The longest handshake that is kept, to be said again to another process: what a client says that it can do, and who it is.
const MAX_KEPT: usize = 2 * MAX_CAPABILITIES;
/// The longest answer that is kept for other sessions of the same process. There may be as many processes as principals.
const MAX_ANSWER: usize = 1024 * 1024;

/// What processes are told first, and what they answered.
pub(super) struct Handshake {
    line: Bytes,
    answer: Option<(Bytes, Span)>,
    /// The revision that the server chose. None: it has not answered yet.
    version: Option<String>,
    /// The last word of it was said.
    pub(super) initialized: bool,
    /// There is none: each request stands alone.
    absent: bool,
}

/// What a client says of itself, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Offer<'a> {
    #[serde(default)]
    pub(super) protocol_version: String,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
}

/// What a server may ask a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    sampling: bool,
    elicitation: bool,
    roots: bool,
}

impl Abilities {
    /// Whether a client understands this request of a server.
    pub(super) fn cover(self, method: &str) -> bool {
        match method {
            "sampling/createMessage" => self.sampling,
            "elicitation/create" => self.elicitation,
            "roots/list" => self.roots,
            _ => false,
        }
    }
}

impl<'a> Offer<'a> {
    /// What is in a client's `initialize`.
    pub(super) fn read(body: &'a [u8]) -> Self {
        #[derive(Deserialize)]
        struct Wire<'a> {
            #[serde(borrow)]
            params: Offer<'a>,
        }
        serde_json::from_slice(body).map(|Wire { params }| params).unwrap_or_default()
    }

    pub(super) fn abilities(&self) -> Abilities {
        let capabilities = self.capabilities.and_then(|said| Object::read(said.get()).ok());
        let has = |name| capabilities.as_ref().is_some_and(|said| said.get(name).is_some());
        Abilities { sampling: has("sampling"), elicitation: has("elicitation"), roots: has("roots") }
    }
}

impl Handshake {
    /// A client's own words, with the id at this place replaced.
    pub(super) fn of(body: &[u8], id: &Span) -> Self {
        let mut line = BytesMut::new();
        write_line(body, [Some((id, &FIRST.to_string())), None], &mut line);
        Self::new(line.freeze())
    }

    /// The words for a process that several sessions share. What a server could ask a client is not among them: it
    /// could not tell which client it asks.
    pub(super) fn for_all(version: &str) -> Self {
        Self::new(initialize(version, &json!({})))
    }

    /// That of a session which goes on here. `None` for the capabilities: it cannot be said again.
    pub(super) fn former(version: &str, capabilities: Option<&str>) -> Self {
        let capabilities = capabilities.and_then(|text| serde_json::from_str(text).ok());
        let line = capabilities.map_or_else(Bytes::new, |capabilities| initialize(version, &capabilities));
        Self { version: Some(version.to_owned()), initialized: true, ..Self::new(line) }
    }

    /// For a process to which each request says all that it needs.
    pub(super) fn none() -> Self {
        let version = Some(Revision::V2026_07_28.as_str().to_owned());
        Self { version, initialized: true, absent: true, ..Self::new(Bytes::new()) }
    }

    fn new(line: Bytes) -> Self {
        Self { line, answer: None, version: None, initialized: false, absent: false }
    }

    /// Whether there is none.
    pub(super) fn is_absent(&self) -> bool {
        self.absent
    }

    /// What a process is told first.
    pub(super) fn line(&self) -> &Bytes {
        &self.line
    }

    /// Whether the server has answered it.
    pub(super) fn is_complete(&self) -> bool {
        self.version.is_some()
    }

    /// The revision that the server chose.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Whether it can be said to another process.
    pub(super) fn can_be_repeated(&self) -> bool {
        self.absent || self.is_complete() && (1..=MAX_KEPT).contains(&self.line.len())
    }

    /// Takes the server's answer. Says whether it completes the handshake.
    pub(super) fn answered(&mut self, message: &Bytes) -> bool {
        self.version = version(message);
        if self.is_complete() && self.line.len() > MAX_KEPT {
            self.line = Bytes::new();
        }
        self.is_complete()
    }

    /// Keeps the server's answer, with its id at this place, for other sessions that ask. Says whether it is short enough.
    pub(super) fn keep_answer(&mut self, message: &Bytes, id: &Span) -> bool {
        let is_short = message.len() <= MAX_ANSWER;
        // A copy: what was read with it is not kept for as long.
        self.answer = is_short.then(|| (Bytes::copy_from_slice(message), id.clone()));
        is_short
    }

    /// The answer for another session that asks with this id.
    pub(super) fn answer(&self, id: &str) -> Option<Bytes> {
        self.answer.as_ref().map(|(message, at)| with(message, at, id))
    }

    /// Whether another process's answer is the same, as far as the client has heard.
    pub(super) fn is_repeated_by(&self, message: &[u8]) -> bool {
        self.version.is_some() && version(message) == self.version
    }
}

fn version(message: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(message).ok()?;
    let accepted = initialize::accepted(text, Revision::NEWEST_WITH_INITIALIZE).ok()?;
    Some(accepted.version)
}

/// The sidecar's own words. A line.
fn initialize(version: &str, capabilities: &Value) -> Bytes {
    let message = json!({
        "jsonrpc": "2.0",
        "id": FIRST,
        "method": "initialize",
        "params": {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": own_info(),
        },
    });
    format!("{message}\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_said_again_is_not_kept() {
        let answer = Bytes::from(
            r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#,
        );
        for (length, kept) in [(100, true), (MAX_KEPT + 1, false)] {
            let name = "x".repeat(length);
            let offer = format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"{name}","version":"1"}}}}}}"#
            );
            let id = offer.find('7').unwrap();
            let mut handshake = Handshake::of(offer.as_bytes(), &(id..id + 1));
            assert!(handshake.line().len() > length);
            assert!(handshake.answered(&answer));
            assert_eq!((handshake.can_be_repeated(), handshake.line().is_empty()), (kept, !kept));
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_kept_for_nobody() {
        let mut handshake = Handshake::for_all("2025-11-25");
        for (length, is_kept) in [(MAX_ANSWER, true), (MAX_ANSWER + 1, false)] {
            let answer = Bytes::from(vec![b'0'; length]);
            assert_eq!(handshake.keep_answer(&answer, &(0..1)), is_kept);
            assert_eq!(handshake.answer("7").is_some(), is_kept);
        }
    }
}
