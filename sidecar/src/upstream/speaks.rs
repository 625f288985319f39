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

/// What is known of it. It is forgotten when another server is configured, and corrected when the server that comes
/// back after a restart is another one.
#[derive(Debug)]
pub(crate) struct Speaks(watch::Sender<Known>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    spoken: Option<Spoken>,
    /// There is nothing more to be found out.
    settled: bool,
}

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
        Self(watch::Sender::new(Known::default()))
    }

    /// What is known now. A server that has shaken hands may be found to speak the other era too.
    pub(crate) fn get(&self) -> Option<Spoken> {
        self.0.borrow().spoken
    }

    /// Waits until all of it is known, and gives what is known by then. None: nothing was, in time.
    pub(crate) async fn known(&self, deadline: Instant) -> Option<Spoken> {
        let mut known = self.0.subscribe();
        // What is known is the answer, whether all of it came in time or not.
        let _ = timeout_at(deadline, known.wait_for(|known| known.settled)).await;
        known.borrow().spoken
    }

    /// Notes what the server was found to speak, or that nobody knows any more.
    pub(crate) fn set(&self, spoken: Option<Spoken>) {
        self.note(Known { spoken, settled: spoken.is_some() });
    }

    /// Notes what the server speaks for sure, while it is asked for more. Where that is what was known before, nobody
    /// waits for the answer again.
    pub(crate) fn begin(&self, spoken: Spoken) {
        let settled = Known { spoken: Some(spoken), settled: true };
        let before = *self.0.borrow();
        self.note(if before == settled { settled } else { Known { settled: false, ..settled } });
    }

    fn note(&self, known: Known) {
        self.0.send_if_modified(|current| {
            let changed = *current != known;
            *current = known;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Duration;

    #[tokio::test]
    async fn all_of_it_is_waited_for_and_part_of_it_is_better_than_nothing() {
        let (legacy, modern) = (Revision::V2025_06_18, Revision::V2026_07_28);
        let both = Spoken { legacy: Some(legacy), modern: Some(modern) };
        let speaks = Speaks::new();
        assert_eq!(speaks.known(Instant::now()).await, None);
        speaks.begin(Spoken::only(legacy));
        assert_eq!(speaks.get(), Some(Spoken::only(legacy)));
        assert_eq!(speaks.known(Instant::now()).await, Some(Spoken::only(legacy)));
        let later = Instant::now() + Duration::from_secs(60);
        let (known, ()) = tokio::join!(speaks.known(later), async { speaks.set(Some(both)) });
        assert_eq!(known, Some(both));
        // The same again, after a restart.
        speaks.begin(both);
        assert!(speaks.0.borrow().settled);
        speaks.begin(Spoken::only(legacy));
        assert!(!speaks.0.borrow().settled);
        speaks.set(None);
        assert_eq!(speaks.get(), None);
    }
}
