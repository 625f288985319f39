//! One stream: a log of events with one who writes and one who reads.

mod kept;
mod place;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use longshore_mcp::sse;
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant};

use super::Rest;
use super::event_id::EventId;
use super::reader::Reader;
use super::store::{Account, FETCH, RETRY, Store};
use crate::held::Share;
use crate::sessions::Use;
use kept::cost;

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
    terms: Terms,
    /// Its place in the store.
    serial: u64,
    /// Whose it is, and what they hold.
    principal: Arc<str>,
    account: Arc<Account>,
    state: Mutex<State>,
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
    /// Whoever writes, while it waits for room.
    writer: Option<Waker>,
    written: Written,
    /// Since when nobody needs it: it has ended, or, if it ends by nothing else, its client has gone.
    since: Option<Instant>,
    /// When the client of a call left: sent away to come back, or for a reason of its own, as a proxy that ends has one.
    left: Option<Instant>,
    /// Keeps the session from being idle.
    hold: Option<Use>,
    forgotten: bool,
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
    /// What it is told before its end.
    farewell: Option<Bytes>,
    /// It ends.
    over: bool,
}

/// What a connection gets next.
pub(super) enum Next {
    Event(Bytes),
    /// Nothing yet. It will be woken.
    Wait,
    /// Nothing any more.
    End,
    /// There is no room to hold it until it is read, and it was waited for long enough. It is kept, as far as it can be.
    NotHeld,
    /// What it should get is not there any more.
    Lost,
}

impl Stream {
    pub(super) fn new(epoch: u32, number: u64, kind: Kind, terms: Terms, hold: Use) -> Arc<Self> {
        let principal = hold.principal().clone();
        let state = State {
            events: VecDeque::new(),
            first: 1,
            bytes: 0,
            unread: 0,
            client: None,
            clients: 0,
            cursor: 1,
            writer: None,
            written: Written::Now,
            since: None,
            left: None,
            hold: Some(hold),
            forgotten: false,
        };
        let store = terms.store.clone();
        store.add(&principal.clone(), |serial, account| {
            let state = Mutex::new(state);
            Self { epoch, number, kind, terms, serial, principal, account, state }
        })
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Whether a connection reads it.
    pub(super) fn is_read(&self) -> bool {
        self.lock().client.as_ref().is_some_and(|client| !client.over)
    }

    /// Whether somebody writes to it.
    pub(super) fn is_written(&self) -> bool {
        matches!(self.lock().written, Written::Now | Written::By(_))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.lock().written, Written::Ended)
    }

    // === The client's side ===

    /// Gives the client at this event the stream, in the place of whoever had it.
    pub(super) fn attach(self: &Arc<Self>, next: u64) -> Reader {
        self.give(next, None)
    }

    fn give(self: &Arc<Self>, next: u64, new_at: Option<u64>) -> Reader {
        let mut state = self.lock();
        let new_at = new_at.filter(|_| state.client.as_ref().is_some_and(|client| !client.over));
        state.clients += 1;
        let number = state.clients;
        let from = usize::try_from(next.saturating_sub(state.first)).unwrap_or(usize::MAX);
        state.unread = state.events.iter().skip(from).map(Bytes::len).sum();
        let since = Instant::now();
        let client = Client { number, since, new_at, next, waker: None, farewell: None, over: false };
        let before = state.client.replace(client);
        if self.kind == Kind::Own {
            state.since = None;
        }
        state.trim(self);
        drop(state);
        wake(before.and_then(|client| client.waker));
        Reader::new(self.clone(), number)
    }

    /// Gives it to a client that wants what nobody has read.
    pub(super) fn attach_unread(self: &Arc<Self>) -> Reader {
        let next = {
            let mut state = self.lock();
            let next = state.cursor.max(state.first);
            if self.terms.polls && next == state.end() {
                // It has yet to hear of an id.
                self.push(&mut state, None, b"");
            }
            next
        };
        self.give(next, Some(next))
    }

