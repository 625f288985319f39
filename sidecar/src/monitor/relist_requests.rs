//! Requests to read the server's lists again. Not every server says when they change, so whoever finds that they do not
//! fit any more asks for it here.

use tokio::sync::{Notify, watch};
use tokio::time::{Duration, timeout};

/// How long that is waited for. Where it takes longer, what was known has to do.
const PATIENCE: Duration = Duration::from_secs(2);

/// Those who have the lists read again.
pub(crate) struct RelistRequests {
    wanted: Notify,
    /// Counts how often they were read.
    read: watch::Sender<u64>,
}

impl RelistRequests {
    pub(crate) fn new() -> Self {
        Self { wanted: Notify::new(), read: watch::Sender::new(0) }
    }

    /// Has the lists read again, no more often than for a server that says itself that they have changed.
    pub(crate) async fn ask(&self) {
        let mut read = self.read.subscribe();
        self.wanted.notify_one();
        let _ = timeout(PATIENCE, read.changed()).await;
    }

    /// Returns when somebody wants that.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// They were read.
    pub(super) fn done(&self) {
        self.read.send_modify(|times| *times += 1);
    }
}
