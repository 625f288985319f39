//! One session with the server, which serves requests of one principal whose clients can do the same.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{self, Id, Message, Outcome};
use longshore_mcp::ids::Numbers;
use longshore_mcp::level::Level;
use longshore_mcp::listen::{Offers, Streams};
use longshore_mcp::logging::{self, Levels};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::{Pair, Way, handshake, questions};
use longshore_sidecar_config::Upstream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Duration, Instant, timeout};

use super::asked::Asked;
use super::early::Early;
use super::failure::Failure as Unusable;
use super::greeting::Greeting;
use super::habits::Habits;
use super::hearing::{self, Deaf, Hearing};
use super::listening::Subscribing;
use super::source::{Heard, read};
use crate::upstream::letter::Within;
use crate::upstream::waiting::{Large, Receiver, Sender, channel};
use crate::upstream::{Failure, Hold, Letter, Opener, Post, Transport, forgotten, number};

/// How many calls may be under way in one session: each has an open connection of somebody.
const MAX_CALLS: usize = 1024;
/// How many messages wait for a call before the server has to wait too.
const WAITING: usize = 32;
/// How long the small messages may take that the sidecar sends on its own account.
pub(super) const ERRAND: Duration = Duration::from_secs(5);
/// How long a server is told of no level that has not answered to one in time. Each call would wait for it.
const SILENCE: Duration = Duration::from_secs(60);

/// The session.
pub(super) struct Session {
    pub(super) upstream: Upstream,
    /// Whose it is.
    pub(super) opener: Opener,
    /// What the server calls it, if it has sessions at all.
    id: Option<HeaderValue>,
    /// The revision that the server speaks in it.
    pub(super) revision: Revision,
    /// The revision of the clients whose requests it serves.
    client: Revision,
    /// What the server answered to the handshake: the result.
    pub(super) greeting: String,
    /// Who the server says that it is, as JSON.
    pub(super) info: Option<String>,
    /// What it tells of on its own account.
    pub(super) offers: Offers,
    /// Whether it knows levels of log messages.
    logs: bool,
    /// What it costs at the server.
    hold: Mutex<Option<Hold>>,
    /// The server has forgotten it, or is about to be told that it is over.
    over: watch::Sender<bool>,
    /// The server has forgotten it.
    forgotten: AtomicBool,
    /// How its server is known to ask.
    pub(super) habits: Arc<Habits>,
    /// What it asks in no call.
    pub(super) early: Early,
    /// What the server is told for those who listen.
    pub(super) subscribing: Subscribing,
    /// Held while it is told a level of log messages.
    telling: tokio::sync::Mutex<()>,
    pub(super) hearing: Hearing,
    state: Mutex<State>,
}

/// What changes in it.
struct State {
    /// The calls under way, by their ids at the server, which are their progress tokens there too.
    calls: Numbers<Sender<Heard>>,
    levels: Levels,
    /// Until when the server is told of no level.
    silent: Option<Instant>,
    streams: Streams,
    /// Who reads each of the streams.
    listeners: HashMap<u64, Sender<String>>,
}

/// Both ends of what comes for a call.
pub(super) type Inbox = (Sender<Heard>, Receiver<Heard>);

impl Large for Heard {
    fn size(&self) -> usize {
        match self {
            Self::Answer(message) | Self::Own(message) | Self::Aside(message) => message.len(),
            Self::Over(_) => 0,
        }
    }
}

/// A call's number in its session. It is taken back when the call is over, or this is dropped.
pub(super) struct Number {
    session: Arc<Session>,
    pub(super) number: u64,
    level: Option<Level>,
}

