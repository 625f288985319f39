//! Messages that wait for a slow reader, before whoever says more has to wait too: so many of them, and so many bytes. One
//! may always wait, however large it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

/// With so many bytes nothing more is taken.
pub(super) const MAX_WAITING: usize = 256 * 1024;

/// What may be large.
pub(super) trait Large {
    /// How many bytes it holds.
    fn size(&self) -> usize;
}

/// The end of whoever says something.
pub(super) struct Sender<T> {
    to: mpsc::Sender<(T, Taken)>,
    room: Arc<Room>,
}

/// The end of whoever reads.
pub(crate) struct Receiver<T>(mpsc::Receiver<(T, Taken)>);

/// The room that both ends have.
#[derive(Default)]
struct Room {
    /// How many bytes wait.
    bytes: AtomicUsize,
    /// There is room again.
    freed: Notify,
}

/// What a message takes of it; dropped, that is free again.
struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

/// Nobody reads any more.
#[derive(Debug)]
pub(super) struct Unread;

/// Both ends, where at most so many messages wait.
pub(super) fn channel<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let (to, from) = mpsc::channel(most);
    (Sender { to, room: Arc::default() }, Receiver(from))
}

impl<T: Large> Sender<T> {
    /// Gives a message, when there is room for it.
    pub(super) async fn send(&self, message: T) -> Result<(), Unread> {
        let taken = loop {
            // From before the look, so that nothing is missed. Who does not read any more drops what there is.
            let freed = self.room.freed.notified();
            if let Some(taken) = self.take(&message) {
                break taken;
            }
            freed.await;
        };
        self.to.send((message, taken)).await.map_err(|_| Unread)
    }

    /// Whether both are for the same reader.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.to.same_channel(&other.to)
    }

    /// Gives a message, if there is room for it now. Says whether there was.
    pub(super) fn try_send(&self, message: T) -> bool {
        self.take(&message).is_some_and(|taken| self.to.try_send((message, taken)).is_ok())
    }

    /// Takes room for a message, which may be larger than what there is.
    fn take(&self, message: &T) -> Option<Taken> {
        let (room, bytes) = (&self.room, message.size());
        let more = |waiting| (waiting < MAX_WAITING).then_some(waiting + bytes);
        room.bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Taken { room: room.clone(), bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Only then somebody may wait for it.
        if self.room.bytes.fetch_sub(self.bytes, Ordering::SeqCst) >= MAX_WAITING {
            self.room.freed.notify_waiters();
        }
    }
}

impl<T> Sender<T> {
    /// Returns when nobody reads any more.
    pub(super) async fn closed(&self) {
        self.to.closed().await;
    }

    /// Whether nobody does.
    pub(super) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone(), room: self.room.clone() }
    }
}

impl<T> Receiver<T> {
    /// The next message. None: nobody says anything any more.
    pub(super) async fn recv(&mut self) -> Option<T> {
        self.0.recv().await.map(|(message, _)| message)
    }

    /// The same, for bodies.
    pub(super) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready(ready!(self.0.poll_recv(cx)).map(|(message, _)| message))
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Large for String {
    fn size(&self) -> usize {
        self.len()
    }
}

impl<E> Large for Result<Bytes, E> {
    fn size(&self) -> usize {
        self.as_ref().map_or(0, Bytes::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_is_bounded() {
        const MOST: usize = 8;
        for (size, most) in
            [(0, MOST), (1, MOST), (MAX_WAITING / 4, 4), (MAX_WAITING, 1), (4 * MAX_WAITING, 1)]
        {
            let (to, mut from) = channel(MOST);
            let message = || "x".repeat(size);
            let taken = (0..=MOST).take_while(|_| to.try_send(message())).count();
            assert_eq!(taken, most, "{size}");
            let more = tokio::spawn({
                let (to, message) = (to.clone(), message());
                async move { to.send(message).await }
            });
            tokio::task::yield_now().await;
            assert!(!more.is_finished(), "{size}");
            from.recv().await.unwrap();
            more.await.unwrap().unwrap();
            assert!(!to.try_send(message()), "{size}: the room is taken");
            drop(from);
            assert!(to.send(message()).await.is_err(), "{size}: nobody reads");
        }
        // As long as there is any room.
        let (to, _from) = channel(MOST);
        assert!(to.try_send("x".to_owned()) && to.try_send("x".repeat(4 * MAX_WAITING)));
        assert!(!to.try_send("x".to_owned()));
    }

    /// What a small message has left is no room for one large message after the other.
    #[tokio::test]
    async fn large_messages_do_not_add_up() {
        const SMALL: usize = 4;
        let (to, mut from) = channel(2 * SMALL);
        let large = || "x".repeat(MAX_WAITING);
        assert!((0..SMALL).all(|_| to.try_send("x".to_owned())) && to.try_send(large()));
        for _ in 0..SMALL {
            assert_eq!(from.recv().await.unwrap().len(), 1);
            assert!(!to.try_send(large()), "one of them waits");
        }
        assert_eq!(from.recv().await.unwrap().len(), MAX_WAITING);
        assert!(to.try_send(large()));
    }
}
