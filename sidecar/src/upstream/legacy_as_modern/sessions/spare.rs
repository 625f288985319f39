//! Sessions that are being opened for the next call, since theirs has found another, or is over.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::keys::Key;
use super::{Lease, Purpose, Sessions, UNHEARD};
use crate::upstream::{Failure, starts};

/// A call waits for the session that is being opened for the next one.
struct Claim(Arc<AtomicBool>);

/// A session that is being opened for the next call, until this is dropped.
pub(super) struct Kept {
    sessions: Arc<Sessions>,
    key: Key,
}

impl Sessions {
    /// Notes that one is being opened for the next call. One at a time: what it takes of the bounds is nobody's yet.
    pub(super) fn keep(self: &Arc<Self>, key: Key, unwanted: &Arc<AtomicBool>) -> Option<Kept> {
        let mut table = self.table.lock();
        let Entry::Vacant(spare) = table.spare.entry(key) else { return None };
        unwanted.store(true, Ordering::Relaxed);
        spare.insert(unwanted.clone());
        Some(Kept { sessions: self.clone(), key })
    }

    /// Lets one be opened for the next call: this one has found another. Otherwise calls that come faster than sessions
    /// begin would have them begun and ended over and over.
    pub(super) fn spare(
        self: &Arc<Self>,
        key: Key,
        mut opened: oneshot::Receiver<Result<Lease, Failure>>,
        unwanted: Arc<AtomicBool>,
    ) {
        let Some(kept) = self.keep(key, &unwanted) else {
            // It ends with this.
            unwanted.store(true, Ordering::Relaxed);
            return;
        };
        tokio::task::spawn_local(async move {
            // Whoever waits for it waits for as long as a handshake may take.
            let last = Instant::now() + starts::AT_MOST;
            while timeout(UNHEARD, &mut opened).await.is_err()
                && !unwanted.load(Ordering::Relaxed)
                && Instant::now() < last
            {}
            // It has been kept for long enough.
            unwanted.store(true, Ordering::Relaxed);
            drop(opened);
            drop(kept);
        });
    }

    /// One that is being opened for the next call, or another that is free sooner, if this is the next call.
    pub(super) async fn find_spare(self: &Arc<Self>, key: Key) -> Option<Lease> {
        let _claim = self.claim(key)?;
        loop {
            let freed = self.freed.notified();
            let found = self.find(key, Purpose::Alone);
            if found.is_some() || !self.table.lock().spare.contains_key(&key) {
                return found;
            }
            freed.await;
        }
    }

    /// None: there is none, or another call waits for it.
    fn claim(&self, key: Key) -> Option<Claim> {
        let unwanted = self.table.lock().spare.get(&key)?.clone();
        unwanted.swap(false, Ordering::Relaxed).then(|| Claim(unwanted))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.sessions.table.lock().spare.remove(&self.key);
        self.sessions.freed.notify_waiters();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
