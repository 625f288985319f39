//! The writer's side of a stream: its events, and the pace at which they come.

use std::task::Waker;

use bytes::Bytes;
use longshore_mcp::sse;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::kept::cost;
use super::questions::Questions;
use super::{Kind, State, Stream, WINDOW, Written, wake};
use crate::streams::event_id::{EventId, Of};

impl Stream {
    /// Adds an event.
    pub(in super::super) fn write(&self, data: &[u8]) {
        self.add(data, false);
    }

    /// Adds one for whoever reads now, who is not sent away for it.
    pub(in super::super) fn tell(&self, data: &[u8]) {
        let mut state = self.state.lock();
        self.push(&mut state, data, false);
        let reader = state.client.as_mut().and_then(|client| client.waker.take());
        state.trim(self);
        drop(state);
        wake(reader);
    }

    /// Adds the last one.
    pub(in super::super) fn answer(&self, data: &[u8]) {
        self.add(data, true);
    }

    fn add(&self, data: &[u8], is_last: bool) {
        let mut state = self.state.lock();
        self.push(&mut state, data, is_last);
        let most = if self.terms.store.is_full() { WINDOW } else { WINDOW.max(self.terms.max_bytes) };
        let reader = if !self.terms.waits && state.unread > most {
            // What it has not read yet can still be asked for, as far as it is kept, and for as long.
            if self.kind == Kind::Own {
                state.since.get_or_insert_with(Instant::now);
            }
            state.send_client_away(self)
        } else {
            state.client.as_mut().and_then(|client| client.waker.take())
        };
        state.trim(self);
        drop(state);
        wake(reader);
    }

    pub(super) fn push(&self, state: &mut State, data: &[u8], is_last: bool) {
        let (number, of) = if is_last { (EventId::ONLY, Of::Unsaid) } else { (state.end(), self.of()) };
        let id = EventId { epoch: self.epoch, stream: self.number, number };
        let event = Bytes::from(sse::numbered(&id.text(of), data));
        if state.client.as_ref().is_some_and(|client| !client.over) {
            state.unread += event.len();
        }
        let cost = cost(&event);
        state.bytes += cost;
        state.events.push_back(event);
        self.terms.store.took(&self.account, cost);
    }

    /// Whether nobody reads at the pace of whoever writes.
    pub(in super::super) fn is_unpaced(&self) -> bool {
        !self.terms.waits || !self.is_read()
    }

    /// Whether there is room for more. If not, this is woken when there is.
    pub(in super::super) fn has_room(&self, waker: &Waker) -> bool {
        // Where there is not room for everybody, each is read one event at a time.
        let window = if self.terms.store.is_full() { 1 } else { WINDOW };
        let mut state = self.state.lock();
        let waits = state.client.as_ref().is_some_and(|client| !client.over) && state.unread >= window;
        if waits && self.terms.waits {
            state.writer = Some(waker.clone());
            return false;
        }
        true
    }

    /// Gives up a client that is too slow. It may come back for the rest.
    pub(in super::super) fn lose_client(&self) {
        let mut state = self.state.lock();
        if self.kind == Kind::Call && state.client.is_some() {
            state.left = Some(Instant::now());
        }
        let waker = state.give_up_client();
        drop(state);
        wake(waker);
    }

    /// Notes the task that writes.
    pub(in super::super) fn written_by(&self, task: AbortHandle) {
        let mut state = self.state.lock();
        if state.forgotten {
            task.abort();
        } else {
            state.written = Written::By(task);
        }
    }

    /// Nobody writes any more.
    pub(in super::super) fn end(&self) {
        let mut state = self.state.lock();
        let waker = match self.kind {
            Kind::Call => {
                state.written = Written::Ended;
                state.since = Some(Instant::now());
                state.questions = Questions::default();
                state.is_used();
                state.client.as_mut().and_then(|client| client.waker.take())
            }
            Kind::Own => {
                state.written = Written::Paused;
                state.since.get_or_insert_with(Instant::now);
                // It asks again, and hears then what is the matter.
                state.send_client_away(self)
            }
        };
        drop(state);
        wake(waker);
    }

    /// Its client may not read it any more.
    pub(in super::super) fn dismiss(&self) {
        let waker = self.state.lock().give_up_client();
        wake(waker);
    }

    /// Somebody writes again.
    pub(in super::super) fn resumed(&self) {
        self.state.lock().written = Written::Now;
    }
}
