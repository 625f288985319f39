//! The streams that are open, and the way to each: it lives on one thread, and messages for it come to all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::StatusCode;
use longshore_sessions::SessionKey;
use tokio::sync::{mpsc, oneshot};

use crate::stack::Authenticated;

/// How many messages of a stream wait to be taken up. A client that posts faster is told so.
const WAITING: usize = 64;

/// The streams of one replica.
#[derive(Default)]
pub(crate) struct Open(Mutex<HashMap<SessionKey, mpsc::Sender<Letter>>>);

/// A message that was posted.
pub(super) struct Letter {
    pub(super) caller: Authenticated,
    pub(super) body: Bytes,
    /// Under which id it is answered in the stream, as JSON; only requests are.
    pub(super) id: Option<String>,
    /// Who waits until it is taken.
    pub(super) reply: oneshot::Sender<Status>,
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
    /// Adds a stream.
    pub(super) fn add(self: &Arc<Self>, key: SessionKey) -> (Registered, mpsc::Receiver<Letter>) {
        let (sender, letters) = mpsc::channel(WAITING);
        self.lock().insert(key, sender);
        (Registered { open: self.clone(), key }, letters)
    }

    /// The way to one.
    pub(super) fn find(&self, key: &SessionKey) -> Option<mpsc::Sender<Letter>> {
        self.lock().get(key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, mpsc::Sender<Letter>>> {
        // Nothing that holds the lock can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.open.lock().remove(&self.key);
    }
}