    /// What there is after this event.
    pub(super) fn resume(self: &Arc<Self>, after: u64) -> Rest {
        let state = self.lock();
        let next = after.saturating_add(1);
        if !state.knows(after) {
            return Rest::Gone;
        }
        if next == state.end() && matches!(state.written, Written::Ended) {
            return Rest::Nothing;
        }
        drop(state);
        Rest::Reader(self.attach(next))
    }

    /// Whether what comes after this event is known.
    pub(super) fn knows(&self, after: u64) -> bool {
        self.lock().knows(after)
    }

    /// Whether there are events after this one, all of which are known.
    pub(super) fn has_after(&self, after: u64) -> bool {
        let state = self.lock();
        state.knows(after) && after.saturating_add(1) < state.end()
    }

    /// The last event, if a client has read all of them.
    pub(super) fn heard(&self) -> Option<EventId> {
        let state = self.lock();
        let number =
            state.end().checked_sub(1).filter(|number| *number > 0 && state.cursor == state.end())?;
        Some(EventId { epoch: self.epoch, stream: self.number, number })
    }

    /// What a connection gets next, once there is `room` for an event of its size: whoever sends it to the client holds it
    /// until the client has read it, which may be never. None: there is none in time.
    pub(super) fn read(
        &self,
        number: u64,
        waker: &Waker,
        room: impl FnOnce(usize) -> Poll<Option<Share>>,
    ) -> Next {
        let mut state = self.lock();
        let State { events, first, client, cursor, unread, written, .. } = &mut *state;
        let Some(client) = client.as_mut().filter(|client| client.number == number) else {
            // Another connection has its place, or there is no session any more.
            return Next::End;
        };
        if let Some(farewell) = client.farewell.take() {
            return Next::Event(farewell);
        }
        if client.over {
            return Next::End;
        }
        let Some(index) = client.next.checked_sub(*first) else { return Next::Lost };
        let event = usize::try_from(index).ok().and_then(|index| events.get(index)).cloned();
        let Some(event) = event else {
            // Whoever wrote may have gone after this client was told that somebody does: it asks again.
            if matches!(written, Written::Ended | Written::Paused) {
                return Next::End;
            }
            client.waker = Some(waker.clone());
            return Next::Wait;
        };
        let share = match room(event.len()) {
            Poll::Ready(Some(share)) => share,
            Poll::Ready(None) => return Next::NotHeld,
            Poll::Pending => {
                client.waker = Some(waker.clone());
                return Next::Wait;
            }
        };
        client.next += 1;
        *cursor = client.next.max(*cursor);
        *unread -= event.len().min(*unread);
        state.trim(self);
        let writer = if state.unread < WINDOW { state.writer.take() } else { None };
        drop(state);
        wake(writer);
        Next::Event(share.keep(event))
    }

    /// A share of what its clients have yet to read, with nothing in it.
    pub(super) fn nothing_held(&self) -> Share {
        self.terms.store.nothing_held(&self.principal)
    }

    /// A connection has gone.
    pub(super) fn detach(&self, number: u64) {
        let mut state = self.lock();
        if state.client.take_if(|client| client.number == number).is_none() {
            return;
        }
        state.unread = 0;
        match self.kind {
            Kind::Own => state.since = Some(Instant::now()),
            Kind::Call => state.left = Some(Instant::now()),
        }
        state.trim(self);
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }

    /// Sends the client away, if it can come back or has nothing to wait for.
    pub(super) fn part(&self) {
        let mut state = self.lock();
        let open = self.kind == Kind::Own || !matches!(state.written, Written::Ended);
        if !open || self.kind == Kind::Call && !self.terms.polls {
            return;
        }
        let Some(client) = state.client.as_mut().filter(|client| !client.over) else { return };
        client.over = true;
        client.farewell = self.terms.polls.then(|| sse::retry(RETRY).into());
        let waker = client.waker.take();
        state.left = (self.kind == Kind::Call).then(Instant::now);
        let writer = state.writer.take();
        drop(state);
        wake(waker);
        wake(writer);
    }

