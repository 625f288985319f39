//! Everything that can be wrong with a request, each with the status, the code and the one audit line it gets.

mod lenient;
mod unread;

use std::io::{BufReader, Read, Write};

use serde_json::{Value, json};

use crate::harness::config::{keys, rule};
use crate::harness::http::{Reply, Request, connect};
use crate::harness::{Client, Files, GoServer, Sidecar, client, config, eventually, modern};

const KEY: &str = "the-key-of-alice";
const OTHER_KEY: &str = "the-key-of-bob";

/// A wrong request, and what it gets.
struct Case {
    name: &'static str,
    request: Request,
    status: u16,
    code: i64,
    /// What the audit line says.
    reason: &'static str,
}

fn sidecar(port: u16) -> Sidecar {
    let files = Files::new();
    let mut config = config(port);
    config.limits.request_bytes = 2000;
    config.access = vec![rule("some", &["echo", "add", "fail"], &[], &["memo://other*"])];
    config.tools.exclude = vec!["add".to_owned()];
    files.write_with_keys(&config, &keys(&[("alice", KEY), ("bob", OTHER_KEY)]));
    let flags = ["--body-timeout-ms", "400", "--head-timeout-ms", "2000"];
    Sidecar::with(files, &flags).loaded().ready()
}

/// 1 to 7, 49, 50, 52 to 54, 56.
#[test]
fn r049_gets_a_status_a_code_and_an_audit_line() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let alice = Client::open(&sidecar, Some(KEY));
    let bob = Client::open(&sidecar, Some(OTHER_KEY));
    let middle = Client::of(&sidecar, Some(KEY), "2025-06-18");
    let older = Client::of(&sidecar, Some(KEY), "2025-03-26");
    let oldest = Client::of(&sidecar, Some(KEY), "2024-11-05");
    let ended = Client::open(&sidecar, Some(KEY));
    let delete = |client: &Client<'_>| {
        Request::new("DELETE", "/mcp").key(KEY).session(&client.session).send(sidecar.mcp).status
    };
    assert_eq!(delete(&ended), 204);
    sidecar.audit(|line| line["method"] == "DELETE");

    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let request = |method: &str, params: serde_json::Value| alice.request(alice.message(method, &params));
    let call = |tool: &str| request("tools/call", json!({"name": tool, "arguments": {}}));
    let get =
        || Request::new("GET", "/mcp").key(KEY).session(&alice.session).header("accept", "text/event-stream");
    let end = || Request::new("DELETE", "/mcp").key(KEY).session(&alice.session);
    let modern = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let case = |name, request, status, code, reason| Case { name, request, status, code, reason };
    let cases = [
        // Who calls, from where, to whom.
        case("no key", alice.request(ping).without("authorization"), 401, -32600, "no key"),
        case("a wrong key", alice.request(ping).with("authorization", "Bearer nope"), 401, -32600, "no live key"),
        case("another scheme", alice.request(ping).with("authorization", "Basic abc"), 401, -32600, "no usable key"),
        case("two keys", alice.request(ping).header("x-api-key", KEY), 401, -32600, "no usable key"),
        case("a key in the query", {
            let mut request = alice.request(ping).without("authorization");
            request.path = format!("/mcp?key={KEY}&api_key={KEY}&access_token={KEY}");
            request
        }, 401, -32600, "no key"),
        case("a foreign host", alice.request(ping).with("host", "evil.example"), 403, -32600, "foreign host"),
        case("two hosts", alice.request(ping).header("host", "localhost"), 403, -32600, "foreign host"),
        case("a foreign origin", alice.request(ping).header("origin", "https://evil.example"), 403, -32600, "foreign origin"),
        case("no origin at all", alice.request(ping).header("origin", "null"), 403, -32600, "foreign origin"),
        case("a foreign host, no key", Request::post(ping).with("host", "evil.example"), 403, -32600, "foreign host"),
        // HTTP.
        case("another path", Request::new("POST", "/").key(KEY), 404, -32600, "unknown path"),
        case("GET in no session", Request::new("GET", "/mcp").key(KEY).header("accept", "text/event-stream"), 400, -32600, "no session"),
        case("GET of no events", get().with("accept", "application/json"), 406, -32600, "Accept leaves out a type"),
        case("GET of nothing", get().without("accept"), 406, -32600, "Accept leaves out a type"),
        case("GET in an unknown session", get().with("mcp-session-id", &"0".repeat(32)), 404, -32600, "unknown session"),
        case("GET in somebody else's session", get().with("mcp-session-id", &bob.session), 404, -32600, "unknown session"),
        case("GET of another revision", get().header("mcp-protocol-version", "2025-06-18"), 400, -32600, "not the session's revision"),
        case("DELETE of another revision", end().header("mcp-protocol-version", "2025-06-18"), 400, -32600, "not the session's revision"),
        case("DELETE of no revision", end().header("mcp-protocol-version", "nonsense"), 400, -32600, "not the session's revision"),
        case("DELETE of a revision without sessions", end().header("mcp-protocol-version", "2026-07-28"), 400, -32600, "not the session's revision"),
        case("DELETE of its revision twice", end().header("mcp-protocol-version", "2025-11-25").header("mcp-protocol-version", "2025-11-25"), 400, -32600, "not the session's revision"),
        case("GET of the rest of nothing", get().header("last-event-id", "nonsense"), 400, -32600, "events not kept"),
        case("GET of two rests", get().header("last-event-id", "a").header("last-event-id", "b"), 400, -32600, "malformed header"),
        case("PUT", Request::new("PUT", "/mcp").key(KEY), 405, -32600, "HTTP method not allowed"),
        case("no Accept", alice.request(ping).without("accept"), 406, -32600, "Accept leaves out a type"),
        case("half of Accept", alice.request(ping).with("accept", "application/json"), 406, -32600, "Accept leaves out a type"),
        case("a wrong type", alice.request(ping).with("content-type", "text/plain"), 415, -32600, "wrong content type"),
        case("no type", alice.request(ping).without("content-type"), 415, -32600, "wrong content type"),
        case("a compressed body", alice.request(ping).header("content-encoding", "gzip"), 415, -32600, "wrong content type"),
        case("a large body", alice.request(vec![b' '; 2001]), 413, -32600, "body too large"),
        // JSON-RPC.
        case("no JSON", alice.request("{"), 400, -32700, "not JSON"),
        case("an empty body", alice.request(""), 400, -32700, "not JSON"),
        case("no UTF-8", alice.request(b"{\"jsonrpc\":\"\xff\"}".to_vec()), 400, -32700, "not JSON"),
        case("a batch", alice.request(format!("[{ping}]")), 400, -32600, "batch"),
        case("a batch of nothing", alice.request("[]"), 400, -32600, "malformed batch"),
        case("a batch with an id twice", alice.request(format!("[{ping},{ping}]")), 400, -32600, "malformed batch"),
        case("a batch with a handshake", alice.request(format!("[{}]", client::initialize("2025-03-26"))), 400, -32600, "malformed batch"),
        case("a batch in no session", Request::post(format!("[{ping}]")).key(KEY), 400, -32600, "no session"),
        case("a deep body", alice.request(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{}{}}}}}"#, "[".repeat(200), "]".repeat(200))), 400, -32600, "nested too deeply"),
        case("no message", alice.request(r#"{"id":1}"#), 400, -32600, "not a JSON-RPC message"),
        case("a null id", alice.request(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), 400, -32600, "not a JSON-RPC message"),
        case("an id that is a fraction", alice.request(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), 400, -32600, "not a JSON-RPC message"),
        case("no version of JSON-RPC", alice.request(r#"{"id":1,"method":"ping"}"#), 400, -32600, "not a JSON-RPC message"),
        case("a method twice", alice.request(r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/call"}"#), 400, -32600, "not a JSON-RPC message"),
        case("parameters as a list", request("tools/call", json!(["echo"])), 200, -32602, "invalid parameters"),
        case("a name twice", alice.request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","n\u0061me":"slow"}}"#), 200, -32602, "invalid parameters"),
        case("a member that is almost the method", alice.request(r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}"#), 400, -32600, "not a JSON-RPC message"),
        case("a parameter that is almost the name", alice.request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"slow"}}"#), 200, -32602, "invalid parameters"),
        case("no name", request("tools/call", json!({})), 200, -32602, "invalid parameters"),
        // Revisions.
        case("a modern claim", request("tools/list", modern.clone()), 400, -32602, "incomplete envelope"),
        case("a modern header", alice.request(ping).with("mcp-protocol-version", "2026-07-28"), 400, -32602, "incomplete envelope"),
        case("another revision", alice.request(ping).with("mcp-protocol-version", "2025-06-18"), 400, -32600, "not the session's revision"),
        case("no revision", alice.request(ping).with("mcp-protocol-version", "nonsense"), 400, -32600, "not the session's revision"),
        case("another revision than that of a session of 2025-06-18", middle.request(ping).with("mcp-protocol-version", "2025-11-25"), 400, -32600, "not the session's revision"),
        case("no revision in a session of 2025-06-18", middle.request(ping).with("mcp-protocol-version", "nonsense"), 400, -32600, "not the session's revision"),
        // Sessions.
        case("a revision without a session", Request::post(ping).key(KEY).header("mcp-protocol-version", "2025-06-18"), 400, -32600, "no session"),
        case("no session", Request::post(ping).key(KEY), 400, -32600, "no session"),
        case("an answer in no session", Request::post(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).key(KEY), 400, -32600, "no session"),
        case("an unknown session", Request::post(ping).key(KEY).session(&"0".repeat(32)), 404, -32600, "unknown session"),
        case("somebody else's session", Request::post(ping).key(KEY).session(&bob.session), 404, -32600, "unknown session"),
        case("a session that has ended", Request::post(ping).key(KEY).session(&ended.session), 404, -32600, "unknown session"),
        case("two sessions", alice.request(ping).session(&bob.session), 400, -32600, "malformed header"),
        case("to end it twice", Request::new("DELETE", "/mcp").key(KEY).session(&ended.session), 404, -32600, "unknown session"),
        case("to end none", Request::new("DELETE", "/mcp").key(KEY), 400, -32600, "no session"),
        case("to end somebody else's", Request::new("DELETE", "/mcp").key(KEY).session(&bob.session), 404, -32600, "unknown session"),
        case("a second handshake", alice.request(client::initialize("2025-11-25")), 400, -32600, "second initialize"),
        case("a second handshake in a session of 2025-06-18", middle.request(client::initialize("2025-06-18")), 400, -32600, "second initialize"),
        case("a second handshake in a session of 2025-03-26", older.request(client::initialize("2025-03-26")), 400, -32600, "second initialize"),
        case("a second handshake in a session of 2024-11-05", oldest.request(client::initialize("2024-11-05")), 400, -32600, "second initialize"),
        case("a batch in a session of 2024-11-05", oldest.request(format!("[{ping}]")), 400, -32600, "batch"),
        case("a handshake without version", Request::post(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#).key(KEY), 200, -32602, "unusable handshake"),
        // What is asked for.
        case("an unknown method", request("tasks/update", json!({"taskId": "1"})), 200, -32601, "unknown method"),
        case("an unknown method, odd parameters", request("x/y", json!([1])), 200, -32601, "unknown method"),
        case("an unknown tool", call("nope"), 200, -32602, "no rule permits it"),
        case("a denied tool", call("slow"), 200, -32602, "no rule permits it"),
        case("a hidden tool", call("add"), 200, -32602, "the tool is hidden by include or exclude"),
        case("a denied prompt", request("prompts/get", json!({"name": "greet"})), 200, -32602, "no rule permits it"),
        case("a denied resource", request("resources/read", json!({"uri": "memo://greeting"})), 200, -32002, "no rule permits it"),
        case("to hear of a denied resource", request("resources/subscribe", json!({"uri": "memo://greeting"})), 200, -32002, "no rule permits it"),
        case("to complete for a denied prompt", request("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": ""}})), 200, -32602, "no rule permits it"),
    ];

    for Case { name, request, status, code, reason } in cases {
        let before = sidecar.audit_lines();
        let reply = request.send(sidecar.mcp);
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        let message = reply.message();
        assert_eq!(message["jsonrpc"], "2.0", "{name}");
        assert_eq!(message["error"]["code"], code, "{name}: {message}");
        assert!(message["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        assert_ne!(message.get("id"), Some(&serde_json::Value::Null), "{name}: an id is given or left out");
        let line = sidecar.audit_after(before);
        assert_eq!(line["reason"], reason, "{name}: {line}");
        assert_eq!((&line["status"], &line["code"]), (&json!(status), &json!(code)), "{name}: {line}");
        assert_eq!(line["decision"], "deny", "{name}: {line}");
        assert_eq!(sidecar.audit_lines(), before + 1, "{name}: one line");
        match status {
            401 => assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{name}"),
            405 => assert_eq!(reply.header("allow"), Some("GET, POST, DELETE, OPTIONS"), "{name}"),
            _ => {}
        }
    }

    // What a refused caller hears of a tool does not tell whether it exists.
    let error = |tool: &str| alice.call(tool, json!({}))["error"].to_string().replace(tool, "T");
    assert_eq!(error("slow"), error("nope"));
    assert_eq!(error("add"), error("nope"));
    let written = sidecar.written();
    for secret in [KEY, OTHER_KEY, &alice.session, &bob.session, &ended.session] {
        assert!(!written.contains(secret), "a secret was written");
    }
    assert_eq!(alice.call("echo", json!({"text": "still"}))["result"]["content"][0]["text"], "still");
}

/// 52: those before 2025-06-18 do not know the header, so it says nothing about their sessions.
#[test]
fn r052_older_sessions_have_no_header_for_their_revision() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    for revision in ["2024-11-05", "2025-03-26"] {
        let client = Client::of(&sidecar, Some(KEY), revision);
        for header in ["2025-11-25", "2024-11-05", "nonsense"] {
            let request = client.request(client.message("ping", &json!({})));
            let reply = request.with("mcp-protocol-version", header).send(sidecar.mcp);
            assert_eq!((reply.status, &reply.message()["result"]), (200, &json!({})), "{revision}: {header}");
        }
        let end = Request::new("DELETE", "/mcp").key(KEY).session(&client.session);
        let reply = end.header("mcp-protocol-version", "nonsense").send(sidecar.mcp);
        assert_eq!(reply.status, 204, "{revision}: {}", reply.text());
    }
}

/// 1: whatever else is wrong with it.
#[test]
fn r001_a_foreign_origin_is_refused_before_anything_else() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    for request in [
        Request::new("PATCH", "/nowhere"),
        Request::new("OPTIONS", "/mcp").header("access-control-request-method", "POST"),
        Request::post("{"),
        modern::request(1, "tools/list", json!({})).key("nope"),
    ] {
        let reply = request.header("origin", "https://evil.example").send(sidecar.mcp);
        assert_eq!((reply.status, &reply.message()["error"]["code"]), (403, &json!(-32600)));
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
}

#[test]
fn r002_other_http_methods_are_told_which_there_are() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    for method in ["PUT", "PATCH", "HEAD", "TRACE", "LINK"] {
        let mut stream = connect(sidecar.mcp);
        Request::new(method, "/mcp").key(KEY).write(&mut stream);
        let (status, headers) = Reply::read_head(&mut BufReader::new(stream)).unwrap();
        assert_eq!(status, 405, "{method}");
        assert!(headers.contains(&("allow".to_owned(), "GET, POST, DELETE, OPTIONS".to_owned())), "{method}");
    }
}

#[test]
fn r009_what_needs_no_answer_gets_none() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let alice = Client::open(&sidecar, Some(KEY));
    for message in [
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody-asked","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody-asked","error":{"code":1,"message":"m"}}"#,
    ] {
        let reply = alice.request(message).send(sidecar.mcp);
        assert_eq!((reply.status, reply.body.len()), (202, 0), "{message}");
        assert_eq!(reply.header("content-type"), None, "{message}");
    }
}

#[test]
fn slow_and_endless_requests_are_ended() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let alice = Client::open(&sidecar, Some(KEY));
    let request = alice.request("");
    sidecar.audit(|line| line["method"] == "notifications/initialized");

    // A body that does not come.
    let before = sidecar.audit_lines();
    let mut stream = connect(sidecar.mcp);
    write!(stream, "{}content-length: 100\r\n\r\n{{", request.head()).unwrap();
    let reply = Reply::on(stream);
    assert_eq!((reply.status, &reply.message()["error"]["code"]), (408, &json!(-32600)));
    assert_eq!(sidecar.audit_after(before)["reason"], "body too slow");

    // A body whose length nobody said.
    let before = sidecar.audit_lines();
    let mut stream = connect(sidecar.mcp);
    write!(stream, "{}transfer-encoding: chunked\r\n\r\n", request.head()).unwrap();
    for _ in 0..3 {
        write!(stream, "400\r\n{}\r\n", " ".repeat(0x400)).unwrap();
    }
    let reply = Reply::on(stream);
    assert_eq!(reply.status, 413);
    assert_eq!(sidecar.audit_after(before)["reason"], "body too large");

    // A body that breaks off.
    let before = sidecar.audit_lines();
    let mut stream = connect(sidecar.mcp);
    write!(stream, "{}content-length: 100\r\n\r\n{{", request.head()).unwrap();
    drop(stream);
    eventually("it is in the log, or nobody was there to answer", || sidecar.audit_lines() > before);

    // A head that does not come.
    let mut stream = connect(sidecar.mcp);
    write!(stream, "POST /mcp HTTP/1.1\r\nhost: local").unwrap();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0, "it is closed without an answer");
    eventually("nobody is connected", || sidecar.metric("longshore_connections") == 0.0);
}

#[test]
fn browsers_of_allowed_origins_can_read_everything() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let origin = "https://app.example";
    let preflight = Request::new("OPTIONS", "/mcp")
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization, content-type, mcp-session-id, Mcp-Param-Region, X-Custom-Auth-Headers",
        )
        .send(sidecar.mcp);
    assert_eq!(preflight.status, 204);
    sidecar.audit(|line| {
        ["method", "decision", "reason"].map(|member| &line[member])
            == [&json!("OPTIONS"), &json!("permit"), &Value::Null]
    });
    assert_eq!(preflight.header("access-control-allow-origin"), Some(origin));
    assert_eq!(preflight.header("access-control-allow-methods"), Some("GET, POST, DELETE, OPTIONS"));
    let allowed = preflight.header("access-control-allow-headers").unwrap().to_ascii_lowercase();
    for header in [
        "authorization",
        "x-api-key",
        "content-type",
        "accept",
        "mcp-session-id",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
        // What a page sends for a reason of its own.
        "x-custom-auth-headers",
    ] {
        assert!(allowed.contains(header), "{header}");
    }
    let handshake = Request::post(client::initialize("2025-06-18")).header("origin", origin);
    for reply in [handshake.clone().key(KEY).send(sidecar.mcp), handshake.send(sidecar.mcp)] {
        assert_eq!(reply.header("access-control-allow-origin"), Some(origin), "{}", reply.status);
        let exposed = reply.header("access-control-expose-headers").unwrap();
        for header in ["Mcp-Session-Id", "MCP-Protocol-Version", "Retry-After", "WWW-Authenticate"] {
            assert!(exposed.contains(header), "{header}");
        }
    }
    let refused = Request::new("OPTIONS", "/mcp")
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST")
        .send(sidecar.mcp);
    assert_eq!(refused.status, 403);
    assert_eq!(refused.header("access-control-allow-origin"), None);
}

