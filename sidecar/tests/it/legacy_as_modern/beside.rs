//! What a server asks beside its calls, on the stream of their session, as the Rust SDK always does.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{again, asked, call, is_error, request, text};
use crate::conformance::rust::OLDER_SERVER;
use crate::conformance::suite;
use crate::harness::own;
use crate::harness::peer::{Peer, free_port};
use crate::harness::{Scripted, Sidecar, config, eventually, scripted};

/// The server of the matrix on the last release of that SDK before 2026-07-28.
fn server() -> Peer {
    let port = free_port();
    let command = own::command(OLDER_SERVER, &["2025-11-25", "http", &port.to_string()]);
    let mut program = suite::patient(&command[0]);
    program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Peer::listening(program.spawn().expect("the server"), port)
}

const TOOL: &str = "test_elicitation";

/// 71: nothing says in which call it is asked, so each call that may be asked something has a session for itself, also
/// beside one that nobody comes back to.
#[test]
fn r071_what_is_asked_beside_a_call_is_asked_whatever_other_calls_there_are() {
    let server = server();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let (can, arguments) = (json!({"elicitation": {}}), json!({"message": "m"}));
    let ask = || asked(&call(TOOL, arguments.clone(), &can).send(sidecar.mcp));
    let left = ask();
    let others = thread::scope(|scope| {
        let others = [(); 3].map(|()| scope.spawn(ask));
        others.map(|other| other.join().unwrap())
    });
    for (questions, state) in others.iter().chain([&left]) {
        let declines = json!({questions[0].0.clone(): {"action": "decline"}});
        let reply = again(TOOL, arguments.clone(), &can, state, declines).send(sidecar.mcp);
        assert_eq!(text(&reply), "It was answered.");
    }
}

/// 32: a server waits for what it has asked. So it is heard also for a client that cannot be asked, and told so.
#[test]
fn r032_what_is_asked_beside_a_call_of_who_cannot_be_asked_ends_it() {
    let server = server();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let reply = call(TOOL, json!({"message": "m"}), &json!({})).send(sidecar.mcp);
    is_error(&reply, 400, -32021);
}

/// A server that begins its stream with the first event is waited for where a client may be told what comes in it; for the
/// others hardly, and in a list not at all.
#[test]
fn a_stream_that_is_late_hardly_holds_up_who_cannot_be_asked() {
    let server = Scripted::offering(json!({"tools": {}}), |request, stream| {
        if request.method == "GET" {
            return scripted::until_closed(stream);
        }
        scripted::reply(stream, request, &json!({"tools": [], "content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let took = |method: &str, can: Value| {
        let began = Instant::now();
        let reply = request(1, method, json!({"name": "t"}), &can).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{}", reply.text());
        began.elapsed()
    };
    let asked = took("tools/call", json!({"elicitation": {}}));
    for (method, can) in [("tools/call", json!({})), ("tools/list", json!({"sampling": {}}))] {
        let other = took(method, can);
        assert!(other < asked, "{method}: {other:?}, and who can be asked {asked:?}");
    }
    eventually("what it asks there has to be refused", || server.seen("GET").len() == 3);
}

/// Each of them waits with its own patience, also where another one has begun to wait, and given up.
#[test]
fn a_call_waits_for_a_stream_that_the_one_before_did_not_wait_for() {
    let is_open = Arc::<AtomicBool>::default();
    let calls = Arc::<Mutex<Vec<bool>>>::default();
    let called = calls.clone();
    let server = Scripted::offering(json!({"tools": {}}), move |request, stream| {
        if request.method == "GET" {
            thread::sleep(Duration::from_millis(500));
            is_open.store(true, Ordering::SeqCst);
            return scripted::stays_open(stream);
        }
        if scripted::method_of(request) == "tools/call" {
            called.lock().unwrap().push(is_open.load(Ordering::SeqCst));
        }
        scripted::reply(stream, request, &json!({"tools": [], "content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for meta in [json!({}), json!({"progressToken": "p"})] {
        let params = json!({"name": "t", "arguments": {}, "_meta": meta});
        let reply = request(1, "tools/call", params, &json!({})).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(server.seen("GET").len(), 1, "they are in one session");
    let calls = calls.lock().unwrap();
    assert_eq!((calls.len(), calls.last()), (2, Some(&true)), "who may be told of progress has waited");
}

/// 66: one that gives no session ids says to nobody that it was restarted. What it was told in its handshakes it is told
/// again, also where it is heard.
#[test]
fn r066_a_server_without_session_ids_is_greeted_again_after_its_restart() {
    let pings = Arc::<Mutex<VecDeque<_>>>::default();
    let offers = json!({"tools": {}});
    let server = Scripted::nameless_pinging_listening(offers, pings.clone(), |request, stream| {
        if request.method == "GET" {
            return scripted::stays_open(stream);
        }
        scripted::reply(stream, request, &json!({"tools": [], "content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let ask = || {
        let reply = call("t", json!({}), &json!({})).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    ask();
    ask();
    eventually("it is heard", || server.seen("GET").len() == 1);
    assert_eq!(server.seen("initialize").len(), 1);
    pings.lock().unwrap().push_back((404, "{}"));
    eventually("it is greeted again", || {
        // Where a call is under way its session is not left: it hears the server.
        thread::sleep(Duration::from_millis(200));
        ask();
        server.seen("initialize").len() > 1
    });
}
