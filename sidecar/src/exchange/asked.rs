//! What a client is asked in a call. A call that comes to nothing leaves nothing open: nobody waits for the answers any more,
//! and what the server says of them is not read.

use longshore_mcp::envelope::{Id, Request};
use longshore_mcp::error::{self, Code};

use crate::refusal::Refusal;
use crate::sessions::Session;
use crate::upstream;

const OVER: &str = "the call that it was asked in is over";
const UNREAD: &str = "the client has not read it, and it is not kept any more";

/// The questions of a call: by which number its session knows those that certainly are, once there is one.
#[derive(Default)]
pub(super) struct Asked(Option<u64>);

impl Asked {
    /// The client is about to be asked this, and certainly in this call.
    pub(super) fn note(&mut self, session: &Session, question: &Request<'_>) {
        session.note_asked(question, *self.0.get_or_insert_with(upstream::number));
    }

    /// The call comes to nothing. The questions that the client has not answered, by their ids, as JSON.
    pub(super) fn withdraw(&mut self, session: &Session) -> Vec<Box<str>> {
        self.0.take().map(|call| session.ends_questions(call)).unwrap_or_default()
    }

    /// The call is over. The server has done without the answers that are missing.
    pub(super) fn forget(&mut self, session: &Session) {
        // One without sessions may still be waiting for them: nothing else says whose they are.
        if session.is_known_to_server() {
            self.withdraw(session);
        }
    }
}

impl Asked {
    /// The answer to a question that the client will never read, for a server that would wait for one. None, as for those
    /// of a call that comes to nothing: it was answered, or the server knows only by ids whose an answer is.
    pub(super) fn unread(&self, id: &str, session: &Session) -> Option<String> {
        let id = Id::from_json(id);
        // Of one that may not be of this call nothing was noted.
        let waits = session.is_known_to_server() && (self.0.is_none() || session.ends_question(&id));
        waits.then(|| error::response(Some(id), Code::InternalError, UNREAD, None))
    }
}

/// `notifications/cancelled` for a question: what the client is told.
pub(super) fn withdrawn(id: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\
         \"params\":{{\"requestId\":{id},\"reason\":\"{OVER}\"}}}}"
    )
}

/// The answer to a question, for a server that would wait for one; none if it has done with the call itself, or knows only
/// by ids whose an answer is.
pub(super) fn refused(id: &str, refusal: &Refusal, session: &Session) -> Option<String> {
    let waits = match refusal {
        Refusal::ServerLost
        | Refusal::ServerNonsense
        | Refusal::AnswerTooLarge { .. }
        | Refusal::AnswerNotHeld => session.is_known_to_server(),
        _ => false,
    };
    waits.then(|| error::response(Some(Id::from_json(id)), Code::InternalError, OVER, None))
}
