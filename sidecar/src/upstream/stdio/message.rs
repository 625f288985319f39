//! What the way to a process has to know of a message, and how a message is written on one line.

use bytes::{BufMut, Bytes, BytesMut};
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::method::NotificationMethod;
use memchr::memchr2;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::Caller;
use super::{Failure, Patience};

/// The longest token of a call's progress that is looked at. Longer ones are nobody's.
const MAX_TOKEN: usize = 512;

/// A message for the process, and who waits for what comes of it.
pub(super) struct Command {
    pub(super) kind: Kind,
    pub(super) line: Bytes,
    pub(super) caller: Caller,
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It wants an answer.
    Request {
        /// By this id.
        id: Key,
        /// And progress by this one.
        token: Option<Key>,
    },
    /// It takes a request back.
    Cancelled(Option<Key>),
    /// The client's last word in the handshake.
    Initialized,
    /// It answers what the server asked under this id. Without one it answers nothing.
    Response(Option<Key>),
    /// Another notification.
    Other,
}

/// An id or a token as a value, however it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Text(String),
    Number(String),
}

impl Key {
    pub(super) fn of(id: &Id<'_>) -> Self {
        Self::read(id.as_json())
    }

    fn read(json: &str) -> Self {
        match serde_json::from_str(json) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Number(json.to_owned()),
        }
    }

    fn token(raw: &RawValue) -> Option<Self> {
        (raw.get().len() <= MAX_TOKEN).then(|| Self::read(raw.get()))
    }

    /// About how much memory it takes.
    pub(super) fn weight(&self) -> usize {
        let (Self::Text(text) | Self::Number(text)) = self;
        text.len() + 64
    }
}

impl Command {
    pub(super) fn read(body: Bytes, caller: Caller) -> Result<Self, Failure> {
        let kind = kind(&body)?;
        Ok(Self { kind, line: line(&body), caller })
    }

    /// Whether somebody may wait for long.
    pub(super) fn patience(&self) -> Patience {
        match self.kind {
            Kind::Request { .. } => Patience::Short,
            Kind::Cancelled(_) | Kind::Initialized | Kind::Response(_) | Kind::Other => Patience::Endless,
        }
    }
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

fn params(params: Option<&RawValue>) -> Params<'_> {
    params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default()
}

fn kind(body: &[u8]) -> Result<Kind, Failure> {
    Ok(match envelope::read(body).map_err(|_| Failure::NotMessage)? {
        Message::Request(request) => {
            let meta = params(request.params).meta.and_then(|meta| serde_json::from_str(meta.get()).ok());
            let token = meta.and_then(|meta: Params<'_>| meta.token).and_then(Key::token);
            Kind::Request { id: Key::of(&request.id), token }
        }
        Message::Notification(notification) => match notification.method.as_str() {
            method if method == NotificationMethod::Cancelled.as_str() => {
                Kind::Cancelled(params(notification.params).request_id.and_then(Key::token))
            }
            method if method == NotificationMethod::Initialized.as_str() => Kind::Initialized,
            _ => Kind::Other,
        },
        Message::Response(response) => Kind::Response(response.id.as_ref().map(Key::of)),
    })
}

/// The token that a server's notification of progress carries.
pub(super) fn progress_of(notification: &envelope::Notification<'_>) -> Option<Key> {
    params(notification.params).token.and_then(Key::token)
}

/// A message on one line. Strings in JSON hold no line ends, so those that are there are white space.
fn line(body: &Bytes) -> Bytes {
    let mut line = BytesMut::with_capacity(body.len() + 1);
    line.put_slice(body);
    let mut at = 0;
    while let Some(found) = memchr2(b'\n', b'\r', &line[at..]) {
        line[at + found] = b' ';
        at += found + 1;
    }
    line.put_u8(b'\n');
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_known_by_what_matters_on_the_way() {
        let number = |text: &str| Key::Number(text.to_owned());
        let text = |text: &str| Key::Text(text.to_owned());
        for (body, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, Kind::Request { id: number("1"), token: None }),
            (
                r#"{"jsonrpc":"2.0","id":"a\u0062","method":"x","params":{"_meta":{"progressToken":7}}}"#,
                Kind::Request { id: text("ab"), token: Some(number("7")) },
            ),
            (
                r#"{"jsonrpc":"2.0","id":"1","method":"x","params":{"_meta":{"progressToken":"t"},"progressToken":2}}"#,
                Kind::Request { id: text("1"), token: Some(text("t")) },
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":7}}"#,
                Kind::Request { id: number("1"), token: None },
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
                Kind::Cancelled(Some(number("1"))),
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#, Kind::Cancelled(None)),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Kind::Initialized),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}"#,
                Kind::Other,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Kind::Response(Some(number("1")))),
        ] {
            assert_eq!(kind(body.as_bytes()).unwrap(), expected, "{body}");
        }
        assert!(kind(b"hello").is_err());
    }

    #[test]
    fn a_message_is_one_line_and_the_same_message() {
        for (body, expected) in
            [("{}", "{}\n"), ("{\r\n\t\"a\":\n\"b\\n\"}\n", "{  \t\"a\": \"b\\n\"} \n"), ("\n\n", "  \n")]
        {
            assert_eq!(line(&Bytes::from(body)), expected, "{body:?}");
        }
    }
}