impl Session {
    /// Opens one for that client, with a server that speaks this revision, or an older one.
    pub(super) async fn open(
        transport: &Rc<Transport>,
        upstream: &Upstream,
        opener: Opener,
        asked: &Asked,
        speaks: Revision,
        habits: Arc<Habits>,
    ) -> Result<Arc<Self>, Failure> {
        let way = Way { from: asked.revision, to: speaks };
        // All else in it was looked at before.
        let first = number().to_string();
        let greeting = handshake::greet(&first, way, &asked.client()).map_err(|_| Unusable::Capabilities)?;
        let (answer, hold) = transport.open(upstream, opener.clone().alone(), Post::of(greeting)).await?;
        let id = answer.also.session();
        let greeting = match Greeting::of(answer, transport.coming_for(&opener), &first).await {
            Ok(greeting) => greeting,
            Err(failure) => {
                // It is open at the server all the same.
                if let Some(id) = id {
                    farewell(transport, upstream, id, speaks).await;
                }
                return Err(failure);
            }
        };
        let Greeting { text: greeting, revision, info, offers, logs } = greeting;
        let asks = asked.can_be_asked() && !opener.shares_process();
        let can = if asks { asked.can.clone() } else { ClientCapabilities::default() };
        let session = Arc::new(Self {
            upstream: upstream.clone(),
            opener,
            id,
            revision,
            client: asked.revision,
            info,
            offers,
            logs,
            hold: Mutex::new(Some(hold)),
            over: watch::Sender::new(false),
            forgotten: AtomicBool::new(false),
            habits,
            early: Early::new(can),
            subscribing: Subscribing::default(),
            telling: tokio::sync::Mutex::default(),
            hearing: Hearing::default(),
            state: Mutex::new(State {
                calls: Numbers::new(MAX_CALLS),
                levels: Levels::new(),
                silent: None,
                streams: Streams::new(),
                listeners: HashMap::new(),
            }),
            greeting,
        });
        // Many ask something as soon as they know. Over stdio and HTTP+SSE somebody has to listen by then; over Streamable
        // HTTP there need be no stream before.
        if asks && session.has_one_stream() {
            Box::pin(hearing::begin(&session, transport, hearing::SOON)).await;
        }
        // A strict server serves nothing in a session that it does not know to have begun.
        if let Err(failure) = session.hand_over(transport, handshake::INITIALIZED).await {
            session.close(transport).await;
            return Err(failure);
        }
        if asks {
            Box::pin(hearing::begin(&session, transport, Duration::ZERO)).await;
        }
        Ok(session)
    }

    /// What its two sides speak.
    pub(super) fn pair(&self) -> Pair {
        Pair { client: self.client, server: self.revision }
    }

    /// A message in it.
    fn letter(&self, body: impl Into<Bytes>) -> Letter {
        Post::of(body).within(self.within())
    }

    /// Whether its server knows it from others.
    pub(super) fn is_named(&self) -> bool {
        self.id.is_some()
    }

    /// What its server knows it by.
    pub(super) fn within(&self) -> Within {
        (self.id.clone(), self.revision)
    }

    /// Sends a message that has no answer: a refusal of a question, or news of a call.
    pub(super) async fn tell(&self, transport: &Transport, text: &str) {
        if let Err(why) = self.hand_over(transport, text).await {
            // What it was about ends, or goes on, by itself.
            tracing::debug!(%why, "the server could not be told something within its session");
        }
    }

    /// Sends a message that has no answer, and that the server waits for. One that takes its time to say that it has it may
    /// go on by then.
    async fn hand_over(&self, transport: &Transport, text: &str) -> Result<(), Failure> {
        let sent = timeout(ERRAND, self.hand_over_patiently(transport, text)).await;
        sent.unwrap_or_else(|_| {
            tracing::debug!("the server does not say whether it has what it was told");
            Ok(())
        })
    }

    /// The same, however long it takes.
    pub(super) async fn hand_over_patiently(&self, transport: &Transport, text: &str) -> Result<(), Failure> {
        let answer = transport.send(&self.upstream, self.letter(text.to_owned())).await?;
        let status = answer.status;
        if !status.is_success() {
            return Err(Unusable::Status(status.as_u16()).into());
        }
        // There is nothing in it, so the connection is good for the next message.
        answer.lease.give_back();
        Ok(())
    }

    /// Answers what the server asks where nobody can be asked.
    pub(super) async fn refuse(&self, transport: &Transport, question: &envelope::Request<'_>) {
        let answer = questions::outside_of_calls(self.pair().down(), question.id, &question.method);
        self.tell(transport, &answer).await;
    }

