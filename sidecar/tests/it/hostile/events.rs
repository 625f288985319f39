//! Answers that come as events: what is held of them, whoever speaks what.

use std::io::BufReader;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use serde_json::json;
use socket2::SockRef;

use super::LARGE;
use crate::harness::http::connect;
use crate::harness::{
    Client, Events, Gate, Reply, Request, Scripted, Sessionless, Sidecar, config, eventually,
};
use crate::harness::{modern, scripted};

/// A large answer as an event. The end of it comes when the gate is open.
fn answer(request: &Request, stream: &mut TcpStream, (gate, begun): &(Gate, AtomicUsize)) {
    let text = "x".repeat(LARGE);
    let mut result = json!({"content": [{"type": "text", "text": text}]});
    if scripted::message(request)["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string() {
        result["resultType"] = json!("complete");
    }
    let event = format!("data: {}\n\n", scripted::reply_to(request, &result));
    let (start, end) = event.split_at(LARGE);
    scripted::begin_events(stream);
    scripted::chunk(stream, start);
    begun.fetch_add(1, Ordering::SeqCst);
    gate.pass();
    scripted::chunk(stream, end);
    scripted::write(stream, "0\r\n\r\n");
}

fn sidecar(port: u16) -> Sidecar {
    holding(port, "1000000")
}

fn holding(port: u16, bytes: &str) -> Sidecar {
    Sidecar::flagged(&config(port), &["--max-held-bytes", bytes]).ready()
}

/// Servers of all kinds that answer large events, and clients of both eras: what is said by `row`, once for each.
fn with_each(row: impl Fn(&str, &Sidecar, &dyn Fn() -> Request, &(Gate, AtomicUsize))) {
    let said: [Arc<(Gate, AtomicUsize)>; 4] = std::array::from_fn(|_| Arc::default());
    let at = |number: usize| {
        let said = said[number].clone();
        move |request: &Request, stream: &mut TcpStream| answer(request, stream, &said)
    };
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let with_sessions = [Scripted::start(at(0)), Scripted::start(at(1))];
    let of_both = Scripted::of_both(json!({}), at(2));
    let sessionless = Sessionless::start(json!({"tools": {}}), tools, at(3));
    for (at, port, has_session, name) in [
        (0, with_sessions[0].port, true, "both have sessions"),
        (1, with_sessions[1].port, false, "the server has sessions"),
        (2, of_both.port, false, "neither has sessions"),
        (3, sessionless.port, true, "the client has sessions"),
    ] {
        let sidecar = sidecar(port);
        let client = has_session.then(|| Client::open(&sidecar, None));
        let call = || match &client {
            Some(client) => client.request(client.message("tools/call", &json!({"name": "t"}))),
            None => modern::request(1, "tools/call", json!({"name": "t"})),
        };
        row(name, &sidecar, &call, &said[at]);
    }
}

/// Makes calls side by side, and reads what comes of each as it comes.
fn begin(sidecar: &Sidecar, call: &dyn Fn() -> Request, calls: usize) -> Vec<JoinHandle<Reply>> {
    let begin = |_| {
        let mut stream = connect(sidecar.mcp);
        call().write(&mut stream);
        spawn(move || Reply::on(stream))
    };
    (0..calls).map(begin).collect()
}

fn replies(calls: Vec<JoinHandle<Reply>>) -> Vec<Reply> {
    calls.into_iter().map(|call| call.join().unwrap()).collect()
}

/// Nobody knows how much of an event is still to come. One at a time may have more than there is room for, and the others
/// wait for it as long as it is likely to end.
#[test]
fn events_that_are_not_whole_are_held_within_a_bound() {
    with_each(|name, sidecar, call, (gate, begun)| {
        let calls = begin(sidecar, call, 4);
        eventually(&format!("there is room for one where {name}"), || {
            let are_there = begun.load(Ordering::SeqCst) == 4;
            are_there && sidecar.metric("longshore_calls") == 1.0
        });
        sidecar.audit(|line| line["reason"] == "answer not held" && line["decision"] == "permit");
        gate.open();
        let replies = replies(calls);
        let whole = replies.iter().filter(|reply| reply.body.len() > LARGE).count();
        let refused = replies.iter().filter(|reply| reply.body.len() < LARGE);
        let errors: Vec<_> = refused.map(|reply| reply.message()["error"].clone()).collect();
        let are_known = errors.iter().all(|error| error["code"] == -32603);
        assert!(whole == 1 && errors.len() == 3 && are_known, "{name}: {whole} and {errors:?}");
        eventually("there is room again", || call().send(sidecar.mcp).message().get("result").map(drop));
    });
}

