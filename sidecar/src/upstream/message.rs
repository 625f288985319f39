//! What the way to a server has to know of a message where many calls share it, and how a message is written on one
//! line.
//!
//! Ids and tokens that cross are replaced, since those of several sessions, or of a sidecar before this one, could be
//! the same. All other bytes stay what they are.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use longshore_mcp::envelope::{self, Id, Message, Request};
use longshore_mcp::method::{Method, NotificationMethod, ServerNotification};
use longshore_mcp::params::Params;
use longshore_mcp::revision::Revision;
use longshore_sidecar_config::Upstream;
use memchr::memchr2;

use super::call::{Caller, Failure, Patience};
use super::channel::Name;
use longshore_mcp::level::Level;

/// Why a server hears that a call is taken back of which its client has not said so itself, or not in time.
pub(super) const UNAWAITED: &str = "nobody waits for it any more";

/// Where a part of a message is.
pub(super) type Span = Range<usize>;

/// A message for the server, and who waits for what comes of it.
pub(super) struct Command {
    /// In which session.
    pub(super) from: Name,
    pub(super) kind: Kind,
    pub(super) body: Bytes,
    pub(super) caller: Caller,
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It wants an answer.
    Request(Asked),
    /// It takes a request back: by this id, which is there.
    Cancelled(Option<(Key, Span)>),
    /// The client's last word in the handshake.
    Initialized,
    /// How far the client is with what the server asked, under this token.
    Progress(Option<Key>),
    /// The client's roots have changed.
    RootsChanged,
    /// It answers what the server asked under this id, which is there. Without one it answers nothing.
    Response(Option<(Key, Span)>),
    /// Another notification.
    Other,
}

/// What a message of a client is that was read already. The same bytes go on with it.
pub(crate) struct Known(Kind);

impl Known {
    /// What is to be known of a message on the way to this server. What cannot be known is said by whoever reads it there.
    pub(crate) fn of(
        upstream: &Upstream,
        body: &[u8],
        message: &Message<'_>,
        params: &Params<'_>,
    ) -> Option<Self> {
        // What may be as long as the message is not kept once more for as long as the call lasts: a URI, a token that was
        // never asked under, or the id of what never was. Ids and tokens of its own are bounded.
        let is_short = |kind: &Kind| match kind {
            Kind::Request(asked) => !matches!(asked.about, About::Subscribe(_) | About::Unsubscribe(_)),
            Kind::Cancelled(_) | Kind::Progress(_) => false,
            Kind::Initialized | Kind::RootsChanged | Kind::Response(_) | Kind::Other => true,
        };
        match upstream {
            Upstream::StreamableHttp { .. } => None,
            Upstream::Stdio {} | Upstream::Sse { .. } => {
                kind_of(body, message, params).ok().filter(is_short).map(Self)
            }
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) id: Key,
    /// Where that is.
    pub(super) at: Span,
    /// Where the token is that it wants to hear of its progress by.
    pub(super) token: Option<Span>,
    pub(super) about: About,
}

/// The requests that change what a process does for its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    Handshake,
    /// None: no level that there is.
    Level(Option<Level>),
    Subscribe(String),
    /// It was, and the session does not want it any more.
    TakenBack(String),
    Unsubscribe(String),
    /// To be told of changes for as long as it is not answered.
    Listen,
    /// Whatever a tool does, and it may become a task, whose progress is told when it is answered.
    Task,
    /// Only what there is: nothing goes on once it is answered.
    Look,
    Other,
}

/// An id or a token as a value, however it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Text(String),
    Number(i64),
}

impl About {
    /// Whether it only sets something, which nobody takes back by waiting no longer: nor a handshake, which ends with its
    /// session.
    pub(super) fn sets(&self) -> bool {
        match self {
            Self::Handshake
            | Self::Level(_)
            | Self::Subscribe(_)
            | Self::TakenBack(_)
            | Self::Unsubscribe(_) => true,
            Self::Listen | Self::Task | Self::Look | Self::Other => false,
        }
    }

    /// Whether the server may go on with something once it has answered this, or nobody waits for its answer any more. What
    /// changes nothing but what is told later is told to whom it was changed for.
    pub(super) fn may_go_on(&self) -> bool {
        matches!(self, Self::Task | Self::Other)
    }
}

impl Key {
    pub(super) fn of(id: &Id<'_>) -> Option<Self> {
        Self::read(id.as_json())
    }

    pub(super) fn read(json: &str) -> Option<Self> {
        match json.parse() {
            Ok(number) => Some(Self::Number(number)),
            Err(_) => serde_json::from_str(json).ok().map(Self::Text),
        }
    }
}

