//! What is kept of a stream, and what is dropped of it.

use std::task::Waker;

use bytes::Bytes;

use super::{State, Stream, Terms, WINDOW, Written, wake};

/// About what an event costs beside its bytes: its place in the list, which has some to spare, and what the allocator and
/// whoever else has it add.
const EVENT: usize = 112;
/// How much somebody has yet to read of a stream that goes on is not dropped for others: as much as is not counted elsewhere.
const SPARED: usize = 8 * 1024;

impl Stream {
    /// Drops what can be dropped for others to have room. That is also what somebody has yet to read unless readers are
    /// spared, of a stream that has ended, or of which that is much. Says whether it is to be forgotten altogether.
    pub(in super::super) fn relieve(&self, spares_readers: bool) -> bool {
        let mut state = self.state.lock();
        let ended = matches!(state.written, Written::Ended);
        let spared = spares_readers || !ended && state.unread <= SPARED;
        let end = state.end();
        let keep = match &state.client {
            Some(client) if spared && !client.over => client.next,
            _ => end,
        };
        // Of what is given up nothing has to be read before there is more.
        let writer = if keep == end { state.unread_is_lost() } else { None };
        state.drop_before(keep, self);
        // Whoever reads it may still have it after that.
        let is_forgotten = state.forgotten;
        drop(state);
        wake(writer);
        ended && keep == end && !is_forgotten
    }
}

impl State {
    /// The number of the event that comes next.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// It was open until now, which is a use of its session. What is kept of it later is none.
    pub(super) fn is_used(&self) {
        if let Some(session) = &self.hold {
            session.is_used();
        }
    }

    /// Whether this event was one of its own, whatever is kept of those that came after it.
    pub(super) fn had(&self, event: u64) -> bool {
        !self.forgotten && event < self.end()
    }

    /// Whether something that came after this event is not kept any more.
    pub(super) fn has_dropped_after(&self, event: u64) -> bool {
        event.saturating_add(1) < self.first
    }

    /// Drops the oldest events that the client has read, or that nobody is there to read, down to what is kept: of what is
    /// read only once nothing.
    pub(super) fn trim(&mut self, of: &Stream) {
        if self.once {
            while self.first < self.cursor && self.drop_first(of) {}
        }
        let Terms { max_bytes, store, .. } = &of.terms;
        let limit = if self.forgotten { 0 } else { *max_bytes };
        // Where this process ends, the client of a call may have been sent away, and everything that it has yet to read is
        // waited for.
        let returns = self.left.is_some() && limit > 0 && store.ends();
        let keep = match &self.client {
            Some(client) if !client.over => client.next,
            _ if returns => self.cursor,
            _ => self.end(),
        };
        while self.bytes > limit && self.first < keep && self.drop_first(of) {}
    }

    /// Drops what comes before this event.
    pub(super) fn drop_before(&mut self, keep: u64, of: &Stream) {
        while self.first < keep && self.drop_first(of) {}
        self.events.shrink_to_fit();
    }

    fn drop_first(&mut self, of: &Stream) -> bool {
        let Some(event) = self.events.pop_front() else { return false };
        let cost = cost(&event);
        let number = self.first;
        if number >= self.cursor {
            // Nobody has read it.
            self.lose_questions(of, |asked| asked == number);
        }
        self.first += 1;
        self.bytes -= cost.min(self.bytes);
        of.terms.store.gave_back(&of.account, cost);
        true
    }

    /// Whoever waits until its client has read, if that has little to read by now.
    pub(super) fn writer_with_room(&mut self) -> Option<Waker> {
        if self.unread < WINDOW { self.writer.take() } else { None }
    }

    /// The client has nothing to read any more. Gives whoever waited for that.
    pub(super) fn unread_is_lost(&mut self) -> Option<Waker> {
        self.unread = 0;
        self.writer.take()
    }

    /// Ends the client's connection.
    pub(super) fn give_up_client(&mut self) -> Option<Waker> {
        self.unread = 0;
        let client = self.client.take()?;
        self.is_used();
        client.waker
    }

    /// The same of one that is to come back. Clients of revisions that know of that come back to a stream that has ended;
    /// of those before, some do so only where it breaks.
    pub(super) fn send_client_away(&mut self, of: &Stream) -> Option<Waker> {
        if of.terms.polls {
            return self.give_up_client();
        }
        self.unread = 0;
        let client = self.client.as_mut()?;
        client.over = true;
        client.waker.take()
    }
}

/// What an event takes of the bounds.
pub(super) fn cost(event: &Bytes) -> usize {
    event.len() + EVENT
}
