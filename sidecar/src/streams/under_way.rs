//! What was given to whoever writes it to a client, and is not written yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::task::AtomicWaker;

/// Counts it.
#[derive(Default)]
pub(super) struct UnderWay(Arc<Pieces>);

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
    pub(super) fn give(&self, bytes: Bytes) -> Bytes {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, pieces: self.0.clone() })
    }

    /// Whether there is none any more.
    pub(super) fn poll_none(&self, cx: &Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        if self.0.count.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
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