impl Command {
    /// A message, which is read if nobody knows it.
    pub(super) fn of(
        from: Name,
        body: Bytes,
        known: Option<&Known>,
        caller: Caller,
    ) -> Result<Self, Failure> {
        debug_assert!(
            known.is_none_or(|known| kind(&body).is_ok_and(|kind| kind == known.0)),
            "what is known is of these bytes"
        );
        let kind = known.map_or_else(|| kind(&body), |known| Ok(known.0.clone()))?;
        Ok(Self { from, kind, body, caller })
    }

    /// Whether it is to be said still. A request is not, once nobody waits for it: its answer would be nobody's. What has
    /// no answer is: whoever sent it only waited to hear that it was written, and it may be what ends a call, answers a
    /// question or changes what the server does from then on.
    pub(super) fn counts(&self) -> bool {
        !(matches!(self.kind, Kind::Request(_)) && self.caller.is_gone())
    }

    /// Whether somebody may wait for long.
    pub(super) fn patience(&self) -> Patience {
        match self.kind {
            Kind::Request(_) => Patience::Short,
            Kind::Cancelled(_)
            | Kind::Initialized
            | Kind::Progress(_)
            | Kind::RootsChanged
            | Kind::Response(_)
            | Kind::Other => Patience::Endless,
        }
    }
}

/// Whether a notification of this name is taken to be about the call that is under way, if there is only one: what the server
/// logs is, and what nobody knows, but for those of tasks. It comes before the call's answer then.
pub(super) fn is_of_call(method: &str) -> bool {
    match ServerNotification::parse(method) {
        Some(told) => told == ServerNotification::Message,
        None => !method.starts_with("notifications/tasks"),
    }
}

/// What a message is.
pub(super) fn kind(body: &[u8]) -> Result<Kind, Failure> {
    let message = envelope::read(body).map_err(|_| Failure::NotMessage)?;
    let params = match &message {
        Message::Request(request) => request.params,
        Message::Notification(notification) => notification.params,
        Message::Response(_) => None,
    };
    let params = Params::read(params).map_err(|_| Failure::NotMessage)?;
    kind_of(body, &message, &params)
}

/// What a message is that was read out of this body.
fn kind_of(body: &[u8], message: &Message<'_>, params: &Params<'_>) -> Result<Kind, Failure> {
    Ok(match message {
        Message::Request(request) => Kind::Request(asked(body, request, params)?),
        Message::Notification(notification) => match NotificationMethod::parse(&notification.method) {
            Some(NotificationMethod::Cancelled) => {
                let id = params.request_id();
                Kind::Cancelled(id.and_then(|id| Some((Key::read(id)?, span(body, id)))))
            }
            Some(NotificationMethod::Initialized) => Kind::Initialized,
            Some(NotificationMethod::Progress) => Kind::Progress(params.reported_token().and_then(Key::read)),
            Some(NotificationMethod::RootsListChanged) => Kind::RootsChanged,
            Some(NotificationMethod::TasksStatus) | None => Kind::Other,
        },
        Message::Response(response) => {
            Kind::Response(response.id.and_then(|id| Some((Key::of(&id)?, span(body, id.as_json())))))
        }
    })
}

/// What a request of a session is.
fn asked(body: &[u8], request: &Request<'_>, params: &Params<'_>) -> Result<Asked, Failure> {
    let uri = || params.uri().unwrap_or_default().to_owned();
    let about = match Method::parse(&request.method) {
        Some(Method::Initialize) => About::Handshake,
        Some(Method::LoggingSetLevel) => {
            About::Level(params.level().and_then(|level| serde_json::from_str(level).ok()))
        }
        Some(Method::ResourcesSubscribe) => About::Subscribe(uri()),
        Some(Method::ResourcesUnsubscribe) => About::Unsubscribe(uri()),
        Some(Method::ToolsCall) if params.wants_task() => About::Task,
        method => other(method),
    };
    asked_about(body, request, params, about)
}

/// What a request is that stands alone.
pub(super) fn asked_alone(body: &[u8], request: &Request<'_>) -> Result<Asked, Failure> {
    let params = Params::read(request.params).map_err(|_| Failure::NotMessage)?;
    let about = match Method::of(Revision::V2026_07_28, &request.method) {
        Some(Method::SubscriptionsListen) => About::Listen,
        method => other(method),
    };
    asked_about(body, request, &params, about)
}

