//! Whether the server is there still. Whoever has reason to doubt it says so, and who watches it looks at once, and says if it
//! is gone.

use tokio::sync::{Notify, watch};

/// The doubts of all, and what came of them.
pub(crate) struct Doubt {
    raised: Notify,
    /// Counts how often the server was looked for in vain.
    gone: watch::Sender<u64>,
}

impl Doubt {
    pub(crate) fn new() -> Self {
        Self { raised: Notify::new(), gone: watch::Sender::new(0) }
    }

    /// The server should be looked for at once.
    pub(crate) fn raise(&self) {
        self.raised.notify_one();
    }

    /// Returns when somebody wants that.
    pub(crate) async fn raised(&self) {
        self.raised.notified().await;
    }

    /// It was looked for, and is not there.
    pub(crate) fn confirm(&self) {
        self.gone.send_modify(|times| *times += 1);
    }

    /// Asks for the rest of a stream of a call's. One that is broken depends on the server that it came from, which may have
    /// said that it wants to be asked much later: where that is gone it would know nothing of what it has not said.
    pub(crate) async fn unless_gone<T>(
        &self,
        is_broken: bool,
        again: impl Future<Output = Option<T>>,
    ) -> Option<T> {
        tokio::select! {
            answer = again => answer,
            () = self.confirmed(), if is_broken => None,
        }
    }

    /// Returns when the server is looked for in vain, from now on: one that was missed before may have been another, which
    /// this one has taken the place of.
    async fn confirmed(&self) {
        let mut gone = self.gone.subscribe();
        self.raise();
        // The other end lives as long as this does.
        let _ = gone.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{Duration, timeout};

    use super::*;

    async fn rest(doubt: &Doubt, is_broken: bool) -> Option<Option<()>> {
        timeout(Duration::from_secs(1), doubt.unless_gone(is_broken, pending::<Option<()>>())).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_found_out_after_a_break_counts() {
        let doubt = Doubt::new();
        doubt.confirm();
        assert_eq!(rest(&doubt, true).await, None, "that was before");
        // Who looks at once finds nobody.
        let looks = async {
            doubt.raised().await;
            doubt.confirm();
        };
        assert_eq!(tokio::join!(rest(&doubt, true), looks).0, Some(None));
        let looks = async { doubt.confirm() };
        assert_eq!(tokio::join!(rest(&doubt, false), looks).0, None, "it was to be asked later");
        assert_eq!(doubt.unless_gone(true, ready(Some(7))).await, Some(7));
    }
}
