//! Clients with sessions, and a server of 2026-07-28, which has none.

mod absences;
mod asking;
mod calls;
mod ends;
mod hearing;

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::scripted::{self, message, reply_to};
use crate::harness::{Client, Request, Sessionless, Sidecar, config, modern};

/// What a server can do that can do everything.
pub(crate) fn everything() -> Value {
    json!({
        "tools": {"listChanged": true}, "prompts": {}, "logging": {}, "completions": {},
        "resources": {"subscribe": true, "listChanged": true},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    })
}

/// Its tools.
pub(crate) fn tools() -> Value {
    json!([
        {"name": "echo", "inputSchema": {"type": "object"}},
        {"name": "marked", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"}}}},
        {"name": "list", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
    ])
}

/// A server that answers calls of tools by `answer`.
pub(crate) fn serving(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Sessionless {
    Sessionless::start(everything(), tools(), answer)
}

/// One that says what it was called with.
pub(crate) fn echoing() -> Sessionless {
    serving(|request, stream| {
        let text = message(request)["params"]["arguments"].to_string();
        answer(request, stream, &json!({"content": [{"type": "text", "text": text}]}));
    })
}

/// The same at this port.
pub(crate) fn echoing_at(port: u16) -> Sessionless {
    Sessionless::at(port, everything(), tools(), |request, stream| {
        answer(request, stream, &json!({"content": [{"type": "text", "text": "modern"}]}));
    })
}

/// Answers with a result.
pub(crate) fn answer(request: &Request, stream: &mut TcpStream, result: &Value) {
    let mut result = result.clone();
    result.as_object_mut().unwrap().entry("resultType").or_insert(json!("complete"));
    scripted::json(stream, &reply_to(request, &result));
}

/// A sidecar in front of it that knows what it speaks.
pub(crate) fn sidecar(server: &Sessionless) -> Sidecar {
    Sidecar::start(&config(server.port)).ready()
}

/// A client that can be asked for everything.
pub(crate) fn able<'a>(sidecar: &'a Sidecar, revision: &'static str) -> Client<'a> {
    let capabilities = match revision {
        "2025-11-25" => {
            json!({"roots": {"listChanged": true}, "sampling": {}, "elicitation": {"form": {}, "url": {}}})
        }
        "2025-06-18" => json!({"roots": {}, "sampling": {}, "elicitation": {}}),
        _ => json!({"roots": {}, "sampling": {}}),
    };
    Client::with_capabilities(sidecar, None, revision, &capabilities)
}

/// The revisions whose clients have sessions over Streamable HTTP.
pub(crate) const WITH_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Those of them whose users can be asked.
pub(crate) const WITH_FORMS: [&str; 2] = ["2025-06-18", "2025-11-25"];

#[test]
fn r019_a_session_begins_with_the_revision_that_its_client_asks_for() {
    let server = echoing();
    let sidecar = sidecar(&server);
    for revision in WITH_SESSIONS {
        let reply = Request::post(crate::harness::client::initialize(revision)).send(sidecar.mcp);
        let result = &reply.message()["result"];
        let expected = json!({
            "protocolVersion": revision, "serverInfo": {"name": "modern", "version": "1"},
            "instructions": "be kind",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "1"}},
            "capabilities": {
                "tools": {"listChanged": true}, "prompts": {}, "logging": {}, "completions": {},
                "resources": {"subscribe": true, "listChanged": true},
            },
        });
        assert_eq!(result, &expected, "{revision}");
    }
    let asked = server.seen("server/discover").pop().unwrap();
    let meta = &message(&asked)["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"], json!({"name": "test", "version": "1"}));
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    assert_eq!(server.seen("initialize").len(), 0, "the server has no such thing");
}

/// Each request would have to repeat it.
#[test]
fn a_server_does_not_hear_who_a_client_is_that_takes_long_to_say_so() {
    let server = echoing();
    let sidecar = sidecar(&server);
    let mut first: Value = serde_json::from_str(&crate::harness::client::initialize("2025-11-25")).unwrap();
    first["params"]["clientInfo"]["icons"] = json!([{"src": format!("data:,{}", "x".repeat(16 * 1024))}]);
    let opened = Request::post(first.to_string()).send(sidecar.mcp).message();
    assert_eq!(opened["result"]["serverInfo"]["name"], "modern", "{opened}");
    let asked = server.seen("server/discover").pop().unwrap();
    assert_eq!(message(&asked)["params"]["_meta"].get("io.modelcontextprotocol/clientInfo"), None);
}

