//! Between two sides of one revision no byte of `params` and of `result` changes, whatever they hold.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::SocketAddr;

use longshore_mcp::object::Object;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::harness::http::{Reply, connect};
use crate::harness::shim::{Shim, python, serving, stdio};
use crate::harness::{Client, Files, Request, Scripted, Sidecar, SseServer, config, modern, scripted};

const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
/// How many messages each revision gets, over each transport.
const MESSAGES: usize = 400;
/// Each message that is larger than most: how often.
const LARGE: usize = 100;

/// Numbers, words and escapes that readers like to change.
fn leaf() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "12345678901234567890123",
        "-9007199254740993",
        "1.0e2",
        "1E+2",
        "1e-7",
        "100.00",
        "-0",
        "-0.0",
        "0.1e1",
        "123456789.123456789123456789",
        "null",
        "true",
        "false",
        "\"\"",
        "{}",
        "[]",
        "{ }",
        "[ ]",
        r#""\u00e9""#,
        r#""\u0041""#,
        r#""\ud83d\ude00""#,
        r#""\/""#,
        r#""/""#,
        r#""\u2028""#,
        "\"\u{2028}\u{e9}\"",
        "\"\u{1f600}\"",
        r#""\b\f\n\r\t\"\\""#,
        r#""=?base64?YQ==?=""#,
        "\"data: x\"",
        "\"\u{7f}\"",
    ])
    .prop_map(str::to_owned);
    let number = any::<i64>().prop_map(|number| number.to_string());
    let text = "[ -!#-\\[\\]-~]{0,12}".prop_map(|text| format!("\"{text}\""));
    prop_oneof![4 => odd, 1 => number, 2 => text]
}

/// What may stand between the parts of a message. A line end would end a message over stdio.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "  ", "\t"])
}

/// Names of members that are nobody's, spelled in several ways.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "x[a-z]{1,4}",
        1 => prop::sample::select(vec![r"x\u0061", "x\u{e9}", r"x\n", "com.example/x", "xNAME", "x name"]).prop_map(str::to_owned),
    ]
}

fn members(inner: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<String>> {
    let member = (name(), space(), space(), inner, space());
    vec(member, 0..4).prop_map(|members| {
        // A name stands for one member, however it is spelled.
        let mut known = BTreeMap::new();
        for (name, before, after, value, end) in members {
            let read: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
            known.entry(read).or_insert(format!("{before}\"{name}\"{after}:{before}{value}{end}"));
        }
        known.into_values().collect()
    })
}

fn json() -> impl Strategy<Value = String> {
    leaf().prop_recursive(5, 40, 4, |inner| {
        let array = (vec(inner.clone(), 0..4), space())
            .prop_map(|(elements, space)| format!("[{space}{}{space}]", elements.join(&format!("{space},"))));
        let object = members(inner).prop_map(|members| format!("{{{}}}", members.join(",")));
        prop_oneof![array, object]
    })
}

/// The parameters of a call. They are good as its result too, which is how the server answers.
fn params(is_modern: bool) -> impl Strategy<Value = String> {
    let known = if is_modern {
        vec![
            r#""name":"t""#,
            r#""resultType" : "complete""#,
            r#""content":[ ]"#,
            r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28", "io.modelcontextprotocol/clientCapabilities":{ },"x.example/y":1.0}"#,
        ]
    } else {
        vec![r#""name":"\u0074""#, r#""content" :[ ]"#, r#""_meta":{"x.example/y":[ 1.0 ]}"#]
    };
    (members(json()), json(), any::<prop::sample::Index>()).prop_map(move |(mut all, arguments, at)| {
        all.extend(known.iter().map(|member| (*member).to_owned()));
        all.push(format!("\"arguments\":{{\"x\":{arguments}}}"));
        // In any order.
        let middle = at.index(all.len());
        all.rotate_left(middle);
        format!("{{{}}}", all.join(","))
    })
}

/// As many of them as are wanted, and some that are large or deep.
fn many(revision: &str) -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let strategy = params(revision == modern::REVISION);
    (0..MESSAGES)
        .map(|at| {
            let text = strategy.new_tree(&mut runner).expect("a message").current();
            if at % LARGE != 0 {
                return text;
            }
            let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
            let long = "\\u00e9 x".repeat(20_000);
            text.replacen(
                "\"arguments\":{",
                &format!("\"arguments\":{{\"xdeep\":{deep},\"xlong\":\"{long}\","),
                1,
            )
        })
        .collect()
}

/// Messages on one connection.
struct Wire {
    stream: std::net::TcpStream,
    reader: BufReader<std::net::TcpStream>,
}

impl Wire {
    fn to(address: SocketAddr) -> Self {
        let stream = connect(address);
        let reader = BufReader::new(stream.try_clone().expect("a clone"));
        Self { stream, reader }
    }

    fn send(&mut self, request: &Request) -> Reply {
        request.write(&mut self.stream);
        Reply::read(&mut self.reader).expect("a response")
    }
}

/// A member of a message, as it was written.
fn member<'a>(message: &'a str, name: &str) -> &'a str {
    Object::read(message).expect("an object").original(name).unwrap_or_else(|| panic!("no {name}: {message}"))
}

