//! The client's end of an exchange. It can go away at any time, and nothing else changes then, unless a process is only
//! begun for it.

use std::future::pending;

use bytes::Bytes;
use futures::future::OptionFuture;
use http::{Response, StatusCode};
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::sse;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::asked::{self, Asked};
use super::deadline::Deadline;
use super::{Call, Edit, listen, request};
use crate::refusal::{self, ErrorResponse, Refusal};
use crate::sessions::{Cancellation, Session};
use crate::stack::respond::{self, Body, End};
use crate::streamed_body::{BrokenOff, Piece};
use crate::streams::{Refused, Streams, Writer};
use crate::upstream;

/// How long a client waits for its answer before its response begins as a stream of events: from then on it has an id
/// to come back with if its connection breaks. Most answers come sooner, and are spared the stream.
const MOMENT: Duration = Duration::from_secs(1);
/// How many pieces of a message wait for a slow client before the server has to wait too. Each may be as large as what is
/// read from a connection at once.
const PIECES: usize = 1;
/// How long a client may take to take an error.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The client's end.
pub(crate) struct Client {
    state: State,
    /// When the response begins, whatever is in it.
    moment: Option<Instant>,
    /// Something of the server's has been given.
    given: bool,
    /// What it was asked.
    asked: Asked,
    /// Where it says that it does not want the answer any more, if it can.
    cancellation: Option<Cancellation>,
}

enum State {
    /// It waits for the head of the response.
    Waiting(oneshot::Sender<Response<Body>>),
    /// It reads events, or comes back for them.
    Events(Writer),
    /// It reads a message in pieces.
    Json(mpsc::Sender<Piece>, End),
    /// It has everything, or has gone.
    Done,
}

/// What a client that has gone leaves to its server.
enum Leaves {
    /// All of it: nobody else has any use for the call.
    Call,
    /// Questions that it will never read, by their ids.
    Questions(Vec<Box<str>>),
}

impl Client {
    pub(super) fn new(call: &Call, reply: oneshot::Sender<Response<Body>>, now: Instant) -> Self {
        let session = call.session.as_ref().filter(|_| matches!(call.edit, Edit::Pass | Edit::Filter(_)));
        let polls = session.is_some_and(|session| listen::polls(&call.snapshot, session));
        let id = call.id.as_deref().map(Id::from_json);
        let cancellation = session.zip(id).map(|(session, id)| session.cancellation(&id));
        Self {
            state: State::Waiting(reply),
            moment: polls.then(|| now + MOMENT),
            given: false,
            asked: Asked::default(),
            cancellation,
        }
    }

    /// Waits for the server until the deadline, or until the call is cancelled, or is of no use any more. If that takes
    /// longer than a moment, the response begins meanwhile.
    pub(super) async fn wait<T>(
        &mut self,
        call: &Call,
        deadline: Deadline,
        mut what: impl Future<Output = T> + Unpin,
    ) -> Result<T, Refusal> {
        if let Some(moment) = self.moment.filter(|moment| *moment < deadline.at()) {
            if let Ok(done) = timeout_at(moment, &mut what).await {
                return Ok(done);
            }
            self.begin(call)?;
        }
        loop {
            let cancelled = OptionFuture::from(self.cancellation.as_ref().map(|cancelled| cancelled.heard()));
            let leaves = async {
                match &mut self.state {
                    State::Waiting(reply) if call.opens_process() => {
                        reply.closed().await;
                        Leaves::Call
                    }
                    State::Events(writer) => Leaves::Questions(writer.lost_questions().await),
                    _ => pending().await,
                }
            };
            let questions = tokio::select! {
                biased;
                done = deadline.within(&mut what) => return done,
                Some(()) = cancelled => return Err(Refusal::Cancelled),
                leaves = leaves => match leaves {
                    Leaves::Call => return Err(Refusal::Cancelled),
                    Leaves::Questions(questions) => questions,
                },
            };
            self.refuse_questions(call, &questions);
        }
    }

    /// Whether it has cancelled the call, and the server does not know.
    pub(super) fn is_unheard(&self) -> bool {
        self.cancellation.as_ref().is_some_and(Cancellation::is_untold)
    }