fn other(method: Option<Method>) -> About {
    let looks = matches!(
        method,
        Some(
            Method::Ping
                | Method::ServerDiscover
                | Method::ToolsList
                | Method::PromptsList
                | Method::ResourcesList
                | Method::ResourcesTemplatesList
                | Method::CompletionComplete
                | Method::TasksList
                | Method::TasksGet
        )
    );
    if looks { About::Look } else { About::Other }
}

fn asked_about(
    body: &[u8],
    request: &Request<'_>,
    params: &Params<'_>,
    about: About,
) -> Result<Asked, Failure> {
    let token = params.wanted_token().map_err(|_| Failure::NotMessage)?;
    if token.is_some() && params.kept_token().is_none() {
        return Err(Failure::LongToken);
    }
    let id = Key::of(&request.id).ok_or(Failure::NotMessage)?;
    let at = span(body, request.id.as_json());
    Ok(Asked { id, at, token: token.map(|token| span(body, token)), about })
}

/// Where a part is that was read out of a message without being copied.
pub(super) fn span(message: &[u8], part: &str) -> Span {
    let start = part.as_ptr().addr().saturating_sub(message.as_ptr().addr());
    start..start + part.len()
}

/// The text of a part.
pub(super) fn text(message: &[u8], at: &Span) -> String {
    message.get(at.clone()).map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default()
}

/// Writes a message with other parts in it.
pub(super) fn write(message: &[u8], mut edits: [Option<(&Span, &str)>; 2], out: &mut BytesMut) {
    if let [Some((first, _)), Some((second, _))] = edits
        && second.start < first.start
    {
        edits.swap(0, 1);
    }
    let mut from = 0;
    for (at, part) in edits.into_iter().flatten() {
        out.put_slice(message.get(from..at.start).unwrap_or_default());
        out.put_slice(part.as_bytes());
        from = at.end;
    }
    out.put_slice(message.get(from..).unwrap_or_default());
}

/// The same, as a line. Strings in JSON hold no line ends, so those that are there are white space.
pub(super) fn write_line(message: &[u8], edits: [Option<(&Span, &str)>; 2], out: &mut BytesMut) {
    out.reserve(message.len() + 64);
    let mut at = out.len();
    write(message, edits, out);
    while let Some(found) = memchr2(b'\n', b'\r', &out[at..]) {
        out[at + found] = b' ';
        at += found + 1;
    }
    out.put_u8(b'\n');
}

/// A message with another part in it.
pub(super) fn with(message: &Bytes, at: &Span, part: &str) -> Bytes {
    if message.get(at.clone()) == Some(part.as_bytes()) {
        return message.clone();
    }
    let mut out = BytesMut::with_capacity(message.len() + part.len());
    write(message, [Some((at, part)), None], &mut out);
    out.freeze()
}

