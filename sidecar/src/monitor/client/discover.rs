//! Asking a server what it speaks, in the words that only the revisions without a handshake have.

use http::HeaderValue;
use longshore_mcp::method::Method as McpMethod;
use longshore_mcp::probe::{self, Verdict};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::handshake;
use longshore_mcp::translate::requests::Client;
use longshore_sidecar_config::Upstream;
use tokio::time::{Duration, timeout};

use super::wire::collect;
use super::{CallError, MAX_ANSWER, Server, quote};
use crate::headers::METHOD;
use crate::upstream::letter::own_info;
use crate::upstream::{Answer, Form, Opener, Post};

/// The most names of revisions that are looked at.
const MAX_NAMES: usize = 32;
/// The newest revision without a handshake.
const NEWEST: Revision = Revision::V2026_07_28;
/// The id of the question.
const ID: &str = "1";

/// What a server said when it was asked what it speaks.
#[derive(Debug)]
pub(in crate::monitor) struct Discovery {
    pub(in crate::monitor) verdict: Verdict,
    /// It said nothing in time, over stdio: what is taken for one era may be slowness.
    pub(in crate::monitor) is_silence: bool,
    /// What it says that it speaks, in its words.
    names: Vec<String>,
}

impl Discovery {
    pub(in crate::monitor) fn of(verdict: Verdict, message: Option<&str>) -> Self {
        let mut names = message.map(probe::names).unwrap_or_default();
        names.truncate(MAX_NAMES);
        Self { verdict, is_silence: false, names }
    }

    /// The revisions among them that are known here too, the newest first.
    pub(in crate::monitor) fn known(&self) -> Vec<Revision> {
        let mut known: Vec<_> = self.names.iter().filter_map(|name| Revision::parse(name)).collect();
        known.sort_unstable_by(|one, other| other.cmp(one));
        known.dedup();
        known
    }

    /// That it is not what is to be spoken.
    pub(in crate::monitor) fn other_than(&self, pin: Revision) -> CallError {
        let speaks = if self.names.is_empty() {
            "with a handshake (2025-11-25 or older)".to_owned()
        } else {
            quote(&self.names.join(", "))
        };
        CallError::Pinned { pin, speaks }
    }

    /// That nothing of it is known here.
    pub(in crate::monitor) fn stranger(&self) -> CallError {
        CallError::Revision(quote(&self.names.join(", ")))
    }
}

impl Server {
    /// Asks the server itself, whatever is known of it so far. Over stdio it gets a process for this question alone:
    /// one that has shaken hands may know nothing else any more, and one that does not understand the question may
    /// end, or say nothing to anybody from then on.
    pub(in crate::monitor) async fn discover(&self, patience: Duration) -> Discovery {
        if matches!(self.upstream(), Upstream::Sse { .. }) {
            // What came after sessions has another transport.
            return Discovery::of(Verdict::Legacy, None);
        }
        let over_stdio = matches!(self.upstream(), Upstream::Stdio {});
        match timeout(patience, self.ask_what_it_speaks()).await {
            Ok(Ok(discovery)) => discovery,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the server does not say what it speaks");
                let died = matches!(&error, CallError::Process(gone) if !gone.why.concerns_all());
                Discovery::of(if died { Verdict::Legacy } else { Verdict::Nothing }, None)
            }
            Err(_) => {
                tracing::debug!("the server does not say what it speaks in time");
                let verdict = if over_stdio { Verdict::Legacy } else { Verdict::Nothing };
                Discovery { is_silence: over_stdio, ..Discovery::of(verdict, None) }
            }
        }
    }

    async fn ask_what_it_speaks(&self) -> Result<Discovery, CallError> {
        let info = own_info().to_string();
        let client = Client { capabilities: "{}", info: Some(&info), level: None };
        let body = handshake::discover(ID, NEWEST, &client);
        let method = HeaderValue::from_static(McpMethod::ServerDiscover.as_str());
        let repeated = vec![(METHOD, method)];
        let post = Post { revision: Some(NEWEST), repeated, ..Post::of(body) };
        // Its end is the end of the process, if there is one.
        let (Answer { status, also, body, lease }, _hold) =
            self.pool.open_itself(self.upstream(), Opener::Own, post).await?;
        // There are servers that begin a session for whatever comes without one, and refuse it only then.
        let begun = also.session().filter(|id| Some(id) != self.session.as_ref());
        let _unwanted = begun.and_then(|id| self.pool.unwanted(self.upstream(), id));
        let message = if body.form() == Form::Events {
            self.first_answer(body, ID, MAX_ANSWER).await?
        } else {
            let message = collect(body, MAX_ANSWER).await?;
            lease.give_back();
            message
        };
        let text = std::str::from_utf8(&message).ok();
        let verdict = match self.upstream() {
            Upstream::Stdio {} => probe::over_stdio(text),
            Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => probe::over_http(status.as_u16(), text),
        };
        Ok(Discovery::of(verdict, text))
    }
}

/// Whether a server that answers a handshake so may be one that has none.
pub(in crate::monitor) fn may_have_no_handshake(error: &CallError) -> bool {
    match error {
        CallError::Rpc { status, .. } | CallError::Status { status, .. } => {
            matches!(status, 200..=499) && !matches!(status, 401 | 403 | 407 | 408 | 425 | 429)
        }
        CallError::NotMcp { .. } | CallError::Revision(_) => true,
        CallError::OlderToo(error) => may_have_no_handshake(error),
        _ => false,
    }
}
