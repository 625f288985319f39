//! Between two sides of one revision no byte of `params` and of `result` changes, whatever they hold.
//!
//! Each row, a revision over a transport, has messages of its own: thousands in all, and the same in every run.
//! `LONGSHORE_SEED` makes others, and a test that fails prints the one that it had.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::SocketAddr;

use longshore_mcp::object::Object;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::harness::http::{Reply, connect};
use crate::harness::shim::{Shim, python, serving, stdio};
use crate::harness::{
    Client, Files, Request, Scripted, Sidecar, SseServer, config, eventually, modern, scripted,
};

const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
/// How many messages each revision gets, over each transport.
const MESSAGES: usize = 400;
/// Each message that is larger than most: how often.
const LARGE: usize = 100;
/// What requests are for, with the parameters and the results that this needs. Most are calls. The open member holds
/// anything: only arguments of a tool may.
const METHODS: [Method; 4] = [
    Method {
        name: "tools/call",
        weight: 4,
        known: &[r#""name":"\u0074""#, r#""content" :[ ]"#],
        open: "arguments",
    },
    Method { name: "prompts/get", weight: 1, known: &[r#""name" :"p""#, r#""messages":[ ]"#], open: "more" },
    Method {
        name: "resources/read",
        weight: 1,
        known: &[r#""uri":"memo:\/\/a""#, r#""contents":[ ]"#],
        open: "more",
    },
    Method {
        name: "completion/complete",
        weight: 1,
        known: &[
            r#""ref":{"name":"\u0070", "type":"ref/prompt"}"#,
            r#""argument":{"name":"a" ,"value":""}"#,
            r#""completion":{"values":[ ]}"#,
        ],
        open: "more",
    },
];

#[derive(Debug)]
struct Method {
    name: &'static str,
    weight: u32,
    known: &'static [&'static str],
    open: &'static str,
}

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

/// A method, and its parameters. They are good as its result too, which is how the server answers.
fn call(is_modern: bool) -> impl Strategy<Value = (&'static Method, String)> {
    let beside = if is_modern {
        vec![
            r#""resultType" : "complete""#,
            r#""ttlMs":0"#,
            r#""cacheScope":"private""#,
            r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28", "io.modelcontextprotocol/clientCapabilities":{ },"x.example/y":1.0}"#,
        ]
    } else {
        vec![r#""_meta":{"x.example/y":[ 1.0 ]}"#]
    };
    let method =
        prop::strategy::Union::new_weighted(METHODS.iter().map(|it| (it.weight, Just(it))).collect());
    (method, members(json()), json(), any::<prop::sample::Index>()).prop_map(
        move |(method, mut all, value, at)| {
            all.extend(method.known.iter().chain(&beside).map(|member| (*member).to_owned()));
            all.push(format!("\"{}\":{{\"x\":{value}}}", method.open));
            // In any order.
            let middle = at.index(all.len());
            all.rotate_left(middle);
            (method, format!("{{{}}}", all.join(",")))
        },
    )
}

/// Chance that is another one for each row.
fn chance(transport: &str, revision: &str) -> TestRunner {
    let seed: u64 = std::env::var("LONGSHORE_SEED").map_or(0x5eed, |text| text.parse().expect("a number"));
    eprintln!("LONGSHORE_SEED={seed}: {revision} over {transport}");
    let mut bytes = [&seed.to_le_bytes(), revision.as_bytes(), transport.as_bytes()].concat();
    bytes.resize(32, 0);
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// As many of them as are wanted, and some that are large or deep.
fn many(transport: &str, revision: &str) -> Vec<(&'static Method, String)> {
    let mut runner = chance(transport, revision);
    let strategy = call(revision == modern::REVISION);
    (0..MESSAGES)
        .map(|at| {
            let (method, text) = strategy.new_tree(&mut runner).expect("a message").current();
            if at % LARGE != 0 {
                return (method, text);
            }
            let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
            let long = "\\u00e9 x".repeat(20_000);
            let open = format!("\"{}\":{{", method.open);
            let larger = format!("{open}\"xdeep\":{deep},\"xlong\":\"{long}\",");
            (method, text.replacen(&open, &larger, 1))
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

/// Sends them all, and compares what came back with what was sent, which it gives.
fn all_come_back(
    sidecar: &Sidecar,
    transport: &str,
    revision: &'static str,
) -> Vec<(&'static Method, String)> {
    let client = (revision != modern::REVISION).then(|| Client::of(sidecar, None, revision));
    let mut wire = Wire::to(sidecar.mcp);
    let all = many(transport, revision);
    for (at, (method, params)) in all.iter().enumerate() {
        let name = method.name;
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{name}","params":{params}}}"#, at + 1);
        let request = match &client {
            Some(client) => client.request(message.as_str()),
            None => modern::of(&message),
        };
        let reply = wire.send(&request);
        assert_eq!(reply.status, 200, "{revision}, {name}: {}\n{params}", reply.text());
        let text = text_of(&reply);
        assert_eq!(member(&text, "result"), params, "{revision}, result {at}");
        assert_eq!(member(&text, "id"), (at + 1).to_string());
    }
    all
}

/// Compares what a server got of each method with what was sent.
fn has_come(seen: impl Fn(&str) -> Vec<Request>, sent: &[(&Method, String)], revision: &str) {
    for method in &METHODS {
        let got = seen(method.name);
        let sent: Vec<_> = sent.iter().filter(|(of, _)| of.name == method.name).collect();
        assert!(!sent.is_empty(), "{} is among them", method.name);
        assert_eq!(got.len(), sent.len());
        for (got, (_, sent)) in got.iter().zip(sent) {
            assert_eq!(member(std::str::from_utf8(&got.body).unwrap(), "params"), sent, "{revision}");
        }
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
        let sent = all_come_back(&sidecar, "http", revision);
        has_come(|method| server.seen(method), &sent, revision);
    }
}

/// The newest revision has left this transport behind.
#[test]
fn no_byte_changes_over_sse() {
    for revision in REVISIONS.into_iter().filter(|revision| *revision != modern::REVISION) {
        let server = SseServer::start(|heard, say| {
            if METHODS.iter().any(|method| heard["method"] == method.name) {
                let body = std::str::from_utf8(&say.posted.body).expect("text");
                let (id, params) = (member(body, "id"), member(body, "params"));
                say.raw(&format!(
                    "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{params}}}\n\n"
                ));
            }
        });
        let sidecar = Sidecar::start(&server.config()).ready();
        let sent = all_come_back(&sidecar, "sse", revision);
        has_come(|method| server.seen(method), &sent, revision);
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
        all_come_back(&sidecar, "stdio", revision);
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
    let said = "FATAL ERROR: panic: Traceback";
    eventually("it is in the log of its container", || sidecar.server_log().contains(said));
    assert!(!sidecar.written().contains(said), "and in no other");
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
