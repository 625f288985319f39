//! The suite's other half: it plays servers, and judges what the sidecar says to them. Mostly it says it for a client of
//! the older kind, since that takes the longer way. Where the suite asks whether a server hears anything but the newest
//! revision, the client speaks that too: for another one the server would be asked whether it has sessions.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::suite::{self, Results};
use crate::harness::{Client, Request, Sidecar, config, modern};

/// The scenarios that concern a proxy.
pub(super) const SCENARIOS: [(&str, &[&str]); 2] = [
    ("2025-11-25", &["initialize", "tools_call", "sse-retry", "json-schema-2020-12-preservation"]),
    (
        "2026-07-28",
        &[
            "tools_call",
            "request-metadata",
            "sep-2322-client-request-state",
            "http-standard-headers",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
            "json-schema-2020-12-preservation",
        ],
    ),
];

/// What the others begin with, and why they are left out.
pub(super) const LEFT_OUT: [(&str, &str); 2] = [
    (
        "auth/",
        "is about clients that get tokens. The sidecar gets none: its server runs beside it and asks for none.",
    ),
    (
        "elicitation-sep1034-client-defaults",
        "is about whoever fills in a form for a user. That is the client in front of the sidecar.",
    ),
];

/// Those that want nothing but the newest revision to be spoken.
const ALONE: [&str; 2] = ["http-standard-headers", "request-metadata"];

/// Plays all of them.
pub(super) fn run(revision: &str, scenarios: &[&str]) -> Results {
    let scenarios: Vec<_> = scenarios.iter().map(|scenario| (*scenario).to_owned()).collect();
    suite::patiently(run_each(revision, &scenarios), |_, _| true, |failed| run_each(revision, failed))
}

fn run_each(revision: &str, scenarios: &[String]) -> Results {
    let own = std::env::current_exe().expect("its own path");
    // The suite adds its URL, which chooses no test.
    let command = format!("{} --exact --ignored --nocapture conformance::client::drive", own.display());
    let directory = tempfile::tempdir().expect("a directory");
    let mut results = Results::new();
    for scenario in scenarios {
        let words = ["client", "--command", &command, "--scenario", scenario, "--spec-version", revision];
        suite::judge(&words, directory.path());
        let all = suite::collect(directory.path(), "");
        let nothing = || vec!["it did not come to an end".to_owned()];
        results.insert(scenario.clone(), all.get(scenario).cloned().unwrap_or_else(nothing));
    }
    results
}

#[test]
#[ignore = "a client, which the suite runs"]
fn drive() {
    let url = std::env::args().next_back().unwrap();
    let place = url.strip_prefix("http://localhost:").unwrap();
    let (port, path) = place.split_once('/').unwrap_or((place, ""));
    let mut config = config(port.parse().unwrap());
    config.upstream = longshore_sidecar_config::Upstream::StreamableHttp {
        port: port.parse().unwrap(),
        path: format!("/{path}"),
    };
    let sidecar = Sidecar::start(&config);
    let began = Instant::now();
    while sidecar.get("/readyz").status != 200 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap();
    if ALONE.contains(&scenario.as_str()) {
        return play_alone(&sidecar);
    }
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".to_owned());
    play(&open(&sidecar), &scenario, &serde_json::from_str(&context).unwrap());
}

/// Lists everything, and asks for each of it.
fn play_alone(sidecar: &Sidecar) {
    let ask = |method: &str, mut params: Value| {
        params["_meta"] = json!({"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let reply = modern::request(1, method, params).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{method}: {}", reply.text());
        reply.message()["result"].clone()
    };
    for (list, method, key) in [
        ("tools", "tools/call", "name"),
        ("resources", "resources/read", "uri"),
        ("prompts", "prompts/get", "name"),
    ] {
        // A server need not have all of them.
        let listed = ask(&format!("{list}/list"), json!({}));
        for entry in listed[list].as_array().into_iter().flatten() {
            ask(method, json!({key: entry[key]}));
        }
    }
}

/// A session of a client that answers what servers ask.
fn open(sidecar: &Sidecar) -> Client<'_> {
    let capabilities = json!({"roots": {}, "sampling": {}, "elicitation": {}});
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"},
    });
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string();
    let reply = Request::post(message).send(sidecar.mcp);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let client = Client::in_session(sidecar, reply.header("mcp-session-id").unwrap());
    let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(client.request(body).send(sidecar.mcp).status, 202);
    client
}

/// Calls a tool, and says yes to what the server asks.
fn call(client: &Client<'_>, tool: &str, arguments: Value) {
    let mut events = client.stream(tool, arguments);
    if events.headers.iter().any(|(name, value)| name == "content-type" && value == "application/json") {
        events.text();
        return;
    }
    while let Some(event) = events.next() {
        let message = event.message();
        if message.get("method").is_some() && message.get("id").is_some() {
            let result = json!({"action": "accept", "content": {"confirmed": true}});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
            assert_eq!(client.request(answer).send(client.sidecar.mcp).status, 202);
        }
    }
}

fn list(client: &Client<'_>, what: &str) -> Vec<Value> {
    let message = client.ask(&format!("{what}/list"), json!({}));
    message["result"][what].as_array().cloned().unwrap_or_default()
}

fn name(entry: &Value) -> &str {
    entry["name"].as_str().unwrap()
}

fn play(client: &Client<'_>, scenario: &str, context: &Value) {
    let tools = list(client, "tools");
    match scenario {
        "tools_call" => call(client, "add_numbers", json!({"a": 5, "b": 3})),
        "json-schema-2020-12-preservation" => {
            call(client, name(&tools[1]), json!({"schema": tools[0]["inputSchema"]}));
        }
        "http-custom-headers" => {
            for wanted in context["toolCalls"].as_array().unwrap() {
                call(client, name(wanted), wanted["arguments"].clone());
            }
        }
        "http-standard-headers" => {
            for resource in list(client, "resources") {
                client.ask("resources/read", json!({"uri": resource["uri"]}));
            }
            for prompt in list(client, "prompts") {
                client.ask("prompts/get", json!({"name": prompt["name"]}));
            }
            tools.iter().for_each(|tool| call(client, name(tool), json!({})));
        }
        _ => tools.iter().for_each(|tool| call(client, name(tool), json!({"region": "here"}))),
    }
}
