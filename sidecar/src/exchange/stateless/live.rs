//! A response that goes on after its head: the body that hyper reads. Dropped, it cancels the request.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::future::OptionFuture;
use futures::{Stream, stream};
use http::StatusCode;
use http_body_util::BodyExt;
use longshore_mcp::envelope::Id;
use longshore_mcp::listen::{self, Filter};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant, sleep_until};

use super::Held;
use super::judge::Judge;
use super::passing::Passing;
use crate::audit::Entry;
use crate::exchange::deadline::Deadline;
use crate::exchange::doubt;
use crate::exchange::listen::offers;
use crate::refusal::{self, Kind, Refusal};
use crate::stack::standing::Standing;
use crate::streamed_body::{BrokenOff, Piece};
use crate::upstream::source::Source;
use crate::upstream::{self, Lease};
use crate::worker::Worker;

/// How long a stream is silent before something is said in it, so that proxies do not take it for dead.
const SILENCE: Duration = Duration::from_secs(15);

/// How much later than its deadline an answer ends that nobody reads. Whoever reads hears more of it, and comes first.
const GRACE: Duration = Duration::from_millis(100);

/// What the rest of an answer is bounded by.
pub(super) struct Rest {
    pub(super) worker: Rc<Worker>,
    pub(super) until: Until,
    /// Until all has come that is to be passed on: its client may take its time to read it.
    pub(super) held: Option<Held>,
}

/// What ends an answer, if nothing else does.
pub(super) enum Until {
    Deadline(Deadline),
    /// A subscription ends with what it was permitted for.
    Standing(Standing),
}

/// What can happen to an answer.
enum Next {
    Data(Bytes),
    Failed(Refusal),
    SentAway,
    /// There is another configuration.
    Configured,
    Silence,
}

/// The audit line of a request whose answer has begun. A client that goes away before its end has cancelled it.
struct Line(Option<Entry>);

/// The same for both who may end the answer.
type SharedLine = Rc<RefCell<Line>>;

/// An answer that is over at its deadline even if nobody reads it: a client that takes a byte now and then must not
/// keep the server busy.
struct Bounded {
    state: Rc<RefCell<State>>,
    timer: AbortHandle,
}

/// What is left of an answer.
struct State {
    pieces: Pieces,
    /// Who waits for the next one.
    reader: Option<Waker>,
}

/// An answer, as it comes.
type Pieces = Pin<Box<dyn Stream<Item = Piece>>>;

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
    /// Nothing of the server's has passed.
    is_untold: bool,
    sent_away: watch::Receiver<bool>,
    configured: watch::Receiver<u64>,
    line: SharedLine,
}

impl Until {
    fn deadline(&self) -> Option<Deadline> {
        match self {
            Self::Deadline(deadline) => Some(*deadline),
            Self::Standing(_) => None,
        }
    }
}

impl Live {
    pub(super) fn new(rest: Rest, judge: Judge, source: Source, start: Bytes, entry: Entry) -> Self {
        let shared = &rest.worker.shared;
        let (sent_away, mut configured) = (shared.streams.sent_away(), shared.config_changed.subscribe());
        // There may be another since the request was permitted.
        configured.mark_changed();
        let (said, is_untold, line) = (Instant::now(), start.is_empty(), Line::new(entry));
        Self { rest, judge, source: Some(source), ready: start, said, is_untold, sent_away, configured, line }
    }

