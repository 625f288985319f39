//! The sessions that there are. Each thread may get the next message of any of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use longshore_sidecar_config::{Limits, Processes};
use parking_lot::Mutex;
use tokio::time::Duration;

use super::session::Session;
use super::tools::Tools;
use crate::held::{Share, Shares};
use crate::upstream::hold::Hold;
use crate::upstream::{Absence, Opener, random};

/// What the ids of these sessions begin with, so that others are not even looked for.
const PREFIX: &str = "modern_as_legacy-";

/// How many bytes may be kept of a call that waits for its client, where it is the only one: one of the largest size that there
/// may be where nobody says otherwise, and an answer as large.
pub(super) const ALONE: usize = 8 * 1024 * 1024;

/// What a session is known by.
pub(super) type Name = u128;

/// All sessions with a server of 2026-07-28, and what is remembered of that server.
pub(crate) struct ModernAsLegacy {
    sessions: Mutex<HashMap<Name, Arc<Session>>>,
    /// What the server has said of its tools.
    pub(super) tools: Tools,
    /// What the ids begin with under which clients are asked something. Another sidecar's are others.
    epoch: u64,
    questions: AtomicU64,
    /// What is kept of calls that wait for their clients, which are people: a call more is told that there are too many.
    parked: Arc<Shares>,
    /// What sessions keep for as long as they last.
    kept: Arc<Shares>,
    /// Since when calls that the server has answered once have not found it.
    pub(super) absence: Absence,
    /// How long a client may take to answer what the server asks.
    pub(super) patience: Duration,
    /// The processes that clients may have by now, whatever they might have when their sessions began.
    processes: Mutex<Option<Processes>>,
}

impl ModernAsLegacy {
    pub(crate) fn new(patience: Duration, parked: Arc<Shares>, kept: Arc<Shares>) -> Self {
        Self {
            sessions: Mutex::default(),
            tools: Tools::default(),
            // Without random numbers no session is opened either.
            epoch: random().map_or(0, |number| u64::try_from(number >> 64).unwrap_or(0)),
            questions: AtomicU64::new(0),
            parked,
            kept,
            absence: Absence::new(),
            patience,
            processes: Mutex::default(),
        }
    }

    /// Takes the limits of a configuration, from now on.
    pub(crate) fn configure(&self, limits: &Limits) {
        *self.processes.lock() = limits.processes;
    }

    /// For whom a session's request is, with what they may have by now.
    pub(super) fn opener(&self, session: &Session) -> Opener {
        match &session.opener {
            Opener::Own => Opener::Own,
            Opener::Client { principal, begins, .. } => {
                let limits = *self.processes.lock();
                Opener::Client { principal: principal.clone(), limits, begins: *begins }
            }
        }
    }

    /// The session of this id, if it is one of these.
    pub(in crate::upstream) fn find(&self, id: &HeaderValue) -> Option<Arc<Session>> {
        let id = id.to_str().ok()?.strip_prefix(PREFIX)?;
        let name = Name::from_str_radix(id, 16).ok()?;
        self.sessions.lock().get(&name).cloned()
    }

    /// Whether a session of this id was one of these: no server knows it.
    pub(in crate::upstream) fn was_one(id: &HeaderValue) -> bool {
        id.as_bytes().starts_with(PREFIX.as_bytes())
    }

    /// Adds a session: what it is called, and what ends it until somebody else does.
    pub(super) fn add(self: &Arc<Self>, session: Session) -> Option<(HeaderValue, Hold)> {
        let name = session.name;
        let mut id = HeaderValue::try_from(format!("{PREFIX}{name:032x}")).ok()?;
        id.set_sensitive(true);
        self.sessions.lock().insert(name, Arc::new(session));
        let modern_as_legacy = self.clone();
        Some((id, Hold::of(move || modern_as_legacy.end(name))))
    }

    /// Ends a session, with all that is under way in it.
    pub(in crate::upstream) fn end(&self, name: Name) {
        let session = self.sessions.lock().remove(&name);
        if let Some(session) = session {
            session.end();
        }
    }

    /// Ends all sessions, and forgets the server: another one takes its place.
    pub(crate) fn end_all(&self) {
        let sessions = std::mem::take(&mut *self.sessions.lock());
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

    /// Room for what a session keeps from its beginning: what its client says of itself.
    pub(super) fn keep(&self, opener: &Opener, bytes: usize) -> Option<Share> {
        self.kept.take_said(&opener.principal().cloned().unwrap_or_default(), bytes)
    }

    /// Room for what is kept of a call that waits for its client.
    pub(super) fn park(&self, opener: &Opener, bytes: usize) -> Option<Share> {
        let mut share = self.parked.nothing(&opener.principal().cloned().unwrap_or_default());
        share.add_alone(bytes, ALONE).then_some(share)
    }
}