    /// Whether a client that has left is to come for something still. It has so long once everything is there.
    pub(super) fn is_awaited(&self) -> bool {
        let state = self.lock();
        let Some(left) = state.left.filter(|_| !state.forgotten) else { return false };
        match state.since {
            None => true,
            Some(ended) => state.cursor < state.end() && ended.max(left).elapsed() < FETCH,
        }
    }

    // === The writer's side ===

    /// Adds an event.
    pub(super) fn write(&self, event: Option<&str>, data: &[u8]) {
        let mut state = self.lock();
        self.push(&mut state, event, data);
        let most = if self.terms.store.is_full() { WINDOW } else { WINDOW.max(self.terms.max_bytes) };
        let reader = if !self.terms.waits && state.unread > most {
            // What it has not read yet can still be asked for, as far as it is kept, and for as long.
            if self.kind == Kind::Own {
                state.since.get_or_insert_with(Instant::now);
            }
            state.give_up_client()
        } else {
            state.client.as_mut().and_then(|client| client.waker.take())
        };
        state.trim(self);
        drop(state);
        wake(reader);
    }

    fn push(&self, state: &mut State, event: Option<&str>, data: &[u8]) {
        let id = EventId { epoch: self.epoch, stream: self.number, number: state.end() };
        let event = Bytes::from(sse::numbered(&id.text(), event, data));
        if state.client.as_ref().is_some_and(|client| !client.over) {
            state.unread += event.len();
        }
        let cost = cost(&event);
        state.bytes += cost;
        state.events.push_back(event);
        self.terms.store.took(&self.account, cost);
    }

    /// Whether nobody reads at the pace of whoever writes.
    pub(super) fn is_unpaced(&self) -> bool {
        !self.terms.waits || !self.is_read()
    }

    /// Whether there is room for more. If not, this is woken when there is.
    pub(super) fn has_room(&self, waker: &Waker) -> bool {
        // Where there is not room for everybody, each is read one event at a time.
        let window = if self.terms.store.is_full() { 1 } else { WINDOW };
        let mut state = self.lock();
        let waits = state.client.as_ref().is_some_and(|client| !client.over) && state.unread >= window;
        if waits && self.terms.waits {
            state.writer = Some(waker.clone());
            return false;
        }
        true
    }

    /// Gives up a client that is too slow. It may come back for the rest.
    pub(super) fn lose_client(&self) {
        let mut state = self.lock();
        if self.kind == Kind::Call && state.client.is_some() {
            state.left = Some(Instant::now());
        }
        let waker = state.give_up_client();
        drop(state);
        wake(waker);
    }

    /// Notes the task that writes.
    pub(super) fn written_by(&self, task: AbortHandle) {
        let mut state = self.lock();
        if state.forgotten {
            task.abort();
        } else {
            state.written = Written::By(task);
        }
    }

    /// Nobody writes any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        let waker = match self.kind {
            Kind::Call => {
                state.written = Written::Ended;
                state.since = Some(Instant::now());
                state.client.as_mut().and_then(|client| client.waker.take())
            }
            Kind::Own => {
                state.written = Written::Paused;
                state.since.get_or_insert_with(Instant::now);
                // It asks again, and hears then what is the matter.
                state.give_up_client()
            }
        };
        drop(state);
        wake(waker);
    }

    /// Somebody writes again.
    pub(super) fn resumed(&self) {
        self.lock().written = Written::Now;
    }

    // === The store's side ===

    /// Whether it has been kept for long enough.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let state = self.lock();
        !state.forgotten && state.since.is_some_and(|since| since + self.terms.ttl <= now)
    }

    /// What all streams of its principal hold.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// It cannot be resumed any more. A client that reads it reads to its end, if it is the stream of a call.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.forgotten = true;
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.terms.store.gave_back(&self.account, bytes);
        self.terms.store.remove(self.serial, &self.account, &self.principal);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
