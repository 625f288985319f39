//! How a server asks, as was seen in its sessions.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::time::Duration;

/// How long the first call of a session waits for what the server asks when it is greeted, where it is known to.
const MOMENT: Duration = Duration::from_secs(1);
/// How long that call waits where nothing is known.
const GLANCE: Duration = Duration::from_millis(100);
/// After how many sessions in a row, in which it asked nothing when it was greeted, it is not waited for any more.
const SILENT: u32 = 3;

/// What was seen in any of its sessions.
#[derive(Default)]
pub(super) struct Habits {
    /// It asks on the stream of a session and not of a call, and does not say in which.
    asks_aside: AtomicBool,
    /// It asks for roots as soon as it is greeted.
    asks_at_once: AtomicBool,
    /// In how many sessions it has not done so, since it last did.
    silent: AtomicU32,
}

impl Habits {
    /// It has asked on the stream of a session while a call was under way there.
    pub(super) fn note_aside(&self) {
        self.asks_aside.store(true, Ordering::Relaxed);
    }

    pub(super) fn asks_aside(&self) -> bool {
        self.asks_aside.load(Ordering::Relaxed)
    }

    /// It has asked for roots before anything was called.
    pub(super) fn note_at_once(&self) {
        self.asks_at_once.store(true, Ordering::Relaxed);
        self.silent.store(0, Ordering::Relaxed);
    }

    /// Whether it is known to do so.
    pub(super) fn asks_at_once(&self) -> bool {
        self.patience() == MOMENT
    }

    /// It could have, and did not.
    pub(super) fn note_silent(&self) {
        self.silent.fetch_add(1, Ordering::Relaxed);
    }

    /// How long the first call of a session waits for what it asks when it is greeted.
    pub(super) fn patience(&self) -> Duration {
        if self.silent.load(Ordering::Relaxed) >= SILENT {
            Duration::ZERO
        } else if self.asks_at_once.load(Ordering::Relaxed) {
            MOMENT
        } else {
            GLANCE
        }
    }

    /// Another server takes its place.
    pub(super) fn forget(&self) {
        self.asks_aside.store(false, Ordering::Relaxed);
        self.asks_at_once.store(false, Ordering::Relaxed);
        self.silent.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_nothing_at_once_is_waited_for_in_a_few_sessions_and_then_not_until_it_does() {
        let habits = Habits::default();
        for patience in [GLANCE, MOMENT] {
            for _ in 0..SILENT {
                assert_eq!((habits.patience(), habits.asks_at_once()), (patience, patience == MOMENT));
                habits.note_silent();
            }
            assert_eq!(habits.patience(), Duration::ZERO);
            habits.note_at_once();
        }
        habits.forget();
        assert_eq!(habits.patience(), GLANCE);
    }
}
