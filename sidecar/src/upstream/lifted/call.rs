//! One call, from the client's request to the server's answer, with everything that the server asks in between.
//!
//! It runs as a task of its own, on the thread on which it began: while it waits for its client there is no request
//! that it could belong to. A client that goes away cancels it, unless it has been asked something: then it is waited
//! for, but not for ever.

use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::Method as HttpMethod;
use http::header::HeaderMap;
use longshore_mcp::capabilities::Need;
use longshore_mcp::envelope::{self, Id, Message, Notification, Outcome, Request, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::logging;
use longshore_mcp::method::ServerRequest;
use longshore_mcp::parked::{Asked as Kept, Next, Parked};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, errors, names, questions, requests, responses};
use longshore_sessions::Ticket;
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::ticket::CallNumber;
use longshore_sidecar_config::Upstream;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until};

use super::asked::Asked;
use super::client::Client;
use super::failure::Failure as Unusable;
use super::parking::{PATIENCE, Place};
use super::session::Number;
use super::sessions::{Lease, Purpose};
use super::source::{Ending, Heard, read};
use super::{Lifted, hearing};
use crate::upstream::{Failure, Opener, Transport};

/// How long more questions are waited for after one, so that those that a server asks at once are put to the client at
/// once.
const GATHER: Duration = Duration::from_millis(100);
/// After how long without a word from the server a response begins all the same: proxies give up on those that are
/// silent, and a stream can be kept alive.
const SILENCE: Duration = Duration::from_secs(5);

/// Where a call goes, and for whom.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) lifted: Arc<Lifted>,
    pub(super) transport: Rc<Transport>,
    pub(super) upstream: Upstream,
    pub(super) opener: Opener,
    /// The newest revision with a handshake that the server speaks.
    pub(super) speaks: Revision,
}

/// The call.
struct Call {
    way: Way,
    lease: Lease,
    pair: Pair,
    number: Number,
    parked: Parked,
    /// Something that the server asked although its client did not declare that it can.
    lacks: Option<Need>,
    /// What the server is asked with: what came for it, and the request while its answer is read.
    inbox: (mpsc::Sender<Heard>, mpsc::Receiver<Heard>),
    reading: Option<Pin<Box<dyn Future<Output = ()>>>>,
    stage: Stage,
}

enum Stage {
    /// The client waits for the server.
    Serving(Client),
    /// The server has asked something, and may ask more until then.
    Gathering(Client, Instant),
    /// The server waits for the client, or has ended the call meanwhile.
    Waiting(Box<Waiting>),
    /// It is answered.
    Over,
}

/// A call that waits for its client.
struct Waiting {
    place: Place,
    back: mpsc::Receiver<Client>,
    until: Instant,
    /// How the server has ended the call in the meantime.
    ended: Option<Result<Bytes, Failure>>,
}

/// What happens next.
enum Event {
    Heard(Heard),
    Gone,
    Gathered,
    Silent,
    Back(Client),
    Expired,
}

/// Makes a call for a client.
pub(super) async fn run(way: Way, mut client: Client) {
    // Once more if the server has forgotten the session: then it has not seen the call.
    for _ in 0..2 {
        let asked = client.asked.clone();
        let begun = tokio::select! {
            begun = Call::begin(&way, &asked) => begun,
            () = client.gone() => return,
        };
        let mut call = match begun {
            Ok(call) => call,
            Err(failure) => return client.fail(failure).await,
        };
        match call.serve(client).await {
            Some(unserved) => client = unserved,
            None => return,
        }
    }
    client.fail(Unusable::Forgotten.into()).await;
}

impl Call {
    /// Finds it a session, and sends it.
    async fn begin(way: &Way, asked: &Asked) -> Result<Self, Failure> {
        let purpose = Purpose::of(asked, &way.upstream, &way.opener);
        let lease = way.lease(asked, purpose).await?;
        if asked.can_be_asked() || asked.level.is_some() {
            hearing::begin(&lease.session, &way.transport).await;
        }
        let pair = Pair { client: asked.revision, server: lease.session.revision };
        let (mut number, inbox) = lease.session.number(&asked.id)?;
        number.set_level(&way.transport, asked.level).await;
        let parked = Parked::new(pair, &number.number.to_string(), asked.can.clone());
        let mut call = Self {
            way: way.clone(),
            lease,
            pair,
            number,
            parked,
            lacks: None,
            inbox,
            reading: None,
            stage: Stage::Over,
        };
        call.send(asked)?;
        Ok(call)
    }

