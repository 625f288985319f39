//! When a server's lists are read again, and what becomes of that.

use std::sync::Arc;

use longshore_sidecar_config::inventory::ConnectionReason;
use tokio::time::{Duration, Instant, timeout};

use super::client::Server;
use super::lists::{Listed, Partly, list_all};
use super::pings::PATIENCE;
use super::state::Problem;
use super::{RELIST_EVERY, RELIST_PAUSE};
use crate::shared::Shared;

/// How long a server may take to list what it offers.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Who says all the time that long lists have changed has them read for a tenth of the time: so many times as long as it
/// took, they are left.
const RELIST_REST: u32 = 9;

/// The lists of a server that is connected.
pub(super) struct Relisting {
    next: Instant,
    /// Until when they are left, whatever the server says of them.
    rests_until: Instant,
    /// How often in a row they could not be read.
    in_vain: u32,
    partly: Partly,
}

/// What became of it.
pub(super) enum Read {
    /// They were read, or the server is too slow.
    Done,
    /// Whether the server is there is to be asked first.
    Ping,
    /// It does not list any more.
    Lost(Problem),
}

impl Relisting {
    /// They have just been read, so far.
    pub(super) fn new(partly: Partly) -> Self {
        let now = Instant::now();
        Self { next: now + partly.list_in(), rests_until: now, in_vain: 0, partly }
    }

    /// When they are to be read.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// They have changed, or somebody misses something in them.
    pub(super) fn wanted(&mut self) {
        self.next = self.next.min((Instant::now() + RELIST_PAUSE).max(self.rests_until));
    }

    /// Reads them.
    pub(super) async fn read(&mut self, server: &Server, shared: &Shared) -> Read {
        let began = Instant::now();
        self.next = began + RELIST_EVERY;
        let capabilities = shared.view.borrow().server.as_ref().map(|server| server.capabilities.clone());
        let capabilities = capabilities.unwrap_or_default();
        let known = shared.view.borrow().lists.clone();
        let listed = tokio::select! {
            listed = timeout(LIST_TIMEOUT, list_all(server, &capabilities, Some(&known))) => listed,
            // Whether it is there is more urgent then, and asked next.
            () = hook_opens(shared) => return self.later(),
        };
        self.rests_until = Instant::now() + (began.elapsed() * RELIST_REST).min(RELIST_EVERY);
        match listed {
            Ok(Ok(Listed { lists, unlisted: problem })) => {
                self.in_vain = 0;
                let is_busy = problem.as_ref().is_some_and(|problem| problem.is_busy);
                self.partly.note(problem);
                self.next = (began + self.partly.list_in()).max(self.rests_until);
                if is_busy {
                    // It has no time for what is new either.
                    self.rests_until = self.next;
                }
                shared.view.send_if_modified(|view| {
                    let changed = *view.lists != lists;
                    if changed {
                        view.lists = Arc::new(lists);
                    }
                    changed
                });
                shared.relist.done();
                Read::Done
            }
            // Perhaps there is no server any more, or not the one that was asked before: a ping tells.
            Ok(Err(problem)) => {
                self.in_vain += 1;
                if self.in_vain >= PATIENCE { Read::Lost(problem) } else { self.later() }
            }
            // Slow is not gone; the pings tell that too. What it had is shown for as long as this lasts.
            Err(_) => {
                let seconds = LIST_TIMEOUT.as_secs();
                let message = format!("the server has not listed what it offers within {seconds} seconds");
                self.partly.note(Some(Problem::new(ConnectionReason::ListFailed, message)));
                Read::Done
            }
        }
    }

    fn later(&mut self) -> Read {
        self.next = Instant::now() + RELIST_PAUSE * 4;
        Read::Ping
    }
}

/// Returns when a hook of the server opens, from now on.
async fn hook_opens(shared: &Shared) {
    let mut hooks = shared.hooks.subscribe();
    let before = *hooks.borrow_and_update();
    // The other end lives as long as this does.
    let _ = hooks.wait_for(|hooks| *hooks > before).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lists_that_change_are_read_in_bursts_and_not_while_they_rest() {
        let began = Instant::now();
        for (rests, next, wanted) in [
            // As soon as a burst may be over, and not later than they would be anyway.
            (Duration::ZERO, RELIST_EVERY, RELIST_PAUSE),
            (Duration::ZERO, RELIST_PAUSE / 2, RELIST_PAUSE / 2),
            (Duration::from_secs(9), RELIST_EVERY, Duration::from_secs(9)),
        ] {
            let mut lists = Relisting::new(Partly::default());
            assert_eq!(lists.due() - began, RELIST_EVERY);
            (lists.rests_until, lists.next) = (began + rests, began + next);
            lists.wanted();
            assert_eq!(lists.due() - began, wanted);
        }
    }
}
