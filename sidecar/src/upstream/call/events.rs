//! What comes of a call, as a body of events.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use longshore_mcp::sse;

use super::{Failure, Next, Waiting};
use crate::held::{Came, Turn};
use crate::upstream::Hold;

/// The largest piece of a body: so that a large message is not copied as a whole by everybody on its way.
const PIECE: usize = 64 * 1024;

/// What comes for a call, as server-sent events.
pub(crate) struct Events {
    waiting: Waiting,
    /// What is left of the event that is being read.
    rest: Bytes,
    /// What counts it. Whoever reads counts what was read.
    came: Option<Came>,
    over: bool,
    /// Ends the call with this, where whoever goes takes it back.
    _hold: Option<Hold>,
}

impl Events {
    pub(in crate::upstream) fn new(waiting: Waiting, first: Option<Bytes>) -> Self {
        Self { waiting, rest: first.map_or_else(Bytes::new, event), came: None, over: false, _hold: None }
    }

    /// The same, of a call that ends with these.
    pub(in crate::upstream) fn holding(self, hold: Hold) -> Self {
        Self { _hold: Some(hold), ..self }
    }

    /// Whether everything has been read.
    pub(crate) fn is_over(&self) -> bool {
        self.over && self.rest.is_empty()
    }

    /// The answer's turn, once there is an answer.
    pub(in crate::upstream) fn take_turn(&mut self) -> Option<Turn> {
        self.came.as_mut()?.take_turn()
    }

    /// The next piece.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        while self.rest.is_empty() {
            if self.over {
                return Poll::Ready(None);
            }
            match ready!(self.waiting.desk.poll_next(cx)) {
                Next::Begin => {}
                Next::Aside(message) => self.rest = event(message),
                Next::End(ending, _, came) => {
                    (self.over, self.came) = (true, came);
                    match ending {
                        Ok(Some(answer)) => self.rest = event(answer),
                        Ok(None) => return Poll::Ready(None),
                        Err(failure) => return Poll::Ready(Some(Err(failure))),
                    }
                }
            }
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        if let Some(came) = &mut self.came {
            came.shrink(self.rest.len());
        }
        Poll::Ready(Some(Ok(piece)))
    }
}

/// A message as an event.
fn event(message: Bytes) -> Bytes {
    sse::message(&message).into()
}
