//! Messages that wait for a slow reader, before whoever says more has to wait too: so many of them, and so many bytes. One
//! may always wait, however large it is.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// With so many bytes nothing more is taken.
pub(super) const MAX_WAITING: usize = 256 * 1024;

/// What may be large.
pub(super) trait Large {
    /// How many bytes it holds.
    fn size(&self) -> usize;
}

/// The end of whoever says something.
pub(super) struct Sender<T> {
    to: mpsc::Sender<(T, OwnedSemaphorePermit)>,
    /// One for each byte.
    room: Arc<Semaphore>,
}

/// The end of whoever reads.
pub(crate) struct Receiver<T>(mpsc::Receiver<(T, OwnedSemaphorePermit)>);

/// Nobody reads any more.
#[derive(Debug)]
pub(super) struct Unread;

/// Both ends, where at most so many messages wait.
pub(super) fn channel<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let (to, from) = mpsc::channel(most);
    (Sender { to, room: Arc::new(Semaphore::new(MAX_WAITING)) }, Receiver(from))
}

impl<T: Large> Sender<T> {
    /// Gives a message, when there is room for it.
    pub(super) async fn send(&self, message: T) -> Result<(), Unread> {
        let taken = loop {
            if let Some(taken) = self.take(&message) {
                break taken;
            }
            // It is never closed; one who does not read any more drops what there is.
            drop(self.room.acquire().await);
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

    /// Room for a message, or what there is of it.
    fn take(&self, message: &T) -> Option<OwnedSemaphorePermit> {
        loop {
            let bytes = message.size().clamp(1, self.room.available_permits().max(1));
            match self.room.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX)) {
                Ok(taken) => return Some(taken),
                Err(_) if self.room.available_permits() == 0 => return None,
                // Somebody else has taken some of it.
                Err(_) => {}
            }
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
}
