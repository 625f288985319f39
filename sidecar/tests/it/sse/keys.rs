//! Sessions whose ids nobody can open any more, since the keys were made anew.

use longshore_sidecar_config::{Config, Keys};
use serde_json::json;

use super::caller::Caller;
use crate::harness::client::initialize;
use crate::harness::config::{keys, session_key};
use crate::harness::scripted::Greeting;
use crate::harness::{Client, Events, Files, Gate, Request, Scripted, Sidecar, config, eventually, scripted};

/// The configuration that seals with the last of these keys.
fn write(files: &Files, config: &Config, numbers: &[u8]) -> String {
    let mut config = config.clone();
    config.sessions.seal_with = *numbers.last().unwrap();
    let sessions = numbers.iter().map(|number| session_key(*number)).collect();
    files.write_with_keys(&config, &Keys { sessions, ..keys(&[("alice", "key-a")]) })
}

#[test]
fn sessions_end_with_the_last_key_that_opens_their_ids() {
    let server = Scripted::listening(|request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"content": []}));
        }
        scripted::stays_open(stream);
    });
    let (files, config) = (Files::new(), config(server.port));
    write(&files, &config, &[1]);
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let client = Client::open(&sidecar, Some("key-a"));
    let listening = Events::open(&client.get(), sidecar.mcp);
    let caller = Caller::open(&sidecar, Some("key-a"));
    assert_eq!((listening.status, sidecar.metric("longshore_sessions")), (200, 2.0));
    // One that follows another in order ends nothing.
    sidecar.runs(&write(&sidecar.files, &config, &[1, 2]));
    assert!(client.call("t", json!({})).get("result").is_some());
    let told = server.seen("DELETE").len();
    sidecar.runs(&write(&sidecar.files, &config, &[3]));
    assert!(listening.all().iter().all(|event| !event.has_messages()));
    assert!(caller.stream.all().is_empty());
    assert_eq!(client.send("ping", json!({})).status, 404);
    eventually("they are gone", || sidecar.metric("longshore_sessions") == 0.0);
    eventually("the server is told", || server.seen("DELETE").len() >= told + 2);
    // And another one begins.
    Client::open(&sidecar, Some("key-a")).call("t", json!({}));
}

#[test]
fn calls_under_way_are_answered_when_the_keys_are_made_anew() {
    let gate = Gate::default();
    let waits = gate.clone();
    let server = Scripted::start(move |request, stream| {
        waits.pass();
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let (files, config) = (Files::new(), config(server.port));
    write(&files, &config, &[1]);
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let (idle, client) = (Client::open(&sidecar, Some("key-a")), Client::open(&sidecar, Some("key-a")));
    let mut caller = Caller::open(&sidecar, Some("key-a"));
    let told = server.seen("DELETE").len();
    let call = client.request(client.message("tools/call", &json!({"name": "t"})));
    std::thread::scope(|scope| {
        let reply = scope.spawn(|| call.send(sidecar.mcp));
        let posted = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "t"}});
        assert_eq!(caller.post(&sidecar, &posted.to_string()).status, 202);
        eventually("they are under way", || server.seen("tools/call").len() == 2);
        sidecar.runs(&write(&sidecar.files, &config, &[2]));
        // The one that nobody uses ends at once.
        let ended = || sidecar.metric("longshore_sessions_ended_total{cause=\"keys\"}");
        eventually("one has ended", || ended() >= 1.0);
        eventually("the server is told", || server.seen("DELETE").len() > told);
        assert_eq!((idle.send("ping", json!({})).status, ended()), (404, 1.0));
        assert_eq!(server.seen("DELETE").len(), told + 1);
        gate.open();
        let reply = reply.join().unwrap();
        assert_eq!((reply.status, &reply.message()["result"]["content"]), (200, &json!([])));
    });
    assert_eq!(caller.hear()["id"], 7);
    assert!(caller.stream.all().is_empty());
    // Afterwards these too, when it is looked for what has ended.
    sidecar.runs(&write(&sidecar.files, &config, &[2, 3]));
    eventually("they are gone", || sidecar.metric("longshore_sessions") == 0.0);
    eventually("the server is told", || server.seen("DELETE").len() == told + 3);
}

/// Nobody could end it otherwise.
#[test]
fn a_session_that_begins_while_the_keys_are_made_anew_ends_with_those_before() {
    let gate = Gate::default();
    let server = Scripted::greeting_so(Greeting::At(gate.clone()), None);
    let (files, config) = (Files::new(), config(server.port));
    write(&files, &config, &[1]);
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let told = server.seen("DELETE").len();
    std::thread::scope(|scope| {
        let begins = scope.spawn(|| Request::post(initialize("2025-11-25")).key("key-a").send(sidecar.mcp));
        eventually("it begins", || !server.seen("initialize").is_empty());
        sidecar.runs(&write(&sidecar.files, &config, &[2]));
        gate.open();
        let begun = begins.join().unwrap();
        let client = Client::in_session(&sidecar, begun.header("mcp-session-id").unwrap()).with_key("key-a");
        assert_eq!((begun.status, client.send("ping", json!({})).status), (200, 404));
    });
    // When it is looked for what has ended.
    sidecar.runs(&write(&sidecar.files, &config, &[2, 3]));
    eventually("it is gone", || sidecar.metric("longshore_sessions") == 0.0);
    assert_eq!(sidecar.metric("longshore_sessions_ended_total{cause=\"keys\"}"), 1.0);
    eventually("the server is told", || server.seen("DELETE").len() == told + 1);
}
