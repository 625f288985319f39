//! What goes on behind a stream, from its beginning to its end.

mod posts;

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Method, Response, StatusCode};
use longshore_mcp::headers::EVENT_STREAM;
use longshore_mcp::revision::Revision;
use longshore_mcp::sse;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::MARK;
use super::open::{Letter, Registered, Status};
use crate::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::sessions::{self, Place, Use};
use crate::stack::pump::{self, PIECES, SILENCE, Said, To};
use crate::stack::respond::Body;
use crate::stack::{Authenticated, serve_one, serve_without_body};
use crate::streamed_body::Piece;
use crate::worker::{Reading, Worker};

/// How long a client may take for the handshake. Until then its stream is of no use to anybody.
const FIRST: Duration = Duration::from_secs(60);
/// How many of its calls may be under way. More wait until one is answered.
const MAX_CALLS: usize = 64;
/// How long a client may take to read what has come for it when its stream ends.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long to wait before what belongs to no call is asked for again: at first, and at most, since each time that it was
/// refused it is twice as long.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_AT_MOST: Duration = Duration::from_secs(30);

/// A stream, and the session behind it.
pub(super) struct Talk {
    worker: Rc<Worker>,
    /// Who asked for the stream.
    caller: Authenticated,
    /// Until there is a session, which has its own.
    place: Option<Place>,
    letters: mpsc::UnboundedReceiver<Letter>,
    /// Requests that wait until one of those under way is answered. How many, is bounded where they come in.
    waiting: VecDeque<Letter>,
    /// What the client reads.
    out: mpsc::Sender<Piece>,
    /// What it is to read: messages of all responses.
    messages: To,
    incoming: mpsc::Receiver<Said>,
    /// What it is to read next. Others wait until it does.
    next: Option<Bytes>,
    session: Option<HeaderValue>,
    /// Holds it open, if it is at this replica.
    held: Option<Use>,
    tasks: JoinSet<Done>,
    calls: usize,
    /// How much of what has no answer is being delivered.
    telling: usize,
    /// The handshake is under way.
    shaking: bool,
    /// The server is being told that the handshake is done, before it hears anything else.
    settling: bool,
    listens: bool,
    /// There is no session any more. What is under way is answered still.
    lost: bool,
    /// How long it is waited for before that is asked for again.
    again: Duration,
    _registered: Registered,
}

/// What became of a request to the path.
enum Done {
    /// The handshake was answered, to the request with this id.
    Shaken(Box<Response<Body>>, String),
    /// A call was answered, with this status.
    Call(StatusCode),
    /// Something that has no answer was delivered, or not.
    Told(StatusCode),
    /// The same of the end of the handshake.
    Settled(StatusCode),
    /// What belongs to no call comes no more, or never came.
    Heard(StatusCode),
}

/// Whether the stream goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    On,
    Over,
}

impl Talk {
    pub(super) fn new(
        worker: Rc<Worker>,
        caller: Authenticated,
        place: Place,
        registered: Registered,
        letters: mpsc::UnboundedReceiver<Letter>,
        out: mpsc::Sender<Piece>,
    ) -> Self {
        let (messages, incoming) = mpsc::channel(PIECES);
        let messages = To::new(&worker, &caller, messages);
        Self {
            worker,
            caller: caller.caller_alone(),
            place: Some(place),
            letters,
            waiting: VecDeque::new(),
            out,
            messages,
            incoming,
            next: None,
            session: None,
            held: None,
            tasks: JoinSet::new(),
            calls: 0,
            telling: 0,
            shaking: false,
            settling: false,
            listens: false,
            lost: false,
            again: AGAIN,
            _registered: registered,
        }
    }

