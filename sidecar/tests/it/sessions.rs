//! Sessions: whose they are, how many, how they end.

mod abandoned_handshakes;
mod again;
mod late;
mod restarts;
mod set_again;
mod turns;

use std::collections::HashSet;
use std::io::BufReader;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore_sidecar_config::Config;
use longshore_sidecar_config::inventory::Short;
use serde_json::json;

use crate::harness::config::{callers, idle};
use crate::harness::http::{Reply, read_chunk};
use crate::harness::{
    Client, Cluster, Files, Gate, GoServer, Request, Scripted, Sidecar, client, config, eventually, scripted,
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
    let sidecar = Sidecar::flagged(&config(server.port), &["--workers", "3"]).ready();
    let client = Client::open(&sidecar, None);
    for round in 0..30 {
        // Each on a connection of its own, so that each worker gets some.
        assert_eq!(client.call("echo", json!({"text": "a"}))["id"], round + 1);
    }
}

#[test]
fn the_server_hears_that_a_session_has_ended() {
    let server = Scripted::start(|_, _| {});
    let sidecar = Sidecar::start(&config(server.port));
    let ended = Client::open(&sidecar, None);
    assert_eq!(ended.end().status, 204);
    let deleted = server.seen("DELETE");
    assert_eq!(deleted.len(), 1);
    assert_eq!(deleted[0].value("mcp-session-id"), Some(scripted::UPSTREAM_SESSION));

    let unused = Client::open(&sidecar, None);
    sidecar.runs(&sidecar.files.write(&idle(config(server.port), 300)));
    eventually("the idle session ends too", || server.seen("DELETE").len() == 2);
    assert_eq!(unused.send("ping", json!({})).status, 404);
    for (cause, count) in [("deleted", 1.0), ("idle", 1.0), ("aged", 0.0)] {
        assert_eq!(sidecar.metric(&format!("longshore_sessions_ended_total{{cause=\"{cause}\"}}")), count);
    }
    assert_eq!(sidecar.metric("longshore_sessions_opened_total"), 2.0);
    assert_eq!(sidecar.metric("longshore_ended_sessions"), 2.0);
}

#[test]
fn a_server_that_is_slow_to_end_sessions_is_not_in_the_way_of_new_ones() {
    let gate = Gate::default();
    let server = Scripted::ending(&gate);
    let mut config = idle(config(server.port), 300);
    config.sessions.total = 20;
    let sidecar = Sidecar::start(&config).ready();
    let gone = || eventually("they end", || sidecar.metric("longshore_sessions") == 0.0);
    // Those of the second turn end too, while the server has not yet ended the first.
    for _ in 0..2 {
        for number in 0..20 {
            let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
            assert_eq!(reply.status, 200, "{number}: {}", reply.text());
        }
        gone();
    }
    gate.open();
    eventually("the server hears of all of them", || server.seen("DELETE").len() == 40);
}

#[test]
fn r051_there_are_only_so_many() {
    assert_eq!(short_of_three((3, 2), &[]), Short::default());
}

#[test]
fn there_are_no_more_sessions_than_there_is_memory_for() {
    let short = short_of_three((300, 200), &["--max-sessions", "3"]);
    assert_eq!(short, Short { sessions: Some(3), request_bytes: None });
}

/// Has three sessions, of which one caller may have two, and asks what there was too little memory for.
fn short_of_three((total, per_principal): (u32, u32), flags: &[&str]) -> Short {
    let (server, cluster) = (GoServer::start(&[]), Cluster::new());
    let mut config = config(server.port);
    cluster.trust(&mut config);
    (config.sessions.total, config.sessions.per_principal) = (total, per_principal);
    let files = Files::new();
    files.write_with_keys(&config, &callers());
    let sidecar = Sidecar::with(files, flags).loaded().ready();
    let open = |key: &str| Request::post(client::initialize("2025-11-25")).key(key).send(sidecar.mcp);
    let refused = |key: &str, status: u16, reason: &str, words: &str| {
        let reply = open(key);
        assert_eq!(reply.status, status, "{}", reply.text());
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert!(reply.message()["error"]["message"].as_str().unwrap().contains(words), "{}", reply.text());
        sidecar.audit(|line| line["reason"] == reason && line["status"] == status);
    };
    let first = Client::open(&sidecar, Some("key-a"));
    let _second = Client::open(&sidecar, Some("key-a"));
    refused(
        "key-a",
        429,
        "too many sessions of one principal",
        "as many sessions with this server as one caller may (2)",
    );
    let _others = Client::open(&sidecar, Some("key-b"));
    refused("key-b", 503, "too many sessions", "too many sessions");
    assert_eq!(first.end().status, 204);
    assert_eq!(open("key-a").status, 200);
    sidecar.inventory(&cluster.token(|_| {})).short
}

