//! The sessions of legacy clients: what an id looks like, whose it is, and which session of the server stands behind
//! it. Everything about ids and where a session lives is in this file and nowhere else.
//!
//! An id is 128 random bits, so nobody guesses one; it is bound to the principal that opened it, so nobody can use
//! one that they saw; and it is not the server's own, so nobody can use it around the sidecar.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderValue;
use longshore_mcp::revision::Revision;

use crate::streams::Streams;

/// All sessions of the process.
pub(crate) struct Sessions {
    started: Instant,
    limit: usize,
    idle: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<Key, Arc<Session>>,
    /// Handshakes under way: they have a place already.
    reserved: usize,
}

type Key = [u8; 16];

/// One session: of a client with the sidecar, and of the sidecar with the server.
pub(crate) struct Session {
    key: Key,
    principal: Arc<str>,
    /// What the server calls it, if it has sessions at all.
    pub(crate) upstream: Option<HeaderValue>,
    /// The revision that the client speaks.
    pub(crate) revision: Revision,
    /// The revision that the server speaks in this session.
    pub(crate) server_revision: Revision,
    /// When it was last used, in milliseconds since the process began.
    used: AtomicU64,
    /// Requests under way: while there are any it is not idle.
    busy: AtomicUsize,
    /// What its client reads.
    pub(crate) streams: Streams,
}

/// There are as many sessions as there may be.
#[derive(Debug)]
pub(crate) struct Full;

/// A place for a session whose handshake is under way.
pub(crate) struct Place<'a> {
    sessions: &'a Sessions,
}

/// Holds a session open while a request of it is under way.
pub(crate) struct Use {
    session: Arc<Session>,
    sessions: Arc<Sessions>,
}

// === impl Sessions ===

impl Sessions {
    pub(crate) fn new(limit: usize, idle: Duration) -> Self {
        Self { started: Instant::now(), limit, idle, state: Mutex::default() }
    }

    /// Keeps a place for one more session, before the server is asked for it.
    pub(crate) fn reserve(&self) -> Result<Place<'_>, Full> {
        let mut state = self.lock();
        if state.open.len() + state.reserved >= self.limit {
            return Err(Full);
        }
        state.reserved += 1;
        Ok(Place { sessions: self })
    }

    /// The session of that id, if it is this principal's.
    pub(crate) fn find(&self, id: &str, principal: &str) -> Option<Arc<Session>> {
        let session = self.lock().open.get(&decode(id)?).cloned()?;
        (*session.principal == *principal).then_some(session)
    }

    /// Marks a session as in use.
    pub(crate) fn enter(self: &Arc<Self>, session: Arc<Session>) -> Use {
        session.busy.fetch_add(1, Ordering::Relaxed);
        Use { session, sessions: self.clone() }
    }

    /// Ends a session. Says whether it was open.
    pub(crate) fn end(&self, session: &Session) -> bool {
        let open = self.lock().open.remove(&session.key).is_some();
        session.streams.close();
        open
    }

    /// Ends those that nobody used for a while, and gives them back so that the server can be told.
    pub(crate) fn expire(&self) -> Vec<Arc<Session>> {
        let now = self.now();
        let idle = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        let mut expired = Vec::new();
        self.lock().open.retain(|_, session| {
            let busy = session.busy.load(Ordering::Relaxed) > 0;
            let keep = busy || now.saturating_sub(session.used.load(Ordering::Relaxed)) < idle;
            if !keep {
                expired.push(session.clone());
            }
            keep
        });
        for session in &expired {
            session.streams.close();
        }
        expired
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.lock().open.len()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Place ===

impl Place<'_> {
    /// Opens the session, and gives its id for the client.
    pub(crate) fn open(
        self,
        principal: Arc<str>,
        upstream: Option<HeaderValue>,
        revision: Revision,
    ) -> Result<(Arc<Session>, HeaderValue), getrandom::Error> {
        let mut key = Key::default();
        getrandom::fill(&mut key)?;
        let session = Arc::new(Session {
            key,
            principal,
            upstream,
            revision,
            server_revision: revision,
            used: AtomicU64::new(self.sessions.now()),
            busy: AtomicUsize::new(0),
            streams: Streams::default(),
        });
        self.sessions.lock().open.insert(key, session.clone());
        Ok((session, encode(&key)))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.sessions.lock().reserved -= 1;
    }
}

// === impl Use ===

impl Use {
    /// One more use of the same session.
    pub(crate) fn again(&self) -> Self {
        self.sessions.enter(self.session.clone())
    }
}

impl std::ops::Deref for Use {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.session.used.store(self.sessions.now(), Ordering::Relaxed);
        self.session.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

// === the codec of ids ===

fn encode(key: &Key) -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(key) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    let mut value = HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    // Keeps it out of debug output.
    value.set_sensitive(true);
    value
}

fn decode(id: &str) -> Option<Key> {
    if id.len() != 32 || !id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u128::from_str_radix(id, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sessions: &Sessions, principal: &str) -> (Arc<Session>, String) {
        let place = sessions.reserve().unwrap();
        let (session, id) = place.open(principal.into(), None, Revision::V2025_11_25).unwrap();
        (session, id.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_session_is_its_principals_alone() {
        let sessions = Sessions::new(10, Duration::from_secs(60));
        let (session, id) = open(&sessions, "a");
        assert_eq!(id.len(), 32);
        assert!(longshore_mcp::headers::is_session_id(&id));
        assert!(sessions.find(&id, "a").is_some());
        assert!(sessions.find(&id, "b").is_none());
        for other in ["", "x", &id[1..], &id.to_uppercase(), &format!("+{}", &id[1..])] {
            assert!(sessions.find(other, "a").is_none() || other == id, "{other}");
        }
        assert!(sessions.end(&session));
        assert!(!sessions.end(&session));
        assert!(sessions.find(&id, "a").is_none());
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let sessions = Sessions::new(1, Duration::from_secs(60));
        let place = sessions.reserve().unwrap();
        assert!(sessions.reserve().is_err(), "a handshake under way has a place");
        drop(place);
        let (session, _) = open(&sessions, "a");
        assert!(sessions.reserve().is_err());
        sessions.end(&session);
        assert!(sessions.reserve().is_ok());
    }

    #[test]
    fn only_idle_sessions_expire() {
        let sessions = Arc::new(Sessions::new(10, Duration::ZERO));
        let (session, _) = open(&sessions, "a");
        let used = sessions.enter(session);
        assert!(sessions.expire().is_empty());
        drop(used);
        assert_eq!(sessions.expire().len(), 1);
        assert_eq!(sessions.len(), 0);
    }
}
