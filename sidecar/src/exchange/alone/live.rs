//! A response that goes on after its head: the body that hyper reads. Dropped, it cancels the request.

use std::future::pending;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use futures::{Stream, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use longshore_mcp::envelope::Id;
use longshore_mcp::meta::SUBSCRIPTION_ID;
use longshore_mcp::revision::Revision;
use longshore_mcp::sse;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until, timeout_at};

use super::Held;
use super::judge::Judge;
use crate::audit::Entry;
use crate::exchange::doubt;
use crate::exchange::events::Source;
use crate::rescue::{self, Kind, Refusal};
use crate::stack::respond::{BrokenOff, Piece};
use crate::stack::standing::Standing;
use crate::upstream::{self, Lease};
use crate::worker::Worker;

/// How long a stream is silent before something is said in it, so that proxies do not take it for dead.
const SILENCE: Duration = Duration::from_secs(15);

/// What the rest of an answer is bounded by.
pub(super) struct Rest {
    pub(super) worker: Rc<Worker>,
    /// When it has to be over, and how long it may take until then.
    pub(super) deadline: Option<(Instant, Duration)>,
    /// Without a deadline: what it was permitted for.
    pub(super) standing: Option<Standing>,
    pub(super) _held: Held,
}

/// What can happen to an answer.
enum Next {
    Data(Bytes),
    Failed(Refusal),
    Draining,
    /// There is another configuration.
    Configured,
    Silence,
}

/// The audit line of a request whose answer has begun. A client that goes away before its end has cancelled it.
struct Line(Option<Entry>);

/// Events that are still coming.
pub(super) struct Live {
    rest: Rest,
    judge: Judge,
    /// None when nothing more comes.
    source: Option<Source>,
    /// What can be sent now.
    ready: Bytes,
    /// When something was sent last.
    said: Instant,
    draining: watch::Receiver<bool>,
    configured: watch::Receiver<u64>,
    line: Line,
}

impl Rest {
    fn timed_out(&self) -> Refusal {
        let limit = self.deadline.map(|(_, limit)| limit).unwrap_or_default();
        Refusal::ServerTimedOut { seconds: limit.as_secs_f64() }
    }
}

impl Live {
    pub(super) fn new(rest: Rest, judge: Judge, source: Source, start: Bytes, entry: Entry) -> Self {
        let shared = &rest.worker.shared;
        let (draining, configured) = (shared.draining.subscribe(), shared.config_changed.subscribe());
        let (said, line) = (Instant::now(), Line(Some(entry)));
        Self { rest, judge, source: Some(source), ready: start, said, draining, configured, line }
    }

    /// As a body.
    pub(super) fn stream(self) -> Pin<Box<dyn Stream<Item = Piece>>> {
        Box::pin(stream::unfold(self, async |mut live| live.next().await.map(|piece| (Ok(piece), live))))
    }

    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            match self.happens().await? {
                Next::Data(data) => self.take(&data),
                Next::Failed(refusal) => self.fail(&refusal),
                Next::Draining => self.conclude(),
                Next::Configured => self.review(),
                Next::Silence => self.ready = Bytes::from_static(sse::KEEP_ALIVE.as_bytes()),
            }
        }
        self.said = Instant::now();
        Some(std::mem::take(&mut self.ready))
    }

    /// Waits for what happens next. None: nothing more does.
    async fn happens(&mut self) -> Option<Next> {
        let source = self.source.as_mut()?;
        let (deadline, listens) = (self.rest.deadline, self.rest.standing.is_some());
        let over = async {
            match deadline {
                Some((deadline, _)) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        Some(tokio::select! {
            biased;
            data = source.next() => match data {
                Ok(Some(data)) => Next::Data(data),
                // Only the answer ends it, and there is nothing to come back to.
                Ok(None) => Next::Failed(Refusal::ServerLost),
                Err(refusal) => Next::Failed(refusal),
            },
            () = over => Next::Failed(self.rest.timed_out()),
            _ = self.draining.wait_for(|draining| *draining), if listens => Next::Draining,
            Ok(()) = self.configured.changed(), if listens => Next::Configured,
            () = sleep_until(self.said + SILENCE) => Next::Silence,
        })
    }

    /// Passes on what came.
    fn take(&mut self, data: &[u8]) {
        let Some(source) = &mut self.source else { return };
        let mut out = Vec::new();
        match self.judge.read(source, data, &mut out) {
            Ok(None) => self.ready = out.into(),
            Ok(Some(code)) => {
                self.ready = out.into();
                self.line.end(None, code);
                if let Some(source) = self.source.take() {
                    source.finish();
                }
            }
            Err(refusal) => self.fail(&refusal),
        }
    }

    /// Ends it with an error.
    fn fail(&mut self, refusal: &Refusal) {
        self.source = None;
        doubt(&self.rest.worker.shared, refusal);
        let id = Some(Id::from_json(self.judge.id()));
        let rescued = rescue::rescue(refusal, id, Kind::Request, Revision::V2026_07_28);
        self.line.end(Some(refusal.reason()), Some(rescued.code));
        self.ready = sse::message(rescued.json.as_bytes()).into();
    }

    /// Ends a subscription that may not go on under the configuration of now.
    fn review(&mut self) {
        let holds = match (&mut self.rest.standing, self.rest.worker.shared.config().as_ref()) {
            (Some(standing), Some(snapshot)) => standing.holds(snapshot),
            _ => false,
        };
        if !holds {
            self.conclude();
        }
    }

    /// Ends a subscription in an orderly way: its client makes another, which leads to another replica.
    fn conclude(&mut self) {
        self.source = None;
        self.line.end(None, None);
        let id = self.judge.id();
        let result = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}}}"#
        );
        self.ready = sse::message(result.as_bytes()).into();
    }
}

/// A message that comes in pieces, as a body.
pub(super) fn message(
    rest: Rest,
    start: Bytes,
    body: upstream::Body,
    lease: Lease,
    entry: Entry,
) -> Pin<Box<dyn Stream<Item = Piece>>> {
    let state = (rest, Some(start), Some((body, lease)), Line(Some(entry)));
    Box::pin(stream::unfold(state, async |(rest, start, from, mut line)| {
        if let Some(start) = start {
            return Some((Ok(start), (rest, None, from, line)));
        }
        let (mut body, lease) = from?;
        let deadline = rest.deadline.map_or_else(Instant::now, |(deadline, _)| deadline);
        loop {
            let failed = match timeout_at(deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => return Some((Ok(data), (rest, None, Some((body, lease)), line))),
                    Err(_) => continue,
                },
                Ok(None) => {
                    lease.give_back();
                    line.end(None, None);
                    return None;
                }
                Ok(Some(Err(broken))) => Refusal::from(broken).reason(),
                Err(_) => rest.timed_out().reason(),
            };
            // Half a message cannot be turned into an error. The connection breaks, and the client sees that.
            line.end(Some(failed), None);
            return Some((Err(BrokenOff), (rest, None, None, line)));
        }
    }))
}

// === impl Line ===

impl Line {
    /// The answer is over, well or with a reason.
    fn end(&mut self, reason: Option<&'static str>, code: Option<i64>) {
        let Some(mut entry) = self.0.take() else { return };
        if let Some(reason) = reason {
            entry.reason(reason);
        }
        entry.answered(StatusCode::OK.as_u16(), code);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.end(Some(Refusal::Cancelled.reason()), None);
    }
}
