//! Reads an answer, and checks that it is the caller's own.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use serde::Deserialize;

use super::Separation;
use super::connection::Answer;
use super::report::Kind;
use super::session::Session;
use crate::mcp_client::event_stream;

/// What an answer says, if it is none that was hoped for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The session is gone.
    Gone,
    /// Its stream ended before it came, and is to be asked for again after the event that has this id.
    CutShort(String),
    /// An error.
    Failed(Kind, String),
    /// Somebody else's answer.
    Wrong(String),
}

/// What a call says of itself, and gets back.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Label {
    pub(super) session: usize,
    pub(super) lane: usize,
    pub(super) sequence: u64,
}

#[derive(Deserialize)]
struct Message<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<ToolResult<'a>>,
    #[serde(borrow)]
    error: Option<RpcError<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(borrow)]
    structured_content: Option<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    echo: Label,
    #[serde(borrow)]
    who: Option<Cow<'a, str>>,
    #[serde(borrow)]
    instance: Cow<'a, str>,
}

#[derive(Deserialize)]
struct RpcError<'a> {
    code: i64,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

/// Whether the server agreed to a session.
pub(super) fn opened(answer: &Answer, id: u64) -> Result<(), (Kind, String)> {
    match read(answer, |message| message.id == Some(id), |message| message.error.map(RpcError::kind)) {
        Some(None) => Ok(()),
        Some(Some(error)) => Err(error),
        None => Err((Kind::Status(answer.status.as_u16()), text(answer))),
    }
}

/// Which process answered, if the answer is for the call that said `label` of itself.
pub(super) fn check(
    answer: &Answer,
    id: u64,
    label: &Label,
    session: &Session,
    separation: Separation,
) -> Result<String, Trouble> {
    if answer.status == 404 {
        return Err(Trouble::Gone);
    }
    // An error that the sidecar makes may have no id: it has not read the request.
    let mine = |message: &Message<'_>| message.id == Some(id) || message.error.is_some();
    let found = read(answer, mine, |message| {
        if let Some(error) = message.error {
            let (kind, said) = error.kind();
            return Err(Trouble::Failed(kind, said));
        }
        let Some(content) = message.result.and_then(|result| result.structured_content) else {
            return Err(Trouble::Failed(Kind::Nonsense, text(answer)));
        };
        let who = content.who.as_deref().unwrap_or_default();
        if content.echo != *label {
            return Err(Trouble::Wrong(format!("{label:?} got the answer of {:?}", content.echo)));
        }
        if !may_be(who, session, separation) {
            return Err(Trouble::Wrong(format!("{} was taken for {who}", session.name)));
        }
        Ok(content.instance.into_owned())
    });
    found.unwrap_or_else(|| {
        if let Some(last) = last_event(answer) {
            return Err(Trouble::CutShort(last.to_owned()));
        }
        let kind = match answer.status.as_u16() {
            200 => Kind::Nonsense,
            status => Kind::Status(status),
        };
        Err(Trouble::Failed(kind, text(answer)))
    })
}

/// Whether a session may meet this name. A sidecar that began the server's session again has one of its own.
fn may_be(who: &str, session: &Session, separation: Separation) -> bool {
    let mine = match separation {
        Separation::Session => who == session.name,
        Separation::Principal => who.starts_with(&Session::prefix(session.principal)),
        Separation::Shared => true,
    };
    mine || !who.starts_with("load-")
}

/// The id of the last event that has one, if an answer comes as events.
fn last_event(answer: &Answer) -> Option<&str> {
    let events = str::from_utf8(&answer.body).ok().filter(|_| is_stream(answer))?;
    events.lines().rev().find_map(|line| line.strip_prefix("id: "))
}

/// Whether an answer comes as events.
fn is_stream(answer: &Answer) -> bool {
    answer.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event"))
}

/// Finds a message in an answer, be it JSON or an event stream, and looks at it.
fn read<T>(
    answer: &Answer,
    which: impl Fn(&Message<'_>) -> bool,
    look: impl FnOnce(Message<'_>) -> T,
) -> Option<T> {
    if !is_stream(answer) {
        return serde_json::from_slice(&answer.body).ok().filter(which).map(look);
    }
    let events = event_stream::data(str::from_utf8(&answer.body).ok()?);
    let mut messages = events.iter().filter_map(|data| serde_json::from_str::<Message<'_>>(data).ok());
    messages.find(which).map(look)
}

fn text(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    format!("{}: {}", answer.status, text.chars().take(300).collect::<String>())
}

impl RpcError<'_> {
    fn kind(self) -> (Kind, String) {
        (Kind::Rpc(self.code), self.message.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::{Label, Trouble, check};
    use crate::load::Separation;
    use crate::load::connection::Answer;
    use crate::load::report::Kind;
    use crate::load::session::Session;

    fn judge(status: u16, body: &str, separation: Separation) -> Result<String, Trouble> {
        judge_with(HeaderMap::new(), status, body, separation)
    }

    fn judge_with(
        headers: HeaderMap,
        status: u16,
        body: &str,
        separation: Separation,
    ) -> Result<String, Trouble> {
        let status = StatusCode::from_u16(status).expect("a status");
        let answer = Answer { status, headers, body: Bytes::copy_from_slice(body.as_bytes()) };
        check(&answer, 5, &Label { session: 7, lane: 2, sequence: 9 }, &Session::new(7, 3), separation)
    }

    fn answer(session: usize, who: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":5,"result":{{"content":[],"structuredContent":{{"echo":{{"session":{session},"lane":2,"sequence":9}},"who":"{who}","session":1,"instance":"i"}}}}}}"#
        )
    }

    #[test]
    fn an_answer_that_is_somebody_elses_is_noticed() {
        use Separation::{Principal, Shared};
        let each = Separation::Session;
        let table = [
            (answer(7, "load-3-7"), [true, true, true]),
            (answer(7, "longshore"), [true, true, true]),
            (answer(7, "load-3-8"), [false, true, true]),
            (answer(7, "load-4-7"), [false, false, true]),
            (answer(8, "load-3-7"), [false, false, false]),
        ];
        for (body, fine) in table {
            let judged = [each, Principal, Shared].map(|separation| judge(200, &body, separation));
            assert_eq!(judged.each_ref().map(Result::is_ok), fine, "{body}: {judged:?}");
            assert!(judged.iter().all(|it| matches!(it, Ok(_) | Err(Trouble::Wrong(_)))), "{judged:?}");
        }
    }

    #[test]
    fn a_stream_that_ends_before_the_answer_goes_on_after_its_last_event() {
        let begun = "id: a-1-0\ndata: \n\nretry: 1000\n\n";
        let whole = format!("{begun}id: a-1-1\ndata: {}\n\n", answer(7, "load-3-7"));
        let cut = Err(Trouble::CutShort("a-1-0".into()));
        for (body, expected) in [(begun, cut), (&whole, Ok("i".into()))] {
            let headers =
                HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))]);
            assert_eq!(judge_with(headers, 200, body, Separation::Session), expected, "{body}");
        }
    }

    #[test]
    fn every_other_answer_is_a_failure_of_its_kind() {
        let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"not now"}}"#;
        let table = [
            (503, error, Trouble::Failed(Kind::Rpc(-32000), "not now".into())),
            (404, error, Trouble::Gone),
            (502, "", Trouble::Failed(Kind::Status(502), "502 Bad Gateway: ".into())),
            (200, "{}", Trouble::Failed(Kind::Nonsense, "200 OK: {}".into())),
        ];
        for (status, body, expected) in table {
            assert_eq!(judge(status, body, Separation::Session), Err(expected));
        }
    }
}