    /// Sends a request of the sidecar's own, and says whether the server did as it says, if it has answered in time.
    pub(super) async fn ask(
        &self,
        transport: &Transport,
        text: impl FnOnce(&str) -> String,
    ) -> Result<bool, Elapsed> {
        timeout(ERRAND, self.ask_patiently(transport, text)).await.map(|takes| takes == Some(true))
    }

    /// The same, however long it takes. `None`: it does not say, or does not do it only for now.
    pub(super) async fn ask_patiently(
        &self,
        transport: &Transport,
        text: impl FnOnce(&str) -> String,
    ) -> Option<bool> {
        let (to, mut heard) = channel(WAITING);
        let id = Self::errand();
        let letter = self.letter(text(&id));
        let mut deaf = Deaf::default();
        let answer = async {
            loop {
                let message = match heard.recv().await {
                    Some(Heard::Answer(message)) => {
                        let Ok(Message::Response(response)) = envelope::read(&message) else { return None };
                        return Some(matches!(response.outcome, Outcome::Result(_)));
                    }
                    Some(Heard::Own(message)) => message,
                    _ => return None,
                };
                match envelope::read(&message) {
                    Ok(Message::Request(question)) => {
                        if self.has_one_stream() {
                            self.asked(transport, message.clone(), &question, &mut deaf).await;
                        } else {
                            self.refuse(transport, &question).await;
                        }
                    }
                    Ok(Message::Notification(_)) if self.has_one_stream() => {
                        self.aside(message.clone(), &mut deaf).await;
                    }
                    // What it answers to somebody else says nothing of this.
                    _ => {}
                }
            }
        };
        let asking = self.meanwhile(transport, read(self, transport, letter, &id, to));
        let (is_for_now, said) = tokio::join!(asking, answer);
        said.filter(|takes| *takes || !is_for_now)
    }

    /// Whether all that the server says has one stream, and the newest request seems to be what it is about: it may be a call
    /// also where that is the sidecar's own.
    fn has_one_stream(&self) -> bool {
        !matches!(self.upstream, Upstream::StreamableHttp { .. })
    }

    /// An id for a request of the sidecar's own, as JSON. No call has the same: theirs are from the same numbers.
    fn errand() -> String {
        number().to_string()
    }

    /// A number for a call, and both ends of what comes for it.
    pub(super) fn number(self: &Arc<Self>, id: &str) -> Result<(Number, Inbox), Failure> {
        let (to, heard) = channel(WAITING);
        let number = number();
        self.state.lock().calls.give_as(number, to.clone(), id).map_err(|_| Unusable::Busy)?;
        Ok((Number { session: self.clone(), number, level: None }, (to, heard)))
    }

    /// Where a call hears what comes for it.
    fn inbox_of(&self, number: &str) -> Option<Sender<Heard>> {
        self.state.lock().calls.owner(Id::from_json(number)).map(|(inbox, _)| inbox.clone())
    }

    /// Gives a message to the call that has this progress token. What does not fit is dropped: it is only news.
    pub(super) async fn report(&self, token: &str, message: Bytes, deaf: &mut Deaf) {
        if let Some(inbox) = self.inbox_of(token) {
            deaf.give(inbox, Heard::Own(message)).await;
        }
    }

    /// Whether any call is under way.
    pub(super) fn has_calls(&self) -> bool {
        !self.state.lock().calls.is_empty()
    }

    /// Gives a message to the only call under way, unless it takes something back that waits for one. Says whether there is
    /// one that has room for it.
    pub(super) async fn aside(&self, message: Bytes, deaf: &mut Deaf) -> bool {
        if self.early.withdraw(&message) {
            return true;
        }
        let inbox = self.state.lock().calls.only().cloned();
        match inbox {
            Some(inbox) => deaf.give(inbox, Heard::Aside(message)).await,
            None => false,
        }
    }

    /// Whether no other call is under way.
    pub(super) fn has_one_call(&self) -> bool {
        self.state.lock().calls.len() == 1
    }

