//! What the server speaks, as far as the monitor has found out. A server may speak revisions of both eras; then
//! each client gets the one of its own.

use longshore_mcp::revision::{Era, Revision};
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, Instant, timeout, timeout_at};

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
pub(crate) struct Speaks {
    known: watch::Sender<Known>,
    /// Somebody would like to know whether the server has sessions of its own.
    wanted: Notify,
    /// How often the server was asked how it is, and is what it was.
    confirmed: watch::Sender<u64>,
}

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
        Self {
            known: watch::Sender::new(Known::default()),
            wanted: Notify::new(),
            confirmed: watch::Sender::new(0),
        }
    }

    /// What is known now. A server that has shaken hands may be found to speak the other era too.
    pub(crate) fn get(&self) -> Option<Spoken> {
        self.known.borrow().spoken
    }

    /// Waits until it is known whether requests may stand alone there, and gives what is known by then. None: nothing
    /// was, in time.
    pub(crate) async fn known(&self, deadline: Instant) -> Option<Spoken> {
        // Nearly always.
        let now = *self.known.borrow();
        if now.is_enough() {
            return now.spoken;
        }
        let mut known = self.known.subscribe();
        // What is known is the answer, whether all of it came in time or not.
        let _ = timeout_at(deadline, known.wait_for(Known::is_enough)).await;
        known.borrow().spoken
    }

    /// Waits until it is known whether the server has sessions of its own, and has it asked if nobody has yet: one whose
    /// requests stand alone is greeted for clients with sessions only.
    pub(crate) async fn asked_for_sessions(&self, within: Duration) {
        if self.known.borrow().is_unasked() {
            let mut known = self.known.subscribe();
            self.wanted.notify_one();
            // Whoever does not answer in time has none.
            let _ = timeout(within, known.wait_for(|known| !known.is_unasked())).await;
        }
    }

    /// Waits until the server is found to be of the other kind than `before` (requests stand alone where they did not, or
    /// the other way round): true. False at the deadline, and once the server was asked again, after this was called, and
    /// is what it was.
    pub(crate) fn other_than(&self, before: Spoken, deadline: Instant) -> impl Future<Output = bool> + use<> {
        let (mut known, mut confirmed) = (self.known.subscribe(), self.confirmed.subscribe());
        let other = async move {
            tokio::select! {
                biased;
                other = known.wait_for(|known| known.is_other_than(before)) => other.is_ok(),
                _ = confirmed.changed() => false,
            }
        };
        async move { timeout_at(deadline, other).await.unwrap_or(false) }
    }

    /// Notes that the server was asked how it is, and is what it was.
    pub(crate) fn confirm(&self) {
        self.confirmed.send_modify(|count| *count += 1);
    }

    /// Waits until the server is to be asked whether it has sessions of its own.
    pub(crate) async fn wanted(&self) {
        loop {
            self.wanted.notified().await;
            // Somebody may have found out meanwhile.
            if self.known.borrow().is_unasked() {
                return;
            }
        }
    }

    /// Notes what the server was found to speak, or that nobody knows any more.
    pub(crate) fn set(&self, spoken: Option<Spoken>) {
        self.note(Known { spoken, settled: spoken.is_some() });
    }

    /// Notes what the server speaks for sure, while it is asked for more. Where that is what was known before, nobody
    /// waits for the answer again.
    pub(crate) fn begin(&self, spoken: Spoken) {
        let settled = Known { spoken: Some(spoken), settled: true };
        let before = *self.known.borrow();
        self.note(if before == settled { settled } else { Known { settled: false, ..settled } });
    }

    fn note(&self, known: Known) {
        self.known.send_if_modified(|current| {
            let changed = *current != known;
            *current = known;
            changed
        });
    }
}

impl Known {
    fn is_other_than(&self, before: Spoken) -> bool {
        self.spoken.is_some_and(|spoken| spoken.modern.is_some() != before.modern.is_some())
    }

    /// Whether it is known that requests may stand alone there, or that they may not.
    fn is_enough(&self) -> bool {
        self.settled || self.is_unasked()
    }

    /// Whether requests may stand alone there, and nobody has asked whether there are sessions too.
    fn is_unasked(&self) -> bool {
        !self.settled && matches!(self.spoken, Some(Spoken { legacy: None, modern: Some(_) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(speaks.known.borrow().settled);
        speaks.begin(Spoken::only(legacy));
        assert!(!speaks.known.borrow().settled);
        speaks.set(None);
        assert_eq!(speaks.get(), None);
        let old = Spoken::only(legacy);
        assert!(!speaks.other_than(old, Instant::now()).await, "it may come back as it was");
        let (changed, ()) = tokio::join!(speaks.other_than(old, later), async {
            speaks.set(Some(old));
            speaks.set(Some(both));
        });
        assert!(changed);
        let soon = Instant::now() + Duration::from_millis(10);
        let (changed, ()) = tokio::join!(speaks.other_than(both, soon), async {
            speaks.set(Some(Spoken::only(modern)));
        });
        assert!(!changed, "requests stand alone there as before");
        let later = Instant::now() + Duration::from_secs(60);
        let (changed, ()) = tokio::join!(speaks.other_than(both, later), async { speaks.confirm() });
        assert!(!changed && Instant::now() < later, "it is what it was");
    }

    #[tokio::test]
    async fn sessions_are_asked_for_by_those_who_need_them() {
        let (legacy, modern) = (Revision::V2025_06_18, Revision::V2026_07_28);
        let speaks = Speaks::new();
        let later = || Instant::now() + Duration::from_secs(60);
        speaks.begin(Spoken::only(modern));
        // Requests that stand alone need not wait.
        assert_eq!(speaks.known(later()).await, Some(Spoken::only(modern)));
        let both = Spoken { legacy: Some(legacy), modern: Some(modern) };
        tokio::join!(speaks.asked_for_sessions(Duration::from_secs(60)), async {
            speaks.wanted().await;
            speaks.set(Some(both));
        });
        assert_eq!(speaks.get(), Some(both));
        // Now it is known, and nobody is asked.
        speaks.asked_for_sessions(Duration::from_secs(60)).await;
        assert!(timeout_at(Instant::now(), speaks.wanted()).await.is_err());
    }
}
