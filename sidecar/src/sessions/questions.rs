//! What a server has asked in a session. One without session ids knows only by its id whose an answer is, and any client
//! of it could give that one. Of others only what is certainly asked in a call is known, as long as that is under way.

use std::collections::VecDeque;
use std::sync::Arc;

use longshore_mcp::envelope::{Id, Request};
use longshore_mcp::params::Params;
use parking_lot::Mutex;

use super::Session;
use super::cancelled::Cancelling;

/// How many wait for an answer at most. A server that asks for more has given up the oldest, most likely.
const MOST: usize = 64;

/// The questions of one session that nobody has answered yet.
#[derive(Default)]
pub(super) struct Questions(Mutex<VecDeque<Question>>);

/// What is asked.
struct Question {
    /// As JSON.
    id: Box<str>,
    /// The token that its progress is reported by, as JSON.
    token: Option<Box<str>>,
    /// The call that it is asked in, if that is certain.
    call: Option<u64>,
}

/// What a message on its way means for its session, once the server has it or if it never does.
pub(crate) enum Telling {
    Answers(Answering),
    Cancels(Cancelling),
}

impl Telling {
    /// The server has it.
    pub(crate) fn arrived(self) {
        match self {
            Self::Answers(answering) => answering.arrived(),
            Self::Cancels(cancelling) => cancelling.arrived(),
        }
    }
}

/// An answer on its way. Dropped before the server has it, its question is open again.
pub(crate) struct Answering(Option<(Arc<Session>, Question)>);

impl Questions {
    /// The client is asked, in this call if that is certain.
    pub(super) fn asked(&self, question: &Request<'_>, call: Option<u64>) {
        let params = Params::read(question.params).unwrap_or_default();
        let token = params.kept_token().map(Box::from);
        self.open(Question { id: question.id.as_json().into(), token, call });
    }

    fn open(&self, question: Question) {
        let mut open = self.0.lock();
        // A server that uses an id again has done with what it asked under it before.
        open.retain(|other| !other.has(&Id::from_json(&question.id)));
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

    /// The server does without an answer to this one. Says whether it was open.
    pub(super) fn taken_back(&self, id: &Id<'_>) -> bool {
        self.take(id).is_some()
    }

    /// Nobody waits any more for answers to those of this call. Their ids, as JSON.
    pub(super) fn over(&self, call: u64) -> Vec<Box<str>> {
        let mut open = self.0.lock();
        let (over, others) =
            std::mem::take(&mut *open).into_iter().partition(|question| question.call == Some(call));
        *open = others;
        VecDeque::into_iter(over).map(|question| question.id).collect()
    }

    /// Whether none is open.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn take(&self, id: &Id<'_>) -> Option<Question> {
        let mut open = self.0.lock();
        let at = open.iter().position(|question| question.has(id))?;
        open.remove(at)
    }

    /// Whether one of them is to be reported on under this token.
    pub(super) fn wants(&self, token: &str) -> bool {
        let same = |wanted: &str| Id::from_json(wanted).is(&Id::from_json(token));
        self.0.lock().iter().any(|question| question.token.as_deref().is_some_and(same))
    }
}

impl Question {
    fn has(&self, id: &Id<'_>) -> bool {
        Id::from_json(&self.id).is(id)
    }
}

impl Answering {
    /// The server has it.
    fn arrived(mut self) {
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