    /// Sends the request under the call's number.
    fn send(&mut self, asked: &Asked) -> Result<(), Failure> {
        let number = self.number.number.to_string();
        let request = requests::request(self.pair, Some(asked.method), asked.text(), &asked.client());
        let request = request.map_err(|_| Unusable::Internal)?;
        let request = names::with_id(&request, &number).map_err(|_| Unusable::Internal)?;
        let request = names::with_progress_token(&request, &number).map_err(|_| Unusable::Internal)?;
        let request = self.lease.session.request(HttpMethod::POST, request.into_owned().into());
        let request = traced(request, &asked.trace);
        let (session, transport, to) =
            (self.lease.session.clone(), self.way.transport.clone(), self.inbox.0.clone());
        self.reading =
            Some(Box::pin(async move { read(&session, &transport, (request, &number), to).await }));
        Ok(())
    }

    /// Goes on until it is answered or cancelled. Gives the client back if the server has not seen the call, since it
    /// has forgotten the session.
    async fn serve(&mut self, client: Client) -> Option<Client> {
        self.stage = Stage::Serving(client);
        let silence = Instant::now() + SILENCE;
        loop {
            let event = self.next(silence).await;
            match (event, std::mem::replace(&mut self.stage, Stage::Over)) {
                (Event::Heard(Heard::Over(Ending::Forgotten)), Stage::Serving(client))
                    if client.is_waiting() && !self.parked.is_waiting() =>
                {
                    self.lease.session.end();
                    return Some(client);
                }
                (Event::Heard(heard), stage) => self.heard(heard, stage).await,
                (Event::Gone, _) => self.abandon("the client has gone").await,
                (Event::Silent, Stage::Serving(mut client)) => {
                    client.begin();
                    self.stage = Stage::Serving(client);
                }
                (Event::Gathered, Stage::Gathering(client, _)) => self.ask(client).await,
                (Event::Back(client), Stage::Waiting(waiting)) => self.back(client, waiting).await,
                (Event::Expired, _) => self.abandon("the client did not answer in time").await,
                // They only come in these stages.
                (Event::Silent | Event::Gathered | Event::Back(_), stage) => self.stage = stage,
            }
            if matches!(self.stage, Stage::Over) {
                return None;
            }
        }
    }

    /// Waits for what happens next.
    async fn next(&mut self, silence: Instant) -> Event {
        let Self { inbox, reading, stage, .. } = self;
        let expired = |at: Instant| async move { sleep_until(at).await };
        loop {
            let reads = reading.is_some();
            let read = async {
                match reading.as_mut() {
                    Some(reading) => reading.await,
                    None => pending().await,
                }
            };
            let heard = inbox.1.recv();
            let is_over = match stage {
                Stage::Serving(client) => {
                    let (silent, waits) = (expired(silence), client.is_waiting());
                    tokio::select! {
                        biased;
                        () = client.gone() => return Event::Gone,
                        Some(heard) = heard => return Event::Heard(heard),
                        () = silent, if waits => return Event::Silent,
                        () = read, if reads => true,
                    }
                }
                Stage::Gathering(client, until) => tokio::select! {
                    biased;
                    () = client.gone() => return Event::Gone,
                    Some(heard) = heard => return Event::Heard(heard),
                    () = expired(*until) => return Event::Gathered,
                    () = read, if reads => true,
                },
                Stage::Waiting(waiting) => tokio::select! {
                    biased;
                    Some(client) = waiting.back.recv() => return Event::Back(client),
                    Some(heard) = heard => return Event::Heard(heard),
                    () = expired(waiting.until) => return Event::Expired,
                    () = read, if reads => true,
                },
                Stage::Over => return Event::Gone,
            };
            if is_over {
                *reading = None;
            }
        }
    }