/// What some print who were refused for want of a key, and look for an authorization server then.
#[test]
fn who_looks_for_oauth_is_told_of_keys() {
    let server = GoServer::start(&[]);
    let with_keys = sidecar(server.port);
    let without = Sidecar::start(&config(server.port)).ready();
    for (method, path) in [
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("POST", "/register"),
        ("GET", "/authorize?response_type=code"),
        ("POST", "/token"),
    ] {
        // What is no message is not to be read as one here.
        let mut stream = connect(with_keys.mcp);
        Request::new(method, path).header("connection", "close").write(&mut stream);
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 404 "), "{path}: {reply}");
        let told = "this server takes API keys, not OAuth: send Authorization: Bearer KEY";
        let body: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body, json!({"error": "invalid_request", "error_description": told}), "{path}");
        with_keys.audit(|line| line["reason"] == "unknown path" && line["status"] == 404);
        let reply = Request::new(method, path).send(without.mcp);
        assert_eq!((reply.status, &reply.message()["error"]["code"]), (404, &json!(-32600)), "{path}");
    }
}

#[test]
fn every_name_of_the_server_is_known() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let alice = Client::open(&sidecar, Some(KEY));
    for host in ["peer.tools.svc", "Peer.tools.svc:15380", "localhost:1", "127.0.0.1", "[::1]:15380"] {
        let request = alice.request(alice.message("ping", &json!({}))).with("host", host);
        assert_eq!(request.send(sidecar.mcp).status, 200, "{host}");
    }
}

#[test]
fn an_unknown_notification_is_taken_and_not_passed_on() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let alice = Client::open(&sidecar, Some(KEY));
    let reply = alice.request(r#"{"jsonrpc":"2.0","method":"notifications/nope"}"#).send(sidecar.mcp);
    assert_eq!((reply.status, reply.body.len()), (202, 0));
    let line = sidecar.audit(|line| line["reason"] == "unknown notification");
    assert_eq!(line["decision"], "deny");
}
