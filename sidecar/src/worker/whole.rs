//! A message that has come whole is served, also where its client has gone by then.
//!
//! hyper drops what serves a request when it finds the connection closed. A client that goes as soon as it has written
//! is found gone before its message was looked at, and its call would end before it began. So what still reads goes on
//! by itself: what has come is there to be read, and ends or breaks off at once. So does what takes a call of a session to
//! another replica, until that one answers. From there on it is left to whoever serves the message what it means that the
//! client has gone.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Whether a request is still to come to whoever serves it; nothing, of one that does not end with its connection.
#[derive(Clone, Default)]
pub(crate) struct Reading(Option<Rc<Cell<bool>>>);

impl Reading {
    fn begin() -> Self {
        Self(Some(Rc::new(Cell::new(true))))
    }

    fn goes_on(&self) -> bool {
        self.0.as_ref().is_some_and(|reading| reading.get())
    }

    /// It is with whoever serves it, or ends with its client.
    pub(crate) fn end(&self) {
        if let Some(reading) = &self.0 {
            reading.set(false);
        }
    }
}

/// What serves a request. Dropped while it reads, it goes on until then.
pub(crate) struct Serving<F: Future + 'static> {
    serving: Option<Pin<Box<F>>>,
    reading: Reading,
}

impl<F: Future + 'static> Serving<F> {
    /// `serve` is told where to say that it has read.
    pub(crate) fn new(serve: impl FnOnce(Reading) -> F) -> Self {
        let reading = Reading::begin();
        Self { serving: Some(Box::pin(serve(reading.clone()))), reading }
    }
}

impl<F: Future + 'static> Future for Serving<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(serving) = &mut self.serving else { return Poll::Pending };
        let served = serving.as_mut().poll(cx);
        if served.is_ready() {
            self.serving = None;
        }
        served
    }
}

impl<F: Future + 'static> Drop for Serving<F> {
    fn drop(&mut self) {
        if let Some(mut serving) = self.serving.take()
            && self.reading.goes_on()
        {
            let reading = self.reading.clone();
            tokio::task::spawn_local(std::future::poll_fn(move |cx| {
                let served = serving.as_mut().poll(cx).map(drop);
                // What it waits for by now, it would have waited for with its client.
                if reading.goes_on() { served } else { Poll::Ready(()) }
            }));
        }
    }
}
