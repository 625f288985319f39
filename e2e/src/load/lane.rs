//! One lane: a connection, and one call after the other on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Builder;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::json;

use super::answer::{self, Label, Trouble};
use super::connection::{Answer, Connection};
use super::report::{Failure, Kind, Tally};
use super::session::{Id, Session};
use super::{OpenError, Shared, Slow};
use crate::mcp_client::REVISION;

/// How long a lane waits after a failure, so that a server that refuses at once is not asked in a loop.
const AFTER_FAILURE: Duration = Duration::from_millis(20);
/// When it asks again for a stream that ended before the answer: what the sidecar says (`retry`).
const RETRY: Duration = Duration::from_secs(1);
/// How often it does.
const MOST_RETRIES: usize = 10;

pub(super) struct Lane {
    shared: Arc<Shared>,
    number: usize,
    connection: Connection,
    tally: Tally,
    sequence: u64,
    random: u64,
}

impl Lane {
    pub(super) fn new(shared: Arc<Shared>, number: usize) -> Self {
        // Each lane has its own order of sessions, and the same in each run.
        let random = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            shared,
            number,
            connection: Connection::default(),
            tally: Tally::default(),
            sequence: 0,
            random,
        }
    }

    /// Opens this lane's share of the sessions, and calls once in each, so that it is known who serves it.
    pub(super) async fn open_sessions(&mut self) -> Result<(), OpenError> {
        let shared = self.shared.clone();
        for session in shared.sessions.iter().skip(self.number).step_by(shared.plan.lanes) {
            if let Err((kind, message)) = self.open(session).await {
                let failure = format!("{kind:?}: {message}");
                return Err(OpenError { session: session.number, failure });
            }
            if !self.call(session).await {
                let failure = self.tally.failures.last().map(|failure| &failure.message);
                let failure = format!("the first call failed: {}", failure.map_or("", String::as_str));
                return Err(OpenError { session: session.number, failure });
            }
        }
        Ok(())
    }

    /// Calls until the plan is fulfilled.
    pub(super) async fn run(mut self) -> Tally {
        let shared = self.shared.clone();
        let mut last = Instant::now();
        while shared.goes_on() {
            let session = &shared.sessions[self.pick()];
            if self.call(session).await {
                self.tally.longest_gap = self.tally.longest_gap.max(last.elapsed());
                last = Instant::now();
                shared.answered.fetch_add(1, Ordering::Relaxed);
                if !shared.plan.pause.is_zero() {
                    tokio::time::sleep(shared.plan.pause).await;
                }
            } else {
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
        self.tally.longest_gap = self.tally.longest_gap.max(last.elapsed());
        self.tally
    }

    /// Any session: xorshift, which is random enough to mix them.
    fn pick(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 16).unwrap_or_default() % self.shared.sessions.len()
    }

    /// Makes a call in a session. Tells whether it was answered.
    async fn call(&mut self, session: &Session) -> bool {
        let id = match session.id() {
            Some(id) => id,
            None if !self.shared.plan.renew => return false,
            None => match self.renew(session).await {
                Some(id) => id,
                None => return false,
            },
        };
        self.sequence += 1;
        let label = Label { session: session.number, lane: self.number, sequence: self.sequence };
        let number = session.next_id();
        // Not those by which sessions are opened, and not those of all lanes at once.
        let turn = self.sequence + self.number as u64;
        let is_slow = |slow: &Slow| self.sequence > slow.every && turn.is_multiple_of(slow.every);
        let slow = self.shared.plan.slow.filter(is_slow);
        let began = Instant::now();
        let message = message(number, &label, slow.map(|slow| slow.milliseconds));
        let mut answer = self.post(session, Some(&id), message).await;
        let separation = self.shared.plan.separation;
        let mut retries = 0..MOST_RETRIES;
        let outcome = loop {
            let outcome = match answer {
                Ok(answer) => answer::check(&answer, number, &label, session, separation),
                Err((kind, message)) => Err(Trouble::Failed(kind, message)),
            };
            match outcome {
                Err(Trouble::CutShort(last)) if retries.next().is_some() => {
                    tokio::time::sleep(RETRY).await;
                    answer = self.resume(session, &id, &last).await;
                }
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(instance) => {
                session.answered_by(&instance);
                self.tally.answered_in(began.elapsed());
                return true;
            }
            Err(Trouble::Gone) => self.tally.lost += u64::from(session.gone(&id)),
            Err(Trouble::CutShort(last)) => {
                let message = format!("its stream ended again and again, at last after {last}");
                self.fails(session, began, Kind::Nonsense, message);
            }
            Err(Trouble::Failed(kind, message)) => self.fails(session, began, kind, message),
            Err(Trouble::Wrong(what)) => self.tally.note_wrong(what),
        }
        false
    }

    /// Opens a session that is gone, unless somebody else is at it.
    async fn renew(&mut self, session: &Session) -> Option<Id> {
        let _turn = session.opening.lock().await;
        if let Some(id) = session.id() {
            return Some(id);
        }
        let began = Instant::now();
        match self.open(session).await {
            Ok(id) => Some(id),
            Err((kind, message)) => {
                self.fails(session, began, kind, format!("initialize: {message}"));
                None
            }
        }
    }

    async fn open(&mut self, session: &Session) -> Result<Id, (Kind, String)> {
        let number = session.next_id();
        let hello = json!({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": {"name": session.name, "version": "1"},
        }});
        let answer = self.post(session, None, hello.to_string()).await?;
        answer::opened(&answer, number)?;
        let id = answer.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        let id = Id(id.map(Into::into));
        let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned();
        let answer = self.post(session, Some(&id), ready).await?;
        if answer.status != 202 {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            return Err((Kind::Status(answer.status.as_u16()), format!("initialized: {text}")));
        }
        self.tally.opened += 1;
        session.opened(id.clone());
        Ok(id)
    }

    async fn post(
        &mut self,
        session: &Session,
        id: Option<&Id>,
        message: String,
    ) -> Result<Answer, (Kind, String)> {
        let request = self
            .request(session, id)
            .method(Method::POST)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        self.send(request, message).await
    }

    /// Asks for the rest of a stream.
    async fn resume(&mut self, session: &Session, id: &Id, last: &str) -> Result<Answer, (Kind, String)> {
        let request = self
            .request(session, Some(id))
            .header("accept", "text/event-stream")
            .header("last-event-id", last);
        self.send(request, String::new()).await
    }

    /// What all requests of a session say.
    fn request(&self, session: &Session, id: Option<&Id>) -> Builder {
        let plan = &self.shared.plan;
        let mut request = Request::builder().uri(&plan.endpoint.path).header("host", &plan.endpoint.host);
        if let Some(key) = plan.keys.get(session.principal) {
            request = request.header("x-api-key", key);
        }
        if let Some(Id(id)) = id {
            request = request.header("mcp-protocol-version", REVISION);
            if let Some(id) = id {
                request = request.header("mcp-session-id", &**id);
            }
        }
        request
    }

    async fn send(&mut self, request: Builder, body: String) -> Result<Answer, (Kind, String)> {
        let plan = &self.shared.plan;
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| (Kind::Nonsense, error.to_string()))?;
        self.connection.send(&plan.endpoint, plan.per_connection, request, &mut self.tally).await
    }

    fn fails(&mut self, session: &Session, began: Instant, kind: Kind, message: String) {
        let (at, instance) = (self.shared.began.elapsed(), session.seen().last);
        let began = began.saturating_duration_since(self.shared.began);
        self.tally.fails(Failure { began, at, session: session.number, instance, kind, message });
    }
}

/// The call, as JSON. It is short, and made often.
fn message(number: u64, label: &Label, slow: Option<u64>) -> String {
    let Label { session, lane, sequence } = label;
    let (tool, time) = match slow {
        Some(milliseconds) => ("wait", format!(r#","milliseconds":{milliseconds}"#)),
        None => ("echo", String::new()),
    };
    format!(
        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"session":{session},"lane":{lane},"sequence":{sequence}{time}}}}}}}"#
    )
}
