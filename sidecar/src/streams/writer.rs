//! The server's end of a stream.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::{Duration, sleep};

use super::stream::Stream;

/// How much is written for nobody, or for somebody who is not waited for, before there is a pause: a server that writes
/// without end must not keep the thread busy with what is forgotten at once.
const TURN: usize = 256 * 1024;
/// The pause.
const PAUSE: Duration = Duration::from_millis(10);

/// Whoever has what the client is to read. Dropped, it ends the stream.
pub(crate) struct Writer {
    stream: Arc<Stream>,
    /// How much was written since the last pause.
    turn: Cell<usize>,
}

impl Writer {
    pub(super) fn new(stream: Arc<Stream>) -> Self {
        stream.resumed();
        Self { stream, turn: Cell::new(0) }
    }

    /// Tells the client an id to come back with before there is anything to come back for.
    pub(super) fn prime(&self) {
        if self.stream.terms().polls {
            self.stream.write(b"");
        }
    }

    /// Adds an event. This never waits: [`Writer::room`] does.
    pub(crate) fn write(&self, data: &[u8]) {
        self.stream.write(data);
        self.turn.set(self.turn.get() + data.len());
    }

    /// Adds a question to the client that has this id, as JSON.
    pub(crate) fn ask(&self, data: &[u8], id: &str) {
        self.stream.ask(data, id);
        self.turn.set(self.turn.get() + data.len());
    }

    /// The ids of the questions that the client will never read, as JSON, once there are any.
    pub(crate) async fn lost_questions(&self) -> Vec<Box<str>> {
        self.stream.lost_questions().await
    }

    /// Returns when whoever reads it may have missed what was given to others, and is to be told now.
    pub(crate) async fn is_unheard(&self) {
        self.stream.is_unheard().await;
    }

    /// Tells whoever reads now, who is not sent away for it, however much it is.
    pub(crate) fn tell(&self, data: &[u8]) {
        self.stream.tell(data);
    }

    /// Adds the last event, which ends it: whoever has read that need not come back.
    pub(crate) fn answer(self, data: &[u8]) {
        self.stream.answer(data);
    }

    /// Ends it for its clients, none of whom may read it any more.
    pub(crate) fn dismiss(self) {
        self.stream.dismiss();
    }

    /// Ends a stream that its client has not heard of.
    pub(crate) fn discard(self) {
        self.stream.forget();
    }

    /// Waits for a client that is there and slow. One that has gone is not waited for.
    pub(crate) async fn room(&self) {
        if self.turn.get() >= TURN {
            self.turn.set(0);
            if self.stream.is_unpaced() {
                sleep(PAUSE).await;
            }
        }
        poll_fn(|cx| if self.stream.has_room(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Closes the connection of a client that is too slow. It may come back for the rest.
    pub(crate) fn lose_client(&self) {
        self.stream.lose_client();
    }

    /// Runs what writes as a task, which ends with the stream.
    pub(crate) fn run<F: Future<Output = ()> + 'static>(self, task: impl FnOnce(Self) -> F) {
        let stream = self.stream.clone();
        stream.written_by(tokio::task::spawn_local(task(self)).abort_handle());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stream.end();
    }
}
