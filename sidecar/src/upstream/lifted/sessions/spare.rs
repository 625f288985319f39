//! Sessions that are being opened for the next call, since theirs has found another, or its client has gone: clients that
//! are given up on a server that starts slowly come again, and would have a process begun and ended each time.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::keys::Key;
use super::{Lease, Purpose, Sessions, UNHEARD};
use crate::upstream::lifted::Unusable;
use crate::upstream::{Failure, starts};

/// A call waits for the session that is being opened for the next one.
struct Claim(Arc<AtomicBool>);

/// A session that is being opened for a call.
pub(super) struct Coming<'a> {
    pub(super) sessions: &'a Arc<Sessions>,
    pub(super) key: Key,
    /// None once it is there.
    pub(super) opened: Option<Opened>,
    pub(super) unwanted: Arc<AtomicBool>,
    /// Whether it is the next call's if this one does not wait for it.
    pub(super) keeps: bool,
}

/// What is told when it is there.
type Opened = oneshot::Receiver<Result<Lease, Failure>>;

impl Coming<'_> {
    /// Waits for it.
    pub(super) async fn opened(&mut self) -> Result<Lease, Failure> {
        let Some(opened) = &mut self.opened else { return Err(Unusable::Internal.into()) };
        let lease = opened.await.unwrap_or_else(|_| Err(Unusable::Internal.into()));
        self.opened = None;
        lease
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take().filter(|_| self.keeps) {
            self.sessions.spare(self.key, opened, self.unwanted.clone());
        }
    }
}

impl Sessions {
    /// Lets one be opened for the next call. Otherwise calls that come faster than sessions begin would have them begun and
    /// ended over and over. One at a time: what it takes of the bounds is nobody's yet.
    fn spare(self: &Arc<Self>, key: Key, mut opened: Opened, unwanted: Arc<AtomicBool>) {
        let mut table = self.lock();
        let Entry::Vacant(spare) = table.spare.entry(key) else { return };
        unwanted.store(true, Ordering::Relaxed);
        spare.insert(unwanted.clone());
        drop(table);
        let sessions = self.clone();
        tokio::task::spawn_local(async move {
            // Whoever waits for it waits for as long as a handshake may take.
            let last = Instant::now() + starts::AT_MOST;
            while timeout(UNHEARD, &mut opened).await.is_err()
                && !unwanted.load(Ordering::Relaxed)
                && Instant::now() < last
            {}
            drop(opened);
            sessions.lock().spare.remove(&key);
            sessions.freed.notify_waiters();
        });
    }

    /// One that is being opened for the next call, or another that is free sooner, if this is the next call.
    pub(super) async fn find_spare(self: &Arc<Self>, key: Key, purpose: Purpose) -> Option<Lease> {
        let _claim = self.claim(key)?;
        loop {
            let freed = self.freed.notified();
            let found = self.find(key, purpose);
            if found.is_some() || !self.lock().spare.contains_key(&key) {
                return found;
            }
            freed.await;
        }
    }

    /// None: there is none, or another call waits for it.
    fn claim(&self, key: Key) -> Option<Claim> {
        let unwanted = self.lock().spare.get(&key)?.clone();
        unwanted.swap(false, Ordering::Relaxed).then(|| Claim(unwanted))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
