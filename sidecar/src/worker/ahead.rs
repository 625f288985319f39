//! What was given of answers on one connection and its client has yet to take. hyper takes more of a body than that until it
//! has 64 KiB of it, however little the client reads; each of thousands who read nothing would cost that much.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::watched::Watch;

/// From how many bytes on nothing more is given. One more piece may be, however large.
const ENOUGH: usize = 8 * 1024;

/// How much that is.
#[derive(Default)]
pub(super) struct Ahead {
    bytes: Cell<usize>,
    /// Who waits until it is less.
    waits: Cell<Option<Waker>>,
}

/// A body that is given no faster than its client takes it.
pub(super) struct Given<B> {
    body: B,
    ahead: Rc<Ahead>,
}

// === impl Ahead ===

impl Ahead {
    /// So much less of it is to be taken. Heads and the like are not among it, so that may be more.
    fn is_less(&self, bytes: usize) {
        let left = self.bytes.get().saturating_sub(bytes);
        self.bytes.set(left);
        if left < ENOUGH
            && let Some(waker) = self.waits.take()
        {
            waker.wake();
        }
    }

    fn poll_few(&self, cx: &Context<'_>) -> Poll<()> {
        if self.bytes.get() < ENOUGH {
            return Poll::Ready(());
        }
        self.waits.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl Watch for Ahead {
    fn went(&self, bytes: usize) {
        self.is_less(bytes);
    }

    fn is_out(&self) {
        self.is_less(usize::MAX);
    }
}

// === impl Given ===

impl<B> Given<B> {
    pub(super) fn new(body: B, ahead: Rc<Ahead>) -> Self {
        Self { body, ahead }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Given<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        ready!(self.ahead.poll_few(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let given = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        self.ahead.bytes.set(self.ahead.bytes.get() + given);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, StreamBody};
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::worker::watched::Watched;

    #[tokio::test]
    async fn a_body_is_given_as_it_is_taken() {
        const PIECE: usize = ENOUGH - 1;
        let ahead = Rc::<Ahead>::default();
        let pieces = futures::stream::repeat_with(|| {
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; PIECE])))
        });
        let mut body = Given::new(StreamBody::new(pieces), ahead.clone());
        let mut stream = Watched::new(tokio::io::empty(), ahead.clone());
        let mut is_given =
            async || tokio::time::timeout(std::time::Duration::ZERO, body.frame()).await.is_ok();
        assert!(is_given().await && is_given().await, "there is little ahead");
        assert!(!is_given().await);
        stream.write_all(&[0; PIECE - 1]).await.unwrap();
        assert!(!is_given().await);
        stream.write_all(&[0; 1]).await.unwrap();
        assert!(is_given().await && !is_given().await);
        // Heads are taken too, so that more is than was given.
        stream.write_all(&[0; 3 * ENOUGH]).await.unwrap();
        assert!(is_given().await && is_given().await && !is_given().await);
        stream.flush().await.unwrap();
        assert_eq!(ahead.bytes.get(), 0);
    }
}
