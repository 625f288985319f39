//! What a server without session ids has asked in a session. Whose an answer is only its id says to such a server, and
//! any client of it could give that one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_mcp::envelope::Id;

use super::Session;

/// How many wait for an answer at most. A server that asks for more has given up the oldest, most likely.
const MOST: usize = 64;

/// The questions of one session that nobody has answered yet: their ids, as JSON.
#[derive(Default)]
pub(super) struct Questions(Mutex<VecDeque<Box<str>>>);

/// An answer on its way. Dropped before the server has it, its question is open again.
pub(crate) struct Answering(Option<(Arc<Session>, Box<str>)>);

impl Questions {
    /// The client is asked.
    pub(super) fn asked(&self, id: &Id<'_>) {
        let mut open = self.lock();
        if open.len() >= MOST {
            open.pop_front();
        }
        open.push_back(id.as_json().into());
    }

    /// It answers. Says whether it was asked.
    pub(super) fn answered(&self, id: &Id<'_>) -> bool {
        let mut open = self.lock();
        let at = open.iter().position(|asked| Id::from_json(asked).is(id));
        at.and_then(|at| open.remove(at)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Box<str>>> {
        // Nothing that holds the lock can leave them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answering {
    pub(super) fn new(session: Arc<Session>, id: &Id<'_>) -> Self {
        Self(Some((session, id.as_json().into())))
    }

    /// The server has it.
    pub(crate) fn arrived(mut self) {
        self.0 = None;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some((session, id)) = self.0.take() {
            session.questions.asked(&Id::from_json(&id));
        }
    }
}
