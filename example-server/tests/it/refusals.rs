//! What each revision forbids, a line each.

use longshore_mcp::revision::Revision::{self, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};
use serde_json::{Value, json};

use crate::harness::{Fixture, POST, borrowed, initialize, lone, request};
use crate::schema;

/// A status, and the code of the error.
type Expected = (u16, i64);

/// The headers and the body of a `POST`.
type Post = (Vec<(String, String)>, Value);

/// What is changed of something that is in order.
#[derive(Clone, Copy)]
enum Change {
    /// This header has another value.
    Set(&'static str, &'static str),
    /// This header is there once more.
    Add(&'static str, &'static str),
    /// This header is missing.
    Drop(&'static str),
    /// The body is another one.
    Body(&'static str),
    /// A member of the body, by its path, has another value.
    Member(&'static str, &'static str),
    /// A member of the body is missing.
    Without(&'static str),
}

use Change::{Add, Body, Drop, Member, Set, Without};

async fn judge(
    fixture: &Fixture,
    method: &str,
    mut headers: Vec<(String, String)>,
    body: &Value,
    changes: &[Change],
    expected: Expected,
    rule: &str,
) {
    let mut body = body.clone();
    let mut text = None;
    for change in changes {
        match *change {
            Set(name, value) => {
                headers.retain(|(known, _)| known != name);
                headers.push((name.into(), value.into()));
            }
            Add(name, value) => headers.push((name.into(), value.into())),
            Drop(name) => headers.retain(|(known, _)| known != name),
            Body(body) => text = Some(body.to_owned()),
            Member(path, value) => *body.pointer_mut(path).unwrap() = serde_json::from_str(value).unwrap(),
            Without(path) => {
                let (parent, name) = path.rsplit_once('/').unwrap();
                let name = name.replace("~1", "/");
                body.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(&name).unwrap();
            }
        }
    }
    let text = text.unwrap_or_else(|| body.to_string());
    let answer = fixture.whole(method, &borrowed(&headers), text).await;
    let revision = fixture.revision;
    let found = (answer.status, answer.json()["error"]["code"].as_i64().unwrap_or_default());
    assert_eq!(found, expected, "{revision}: {rule}: {}", answer.text);
    if revision >= V2025_11_25 {
        schema::check_message(revision, &answer.json());
    }
    assert!(!answer.headers.contains_key("mcp-session-id"), "{revision}: {rule}");
}

#[tokio::test]
async fn requests_that_stand_alone() {
    const META: &str = "/params/_meta/io.modelcontextprotocol~1";
    let version = "mcp-protocol-version";
    let fixture = Fixture::start(V2026_07_28).await;
    let call = json!({"name": "echo", "arguments": {"message": "hi"}});
    let call = lone("tools/call", call, json!({}));
    let read = lone("resources/read", json!({"uri": "test://static-text"}), json!({}));
    let list = lone("tools/list", json!({}), json!({}));
    let marked = json!({"name": "test_custom_headers", "arguments": {"region": "eu", "priority": 7}});
    let mut marked = lone("tools/call", marked, json!({}));
    marked.0.extend([("mcp-param-region".into(), "eu".into()), ("mcp-param-priority".into(), "7".into())]);

    let path = |name: &str| -> &'static str { Box::leak(format!("{META}{name}").into_boxed_str()) };
    #[rustfmt::skip]
    let table: &[(&str, &Post, &[Change], Expected)] = &[
        ("in order", &call, &[], (200, 0)),
        ("in order", &read, &[], (200, 0)),
        ("in order", &marked, &[], (200, 0)),
        ("names of headers in any case", &call, &[Drop("mcp-name"), Add("MCP-NAME", " echo ")], (200, 0)),
        ("a session means nothing", &call, &[Add("mcp-session-id", "x"), Add("last-event-id", "1")], (200, 0)),
        ("Accept needs both", &call, &[Set("accept", "application/json")], (406, -32600)),
        ("Accept needs both", &call, &[Drop("accept")], (406, -32600)),
        ("Content-Type is JSON", &call, &[Set("content-type", "text/plain")], (415, -32600)),
        ("a foreign Host", &call, &[Set("host", "evil.example")], (403, -32600)),
        ("a foreign Origin", &call, &[Set("origin", "http://evil.example")], (403, -32600)),
        ("an Origin of nowhere", &call, &[Set("origin", "null")], (403, -32600)),
        ("the body is JSON", &call, &[Body("{")], (400, -32700)),
        ("no batch", &call, &[Body(r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#)], (400, -32600)),
        ("no response", &call, &[Body(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)], (400, -32600)),
        ("an id that is null", &call, &[Member("/id", "null")], (400, -32600)),
        ("an id that is a fraction", &call, &[Member("/id", "1.5")], (400, -32600)),
        ("jsonrpc", &call, &[Without("/jsonrpc")], (400, -32600)),
        ("_meta", &call, &[Without("/params/_meta")], (400, -32602)),
        ("protocolVersion", &call, &[Without(path("protocolVersion"))], (400, -32602)),
        ("clientCapabilities", &call, &[Without(path("clientCapabilities"))], (400, -32602)),
        ("clientCapabilities is an object", &call, &[Member(path("clientCapabilities"), "[]")], (400, -32602)),
        ("the version's header", &call, &[Drop(version)], (400, -32020)),
        ("the version's header twice", &call, &[Add(version, "2026-07-28")], (400, -32020)),
        ("another version in the header", &call, &[Set(version, "2099-01-01")], (400, -32020)),
        ("another version in the body", &call, &[Member(path("protocolVersion"), r#""v999""#)], (400, -32020)),
        ("a version that nobody knows", &call,
            &[Set(version, "2099-01-01"), Member(path("protocolVersion"), r#""2099-01-01""#)], (400, -32022)),
        ("a version of another era", &call,
            &[Set(version, "2025-11-25"), Member(path("protocolVersion"), r#""2025-11-25""#)], (400, -32022)),
        ("Mcp-Method", &call, &[Drop("mcp-method")], (400, -32020)),
        ("Mcp-Method says the same", &call, &[Set("mcp-method", "tools/list")], (400, -32020)),
        ("Mcp-Method counts with its case", &call, &[Set("mcp-method", "Tools/Call")], (400, -32020)),
        ("Mcp-Name", &call, &[Drop("mcp-name")], (400, -32020)),
        ("Mcp-Name says the same", &call, &[Set("mcp-name", "add")], (400, -32020)),
        ("Mcp-Name of a resource", &read, &[Set("mcp-name", "test://static-binary")], (400, -32020)),
        ("base64 that is none", &call, &[Set("mcp-name", "=?base64?e?=")], (400, -32020)),
        ("Mcp-Param", &marked, &[Drop("mcp-param-region")], (400, -32020)),
        ("Mcp-Param says the same", &marked, &[Set("mcp-param-priority", "8")], (400, -32020)),
        ("Mcp-Param without an argument", &marked, &[Add("mcp-param-dry-run", "true")], (400, -32020)),
        ("a method that nobody knows", &list,
            &[Set("mcp-method", "no/such"), Member("/method", r#""no/such""#)], (404, -32601)),
        ("a method that is gone", &list,
            &[Set("mcp-method", "ping"), Member("/method", r#""ping""#)], (404, -32601)),
        ("no handshake", &list,
            &[Set("mcp-method", "initialize"), Member("/method", r#""initialize""#)], (404, -32601)),
        ("a tool that nobody knows", &call,
            &[Set("mcp-name", "no"), Member("/params/name", r#""no""#)], (200, -32602)),
        ("a resource that nobody knows", &read,
            &[Set("mcp-name", "test://no"), Member("/params/uri", r#""test://no""#)], (200, -32602)),
        ("a capability that was not declared", &call,
            &[Set("mcp-name", "test_sampling"), Member("/params/name", r#""test_sampling""#),
              Member("/params/arguments", r#"{"prompt":"x"}"#)], (400, -32021)),
    ];
    for (rule, (headers, body), changes, expected) in table {
        judge(&fixture, "POST", headers.clone(), body, changes, *expected, rule).await;
    }
    let (headers, _) = &call;
    for method in ["GET", "DELETE", "PUT"] {
        let refused = fixture.whole(method, &borrowed(headers), "").await;
        assert_eq!((refused.status, refused.headers["allow"].to_str().unwrap()), (405, "POST"), "{method}");
    }
    let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let told = fixture.whole("POST", &borrowed(&headers[..3]), told.to_string()).await;
    assert_eq!((told.status, told.text.as_str()), (202, ""));
}

/// 20: a client with sessions learns that it has come to the wrong server, whatever it begins with.
#[tokio::test]
async fn r020_a_server_without_sessions_says_so_to_those_who_begin_one() {
    let fixture = Fixture::start(V2026_07_28).await;
    for revision in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let hello = fixture.whole("POST", &POST, initialize(revision, json!({})).to_string()).await;
        let answer = hello.json();
        assert_eq!((hello.status, &answer["error"]["code"]), (400, &json!(-32022)), "{revision}: {answer}");
        let data = json!({"supported": ["2026-07-28"], "requested": revision.as_str()});
        assert_eq!((&answer["error"]["data"], &answer["id"]), (&data, &json!(0)), "{revision}");
        // In a session that it never began it gets no further.
        let headers = [&POST[..], &[("mcp-session-id", "s"), ("mcp-protocol-version", revision.as_str())]];
        let headers = headers.concat();
        let call = fixture.whole("POST", &headers, request(1, "tools/list", json!({})).to_string()).await;
        assert_eq!((call.status, &call.json()["error"]["code"]), (400, &json!(-32022)), "{call:?}");
        for method in ["GET", "DELETE"] {
            for headers in [&[("accept", "text/event-stream")][..], &headers] {
                let refused = fixture.whole(method, headers, "").await;
                let allow = refused.headers["allow"].to_str().unwrap();
                assert_eq!((refused.status, allow), (405, "POST"), "{revision}: {method}");
                assert!(!refused.headers.contains_key("mcp-session-id"), "{revision}: {method}");
            }
        }
    }
}

#[tokio::test]
async fn messages_of_sessions() {
    for revision in [V2025_03_26, V2025_06_18, V2025_11_25] {
        let fixture = Fixture::start(revision).await;
        let session = fixture.begin(json!({})).await;
        let headers: Vec<(String, String)> = fixture
            .of(&session)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let has_header = revision > V2025_03_26;
        let strict = |expected: Expected| if has_header { expected } else { (200, 0) };
        let version = "mcp-protocol-version";
        #[rustfmt::skip]
        let table: &[(&str, &[Change], Expected)] = &[
            ("in order", &[], (200, 0)),
            ("Accept needs both", &[Set("accept", "text/event-stream")], (406, -32600)),
            ("Content-Type is JSON", &[Drop("content-type")], (415, -32600)),
            ("a foreign Host", &[Set("host", "evil.example")], (403, -32600)),
            ("a foreign Origin", &[Set("origin", "http://evil.example")], (403, -32600)),
            ("the body is JSON", &[Body("nothing")], (400, -32700)),
            ("an id that is null", &[Member("/id", "null")], (400, -32600)),
            ("no session", &[Drop("mcp-session-id")], (400, -32600)),
            ("a session that nobody has", &[Set("mcp-session-id", "0123")], (404, -32600)),
            ("the session twice", &[Add("mcp-session-id", "0123")], (400, -32600)),
            ("no revision", &[Drop(version)], strict((400, -32600))),
            ("another revision", &[Set(version, "2026-07-28")], strict((400, -32600))),
            ("a revision that nobody knows", &[Set(version, "banana")], strict((400, -32600))),
            ("the revision twice", &[Add(version, revision.as_str())], strict((400, -32600))),
            ("an id that was used", &[Member("/id", "0")], (400, -32600)),
            ("a second handshake", &[Member("/method", r#""initialize""#)], (400, -32600)),
            ("a method that nobody knows", &[Member("/method", r#""no/such""#)], (200, -32601)),
            ("a method of another revision", &[Member("/method", r#""server/discover""#)], (200, -32601)),
            ("params that are no object", &[Member("/params", "[]")], (200, -32602)),
            ("a cursor that is none", &[Member("/params", r#"{"cursor":"x"}"#)], (200, -32602)),
            ("a tool that nobody knows",
                &[Member("/method", r#""tools/call""#), Member("/params", r#"{"name":"no"}"#)], (200, -32602)),
            ("a resource that nobody knows",
                &[Member("/method", r#""resources/read""#), Member("/params", r#"{"uri":"a:b"}"#)], (200, -32002)),
            ("a level that nobody knows",
                &[Member("/method", r#""logging/setLevel""#), Member("/params", r#"{"level":"loud"}"#)], (200, -32602)),
            ("a capability that was not declared",
                &[Member("/method", r#""tools/call""#),
                  Member("/params", r#"{"name":"test_sampling","arguments":{"prompt":"x"}}"#)], (200, -32602)),
            ("an answer to nothing", &[Body(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)], (400, -32600)),
            ("a handshake in a batch",
                &[Body(r#"[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}]"#)], (400, -32600)),
            ("an empty batch", &[Body("[]")], (400, -32600)),
        ];
        for (number, (rule, changes, expected)) in table.iter().enumerate() {
            let body = request(100 + number as u64, "tools/list", json!({}));
            judge(&fixture, "POST", headers.clone(), &body, changes, *expected, rule).await;
        }
        wrong_handshakes(&fixture).await;
        batches(&fixture, &headers).await;
        ends(&fixture, &session).await;
    }
}

async fn wrong_handshakes(fixture: &Fixture) {
    let hello = initialize(fixture.revision, json!({}));
    let headers = || POST.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for path in [
        "/params",
        "/params/protocolVersion",
        "/params/capabilities",
        "/params/clientInfo",
        "/params/clientInfo/name",
    ] {
        judge(fixture, "POST", headers(), &hello, &[Without(path)], (200, -32602), path).await;
    }
    let other = initialize(Revision::V2026_07_28, json!({}));
    let answer = fixture.whole("POST", &POST, other.to_string()).await.json();
    assert_eq!(
        answer["result"]["protocolVersion"],
        fixture.revision.as_str(),
        "its own, whatever is asked for"
    );

    let answer = fixture.whole("POST", &POST, hello.to_string()).await;
    let session = answer.headers["mcp-session-id"].to_str().unwrap();
    for (id, method, expected) in [(1, "tools/list", 400), (2, "ping", 200)] {
        let early =
            fixture.whole("POST", &fixture.of(session), request(id, method, json!({})).to_string()).await;
        assert_eq!(early.status, expected, "{method} before notifications/initialized: {early:?}");
    }
}

async fn batches(fixture: &Fixture, headers: &[(String, String)]) {
    let batch = json!([
        request(201, "ping", json!({})),
        {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
        request(202, "tools/call", json!({"name": "echo", "arguments": {"message": "hi"}})),
    ]);
    let answer = fixture.whole("POST", &borrowed(headers), batch.to_string()).await;
    if fixture.revision != V2025_03_26 {
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!(-32600)));
        return;
    }
    let answers = answer.json();
    let mut ids: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!((answer.status, ids), (200, vec![201, 202]), "{answers}");
    let told = json!([{"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}]);
    let told = fixture.whole("POST", &borrowed(headers), told.to_string()).await;
    assert_eq!((told.status, told.text.as_str()), (202, ""));
}

async fn ends(fixture: &Fixture, session: &str) {
    let headers = fixture.of(session);
    let put = fixture.whole("PUT", &headers, "").await;
    assert_eq!((put.status, put.headers["allow"].to_str().unwrap()), (405, "POST, GET, DELETE"));
    let get =
        fixture.whole("GET", &[&headers[2..], &[("accept", "application/json")][..]].concat(), "").await;
    assert_eq!(get.status, 406);
    let large = fixture.whole("POST", &headers, vec![b' '; (4 << 20) + 1]).await;
    assert_eq!(large.status, 413);
    for expected in [204, 404] {
        assert_eq!(fixture.whole("DELETE", &headers, "").await.status, expected);
    }
    let after = fixture.whole("POST", &headers, request(300, "ping", json!({})).to_string()).await;
    assert_eq!(after.status, 404);
}