    // === What the server says ===

    async fn heard(&mut self, heard: Heard, stage: Stage) {
        let (message, is_certain) = match heard {
            Heard::Own(message) => (message, true),
            Heard::Aside(message) => (message, false),
            Heard::Over(ending) => return self.end(Err(ending.into_failure()), stage).await,
        };
        let text = std::str::from_utf8(&message).unwrap_or_default();
        match envelope::read(&message) {
            Ok(Message::Response(response)) if is_certain && self.is_answer(&response) => {
                let message = message.clone();
                self.end(Ok(message), stage).await;
            }
            Ok(Message::Request(request)) => self.asked(&request, stage).await,
            Ok(Message::Notification(notification)) => {
                self.stage = stage;
                self.told(&notification, text, is_certain).await;
            }
            Ok(Message::Response(_)) | Err(_) => self.stage = stage,
        }
    }

    /// Whether a response is to this call. An error without an id can be to no other message of its stream.
    fn is_answer(&self, response: &Response<'_>) -> bool {
        match &response.id {
            Some(id) => id.as_json() == self.number.number.to_string(),
            None => matches!(response.outcome, Outcome::Error(_)),
        }
    }

    async fn asked(&mut self, request: &Request<'_>, stage: Stage) {
        let params = request.params.map(|params| params.get());
        if let Some(asks) = ServerRequest::parse(&request.method) {
            let need = questions::need(asks, params.unwrap_or("{}"));
            let can = match &stage {
                Stage::Serving(client) | Stage::Gathering(client, _) => Some(&client.asked.can),
                Stage::Waiting(_) | Stage::Over => None,
            };
            if let Some(need) = need
                && can.is_some_and(|can| !can.has(need))
            {
                self.lacks = Some(need);
            }
        }
        let asked = self.parked.asked(request.id, &request.method, params);
        self.stage = match (asked, stage) {
            (Kept::Answered(answer), stage) => {
                self.tell(&answer).await;
                stage
            }
            // Each question has those wait for a moment more that came before it.
            (Kept::Kept, Stage::Serving(client) | Stage::Gathering(client, _)) => {
                Stage::Gathering(client, Instant::now() + GATHER)
            }
            // It is put to the client when that comes back.
            (Kept::Kept, stage) => stage,
        };
    }

    async fn told(&mut self, notification: &Notification<'_>, text: &str, is_certain: bool) {
        let told = notifications::to_client(self.pair, &notification.method, text);
        let is_shared = !is_certain || !matches!(self.way.upstream, Upstream::StreamableHttp { .. });
        match told {
            Ok(Told::Subscriptions) => self.lease.session.deliver(text),
            Ok(Told::Cancels) => {
                if let Some(id) = names::cancelled_id(text) {
                    self.parked.withdrawn(Id::from_json(id));
                }
            }
            Ok(Told::Log(message)) => {
                let client = self.client();
                let level = client.as_ref().and_then(|client| client.asked.level);
                // What could be about several calls is about none.
                let is_ours = !is_shared || self.lease.session.has_one_call();
                if let Some(client) = self.client()
                    && is_ours
                    && logging::is_wanted(&message, level)
                {
                    client.event(&message).await;
                }
            }
            Ok(Told::On(message)) if notification.method.as_str() == "notifications/progress" => {
                let ours = names::reported_token(&message) == Some(&self.number.number.to_string());
                if let Some(client) = self.client()
                    && ours
                    && let Some(token) = client.asked.token.clone()
                    && let Ok(message) = names::with_reported_token(&message, &token)
                {
                    client.event(&message).await;
                }
            }
            Ok(Told::On(message)) if is_certain => {
                if let Some(client) = self.client() {
                    client.event(&message).await;
                }
            }
            Ok(Told::On(_) | Told::Nowhere) | Err(_) => {}
        }
    }

    /// The client, if it waits for the server.
    fn client(&mut self) -> Option<&mut Client> {
        match &mut self.stage {
            Stage::Serving(client) | Stage::Gathering(client, _) => Some(client),
            Stage::Waiting(_) | Stage::Over => None,
        }
    }

    // === The client is asked ===

