//! The sidecar as a client of its server: just enough of one.

use std::cell::Cell;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use longshore_mcp::envelope::{self, Id, Message, Outcome, Request};
use longshore_mcp::headers::{self, EVENT_STREAM, JSON, SESSION_ID};
use longshore_mcp::initialize::Handshake;
use longshore_mcp::listing;
use longshore_mcp::method::{List, Method as McpMethod};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::Decoder;
use longshore_sidecar_config::Upstream;
use longshore_sidecar_config::inventory::{ConnectionReason, ServerDescription};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep};

use super::state::Problem;
use crate::exchange;
use crate::stack::SERVED;
use crate::upstream::{Answer, Failure, Pool};

/// The most that is read of one answer, and of all pages of one list.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Bounds of a list.
const MAX_PAGES: usize = 200;
const MAX_ENTRIES: usize = 10_000;
/// The most of what a server says of itself, each in bytes.
const MAX_TEXT: usize = 64 * 1024;
/// The most of a server's own words in a message for people.
const MAX_QUOTE: usize = 200;
/// How long to wait before a stream of notifications is opened again.
const REOPEN: Duration = Duration::from_secs(1);

/// A session with the server.
pub(super) struct Server {
    upstream: Upstream,
    pool: Rc<Pool>,
    session: Option<HeaderValue>,
    revision: Option<Revision>,
    next_id: Cell<u64>,
}

/// Why the server did not do what it was asked for.
#[derive(Debug, Error)]
pub(super) enum CallError {
    #[error("nothing listens on port {port}")]
    Refused { port: u16 },
    #[error("the server broke the connection off")]
    Lost,
    #[error("the server answers on its port with something that is not HTTP")]
    NotHttp,
    #[error("the server does not know the session any more")]
    SessionGone,
    #[error("the server answered {path} with HTTP status {status}")]
    Status { status: u16, path: String },
    #[error("the server's answer at {path} is not MCP: {what}")]
    NotMcp { path: String, what: &'static str },
    #[error("the server answered with error {code}: {message}")]
    Rpc { code: i64, message: String, status: u16 },
    #[error("the server speaks revision {0} of MCP, which is not served here")]
    Revision(String),
    #[error("the server's answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
}

impl CallError {
    /// What it means when it happens in a handshake.
    pub(super) fn in_handshake(self) -> Problem {
        let reason = match &self {
            Self::Refused { .. } | Self::Lost => ConnectionReason::ConnectionRefused,
            Self::NotHttp | Self::NotMcp { .. } | Self::TooLarge | Self::SessionGone => {
                ConnectionReason::NotMcp
            }
            Self::Status { status: 404 | 405 | 300..=399, .. } => ConnectionReason::NotMcp,
            Self::Status { .. } | Self::Rpc { .. } => ConnectionReason::InitializeRefused,
            Self::Revision(_) => ConnectionReason::UnsupportedRevision,
        };
        Problem { reason, message: self.to_string() }
    }

    /// What it means when it happens while a list is read.
    pub(super) fn in_list(self, list: List) -> Problem {
        let message = format!("{} failed: {self}", list.method().as_str());
        Problem { reason: ConnectionReason::ListFailed, message }
    }
}

/// Listening for notifications; it ends when this is dropped.
pub(super) struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Server {
    pub(super) fn new(upstream: Upstream, pool: Rc<Pool>) -> Self {
        Self { upstream, pool, session: None, revision: None, next_id: Cell::new(1) }
    }

    /// Which server it is.
    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// The handshake.
    pub(super) async fn initialize(&mut self) -> Result<ServerDescription, CallError> {
        let params = json!({
            "protocolVersion": Revision::NEWEST_WITH_INITIALIZE.as_str(),
            "capabilities": {},
            "clientInfo": {"name": "longshore-sidecar", "version": env!("CARGO_PKG_VERSION")},
        });
        let (result, session) = self.exchange(McpMethod::Initialize, params).await?;
        self.session = session;
        let handshake: Handshake =
            serde_json::from_str(&result).map_err(|_| self.not_mcp("initialize has no usable result"))?;
        let served =
            Revision::parse(&handshake.protocol_version).filter(|revision| SERVED.contains(revision));
        self.revision = Some(served.ok_or_else(|| CallError::Revision(quote(&handshake.protocol_version)))?);
        self.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()).await?;
        Ok(describe(handshake))
    }

