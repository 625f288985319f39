//! The streams of events that clients read, and what is kept of them for clients that come back.
//!
//! Every event has an id of the sidecar's own making ([`event_id`]), whatever the server's are. A client whose connection broke asks
//! for the rest of a stream with the last id that it has seen, and gets what came after it, once and in order, or is told
//! that it cannot have it: by an error, or, of what belongs to no call, anew.
//!
//! A stream is a log of events. Whoever talks to the server writes at its end ([`Writer`]), and the connection of the
//! client reads at its own pace ([`Reader`]); another connection may take its place at any time. What was read stays
//! for a while, within bounds: of a stream, of the streams of a session, and of all of them ([`Store`]).

mod event_id;
mod reader;
mod store;
mod stream;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::sessions::Use;
pub(crate) use event_id::LAST;
use event_id::{EventId, Of};
pub(crate) use reader::Reader;
pub(crate) use store::{Store, look_after};
use stream::Stream;
pub(crate) use stream::{Kind, Terms};
pub(crate) use writer::Writer;

/// Whether that of an event is of no call, for whoever does not know the session.
pub(crate) fn says_of_no_call(last: &str) -> bool {
    matches!(EventId::read(last), Some((_, Of::NoCall)))
}

/// How many streams of a session are kept after their end. A client has as many to come back to as it had calls under
/// way when its connection broke.
const KEPT: usize = 64;

/// The streams of one session.
#[derive(Default)]
pub(crate) struct Streams {
    /// Random, so that the ids of another replica that had this session are not taken for ids of this one.
    epoch: OnceLock<u32>,
    /// How many streams there were.
    count: AtomicU64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Oldest first.
    streams: Vec<Arc<Stream>>,
    /// Somebody is asking the server for the stream that belongs to no call.
    opening: bool,
    /// The session has ended.
    closed: bool,
    /// Their messages go to the client in one stream of HTTP+SSE: it has none of these, and comes back for none.
    in_one: bool,
    /// There was a stream that belongs to no call.
    listened: bool,
    /// The session was elsewhere before, where there may have been one.
    was_elsewhere: bool,
}

/// Why there is no stream.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The session has as many as it may.
    TooMany { limit: u32 },
    /// It has one of this kind, and somebody reads it.
    Taken,
    /// Somebody is asking the server for it just now.
    Opening,
    /// There are no random numbers.
    NoNumbers,
    /// The session has ended.
    Closed,
}

/// What there is for a client that comes back.
pub(crate) enum Rest {
    /// Events that it has not seen, or that are still to come.
    Reader(Reader),
    /// The stream that belongs to no call, to which nobody writes at present.
    Quiet(Turn),
    /// Nothing: it has seen everything.
    Nothing,
    /// Nobody knows any more, and a call may never have been answered.
    Unanswered {
        /// The id of its request, as JSON.
        request: Box<str>,
        /// The id of the last event of its stream, which is to say so.
        event: String,
    },
    /// Nobody knows any more.
    Gone,
}

/// The right to open the stream that belongs to no call, which one may have at a time.
pub(crate) struct Turn {
    session: Use,
    stream: Option<Arc<Stream>>,
    /// What its client has seen of it.
    after: Option<u64>,
    /// What came after that nobody knows any more, or may have.
    missed: bool,
}

impl Streams {
    /// Begins the stream of a call, whose request has this id as JSON: the end for whoever has its answer, and the end for
    /// its client. Calls for which there is no room are refused before they begin; those under way get what they need.
    pub(crate) fn begin(
        session: &Use,
        terms: Terms,
        request: Option<&str>,
    ) -> Result<(Writer, Reader), Refused> {
        session.streams.add(session, Kind::Call, terms, request)
    }

    /// The id of an event that is all there is of its stream. Such a stream need not be kept: whoever knows this id
    /// has everything.
    pub(crate) fn only(&self) -> Result<String, Refused> {
        let id = EventId { epoch: self.epoch()?, stream: self.next(), number: EventId::ONLY };
        Ok(id.text(Of::Unsaid))
    }

    /// From now on they are read into one, which is the client's.
    pub(crate) fn put_in_one(&self) {
        self.list.lock().in_one = true;
    }

    /// Its session was another replica's before, or another sidecar's.
    pub(crate) fn were_elsewhere(&self) {
        self.list.lock().was_elsewhere = true;
    }

    /// Whether they are read into one.
    pub(crate) fn are_in_one(&self) -> bool {
        self.list.lock().in_one
    }

