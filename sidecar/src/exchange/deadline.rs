//! When an exchange has to be over.

use tokio::time::{Duration, Instant, timeout_at};

use crate::refusal::Refusal;

/// The end of the time that an exchange may take. It knows how long that was, so that whoever is late hears it.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// So long after that moment.
    pub(super) fn after(began: Instant, limit: Duration) -> Self {
        Self { at: began + limit, limit }
    }

    pub(super) fn at(self) -> Instant {
        self.at
    }

    /// What is said when it has passed.
    pub(super) fn passed(self) -> Refusal {
        Refusal::ServerTimedOut { seconds: self.limit.as_secs_f64() }
    }

    /// What comes of something that has to be done until then.
    pub(super) async fn within<F: Future>(self, what: F) -> Result<F::Output, Refusal> {
        timeout_at(self.at, what).await.map_err(|_| self.passed())
    }
}