    /// Asks whether the server is there. Any answer says that it is.
    pub(super) async fn ping(&self) -> Result<(), CallError> {
        match self.call(McpMethod::Ping, json!({})).await {
            Ok(_) | Err(CallError::Rpc { status: 200..=299, .. }) => Ok(()),
            // What servers say of a session that they do not know differs; the next handshake tells.
            Err(CallError::Rpc { .. } | CallError::Status { status: 400..=499, .. }) => {
                Err(CallError::SessionGone)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a list to its end, or to the bounds.
    pub(super) async fn list(&self, list: List) -> Result<Vec<Value>, CallError> {
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        let mut bytes = 0;
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let result = match self.call(list.method(), params).await {
                Ok(result) => result,
                // A server may say that it has resources and know nothing of their templates.
                Err(CallError::Rpc { code: -32601, .. }) => return Ok(entries),
                Err(error) => return Err(error),
            };
            bytes += result.len();
            let page = listing::page(&result, list).map_err(|_| self.not_mcp("the list is no list"))?;
            entries.extend(page.entries);
            if entries.len() > MAX_ENTRIES || bytes > MAX_ANSWER {
                tracing::warn!(list = list.member(), MAX_ENTRIES, "the server's list is cut");
                entries.truncate(MAX_ENTRIES);
                return Ok(entries);
            }
            match page.next_cursor {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                Some(_) | None => return Ok(entries),
            }
        }
        tracing::warn!(
            list = list.member(),
            MAX_PAGES,
            "the server's list has too many pages, the rest is left out"
        );
        Ok(entries)
    }

    /// Listens to what the server says on its own account, if it offers that. `changed` is told when a list has
    /// changed, or may have while nobody listened.
    pub(super) fn listen(&self, changed: Rc<Notify>) -> Listening {
        let server = Self {
            upstream: self.upstream.clone(),
            pool: self.pool.clone(),
            session: self.session.clone(),
            revision: self.revision,
            next_id: Cell::new(0),
        };
        Listening(tokio::task::spawn_local(async move {
            loop {
                match server.notifications(&changed).await {
                    Ok(()) => {}
                    Err(error) => {
                        // 405: it does not offer it. Anything else shows in the pings too.
                        tracing::debug!(%error, "the server's notifications cannot be heard");
                        return;
                    }
                }
                sleep(REOPEN).await;
                changed.notify_one();
            }
        }))
    }

    async fn notifications(&self, changed: &Notify) -> Result<(), CallError> {
        let mut request = self.request(Method::GET, Bytes::new());
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        request.headers_mut().remove(CONTENT_TYPE);
        let Answer { response, lease: _lease } = self.send(request).await?;
        if response.status() != StatusCode::OK {
            return Err(self.status(response.status()));
        }
        let mut body = response.into_body();
        let mut decoder = Decoder::new(MAX_ANSWER);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| CallError::Lost)?.into_data() else { continue };
            let mut messages = Vec::new();
            decoder.push(&data, |event| messages.extend(event.data)).map_err(|_| CallError::TooLarge)?;
            for message in messages {
                match envelope::read(&message) {
                    Ok(Message::Notification(notification))
                        if notification.method.ends_with("/list_changed") =>
                    {
                        changed.notify_one();
                    }
                    Ok(Message::Request(request)) => self.reply(&request).await,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Answers what the server asks. It was told that nothing can be asked but whether anybody is there.
    async fn reply(&self, request: &Request<'_>) {
        let id = request.id.as_json();
        let text = if request.method.as_str() == McpMethod::Ping.as_str() {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")
        } else {
            let code = longshore_mcp::error::Code::MethodNotFound;
            longshore_mcp::error::response(Some(request.id), code, "Method not found", None)
        };
        if let Err(error) = self.tell(text).await {
            tracing::debug!(%error, "the server's question could not be answered");
        }
    }

    // === calls ===

    /// Sends a request and gives the result.
    async fn call(&self, method: McpMethod, params: Value) -> Result<String, CallError> {
        self.exchange(method, params).await.map(|(result, _)| result)
    }

    /// Sends a request and gives the result, and the session that the answer names.
    async fn exchange(
        &self,
        method: McpMethod,
        params: Value,
    ) -> Result<(String, Option<HeaderValue>), CallError> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let id = id.to_string();
        let name = method.as_str();
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{name}\",\"params\":{params}}}");
        let Answer { response, lease } = self.send(self.request(Method::POST, text.into())).await?;
        let (head, body) = response.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let message = if !head.status.is_success() {
            let body = collect(body).await.unwrap_or_default();
            // An error in the body says more than the status, unless the status is that of a session that ended.
            return Err(error_in(&body, head.status).unwrap_or_else(|| self.status(head.status)));
        } else if headers::is_type(content_type, EVENT_STREAM) {
            self.first_answer(body, &id).await?
        } else if headers::is_type(content_type, JSON) {
            let message = collect(body).await?;
            lease.give_back();
            message
        } else {
            return Err(self.not_mcp("it is neither JSON nor events"));
        };
        let session = head.headers.get(SESSION_ID).filter(|id| id.to_str().is_ok_and(headers::is_session_id));
        match envelope::read(&message) {
            Ok(Message::Response(response)) if response.id.is_some_and(|got| got.is(&Id::from_json(&id))) => {
                match response.outcome {
                    Outcome::Result(result) => Ok((result.get().to_owned(), session.cloned())),
                    Outcome::Error(error) => Err(rpc(error.get(), head.status)),
                }
            }
            _ => Err(self.not_mcp("it is not the answer to the request")),
        }
    }

    /// Reads events until the answer, and answers what is asked in between.
    async fn first_answer(&self, mut body: Incoming, id: &str) -> Result<Bytes, CallError> {
        let mut decoder = Decoder::new(MAX_ANSWER);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| CallError::Lost)?.into_data() else { continue };
            let mut messages = Vec::new();
            decoder.push(&data, |event| messages.extend(event.data)).map_err(|_| CallError::TooLarge)?;
            for message in messages {
                match envelope::read(&message) {
                    Ok(Message::Response(response))
                        if response.id.is_some_and(|got| got.is(&Id::from_json(id))) =>
                    {
                        return Ok(message.into());
                    }
                    Ok(Message::Request(request)) => self.reply(&request).await,
                    _ => {}
                }
            }
        }
        Err(CallError::Lost)
    }