    /// Whether the client reads as many streams as it may.
    pub(crate) fn is_full(&self, limit: u32) -> bool {
        self.list.lock().is_full(limit)
    }

    /// Whether the client has been sent away and comes back for an answer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.list.lock().streams.iter().any(|stream| stream.is_awaited())
    }

    /// Whether there was one that belongs to no call.
    pub(crate) fn were_listened_to(&self) -> bool {
        self.list.lock().listened
    }

    /// For how long they are kept still for a client that has left all of them. None: one is open.
    pub(crate) fn kept_for(&self) -> Option<Duration> {
        let list = self.list.lock();
        if list.opening || list.in_one {
            return None;
        }
        let now = Instant::now();
        let mut kept = list.streams.iter().map(|stream| stream.kept_for(now));
        kept.try_fold(Duration::ZERO, |longest, time| Some(longest.max(time?)))
    }

    /// A turn at the stream that belongs to no call, for a client that says of no event that it has seen it: it may have
    /// listened all the same, to a stream in which nothing was said.
    pub(crate) fn listen(session: &Use, limit: u32) -> Result<Turn, Refused> {
        Self::listen_anew(session, limit, false)
    }

    /// The same for one that may have `missed` something of it, and takes the place of whoever reads.
    fn listen_anew(session: &Use, limit: u32, missed: bool) -> Result<Turn, Refused> {
        let mut list = session.streams.list.lock();
        let stream = list.streams.iter().find(|stream| stream.kind == Kind::Own).cloned();
        let is_read = stream.as_ref().is_some_and(|stream| stream.is_read());
        // Nobody can tell whether somebody reads still whose connection was lost unheard.
        if list.opening {
            return Err(Refused::Opening);
        }
        if is_read && !missed && stream.as_ref().is_some_and(|stream| stream.is_read_newly()) {
            return Err(Refused::Taken);
        }
        if !is_read && list.is_full(limit) {
            return Err(Refused::TooMany { limit });
        }
        let is_heard = stream.as_ref().is_some_and(|stream| stream.is_written());
        let missed = missed || !is_heard && (list.listened || list.was_elsewhere);
        let mut turn = list.turn(session, stream, None)?;
        turn.missed = missed;
        Ok(turn)
    }

    /// What there is after an event. Whoever comes back to a call is `told` this first, where something came between that is
    /// not kept.
    pub(crate) fn resume(session: &Use, last: &str, limit: u32, told: Option<&str>) -> Result<Rest, Refused> {
        let Some((id, of)) = EventId::read(last) else { return Ok(Rest::Gone) };
        // Whoever has told it.
        if id.number == EventId::ONLY {
            return Ok(Rest::Nothing);
        }
        match (Self::resume_known(session, id, limit, told)?, of) {
            // It goes on, and what may have been told in it can be told again.
            (Rest::Gone, Of::NoCall) => Self::listen_anew(session, limit, true).map(Rest::Quiet),
            (Rest::Gone, Of::Call(request)) => {
                let last = EventId { number: EventId::ONLY, ..id };
                Ok(Rest::Unanswered { request: request.into(), event: last.text(Of::Unsaid) })
            }
            (rest, _) => Ok(rest),
        }
    }

    /// The same where it is known what came after it.
    fn resume_known(session: &Use, id: EventId, limit: u32, told: Option<&str>) -> Result<Rest, Refused> {
        let streams = &session.streams;
        if streams.epoch.get() != Some(&id.epoch) {
            return Ok(Rest::Gone);
        }
        let mut list = streams.list.lock();
        let Some(stream) = list.streams.iter().find(|stream| stream.number == id.stream).cloned() else {
            return Ok(Rest::Gone);
        };
        if !stream.is_read() && list.is_full(limit) {
            return Err(Refused::TooMany { limit });
        }
        // What is there is read first; who comes back after that hears how it goes on.
        if stream.kind == Kind::Own && !stream.is_written() && !stream.has_after(id.number) {
            if list.opening {
                return Err(Refused::Opening);
            }
            if !stream.had(id.number) {
                return Ok(Rest::Gone);
            }
            let mut turn = list.turn(session, Some(stream), Some(id.number))?;
            // Nobody has heard what the server said meanwhile.
            turn.missed = true;
            return Ok(Rest::Quiet(turn));
        }
        if stream.is_kept_from(id.number) {
            return Err(Refused::Taken);
        }
        Ok(stream.resume(id.number, told))
    }

    /// Ends what is open, and forgets the rest: the session has ended. Calls that are under way end by themselves.
    pub(crate) fn close(&self) {
        self.forget_all(false);
    }

    /// The same for a session that goes on elsewhere.
    pub(crate) fn leave(&self) {
        self.forget_all(true);
    }

    fn forget_all(&self, goes_on: bool) {
        let streams = {
            let mut list = self.list.lock();
            list.closed = true;
            std::mem::take(&mut list.streams)
        };
        for stream in streams {
            if goes_on && stream.kind == Kind::Own {
                stream.part();
            }
            stream.forget();
        }
    }

    /// Whether the session has ended, or gone elsewhere.
    pub(crate) fn is_closed(&self) -> bool {
        self.list.lock().closed
    }

    fn add(
        &self,
        session: &Use,
        kind: Kind,
        terms: Terms,
        request: Option<&str>,
    ) -> Result<(Writer, Reader), Refused> {
        let epoch = self.epoch()?;
        let mut list = self.list.lock();
        if list.closed {
            return Err(Refused::Closed);
        }
        let forgotten = list.one_too_many();
        let stream = Stream::new(epoch, self.next(), kind, request, terms, session.for_kept());
        list.streams.push(stream.clone());
        if kind == Kind::Own {
            list.listened = true;
        }
        drop(list);
        if let Some(stream) = forgotten {
            stream.forget();
        }
        let writer = Writer::new(stream.clone());
        writer.prime();
        Ok((writer, stream.attach(1)))
    }

    /// Forgets one stream.
    fn remove(&self, number: u64) {
        let mut list = self.list.lock();
        list.streams.retain(|stream| stream.number != number);
        if list.streams.is_empty() {
            // Idle sessions are many.
            list.streams = Vec::new();
        }
    }

    fn epoch(&self) -> Result<u32, Refused> {
        if let Some(epoch) = self.epoch.get() {
            return Ok(*epoch);
        }
        let mut epoch = [0; 4];
        getrandom::fill(&mut epoch).map_err(|_| Refused::NoNumbers)?;
        Ok(*self.epoch.get_or_init(|| u32::from_ne_bytes(epoch)))
    }

    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl List {
    fn is_full(&self, limit: u32) -> bool {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        !self.in_one
            && self.streams.len() >= limit
            && self.streams.iter().filter(|stream| stream.is_read()).count() >= limit
    }

    /// Takes out the oldest stream that has ended, if there are too many of them.
    fn one_too_many(&mut self) -> Option<Arc<Stream>> {
        if self.streams.len() < KEPT {
            return None;
        }
        let ended = |stream: &Arc<Stream>| stream.has_ended();
        let count = self.streams.iter().filter(|stream| ended(stream)).count();
        let oldest = self.streams.iter().position(ended).filter(|_| count >= KEPT)?;
        Some(self.streams.remove(oldest))
    }

    fn turn(
        &mut self,
        session: &Use,
        stream: Option<Arc<Stream>>,
        after: Option<u64>,
    ) -> Result<Turn, Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        self.opening = true;
        Ok(Turn { session: session.for_stream(), stream, after, missed: false })
    }
}

