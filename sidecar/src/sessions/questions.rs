//! What a server has asked in a session. One without session ids knows only by its id whose an answer is, and any client
//! of it could give that one. Of others only what is asked in calls is known, as long as those are under way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_mcp::envelope::{Id, Request};
use longshore_mcp::params::Params;

use super::Session;

/// How many wait for an answer at most. A server that asks for more has given up the oldest, most likely.
const MOST: usize = 64;

/// The questions of one session that nobody has answered yet.
#[derive(Default)]
pub(super) struct Questions(Mutex<VecDeque<Question>>);

/// What is asked, as JSON: its id, and the token that its progress is reported by.
pub(super) struct Question {
    id: Box<str>,
    token: Option<Box<str>>,
}

/// An answer on its way. Dropped before the server has it, its question is open again.
pub(crate) struct Answering(Option<(Arc<Session>, Question)>);

impl Questions {
    /// The client is asked.
    pub(super) fn asked(&self, question: &Request<'_>) {
        // A token that cannot be read is one that nobody reports under.
        let params = Params::read(question.params).unwrap_or_default();
        let token = params.wanted_token().ok().flatten().map(Box::from);
        self.open(Question { id: question.id.as_json().into(), token });
    }

    fn open(&self, question: Question) {
        let mut open = self.lock();
        if open.len() >= MOST {
            open.pop_front();
        }
        open.push_back(question);
    }

    /// It answers. `None`: it was not asked.
    pub(super) fn answered(session: &Arc<Session>, id: &Id<'_>) -> Option<Answering> {
        let question = session.questions.take(id)?;
        Some(Answering(Some((session.clone(), question))))
    }

    /// It is not open any more.
    pub(super) fn take(&self, id: &Id<'_>) -> Option<Question> {
        let mut open = self.lock();
        let at = open.iter().position(|asked| Id::from_json(&asked.id).is(id))?;
        open.remove(at)
    }

    /// Whether one of them is to be reported on under this token.
    pub(super) fn wants(&self, token: &str) -> bool {
        let same = |wanted: &str| Id::from_json(wanted).is(&Id::from_json(token));
        self.lock().iter().any(|question| question.token.as_deref().is_some_and(same))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Question>> {
        // Nothing that holds the lock can leave them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answering {
    /// The server has it.
    pub(crate) fn arrived(mut self) {
        self.0 = None;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some((session, question)) = self.0.take() {
            session.questions.open(question);
        }
    }
}
