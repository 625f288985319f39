//! When what clients have set is said again at a server that gives no session ids: where it may be another one by now.

use std::future::pending;
use tokio::time::{Instant, sleep_until};

use crate::shared::Shared;
use crate::upstream::Pool;
use crate::upstream::gap::SELDOM;

/// When it is said again.
#[derive(Default)]
pub(super) struct Settings {
    /// When the next time is due.
    wanted: Option<Instant>,
    /// When it is due where nothing but a stream tells.
    next: Option<Instant>,
}

impl Settings {
    /// A stream of the server's has broken off, and it gives another one.
    pub(super) fn doubted(&mut self) {
        let at = self.next.unwrap_or_else(Instant::now);
        self.wanted = Some(self.wanted.map_or(at, |wanted| wanted.min(at)));
    }

    /// The server was away, and is back.
    pub(super) fn lost(&mut self) {
        self.wanted = Some(Instant::now());
    }

    /// Returns when it is time.
    pub(super) async fn due(&self) {
        match self.wanted {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Has it said again. Those whose requests stand alone begin anew.
    pub(super) fn say(&mut self, shared: &Shared, pool: &Pool) {
        self.wanted = None;
        self.next = Some(Instant::now() + SELDOM);
        pool.leave_unheard();
        shared.sessions.set_all_again();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn streams_that_break_off_are_a_reason_now_and_then() {
        let (began, mut settings) = (Instant::now(), Settings::default());
        settings.doubted();
        settings.due().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        (settings.wanted, settings.next) = (None, Some(began + SELDOM));
        // Once is enough for both.
        settings.doubted();
        settings.lost();
        settings.doubted();
        settings.due().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        settings.wanted = None;
        settings.doubted();
        settings.due().await;
        assert_eq!(began.elapsed(), SELDOM);
    }
}