/// 48: what is in an id, and what it is sealed with, is drawn and not counted.
#[test]
fn r048_no_two_ids_are_alike_nor_sealed_alike() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let (mut ids, mut nonces) = (HashSet::new(), HashSet::new());
    for _ in 0..50 {
        let id = Client::open(&sidecar, None).session.clone();
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        // Behind the version and the number of the key.
        let sealed = URL_SAFE_NO_PAD.decode(&id).unwrap();
        assert!(nonces.insert(sealed[2..14].to_vec()), "two nonces are the same");
        assert!(ids.insert(id), "two ids are the same");
    }
    assert_eq!(sidecar.metric("longshore_sessions"), 50.0, "each is one of its own");
    for at in 0..12 {
        let bytes: HashSet<u8> = nonces.iter().map(|nonce| nonce[at]).collect();
        assert!(bytes.len() > 16, "byte {at} of the nonces has {} values: they are counted", bytes.len());
    }
}

#[test]
fn r050_an_id_is_worth_nothing_to_others_and_a_refusal_says_nothing() {
    let server = GoServer::start(&[]);
    let start = |config: &Config| Sidecar::keyed(config, &callers()).ready();
    let sidecar = start(&config(server.port));
    let mut elsewhere = config(server.port);
    elsewhere.server.uid = "u-2".to_owned();
    let elsewhere = start(&elsewhere);

    let alice = Client::open(&sidecar, Some("key-a"));
    let id = alice.session.clone();
    assert!(id.len() < 1024 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
    let ended = Client::open(&sidecar, Some("key-a"));
    assert_eq!(ended.end().status, 204);
    let altered = if id.ends_with('A') { 'B' } else { 'A' };
    let altered = format!("{}{altered}", &id[..id.len() - 1]);
    let ask = |sidecar: &Sidecar, key: &str, id: &str, method: &str| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let request = if method == "POST" { Request::post(body) } else { Request::new(method, "/mcp") };
        request.header("accept", "text/event-stream").session(id).key(key).send(sidecar.mcp)
    };
    let reference = ask(&sidecar, "key-a", "no-such-session", "DELETE");
    assert_eq!(reference.status, 404);
    for (sidecar, key, id, what) in [
        (&sidecar, "key-b", &id, "another principal's"),
        (&elsewhere, "key-a", &id, "another server's"),
        (&sidecar, "key-a", &altered, "altered"),
        (&sidecar, "key-a", &ended.session, "ended"),
    ] {
        for method in ["GET", "DELETE"] {
            let reply = ask(sidecar, key, id, method);
            assert_eq!((reply.status, reply.text()), (404, reference.text()), "{what}: {method}");
        }
    }
    let client = Client::open(&sidecar, Some("key-b"));
    let other = client.with_session(&id).send("ping", json!({}));
    assert_eq!(other.status, 404);
    assert_eq!(alice.send("ping", json!({})).status, 200, "and it is alive");
    for id in [&id, &ended.session] {
        assert!(!sidecar.written().contains(id.as_str()), "ids are in no log");
    }
}

#[test]
fn a_session_ends_with_its_age_however_busy() {
    let server = GoServer::start(&[]);
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    config.sessions.max_age_ms = 2_000;
    sidecar.runs(&sidecar.files.write(&config));
    eventually("it is too old", || client.send("ping", json!({})).status == 404);
    let [never, old] = ["no-such-session", &client.session].map(|id| {
        let reply = client.request(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).without("mcp-session-id");
        let reply = reply.session(id).send(sidecar.mcp);
        (reply.status, reply.text().to_owned())
    });
    assert_eq!(old, never, "and nobody learns that it was there");
    eventually("it is gone", || sidecar.metric("longshore_sessions") == 0.0);
}

