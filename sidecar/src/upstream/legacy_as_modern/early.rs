//! What a server asks while no call is under way in which its client could be asked. Many ask for roots as soon as they are
//! greeted, and no second time. So that waits for the next such call, which begins with it: the server has its answers when
//! it hears of the call.
//!
//! Nothing else waits for that. A server that does not answer a list, or anything else, may be waiting for an answer itself:
//! after a moment it hears that nobody can be asked.

use std::pin::pin;

use bytes::Bytes;
use futures::future::join_all;
use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{self, Id, Message, Request};
use longshore_mcp::method::{ServerNotification, ServerRequest};
use longshore_mcp::params::Params;
use longshore_mcp::translate::questions;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::hearing::Deaf;
use super::session::Session;
use crate::upstream::Transport;

/// After how long without an answer a server may be waiting for one itself.
const MOMENT: Duration = Duration::from_secs(1);
/// How many may wait in a session, and how large each may be: they are kept beside what is counted.
const MANY: usize = 4;
const MOST: usize = 4 * 1024;

/// The questions of a session.
pub(super) struct Early {
    /// What its clients can be asked.
    can: ClientCapabilities,
    /// When the server was greeted.
    began: Instant,
    questions: Mutex<Questions>,
    /// One has come, or none is waited for any more.
    came: Notify,
}

#[derive(Default)]
struct Questions {
    /// As the server wrote them.
    waiting: Vec<Bytes>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// One has come.
    has_come: bool,
    /// There was a call in which its client could be asked.
    has_called: bool,
}

impl Early {
    pub(super) fn new(can: ClientCapabilities) -> Self {
        Self { can, began: Instant::now(), questions: Mutex::default(), came: Notify::new() }
    }

    /// Keeps a question, if it may wait. Says whether it does.
    fn keep(
        &self,
        asks: ServerRequest,
        question: &Request<'_>,
        message: &Bytes,
        is_in_call: impl FnOnce() -> bool,
    ) -> bool {
        let params = question.params.map_or("{}", |params| params.get());
        let can_be_asked = questions::need(asks, params).is_some_and(|need| self.can.has(need));
        let mut questions = self.questions.lock();
        // Later on a question is most likely about a call, also about one that is over. Roots are about none: a process that
        // was started again asks for them again. A call is counted before it takes what waits, so it is not missed here.
        let may_wait = !questions.has_called || asks == ServerRequest::RootsList && !is_in_call();
        let has_room = questions.waiting.len() < MANY && message.len() <= MOST;
        let keeps = can_be_asked && may_wait && has_room;
        if keeps {
            // Of two with the same id, who asked the first is gone.
            questions.waiting.retain(|waiting| !is_of(waiting, &question.id));
            questions.since.get_or_insert_with(Instant::now);
            questions.waiting.push(Bytes::copy_from_slice(message));
            questions.has_come = true;
            self.came.notify_waiters();
        }
        keeps
    }

    /// What waits, for a call in which its client can be asked.
    pub(super) fn take(&self) -> Vec<Bytes> {
        self.questions.lock().has_called = true;
        self.came.notify_waiters();
        self.give_up()
    }

    fn give_up(&self) -> Vec<Bytes> {
        let mut questions = self.questions.lock();
        questions.since = None;
        std::mem::take(&mut questions.waiting)
    }

    /// The server takes one of them back, if this says so. Says whether it does.
    pub(super) fn withdraw(&self, message: &[u8]) -> bool {
        let mut questions = self.questions.lock();
        if questions.waiting.is_empty() {
            return false;
        }
        let Ok(Message::Notification(told)) = envelope::read(message) else { return false };
        let params = Params::read(told.params).unwrap_or_default();
        let Some(id) = params.request_id().map(Id::from_json) else { return false };
        if ServerNotification::parse(&told.method) != Some(ServerNotification::Cancelled) {
            return false;
        }
        let before = questions.waiting.len();
        questions.waiting.retain(|waiting| !is_of(waiting, &id));
        if questions.waiting.is_empty() {
            questions.since = None;
        }
        questions.waiting.len() != before
    }

    /// Whether one of them has waited for so long.
    pub(super) fn has_waited(&self, patience: Duration) -> bool {
        self.questions.lock().since.is_some_and(|since| since.elapsed() >= patience)
    }

    /// Whether there was a call in which its client could be asked.
    pub(super) fn has_called(&self) -> bool {
        self.questions.lock().has_called
    }

    /// Whether the server may ask for roots soon.
    fn may_come(&self) -> bool {
        let questions = self.questions.lock();
        self.can.roots && !questions.has_called && !questions.has_come
    }
}

/// Whether a question has this id.
fn is_of(question: &[u8], id: &Id<'_>) -> bool {
    matches!(envelope::read(question), Ok(Message::Request(question)) if question.id.is(id))
}

impl Session {
    /// The server asks something on the session's own stream. While no call is under way that it could ask in, it asks on its
    /// own account.
    pub(super) fn note_question_aside(&self) {
        if self.has_calls() && self.early.has_called() {
            self.habits.note_aside();
        }
    }

    /// Has a question wait for a call, gives it to the only one under way, or refuses it.
    pub(super) async fn asked(
        &self,
        transport: &Transport,
        message: Bytes,
        question: &Request<'_>,
        deaf: &mut Deaf,
    ) {
        let is_ping = question.method.as_str() == "ping";
        if is_ping || !self.keep_early(question, &message) && !self.aside(message, deaf).await {
            self.refuse(transport, question).await;
        }
    }

    /// Has a question wait, if it may. Says whether it does.
    pub(super) fn keep_early(&self, question: &Request<'_>, message: &Bytes) -> bool {
        let Some(asks) = ServerRequest::parse(&question.method) else { return false };
        let is_at_once = asks == ServerRequest::RootsList && !self.early.has_called();
        let keeps = self.early.keep(asks, question, message, || self.has_calls());
        if keeps && is_at_once {
            self.habits.note_at_once();
        }
        keeps
    }

    /// Waits, in a session that was begun just now, for what its server asks when it is greeted.
    pub(super) async fn hear_early(&self) {
        let until = self.early.began + self.habits.patience();
        let may_come = || self.early.may_come() && self.hearing.goes_on();
        loop {
            let came = self.early.came.notified();
            if !may_come() {
                return;
            }
            if timeout_at(until, came).await.is_err() {
                break;
            }
        }
        // Where its stream has ended meanwhile it may have asked.
        if may_come() {
            self.habits.note_silent();
        }
    }

    /// Tells the server that nobody can be asked what waits.
    pub(super) async fn give_up_early(&self, transport: &Transport) {
        let refused = self.early.give_up().into_iter().map(|message| async move {
            if let Ok(Message::Request(question)) = envelope::read(&message) {
                self.refuse(transport, &question).await;
            }
        });
        join_all(refused).await;
    }

    /// Does what the server has to answer, which it may not do before it has an answer itself.
    pub(super) async fn meanwhile<T>(&self, transport: &Transport, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match timeout(MOMENT, work.as_mut()).await {
                Ok(done) => return done,
                Err(_) => self.give_up_early(transport).await,
            }
        }
    }
}
