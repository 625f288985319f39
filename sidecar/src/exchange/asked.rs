//! What a client is asked in a call. A call that comes to nothing leaves nothing open: nobody waits for the answers any more,
//! and what the server says of them is not read.

use std::collections::VecDeque;

use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::params::Params;

use crate::sessions::Session;

/// How many questions of a call are known at most, which are the last ones. A session keeps no more of them.
const MOST: usize = 64;

/// The questions of a call, by their ids, as JSON. Which of them are open its session knows.
#[derive(Default)]
pub(super) struct Asked(VecDeque<Box<str>>);

impl Asked {
    /// The client is given this: a question, or that one need not be answered any more.
    pub(super) fn note(&mut self, session: &Session, said: &[u8]) {
        match envelope::read(said) {
            Ok(Message::Request(question)) => {
                session.is_asked(&question);
                if self.0.len() >= MOST {
                    self.0.pop_front();
                }
                self.0.push_back(question.id.as_json().into());
            }
            Ok(Message::Notification(cancelled)) => {
                let params = Params::read(cancelled.params).unwrap_or_default();
                if let Some(id) = params.request_id() {
                    session.take_back(&Id::from_json(id));
                }
            }
            _ => {}
        }
    }

    /// The call comes to nothing: what its client is told of the questions that it has not answered.
    pub(super) fn withdraw(&mut self, session: &Session) -> Vec<String> {
        let open = self.0.drain(..).filter(|id| session.take_back(&Id::from_json(id)));
        open.map(|id| withdrawn(&id)).collect()
    }

    /// The call is over. The server has done without the answers that are missing.
    pub(super) fn forget(&mut self, session: &Session) {
        // One without sessions may still be waiting for them: nothing else says whose they are.
        if session.is_known_to_server() {
            for id in self.0.drain(..) {
                session.take_back(&Id::from_json(&id));
            }
        }
    }
}

/// `notifications/cancelled` for a question.
fn withdrawn(id: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\
         \"params\":{{\"requestId\":{id},\"reason\":\"the call that it was asked in is over\"}}}}"
    )
}
