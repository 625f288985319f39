//! How sessions end, or go on elsewhere.

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{able, echoing, sidecar};
use crate::harness::config::{ALICE, idle, on_loss};
use crate::harness::replicas::Network;
use crate::harness::scripted::{self, message};
use crate::harness::{Client, Request, Scripted, Sidecar, client, config, eventually};

#[test]
fn sessions_go_on_at_another_replica_whatever_is_wanted_of_lost_ones() {
    let servers = [(); 3].map(|()| echoing());
    let config = on_loss(config(0), OnOwnerLoss::NotFound);
    let network = Network::new();
    let replicas = network.in_front_of(&config, &servers);
    let can = json!({"roots": {}, "sampling": {}});
    let client = Client::with_capabilities(&replicas[0], ALICE, "2025-06-18", &can);
    client.ask("logging/setLevel", json!({"level": "error"}));
    client.ask("resources/subscribe", json!({"uri": "test://a"}));
    replicas[0].signal(Signal::KILL);
    network.list(&[2, 3]);
    for replica in &replicas[1..] {
        let said = client.through(replica).call("echo", json!({"a": 1}));
        assert_eq!(said["result"]["content"][0]["text"], r#"{"a":1}"#, "{said}");
    }
    let holders = [1, 2].map(|number| replicas[number].metric("longshore_sessions"));
    assert_eq!(holders.iter().sum::<f64>(), 1.0, "one replica holds it: {holders:?}");
    // What the client can do and has set is known there.
    let all: Vec<_> = servers[1..].iter().flat_map(|server| server.all("tools/call")).collect();
    assert!(!all.is_empty());
    for call in all {
        let meta = &message(&call)["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/logLevel"], "error");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], can);
    }
}

#[test]
fn sessions_survive_the_sidecar_itself() {
    let server = echoing();
    let network = Network::new();
    network.list(&[1]);
    let sidecar = network.start(1, &on_loss(config(server.port), OnOwnerLoss::NotFound)).ready();
    let client = Client::with_capabilities(&sidecar, ALICE, "2025-11-25", &json!({"roots": {}}));
    client.ask("logging/setLevel", json!({"level": "error"}));
    sidecar.log(|line| line["message"] == "what a client has set is written down");
    sidecar.signal(Signal::KILL);
    let _ = sidecar.wait(std::time::Duration::from_secs(5));
    let again = network.start_again(1, "pod-1", sidecar.files.clone()).ready();
    let said = client.through(&again).call("echo", json!({"b": 1}));
    assert_eq!(said["result"]["content"][0]["text"], r#"{"b":1}"#, "{said}");
    // Nobody else was told what the client has set.
    let call = server.all("tools/call").pop().unwrap();
    assert_eq!(message(&call)["params"]["_meta"]["io.modelcontextprotocol/logLevel"], "error");
}

#[test]
fn idle_sessions_end() {
    let server = echoing();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = able(&sidecar, "2025-11-25");
    sidecar.runs(&sidecar.files.write(&idle(config(server.port), 300)));
    // To ask the session itself would be a use of it.
    eventually("it is over", || sidecar.metric("longshore_sessions") == 0.0);
    assert_eq!(client.send("ping", json!({})).status, 404);
}

/// A server with sessions, which knows nothing of requests that stand alone. It answers calls with its name.
fn with_sessions(port: u16) -> Scripted {
    Scripted::at(port, json!({}), |request, stream| {
        let is_known = request.value("mcp-session-id").is_some();
        if is_known && request.method == "POST" {
            scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": "legacy"}]}));
        } else {
            scripted::write(stream, "HTTP/1.1 400 X\r\ncontent-length: 0\r\n\r\n");
        }
    })
}

/// A call that fails until it is clear that its session is over.
fn is_over(client: &Client<'_>) -> bool {
    let reply = client.send("tools/call", json!({"name": "echo"}));
    assert!(reply.status != 200 || reply.message().get("error").is_some(), "no success: {}", reply.text());
    reply.status == 404
}

fn text(client: &Client<'_>) -> serde_json::Value {
    client.call("echo", json!({}))["result"]["content"][0]["text"].clone()
}

#[test]
fn a_server_that_changes_its_era_ends_sessions_in_order() {
    let server = super::echoing_at(0);
    let port = server.port;
    let sidecar = sidecar(&server);
    let begins = || {
        let first = crate::harness::client::initialize("2025-11-25");
        Request::post(first).send(sidecar.mcp).status == 200
    };
    let before = able(&sidecar, "2025-11-25");
    assert_eq!(text(&before), "modern");
    server.stop();
    let _legacy = with_sessions(port);
    eventually("the session is over", || is_over(&before));
    eventually("another one can begin", begins);
    let client = able(&sidecar, "2025-11-25");
    assert_eq!(text(&client), "legacy");
    assert_eq!(before.send("ping", json!({})).status, 404);
}

#[test]
fn sessions_go_on_with_a_server_that_takes_the_place_of_another() {
    let (first, second) = (super::echoing_at(0), echoing());
    let sidecar = sidecar(&first);
    let client = able(&sidecar, "2025-11-25");
    client.ask("logging/setLevel", json!({"level": "alert"}));
    assert_eq!(text(&client), "modern");
    let digest = sidecar.files.write(&config(second.port));
    sidecar.runs(&digest);
    eventually("it is the other one", || text(&client) == "{}");
    let meta = &message(&second.all("tools/call")[0])["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "alert");
}

/// What clients say of themselves is kept for as long as their sessions last, and there may be many.
#[test]
fn what_clients_say_at_length_has_a_bound() {
    let server = echoing();
    let sidecar = sidecar(&server);
    let long = json!({"roots": {}, "experimental": {"x": {"y": "z".repeat(15_000)}}});
    let initialize = |capabilities: &Value| {
        let mut first: Value = serde_json::from_str(&client::initialize("2025-11-25")).unwrap();
        first["params"]["capabilities"] = capabilities.clone();
        Request::post(first.to_string()).send(sidecar.mcp)
    };
    let mut sessions = Vec::new();
    let refused = loop {
        let reply = initialize(&long);
        match reply.header("mcp-session-id") {
            Some(session) => sessions.push(session.to_owned()),
            None => break reply,
        }
        assert!(sessions.len() < 1_000, "there is always room");
    };
    assert!(sessions.len() > 100, "{}", sessions.len());
    assert_eq!(refused.status, 503);
    let words = refused.message()["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("no room for what this client says"), "{words}");
    // Nearly nobody says so much.
    let other = able(&sidecar, "2025-11-25");
    other.call("echo", json!({}));
    // There is no more for subscriptions either, though this one has few.
    let subscribe =
        |number: usize| other.send("resources/subscribe", json!({"uri": format!("test://{number:0>1000}")}));
    let refused = (0..64).map(subscribe).find(|reply| reply.status != 200).expect("one is refused");
    assert_eq!(refused.status, 503);
    let words = refused.message()["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("no room for what this client says"), "{words}");
    for session in &sessions[..2] {
        assert_eq!(Client::in_session(&sidecar, session).end().status, 204);
    }
    assert_eq!(initialize(&long).status, 200);
}
