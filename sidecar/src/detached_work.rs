//! Work that goes on after the word that somebody waits for, and whether or not that one is still there.
//!
//! Until that word it is part of whoever waits, so that most of it, which has no more to do then, is no task of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Work until its first word. Dropped before it is done, it goes on.
pub(crate) struct Carried<T> {
    work: Option<Pin<Box<dyn Future<Output = ()>>>>,
    word: oneshot::Receiver<T>,
}

impl<T> Carried<T> {
    /// What comes here, from whomever.
    pub(crate) fn new(word: oneshot::Receiver<T>) -> Self {
        Self { work: None, word }
    }

    /// The same, with this work to be done for it.
    pub(crate) fn with(self, work: impl Future<Output = ()> + 'static) -> Self {
        let mut carried = self;
        carried.work = Some(Box::pin(work));
        carried
    }
}

impl<T> Future for Carried<T> {
    /// None: nobody will say it any more.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
        Pin::new(&mut self.word).poll(cx).map(Result::ok)
    }
}

impl<T> Drop for Carried<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            tokio::task::spawn_local(work);
        }
    }
}