    /// Puts what is open to the client, and waits for it.
    async fn ask(&mut self, mut client: Client) {
        if !self.parked.is_waiting() {
            // The server has taken it back.
            self.stage = Stage::Serving(client);
            return;
        }
        if !client.asked.method.may_need_input() {
            self.abandon("the client cannot be asked anything in this request").await;
            let why = format!(
                "the server asks its client something in {}, which revision {} does not allow there",
                client.asked.method.as_str(),
                self.pair.client
            );
            return client.refuse(Code::InternalError, &why).await;
        }
        match self.park(&client.asked) {
            Ok((waiting, result)) => {
                self.stage = Stage::Waiting(Box::new(waiting));
                client.result(&result).await;
            }
            Err(Failure::Lifted(Unusable::TooManyRounds(many))) => {
                self.abandon("the client was asked too often").await;
                client.refuse(Code::InternalError, &many.to_string()).await;
            }
            Err(failure) => {
                self.abandon("the client cannot be asked").await;
                client.fail(failure).await;
            }
        }
    }

    /// A place to wait at, and what the client is asked.
    fn park(&mut self, asked: &Asked) -> Result<(Waiting, String), Failure> {
        let snapshot = self.way.lifted.snapshot().ok_or(Unusable::Internal)?;
        let (mut bits, mut nonce) = ([0; 16], [0; 12]);
        getrandom::fill(&mut bits).map_err(|_| Unusable::Internal)?;
        getrandom::fill(&mut nonce).map_err(|_| Unusable::Internal)?;
        let (call, principal) = (CallNumber(bits), self.way.principal());
        let (to, back) = mpsc::channel(1);
        let place = self.way.lifted.parking.park(call, principal, to)?;
        let expires = SystemTime::now() + PATIENCE;
        let expires = expires.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let owner = self.way.lifted.me.clone();
        let ticket = Ticket { owner, call, principal, request: asked.digest(), expires };
        let state = snapshot.keyring.seal_ticket(&ticket, nonce).map_err(|_| Unusable::Internal)?;
        let info = self.lease.session.info.as_deref();
        let result = self.parked.round(&state, info).map_err(Unusable::TooManyRounds)?;
        Ok((Waiting { place, back, until: Instant::now() + PATIENCE, ended: None }, result))
    }

    /// The client is back.
    async fn back(&mut self, mut client: Client, mut waiting: Box<Waiting>) {
        if let Some(ended) = waiting.ended.take() {
            return self.finish(ended, client).await;
        }
        let can = client.asked.can.clone();
        let next = match self.parked.answered(client.asked.responses.as_deref(), can) {
            Ok(next) => next,
            Err(bad) => {
                waiting.place.wait_again();
                self.stage = Stage::Waiting(waiting);
                return client.refuse(Code::InvalidParams, &bad.to_string()).await;
            }
        };
        drop(waiting);
        self.lacks = None;
        self.number.set_level(&self.way.transport, client.asked.level).await;
        match next {
            Next::Tell(messages) => {
                self.stage = Stage::Serving(client);
                self.tell_all(&messages).await;
            }
            Next::AskAgain(messages) => {
                self.tell_all(&messages).await;
                self.ask(client).await;
            }
            Next::CallAgain => match self.call_again(&client.asked).await {
                Ok(()) => self.stage = Stage::Serving(client),
                Err(failure) => client.fail(failure).await,
            },
            Next::Declined(error) => client.error(&error).await,
        }
    }

    /// Makes the call from the start in the same session, in which the server knows what its user has done.
    async fn call_again(&mut self, asked: &Asked) -> Result<(), Failure> {
        (self.number, self.inbox) = self.lease.session.number(&asked.id)?;
        self.number.set_level(&self.way.transport, asked.level).await;
        self.parked.sent_again(&self.number.number.to_string());
        self.send(asked)
    }

    // === The end ===

    /// The server has ended the call.
    async fn end(&mut self, ended: Result<Bytes, Failure>, stage: Stage) {
        match stage {
            Stage::Serving(client) | Stage::Gathering(client, _) => self.finish(ended, client).await,
            Stage::Waiting(mut waiting) => {
                // The first end is the one: after its answer a server's stream ends too.
                if waiting.ended.is_none() && !self.parked.has_ended() {
                    waiting.ended = Some(ended);
                }
                self.stage = Stage::Waiting(waiting);
            }
            Stage::Over => {}
        }
    }

