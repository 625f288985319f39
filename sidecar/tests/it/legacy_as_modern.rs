//! Requests that stand alone, in front of servers with sessions.

mod beside;
mod ends;
mod eras;
mod faults;
mod greeted;
mod limits;
mod nobody;
mod old;
mod plain;
mod polls;
mod questions;
mod replicas;
mod states;
mod subscriptions;

use serde_json::{Value, json};

use crate::harness::{Reply, Request, Scripted, modern, scripted};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// A request of a client that can do this.
fn request(id: impl Into<Value>, method: &str, params: Value, can: &Value) -> Request {
    let mut message = modern::message(id, method, params);
    message["params"]["_meta"][CAPABILITIES] = can.clone();
    modern::of(&message.to_string())
}

/// One that listens to this.
fn listen(id: &str, notifications: Value) -> Request {
    request(id, "subscriptions/listen", json!({"notifications": notifications}), &json!({}))
}

/// A call of a tool.
fn call(name: &str, arguments: Value, can: &Value) -> Request {
    request(1, "tools/call", json!({"name": name, "arguments": arguments}), can)
}

/// The same call, with answers to what was asked.
fn again(name: &str, arguments: Value, can: &Value, state: &str, responses: Value) -> Request {
    let params = json!({
        "name": name, "arguments": arguments, "requestState": state, "inputResponses": responses,
    });
    request(2, "tools/call", params, can)
}

/// The text that a tool returned.
fn text(reply: &Reply) -> String {
    let message = reply.message();
    assert_eq!(reply.status, 200, "{message}");
    assert_eq!(message["result"]["resultType"], "complete", "{message}");
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{message}")).to_owned()
}

/// What the client is asked, and the state that it brings back.
fn asked(reply: &Reply) -> (Vec<(String, Value)>, String) {
    let message = reply.message();
    assert_eq!(reply.status, 200, "{message}");
    let result = &message["result"];
    assert_eq!(result["resultType"], "input_required", "{message}");
    let requests = result["inputRequests"].as_object().unwrap_or_else(|| panic!("{message}"));
    let requests = requests.iter().map(|(key, request)| (key.clone(), request.clone())).collect();
    (requests, result["requestState"].as_str().unwrap_or_else(|| panic!("{message}")).to_owned())
}

/// Whether a reply is this error.
fn is_error(reply: &Reply, status: u16, code: i64) -> String {
    let message = reply.message();
    assert_eq!((reply.status, &message["error"]["code"]), (status, &json!(code)), "{message}");
    message["error"]["message"].as_str().unwrap_or_default().to_owned()
}

/// A server whose tool `ask` asks for roots and waits; `hang` says nothing, and `echo` is answered.
fn asking() -> Scripted {
    Scripted::offering(json!({"tools": {"listChanged": true}}), |request, stream| {
        let message = scripted::message(request);
        let tool = message["params"]["name"].as_str().unwrap_or_default();
        if message["method"] == "tools/list" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        if tool == "echo" {
            let result = json!({"content": [{"type": "text", "text": "echoed"}]});
            return scripted::reply(stream, request, &result);
        }
        scripted::begin_events(stream);
        if tool == "ask" {
            scripted::ask_for_roots(stream);
        }
        scripted::until_closed(stream);
    })
}

/// A client that can be asked for roots.
fn roots() -> Value {
    json!({"roots": {}})
}
