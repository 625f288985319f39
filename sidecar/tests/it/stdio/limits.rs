//! How many processes there may be.

use std::io::BufReader;
use std::time::Duration;

use longshore_sidecar_config::Isolation;
use serde_json::json;

use super::warm::handshakes;
use super::{KEYS, config, error, pid};
use crate::harness::config::{idle, keys, processes};
use crate::harness::http::connect;
use crate::harness::shim::{server, serving, serving_keyed, stdio};
use crate::harness::{Client, Files, Reply, Request, Shim, Sidecar, client, eventually, peer, within};

/// Asks for a session with this key.
pub(super) fn open(sidecar: &Sidecar, key: &str) -> Reply {
    Request::post(client::initialize("2025-11-25")).key(key).send(sidecar.mcp)
}

#[test]
fn nobody_gets_more_than_their_part() {
    let mut config = stdio();
    config.limits.processes = Some(processes(3, 2));
    let keys = keys(&KEYS);
    let (_shim, sidecar) = serving_keyed(&config, &keys, &server(&[]), &[]);
    let first = Client::open(&sidecar, Some("key-a"));
    let _second = Client::open(&sidecar, Some("key-a"));
    let reply = open(&sidecar, "key-a");
    let message = reply.message();
    assert_eq!(reply.status, 429, "{message}");
    let words = message["error"]["message"].as_str().unwrap();
    assert!(words.contains("for you as may (2)") && words.contains("end a session"), "{words}");
    sidecar.audit(|line| line["reason"] == "too many processes of one principal");

    let _third = Client::open(&sidecar, Some("key-b"));
    let reply = open(&sidecar, "key-c");
    let message = reply.message();
    assert_eq!(reply.status, 503, "{message}");
    assert!(message["error"]["message"].as_str().unwrap().contains("as may (3)"), "{message}");
    sidecar.audit(|line| line["reason"] == "too many processes");
    // The sidecar's own is not counted, and a session that is open goes on.
    assert_eq!(sidecar.metric("longshore_processes"), 4.0);
    pid(&first);

    // A place that was left is free.
    let end = Request::new("DELETE", "/mcp").session(&first.session).key("key-a");
    assert_eq!(end.send(sidecar.mcp).status, 204);
    assert_eq!(open(&sidecar, "key-c").status, 200);
    // The configuration that is in force counts, and nothing is started anew for it.
    config.limits.processes = Some(processes(4, 2));
    sidecar.runs(&sidecar.files.write_with_keys(&config, &keys));
    assert_eq!(open(&sidecar, "key-c").status, 200);
    assert_eq!(open(&sidecar, "key-c").status, 429);
    assert_eq!(sidecar.metric("longshore_handshakes_total{result=\"ok\"}"), 1.0);
}

#[test]
fn a_place_comes_back_of_a_handshake_that_takes_too_long() {
    let mut config = stdio();
    config.limits.processes = Some(processes(1, 1));
    // Longer than the start of the sidecar's own takes, which is what others are judged by.
    config.limits.request_timeout_ms = 10_000;
    let (_shim, sidecar) = serving(&config, &server(&["wordy"]), &[]);
    let initialize = || Request::post(client::initialize("2025-11-25"));
    let reply = initialize().send(sidecar.mcp);
    assert!(reply.text().contains("did not answer within 10 seconds"), "{}", reply.text());
    let processes = |count| {
        let what = format!("{count} processes run");
        eventually(&what, || sidecar.metric("longshore_processes") == count);
    };
    processes(1.0);
    let mut stream = connect(sidecar.mcp);
    initialize().write(&mut stream);
    processes(2.0);
}

/// Whoever ends it too early and starts it again gets nowhere.
#[test]
fn a_server_that_starts_for_longer_than_a_call_may_take_has_sessions() {
    for isolation in [Isolation::Session, Isolation::Principal] {
        let mut config = config(isolation, 2);
        config.limits.request_timeout_ms = 2_000;
        let (_shim, sidecar) = serving(&config, &server(&["sluggish"]), &[]);
        let client = Client::open(&sidecar, None);
        pid(&client);
        // A call has no more time for that.
        let late = client.call("hang", json!({}));
        assert!(error(&late).contains("did not answer within 2 seconds"), "{late}");
    }
}

