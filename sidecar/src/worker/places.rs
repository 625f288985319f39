//! Places of connections. Nobody keeps others out: where all are taken, a connection on which nothing is under way makes
//! room for the next. First one that has brought no request yet that was served, whoever it is; then the one that has rested
//! for the longest time.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use prometheus::IntGauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::{AbortHandle, Id};
use tokio::time::{Duration, Instant};

/// For how long nothing has to have come, or gone, on one that makes room: its request may be on its way.
const GRACE: Duration = Duration::from_millis(250);

/// The place of a connection.
pub(super) struct Place {
    /// Whether a request of it is under way.
    busy: Cell<bool>,
    /// Whether some of an answer is still to be taken.
    unsent: Cell<bool>,
    /// When something came last, or was sent. Of a stranger's: when it was taken.
    since: Cell<Instant>,
    /// Whether a request that came on it was served: strangers are refused.
    served: Cell<bool>,
    /// It is counted here.
    count: IntGauge,
}

/// Whoever has it has a request of that connection under way.
pub(super) struct Busy(Rc<Place>);

/// A response's body that keeps its connection busy until all of it is handed on, or given up.
pub(super) struct Sent<B> {
    body: B,
    _busy: Busy,
}

/// A connection of which its place knows what comes and goes.
pub(super) struct Watched<I> {
    stream: I,
    place: Rc<Place>,
}

/// The places of one thread that are taken.
#[derive(Default)]
pub(super) struct Places(HashMap<Id, (AbortHandle, Rc<Place>)>);

// === impl Place ===

impl Place {
    pub(super) fn new(count: IntGauge) -> Rc<Self> {
        count.inc();
        let (busy, unsent, served) = Default::default();
        Rc::new(Self { busy, unsent, since: Cell::new(Instant::now()), served, count })
    }

    /// A request has come.
    pub(super) fn begin(self: &Rc<Self>) -> Busy {
        self.busy.set(true);
        Busy(self.clone())
    }

    /// Since when nothing is under way, if nothing is. Strangers could keep a place for as long as they like with a byte now
    /// and then, or by not reading that they are refused.
    fn rests(&self) -> Option<Instant> {
        let is_taken = !self.unsent.get() || !self.served.get();
        (!self.busy.get() && is_taken).then(|| self.since.get())
    }

    /// Something has come, or was sent.
    fn moves(&self) {
        if self.served.get() {
            self.since.set(Instant::now());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.count.dec();
    }
}

// === impl Busy ===

impl Busy {
    /// Its answer, until which it goes on.
    pub(super) fn until_sent<B>(self, response: Response<B>) -> Response<Sent<B>> {
        // What anybody is answered does not count, such as a preflight.
        if matches!(response.status(), StatusCode::OK | StatusCode::ACCEPTED) {
            self.0.served.set(true);
        }
        response.map(|body| Sent { body, _busy: self })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(false);
    }
}

// === impl Sent ===

impl<B: Body<Data = Bytes> + Unpin> Body for Sent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Watched ===

impl<I> Watched<I> {
    pub(super) fn new(stream: I, place: Rc<Place>) -> Self {
        Self { stream, place }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() && !self.place.busy.get() {
            self.place.moves();
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.place.unsent.set(true);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    /// hyper flushes once there is nothing left to be written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() && self.place.unsent.take() {
            self.place.moves();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.place.unsent.set(true);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

// === impl Places ===

impl Places {
    pub(super) fn take(&mut self, task: AbortHandle, place: Rc<Place>) {
        self.0.insert(task.id(), (task, place));
    }

    /// That of a connection which has ended.
    pub(super) fn free(&mut self, task: Id) {
        self.0.remove(&task);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one could make room.
    pub(super) fn has_rest(&self) -> bool {
        self.longest().is_some()
    }

    /// Closes the connection that is to make room. Says whether there is one.
    pub(super) fn make_room(&mut self) -> bool {
        let Some((task, _)) = self.longest().and_then(|longest| self.0.remove(&longest)) else {
            return false;
        };
        task.abort();
        true
    }

    /// The one that is next to make room, once it may: nobody makes room because those who come before are so new.
    fn longest(&self) -> Option<Id> {
        let rests = |(id, (_, place)): (&Id, &(AbortHandle, Rc<Place>))| {
            Some((place.served.get(), place.rests()?, *id))
        };
        let next = self.0.iter().filter_map(rests).min_by_key(|(served, since, _)| (*served, *since));
        next.filter(|(_, since, _)| since.elapsed() >= GRACE).map(|(_, _, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::AsyncWriteExt;
    use tokio::task::{JoinSet, LocalSet};
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn strangers_make_room_before_others_and_nobody_does_who_waits() {
        let count = IntGauge::new("connections", "of a test").unwrap();
        let (mut places, mut tasks) = (Places::default(), JoinSet::new());
        let local = LocalSet::new();
        let _entered = local.enter();
        let mut connect = async |status: Option<StatusCode>| {
            advance(Duration::from_secs(1)).await;
            let place = Place::new(count.clone());
            if let Some(status) = status {
                let mut response = Response::new(http_body_util::Empty::<Bytes>::new());
                *response.status_mut() = status;
                drop(place.begin().until_sent(response));
            }
            let task = tasks.spawn_local(pending::<()>());
            let id = task.id();
            places.take(task, place.clone());
            (id, place)
        };
        let known = connect(Some(StatusCode::OK)).await;
        let known_later = connect(Some(StatusCode::ACCEPTED)).await;
        let refused = connect(Some(StatusCode::UNAUTHORIZED)).await;
        let asks = connect(Some(StatusCode::OK)).await;
        let busy = asks.1.begin();
        let silent = connect(None).await;
        let preflight = connect(Some(StatusCode::NO_CONTENT)).await;
        assert_eq!(count.get(), 6);
        advance(GRACE).await;
        for next in [&refused, &silent, &preflight, &known, &known_later] {
            assert_eq!(places.longest(), Some(next.0));
            assert!(places.make_room());
        }
        assert!(!places.has_rest(), "it waits for its answer");
        // Its answer is being taken, and then the next request may be on its way.
        let mut stream = Watched::new(tokio::io::sink(), asks.1.clone());
        assert_eq!(stream.write(b"answer").await.unwrap(), 6);
        drop(busy);
        assert!(!places.has_rest());
        stream.flush().await.unwrap();
        assert!(!places.has_rest());
        advance(GRACE).await;
        assert_eq!(places.longest(), Some(asks.0));
        places.free(asks.0);
        assert!(!places.has_rest());
        drop((known, known_later, refused, asks, silent, preflight, stream));
        assert_eq!(count.get(), 0);
    }
}
