//! Requests that the sidecar refuses, by way of a Service: nothing between changes what a client is told, and the log has a
//! line for each. (The table of all of them is the sidecar's own.)

use std::time::Duration;

use http::Method;
use longshore_e2e::mcp_client::{Endpoint, McpError, REVISION};
use longshore_e2e::testing::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::STAGE;
use crate::faults::connect;
use crate::server::{becomes, go_server, keyed};

const KEY: &str = "a-key-for-alice-alone";
const NOBODYS_KEY: &str = "a-key-of-nobody";
const SECRET: &str = "{apiVersion: v1, kind: Secret, metadata: {name: keys}, stringData: {alice: a-key-for-alice-alone}}\n---\n";
const MORE: &str = "  expose: {host: mcp.example.com, allowedOrigins: ['https://app.example.com']}
  limits: {requestBytes: 64Ki, requestTimeout: 1s}
";

/// A request that is like the others but for what it says here, and what becomes of it.
struct Case<'a> {
    method: Method,
    host: Option<&'a str>,
    /// In the place of those of the same name.
    headers: &'a [(&'a str, &'a str)],
    body: &'a str,
    status: u16,
    code: Option<i64>,
    /// In the log; nothing where it is permitted.
    reason: Option<&'a str>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            method: Method::POST,
            host: None,
            headers: &[],
            body: PING,
            status: 200,
            code: None,
            reason: None,
        }
    }
}

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
const UNKNOWN: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nope"}}"#;
#[test]
fn what_is_refused_has_its_status_through_a_service_and_a_line_in_the_log() {
    let large = format!("{PING}{}", " ".repeat(64 << 10));
    let nobody = format!("Bearer {NOBODYS_KEY}");
    let refused =
        |status, code, reason| Case { status, code: Some(code), reason: Some(reason), ..Case::default() };
    let table = [
        Case::default(),
        Case { host: Some("mcp.example.com"), ..Case::default() },
        Case { host: Some("evil.example"), ..refused(403, -32600, "foreign host") },
        Case { headers: &[("origin", "https://app.example.com")], ..Case::default() },
        Case { headers: &[("origin", "https://evil.example")], ..refused(403, -32600, "foreign origin") },
        Case { headers: &[("authorization", "")], ..refused(401, -32600, "no key") },
        Case { headers: &[("authorization", &nobody)], ..refused(401, -32600, "no live key") },
        Case { method: Method::PUT, ..refused(405, -32600, "HTTP method not allowed") },
        Case { headers: &[("accept", "text/html")], ..refused(406, -32600, "Accept leaves out a type") },
        Case { headers: &[("content-type", "text/plain")], ..refused(415, -32600, "wrong content type") },
        Case { body: "{", ..refused(400, -32700, "not JSON") },
        Case { body: &large, ..refused(413, -32600, "body too large") },
        Case { headers: &[("mcp-session-id", "nobody's")], ..refused(404, -32600, "unknown session") },
        Case { body: UNKNOWN, ..refused(200, -32602, "no rule permits it") },
    ];
    STAGE.with_namespace(async |namespace| {
        let server = keyed(&go_server("go", &[]), "keys").replace("tools: ['*']", "tools: [echo, slow]");
        namespace.apply(&[SECRET, &server, MORE].concat()).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let client = connect(namespace, &server, Some(KEY)).await;
        let session = client.session().expect("a session has an id");
        let bearer = format!("Bearer {KEY}");
        let usual = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session),
            ("mcp-protocol-version", REVISION),
        ];
        let slow = slow_body(client.endpoint(), &usual).await;
        for Case { method, host, headers, body, status, code, reason } in &table {
            let mut endpoint = client.endpoint().clone();
            endpoint.host = host.map_or(endpoint.host, str::to_owned);
            let replaced = |name: &str| headers.iter().any(|(header, _)| *header == name);
            let mut all: Vec<_> = usual.into_iter().filter(|(name, _)| !replaced(name)).collect();
            // What is replaced by nothing is left out.
            all.extend(headers.iter().filter(|(_, value)| !value.is_empty()));
            let answer =
                endpoint.send(method.clone(), &all, (*body).to_owned(), Duration::from_secs(30)).await;
            let answer = answer.expect("an answer");
            let said =
                (answer.status.as_u16(), answer.messages.first().and_then(|it| it["error"]["code"].as_i64()));
            assert_eq!(said, (*status, *code), "{method} {host:?} {headers:?} {reason:?}: {}", answer.body);
        }
        // The manifest has a time-out of its own.
        match client.call("slow", json!({"milliseconds": 60_000})).await {
            Err(McpError::Rpc { message, .. }) => assert!(message.contains("1 s"), "{message}"),
            other => panic!("a call that takes a minute has an answer within a second: {other:?}"),
        }
        let answer = slow.await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("-32600"), "{answer}");
        let expected: Vec<_> = table
            .iter()
            .filter_map(|Case { status, code, reason, .. }| {
                Some(json!({"reason": (*reason)?, "status": status, "code": code, "decision": "deny"}))
            })
            .chain([json!({"reason": "body too slow", "status": 408, "code": -32600, "decision": "deny"})])
            .collect();
        let log = ["logs", "-l", "longshore.dev/server=go", "-c", "longshore-sidecar", "--tail=-1"];
        eventually("each has a line in the log", async || {
            let log = namespace.kubectl(&log).await.map_err(|error| error.to_string())?;
            for secret in [session, KEY, NOBODYS_KEY] {
                assert!(!log.contains(secret), "a secret is in the log");
            }
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let denied: Vec<_> = lines
                .filter(|line| line["audit"] == 1 && line["decision"] == "deny")
                .map(|line| ["reason", "status", "code", "decision"].map(|name| (name, line[name].clone())))
                .map(|members| members.into_iter().map(|(name, it)| (name.to_owned(), it)).collect())
                .map(Value::Object)
                .collect();
            if denied == expected { Ok(()) } else { Err(format!("{denied:#?}")) }
        })
        .await;
    });
}

/// Begins a request whose body never ends. What it answers in the end, as text.
async fn slow_body(endpoint: &Endpoint, headers: &[(&str, &str)]) -> impl Future<Output = String> + use<> {
    let mut stream = TcpStream::connect(endpoint.address).await.expect("a connection");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let Endpoint { path, host, .. } = endpoint;
    let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{headers}content-length: 99\r\n\r\n{{");
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    async move {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer, and the end");
        answer
    }
}
