//! Turns to be set again: a few for all sessions, and fewer for those of one principal, whose server may take long for each.
//! In the line for the common ones stand no more of any principal than may have one, so that whoever waits is served principal
//! by principal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// How many there are, whoever finds out that one is needed: a server that has only just started may have thousands of
/// sessions.
pub(super) const ALL: usize = 8;
/// How many of them one principal may have, where there are others.
pub(super) const OWN: usize = ALL / 2;

/// The turns, and those of each principal who has some, or waits for some.
pub(super) struct Turns {
    all: Semaphore,
    own: Mutex<HashMap<Arc<str>, Weak<Semaphore>>>,
}

/// One of them. It is somebody else's when this is dropped.
pub(super) struct Turn<'a> {
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Semaphore::new(ALL), own: Mutex::default() }
    }
}

impl Turns {
    /// Waits for one, of which this principal may have so many. `None`: there will be none.
    pub(super) async fn take(&self, principal: &Arc<str>, may_have: usize) -> Option<Turn<'_>> {
        let own = self.of(principal, may_have).acquire_owned().await.ok()?;
        Some(Turn { _all: self.all.acquire().await.ok()?, _own: own })
    }

    fn of(&self, principal: &Arc<str>, may_have: usize) -> Arc<Semaphore> {
        // Nothing that holds the lock can leave it half changed.
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = own.get(principal).and_then(Weak::upgrade) {
            return turns;
        }
        // Nobody is remembered who has none, and waits for none.
        own.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(may_have));
        own.insert(principal.clone(), Arc::downgrade(&turns));
        turns
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn principals_have_turns_one_after_the_other() {
        let turns = Turns::default();
        let take = |who: &str| {
            let who: Arc<str> = who.into();
            let turns = &turns;
            Box::pin(async move { turns.take(&who, OWN).await.unwrap() })
        };
        let mut taken: Vec<_> = ["a", "b"]
            .iter()
            .flat_map(|who| [*who; OWN])
            .map(|who| take(who).now_or_never().unwrap())
            .collect();
        let mut waiting: Vec<_> = ["a"; 100].map(take).into();
        for wait in &mut waiting {
            assert!(timeout(Duration::ZERO, wait).await.is_err());
        }
        let mut other = take("c");
        assert!(timeout(Duration::ZERO, &mut other).await.is_err(), "all are taken");
        taken.pop();
        assert!(other.now_or_never().is_some(), "whoever has its part waits in no line for those of others");
        // Who does not wait any more is passed by.
        let last = waiting.pop().unwrap();
        drop((taken, waiting));
        assert!(last.now_or_never().is_some());
        let _new = take("d").await;
        assert_eq!(turns.own.lock().unwrap().len(), 1);
    }
}
