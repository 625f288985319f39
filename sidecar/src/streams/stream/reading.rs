//! The client's side of a stream: who reads it, and from where on.

use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;
use longshore_mcp::sse;
use tokio::time::Instant;

use super::{Client, Kind, State, Stream, Written, wake};
use crate::held::Share;
use crate::streams::Rest;
use crate::streams::reader::Reader;
use crate::streams::store::{FETCH, RETRY};

/// What a connection gets next.
pub(in super::super) enum Next {
    Event(Bytes),
    /// Nothing yet. It will be woken.
    Wait,
    /// Nothing any more.
    End,
    /// Nothing here: its client is to come back, and a connection that breaks is all that tells it so.
    Away,
    /// There is no room to hold it until it is read, and it was waited for long enough. It is kept, as far as it can be.
    NotHeld,
    /// What it should get is not there any more.
    Lost,
}

impl Stream {
    /// Gives the client at this event the stream, in the place of whoever had it.
    pub(in super::super) fn attach(self: &Arc<Self>, next: u64) -> Reader {
        self.give(next, None)
    }

    fn give(self: &Arc<Self>, next: u64, new_at: Option<u64>) -> Reader {
        let mut state = self.state.lock();
        let new_at = new_at.filter(|_| state.client.as_ref().is_some_and(|client| !client.over));
        state.clients += 1;
        let number = state.clients;
        let from = usize::try_from(next.saturating_sub(state.first)).unwrap_or(usize::MAX);
        state.unread = state.events.iter().skip(from).map(Bytes::len).sum();
        let since = Instant::now();
        let (waker, greeting, farewell) = (None, None, None);
        let client = Client { number, since, new_at, next, waker, greeting, farewell, over: false };
        let before = state.client.replace(client);
        if self.kind == Kind::Own {
            state.since = None;
        }
        state.trim(self);
        // What the one before had yet to read others may have read: then nothing comes that this one could read.
        let writer = state.writer_with_room();
        drop(state);
        wake(before.and_then(|client| client.waker));
        wake(writer);
        Reader::new(self.clone(), number)
    }

    /// Gives it to a client that wants what nobody has read. What is not kept any more of that is missed.
    pub(in super::super) fn attach_unread(self: &Arc<Self>) -> Reader {
        let (next, missed) = {
            let mut state = self.state.lock();
            let (next, missed) = (state.cursor.max(state.first), state.cursor < state.first);
            if self.terms.polls && next == state.end() {
                // It has yet to hear of an id.
                self.push(&mut state, b"", false);
            }
            (next, missed)
        };
        self.give(next, Some(next)).missing(missed)
    }

    /// What there is after this event. What came between and is not kept any more is missed: of a call the answer is what its
    /// client comes for, and what it is told before that is kept for nobody.
    pub(in super::super) fn resume(self: &Arc<Self>, after: u64, told: Option<&str>) -> Rest {
        let mut state = self.state.lock();
        let next = after.saturating_add(1).max(state.first);
        let (missed, ended) = (state.has_dropped_after(after), matches!(state.written, Written::Ended));
        let is_all = next == state.end() && ended;
        if !state.had(after) || missed && is_all {
            return Rest::Gone;
        }
        if is_all {
            return Rest::Nothing;
        }
        // Whoever read for it before may have read into a connection that was lost.
        state.lose_questions_after(after, self);
        drop(state);
        let reader = self.attach(next).missing(missed);
        let told = told.filter(|_| missed && self.kind == Kind::Call);
        if let (Some(client), Some(told)) = (&mut self.state.lock().client, told) {
            client.greeting = Some(sse::message(told.as_bytes()).into());
        }
        Rest::Reader(reader)
    }

    /// Whether this event was one of its own, whatever is kept of those that came after it.
    pub(in super::super) fn had(&self, event: u64) -> bool {
        self.state.lock().had(event)
    }

    /// Whether there are events after this one.
    pub(in super::super) fn has_after(&self, after: u64) -> bool {
        let state = self.state.lock();
        state.had(after) && after.saturating_add(1).max(state.first) < state.end()
    }

    /// What a connection gets next, once there is `room` for an event of its size: whoever sends it to the client holds it
    /// until the client has read it, which may be never. None: there is none in time.
    pub(in super::super) fn read(
        &self,
        number: u64,
        waker: &Waker,
        room: impl FnOnce(usize) -> Poll<Option<Share>>,
    ) -> Next {
        let mut state = self.state.lock();
        let State { events, first, client, cursor, unread, written, .. } = &mut *state;
        let Some(client) = client.as_mut().filter(|client| client.number == number) else {
            // Another connection has its place, or there is no session any more.
            return Next::End;
        };
        if let Some(told) = client.greeting.take().or_else(|| client.farewell.take()) {
            return Next::Event(told);
        }
        if client.over {
            return self.come_back();
        }
        let Some(index) = client.next.checked_sub(*first) else { return Next::Lost };
        let event = usize::try_from(index).ok().and_then(|index| events.get(index)).cloned();
        let Some(event) = event else {
            return match written {
                Written::Ended => Next::End,
                // It asks again, and hears then how it goes on, or what is the matter.
                Written::Paused => self.come_back(),
                Written::Now | Written::By(_) => {
                    client.waker = Some(waker.clone());
                    Next::Wait
                }
            };
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
        let writer = state.writer_with_room();
        drop(state);
        wake(writer);
        Next::Event(share.keep(event))
    }

    /// The end for a client that is to come back: of revisions before 2025-11-25, some do so only where it breaks off.
    fn come_back(&self) -> Next {
        if self.terms.polls { Next::End } else { Next::Away }
    }

    /// Whether there is not room for all streams.
    pub(in super::super) fn is_crowded(&self) -> bool {
        self.terms.store.is_full()
    }

    /// A share of what its clients have yet to read, with nothing in it.
    pub(in super::super) fn nothing_held(&self) -> Share {
        self.terms.store.nothing_held(&self.principal)
    }

    /// Keeps nothing that was read from now on: whoever reads it tells nobody the ids.
    pub(in super::super) fn read_once(&self) {
        let mut state = self.state.lock();
        state.once = true;
        state.trim(self);
    }

    /// A connection has gone.
    pub(in super::super) fn detach(&self, number: u64) {
        let mut state = self.state.lock();
        if state.client.take_if(|client| client.number == number).is_none() {
            return;
        }
        state.is_used();
        state.unread = 0;
        match self.kind {
            Kind::Own => state.since = Some(Instant::now()),
            Kind::Call => state.left = Some(Instant::now()),
        }
        state.trim(self);
        let writer = state.writer.take();
        let is_over = state.once && self.kind == Kind::Call;
        drop(state);
        wake(writer);
        if is_over {
            self.forget();
        }
    }

    /// Sends the client away, if it can come back or has nothing to wait for.
    pub(in super::super) fn part(&self) {
        let mut state = self.state.lock();
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
    pub(in super::super) fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        let Some(left) = state.left.filter(|_| !state.forgotten) else { return false };
        match state.since {
            None => true,
            Some(ended) => state.cursor < state.end() && ended.max(left).elapsed() < FETCH,
        }
    }
}
