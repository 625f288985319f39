//! What goes on behind a stream, from its beginning to its end.

use std::rc::Rc;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderName, Method, Response, StatusCode};
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::headers::{EVENT_STREAM, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use longshore_mcp::method::{Method as McpMethod, NotificationMethod};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use super::MARK;
use super::open::{Letter, Registered, Status};
use crate::sessions::Place;
use crate::stack::pump::{self, PIECES, SILENCE};
use crate::stack::respond::{Body, Piece};
use crate::stack::{Authenticated, serve_one, serve_without_body};
use crate::worker::Worker;

/// How long a client may take for the handshake. Until then its stream is of no use to anybody.
const FIRST: Duration = Duration::from_secs(60);
/// How many of its calls may be under way. More wait until one is answered.
const MAX_CALLS: usize = 64;
/// How long to wait before what belongs to no call is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// A stream, and the session behind it.
pub(super) struct Talk {
    worker: Rc<Worker>,
    /// Who asked for the stream.
    caller: Authenticated,
    /// Until there is a session, which has its own.
    place: Option<Place>,
    letters: mpsc::Receiver<Letter>,
    /// What the client reads.
    out: mpsc::Sender<Piece>,
    /// What it is to read: messages of all responses.
    messages: mpsc::Sender<Bytes>,
    incoming: mpsc::Receiver<Bytes>,
    session: Option<HeaderValue>,
    tasks: JoinSet<Done>,
    calls: usize,
    listens: bool,
    _registered: Registered,
}

/// What became of a request to the path.
enum Done {
    /// A call was answered, with this status.
    Call(StatusCode),
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
        letters: mpsc::Receiver<Letter>,
        out: mpsc::Sender<Piece>,
    ) -> Self {
        let (messages, incoming) = mpsc::channel(PIECES);
        Self {
            worker,
            caller: caller.another(Method::GET),
            place: Some(place),
            letters,
            out,
            messages,
            incoming,
            session: None,
            tasks: JoinSet::new(),
            calls: 0,
            listens: false,
            _registered: registered,
        }
    }

    /// Lives until the client has gone, the session is over, or the replica is.
    pub(super) async fn run(mut self) {
        let mut draining = self.worker.shared.draining.subscribe();
        let mut changed = self.worker.shared.config_changed.subscribe();
        let first = Instant::now() + FIRST;
        let mut silence = Instant::now() + SILENCE;
        loop {
            let drains = *draining.borrow_and_update();
            if drains && self.calls == 0 {
                break;
            }
            let going = tokio::select! {
                () = self.out.closed() => Going::Over,
                // What is said before the answer to a message comes before the next message is taken.
                Some(message) = self.incoming.recv() => {
                    silence = Instant::now() + SILENCE;
                    self.say(sse::message(&message)).await
                }
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.done(done),
                    Err(_) => Going::On,
                },
                Some(letter) = self.letters.recv(), if self.calls < MAX_CALLS => self.take(letter).await,
                _ = draining.changed(), if !drains => Going::On,
                _ = changed.changed() => self.stay(),
                () = sleep_until(silence) => {
                    silence = Instant::now() + SILENCE;
                    self.say(sse::KEEP_ALIVE).await
                }
                () = sleep_until(first), if self.session.is_none() => Going::Over,
            };
            if going == Going::Over {
                break;
            }
        }
        self.end().await;
    }

    async fn say(&self, text: impl Into<Bytes>) -> Going {
        if pump::say(&self.out, text).await { Going::On } else { Going::Over }
    }

    /// Whether the client may stay under the configuration that is in force by now.
    fn stay(&mut self) -> Going {
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

    async fn take(&mut self, letter: Letter) -> Going {
        let Letter { caller, body, id, reply } = letter;
        // It may have waited while keys or rules changed; to leave it unanswered refuses it.
        let Some(caller) = self.within(caller) else { return Going::On };
        let Some(id) = id else {
            let initialized = is_initialized(&body);
            // Before the client says anything else.
            let response = serve_one(self.worker.clone(), caller, body).await;
            let status = response.status();
            // It may have gone.
            let _ = reply.send(Status::of(response).await);
            if initialized && status.is_success() {
                self.listen(Duration::ZERO);
            }
            return if self.is_lost(status) { Going::Over } else { Going::On };
        };
        let _ = reply.send(Status::ACCEPTED);
        if self.session.is_none() && is_handshake(&body) {
            return self.shake_hands(caller, body, id).await;
        }
        self.calls += 1;
        let (worker, messages) = (self.worker.clone(), self.messages.clone());
        self.tasks.spawn_local(async move {
            let response = serve_one(worker, caller, body).await;
            let status = response.status();
            pump::answer(response, &id, Revision::V2024_11_05, &messages).await;
            Done::Call(status)
        });
        Going::On
    }

    /// The same request as it would be at the MCP endpoint.
    fn within(&self, caller: Authenticated) -> Option<Authenticated> {
        let mut caller = caller.once_more(&self.worker).ok()?;
        let headers = caller.request.headers_mut();
        headers.remove(MARK);
        headers.remove(SESSION_ID);
        if let Some(session) = &self.session {
            headers.insert(HeaderName::from_static(SESSION_ID), session.clone());
        }
        (caller.principal() == self.caller.principal()).then_some(caller)
    }

    /// Begins the session.
    async fn shake_hands(&mut self, caller: Authenticated, body: Bytes, id: String) -> Going {
        // The session takes one of its own.
        self.place = None;
        let serving = serve_one(self.worker.clone(), caller, body);
        let response = tokio::select! {
            response = serving => response,
            // A session that nobody hears of is ended by whoever opens it.
            () = self.out.closed() => return Going::Over,
        };
        self.session = response.headers().get(SESSION_ID).cloned();
        let messages = self.messages.clone();
        self.calls += 1;
        let status = response.status();
        self.tasks.spawn_local(async move {
            pump::answer(response, &id, Revision::V2024_11_05, &messages).await;
            Done::Call(status)
        });
        Going::On
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

    fn done(&mut self, done: Done) -> Going {
        let status = match done {
            Done::Call(status) => {
                self.calls -= 1;
                status
            }
            Done::Heard(status) => {
                self.listens = false;
                // It may come again, unless the server has no such stream.
                if status == StatusCode::OK {
                    self.listen(AGAIN);
                }
                status
            }
        };
        if self.is_lost(status) { Going::Over } else { Going::On }
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
            headers.insert(HeaderName::from_static(SESSION_ID), session.clone());
        }
        caller
    }

    /// The end of the stream is the end of the session.
    async fn end(mut self) {
        // What has come is still said; what is said from now on is said to nobody.
        while let Ok(message) = self.incoming.try_recv() {
            if self.say(sse::message(&message)).await == Going::Over {
                break;
            }
        }
        let ending = self.session.is_some().then(|| self.about_session(Method::DELETE));
        let worker = self.worker.clone();
        drop(self);
        if let Some(caller) = ending {
            serve_without_body(worker, caller).await;
        }
    }
}

fn is_initialized(body: &[u8]) -> bool {
    matches!(
        envelope::read(body),
        Ok(Message::Notification(notification))
            if NotificationMethod::parse(&notification.method) == Some(NotificationMethod::Initialized)
    )
}

fn is_handshake(body: &[u8]) -> bool {
    matches!(envelope::read(body), Ok(Message::Request(request)) if request.is(McpMethod::Initialize))
}
