//! Sessions: whose they are, how many, how they end.

use std::io::BufReader;

use serde_json::json;

use crate::harness::http::{Reply, connect, read_chunk};
use crate::harness::{
    Client, Files, GoServer, Request, Scripted, Sidecar, client, config, eventually, scripted,
};

#[test]
fn equal_ids_of_different_clients_are_not_confused() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let sidecar = &sidecar;
            scope.spawn(move || {
                let client = Client::open(sidecar, None);
                for round in 0..20 {
                    let text = format!("{number}-{round}");
                    // Every client counts its ids from one.
                    let message = client.call("echo", json!({"text": text}));
                    assert_eq!(message["id"], round + 1);
                    assert_eq!(message["result"]["content"][0]["text"], text);
                }
            });
        }
    });
    assert_eq!(sidecar.metric("longshore_sessions"), 8.0);
}

#[test]
fn several_workers_share_sessions() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    files.write(&config(server.port));
    let sidecar = Sidecar::with(files, &["--workers", "3"]).loaded().ready();
    let client = Client::open(&sidecar, None);
    for round in 0..30 {
        // Each on a connection of its own, so that each worker gets some.
        assert_eq!(client.call("echo", json!({"text": "a"}))["id"], round + 1);
    }
}

#[test]
fn the_server_hears_that_a_session_has_ended() {
    let server = Scripted::start(|_, _| {});
    let files = Files::new();
    files.write(&config(server.port));
    let sidecar = Sidecar::with(files, &["--session-idle-ms", "300"]).loaded();
    let ended = Client::open(&sidecar, None);
    assert_eq!(Request::new("DELETE", "/mcp").session(&ended.session).send(sidecar.mcp).status, 204);
    let deleted = server.seen("DELETE");
    assert_eq!(deleted.len(), 1);
    let session = ("mcp-session-id".to_owned(), scripted::UPSTREAM_SESSION.to_owned());
    assert!(deleted[0].headers.contains(&session));

    let idle = Client::open(&sidecar, None);
    eventually("the idle session ends too", || (server.seen("DELETE").len() == 2).then_some(()));
    assert_eq!(idle.send("ping", json!({})).status, 404);
}

#[test]
fn there_are_only_so_many() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    files.write(&config(server.port));
    let sidecar = Sidecar::with(files, &["--max-sessions", "2"]).loaded().ready();
    let first = Client::open(&sidecar, None);
    let _second = Client::open(&sidecar, None);
    let open = || Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
    let refused = open();
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.message()["error"]["message"].as_str().unwrap().contains("too many sessions"));
    sidecar.audit(|line| line["reason"] == "too many sessions" && line["status"] == 503);
    assert_eq!(Request::new("DELETE", "/mcp").session(&first.session).send(sidecar.mcp).status, 204);
    assert_eq!(open().status, 200);
}

/// A client may leave its calls behind; they go on, and each holds a connection to the server.
#[test]
fn there_are_only_so_many_calls_under_way() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    files.write(&config(server.port));
    let sidecar = Sidecar::with(files, &["--max-calls", "1"]).loaded().ready();
    let client = Client::open(&sidecar, None);
    let arguments = json!({"milliseconds": 3000, "steps": 30});
    let slow = json!({"name": "slow", "arguments": arguments, "_meta": {"progressToken": 1}});
    let mut stream = connect(sidecar.mcp);
    client.request(client.message("tools/call", &slow)).write(&mut stream);
    let mut stream = BufReader::new(stream);
    assert_eq!(Reply::read_head(&mut stream).unwrap().0, 200);
    read_chunk(&mut stream).unwrap();
    assert_eq!(client.send("ping", json!({})).status, 503);
    sidecar.audit(|line| line["reason"] == "too many calls" && line["status"] == 503);
    drop(stream);
    eventually("the call has ended", || (client.send("ping", json!({})).status == 200).then_some(()));
}