/// All of them would have the time of one that starts alone.
#[test]
fn where_many_begin_at_once_a_few_start_and_the_others_wait() {
    let (shim, sidecar) = serving(&config(Isolation::Session, 12), &server(&["sluggish"]), &[]);
    let sessions = [(); 12].map(|()| {
        let mut stream = connect(sidecar.mcp);
        Request::post(client::initialize("2025-11-25")).write(&mut stream);
        BufReader::new(stream)
    });
    let running = eventually("some wait", || {
        let running = shim.processes().len();
        (sidecar.metric("longshore_processes_unstarted") >= 4.0).then_some(running)
    });
    assert!(running <= 9, "{running} run, with the sidecar's own");
    for mut session in sessions {
        let reply = Reply::read(&mut session).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(sidecar.metric("longshore_processes_unstarted"), 0.0);
    assert_eq!(shim.processes().len(), 13);
}

#[test]
fn a_place_comes_back_on_every_way() {
    let mut config = stdio();
    config.limits.processes = Some(processes(1, 1));
    config.limits.request_timeout_ms = 20_000;
    let (_shim, sidecar) = serving(&config, &server(&["slow"]), &[]);
    let initialize = || Request::post(client::initialize("2025-11-25"));
    let free = || sidecar.metric("longshore_processes") == 1.0;
    // The client goes away meanwhile.
    let mut stream = connect(sidecar.mcp);
    initialize().write(&mut stream);
    eventually("it is under way", || sidecar.metric("longshore_processes") == 2.0);
    drop(stream);
    eventually("its process is gone", free);
    // The server refuses.
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}});
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let reply = Request::post(body.to_string()).send(sidecar.mcp);
    let session = reply.header("mcp-session-id").expect("a session").to_owned();
    // Everybody is one principal here, who may have all: it is not the caller's part that is full.
    let refused = initialize().send(sidecar.mcp);
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("as may (1)"), "{}", refused.text());
    assert_eq!(Request::new("DELETE", "/mcp").session(&session).send(sidecar.mcp).status, 204);
    Client::open(&sidecar, None);
}

/// Its answer has begun by then, as events.
#[test]
fn a_place_comes_back_of_who_goes_after_the_first_words_of_a_handshake() {
    let mut config = stdio();
    config.limits.processes = Some(processes(1, 1));
    config.limits.request_timeout_ms = 600_000;
    let (shim, sidecar) = serving(&config, &server(&["wordy", "frank"]), &[]);
    for greeted in [2, 3] {
        let mut stream = connect(sidecar.mcp);
        Request::post(client::initialize("2025-11-25")).write(&mut stream);
        eventually("it has said something", || handshakes(&sidecar) == greeted);
        drop(stream);
        eventually("its process is gone", || shim.processes().len() == 1);
        eventually("and its place", || sidecar.metric("longshore_processes") == 1.0);
    }
}

#[test]
fn places_of_processes_that_did_not_start_are_free() {
    let mut config = stdio();
    config.limits.processes = Some(processes(1, 1));
    let files = Files::new();
    files.write(&config);
    let _shim = Shim::start(&files, &server(&["exit"]));
    let sidecar = Sidecar::with(files, &[]).loaded();
    for _ in 0..5 {
        let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
        assert!(reply.text().contains("exit status 2"), "{}", reply.text());
    }
}

#[test]
fn a_hundred_sessions_that_nobody_closes_leave_nothing() {
    // One that starts so fast that none of them is idle for long before the last is there.
    let go = peer::folder().join("bin/go-server").to_str().unwrap().to_owned();
    let (shim, sidecar) = serving(&idle(stdio(), 10_000), &[go, "-stdio".to_owned()], &[]);
    let (descriptors, memory) = (sidecar.descriptors(), sidecar.memory());
    let mut refused = 0;
    for _ in 0..100 {
        let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
        match reply.status {
            200 => {}
            503 => refused += 1,
            other => panic!("{other}: {}", reply.text()),
        }
    }
    assert!(refused >= 100 - 2 * 32, "{refused}");
    assert!(sidecar.descriptors() > descriptors + 32 * 2);
    within(Duration::from_secs(60), "everything is as before", || {
        // The question itself is a connection, and the one before may still be closing.
        shim.processes().len() == 1 && sidecar.descriptors() <= descriptors + 1
    });
    assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
    assert!(sidecar.memory() < memory + (8 << 20), "{} {memory}", sidecar.memory());
    Client::open(&sidecar, None);
}

#[test]
fn a_configuration_without_limits_is_refused() {
    for processes in [None, Some(processes(0, 0)), Some(processes(1, 2)), Some(processes(1, 0))] {
        let mut config = stdio();
        config.limits.processes = processes;
        let files = Files::new();
        files.write(&config);
        let sidecar = Sidecar::with(files, &[]);
        let reply = sidecar.get("/startupz");
        assert_eq!(reply.status, 503);
        assert!(reply.text().contains("limits.processes"), "{}", reply.text());
    }
}
