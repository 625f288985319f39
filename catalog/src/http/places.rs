//! Places of connections, as many as there may be. Where all are taken, somebody on whom nothing is spent just now makes
//! room: first whoever was given nothing yet that not everybody gets, then who has been quiet for the longest time.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::{AbortHandle, Id};
use tokio::time::{Instant, sleep_until};

/// So long nothing came or went on one that makes room. Its next request may be on the way.
const GRACE: Duration = Duration::from_millis(250);
/// How long somebody may take nothing of an answer before that is no reason any more to wait for it.
const STALLED: Duration = Duration::from_secs(5);
/// How long a connection may wait for no answer: until all of the last one is taken, and the next request is there.
const REST: Duration = Duration::from_secs(60);

/// The place of a connection.
pub(super) struct Place(Mutex<State>);

struct State {
    /// Since when no answer is being made, if none is.
    idle: Option<Instant>,
    /// Whether an answer is being made, or some of it is still to be handed to hyper, which takes no more than its client.
    busy: bool,
    /// Whether some of what hyper has is still to be handed to the system.
    unsent: bool,
    /// Whether something was served, rather than refused.
    served: bool,
    /// When something came or went last. As long as nothing was served: when it was taken.
    moved: Instant,
}

/// Whoever has it answers a request of that connection.
pub(super) struct Busy(Arc<Place>);

/// A stream that tells its place what comes and goes.
pub(super) struct Watched<I> {
    stream: I,
    place: Arc<Place>,
}

/// Those that are taken.
#[derive(Default)]
pub(super) struct Places(HashMap<Id, (AbortHandle, Arc<Place>)>);

/// Marks an answer that everybody gets who asks, also where a key is needed.
#[derive(Clone, Copy)]
pub(super) struct Public;

/// Marks this one so.
pub(super) async fn public(answer: Response) -> impl IntoResponse {
    (Extension(Public), answer)
}

// === impl Place ===

impl Place {
    pub(super) fn new() -> Arc<Self> {
        let now = Instant::now();
        let state = State { idle: Some(now), busy: false, unsent: false, served: false, moved: now };
        Arc::new(Self(Mutex::new(state)))
    }

    /// A request has come.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        let mut state = self.0.lock();
        (state.idle, state.busy) = (None, true);
        Busy(self.clone())
    }

    pub(super) async fn until_idle_too_long(&self) {
        loop {
            let idle = self.0.lock().idle;
            let end = idle.unwrap_or_else(Instant::now) + REST;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

// === impl State ===

impl State {
    /// Something came, or went. Nobody keeps a place by that alone who is served nothing.
    fn moves(&mut self) {
        if self.served {
            self.moved = Instant::now();
        }
    }

    /// hyper has something to be written, of which the system has taken some or nothing.
    fn writes(&mut self, some: bool) {
        self.unsent = true;
        if some {
            self.moves();
        }
    }

    /// Since when it could make room, and before whom, if it could.
    fn rests(&self) -> Option<(bool, Instant)> {
        let is_made = self.idle.is_some();
        let is_being_taken = self.busy || self.unsent && self.served;
        let waits = is_being_taken && self.moved.elapsed() < STALLED;
        (is_made && !waits).then_some((self.served, self.moved))
    }
}

// === impl Busy ===

impl Busy {
    /// The answer is made, and is to be handed on: until the end of that the connection is busy.
    pub(super) fn until_sent(
        self,
        response: Response,
    ) -> Response<impl Body<Data = Bytes, Error = axum::Error>> {
        let mut state = self.0.0.lock();
        state.idle = Some(Instant::now());
        let status = response.status();
        let is_something = status.is_success() || status == StatusCode::NOT_MODIFIED;
        state.served |= is_something && response.extensions().get::<Public>().is_none();
        // hyper may have all of it before it writes the first byte.
        state.moves();
        drop(state);
        response.map(|body| {
            body.map_err(move |error| {
                // The body has it until it is dropped.
                let _until_sent = &self;
                error
            })
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.lock().busy = false;
    }
}

// === impl Watched ===

impl<I> Watched<I> {
    pub(super) fn new(stream: I, place: Arc<Place>) -> Self {
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
        if read.is_ready() {
            self.place.0.lock().moves();
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Watched<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.place.0.lock().writes(written.is_ready());
        written
    }

    /// hyper does so once it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready() {
            let mut state = self.place.0.lock();
            if std::mem::take(&mut state.unsent) {
                state.moves();
            }
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.place.0.lock().writes(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

// === impl Places ===

impl Places {
    pub(super) fn take(&mut self, task: AbortHandle, place: Arc<Place>) {
        self.0.insert(task.id(), (task, place));
    }

    /// Its connection has ended.
    pub(super) fn free(&mut self, task: Id) {
        self.0.remove(&task);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Ends the connection whose turn it is. Says whether there is one.
    pub(super) fn make_room(&mut self) -> bool {
        let Some((task, _)) = self.next().and_then(|next| self.0.remove(&next)) else { return false };
        task.abort();
        true
    }

    /// Whose turn it is, if it has come. That those whose turn is first are too new is no reason to end another.
    fn next(&self) -> Option<Id> {
        let rests = self.0.iter().filter_map(|(id, (_, place))| Some((place.0.lock().rests()?, *id)));
        let ((_, since), id) = rests.min_by_key(|(rests, _)| *rests)?;
        (since.elapsed() >= GRACE).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_idle_too_long_when_nothing_was_asked_meanwhile() {
        let (place, began) = (Place::new(), Instant::now());
        let asks = async {
            sleep(REST / 2).await;
            let busy = place.begin();
            sleep(REST * 2).await;
            let _sending = busy.until_sent(Response::default());
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = place.until_idle_too_long() => {}
            () = asks => {}
        }
        assert_eq!(began.elapsed().as_secs(), (REST / 2 + REST * 3).as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_of_an_answer_is_not_waited_for_for_ever() {
        let place = Place::new();
        let making = place.begin();
        advance(REST).await;
        assert!(place.0.lock().rests().is_none(), "it is being made");
        let _sending = making.until_sent(Response::default());
        for _ in 0..3 {
            place.0.lock().writes(true);
            advance(STALLED / 2).await;
            place.0.lock().writes(false);
            assert!(place.0.lock().rests().is_none(), "some of it was taken");
        }
        advance(STALLED).await;
        assert!(place.0.lock().rests().is_some());
    }

    #[test]
    fn what_everybody_gets_is_no_reason_to_stay() {
        for (response, is_served) in [
            (StatusCode::OK.into_response(), true),
            (StatusCode::NOT_MODIFIED.into_response(), true),
            (StatusCode::UNAUTHORIZED.into_response(), false),
            (StatusCode::NOT_FOUND.into_response(), false),
            ((Extension(Public), StatusCode::OK).into_response(), false),
        ] {
            let (place, status) = (Place::new(), response.status());
            drop(place.begin().until_sent(response));
            assert_eq!(place.0.lock().served, is_served, "{status}");
        }
    }
}