    /// Why the call has failed, as the client hears it: what it has cancelled a server has not to answer, and may end its
    /// response as it likes.
    pub(super) fn cause(&self, refusal: Refusal) -> Refusal {
        let is_cancelled = self.cancellation.as_ref().is_some_and(Cancellation::is_said);
        match refusal {
            Refusal::ServerLost | Refusal::ServerNonsense | Refusal::ServerStatus { .. } if is_cancelled => {
                Refusal::Cancelled
            }
            other => other,
        }
    }

    /// Tells the server which of its questions nobody will answer.
    fn refuse_questions(&self, call: &Call, questions: &[Box<str>]) {
        let Some(session) = &call.session else { return };
        for answer in questions.iter().filter_map(|id| self.asked.unread(id, session)) {
            request::tell(&call.worker, &call.snapshot, session, answer);
        }
    }

    /// The server answers with events: so will the response, though the head of one is not waited for by itself. Those
    /// that are only begun when there is something to begin for are begun at once.
    pub(super) fn expect_events(&mut self, call: &Call, body: &upstream::Body) -> Result<(), Refusal> {
        if matches!(body, upstream::Body::Events(_)) {
            return self.begin(call);
        }
        if matches!(self.state, State::Waiting(_)) {
            self.moment.get_or_insert_with(|| Instant::now() + MOMENT);
        }
        Ok(())
    }

