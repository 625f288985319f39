//! The client's end of a stream: the body of its response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use longshore_mcp::sse;
use tokio::time::{Duration, Instant, Sleep, sleep};

use super::stream::{Kind, Next, Stream};
use crate::held::Share;
use crate::sessions::Place;
use crate::streamed_body::{BrokenOff, Piece, UnderWay};

/// How long a stream is silent before something is said in it, so that proxies do not take it for dead.
const SILENCE: Duration = Duration::from_secs(15);

/// One connection of a client to a stream. Dropped, it frees the place for another.
pub(crate) struct Reader {
    stream: Arc<Stream>,
    number: u64,
    /// When something was said last.
    said: Instant,
    silence: Pin<Box<Sleep>>,
    /// What ends the connection, if anything does that does not end the stream.
    until: Option<Pin<Box<dyn Future<Output = ()>>>>,
    is_over: bool,
    /// It breaks off next, once what was read before is written: a body that breaks off takes along what is not.
    breaks: bool,
    /// What that is.
    under_way: UnderWay,
    /// It has missed something that nobody knows any more.
    missed: bool,
    /// What waits for room for the next event.
    room: Option<Room>,
    /// It is one of so many.
    place: Option<Place>,
}

/// Gives the share that an event is held in until it is read, or nothing where there is no room in time.
type Room = Pin<Box<dyn Future<Output = Option<Share>>>>;

impl Reader {
    pub(super) fn new(stream: Arc<Stream>, number: u64) -> Self {
        let silence = Box::pin(sleep(SILENCE));
        Self {
            stream,
            number,
            said: Instant::now(),
            silence,
            until: None,
            is_over: false,
            breaks: false,
            under_way: UnderWay::default(),
            missed: false,
            room: None,
            place: None,
        }
    }

    /// Whether it reads what belongs to no call.
    pub(crate) fn is_own(&self) -> bool {
        self.stream.kind == Kind::Own
    }

    /// Nothing that this reads is kept for others: its client hears of no ids to come back with.
    pub(crate) fn read_once(&self) {
        self.stream.read_once();
    }

    /// The same for a client that may have missed something which nobody knows any more, whatever was known of that before.
    pub(super) fn missing(mut self, missed: bool) -> Self {
        self.missed |= missed;
        self
    }

    /// Whether it may have.
    pub(crate) fn has_missed(&self) -> bool {
        self.missed
    }

    /// Tells it something, after what is kept and before whatever comes from now on. However much that is, it is not sent
    /// away: it would come back for the same.
    pub(crate) fn tell(&self, message: &[u8]) {
        self.stream.tell(message);
    }

    /// The same until something has happened.
    pub(crate) fn until(mut self, it: impl Future<Output = ()> + 'static) -> Self {
        self.until = Some(Box::pin(it));
        self
    }

    /// Takes a place until its client has gone.
    pub(crate) fn takes(&mut self, place: Option<Place>) {
        self.place = place;
    }

    /// The next piece of the body.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.until.as_mut().is_some_and(|it| it.as_mut().poll(cx).is_ready()) {
            (self.until, self.is_over) = (None, true);
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.breaks {
            return self.poll_break(cx);
        }
        let Self { stream, number, room, under_way, .. } = &mut *self;
        // Where there is not room for everybody, each has one event, here or on its way.
        let is_next = |cx: &Context<'_>| !stream.is_crowded() || under_way.poll_nothing(cx).is_ready();
        let waker = cx.waker();
        let room = |bytes| if is_next(cx) { poll_room(stream, room, bytes, cx) } else { Poll::Pending };
        match stream.read(*number, waker, room) {
            Next::Event(event) => {
                self.said = Instant::now();
                return Poll::Ready(Some(Ok(self.under_way.give(event))));
            }
            Next::End => return Poll::Ready(None),
            // It comes back, if it can, and there may be room by then.
            Next::NotHeld if stream.terms().polls => return Poll::Ready(None),
            Next::NotHeld | Next::Lost | Next::Away => {
                self.breaks = true;
                return self.poll_break(cx);
            }
            Next::Wait => {}
        }
        while self.silence.as_mut().poll(cx).is_ready() {
            let (now, due) = (Instant::now(), self.said + SILENCE);
            if due <= now {
                self.said = now;
                return Poll::Ready(Some(Ok(Bytes::from_static(sse::KEEP_ALIVE.as_bytes()))));
            }
            self.silence.as_mut().reset(due);
        }
        Poll::Pending
    }

    fn poll_break(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.under_way.poll_written(cx).map(|()| Some(Err(BrokenOff)))
    }
}

/// Waits for room for an event.
fn poll_room(
    stream: &Stream,
    room: &mut Option<Room>,
    bytes: usize,
    cx: &mut Context<'_>,
) -> Poll<Option<Share>> {
    if room.is_none() {
        let mut share = stream.nothing_held();
        if share.reach(bytes) {
            return Poll::Ready(Some(share));
        }
        *room = Some(Box::pin(async move { share.reach_in_time(bytes).await.then_some(share) }));
    }
    let Some(waiting) = room else { return Poll::Pending };
    let there = ready!(waiting.as_mut().poll(cx));
    *room = None;
    Poll::Ready(there)
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.detach(self.number);
    }
}
