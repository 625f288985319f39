//! A session: one client of a revision with a handshake, whatever it came over.

mod asked;
mod notified;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longshore_mcp::Raw;
use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{Message, Request};
use longshore_mcp::level::Level;
use longshore_mcp::method::Method;
use longshore_mcp::params::Params;
use longshore_mcp::status::Problem;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::task::{AbortHandle, JoinSet};

use crate::answer;
use crate::call::{Call, Side};
use crate::failure::Failure;
use crate::message;
use crate::server::{Change, Server};
use crate::stream::{Answer, Stream};
use asked::Asked;

/// The most requests of one session that are served at once.
const MAX_RUNNING: usize = 256;
/// How many ids are remembered. An id may never come again in a session; one from so long ago is let through.
const MAX_IDS: usize = 1 << 16;
/// The most resources that a session may be subscribed to.
const MAX_SUBSCRIPTIONS: usize = 1024;

/// The session.
#[derive(Debug)]
pub(crate) struct Session {
    server: Arc<Server>,
    /// What belongs to no request of the client goes here.
    unrelated: Arc<Stream>,
    state: Mutex<State>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    client: ClientCapabilities,
    level: Level,
    subscriptions: BTreeSet<String>,
    ids: HashSet<String>,
    running: HashMap<String, AbortHandle>,
    asked: Asked,
    has_visited: bool,
    /// The tasks that it has begun.
    begun: Vec<String>,
}

/// How far the handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Fresh,
    Initialized,
    Ready,
}

/// A message that is not taken at all.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) problem: Problem,
    pub(crate) why: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialize<'a> {
    protocol_version: String,
    #[serde(borrow)]
    capabilities: &'a RawValue,
    #[serde(rename = "clientInfo")]
    _client_info: ClientInfo,
}

#[derive(Deserialize)]
struct ClientInfo {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "version")]
    _version: String,
}

#[derive(Deserialize)]
struct SetLevel {
    level: Level,
}

#[derive(Deserialize)]
struct At {
    uri: String,
}

impl Session {
    /// A session whose client has not said anything yet. It has to be ended by [`Self::end`].
    pub(crate) fn new(server: Arc<Server>, unrelated: Arc<Stream>) -> Arc<Self> {
        let state = State {
            phase: Phase::Fresh,
            client: ClientCapabilities::default(),
            level: Level::Debug,
            subscriptions: BTreeSet::new(),
            ids: HashSet::new(),
            running: HashMap::new(),
            asked: Asked::default(),
            has_visited: false,
            begun: Vec::new(),
        };
        let session =
            Arc::new(Self { server, unrelated, state: Mutex::new(state), tasks: Mutex::new(JoinSet::new()) });
        let changes = session.server.changes();
        session.tasks.lock().spawn(session.clone().tell(changes));
        session
    }

    /// Ends it, with all that it is doing.
    pub(crate) fn end(&self) {
        self.tasks.lock().abort_all();
        self.unrelated.close();
    }

