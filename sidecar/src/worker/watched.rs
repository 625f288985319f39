//! A connection, and who watches what comes and goes on it.

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};

/// Who watches it.
pub(crate) trait Watch {
    /// How many more bytes may come: one more than that breaks the connection.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// How many are read at once.
    fn at_once(&self) -> usize {
        usize::MAX
    }

    /// So many bytes have come; none, where its end has.
    fn comes(&self, _bytes: usize) {}

    /// Something is to be written.
    fn goes(&self) {}

    /// So many bytes of it were.
    fn went(&self, _bytes: usize) {}

    /// It was flushed, as hyper does once there is nothing left to be written.
    fn is_out(&self) {}
}

/// A connection that is watched.
pub(crate) struct Watched<I, W> {
    stream: Take<I>,
    watch: W,
}

impl<I: AsyncRead, W: Deref<Target: Watch>> Watched<I, W> {
    pub(crate) fn new(stream: I, watch: W) -> Self {
        Self { stream: stream.take(0), watch }
    }

    fn notes(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.watch.went(bytes);
        }
        written
    }
}

impl<I: AsyncRead + Unpin, W: Deref<Target: Watch> + Unpin> AsyncRead for Watched<I, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, before) = (self.watch.room(), buf.filled().len());
        // Where there is no room at all, what comes is too much, and not that it is waited for.
        let most = room.max(1).min(self.watch.at_once());
        self.stream.set_limit(most as u64);
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        if read > room {
            return Poll::Ready(Err(io::Error::other("more has come than there is room for")));
        }
        self.watch.comes(read);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, W: Deref<Target: Watch> + Unpin> AsyncWrite for Watched<I, W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.watch.goes();
        let written = Pin::new(self.stream.get_mut()).poll_write(cx, buf);
        self.notes(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(self.stream.get_mut()).poll_flush(cx);
        if flushed.is_ready() {
            self.watch.is_out();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.goes();
        let written = Pin::new(self.stream.get_mut()).poll_write_vectored(cx, bufs);
        self.notes(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }
}