    /// Lives until the client has gone, the session is over, or the replica sends clients away.
    pub(super) async fn run(mut self) {
        let mut sent_away = self.worker.shared.streams.sent_away();
        let mut changed = self.worker.shared.config_changed.subscribe();
        let first = Instant::now() + FIRST;
        let mut silence = Instant::now() + SILENCE;
        loop {
            let ends = *sent_away.borrow_and_update();
            let has_said = self.next.is_none() && self.incoming.is_empty();
            // What was posted by then is taken, and delivered, since the session is there still.
            let has_heard = self.lost || self.telling == 0 && self.letters.is_empty();
            if (ends || self.lost) && self.calls == 0 && self.waiting.is_empty() && has_said && has_heard {
                break;
            }
            let says = self.next.is_some();
            let going = tokio::select! {
                () = self.out.closed() => Going::Over,
                // A client that does not read holds up what it is to read, and nothing else.
                () = say(&self.out, &mut self.next), if says => Going::On,
                Some(said) = self.incoming.recv(), if !says => {
                    silence = Instant::now() + SILENCE;
                    self.next = Some(said.event());
                    Going::On
                }
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => {
                        self.done(done);
                        Going::On
                    }
                    Err(_) => Going::On,
                },
                Some(letter) = self.letters.recv(), if !self.shaking && !self.settling => self.take(letter),
                _ = sent_away.changed(), if !ends => Going::On,
                _ = changed.changed() => self.stay(),
                () = sleep_until(silence), if !says => {
                    silence = Instant::now() + SILENCE;
                    self.next = Some(Bytes::from_static(sse::KEEP_ALIVE.as_bytes()));
                    // Where the server has no stream of its own nothing else says so.
                    self.lost |= self.is_over();
                    Going::On
                }
                () = sleep_until(first), if self.session.is_none() && !self.shaking => Going::Over,
            };
            if going == Going::Over {
                break;
            }
        }
        self.end().await;
    }

    /// Whether the client may stay under the configuration that is in force by now.
    fn stay(&mut self) -> Going {
        // The session may end with the keys that were before.
        self.lost |= self.is_over();
        let principal = self.caller.principal().clone();
        match self.caller.another(Method::GET).once_more(&self.worker) {
            Ok(again) if *again.principal() == principal => {
                self.caller = again;
                Going::On
            }
            // A key that was revoked opens nothing any more, and keeps nothing open.
            Ok(_) | Err(_) => Going::Over,
        }
    }

    // === What the client says ===

    /// Begins the session. What else the client says waits for that.
    fn shake_hands(&mut self, letter: Letter, id: String) {
        let Letter { caller, body, receipt, room, .. } = letter;
        let caller = match self.within(caller) {
            Ok(caller) => caller,
            Err(refusal) => return receipt.refused(refusal),
        };
        receipt.taken().send(Status::ACCEPTED);
        // The session takes one of its own.
        self.place = None;
        (self.shaking, self.calls) = (true, self.calls + 1);
        let serving = serve_one(self.worker.clone(), caller, body, Reading::default());
        self.tasks.spawn_local(async move {
            let _room = room;
            Done::Shaken(Box::new(serving.await), id)
        });
    }

    /// The handshake was answered: the client hears of it, as of a call's answer.
    fn shaken(&mut self, response: Response<Body>, id: String) {
        self.shaking = false;
        self.session = response.headers().get(SESSION_ID).cloned();
        let session = self.session.as_ref().and_then(|id| id.to_str().ok());
        let (snapshot, principal) = (&self.caller.snapshot, self.caller.principal());
        self.held = session.and_then(|id| sessions::hold(&self.worker, snapshot, principal, id));
        if let Some(held) = &self.held {
            held.streams.put_in_one();
        }
        let (status, messages) = (response.status(), self.messages.clone());
        self.tasks.spawn_local(async move {
            pump::answer(response, &id, Revision::V2024_11_05, &messages).await;
            Done::Call(status)
        });
    }

    // === What the server says ===

    /// Asks for what belongs to no call.
    fn listen(&mut self, wait: Duration) {
        if std::mem::replace(&mut self.listens, true) {
            return;
        }
        let caller = self.about_session(Method::GET);
        let (worker, messages) = (self.worker.clone(), self.messages.clone());
        self.tasks.spawn_local(async move {
            sleep(wait).await;
            let response: Response<Body> = serve_without_body(worker, caller).await;
            let status = response.status();
            if status == StatusCode::OK {
                pump::messages(response, &messages).await;
            }
            Done::Heard(status)
        });
    }

    fn done(&mut self, done: Done) {
        let status = match done {
            Done::Shaken(response, id) => {
                self.shaken(*response, id);
                return;
            }
            Done::Call(status) => {
                self.calls -= 1;
                self.call_next();
                status
            }
            Done::Told(status) => {
                self.telling -= 1;
                status
            }
            Done::Settled(status) => {
                (self.telling, self.settling) = (self.telling - 1, false);
                // Its client has no other way to hear of it, as below, and cannot say again that the handshake is done.
                if self.session.is_some() && !self.is_lost(status) {
                    self.listen(Duration::ZERO);
                }
                status
            }
            Done::Heard(status) => {
                self.listens = false;
                // Its client has no other way to hear of it, so nobody else would ask again. Unless the server has no such
                // stream, or the session is over, which is looked at below.
                if status != StatusCode::METHOD_NOT_ALLOWED && !self.is_lost(status) {
                    let wait = if status == StatusCode::OK { AGAIN } else { self.again };
                    self.again = (wait * 2).min(AGAIN_AT_MOST);
                    self.listen(wait);
                }
                status
            }
        };
        self.lost |= self.is_lost(status);
    }

    /// Whether the session has ended, or gone elsewhere, or does so after what is under way.
    fn is_over(&self) -> bool {
        self.held.as_ref().is_some_and(|session| session.is_keyless() || session.streams.is_closed())
    }

    /// Whether a status says that there is no session any more.
    fn is_lost(&self, status: StatusCode) -> bool {
        self.session.is_some() && status == StatusCode::NOT_FOUND
    }

    /// A request about the session as a whole.
    fn about_session(&self, method: Method) -> Authenticated {
        let mut caller = self.caller.another(method);
        let headers = caller.request.headers_mut();
        for name in [SESSION_ID, LAST_EVENT_ID, PROTOCOL_VERSION] {
            headers.remove(name);
        }
        headers.remove(MARK);
        headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        if let Some(session) = &self.session {
            headers.insert(SESSION_ID, session.clone());
        }
        caller
    }

    /// Tells those whose messages wait why they are not taken, where it is not that the stream has ended.
    fn refuse_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        while let Ok(letter) = self.letters.try_recv() {
            waiting.push_back(letter);
        }
        for Letter { caller, receipt, .. } in waiting {
            if let Err(refusal) = self.within(caller) {
                receipt.refused(refusal);
            }
        }
    }

    /// The end of the stream is the end of the session.
    async fn end(mut self) {
        self.refuse_waiting();
        // A session that nobody hears of is ended by whoever opens it, unless it is open by now.
        while let Some(Ok(done)) = self.tasks.try_join_next() {
            if let Done::Shaken(response, _) = done {
                self.session = response.headers().get(SESSION_ID).cloned();
            }
        }
        // What has come is still said; what is said from now on is said to nobody.
        self.incoming.close();
        let last_words = async {
            while let Some(text) = self.next.take().or_else(|| self.incoming.try_recv().ok().map(Said::event))
            {
                if !pump::say(&self.out, text).await {
                    break;
                }
            }
        };
        // A client that reads a byte now and then keeps no session.
        let _ = timeout(LAST_WORDS, last_words).await;
        let ending = self.session.is_some().then(|| self.about_session(Method::DELETE));
        let worker = self.worker.clone();
        // A process that ends waits for who is connected, and for nothing else by then.
        let _connected = worker.shared.is_draining().then(|| self.out.clone());
        drop(self);
        if let Some(caller) = ending {
            serve_without_body(worker, caller).await;
        }
    }
}

/// Says what is to be said next, when there is room for it.
async fn say(out: &mpsc::Sender<Piece>, next: &mut Option<Bytes>) {
    if let Ok(room) = out.reserve().await
        && let Some(text) = next.take()
    {
        room.send(Ok(text));
    }
}
