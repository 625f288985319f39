//! What was given to whoever writes it to a client, and is not written yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::task::AtomicWaker;

/// Counts it, so that a body can break off without taking it along.
#[derive(Default)]
pub(crate) struct UnderWay {
    pieces: Arc<Pieces>,
    /// All is written, but for what a connection holds back that is encrypted.
    is_written: bool,
}

#[derive(Default)]
struct Pieces {
    count: AtomicUsize,
    waker: AtomicWaker,
}

/// One of them. Whoever writes lets go of it then.
struct Counted {
    bytes: Bytes,
    pieces: Arc<Pieces>,
}

impl UnderWay {
    /// A piece that is under way from now on.
    pub(crate) fn give(&self, bytes: Bytes) -> Bytes {
        self.pieces.count.fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, pieces: self.pieces.clone() })
    }

    /// Whether nothing is.
    pub(crate) fn poll_nothing(&self, cx: &Context<'_>) -> Poll<()> {
        self.pieces.waker.register(cx.waker());
        if self.pieces.count.load(Ordering::Acquire) > 0 { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Whether the body may break off: all that was given is written. How long that takes is bounded where connections are.
    pub(crate) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_nothing(cx));
        if std::mem::replace(&mut self.is_written, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.pieces.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pieces.waker.wake();
        }
    }
}