/// `notifications/cancelled` for a call of this number.
pub(super) fn cancelled(number: u64, reason: &'static str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\
         \"params\":{{\"requestId\":{number},\"reason\":\"{reason}\"}}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the last such part is.
    fn part(body: &str, part: &str) -> Span {
        let start = body.rfind(part).unwrap();
        start..start + part.len()
    }

    #[test]
    fn messages_are_known_by_what_matters_on_the_way() {
        let text = |text: &str| Key::Text(text.to_owned());
        for (params, key, id, token, about) in [
            ("", Key::Number(1), "1", None, About::Other),
            (
                r#","params":{"_meta":{"progressToken":7}}"#,
                text("ab"),
                r#""a\u0062""#,
                Some("7"),
                About::Other,
            ),
            (
                r#","params":{"_meta":{"progressToken":"t"}}"#,
                text("9"),
                r#""9""#,
                Some(r#""t""#),
                About::Other,
            ),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"{params}}}"#);
            let (at, token) = (part(&body, id), token.map(|token| part(&body, token)));
            let expected = Kind::Request(Asked { id: key, at, token, about });
            assert_eq!(kind(body.as_bytes()).unwrap(), expected, "{body}");
        }
        for (method, params, expected) in [
            ("logging/setLevel", r#"{"level":"notice"}"#, About::Level(Some(Level::Notice))),
            ("logging/setLevel", r#"{"level":7}"#, About::Level(None)),
            ("resources/subscribe", r#"{"uri":"a:b"}"#, About::Subscribe("a:b".to_owned())),
            ("resources/unsubscribe", r#"{"uri":"a:b"}"#, About::Unsubscribe("a:b".to_owned())),
            ("initialize", "{}", About::Handshake),
            ("tools/call", r#"{"name":"t","task":{}}"#, About::Task),
            ("tools/call", r#"{"name":"t","task":null}"#, About::Other),
            ("tools/list", "{}", About::Look),
            ("resources/read", r#"{"uri":"a:b"}"#, About::Other),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let Kind::Request(Asked { about, .. }) = kind(body.as_bytes()).unwrap() else { panic!("{body}") };
            assert_eq!(about, expected, "{body}");
        }
        let one = Key::Number(1);
        for (rest, expected) in [
            (
                r#""method":"notifications/cancelled","params":{"requestId":1}}"#,
                Kind::Cancelled(Some((one.clone(), 0..0))),
            ),
            (r#""method":"notifications/cancelled"}"#, Kind::Cancelled(None)),
            (r#""method":"notifications/cancelled","params":{"requestId":1.5}}"#, Kind::Cancelled(None)),
            (
                r#""method":"notifications/progress","params":{"progressToken":1}}"#,
                Kind::Progress(Some(one.clone())),
            ),
            (r#""method":"notifications/roots/list_changed"}"#, Kind::RootsChanged),
            (r#""method":"notifications/other"}"#, Kind::Other),
            (r#""id":1,"result":{}}"#, Kind::Response(Some((one.clone(), 0..0)))),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0",{rest}"#);
            let expected = match expected {
                Kind::Cancelled(Some((key, _))) => Kind::Cancelled(Some((key, part(&body, "1")))),
                Kind::Response(Some((key, _))) => Kind::Response(Some((key, part(&body, "1")))),
                other => other,
            };
            assert_eq!(kind(body.as_bytes()).unwrap(), expected, "{body}");
        }
        let token = "x".repeat(longshore_mcp::params::MAX_TOKEN);
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{{"progressToken":"{token}"}}}}}}"#
        );
        assert!(matches!(kind(long.as_bytes()), Err(Failure::LongToken)));
        // Whoever reads these otherwise would report progress to somebody else.
        for body in [
            "hello",
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"ProgressToken":1}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressToken":1,"progressToken":2}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{},"_META":{"progressToken":2}}}"#,
        ] {
            assert!(kind(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn what_may_be_as_long_as_its_message_is_not_kept_beside_that() {
        for (rest, is_kept) in [
            (r#""id":1,"method":"tools/list"}"#, true),
            (r#""id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}"#, false),
            (r#""id":1,"method":"resources/unsubscribe","params":{"uri":"a:b"}}"#, false),
            (r#""id":1,"result":{}}"#, true),
            (r#""method":"notifications/initialized"}"#, true),
            (r#""method":"notifications/progress","params":{"progressToken":"t"}}"#, false),
            (r#""method":"notifications/cancelled","params":{"requestId":1}}"#, false),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0",{rest}"#);
            let message = envelope::read(body.as_bytes()).unwrap();
            let params = match &message {
                Message::Request(request) => request.params,
                Message::Notification(notification) => notification.params,
                Message::Response(_) => None,
            };
            let params = Params::read(params).unwrap();
            let known = Known::of(&Upstream::Stdio {}, body.as_bytes(), &message, &params);
            assert_eq!(known.is_some(), is_kept, "{body}");
        }
    }

    #[test]
    fn a_message_is_one_line_and_the_same_message() {
        for (body, expected) in
            [("{}", "{}\n"), ("{\r\n\t\"a\":\n\"b\\n\"}\n", "{  \t\"a\": \"b\\n\"} \n"), ("\n\n", "  \n")]
        {
            let mut line = BytesMut::from("before\n");
            write_line(body.as_bytes(), [None, None], &mut line);
            assert_eq!(line, format!("before\n{expected}"), "{body:?}");
        }
    }

    #[test]
    fn only_what_is_replaced_changes() {
        for body in [
            r#"{ "id" : 1, "params":{"_meta":{"progressToken":"t" } },"method":"x","jsonrpc":"2.0"}"#,
            r#"{ "params":{"_meta":{"progressToken":"t" } },"method":"x", "id" : 1,"jsonrpc":"2.0"}"#,
        ] {
            let Kind::Request(Asked { at, token, .. }) = kind(body.as_bytes()).unwrap() else {
                panic!("{body}")
            };
            let mut out = BytesMut::new();
            write_line(body.as_bytes(), [Some((&at, "77")), token.as_ref().map(|at| (at, "88"))], &mut out);
            assert_eq!(out, body.replace("1,", "77,").replace("\"t\"", "88") + "\n");
            let body = Bytes::from(body);
            assert_eq!(with(&body, &at, "\"a\""), body_with(&body, "\"a\""));
            assert_eq!(with(&body, &at, "1"), body);
        }
    }

    fn body_with(body: &Bytes, id: &str) -> String {
        String::from_utf8_lossy(body).replace("1,", &format!("{id},"))
    }
}
