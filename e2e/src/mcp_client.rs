//! A small MCP client, for tests that want to see every status, header and message. It is written from the
//! specification and shares no code with the sidecar. (Clients that others wrote are in [`peers`](crate::peers).) What
//! it is answered it holds against the schema of its revision.
//!
//! It speaks revision 2025-11-25 of Streamable HTTP, on a connection of its own for each request, so that nothing of
//! an earlier pod, or of an earlier request, can be in the way of a later one.

pub(crate) mod event_stream;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use longshore_mcp::revision::Revision;
use longshore_mcp_schemas::{Side, Spoken};
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// The revision that [`McpClient`] speaks.
pub const REVISION: &str = "2025-11-25";
/// How long a request may take unless [`McpClient::within`] says otherwise.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why a request got no result.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The URL cannot be used.
    #[error("{0} is not a URL that this client can use")]
    Url(String),
    /// The host of the URL is not known in the cluster.
    #[error("cannot look up {host}: {source}")]
    Lookup {
        /// The name.
        host: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    /// The connection ended, or was no HTTP.
    #[error("the connection broke: {0}")]
    Broken(#[source] hyper::Error),
    /// The request cannot be written in HTTP.
    #[error("cannot make the request: {0}")]
    Request(#[from] http::Error),
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The answer has another status than one that a result comes with.
    #[error("HTTP status {}: {}", .0.status, .0.body)]
    Status(Box<Answer>),
    /// The answer is a JSON-RPC error.
    #[error("JSON-RPC error {code}: {message}")]
    Rpc {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
        /// What else it says; null if nothing.
        data: Value,
    },
    /// What came is not what the schema of the revision says.
    #[error("not by the schema of {REVISION}: {0:?}")]
    Invalid(Vec<String>),
    /// The answer holds neither a result nor an error for the request.
    #[error("no response to the request in {0:?}")]
    Nonsense(String),
}

/// Where an MCP server is: an address to connect to, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What is connected to.
    pub address: SocketAddr,
    /// What the `Host` header says.
    pub host: String,
    /// The path.
    pub path: String,
}

/// All of an HTTP response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as text.
    pub body: String,
    /// The JSON messages in the body, be it JSON or an event stream.
    pub messages: Vec<Value>,
}

/// A client with a session.
#[derive(Debug)]
pub struct McpClient {
    endpoint: Endpoint,
    key: Option<String>,
    session: Option<String>,
    deadline: Duration,
    next_id: AtomicU64,
    /// The result of `initialize`.
    pub server: Value,
}

// === impl Endpoint ===

impl Endpoint {
    /// Reads a URL such as `http://NAME.NAMESPACE.svc/mcp`, which a status holds. A Service's name is looked up at the
    /// API server: the threads of a test see the cluster's network, but not its DNS.
    pub async fn find(client: &kube::Client, url: &str) -> Result<Self, McpError> {
        let unusable = || McpError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| unusable())?;
        let host = uri.host().ok_or_else(unusable)?.trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(80);
        let host_header = uri.authority().ok_or_else(unusable)?.to_string();
        let path = uri.path().to_owned();
        if let Ok(address) = host.parse() {
            return Ok(Self { address: SocketAddr::new(address, port), host: host_header, path });
        }
        let (name, rest) = host.split_once('.').ok_or_else(unusable)?;
        let namespace = rest.split('.').next().unwrap_or(rest);
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let service = services
            .get(name)
            .await
            .map_err(|source| McpError::Lookup { host: host.to_owned(), source: Box::new(source) })?;
        let address = service.spec.and_then(|spec| spec.cluster_ip).ok_or_else(unusable)?;
        let address = address.parse().map_err(|_| unusable())?;
        Ok(Self { address: SocketAddr::new(address, port), host: host_header, path })
    }

    /// Sends a request and reads the whole response.
    pub async fn send(
        &self,
        method: Method,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
        deadline: Duration,
    ) -> Result<Answer, McpError> {
        let mut request = Request::builder().method(method).uri(&self.path).header("host", &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into()))?;
        let exchange = self.exchange(request);
        tokio::time::timeout(deadline, exchange).await.map_err(|_| McpError::TimedOut(deadline))?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, McpError> {
        let stream = TcpStream::connect(self.address).await.map_err(McpError::Connect)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(McpError::Broken)?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(McpError::Broken)?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(McpError::Broken)?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            Ok(Answer {
                status: head.status,
                messages: messages(&head.headers, &body),
                headers: head.headers,
                body,
            })
        };
        // The connection does its work beside the exchange. What goes wrong in it, the exchange is told.
        tokio::pin!(exchange, connection);
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            _ = &mut connection => exchange.await,
        }
    }

    /// Posts a message, with the headers that every client sends. Headers of the same names replace those.
    pub async fn post(
        &self,
        body: impl Into<Bytes>,
        headers: &[(&str, &str)],
        deadline: Duration,
    ) -> Result<Answer, McpError> {
        let usual = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let replaced = |name: &str| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
        let mut all: Vec<_> = usual.into_iter().filter(|(name, _)| !replaced(name)).collect();
        all.extend_from_slice(headers);
        self.send(Method::POST, &all, body, deadline).await
    }
}