impl Rest {
    /// Whether it is not known any more what there was, or something of it.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Gone | Self::Unanswered { .. } => true,
            Self::Quiet(turn) => turn.missed,
            Self::Reader(reader) => reader.has_missed(),
            Self::Nothing => false,
        }
    }
}

impl Turn {
    /// In which session.
    pub(crate) fn session(&self) -> &Use {
        &self.session
    }

    /// The client's end, if somebody writes to the stream already.
    pub(crate) fn join(&self) -> Option<Reader> {
        let stream = self.stream.as_ref().filter(|stream| stream.is_written())?;
        let reader = stream.attach_unread().missing(self.missed);
        stream.joined_anew(reader.has_missed());
        Some(reader)
    }

    /// Both ends.
    pub(crate) fn open(&self, terms: Terms) -> Result<(Writer, Reader), Refused> {
        let Some(stream) = &self.stream else {
            let (writer, reader) = self.session.streams.add(&self.session, Kind::Own, terms, None)?;
            return Ok((writer, reader.missing(self.missed)));
        };
        let reader = match self.after.map(|after| stream.resume(after, None)) {
            Some(Rest::Reader(reader)) => reader,
            // It has seen nothing, or the stream was given up since.
            _ => stream.attach_unread(),
        };
        Ok((Writer::new(stream.clone()), reader.missing(self.missed)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.session.streams.list.lock().opening = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_streams_pays_little_for_them() {
        assert!(size_of::<Streams>() <= 64, "{}", size_of::<Streams>());
    }
}
