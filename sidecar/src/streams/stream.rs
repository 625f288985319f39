//! One stream: a log of events with one who writes and one who reads.

mod kept;
mod place;
mod questions;
mod reading;
mod unacknowledged;
mod writing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant};

use super::event_id::Of;
use super::store::{Account, Store};
use crate::sessions::Use;
use crate::upstream::gap::Gap;
use questions::Questions;
pub(super) use reading::Next;

/// How much may wait for a client before the server has to wait too.
const WINDOW: usize = 64 * 1024;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call: it ends with the answer.
    Call,
    /// What the server says that belongs to no call. It ends with the session, or when nobody has read it for long.
    Own,
}

/// What holds for a stream.
#[derive(Clone)]
pub(crate) struct Terms {
    /// The client asks again for a stream that ended early, and begins to do so with an event without data: from
    /// 2025-11-25 on.
    pub(crate) polls: bool,
    /// How many bytes of events are kept that were read, or that nobody is there to read.
    pub(crate) max_bytes: usize,
    /// For how long.
    pub(crate) ttl: Duration,
    /// Whoever writes waits for a client that is slow. Otherwise it loses the client.
    pub(crate) waits: bool,
    /// Where all streams are counted.
    pub(crate) store: Arc<Store>,
}

/// A stream.
pub(super) struct Stream {
    epoch: u32,
    pub(super) number: u64,
    pub(super) kind: Kind,
    /// The id of the call's request, as JSON, if it can be said in the ids of events.
    request: Option<Box<str>>,
    terms: Terms,
    /// Its place in the store.
    serial: u64,
    /// Whose it is, and what they hold.
    principal: Arc<str>,
    account: Arc<Account>,
    state: Mutex<State>,
    /// There are questions that nobody will read.
    lost: Notify,
    /// Somebody has come to read it who says of no event that they have seen it.
    joined: Notify,
}

struct State {
    events: VecDeque<Bytes>,
    /// The number of the first of them.
    first: u64,
    /// What all of them cost.
    bytes: usize,
    /// How much of it the client has yet to read.
    unread: usize,
    client: Option<Client>,
    /// How many clients there were: each of them is known by the count.
    clients: u64,
    /// The next event that no client has read.
    cursor: u64,
    /// Whoever reads it tells nobody the ids of its events, so nobody comes back for what was read.
    once: bool,
    /// Whoever writes, while it waits for room.
    writer: Option<Waker>,
    written: Written,
    /// What may be lost of what was read.
    unheard: Gap,
    /// Since when nobody needs it: it has ended, or, if it ends by nothing else, its client has gone.
    since: Option<Instant>,
    /// When the client of a call left: sent away to come back, or for a reason of its own, as a proxy that ends has one.
    left: Option<Instant>,
    /// Keeps the session from ending as one that is idle.
    hold: Option<Use>,
    forgotten: bool,
    questions: Questions,
}

/// Whether more is to come.
enum Written {
    /// Somebody writes.
    Now,
    /// Somebody writes in a task that ends with the stream.
    By(AbortHandle),
    /// Nobody does, and somebody may again.
    Paused,
    /// Nobody does.
    Ended,
}

/// The connection that reads.
struct Client {
    number: u64,
    /// Since when.
    since: Instant,
    /// The event that it began with, if it has come anew and taken somebody's place.
    new_at: Option<u64>,
    /// The event that it reads next.
    next: u64,
    waker: Option<Waker>,
    /// What it is told before anything else.
    greeting: Option<Bytes>,
    /// What it is told before its end.
    farewell: Option<Bytes>,
    /// It ends.
    over: bool,
}

impl Stream {
    pub(super) fn new(
        epoch: u32,
        number: u64,
        kind: Kind,
        request: Option<&str>,
        terms: Terms,
        hold: Use,
    ) -> Arc<Self> {
        let principal = hold.principal().clone();
        let request = request.filter(|id| Of::call(id).is_some()).map(Box::from);
        let state = State {
            events: VecDeque::new(),
            first: 1,
            bytes: 0,
            unread: 0,
            client: None,
            clients: 0,
            cursor: 1,
            once: false,
            writer: None,
            written: Written::Now,
            unheard: Gap::default(),
            since: None,
            left: None,
            hold: Some(hold),
            forgotten: false,
            questions: Questions::default(),
        };
        let store = terms.store.clone();
        store.add(&principal.clone(), |serial, account| {
            let (state, lost, joined) = (Mutex::new(state), Notify::new(), Notify::new());
            Self { epoch, number, kind, request, terms, serial, principal, account, state, lost, joined }
        })
    }

    fn of(&self) -> Of<'_> {
        match (self.kind, &self.request) {
            (Kind::Own, _) => Of::NoCall,
            (Kind::Call, Some(id)) => Of::Call(id),
            (Kind::Call, None) => Of::Unsaid,
        }
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whether a connection reads it.
    pub(super) fn is_read(&self) -> bool {
        self.state.lock().client.as_ref().is_some_and(|client| !client.over)
    }

    /// Whether somebody writes to it.
    pub(super) fn is_written(&self) -> bool {
        matches!(self.state.lock().written, Written::Now | Written::By(_))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state.lock().written, Written::Ended)
    }

    /// Whether it has been kept for long enough.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let state = self.state.lock();
        !state.forgotten && state.since.is_some_and(|since| since + self.terms.ttl <= now)
    }

    /// For how long it is kept still. None: somebody needs it.
    pub(super) fn kept_for(&self, now: Instant) -> Option<Duration> {
        let since = self.state.lock().since?;
        Some((since + self.terms.ttl).saturating_duration_since(now))
    }

    /// What all streams of its principal hold.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// It cannot be resumed any more. A client that reads it reads to its end, if it is the stream of a call.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        state.forgotten = true;
        if state.client.is_some() || state.since.is_none() {
            state.is_used();
        }
        let hold = state.hold.take();
        if let Written::By(task) = &state.written {
            task.abort();
        }
        // One that was sent away has yet to hear when to come back.
        let parts = state.client.as_ref().is_some_and(|client| client.over);
        let waker = if self.kind == Kind::Own && !parts { state.give_up_client() } else { None };
        let keep = state.client.as_ref().map_or(state.end(), |client| client.next);
        state.drop_before(keep, self);
        let writer = state.writer.take();
        drop(state);
        wake(waker);
        wake(writer);
        if let Some(session) = hold {
            session.streams.remove(self.number);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let bytes = self.state.lock().bytes;
        self.terms.store.gave_back(&self.account, bytes);
        self.terms.store.remove(self.serial, &self.account, &self.principal);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