    /// Begins the response as events, if it can be.
    fn begin(&mut self, call: &Call) -> Result<(), Refusal> {
        self.moment = None;
        match self.begin_events(call) {
            // The answer may still come as a whole, and needs no stream then.
            Ok(()) | Err(Refused::Closed) => Ok(()),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Whether nothing that the server said was given yet, though the response may have begun, or the client gone by then.
    pub(crate) fn has_nothing(&self) -> bool {
        !self.given && !matches!(self.state, State::Json(..))
    }

    /// Gives the whole response. Says whether anybody was there to take it.
    pub(super) fn respond(&mut self, response: Response<Body>) -> bool {
        self.moment = None;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting(reply) => reply.send(response).is_ok(),
            State::Events(_) | State::Json(..) | State::Done => false,
        }
    }

    fn begin_events(&mut self, call: &Call) -> Result<(), Refused> {
        let (State::Waiting(_), Some(session)) = (&self.state, &call.session) else { return Ok(()) };
        let terms = listen::terms(&call.worker, &call.snapshot, session);
        let (writer, reader) = Streams::begin(session, terms, call.id.as_deref())?;
        if self.respond(respond::events(Body::Events(Box::new(reader)), None)) {
            self.state = State::Events(writer);
        } else {
            // Without an id nobody comes back for it.
            writer.discard();
        }
        Ok(())
    }

    /// Whether the response has begun as events.
    pub(super) fn reads_events(&self) -> bool {
        matches!(self.state, State::Events(_))
    }

    /// Gives an event before the answer.
    pub(super) fn event(&mut self, call: &Call, data: &[u8]) -> Result<(), Refusal> {
        self.begin_events(call)?;
        self.given = true;
        if let State::Events(writer) = &self.state {
            writer.write(data);
        }
        Ok(())
    }

    /// Gives it a question, certainly of this call if it `is_own`.
    pub(super) fn ask(
        &mut self,
        call: &Call,
        session: &Session,
        said: &[u8],
        is_own: bool,
    ) -> Result<(), Refusal> {
        let Ok(Message::Request(question)) = envelope::read(said) else {
            return self.event(call, said);
        };
        if is_own {
            self.asked.note(session, &question);
        }
        self.begin_events(call)?;
        self.given = true;
        match &self.state {
            State::Events(writer) => writer.ask(said, question.id.as_json()),
            // It had gone before there was an id to come back with.
            State::Done => self.refuse_questions(call, &[question.id.as_json().into()]),
            State::Waiting(_) | State::Json(..) => {}
        }
        Ok(())
    }

    /// The call is answered.
    pub(super) fn forget_questions(&mut self, call: &Call) {
        if let Some(session) = &call.session {
            self.asked.forget(session);
        }
    }

    /// The call comes to nothing: tells the client which questions it need not answer any more. Clients go on to ask their
    /// users otherwise.
    pub(super) fn withdraw_questions(&mut self, call: &Call, refusal: &Refusal) {
        let Some(session) = &call.session else { return };
        for id in self.asked.withdraw(session) {
            if let State::Events(writer) = &self.state {
                writer.write(asked::withdrawn(&id).as_bytes());
            }
            if let Some(answer) = asked::refused(&id, refusal, session) {
                request::tell(&call.worker, &call.snapshot, session, answer);
            }
        }
    }

    /// Gives the answer, as an event. It may be `shared`, all in one line. If there is no room to hold it until it is
    /// read: the event, for [`Self::only_event`].
    pub(super) fn answer(
        &mut self,
        call: &Call,
        data: &[u8],
        shared: Option<Bytes>,
    ) -> Result<Option<Bytes>, Refusal> {
        match (&self.state, &call.session) {
            (State::Waiting(_), Some(session)) => {
                // The only event: head and all in one piece, and nothing that would have to be kept.
                let id = session.streams.only()?;
                if let Some(data) = shared.and_then(|data| call.hold(data)) {
                    let (before, after) = sse::around(&id);
                    let body = Body::parts([before.into(), data, after.into()]);
                    self.respond(respond::events(body, None));
                    return Ok(None);
                }
                let event = Bytes::from(sse::numbered(&id, data));
                match call.hold(event.clone()) {
                    Some(event) => self.only_event(event),
                    None => return Ok(Some(event)),
                }
            }
            _ => self.last_event(data),
        }
        Ok(None)
    }

    /// Gives the answer where the response has begun as events.
    pub(super) fn last_event(&mut self, data: &[u8]) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Events(writer) => writer.answer(data),
            other => self.state = other,
        }
    }

    /// Gives the only event that there is.
    pub(super) fn only_event(&mut self, event: Bytes) {
        self.respond(respond::events(Body::whole(event), None));
    }

    /// Waits for a client that reads slowly until the deadline; one that is slower still is given up.
    pub(super) async fn room(&self, deadline: Deadline) {
        if let State::Events(writer) = &self.state
            && timeout_at(deadline.at(), writer.room()).await.is_err()
        {
            writer.lose_client();
        }
    }

    /// Begins a response of one message that comes in pieces.
    pub(super) fn begin_json(&mut self) {
        let ((pieces, body), end) = (mpsc::channel(PIECES), End::default());
        if self.respond(respond::json(Body::Message(body, end.clone()), None)) {
            self.state = State::Json(pieces, end);
        }
    }

    /// Gives a piece. Waits for a slow client until the deadline; one that is slower still is given up.
    pub(super) async fn piece(&mut self, piece: Bytes, deadline: Deadline) -> Result<(), Refusal> {
        let State::Json(pieces, _) = &self.state else { return Ok(()) };
        if timeout_at(deadline.at(), pieces.send(Ok(piece))).await.map_err(|_| Refusal::Unread)?.is_err() {
            self.state = State::Done;
        }
        Ok(())
    }

    /// Waits until a piece would not have to: until then none is read, which nobody has use for.
    pub(super) async fn piece_room(&self, deadline: Deadline) -> Result<(), Refusal> {
        let State::Json(pieces, _) = &self.state else { return Ok(()) };
        // One that has gone is noted when it is to be given something.
        timeout_at(deadline.at(), pieces.reserve()).await.map_err(|_| Refusal::Unread).map(drop)
    }

    /// All pieces were given.
    pub(super) fn whole(&mut self) {
        if let State::Json(_, end) = std::mem::replace(&mut self.state, State::Done) {
            end.set(true);
        }
    }

    /// Ends the response with an error, in whatever way is left, and says which status the client saw.
    pub(super) async fn refuse(&mut self, refusal: &Refusal, answer: ErrorResponse) -> StatusCode {
        let status = answer.status;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting(reply) => {
                // Nobody there is as good as somebody.
                let _ = reply.send(refusal::response(refusal, answer));
                status
            }
            State::Events(writer) => {
                writer.answer(answer.json.as_bytes());
                StatusCode::OK
            }
            State::Json(pieces, _) => {
                // Half a message cannot be turned into an error. The connection breaks, and the client sees that.
                let _ = timeout(LAST_WORDS, pieces.send(Err(BrokenOff))).await;
                StatusCode::OK
            }
            State::Done => status,
        }
    }
}
