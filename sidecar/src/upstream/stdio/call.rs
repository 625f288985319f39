//! The two ends of a call: who waits for it, and the conversation that answers it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use longshore_mcp::sse;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, timeout};

use super::{Control, Failure, Patience};

/// How many messages wait for whoever reads a call's events, before the process has to wait too.
const ASIDES: usize = 2;
/// How long a response is held back for the case that the answer is the first thing to come.
const SILENCE: Duration = Duration::from_secs(5);
/// The largest piece of a body: so that a large message is not copied as a whole by everybody on its way.
const PIECE: usize = 64 * 1024;

/// How a call ends: with the answer, or, for messages that have none, when it is written.
type Ending = Result<Option<Bytes>, Failure>;

/// The conversation's end.
pub(super) struct Caller {
    pub(super) number: u64,
    asides: mpsc::Sender<Bytes>,
    end: oneshot::Sender<Ending>,
}

/// The end of whoever waits. Dropped, it tells the conversation so.
pub(crate) struct Waiting {
    number: u64,
    asides: mpsc::Receiver<Bytes>,
    end: oneshot::Receiver<Ending>,
    control: mpsc::UnboundedSender<Control>,
}

/// What comes first.
pub(super) enum First {
    /// The answer.
    Answer(Bytes),
    /// There is none; the message is written.
    Written,
    /// Something else.
    Aside(Bytes),
    /// Nothing, for a while.
    Silence,
}

/// Both ends of a new call.
pub(super) fn pair(control: mpsc::UnboundedSender<Control>) -> (Caller, Waiting) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (aside, asides) = mpsc::channel(ASIDES);
    let (end, ending) = oneshot::channel();
    (Caller { number, asides: aside, end }, Waiting { number, asides, end: ending, control })
}

impl Caller {
    /// Ends the call.
    pub(super) fn end(self, ending: Ending) {
        // Whoever has gone needs no answer.
        let _ = self.end.send(ending);
    }

    /// Begins the response though there is nothing in it yet. A client that has cancelled a call may go away at any
    /// moment, and some of them cope with the end of a stream then and not with a late response.
    pub(super) fn begin(&self) {
        // Where there is no room it has begun.
        let _ = self.asides.try_send(Bytes::new());
    }

    /// Whether nobody waits any more.
    pub(super) fn is_gone(&self) -> bool {
        self.end.is_closed()
    }

    /// The way for what comes before the answer.
    pub(super) fn asides(&self) -> &mpsc::Sender<Bytes> {
        &self.asides
    }
}

impl Waiting {
    pub(super) async fn first(&mut self, patience: Patience) -> Result<First, Failure> {
        let aside = match patience {
            Patience::Endless => self.asides.recv().await,
            Patience::Short => match timeout(SILENCE, self.asides.recv()).await {
                Ok(aside) => aside,
                Err(_) => return Ok(First::Silence),
            },
        };
        match aside {
            Some(message) if message.is_empty() => Ok(First::Silence),
            Some(message) => Ok(First::Aside(message)),
            // The end is told before the other channel closes.
            None => match (&mut self.end).await {
                Ok(ending) => Ok(ending?.map_or(First::Written, First::Answer)),
                Err(_) => Err(Failure::Forgotten),
            },
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // First, so that a message that is being taken at this moment is known to be nobody's.
        self.end.close();
        // A conversation that has ended has forgotten it anyway.
        let _ = self.control.send(Control::Gone(self.number));
    }
}

/// What comes for a call, as server-sent events.
pub(crate) struct Events {
    waiting: Waiting,
    /// What is left of the event that is being read.
    rest: Bytes,
    over: bool,
}

impl Events {
    pub(super) fn new(waiting: Waiting, first: Option<Bytes>) -> Self {
        Self { waiting, rest: first.map_or_else(Bytes::new, event), over: false }
    }

    /// Whether everything has been read.
    pub(crate) fn is_over(&self) -> bool {
        self.over && self.rest.is_empty()
    }

    /// The next piece.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        while self.rest.is_empty() {
            if self.over {
                return Poll::Ready(None);
            }
            match ready!(self.waiting.asides.poll_recv(cx)) {
                Some(message) if message.is_empty() => {}
                Some(message) => self.rest = event(message),
                None => {
                    let ending = ready!(std::pin::Pin::new(&mut self.waiting.end).poll(cx));
                    self.over = true;
                    match ending {
                        Ok(Ok(Some(answer))) => self.rest = event(answer),
                        Ok(Ok(None)) => return Poll::Ready(None),
                        Ok(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                        Err(_) => return Poll::Ready(Some(Err(Failure::Forgotten))),
                    }
                }
            }
        }
        let length = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(self.rest.split_to(length))))
    }
}

/// A message as an event.
fn event(message: Bytes) -> Bytes {
    sse::message(&message).into()
}
