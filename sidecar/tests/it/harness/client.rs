//! A legacy client of few words.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::http::connect;
use super::{Events, Reply, Request, Sidecar};

/// A client with a session.
pub(crate) struct Client<'a> {
    pub(crate) sidecar: &'a Sidecar,
    pub(crate) key: Option<String>,
    pub(crate) revision: &'static str,
    pub(crate) session: String,
    next_id: std::cell::Cell<u64>,
}

/// The first message of a session.
pub(crate) fn initialize(version: &str) -> String {
    json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    })
    .to_string()
}

impl<'a> Client<'a> {
    /// Opens a session.
    pub(crate) fn open(sidecar: &'a Sidecar, key: Option<&str>) -> Self {
        Self::of(sidecar, key, "2025-11-25")
    }

    /// Opens a session of this revision.
    pub(crate) fn of(sidecar: &'a Sidecar, key: Option<&str>, revision: &'static str) -> Self {
        Self::with_capabilities(sidecar, key, revision, &json!({}))
    }

    /// Opens a session of a client that can do this.
    pub(crate) fn with_capabilities(
        sidecar: &'a Sidecar,
        key: Option<&str>,
        revision: &'static str,
        capabilities: &Value,
    ) -> Self {
        let mut first: Value = serde_json::from_str(&initialize(revision)).expect("JSON");
        first["params"]["capabilities"] = capabilities.clone();
        let request = Request::post(first.to_string());
        let reply = key.iter().fold(request, |request, key| request.key(key)).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let session = reply.header("mcp-session-id").expect("a session id").to_owned();
        let (key, next_id) = (key.map(str::to_owned), std::cell::Cell::new(1));
        let client = Self { sidecar, key, revision, session, next_id };
        let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(client.request(body).send(sidecar.mcp).status, 202);
        client
    }

    /// The same session, by way of another replica.
    pub(crate) fn through<'b>(&self, sidecar: &'b Sidecar) -> Client<'b> {
        // Ids that the session has not seen.
        let next_id = self.next_id.replace(self.next_id.get() + 1_000);
        Client {
            sidecar,
            key: self.key.clone(),
            revision: self.revision,
            session: self.session.clone(),
            next_id: std::cell::Cell::new(next_id),
        }
    }

    /// A session that somebody else has opened.
    pub(crate) fn in_session(sidecar: &'a Sidecar, session: &str) -> Self {
        // Several at once may be in the same session, and each id is used once in it.
        static NEXT: AtomicU64 = AtomicU64::new(1_000_000);
        let next_id = std::cell::Cell::new(NEXT.fetch_add(1_000, Ordering::Relaxed));
        Self { sidecar, key: None, session: session.to_owned(), revision: "2025-11-25", next_id }
    }

    /// The same client, with another session.
    pub(crate) fn with_session(self, session: &str) -> Self {
        Self { session: session.to_owned(), ..self }
    }

    /// The same client, with this key.
    pub(crate) fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Ends the session.
    pub(crate) fn end(&self) -> Reply {
        let request = Request::new("DELETE", "/mcp").session(&self.session);
        self.key.iter().fold(request, |request, key| request.key(key)).send(self.sidecar.mcp)
    }

    /// A message in this session.
    pub(crate) fn request(&self, body: impl Into<Vec<u8>>) -> Request {
        let request =
            Request::post(body).session(&self.session).header("mcp-protocol-version", self.revision);
        self.key.iter().fold(request, |request, key| request.key(key))
    }

    /// A GET in this session.
    pub(crate) fn get(&self) -> Request {
        self.request("").with_method("GET").without("content-type").with("accept", "text/event-stream")
    }

    /// A GET of what comes after this event.
    pub(crate) fn rest(&self, last: &str) -> Request {
        self.get().header("last-event-id", last)
    }

    /// Calls a tool on a connection of its own, and waits for no answer.
    pub(crate) fn begin(&self, params: &Value) -> TcpStream {
        let mut stream = connect(self.sidecar.mcp);
        self.request(self.message("tools/call", params)).write(&mut stream);
        stream
    }

    /// Takes back the request of this id.
    pub(crate) fn cancel(&self, id: impl Into<Value>) -> Reply {
        let params = json!({"requestId": id.into()});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        self.request(message.to_string()).send(self.sidecar.mcp)
    }

    /// Calls a tool, and reads what comes as events.
    pub(crate) fn stream(&self, tool: &str, arguments: Value) -> Events {
        let message = self.message("tools/call", &json!({"name": tool, "arguments": arguments}));
        Events::open(&self.request(message), self.sidecar.mcp)
    }

    /// The text of a request.
    pub(crate) fn message(&self, method: &str, params: &Value) -> String {
        let id = self.next_id.replace(self.next_id.get() + 1);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    }

    /// Sends a request.
    pub(crate) fn send(&self, method: &str, params: Value) -> Reply {
        self.request(self.message(method, &params)).send(self.sidecar.mcp)
    }

    /// Sends a request and gives the message that answers it.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Value {
        let reply = self.send(method, params);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.message()
    }

    /// Calls a tool.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The names in a list.
    pub(crate) fn names(&self, method: &str, member: &str, key: &str) -> Vec<String> {
        let message = self.ask(method, json!({}));
        let entries = message["result"][member].as_array().unwrap_or_else(|| panic!("{message}")).clone();
        entries.iter().map(|entry| entry[key].as_str().expect("a name").to_owned()).collect()
    }
}

/// A call in a session that is there.
pub(crate) fn echo(client: &Client<'_>) {
    let message = client.call("echo", json!({"text": "a"}));
    assert_eq!(message["result"]["content"][0]["text"], "a", "{message}");
}