/// A server is slowed down where there is no room for all that it has begun to say.
#[test]
fn many_large_events_at_once_all_come_to_their_end() {
    const CALLS: usize = 6;
    with_each(|name, sidecar, call, (gate, begun)| {
        let calls = begin(sidecar, call, CALLS);
        eventually(&format!("all have begun where {name}"), || begun.load(Ordering::SeqCst) == CALLS);
        gate.open();
        let whole = replies(calls).iter().filter(|reply| reply.body.len() > LARGE).count();
        assert_eq!(whole, CALLS, "{name}");
    });
}

/// Makes a call, and reads nothing of what comes but the head of it.
fn unread(sidecar: &Sidecar, call: &Request) -> BufReader<TcpStream> {
    let mut stream = connect(sidecar.mcp);
    SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
    call.write(&mut stream);
    let mut answer = BufReader::new(stream);
    assert_eq!(Reply::read_head(&mut answer).unwrap().0, 200);
    answer
}

/// What follows the first event, in a response that goes on for as long as its client reads.
#[test]
fn events_that_nobody_reads_are_held_within_a_bound() {
    let server = Scripted::of_both(json!({}), |request, stream| {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": 1, "progress": 1}});
        let result =
            json!({"resultType": "complete", "content": [{"type": "text", "text": "x".repeat(LARGE)}]});
        let answer = scripted::reply_to(request, &result);
        scripted::events(stream, &[&format!("data: {note}\n\n"), &format!("data: {answer}\n\n")]);
    });
    let sidecar = sidecar(server.port);
    let call = || modern::request(1, "tools/call", json!({"name": "t", "_meta": {"progressToken": 1}}));
    let unread = [(); 2].map(|()| unread(&sidecar, &call()));
    eventually("what has come in full is no call any more", || sidecar.metric("longshore_calls") == 0.0);
    eventually("there is no room for a third", || call().send(sidecar.mcp).message().get("error").map(drop));
    sidecar.audit(|line| line["reason"] == "answer not held" && line["decision"] == "permit");
    drop(unread);
    eventually("they have gone", || call().send(sidecar.mcp).message().get("result").map(drop));
}

/// What needed more than its part of the room to come, and has come, is in nobody's way while it is not read.
#[test]
fn a_first_event_that_nobody_reads_holds_up_no_others() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Scripted::of_both(json!({}), move |request, stream| {
        let is_first = scripted::message(request)["params"]["name"] == "first";
        let message = if is_first {
            // More than what is written ahead for a client.
            json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": 1, "progress": 1, "message": "x".repeat(2 * LARGE)}})
            .to_string()
        } else {
            let text = json!({"type": "text", "text": "x".repeat(LARGE)});
            scripted::reply_to(request, &json!({"resultType": "complete", "content": [text]}))
        };
        let event = format!("data: {message}\n\n");
        let (start, end) = event.split_at(LARGE);
        scripted::begin_events(stream);
        scripted::chunk(stream, start);
        std::thread::sleep(Duration::from_millis(100));
        scripted::chunk(stream, end);
        if is_first {
            held.pass();
        }
        scripted::write(stream, "0\r\n\r\n");
    });
    let sidecar = holding(server.port, "1500000");
    let call = |name| modern::request(1, "tools/call", json!({"name": name, "_meta": {"progressToken": 1}}));
    let _unread = unread(&sidecar, &call("first"));
    let reply = call("second").send(sidecar.mcp);
    assert!(reply.message()["result"].is_object(), "{}", reply.message()["error"]);
    gate.open();
}

/// The same in sessions, where what is not read is kept, and its client comes back for it.
#[test]
fn answers_in_streams_that_nobody_reads_are_held_within_a_bound() {
    let server = Scripted::start(|request, stream| {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": 1, "progress": 1}});
        let result = json!({"content": [{"type": "text", "text": "x".repeat(LARGE)}]});
        let answer = scripted::reply_to(request, &result);
        scripted::events(stream, &[&format!("data: {note}\n\n"), &format!("data: {answer}\n\n")]);
    });
    let sidecar = sidecar(server.port);
    let client = Client::open(&sidecar, None);
    let call =
        || client.request(client.message("tools/call", &json!({"name": "t", "_meta": {"progressToken": 1}})));
    let unread = [(); 2].map(|()| unread(&sidecar, &call()));
    eventually("both are answered", || sidecar.metric("longshore_calls") == 0.0);
    let last = eventually("there is no room for a third", || {
        let mut third = Events::open(&call(), sidecar.mcp);
        third.patience(Duration::from_secs(60));
        assert_eq!(third.next().unwrap().message()["method"], "notifications/progress");
        // It may still be sooner than one of the others.
        third.next().is_none().then_some(third.last)
    });
    drop(unread);
    let rest = Events::open(&client.rest(&last), sidecar.mcp).all();
    assert!(rest[0].message()["result"].is_object() && rest.len() == 1);
}
