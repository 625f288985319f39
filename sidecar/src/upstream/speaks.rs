//! What the server speaks, as far as the monitor has found out. A server may speak revisions of both eras; then
//! each client gets the one of its own.

use longshore_mcp::revision::{Era, Revision};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The newest revision of each era that the server and the sidecar both speak. At least one of them is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoken {
    /// Of those with a handshake.
    pub(crate) legacy: Option<Revision>,
    /// Of those in which each request stands alone.
    pub(crate) modern: Option<Revision>,
}

/// What is known of it. It is forgotten when the server may be another one: when it restarts, or is configured anew.
#[derive(Debug)]
pub(crate) struct Speaks(watch::Sender<Option<Spoken>>);

impl Spoken {
    /// A server of one revision.
    pub(crate) fn only(revision: Revision) -> Self {
        match revision.era() {
            Era::Legacy => Self { legacy: Some(revision), modern: None },
            Era::Modern => Self { legacy: None, modern: Some(revision) },
        }
    }
}

impl Speaks {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// What is known now.
    pub(crate) fn get(&self) -> Option<Spoken> {
        *self.0.borrow()
    }

    /// Waits until it is known. None: it was not, in time.
    pub(crate) async fn known(&self, deadline: Instant) -> Option<Spoken> {
        let mut spoken = self.0.subscribe();
        match timeout_at(deadline, spoken.wait_for(Option::is_some)).await {
            Ok(Ok(spoken)) => *spoken,
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Notes what the server was found to speak, or that nobody knows any more. Says whether that is news.
    pub(crate) fn set(&self, spoken: Option<Spoken>) -> bool {
        self.0.send_if_modified(|current| {
            let changed = *current != spoken;
            *current = spoken;
            changed
        })
    }
}