/// Also where the server says something only then.
#[test]
fn calls_outlive_the_age_of_their_session() {
    let (gate, ended) = (Gate::default(), Arc::<Mutex<Vec<Option<String>>>>::default());
    let (waits, ends) = (gate.clone(), ended.clone());
    let server = Scripted::told(move |request, stream| {
        // The server gives all its sessions one name.
        let whose = request.value("mcp-protocol-version").map(str::to_owned);
        if request.method == "DELETE" {
            ends.lock().unwrap().push(whose);
            return scripted::write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
        if scripted::method_of(request) != "tools/call" {
            return scripted::accepted(stream);
        }
        scripted::begin_events(stream);
        waits.pass();
        if ends.lock().unwrap().contains(&whose) {
            // What it did in the session has ended with it.
            return drop(stream.shutdown(Shutdown::Both));
        }
        let news = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
        scripted::say(stream, &news);
        scripted::chunk(
            stream,
            &format!("data: {}\n\n", scripted::reply_to(request, &json!({"content": []}))),
        );
        scripted::chunk(stream, "");
    });
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let calls = ["2025-03-26", "2025-06-18", "2025-11-25"].map(|revision| {
        let client = Client::of(&sidecar, None, revision);
        let stream = client.begin(&json!({"name": "t"}));
        (client, stream)
    });
    eventually("the server has them", || server.seen("tools/call").len() == 3);
    config.sessions.max_age_ms = 2_000;
    sidecar.runs(&sidecar.files.write(&config));
    for (client, _) in &calls {
        eventually("it is too old", || client.send("ping", json!({})).status == 404);
        // Those under way may need to hear of their client.
        let message = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}});
        let message = if client.revision == "2025-03-26" { json!([message]) } else { message };
        assert_eq!(client.request(message.to_string()).send(sidecar.mcp).status, 202, "{}", client.revision);
    }
    assert!(ended.lock().unwrap().is_empty(), "the server is not told while calls are under way");
    gate.open();
    for (client, stream) in calls {
        let reply = Reply::on(stream);
        assert_eq!(reply.status, 200, "{}: {}", client.revision, reply.text());
        assert_eq!(reply.events().len(), 2, "{}: {}", client.revision, reply.text());
        assert!(reply.message()["result"].is_object(), "{}: {}", client.revision, reply.text());
    }
    eventually("then it is told", || server.seen("DELETE").len() == 3);
    assert_eq!(server.seen("notifications/progress").len(), 3);
    eventually("and they are gone", || sidecar.metric("longshore_sessions") == 0.0);
}

#[test]
fn idle_sessions_cost_little() {
    const COUNT: u64 = 2_000;
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    // What the first ones cost is not theirs alone.
    let open = |count| (0..count).for_each(|_| drop(Client::open(&sidecar, None)));
    open(COUNT);
    let before = sidecar.memory();
    open(COUNT);
    let each = sidecar.memory().saturating_sub(before) / COUNT;
    eprintln!("{each} bytes for each of {COUNT} idle sessions");
    assert_eq!(sidecar.metric("longshore_sessions"), 2.0 * COUNT as f64);
    assert!(each <= 4096, "{each} bytes");
}

/// A client may leave its calls behind; they go on, and each holds a connection to the server.
#[test]
fn there_are_only_so_many_calls_under_way() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-calls", "1"]).ready();
    let client = Client::open(&sidecar, None);
    let arguments = json!({"milliseconds": 3000, "steps": 30});
    let slow = json!({"name": "slow", "arguments": arguments, "_meta": {"progressToken": 1}});
    let mut stream = BufReader::new(client.begin(&slow));
    assert_eq!(Reply::read_head(&mut stream).unwrap().0, 200);
    read_chunk(&mut stream).unwrap();
    assert_eq!(client.send("ping", json!({})).status, 503);
    sidecar.audit(|line| line["reason"] == "too many calls" && line["status"] == 503);
    drop(stream);
    eventually("the call has ended", || client.send("ping", json!({})).status == 200);
}

/// Who has made as many calls as one may takes nothing of what others have, and can take its own back.
#[test]
fn calls_of_one_principal_leave_room_for_others_and_for_what_ends_them() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let server = Scripted::start(move |request, stream| {
        if scripted::message(request)["params"]["arguments"]["waits"] == json!(true) {
            waiting.pass();
        }
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let files = Files::new();
    files.write_with_keys(&config(server.port), &callers());
    let sidecar = Sidecar::with(files, &["--max-calls", "2"]).loaded().ready();
    let (alice, bob) = (Client::open(&sidecar, Some("key-a")), Client::open(&sidecar, Some("key-b")));
    let waits = json!({"name": "t", "arguments": {"waits": true}});
    // The second one has taken the last place.
    let calls = [(0, &alice, 429), (1, &bob, 503)].map(|(number, client, refused)| {
        let stream = client.begin(&waits);
        eventually("the server hears of it", || server.seen("tools/call").len() == number + 1);
        let more = client.send("tools/call", json!({"name": "t", "arguments": {}}));
        assert_eq!((more.status, more.header("retry-after")), (refused, Some("1")));
        stream
    });
    sidecar.audit(|line| line["reason"] == "too many calls of one caller" && line["principal"] == "alice");
    // There is room for these where there is none for calls.
    let text = "x".repeat(100_000);
    for body in [
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "id": "asked", "result": {"role": "assistant", "model": "m",
            "content": {"type": "text", "text": text}}}),
    ] {
        assert_eq!(alice.request(body.to_string()).send(sidecar.mcp).status, 202, "{}", body["method"]);
    }
    assert_eq!(server.seen("notifications/cancelled").len(), 1);
    gate.open();
    for stream in calls {
        assert!(Reply::on(stream).message()["result"].is_object());
    }
    assert_eq!(alice.send("tools/call", json!({"name": "t", "arguments": {}})).status, 200);
}
