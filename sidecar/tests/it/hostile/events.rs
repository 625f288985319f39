//! Answers that come as events: what is held of them, whoever speaks what.

use std::io::BufReader;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use socket2::SockRef;

use super::LARGE;
use crate::harness::http::connect;
use crate::harness::{
    Client, Files, Gate, Reply, Request, Scripted, Sessionless, Sidecar, config, eventually,
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
    let files = Files::new();
    files.write(&config(port));
    Sidecar::with(files, &["--max-held-bytes", "1000000"]).loaded().ready()
}

/// Nobody knows how much of an event is still to come.
#[test]
fn events_that_are_not_whole_are_held_within_a_bound() {
    let said: [Arc<(Gate, AtomicUsize)>; 4] = std::array::from_fn(|_| Arc::default());
    let at = |number: usize| {
        let said = said[number].clone();
        move |request: &Request, stream: &mut TcpStream| answer(request, stream, &said)
    };
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let with_sessions = [Scripted::start(at(0)), Scripted::start(at(1))];
    let of_both = Scripted::of_both(json!({}), at(2));
    let sessionless = Sessionless::start(json!({"tools": {}}), tools, at(3));
    for (at, port, has_session) in [
        (0, with_sessions[0].port, true),
        (1, with_sessions[1].port, false),
        (2, of_both.port, false),
        (3, sessionless.port, true),
    ] {
        let (gate, begun) = &*said[at];
        let sidecar = sidecar(port);
        let client = has_session.then(|| Client::open(&sidecar, None));
        let call = || match &client {
            Some(client) => client.request(client.message("tools/call", &json!({"name": "t"}))),
            None => modern::request(1, "tools/call", json!({"name": "t"})),
        };
        let calls: Vec<_> = (0..4)
            .map(|_| {
                let mut stream = connect(sidecar.mcp);
                call().write(&mut stream);
                stream
            })
            .collect();
        eventually(&format!("there is room for two, at {at}"), || {
            let are_there = begun.load(Ordering::SeqCst) == 4;
            (are_there && sidecar.metric("longshore_calls") == 2.0).then_some(())
        });
        sidecar.audit(|line| line["reason"] == "answer not held" && line["decision"] == "permit");
        gate.open();
        let replies: Vec<_> =
            calls.into_iter().map(|stream| Reply::read(&mut BufReader::new(stream)).unwrap()).collect();
        let whole = replies.iter().filter(|reply| reply.body.len() > LARGE).count();
        let refused = replies.iter().filter(|reply| reply.body.len() < LARGE);
        let codes: Vec<_> = refused.map(|reply| reply.message()["error"]["code"].clone()).collect();
        assert_eq!((whole, codes), (2, vec![json!(-32603); 2]), "at {at}");
        eventually("there is room again", || call().send(sidecar.mcp).message().get("result").map(drop));
    }
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
    let ask = || {
        let mut stream = connect(sidecar.mcp);
        SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
        call().write(&mut stream);
        let mut answer = BufReader::new(stream);
        assert_eq!(Reply::read_head(&mut answer).unwrap().0, 200);
        answer
    };
    let unread = [ask(), ask()];
    eventually("there is no room for a third", || call().send(sidecar.mcp).message().get("error").map(drop));
    sidecar.audit(|line| line["reason"] == "answer not held" && line["decision"] == "permit");
    drop(unread);
    eventually("they have gone", || call().send(sidecar.mcp).message().get("result").map(drop));
}
