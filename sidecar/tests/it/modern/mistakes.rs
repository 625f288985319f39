//! What is wrong with a request that stands alone, each with the exact status and code of its revision.

use serde_json::{Value, json};

use super::{DONE, answered};
use crate::harness::config::rule;
use crate::harness::{
    Client, Gate, Request, Scripted, Sidecar, client, config, eventually, modern, scripted,
};

struct Case {
    name: &'static str,
    request: Request,
    status: u16,
    code: i64,
    /// The id in the answer: none if it could not be read.
    id: Option<Value>,
    reason: &'static str,
}

fn list() -> Request {
    modern::request("i", "tools/list", json!({}))
}

fn call() -> Request {
    modern::request("i", "tools/call", json!({"name": "echo"}))
}

/// The request with another body, and the same head.
fn with_body(request: Request, edit: impl FnOnce(&mut Value)) -> Request {
    let mut message: Value = serde_json::from_slice(&request.body).unwrap();
    edit(&mut message);
    request.body(message.to_string())
}

fn meta<'a>(message: &'a mut Value, name: &str) -> &'a mut Value {
    &mut message["params"]["_meta"][format!("io.modelcontextprotocol/{name}")]
}

fn without_meta(request: Request, name: &'static str) -> Request {
    with_body(request, |message| {
        let meta = message["params"]["_meta"].as_object_mut().unwrap();
        meta.remove(&format!("io.modelcontextprotocol/{name}")).unwrap();
    })
}

fn unknown(header: &str) -> Request {
    with_body(list(), |message| *meta(message, "protocolVersion") = json!("2099-01-01"))
        .with("mcp-protocol-version", header)
}

fn server() -> Scripted {
    Scripted::of_both(json!({}), |request, stream| {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{DONE}}}"#, scripted::message(request)["id"]);
        scripted::json(stream, &text);
    })
}

