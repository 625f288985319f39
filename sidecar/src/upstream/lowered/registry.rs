//! The sessions that there are. Each thread may get the next message of any of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, HeaderValue};
use longshore_mcp::headers::SESSION_ID;

use super::session::Session;
use super::tools::Tools;
use crate::upstream::hold::Hold;

/// What the ids of these sessions begin with, so that others are not even looked for.
const PREFIX: &str = "lowered-";
/// How many bytes of calls and answers are kept of calls whose server has asked back. Each waits for people, so there
/// may be many of them; a call more is told that there are too many.
const MAX_PARKED: usize = 64 * 1024 * 1024;

/// What a session is known by.
pub(super) type Name = u128;

/// All sessions with a server of 2026-07-28, and what is remembered of that server.
pub(crate) struct Lowered {
    sessions: Mutex<HashMap<Name, Arc<Session>>>,
    /// What the server has said of its tools.
    pub(super) tools: Tools,
    /// What the ids begin with under which clients are asked something. Another sidecar's are others.
    epoch: u64,
    questions: AtomicU64,
    parked: AtomicUsize,
}

/// Bytes that are kept of a call. They are given back when this is dropped.
pub(super) struct Parked {
    lowered: Arc<Lowered>,
    bytes: usize,
}

impl Lowered {
    pub(crate) fn new() -> Self {
        Self {
            sessions: Mutex::default(),
            tools: Tools::default(),
            // Without random numbers no session is opened either.
            epoch: random().map_or(0, |number| u64::try_from(number >> 64).unwrap_or(0)),
            questions: AtomicU64::new(0),
            parked: AtomicUsize::new(0),
        }
    }

    /// The session that a message names, if it is one of these.
    pub(in crate::upstream) fn find(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let id = headers.get(SESSION_ID)?.to_str().ok()?.strip_prefix(PREFIX)?;
        let name = Name::from_str_radix(id, 16).ok()?;
        self.lock().get(&name).cloned()
    }

    /// Whether a message names a session that was one of these: no server knows it.
    pub(in crate::upstream) fn was_one(headers: &HeaderMap) -> bool {
        headers.get(SESSION_ID).is_some_and(|id| id.as_bytes().starts_with(PREFIX.as_bytes()))
    }

    /// Adds a session: what it is called, and what ends it until somebody else does.
    pub(super) fn add(self: &Arc<Self>, session: Session) -> Option<(HeaderValue, Hold)> {
        let name = session.name;
        let mut id = HeaderValue::try_from(format!("{PREFIX}{name:032x}")).ok()?;
        id.set_sensitive(true);
        self.lock().insert(name, Arc::new(session));
        let lowered = self.clone();
        Some((id, Hold::of(move || lowered.end(name))))
    }

    /// Ends a session, with all that is under way in it.
    pub(in crate::upstream) fn end(&self, name: Name) {
        let session = self.lock().remove(&name);
        if let Some(session) = session {
            session.end();
        }
    }

    /// Ends all sessions, and forgets the server: another one takes its place.
    pub(crate) fn end_all(&self) {
        let sessions = std::mem::take(&mut *self.lock());
        for session in sessions.into_values() {
            session.end();
        }
        self.tools.forget();
    }

    /// An id under which a client is asked something, as JSON.
    pub(super) fn question(&self) -> String {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        format!("\"{:016x}-{number}\"", self.epoch)
    }

    /// A place for what is kept of a call that waits for its client.
    pub(super) fn park(self: &Arc<Self>, bytes: usize) -> Option<Parked> {
        let mut parked = Parked { lowered: self.clone(), bytes: 0 };
        parked.add(bytes).then_some(parked)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Arc<Session>>> {
        // Nothing that holds the lock can leave it half changed.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parked {
    /// Keeps more. Says whether there is room for it.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        let before = self.lowered.parked.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        before.saturating_add(bytes) <= MAX_PARKED
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.lowered.parked.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A number that nobody guesses; none, if the system gives none.
pub(super) fn random() -> Option<u128> {
    let mut number = [0; 16];
    getrandom::fill(&mut number).ok()?;
    Some(u128::from_ne_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_clients_is_bounded_and_given_back() {
        let lowered = Arc::new(Lowered::new());
        let mut first = lowered.park(MAX_PARKED / 2).unwrap();
        assert!(first.add(MAX_PARKED / 2));
        assert!(lowered.park(1).is_none());
        drop(first);
        assert!(lowered.park(MAX_PARKED).is_some());
        assert_eq!(lowered.parked.load(Ordering::Relaxed), 0);
        assert_ne!(lowered.question(), lowered.question());
    }
}
