//! The way to a conversation with a server that is held in a task of its own, and reached by message: over the pipes of
//! a process, or with a stream of events that belongs to one session. Towards everybody else here it is as a server over
//! Streamable HTTP: a message is answered by JSON or, when something else comes before the answer, by events; a stream
//! tells what belongs to no call.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use longshore_mcp::level::Level;
use tokio::sync::{mpsc, oneshot};

use super::call::{self, Events, Failure, First, Patience, Waiting};
use super::message::{Command, Known};
use super::stdio::{Joining, Limits};
use super::{Also, Answer, Body, Hold};
use crate::held::Share;

/// How many messages of a conversation wait while others are being written.
const QUEUE: usize = 16;

/// What a session is called between here and the rest of the sidecar, and what the shim knows its process by.
pub(super) type Name = u128;

/// The way to a conversation that takes messages of this kind.
pub(super) struct Channel<L> {
    pub(super) letters: mpsc::Sender<L>,
    pub(super) control: mpsc::UnboundedSender<Control>,
}

/// What a conversation hears besides messages, and while it cannot take any. There are no more of them than there are
/// messages, streams, sessions and configurations.
pub(super) enum Control {
    /// Nobody waits for a call any more, for whatever reason: that takes it back.
    Gone(u64),
    /// Somebody listens to what belongs to no call of a session.
    Listen(Name, call::Caller),
    /// A session begins.
    Join(Joining),
    /// A call that stands alone does, and wants to hear so much of the log. The sidecar's own has no share.
    Enter(Name, Option<Level>, Option<Share>),
    /// A session ends. Who waits for that is told by the end of this.
    End(Name, Option<oneshot::Sender<()>>),
    /// All do. Who waits for that is told by the end of this.
    EndAll(oneshot::Sender<()>),
    /// Another conversation needs a process more than one without sessions.
    GiveWay,
    /// From now on these hold for a process that sessions of clients share.
    Limits(Limits),
}

/// What the conversation reads.
pub(super) type Ends<L> = (mpsc::Receiver<L>, mpsc::UnboundedReceiver<Control>);

impl<L> Channel<L> {
    /// The way to a conversation that is being begun, and the ends of it that the conversation reads.
    pub(super) fn new() -> (Self, Ends<L>) {
        let (letters, queue) = mpsc::channel(QUEUE);
        let (control, events) = mpsc::unbounded_channel();
        (Self { letters, control }, (queue, events))
    }

    /// Sends a message in a session.
    pub(super) async fn send(
        self,
        name: Name,
        body: Bytes,
        known: Option<&Known>,
        letter: impl FnOnce(Command) -> L,
    ) -> Result<Answer, Failure> {
        let (caller, waiting) = call::pair(self.control.clone());
        let command = Command::of(name, body, known, caller)?;
        let patience = command.patience();
        if self.letters.send(letter(command)).await.is_err() {
            return Ok(Answer::empty(StatusCode::NOT_FOUND));
        }
        drop(self);
        respond(waiting, patience).await
    }

    /// Listens to what belongs to no call of a session.
    pub(super) fn listen(self, name: Name) -> Answer {
        let (caller, waiting) = call::pair(self.control.clone());
        match self.control.send(Control::Listen(name, caller)) {
            Ok(()) => events(Events::new(waiting, None)),
            Err(_) => Answer::empty(StatusCode::NOT_FOUND),
        }
    }

    /// What ends a session, unless it is kept.
    pub(super) fn hold(&self, name: Name) -> Hold {
        let control = self.control.clone();
        // One that has ended already need not be ended.
        Hold::of(move || drop(control.send(Control::End(name, None))))
    }
}

impl<L> Clone for Channel<L> {
    fn clone(&self) -> Self {
        Self { letters: self.letters.clone(), control: self.control.clone() }
    }
}

/// The session of that id.
pub(super) fn name_of(id: &HeaderValue) -> Option<Name> {
    Name::from_str_radix(id.to_str().ok()?, 16).ok()
}

/// The answer to the first message of a session, with the session's id.
pub(super) async fn opened(name: Name, waiting: Waiting) -> Result<Answer, Failure> {
    let answer = respond(waiting, Patience::Endless).await?;
    let also = HeaderValue::try_from(format!("{name:032x}")).map_or(Also::Nothing, |mut id| {
        // Keeps it out of debug output.
        id.set_sensitive(true);
        Also::Begins(id)
    });
    Ok(Answer { also, ..answer })
}

async fn respond(mut waiting: Waiting, patience: Patience) -> Result<Answer, Failure> {
    Ok(match waiting.first(patience).await {
        Ok(First::Answer(message, matched, came)) => Answer::of(Body::answer(message, matched, came)),
        Ok(First::Written) => Answer::empty(StatusCode::ACCEPTED),
        Ok(First::Aside(message)) => events(Events::new(waiting, Some(message))),
        Ok(First::Silence) => events(Events::new(waiting, None)),
        Err(Failure::Forgotten) => Answer::empty(StatusCode::NOT_FOUND),
        Err(Failure::Status(status)) => Answer::empty(status),
        Err(failure) => return Err(failure),
    })
}

pub(super) fn events(events: Events) -> Answer {
    Answer::of(Body::Events(Box::new(events)))
}
