//! The streams that are open, and the way to each: it lives on one thread, and messages for it come to all.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use longshore_sessions::SessionKey;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::audit::Entry;
use crate::held::{Bounds, Share, Shares};
use crate::refusal::Refusal;
use crate::stack::Authenticated;

/// How many requests of a stream wait to be taken up, and how many of its other messages are being delivered. A client
/// that posts faster is told so.
const WAITING: usize = 64;

/// The streams of one replica.
pub(crate) struct Open {
    streams: Mutex<HashMap<SessionKey, Letters>>,
    requests: Arc<Shares>,
    others: Arc<Shares>,
}

/// The way to a stream. Requests have room of their own: however many of them wait, what cancels one of them or answers
/// the server does not.
#[derive(Clone)]
pub(super) struct Letters {
    to: mpsc::UnboundedSender<Letter>,
    requests: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

/// A message that was posted.
pub(super) struct Letter {
    pub(super) caller: Authenticated,
    pub(super) body: Bytes,
    /// Under which id it is answered in the stream, as JSON; only requests are.
    pub(super) id: Option<String>,
    pub(super) receipt: Receipt,
    pub(super) room: Room,
}

/// Who waits until a message is taken, and the audit line of one that never is.
pub(super) struct Receipt(Option<(oneshot::Sender<Outcome>, Entry)>);

/// What became of a message: what its POST is answered with, or why it was not taken, with the line that is to say so.
pub(super) type Outcome = Result<Status, Box<(Refusal, Entry)>>;

/// What a message takes of the bounds while it waits.
pub(super) struct Room {
    _turn: OwnedSemaphorePermit,
    _share: Share,
}

/// What a POST is answered with.
pub(super) struct Status {
    pub(super) status: StatusCode,
    /// An error, if there is one.
    pub(super) text: Bytes,
}

/// A stream's entry, for as long as the stream lives.
pub(super) struct Registered {
    open: Arc<Open>,
    key: SessionKey,
}

impl Open {
    /// None yet. So many bytes of requests may wait, and as many of other messages.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { streams: Mutex::default(), requests: Shares::new(bounds), others: Shares::new(bounds) }
    }

    /// Adds a stream.
    pub(super) fn add(self: &Arc<Self>, key: SessionKey) -> (Registered, mpsc::UnboundedReceiver<Letter>) {
        let (to, letters) = mpsc::unbounded_channel();
        let bound = || Arc::new(Semaphore::new(WAITING));
        self.streams.lock().insert(key, Letters { to, requests: bound(), others: bound() });
        (Registered { open: self.clone(), key }, letters)
    }

    /// The way to one.
    pub(super) fn find(&self, key: &SessionKey) -> Option<Letters> {
        self.streams.lock().get(key).cloned()
    }

    /// Room for a message of so many bytes with its head, if there is any.
    pub(super) fn room(
        &self,
        letters: &Letters,
        principal: &Arc<str>,
        bytes: usize,
        is_request: bool,
    ) -> Result<Room, Refusal> {
        let (turns, shares) =
            if is_request { (&letters.requests, &self.requests) } else { (&letters.others, &self.others) };
        let turn = turns.clone().try_acquire_owned().map_err(|_| Refusal::TooManyCalls)?;
        // The only one of its principal may be as large as any message may.
        let share = shares.take_first(principal, bytes).ok_or(Refusal::TooManyCalls)?;
        Ok(Room { _turn: turn, _share: share })
    }
}

impl Letters {
    /// Posts a message. One to a stream that has ended is never taken.
    pub(super) fn post(&self, letter: Letter) {
        // Who waits for it hears that, and its line is written.
        let _ = self.to.send(letter);
    }
}

impl Receipt {
    pub(super) fn new(reply: oneshot::Sender<Outcome>, entry: Entry) -> Self {
        Self(Some((reply, entry)))
    }

    /// The message is taken, and has a line of its own from now on.
    pub(super) fn taken(mut self) -> Reply {
        let (reply, entry) = self.0.take().unzip();
        if let Some(entry) = entry {
            entry.leave();
        }
        Reply(reply)
    }

    /// The message is withdrawn before it was taken up, so nobody has decided on it; or it is what withdraws that, as anybody
    /// may.
    pub(super) fn withdrawn(mut self, withdraws: bool) {
        if let Some((reply, mut entry)) = self.0.take() {
            if withdraws {
                entry.permit(None);
            } else {
                entry.deny(Refusal::Cancelled.reason());
            }
            entry.answered(StatusCode::ACCEPTED.as_u16(), None);
            let _ = reply.send(Ok(Status::ACCEPTED));
        }
    }

    /// The message is not taken.
    pub(super) fn refused(mut self, refusal: Refusal) {
        if let Some((reply, mut entry)) = self.0.take() {
            // Its client may not be there any more.
            entry.deny(refusal.reason());
            let _ = reply.send(Err(Box::new((refusal, entry))));
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some((_, mut entry)) = self.0.take() {
            // The stream ended first, or its client may not be there any more.
            entry.deny(Refusal::UnknownSession.reason());
            entry.answered(StatusCode::NOT_FOUND.as_u16(), None);
        }
    }
}

/// Who waits for the status of a message that was taken.
pub(super) struct Reply(Option<oneshot::Sender<Outcome>>);

impl Reply {
    /// Says it.
    pub(super) fn send(self, status: Status) {
        if let Some(reply) = self.0 {
            // It may have gone.
            let _ = reply.send(Ok(status));
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.open.streams.lock().remove(&self.key);
    }
}
