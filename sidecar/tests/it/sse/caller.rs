//! A client that speaks HTTP+SSE.

use serde_json::{Value, json};

use crate::harness::client::initialize;
use crate::harness::{Events, Reply, Request, Sidecar};

/// A client with a stream.
pub(crate) struct Caller {
    pub(super) stream: Events,
    /// Where it posts to.
    pub(super) endpoint: String,
    key: Option<&'static str>,
}

impl Caller {
    pub(super) fn request(key: Option<&str>) -> Request {
        let request = Request::new("GET", "/sse").header("accept", "text/event-stream");
        key.iter().fold(request, |request, key| request.key(key))
    }

    /// Asks for a stream.
    pub(super) fn begin(sidecar: &Sidecar, key: Option<&'static str>) -> Self {
        let mut stream = Events::open(&Self::request(key), sidecar.mcp);
        assert_eq!(stream.status, 200);
        let first = stream.next().unwrap();
        assert_eq!(first.event, "endpoint");
        Self { stream, endpoint: first.data, key }
    }

    /// Asks for a stream and shakes hands.
    pub(crate) fn open(sidecar: &Sidecar, key: Option<&'static str>) -> Self {
        Self::of(sidecar, key, "2024-11-05")
    }

    /// The same in a revision that may be newer than its transport.
    pub(super) fn of(sidecar: &Sidecar, key: Option<&'static str>, revision: &str) -> Self {
        let mut caller = Self::begin(sidecar, key);
        assert_eq!(caller.post(sidecar, &initialize(revision)).status, 202);
        let answer = caller.hear();
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        let told = caller.post(sidecar, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!((told.status, told.text()), (202, ""));
        caller
    }

    pub(super) fn post(&self, sidecar: &Sidecar, body: &str) -> Reply {
        self.message(body).send(sidecar.mcp)
    }

    pub(super) fn message(&self, body: &str) -> Request {
        let request =
            Request::new("POST", &self.endpoint).header("content-type", "application/json").body(body);
        self.key.iter().fold(request, |request, key| request.key(key))
    }

    pub(crate) fn hear(&mut self) -> Value {
        let event = self.stream.next().expect("something is said");
        assert_eq!((event.event.as_str(), event.id.as_str()), ("message", ""));
        event.message()
    }

    pub(crate) fn call(&mut self, sidecar: &Sidecar, id: u32, tool: &str, arguments: &Value) -> Value {
        let reply = self.post(sidecar, &call(id, tool, arguments));
        assert_eq!((reply.status, reply.text()), (202, ""));
        self.answer(id)
    }

    /// Hears of whatever it is until the answer to this call.
    pub(super) fn answer(&mut self, id: u32) -> Value {
        loop {
            let message = self.hear();
            if message["id"] == id {
                return message;
            }
        }
    }
}

pub(super) fn call(id: u32, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

pub(super) fn echo(text: &str) -> Value {
    json!({"text": text})
}
