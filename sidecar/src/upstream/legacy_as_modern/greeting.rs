//! What a server says of itself in the handshake of a session.

use longshore_mcp::envelope::{self, Message, Outcome};
use longshore_mcp::listen::Offers;
use longshore_mcp::object::{self, Object};
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::{error, lossy_json};

use super::failure::Failure as Unusable;
use crate::held::Coming;
use crate::upstream::source::Source;
use crate::upstream::{Answer, EDITABLE, Failure, Form};

/// The most that is kept of each thing that the server says of itself, in bytes. There may be thousands of sessions, and who
/// the server is stands in each of its results.
const MAX_SAID: usize = 64 * 1024;

/// What the server says of itself in the handshake.
pub(super) struct Greeting {
    /// All of it, but for what is too long: the result, as JSON.
    pub(super) text: String,
    /// The revision that it has chosen.
    pub(super) revision: Revision,
    /// Who it says that it is, as JSON.
    pub(super) info: Option<String>,
    /// What it tells of on its own account.
    pub(super) offers: Offers,
    /// Whether it knows levels of log messages.
    pub(super) logs: bool,
}

impl Greeting {
    /// Waits for the answer to the handshake that had this id.
    pub(super) async fn of(answer: Answer, coming: Coming, first: &str) -> Result<Self, Failure> {
        Self::read(result(answer, coming, first).await?)
    }

    fn read(text: String) -> Result<Self, Failure> {
        let result = Object::read(&text).map_err(|_| Unusable::Nonsense)?;
        let version = result.string("protocolVersion").ok_or(Unusable::Nonsense)?;
        let revision = Revision::parse(&version).filter(|revision| revision.era() == Era::Legacy);
        let revision = revision.ok_or_else(|| Unusable::Revision(version.as_str().to_owned()))?;
        let capabilities = result.original("capabilities").unwrap_or("{}");
        let offers = Offers::read(capabilities);
        let logs =
            Object::read(capabilities).is_ok_and(|capabilities| capabilities.present("logging").is_some());
        let info = result.original("serverInfo");
        let info = info.filter(|info| info.starts_with('{') && info.len() <= MAX_SAID).map(str::to_owned);
        let brief = (text.len() > MAX_SAID).then(|| brief(&result));
        Ok(Self { revision, info, offers, logs, text: brief.unwrap_or(text) })
    }
}

/// What clients are told of a greeting, as far as it is not too long.
fn brief(greeting: &Object<'_>) -> String {
    let mut brief = Object::empty();
    for name in ["protocolVersion", "capabilities", "serverInfo", "instructions"] {
        if let Some(said) = greeting.original(name).filter(|said| said.len() <= MAX_SAID) {
            brief.set(name, said.to_owned());
        }
    }
    brief.write()
}

/// The result of the handshake.
async fn result(answer: Answer, coming: Coming, first: &str) -> Result<String, Failure> {
    let Answer { status, body, lease, .. } = answer;
    if !status.is_success() {
        return Err(Unusable::Status(status.as_u16()).into());
    }
    let form = body.form();
    let mut source = Source::new(body, lease, coming);
    let message = if form == Form::Json {
        source.whole(EDITABLE).await.map_err(Unusable::from)?
    } else if form == Form::Events {
        let mut found = None;
        while found.is_none() {
            let messages = source.messages().await.map_err(Unusable::from)?;
            // Nothing else can be said before the handshake is done.
            found = messages
                .ok_or(Unusable::Gone)?
                .into_iter()
                .find(|message| matches!(envelope::read_servers(message), Ok(Message::Response(_))));
        }
        found.ok_or(Unusable::Nonsense)?
    } else {
        return Err(Unusable::Nonsense.into());
    };
    // It may leave a stream open, or break it off.
    source.into_tail().leave();
    match envelope::read_servers(&message) {
        Ok(Message::Response(response)) if response.answers(first) => {
            match response.outcome {
                Outcome::Result(result) => Ok(result.get().to_owned()),
                // What keeps its client out is in the server's own words.
                Outcome::Error(error) => {
                    let code = error::code_of(error.get()).ok_or(Unusable::Nonsense)?;
                    let words = object::at(error.get(), &["message"]).and_then(lossy_json::text);
                    Err(Unusable::Refused { code, words: words.unwrap_or_default() }.into())
                }
            }
        }
        _ => Err(Unusable::Nonsense.into()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::task::LocalSet;
    use tokio::time::{Duration, timeout};

    use super::*;
    use crate::upstream::Body;
    use crate::upstream::waiting::channel;

    #[test]
    fn what_is_too_long_of_what_a_server_says_of_itself_is_not_kept() {
        let long = format!("\"{}\"", "x".repeat(MAX_SAID));
        let said = |info: &str, instructions: &str, more: &str| {
            let said = r#""protocolVersion":"2025-11-25","capabilities":{"logging":{}}"#;
            format!("{{{said}{info}{instructions}{more}}}")
        };
        let (info, instructions) = (r#","serverInfo":{"name":"n"}"#, r#","instructions":"i""#);
        let (long_info, other) = (format!(r#","serverInfo":{{"name":{long}}}"#), format!(r#","x":{long}"#));
        let long_instructions = format!(r#","instructions":{long}"#);
        let short = said(info, instructions, r#","x":1"#);
        for (text, kept, has_info) in [
            (short.clone(), short, true),
            (said(info, instructions, &other), said(info, instructions, ""), true),
            (said(info, &long_instructions, ""), said(info, "", ""), true),
            (said(&long_info, instructions, ""), said("", instructions, ""), false),
        ] {
            let greeting = Greeting::read(text).ok().unwrap();
            assert_eq!((greeting.text, greeting.info.is_some()), (kept, has_info));
            assert!(greeting.logs);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_leaves_its_stream_open_has_answered_all_the_same() {
        let result = r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}"#;
        let event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}\n\n");
        let (to, from) = channel(1);
        assert!(to.send(Ok(Bytes::from(event))).await.is_ok());
        let greeting = Greeting::of(Answer::of(Body::LegacyAsModern(from)), Coming::new(None), "1");
        let greeting = LocalSet::new().run_until(timeout(Duration::from_secs(1), greeting)).await;
        assert_eq!(greeting.expect("in time").ok().unwrap().text, result);
        drop(to);
    }
}