    /// As a body.
    pub(super) fn stream(self) -> Pieces {
        let (deadline, line) = (self.rest.until.deadline(), self.line.clone());
        let last_words = deadline.map(|deadline| Ok(words(&deadline.passed(), self.judge.id()).0));
        let pieces =
            Box::pin(stream::unfold(self, async |mut live| live.next().await.map(|piece| (Ok(piece), live))));
        match deadline.zip(last_words) {
            Some((deadline, last_words)) => Bounded::stream(pieces, deadline, line, last_words),
            None => pieces,
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(source) = &mut self.source {
            source.held_up(self.said.elapsed());
        }
        while self.ready.is_empty() {
            match self.happens().await? {
                Next::Data(data) => self.take(&data).await,
                Next::Failed(refusal) => self.fail(&refusal),
                Next::SentAway => self.conclude(),
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
        let deadline = self.rest.until.deadline();
        let listens = deadline.is_none();
        let over = OptionFuture::from(deadline.map(async |deadline| {
            sleep_until(deadline.at()).await;
            deadline.passed()
        }));
        Some(tokio::select! {
            biased;
            // A server that always has something to say is no reason to be late.
            Some(late) = over => Next::Failed(late),
            // Nor to go on when it may not.
            Ok(()) = self.configured.changed(), if listens => Next::Configured,
            data = source.next() => match data {
                Ok(Some(data)) => Next::Data(data),
                // Only the answer ends it, and there is nothing to come back to.
                Ok(None) => Next::Failed(Refusal::ServerLost),
                Err(unread) => Next::Failed(unread.into()),
            },
            _ = self.sent_away.wait_for(|sent_away| *sent_away), if listens => Next::SentAway,
            () = sleep_until(self.said + SILENCE) => Next::Silence,
        })
    }

    /// Passes on what came.
    async fn take(&mut self, data: &Bytes) {
        let Some(source) = &mut self.source else { return };
        let mut out = Vec::new();
        let mut read = self.judge.read(source, data, &mut out);
        let mut share = self.rest.worker.shared.held.nothing(self.judge.principal());
        if read.is_ok() && !share.reach_in_time(out.len()).await {
            read = Err(Refusal::AnswerNotHeld);
        }
        match read {
            Ok(code) => {
                if self.is_untold && !out.is_empty() {
                    self.is_untold = false;
                    // Of what changed before it was acknowledged it hears now.
                    self.configured.mark_changed();
                }
                self.ready = share.keep(out.into());
                source.settle();
                if let Some(code) = code {
                    self.line.borrow_mut().end(None, code);
                    self.rest.held = None;
                    if let Some(source) = self.source.take() {
                        source.into_tail().leave();
                    }
                }
            }
            Err(refusal) => self.fail(&refusal),
        }
    }

    /// Ends it with an error.
    fn fail(&mut self, refusal: &Refusal) {
        (self.source, self.rest.held) = (None, None);
        doubt(&self.rest.worker.shared, refusal);
        let (words, code) = words(refusal, self.judge.id());
        self.line.borrow_mut().end(Some(refusal.reason()), Some(code));
        self.ready = words;
    }

    /// Ends a subscription that may not go on under the configuration of now, and tells one that may if its lists are others
    /// by it.
    fn review(&mut self) {
        let shared = &self.rest.worker.shared;
        let config = shared.config();
        let (Until::Standing(standing), Some(snapshot)) = (&mut self.rest.until, config.as_ref()) else {
            return self.conclude();
        };
        if !standing.holds(snapshot) {
            return self.conclude();
        }
        // Before it is acknowledged it hears nothing else.
        if !self.is_untold && self.judge.goes_by(snapshot) {
            let lists = standing.lists().honoured(offers(shared));
            let mut words = Vec::new();
            for message in lists.missed_in(self.judge.id()) {
                sse::write_message(&mut words, message.as_bytes());
            }
            self.ready = words.into();
        }
    }

    /// Ends a subscription in an orderly way: its client makes another, which leads to another replica. It is acknowledged
    /// before, be it for nothing: that is what clients wait for first.
    fn conclude(&mut self) {
        (self.source, self.rest.held) = (None, None);
        self.line.borrow_mut().end(None, None);
        let id = self.judge.id();
        let mut words = Vec::new();
        if self.is_untold {
            sse::write_message(&mut words, listen::acknowledged(id, &Filter::default()).as_bytes());
        }
        let info = self.rest.worker.shared.view.borrow().server_info();
        sse::write_message(&mut words, listen::ended(id, info.as_deref()).as_bytes());
        self.ready = words.into();
    }
}

/// The error that ends an answer, as an event, and its code.
fn words(refusal: &Refusal, id: &str) -> (Bytes, i64) {
    let answer =
        refusal::error_response(refusal, Some(Id::from_json(id)), Kind::Request, Revision::V2026_07_28);
    (sse::message(answer.json.as_bytes()).into(), answer.code)
}

/// A message that comes in pieces, as a body.
pub(super) fn message(
    held: Held,
    deadline: Deadline,
    start: Bytes,
    passing: Passing,
    body: upstream::Body,
    lease: Lease,
    entry: Entry,
) -> Pieces {
    let line = Line::new(entry);
    let state = ((held, deadline), Some(start), Some((passing, body, lease)), line.clone());
    let pieces = Box::pin(stream::unfold(state, async |(bounds, start, from, line)| {
        if let Some(start) = start {
            return Some((Ok(start), (bounds, None, from, line)));
        }
        let (mut passing, mut body, lease) = from?;
        loop {
            let failed = match bounds.1.within(body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => match passing.pass(data) {
                        Ok(piece) => {
                            return Some((Ok(piece), (bounds, None, Some((passing, body, lease)), line)));
                        }
                        Err(refusal) => refusal,
                    },
                    Err(_) => continue,
                },
                Ok(None) if passing.was_the_answer() => {
                    lease.give_back();
                    line.borrow_mut().end(None, None);
                    return None;
                }
                Ok(None) => Refusal::ServerNonsense,
                Ok(Some(Err(broken))) => Refusal::from(broken),
                Err(late) => late,
            };
            // Half a message cannot be turned into an error. The connection breaks, and the client sees that.
            line.borrow_mut().end(Some(failed.reason()), None);
            return Some((Err(BrokenOff), (bounds, None, None, line)));
        }
    }));
    Bounded::stream(pieces, deadline, line, Err(BrokenOff))
}

// === impl Bounded ===

impl Bounded {
    /// An answer that is over at the deadline, with these last words.
    fn stream(pieces: Pieces, deadline: Deadline, line: SharedLine, last_words: Piece) -> Pieces {
        let state = Rc::new(RefCell::new(State { pieces, reader: None }));
        let timer = tokio::task::spawn_local({
            let state = state.clone();
            async move {
                sleep_until(deadline.at() + GRACE).await;
                if !line.borrow_mut().end(Some(deadline.passed().reason()), None) {
                    return;
                }
                let last_words: Pieces = Box::pin(stream::iter([last_words]));
                let (pieces, reader) = {
                    let mut state = state.borrow_mut();
                    (std::mem::replace(&mut state.pieces, last_words), state.reader.take())
                };
                // The server hears of it, and what it takes of the limits is free.
                drop(pieces);
                if let Some(reader) = reader {
                    reader.wake();
                }
            }
        });
        Box::pin(Self { state, timer: timer.abort_handle() })
    }
}

impl Stream for Bounded {
    type Item = Piece;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let mut state = self.state.borrow_mut();
        let polled = state.pieces.as_mut().poll_next(cx);
        state.reader = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        self.timer.abort();
        // At once, and not when the timer has gone.
        self.state.borrow_mut().pieces = Box::pin(stream::empty());
    }
}

// === impl Line ===

impl Line {
    fn new(entry: Entry) -> SharedLine {
        Rc::new(RefCell::new(Self(Some(entry))))
    }

    /// The answer is over, well or with a reason. Says whether it was not yet.
    fn end(&mut self, reason: Option<&'static str>, code: Option<i64>) -> bool {
        let Some(mut entry) = self.0.take() else { return false };
        if let Some(reason) = reason {
            entry.reason(reason);
        }
        entry.answered(StatusCode::OK.as_u16(), code);
        true
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.end(Some(Refusal::Cancelled.reason()), None);
    }
}
