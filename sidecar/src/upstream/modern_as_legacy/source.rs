//! What comes back from the server, message by message, whichever form it has.

use std::collections::VecDeque;

use bytes::Bytes;
use http::StatusCode;
use longshore_mcp::envelope::{self, Id, Message, Response};

use super::Failure;
use crate::held::Coming;
use crate::upstream::source::{self, Unread};
use crate::upstream::{Answer, Broken, EDITABLE, Failure as Any, Form};

/// An answer that is being read.
pub(super) struct Source {
    pub(super) status: StatusCode,
    /// Whether it is a stream of events.
    pub(super) streams: bool,
    answer: source::Source,
    ready: VecDeque<String>,
    over: bool,
}

impl Source {
    pub(super) fn new(answer: Answer, coming: Coming) -> Result<Self, Any> {
        let Answer { status, body, lease, .. } = answer;
        let form = body.form();
        if status.is_success() && form == Form::Other {
            return Err(Failure::Nonsense.into());
        }
        let (streams, answer) = (form == Form::Events, source::Source::new(body, lease, coming));
        Ok(Self { status, streams, answer, ready: VecDeque::new(), over: false })
    }

    /// The next message. None: there are no more.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Any> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if self.over {
                return Ok(None);
            }
            let messages = if self.streams {
                self.answer.messages().await.map_err(unread)?
            } else {
                let whole = self.answer.whole(EDITABLE).await.map_err(unread)?;
                self.over = true;
                Some(vec![whole])
            };
            self.over |= messages.is_none();
            // What is no text is ignored.
            let text =
                |message: Bytes| String::from_utf8(message.into()).ok().filter(|text| !text.is_empty());
            self.ready.extend(messages.into_iter().flatten().filter_map(text));
        }
    }

    /// The answer to the request of this id, without what comes before it. None: there is none.
    pub(super) async fn answer(&mut self, id: &str) -> Result<Option<String>, Any> {
        while let Some(message) = self.next().await? {
            if is_answer(&message, id) {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Lets go of it. What follows the answer is read by whoever wants the connection next.
    pub(super) fn finish(self) {
        self.answer.into_tail().leave();
    }
}

/// Whether a message is the answer to the request of this id. An error without one is: a request that could not be read
/// has none, and nothing else was asked on this connection.
pub(super) fn is_answer(message: &str, id: &str) -> bool {
    match envelope::read_servers(message.as_bytes()) {
        Ok(Message::Response(response)) => answers(&response, id),
        _ => false,
    }
}

/// The same of a message that was read as a server's.
pub(super) fn answers(response: &Response<'_>, id: &str) -> bool {
    response.id.is_none_or(|got| got.answers(&Id::from_json(id)))
}

fn unread(unread: Unread) -> Any {
    match unread {
        Unread::NotHeld => Failure::NotHeld.into(),
        Unread::TooLarge => Failure::TooLarge.into(),
        Unread::Broken(Broken::Http(_)) => Failure::BrokenOff.into(),
        Unread::Broken(Broken::Call(failure)) => failure.into(),
        Unread::Broken(Broken::Made(failure)) => failure,
    }
}