/// 1, 3 to 5, 8, 10, 14 to 18, 22 to 26, 28 to 31.
#[test]
#[rustfmt::skip]
fn r014_each_mistake_has_its_answer() {
    let server = server();
    let mut config = config(server.port);
    config.access = vec![rule("some", &["echo"], &[], &[])];
    config.limits.request_bytes = 400_000;
    let sidecar = Sidecar::start(&config);
    let session = Client::open(&sidecar, None);
    let case = |name, request, status, code, id: Value, reason| {
        Case { name, request, status, code, id: Some(id).filter(|id| !id.is_null()), reason }
    };
    let i = json!("i");
    let none = Value::Null;
    let told = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let get = || Request::new("GET", "/mcp").header("accept", "text/event-stream").header("mcp-protocol-version", modern::REVISION);
    let removed = |method: &str| modern::request("i", method, json!({}));
    let cases = [
        // The ladder, from its foot.
        case("no Accept", list().without("accept"), 406, -32600, none.clone(), "Accept leaves out a type"),
        case("half of Accept", list().with("accept", "application/json"), 406, -32600, none.clone(), "Accept leaves out a type"),
        case("a wrong type", list().with("content-type", "text/plain"), 415, -32600, none.clone(), "wrong content type"),
        case("a large body", list().body(vec![b' '; 400_001]), 413, -32600, none.clone(), "body too large"),
        case("a foreign origin", list().header("origin", "https://evil.example"), 403, -32600, none.clone(), "foreign origin"),
        case("no JSON", list().body("{"), 400, -32700, none.clone(), "not JSON"),
        case("no UTF-8", list().body(b"{\"jsonrpc\":\"\xff\"}".to_vec()), 400, -32700, none.clone(), "not JSON"),
        case("a deep body", list().body(format!(r#"{{"jsonrpc":"2.0","id":"i","method":"tools/list","params":{}{}}}"#, "[".repeat(200), "]".repeat(200))), 400, -32600, none.clone(), "nested too deeply"),
        case("a null id", with_body(list(), |message| message["id"] = Value::Null), 400, -32600, none.clone(), "not a JSON-RPC message"),
        case("an id that is a fraction", with_body(list(), |message| message["id"] = json!(1.5)), 400, -32600, none.clone(), "not a JSON-RPC message"),
        case("no version of JSON-RPC", with_body(list(), |message| drop(message.as_object_mut().unwrap().remove("jsonrpc"))), 400, -32600, none.clone(), "not a JSON-RPC message"),
        case("no message", list().body("7"), 400, -32600, none.clone(), "not a JSON-RPC message"),
        case("a batch", { let list = list(); let batch = format!("[{}]", String::from_utf8_lossy(&list.body)); list.body(batch) }, 400, -32600, none.clone(), "batch"),
        case("a modern message in a batch of none", { let batch = format!("[{}]", modern::message(1, "tools/list", json!({}))); Request::post(batch) }, 400, -32600, none.clone(), "modern message in a batch"),
        case("an answer", list().body(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), 400, -32600, none.clone(), "response out of place"),
        case("a notification of no revision", Request::post(told).header("mcp-protocol-version", "2099-01-01"), 400, -32022, none.clone(), "revision not served"),
        case("a notification of what is no revision", Request::post(told).header("mcp-protocol-version", "banana"), 400, -32022, none.clone(), "revision not served"),
        // The envelope.
        case("a modern header alone", Request::post(r#"{"jsonrpc":"2.0","id":"i","method":"tools/list"}"#).header("mcp-protocol-version", modern::REVISION).header("mcp-method", "tools/list"), 400, -32602, i.clone(), "incomplete envelope"),
        case("a handshake with a modern header", Request::post(client::initialize("2025-11-25")).header("mcp-protocol-version", modern::REVISION), 400, -32602, json!(0), "incomplete envelope"),
        case("no capabilities", without_meta(list(), "clientCapabilities"), 400, -32602, i.clone(), "incomplete envelope"),
        case("no revision in the body", without_meta(list(), "protocolVersion"), 400, -32602, i.clone(), "incomplete envelope"),
        case("capabilities that are none", with_body(list(), |message| *meta(message, "clientCapabilities") = json!([])), 400, -32602, i.clone(), "incomplete envelope"),
        case("no such level", with_body(list(), |message| *meta(message, "logLevel") = json!("loud")), 400, -32602, i.clone(), "incomplete envelope"),
        // Header against body.
        case("no header", list().without("mcp-protocol-version"), 400, -32020, i.clone(), "header against body"),
        case("another header", list().with("mcp-protocol-version", "2025-11-25"), 400, -32020, i.clone(), "header against body"),
        case("an unknown revision in the body alone", unknown(modern::REVISION), 400, -32020, i.clone(), "header against body"),
        case("the header twice", list().header("mcp-protocol-version", modern::REVISION), 400, -32020, i.clone(), "header against body"),
        case("no method", list().without("mcp-method"), 400, -32020, i.clone(), "header against body"),
        case("another method", list().with("mcp-method", "tools/call"), 400, -32020, i.clone(), "header against body"),
        case("the method in another case", list().with("mcp-method", "Tools/List"), 400, -32020, i.clone(), "header against body"),
        case("the method twice", list().header("mcp-method", "tools/list"), 400, -32020, i.clone(), "header against body"),
        case("no name", call().without("mcp-name"), 400, -32020, i.clone(), "header against body"),
        case("another name", call().with("mcp-name", "exit"), 400, -32020, i.clone(), "header against body"),
        case("the name twice", call().header("mcp-name", "echo"), 400, -32020, i.clone(), "header against body"),
        case("a name that is no base64", call().with("mcp-name", "=?base64?ZWNobw?="), 400, -32020, i.clone(), "header against body"),
        // Revisions and methods.
        case("a revision that nobody knows", unknown("2099-01-01"), 400, -32022, i.clone(), "revision not served"),
        case("a claim of an older revision", with_body(list(), |message| *meta(message, "protocolVersion") = json!("2025-11-25")).with("mcp-protocol-version", "2025-11-25"), 400, -32022, i.clone(), "revision not served"),
        case("initialize", removed("initialize"), 404, -32601, i.clone(), "unknown method"),
        case("ping", removed("ping"), 404, -32601, i.clone(), "unknown method"),
        case("logging/setLevel", removed("logging/setLevel"), 404, -32601, i.clone(), "unknown method"),
        case("resources/subscribe", removed("resources/subscribe"), 404, -32601, i.clone(), "unknown method"),
        case("an unknown method", removed("x/y"), 404, -32601, i.clone(), "unknown method"),
        // Parameters and access.
        case("no name at all", modern::request("i", "tools/call", json!({})), 200, -32602, i.clone(), "invalid parameters"),
        case("too many parameters", with_body(list(), |message| {
            let params = message["params"].as_object_mut().unwrap();
            params.extend((0..16_384).map(|number| (number.to_string(), Value::Null)));
        }), 400, -32602, i.clone(), "invalid parameters"),
        case("a subscription to too many resources", {
            let uris: Vec<_> = (0..=1024).map(|number| format!("a:{number}")).collect();
            modern::request("i", "subscriptions/listen", json!({"notifications": {"resourceSubscriptions": uris}}))
        }, 200, -32602, i.clone(), "invalid parameters"),
        case("a name that is almost one", with_body(call(), |message| message["params"]["Name"] = json!("exit")), 200, -32602, i.clone(), "invalid parameters"),
        case("a denied tool", modern::request("i", "tools/call", json!({"name": "exit"})), 200, -32602, i.clone(), "no rule permits it"),
        case("a denied prompt", modern::request("i", "prompts/get", json!({"name": "exit"})), 200, -32602, i.clone(), "no rule permits it"),
        case("a denied resource", modern::request("i", "resources/read", json!({"uri": "a://b"})), 200, -32602, i.clone(), "no rule permits it"),
        case("to hear of a denied resource", modern::request("i", "subscriptions/listen", json!({"notifications": {"resourceSubscriptions": ["a://b"]}})), 200, -32602, i.clone(), "no rule permits it"),
        // No session is opened, used or ended.
        case("GET", get(), 405, -32600, none.clone(), "HTTP method not allowed"),
        case("DELETE", get().with_method("DELETE"), 405, -32600, none.clone(), "HTTP method not allowed"),
        case("a modern body in a session", modern::request("i", "tools/list", json!({})).session(&session.session).with("mcp-protocol-version", "2025-11-25"), 400, -32020, i.clone(), "header against body"),
        case("a legacy body with a modern head, in a session", session.request(session.message("ping", &json!({}))).with("mcp-protocol-version", modern::REVISION), 400, -32602, json!(1), "incomplete envelope"),
        case("a call of an older revision in no session", Request::post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#), 400, -32600, json!(7), "no session"),
        case("a revision of no session", Request::post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#).header("mcp-protocol-version", "banana"), 400, -32602, json!(7), "incomplete envelope"),
    ];
    sidecar.audit(|line| line["method"] == "notifications/initialized");
    let before_all = server.seen("POST").len();
    for Case { name, request, status, code, id, reason } in cases {
        let before = sidecar.audit_lines();
        let reply = request.send(sidecar.mcp);
        let message = reply.message();
        assert_eq!((reply.status, &message["error"]["code"]), (status, &json!(code)), "{name}: {message}");
        assert_eq!(message.get("id"), id.as_ref(), "{name}: {message}");
        assert_eq!(reply.header("mcp-session-id"), None, "{name}");
        let line = sidecar.audit_after(before);
        assert_eq!((&line["reason"], &line["status"], &line["code"]), (&json!(reason), &json!(status), &json!(code)), "{name}: {line}");
        assert_eq!(line["decision"], "deny", "{name}");
        if name.ends_with("a denied resource") {
            assert_eq!(line["target"], "a://b", "{name}: {line}");
        }
        if status == 405 {
            assert_eq!(reply.header("allow"), Some("POST, OPTIONS"), "{name}");
        }
        if code == -32022 {
            assert_eq!(message["error"]["data"]["supported"], json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]), "{name}");
            assert_eq!(message["error"]["data"]["requested"].as_str(), request.value("mcp-protocol-version"), "{name}");
        }
    }
    assert_eq!(server.seen("POST").len(), before_all, "nothing of it reached the server");
    // Nobody else noticed.
    assert_eq!(session.ask("ping", json!({}))["result"], json!({}));
    assert_eq!(call().send(sidecar.mcp).status, 200);
    // Names of headers have no case. Who the client is none of these has said.
    let other_case = call().without("mcp-method").header("MCP-METHOD", "tools/call");
    assert_eq!(other_case.send(sidecar.mcp).status, 200);
    assert_eq!(call().with("mcp-name", " =?base64?ZWNobw==?= ").send(sidecar.mcp).status, 200);
    // What is accepted and sent may be said in several ways.
    for accept in ["*/*", "application/*;q=0.5, text/*", "text/event-stream; q=0.9,application/json;charset=utf-8"] {
        assert_eq!(call().with("accept", accept).send(sidecar.mcp).status, 200, "{accept}");
    }
    assert_eq!(call().with("content-type", "application/json; charset=utf-8").send(sidecar.mcp).status, 200);
}

/// 10: it is taken, and reaches nobody: neither the server nor the call of somebody else that has this id.
#[test]
fn r010_notifications_are_dropped() {
    let gate = Gate::default();
    let waits = gate.clone();
    let server = Scripted::of_both(json!({}), move |request, stream| {
        if scripted::method_of(request) == "tools/call" {
            waits.pass();
        }
        scripted::json(stream, &answered(request, DONE));
    });
    let sidecar = Sidecar::start(&config(server.port));
    let (call, mcp) = (modern::request(1, "tools/call", json!({"name": "echo"})), sidecar.mcp);
    let calling = std::thread::spawn(move || call.send(mcp).message());
    eventually("it is under way", || server.seen("tools/call").len() == 1);
    let told = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let reply = Request::post(told).header("mcp-protocol-version", modern::REVISION).send(sidecar.mcp);
    assert_eq!((reply.status, reply.body.len()), (202, 0));
    assert_eq!(sidecar.audit(|line| line["method"] == "notifications/cancelled")["decision"], "permit");
    assert!(server.seen("notifications/cancelled").is_empty());
    gate.open();
    assert_eq!(calling.join().unwrap()["result"]["x"], 1.0);
}