/// What the server is known to speak does not depend on what a client says of itself.
#[test]
fn a_client_that_a_server_cannot_read_is_refused_alone() {
    let server = echoing();
    server.says(|says| says.is_particular = true);
    let sidecar = sidecar(&server);
    let before = able(&sidecar, "2025-11-25");
    let mut first: Value = serde_json::from_str(&crate::harness::client::initialize("2025-11-25")).unwrap();
    first["params"]["capabilities"] = json!({"experimental": {"x": {}}});
    let refused = Request::post(first.to_string()).send(sidecar.mcp).message();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    alone_is_answered(&sidecar);
    for client in [before, able(&sidecar, "2025-06-18")] {
        assert!(client.call("echo", json!({}))["result"]["content"].is_array());
    }
    assert_eq!(server.seen("server/discover").len(), 3, "each client was told of once");
}

/// Nor on the trace that it is part of, which many servers do not read if it is long.
#[test]
fn a_client_whose_trace_is_too_long_for_its_server_is_refused_alone() {
    let server = echoing();
    let sidecar = sidecar(&server);
    // As long as they may be here, each.
    let long = format!("a={}", "x".repeat(8 * 1024 - 2));
    let traced = |request: Request| request.header("baggage", &long).header("tracestate", &long);
    let first = traced(Request::post(crate::harness::client::initialize("2025-11-25")));
    let opened = first.send(sidecar.mcp).message();
    assert_eq!(opened["result"]["serverInfo"]["name"], "modern", "{opened}");
    let client = able(&sidecar, "2025-11-25");
    let call = client.message("tools/call", &json!({"name": "echo", "arguments": {}}));
    let refused = traced(client.request(call)).send(sidecar.mcp).message();
    assert!(refused["error"]["message"].as_str().unwrap().contains("431"), "{refused}");
    alone_is_answered(&sidecar);
    assert!(client.call("echo", json!({}))["result"]["content"].is_array());
}

/// Whatever a server says for a moment.
#[test]
fn a_server_that_was_taken_for_another_one_is_asked_again_who_it_is() {
    let server = echoing();
    let sidecar = sidecar(&server);
    // To the client that begins a session, and once more.
    server.says(|says| says.is_shy = 2);
    let refused = Request::post(crate::harness::client::initialize("2025-11-25")).send(sidecar.mcp).message();
    assert!(refused.get("error").is_some(), "{refused}");
    alone_is_answered(&sidecar);
    assert!(able(&sidecar, "2025-11-25").call("echo", json!({}))["result"]["content"].is_array());
}

fn alone_is_answered(sidecar: &Sidecar) {
    let said = modern::request(1, "tools/call", json!({"name": "echo", "arguments": {}})).send(sidecar.mcp);
    assert!(said.message()["result"]["content"].is_array(), "{}", said.text());
}

#[test]
fn what_a_session_keeps_never_reaches_the_server() {
    let server = echoing();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for (method, params, expected) in [
        ("ping", json!({}), json!({"result": {}})),
        ("logging/setLevel", json!({"level": "warning"}), json!({"result": {}})),
        ("logging/setLevel", json!({"level": "loud"}), json!({"error": {"code": -32602}})),
        ("resources/subscribe", json!({"uri": "test://a"}), json!({"result": {}})),
        ("resources/unsubscribe", json!({"uri": "test://a"}), json!({"result": {}})),
    ] {
        let message = client.ask(method, params.clone());
        let said = match message.get("error") {
            Some(error) => json!({"error": {"code": error["code"]}}),
            None => json!({"result": message["result"]}),
        };
        assert_eq!(said, expected, "{method} {params}");
        assert!(server.seen(method).is_empty(), "{method}");
    }
    for notification in ["notifications/initialized", "notifications/roots/list_changed"] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"{notification}"}}"#);
        assert_eq!(client.request(body).send(sidecar.mcp).status, 202);
        assert!(server.seen(notification).is_empty());
    }
    assert_eq!(client.end().status, 204);
    assert_eq!(client.send("ping", json!({})).status, 404);

    // What the server does not have, a session does not have either.
    let server = Sessionless::start(json!({"tools": {}}), tools(), |_, _| {});
    let sidecar = self::sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for (method, params) in
        [("logging/setLevel", json!({"level": "info"})), ("resources/subscribe", json!({"uri": "a:b"}))]
    {
        assert_eq!(client.ask(method, params)["error"]["code"], -32601, "{method}");
    }
    assert_eq!(client.get().send(sidecar.mcp).status, 405, "there will never be anything to hear");
}