    /// Whether the server has forgotten the session, if it answers with this status in it.
    pub(super) async fn is_forgotten(
        &self,
        transport: &Transport,
        method: &Method,
        status: StatusCode,
    ) -> bool {
        self.id.is_some() && forgotten::is_forgotten(method, status, true, self.ping(transport)).await
    }

    /// Pings the server in it. None: there is no answer.
    async fn ping(&self, transport: &Transport) -> Option<StatusCode> {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, Self::errand());
        match timeout(ERRAND, transport.send(&self.upstream, self.letter(ping))).await {
            Ok(Ok(answer)) => Some(answer.status),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// The server may have forgotten which level of log messages it was told.
    pub(super) fn forget_levels(&self) {
        self.state.lock().levels.untold();
    }

    // === Subscriptions ===

    /// The streams of those who listen.
    pub(super) fn with_streams<T>(
        &self,
        change: impl FnOnce(&mut Streams, &mut HashMap<u64, Sender<String>>) -> T,
    ) -> T {
        let mut state = self.state.lock();
        let State { streams, listeners, .. } = &mut *state;
        change(streams, listeners)
    }

    // === The end ===

    /// The server has forgotten it.
    pub(super) fn end(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
        self.leave();
    }

    /// Nobody begins anything in it any more. The server is told when nobody uses it.
    pub(super) fn leave(&self) {
        self.over.send_replace(true);
        self.hearing.end();
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Returns when it is over.
    pub(super) async fn ended(&self) {
        // It lives as long as this does.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Ends it, and tells the server so.
    pub(super) async fn close(&self, transport: &Transport) {
        self.leave();
        // What it costs is given back in any case.
        let hold = self.hold.lock().take();
        if !self.forgotten.load(Ordering::Relaxed) {
            self.give_up_early(transport).await;
            if let Some(id) = self.id.clone() {
                farewell(transport, &self.upstream, id, self.revision).await;
            }
        }
        drop(hold);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.hearing.end();
    }
}

// === impl Number ===

impl Number {
    /// Has the server send log messages of this level, at least while the call is under way.
    pub(super) async fn set_level(&mut self, transport: &Transport, level: Option<Level>) {
        if !self.session.logs {
            return;
        }
        // Whoever wants a level waits until the server has heard what another call wants.
        let _telling = match level {
            Some(_) => Some(self.session.telling.lock().await),
            None => None,
        };
        let tell = {
            let mut state = self.session.state.lock();
            state.levels.end(self.level.take());
            self.level = level;
            let tell = state.levels.begin(level);
            if tell.is_some() && state.silent.is_some_and(|until| Instant::now() < until) {
                state.levels.untold();
                return;
            }
            tell
        };
        let Some(level) = tell else { return };
        let mut untold = Untold(Some(&self.session));
        // Boxed, since few calls want this, and all would be as large as if they did.
        let done = Box::pin(self.session.ask(transport, |id| logging::set_level(id, level))).await;
        if done == Ok(true) {
            untold.0 = None;
        } else {
            self.session.state.lock().silent = done.is_err().then(|| Instant::now() + SILENCE);
            tracing::debug!(%level, "the server could not be told a level of log messages");
        }
    }
}

/// A level that the server is being told. Unless it is taken out, the server was not told: the call may have been given up
/// meanwhile.
struct Untold<'a>(Option<&'a Session>);

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.0 {
            session.state.lock().levels.untold();
        }
    }
}

impl Number {
    /// The call is over at the server.
    pub(super) fn end(&mut self) {
        let mut state = self.session.state.lock();
        state.calls.take(Id::from_json(&self.number.to_string()));
        state.levels.end(self.level.take());
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.end();
    }
}

/// Tells the server that a session is over.
async fn farewell(transport: &Transport, upstream: &Upstream, id: HeaderValue, revision: Revision) {
    // Whether it ends sessions on request is the server's business; many do not.
    let _ = timeout(ERRAND, transport.send(upstream, Letter::End(id, revision))).await;
}