fn text_of(reply: &Reply) -> String {
    match reply.header("content-type") {
        Some("text/event-stream") => reply.events().pop().expect("an event"),
        _ => reply.text().to_owned(),
    }
}

/// Sends them all, and compares what came back with what was sent.
fn all_come_back(sidecar: &Sidecar, revision: &'static str, mut each: impl FnMut(usize, &str)) {
    let client = (revision != modern::REVISION).then(|| Client::of(sidecar, None, revision));
    let mut wire = Wire::to(sidecar.mcp);
    for (at, params) in many(revision).iter().enumerate() {
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{params}}}"#, at + 1);
        let request = match &client {
            Some(client) => client.request(message.as_str()),
            None => modern::of(&message),
        };
        let reply = wire.send(&request);
        assert_eq!(reply.status, 200, "{revision}: {}\n{params}", reply.text());
        let text = text_of(&reply);
        assert_eq!(member(&text, "result"), params, "{revision}, result {at}");
        assert_eq!(member(&text, "id"), (at + 1).to_string());
        each(at, params);
    }
}

/// Compares what a server got with what was sent.
fn has_come(got: &[Request], sent: &[String], revision: &str) {
    assert_eq!(got.len(), sent.len());
    for (got, sent) in got.iter().zip(sent) {
        assert_eq!(member(std::str::from_utf8(&got.body).unwrap(), "params"), sent, "{revision}");
    }
}

/// A server over HTTP that answers with what it got, as JSON and as events by turns.
fn echo() -> Scripted {
    Scripted::of_both(serde_json::json!({}), |request, stream| {
        let body = std::str::from_utf8(&request.body).expect("text");
        let (id, params) = (member(body, "id"), member(body, "params"));
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{params}}}"#);
        if id.ends_with(['1', '3', '5', '7', '9']) {
            scripted::events(stream, &[&format!("data: {message}\n\n")]);
        } else {
            scripted::json(stream, &message);
        }
    })
}

#[test]
fn no_byte_changes_over_http() {
    for revision in REVISIONS {
        let server = echo();
        let sidecar = Sidecar::start(&config(server.port));
        let mut sent = Vec::new();
        all_come_back(&sidecar, revision, |_, params| sent.push(params.to_owned()));
        has_come(&server.seen("tools/call"), &sent, revision);
    }
}

/// The newest revision has left this transport behind.
#[test]
fn no_byte_changes_over_sse() {
    for revision in REVISIONS.into_iter().filter(|revision| *revision != modern::REVISION) {
        let server = SseServer::start(|heard, say| {
            if heard["method"] == "tools/call" {
                let body = std::str::from_utf8(&say.posted.body).expect("text");
                let (id, params) = (member(body, "id"), member(body, "params"));
                say.raw(&format!(
                    "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{params}}}\n\n"
                ));
            }
        });
        let sidecar = Sidecar::start(&server.config()).ready();
        let mut sent = Vec::new();
        all_come_back(&sidecar, revision, |_, params| sent.push(params.to_owned()));
        has_come(&server.seen("tools/call"), &sent, revision);
    }
}

const ECHO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/passthrough/echo.py");

#[test]
fn no_byte_changes_over_stdio() {
    for revision in REVISIONS {
        let files = Files::new();
        files.write(&stdio());
        let _shim = Shim::start(&files, &python(&[ECHO, revision]));
        let sidecar = Sidecar::with(files, &[]).loaded().ready();
        all_come_back(&sidecar, revision, |_, _| {});
    }
}

#[test]
fn r063_what_a_process_writes_to_stderr_is_no_error() {
    let (_shim, sidecar) = serving(&stdio(), &python(&[ECHO, "2025-11-25", "noisy"]), &[]);
    let client = Client::open(&sidecar, None);
    for round in 0..20 {
        let params = serde_json::json!({"name": "t", "arguments": {"round": round}, "content": []});
        let result = client.ask("tools/call", params)["result"].clone();
        assert_eq!(result["arguments"]["round"], round);
    }
    assert_eq!(sidecar.get("/readyz").status, 200);
}

/// Two members of one name are two messages, one for each reader who takes another of them.
#[test]
fn names_that_occur_twice_are_refused() {
    let server = echo();
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/call","params":{"name":"t"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"},"params":{"name":"u"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","name":"u"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","n\u0061me":"u"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{},"_meta":{}}}"#,
    ] {
        let reply = client.request(message).send(sidecar.mcp);
        let code = reply.message()["error"]["code"].as_i64();
        assert!(matches!(code, Some(-32600 | -32602 | -32700)), "{message}: {}", reply.text());
    }
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","name":"u","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let reply = modern::of(twice).send(sidecar.mcp);
    assert!(reply.message()["error"]["code"].is_i64(), "{}", reply.text());
    assert!(server.seen("tools/call").is_empty(), "the server saw one of them");
}
