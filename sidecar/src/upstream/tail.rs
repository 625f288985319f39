//! What follows an answer that somebody has already taken.

use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::{Duration, timeout};

use super::{Body, Lease};

/// How long it may take.
const REST: Duration = Duration::from_secs(1);

/// What follows an answer, which should be nothing. Once it has been read, the connection can be used again.
pub(crate) struct Tail {
    body: Body,
    lease: Lease,
}

impl Tail {
    pub(crate) fn of(body: Body, lease: Lease) -> Self {
        Self { body, lease }
    }

    /// Has it read by whoever wants the connection next, or by a task of its own, if there can be anything.
    pub(crate) fn leave(self) {
        match self.body {
            Body::Http(rest, _) => self.lease.give_back_with(rest),
            body if body.is_end_stream() => self.lease.give_back(),
            body => {
                tokio::task::spawn_local(read(body, self.lease));
            }
        }
    }
}

async fn read(mut body: Body, lease: Lease) {
    let read = async {
        while let Some(frame) = body.frame().await {
            if frame.is_err() {
                return false;
            }
        }
        true
    };
    if let Ok(true) = timeout(REST, read).await {
        lease.give_back();
    }
}