    /// Whether the handshake has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.lock().phase != Phase::Fresh
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().running.is_empty() && !self.unrelated.is_read()
    }

    pub(crate) fn unrelated(&self) -> &Arc<Stream> {
        &self.unrelated
    }

    /// It has begun this task.
    pub(crate) fn add_task(&self, name: &str) {
        let mut state = self.state.lock();
        if state.begun.len() >= crate::tasks::MAX_TASKS {
            // The server has forgotten it long since.
            state.begun.remove(0);
        }
        state.begun.push(name.to_owned());
    }

    /// The tasks that it has begun, the first one first.
    pub(crate) fn tasks(&self) -> Vec<String> {
        self.state.lock().begun.clone()
    }

    pub(crate) fn level(&self) -> Level {
        self.state.lock().level
    }

    /// Takes a message. The answer to a request comes in `stream`.
    pub(crate) fn receive(
        self: &Arc<Self>,
        message: &Message<'_>,
        stream: &Arc<Stream>,
    ) -> Result<(), Refusal> {
        match message {
            Message::Request(request) => self.serve(request, stream),
            Message::Notification(notification) => {
                self.notified(&notification.method, notification.params);
                Ok(())
            }
            Message::Response(response) => self.answered(response),
        }
    }

    fn serve(self: &Arc<Self>, request: &Request<'_>, stream: &Arc<Stream>) -> Result<(), Refusal> {
        let id = request.id.as_json();
        let method = Method::of(self.server.revision, &request.method);
        self.admit(id, method)?;
        let params = match request.params.map_or_else(|| Ok(json!({})), |raw| serde_json::from_str(raw.get()))
        {
            Ok(params @ Value::Object(_)) => params,
            _ => {
                self.reply(id, stream, Err(Failure::params("\"params\" has to be an object")));
                return Ok(());
            }
        };
        match method {
            Some(Method::Initialize) => self.reply(id, stream, self.initialize(request)),
            Some(Method::Ping) => self.reply(id, stream, Ok(json!({}))),
            Some(Method::LoggingSetLevel) => self.reply(id, stream, self.set_level(params)),
            Some(Method::ResourcesSubscribe) => self.reply(id, stream, self.subscribe(params)),
            Some(Method::ResourcesUnsubscribe) => self.reply(id, stream, self.unsubscribe(params)),
            Some(method) => self.begin(id, method, params, request, stream)?,
            None => {
                self.reply(id, stream, Err(Failure::method("Method not found")));
            }
        }
        Ok(())
    }

    /// Whether a request may come now, by what has come before.
    fn admit(&self, id: &str, method: Option<Method>) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        match (method, state.phase) {
            (Some(Method::Initialize), Phase::Fresh) | (Some(Method::Ping), _) => {}
            (Some(Method::Initialize), _) => {
                return Err(Refusal::invalid("this session has been initialized already"));
            }
            (_, Phase::Fresh) => return Err(Refusal::invalid("the first request has to be initialize")),
            (_, Phase::Initialized) => {
                return Err(Refusal::invalid("notifications/initialized has to come before other requests"));
            }
            (_, Phase::Ready) => {}
        }
        if state.ids.len() >= MAX_IDS {
            state.ids.clear();
        }
        if state.ids.insert(canonical(id)) {
            Ok(())
        } else {
            Err(Refusal::invalid("this id has been used before in this session"))
        }
    }

    fn initialize(&self, request: &Request<'_>) -> Result<Value, Failure> {
        let params = request.params.map_or("{}", Raw::get);
        let asked: Initialize<'_> = serde_json::from_str(params)
            .map_err(|error| Failure::params(format!("invalid params: {error}")))?;
        let client = ClientCapabilities::read(asked.capabilities.get())
            .map_err(|error| Failure::params(format!("invalid capabilities: {error}")))?;
        if asked.protocol_version.is_empty() {
            return Err(Failure::params("\"protocolVersion\" is empty"));
        }
        let mut state = self.state.lock();
        state.client = client;
        state.phase = Phase::Initialized;
        drop(state);
        let mut result = json!({
            // Whatever was asked for: the client goes if it does not know this one.
            "protocolVersion": self.server.revision.as_str(),
            "capabilities": self.server.capabilities(),
            "serverInfo": self.server.info(),
        });
        result["instructions"] = self.server.instructions().into();
        Ok(result)
    }

    fn set_level(&self, params: Value) -> Result<Value, Failure> {
        self.state.lock().level = answer::read::<SetLevel>(params)?.level;
        Ok(json!({}))
    }

    fn subscribe(&self, params: Value) -> Result<Value, Failure> {
        let At { uri } = answer::read(params)?;
        if !crate::resources::exists(&self.server, &uri) {
            return Err(Failure::resource(&uri));
        }
        let mut state = self.state.lock();
        if state.subscriptions.len() >= MAX_SUBSCRIPTIONS {
            return Err(Failure::params(format!(
                "a session may have {MAX_SUBSCRIPTIONS} subscriptions at most"
            )));
        }
        state.subscriptions.insert(uri);
        Ok(json!({}))
    }

    fn unsubscribe(&self, params: Value) -> Result<Value, Failure> {
        let At { uri } = answer::read(params)?;
        self.state.lock().subscriptions.remove(&uri);
        Ok(json!({}))
    }

    fn begin(
        self: &Arc<Self>,
        id: &str,
        method: Method,
        params: Value,
        request: &Request<'_>,
        stream: &Arc<Stream>,
    ) -> Result<(), Refusal> {
        let token = match Params::read(request.params).and_then(|params| params.wanted_token()) {
            Ok(None) => None,
            Ok(Some(token)) if longshore_mcp::meta::is_token(token) => serde_json::from_str(token).ok(),
            Ok(Some(_)) => {
                let wrong = Failure::params("\"progressToken\" has to be a string or an integer");
                self.reply(id, stream, Err(wrong));
                return Ok(());
            }
            Err(invalid) => {
                self.reply(id, stream, Err(Failure::params(invalid.to_string())));
                return Ok(());
            }
        };
        let mut state = self.state.lock();
        if state.running.len() >= MAX_RUNNING {
            return Err(Refusal {
                problem: Problem::TooMany,
                why: format!("{MAX_RUNNING} requests are being served"),
            });
        }
        let call = Call {
            server: self.server.clone(),
            client: state.client.clone(),
            stream: stream.clone(),
            token,
            side: Side::Session(self.clone()),
        };
        let running = Running { session: self.clone(), id: id.to_owned(), stream: Some(stream.clone()) };
        let mut tasks = self.tasks.lock();
        // What has ended is not kept until the session ends.
        while tasks.try_join_next().is_some() {}
        let handle = tasks.spawn(async move {
            let result = answer::answer(&call, method, params).await;
            running.done(result);
        });
        state.running.insert(canonical(id), handle);
        Ok(())
    }

    fn reply(&self, id: &str, stream: &Stream, result: Result<Value, Failure>) {
        let (text, answer) = match result {
            Ok(result) => (message::result(id, &result), Answer::Result),
            Err(failure) => failure.answer(id, self.server.revision),
        };
        stream.answer(text, answer);
    }

    /// Tells the client what changes.
    async fn tell(self: Arc<Self>, mut changes: tokio::sync::broadcast::Receiver<Change>) {
        loop {
            let change = match changes.recv().await {
                Ok(change) => change,
                // Lists that changed so often are asked for anew anyway.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => continue,
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            };
            let state = self.state.lock();
            if state.phase != Phase::Ready {
                continue;
            }
            let (method, params) = match change {
                Change::Tools => ("notifications/tools/list_changed", json!({})),
                Change::Prompts => ("notifications/prompts/list_changed", json!({})),
                Change::Resources => ("notifications/resources/list_changed", json!({})),
                Change::Resource(uri) if state.subscriptions.contains(&uri) => {
                    ("notifications/resources/updated", json!({"uri": uri}))
                }
                Change::Resource(_) => continue,
                Change::End => return,
            };
            drop(state);
            self.unrelated.send(message::notification(method, &params));
        }
    }

    /// Waits until nothing is being done any more. Nothing may be begun then.
    pub(crate) async fn settle(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// A request that is being served. Dropped without an answer, it was cancelled, and its stream need not wait for it.
struct Running {
    session: Arc<Session>,
    id: String,
    stream: Option<Arc<Stream>>,
}

impl Running {
    fn done(mut self, result: Result<Value, Failure>) {
        if let Some(stream) = self.stream.take() {
            self.session.reply(&self.id, &stream, result);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.state.lock().running.remove(&canonical(&self.id));
        if let Some(stream) = self.stream.take() {
            stream.finish_one();
        }
    }
}

impl Refusal {
    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self { problem: Problem::InvalidMessage, why: why.into() }
    }
}

/// An id as every writer of JSON would write it.
fn canonical(id: &str) -> String {
    serde_json::from_str::<Value>(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

/// Parameters of a notification that are an object.
fn members(params: Option<Raw<'_>>) -> Map<String, Value> {
    params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default()
}