    /// Sends a message that has no answer.
    async fn tell(&self, text: String) -> Result<(), CallError> {
        let Answer { response, .. } = self.send(self.request(Method::POST, text.into())).await?;
        if response.status().is_success() { Ok(()) } else { Err(self.status(response.status())) }
    }

    fn request(&self, method: Method, body: Bytes) -> http::Request<Full<Bytes>> {
        let session = self.revision.map(|revision| (self.session.as_ref(), revision));
        exchange::build(&self.upstream, method, session, body)
    }

    async fn send(&self, request: http::Request<Full<Bytes>>) -> Result<Answer, CallError> {
        let Upstream::StreamableHttp { port, .. } = self.upstream;
        self.pool.send(port, request).await.map_err(|failure| match failure {
            Failure::Refused { port, .. } => CallError::Refused { port },
            Failure::Lost(error) if error.is_parse() => CallError::NotHttp,
            Failure::Lost(_) => CallError::Lost,
        })
    }

    fn path(&self) -> String {
        let Upstream::StreamableHttp { path, .. } = &self.upstream;
        path.clone()
    }

    fn status(&self, status: StatusCode) -> CallError {
        if status == StatusCode::NOT_FOUND && self.session.is_some() {
            return CallError::SessionGone;
        }
        CallError::Status { status: status.as_u16(), path: self.path() }
    }

    fn not_mcp(&self, what: &'static str) -> CallError {
        CallError::NotMcp { path: self.path(), what }
    }
}

async fn collect(body: Incoming) -> Result<Bytes, CallError> {
    let mut body = Limited::new(body, MAX_ANSWER);
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() { CallError::TooLarge } else { CallError::Lost }
        })?;
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

/// The JSON-RPC error in a body, if there is one.
fn error_in(body: &[u8], status: StatusCode) -> Option<CallError> {
    match envelope::read(body) {
        Ok(Message::Response(response)) => match response.outcome {
            Outcome::Error(error) => Some(rpc(error.get(), status)),
            Outcome::Result(_) => None,
        },
        _ => None,
    }
}

fn rpc(error: &str, status: StatusCode) -> CallError {
    let error: Value = serde_json::from_str(error).unwrap_or_default();
    CallError::Rpc {
        code: error["code"].as_i64().unwrap_or_default(),
        message: quote(error["message"].as_str().unwrap_or_default()),
        status: status.as_u16(),
    }
}

/// What a server said of itself, as far as it is what the protocol says it should be: readers of the inventory need
/// not be prepared for anything else.
fn describe(handshake: Handshake) -> ServerDescription {
    let object = |value: Value| match value {
        Value::Object(members) if Value::Object(members.clone()).to_string().len() <= MAX_TEXT => members,
        _ => serde_json::Map::new(),
    };
    let mut info = object(handshake.server_info);
    info.retain(|name, value| !matches!(name.as_str(), "name" | "version") || value.is_string());
    let instructions = handshake.instructions.map(|mut text| {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text
    });
    ServerDescription {
        info: info.into(),
        protocol_version: handshake.protocol_version,
        capabilities: object(handshake.capabilities).into(),
        instructions,
    }
}

/// The text of an untrusted server, bounded, on one line.
fn quote(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(MAX_QUOTE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_what_the_protocol_says_or_nothing() {
        for (handshake, info, capabilities) in [
            (json!({"protocolVersion": "v"}), json!({}), json!({})),
            (
                json!({"protocolVersion": "v", "serverInfo": {"name": 7, "version": "1", "x": 1}, "capabilities": []}),
                json!({"version": "1", "x": 1}),
                json!({}),
            ),
            (
                json!({"protocolVersion": "v", "serverInfo": "s", "capabilities": {"tools": {"x".repeat(MAX_TEXT): 1}}}),
                json!({}),
                json!({}),
            ),
            (
                json!({"protocolVersion": "v", "serverInfo": {"name": "n"}, "capabilities": {"tools": {}}}),
                json!({"name": "n"}),
                json!({"tools": {}}),
            ),
        ] {
            let description = describe(serde_json::from_value(handshake).unwrap());
            assert_eq!((description.info, description.capabilities), (info, capabilities));
        }
        let long = json!({"protocolVersion": "v", "instructions": "é".repeat(MAX_TEXT)});
        let description = describe(serde_json::from_value(long).unwrap());
        assert!(description.instructions.unwrap().len() <= MAX_TEXT);
    }

    #[test]
    fn a_stranger_is_quoted_on_one_short_line() {
        assert_eq!(quote("a\n\u{1b}[31mb"), "a[31mb");
        assert_eq!(quote(&"x".repeat(500)).len(), MAX_QUOTE);
    }
}