    /// Answers the client.
    async fn finish(&mut self, ended: Result<Bytes, Failure>, mut client: Client) {
        self.reading = None;
        let message = match ended {
            Ok(message) => message,
            Err(failure) => {
                if matches!(failure, Failure::Lifted(Unusable::Forgotten)) {
                    self.lease.session.end();
                }
                return client.fail(failure).await;
            }
        };
        let text = std::str::from_utf8(&message).unwrap_or_default();
        let Ok(Message::Response(response)) = envelope::read(&message) else {
            return client.fail(Unusable::Nonsense.into()).await;
        };
        if let Some(need) = self.lacks
            && has_failed(&response)
        {
            return client.error(&errors::lacking(need, self.pair.down())).await;
        }
        let hints = Hints { server_info: self.lease.session.info.as_deref(), ..Hints::default() };
        let asked = responses::Asked {
            id: &client.asked.id,
            method: Some(client.asked.method),
            uri: client.asked.uri.as_deref(),
        };
        match responses::response(self.pair, &asked, &response, text, &hints) {
            Ok(responses::Answer::Message(answer)) => {
                let code = match response.outcome {
                    // As it is for the client, which may be another one than the server's.
                    Outcome::Error(_) => names::get(&answer, &["error"]).and_then(error::code_of),
                    Outcome::Result(_) => None,
                };
                let status = code
                    .map_or(200, |code| longshore_mcp::matrix::status_of_error(code, client.asked.revision));
                let answer = answer.into_owned();
                client.answer(status, answer).await;
            }
            Ok(responses::Answer::Visit(urls)) => match self.parked.has_to_visit(&urls) {
                Ok(()) => self.ask(client).await,
                Err(error) => client.error(&error).await,
            },
            // No server of these revisions has such results.
            Ok(responses::Answer::InputRequired(_)) => client.fail(Unusable::Nonsense.into()).await,
            Err(untranslatable) => client.refuse(Code::InternalError, &untranslatable.to_string()).await,
        }
    }

    /// Nobody waits any more: the server is told so.
    async fn abandon(&mut self, why: &str) {
        self.stage = Stage::Over;
        let can = longshore_mcp::capabilities::ClientCapabilities::default();
        let parked = std::mem::replace(&mut self.parked, Parked::new(self.pair, "0", can));
        self.tell_all(&parked.abandon(why)).await;
    }

    async fn tell_all(&mut self, messages: &[String]) {
        for message in messages {
            self.tell(message).await;
        }
    }

    async fn tell(&mut self, message: &str) {
        self.lease.session.tell(&self.way.transport, message).await;
    }
}

impl Way {
    /// A session for a request.
    pub(super) async fn lease(&self, asked: &Asked, purpose: Purpose) -> Result<Lease, Failure> {
        let bounds = self.lifted.bounds().ok_or(Unusable::Internal)?;
        let sessions = &self.lifted.sessions;
        let wanted = (asked, self.speaks);
        sessions.lease(&self.transport, &self.upstream, &self.opener, wanted, (purpose, bounds)).await
    }

    /// Whose call it is.
    pub(super) fn principal(&self) -> PrincipalDigest {
        match &self.opener {
            Opener::Own => PrincipalDigest::of(""),
            Opener::Client { principal, .. } => PrincipalDigest::of(principal),
        }
    }
}

/// Whether a call came to nothing, in either of the two ways to say so.
fn has_failed(response: &Response<'_>) -> bool {
    match response.outcome {
        Outcome::Error(_) => true,
        Outcome::Result(result) => names::get(result.get(), &["isError"]) == Some("true"),
    }
}

/// A request that goes on with a trace.
fn traced(mut request: http::Request<Bytes>, trace: &HeaderMap) -> http::Request<Bytes> {
    for (name, value) in trace {
        request.headers_mut().insert(name, value.clone());
    }
    request
}