// === impl Answer ===

impl Answer {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The result of the request with this id.
    pub fn result(self, id: u64) -> Result<Value, McpError> {
        let Some(message) = self.messages.iter().find(|message| message["id"] == id) else {
            return Err(if self.status == StatusCode::OK {
                McpError::Nonsense(self.body)
            } else {
                McpError::Status(Box::new(self))
            });
        };
        if let Some(error) = message.get("error") {
            return Err(McpError::Rpc {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                data: error["data"].clone(),
            });
        }
        message.get("result").cloned().ok_or_else(|| McpError::Nonsense(self.body.clone()))
    }
}

// === impl McpClient ===

impl McpClient {
    /// Connects to a URL as a status holds it: see [`Endpoint::find`].
    pub async fn connect(client: &kube::Client, url: &str, key: Option<&str>) -> Result<Self, McpError> {
        Self::open(Endpoint::find(client, url).await?, key).await
    }

    /// Opens a session: `initialize`, then `notifications/initialized`.
    pub async fn open(endpoint: Endpoint, key: Option<&str>) -> Result<Self, McpError> {
        let mut client = Self {
            endpoint,
            key: key.map(str::to_owned),
            session: None,
            deadline: DEADLINE,
            next_id: AtomicU64::new(0),
            server: Value::Null,
        };
        let hello = json!({
            "protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "longshore-e2e", "version": "1"},
        });
        let (id, body) = client.message("initialize", &hello);
        let answer = client.post(body, &[]).await?;
        client.session = answer.header("mcp-session-id").map(str::to_owned);
        client.server = answer.result(id)?;
        let answer = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, &[]).await?;
        if answer.status != StatusCode::ACCEPTED {
            return Err(McpError::Status(Box::new(answer)));
        }
        Ok(client)
    }

    /// The same client, whose requests may take no longer than `deadline` from now on.
    #[must_use]
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Where it is connected to.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The id of its session, if the server gave one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The names of the tools that it is shown, over all pages.
    pub async fn list_tools(&self) -> Result<Vec<String>, McpError> {
        let mut names = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let parameters = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let page = self.request("tools/list", parameters).await?;
            let tools = page["tools"].as_array().into_iter().flatten();
            names.extend(tools.filter_map(|tool| tool["name"].as_str()).map(str::to_owned));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                return Ok(names);
            }
        }
    }

    /// Calls a tool, and returns its result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, McpError> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Sends a request, and returns its result.
    pub async fn request(&self, method: &str, parameters: Value) -> Result<Value, McpError> {
        let (id, body) = self.message(method, &parameters);
        self.post(body, &[]).await?.result(id)
    }

    /// Posts any text in this session. Headers replace those that it would send.
    pub async fn post(&self, body: impl Into<Bytes>, headers: &[(&str, &str)]) -> Result<Answer, McpError> {
        let bearer = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut all = Vec::new();
        all.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        if let Some(session) = &self.session {
            all.extend([("mcp-session-id", session.as_str()), ("mcp-protocol-version", REVISION)]);
        }
        all.retain(|(name, _)| !headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name)));
        all.extend_from_slice(headers);
        let body = body.into();
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let answer = self.endpoint.post(body, &all, self.deadline).await?;
        let faults: Vec<_> = answer.messages.iter().flat_map(|message| faults(&asked, message)).collect();
        if faults.is_empty() { Ok(answer) } else { Err(McpError::Invalid(faults)) }
    }

    fn message(&self, method: &str, parameters: &Value) -> (u64, String) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        (id, json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}).to_string())
    }
}

/// What is wrong with a message that comes in the answer to this one.
fn faults(asked: &Value, message: &Value) -> Vec<String> {
    let is_answer = message["id"] == asked["id"];
    let asked = asked["method"].as_str().filter(|_| is_answer);
    let found = Spoken { revision: Revision::V2025_11_25, by: Side::Server, message, asked }.faults();
    found.into_iter().map(|fault| format!("{fault}\n{message}")).collect()
}

/// The messages in a body. What is no JSON is none; the body itself is there to be looked at.
fn messages(headers: &HeaderMap, body: &str) -> Vec<Value> {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        event_stream::data(body).iter().filter_map(|data| serde_json::from_str(data).ok()).collect()
    } else {
        serde_json::from_str(body).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_is_held_against_is_what_was_asked() {
        let asked = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t"}});
        let ping = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
        let answer = |id: u64, result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        let news =
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 7}});
        for (asked, message, is_right) in [
            (&asked, answer(7, json!({"content": []})), true),
            (&asked, answer(7, json!({})), false),
            (&ping, answer(7, json!({})), true),
            // Who asked that is not known here.
            (&asked, answer(8, json!({})), true),
            (&asked, news, false),
            (&Value::Null, json!({"error": "no JSON-RPC"}), false),
        ] {
            assert_eq!(faults(asked, &message).is_empty(), is_right, "{message}");
        }
    }
}
