//! Requests with large heads, of which something goes on when their clients have gone.

use std::io::Write;
use std::net::TcpStream;

use serde_json::json;

use crate::harness::http::connect;
use crate::harness::{Client, Gate, Reply, Request, Scripted, Sidecar, config, eventually, scripted};

/// How many, and how large.
const MANY: usize = 200;
const LARGE: usize = 60_000;

/// A request with a head of which nobody needs more than a few lines.
fn large(request: Request) -> Request {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.header("x-large", &"x".repeat(LARGE)).header("traceparent", trace)
}

fn send(sidecar: &Sidecar, request: Request) -> TcpStream {
    let mut stream = connect(sidecar.mcp);
    large(request).write(&mut stream);
    stream
}

#[test]
fn streams_keep_no_heads_of_those_who_opened_them() {
    let server = Scripted::listening(|_, stream| {
        scripted::begin_events(stream);
        // Until the other side closes.
        let _ = std::io::Read::read(stream, &mut [0]);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let clients: Vec<_> = (0..MANY).map(|_| Client::open(&sidecar, None)).collect();
    let before = sidecar.memory();
    for client in &clients {
        let mut stream = std::io::BufReader::new(send(&sidecar, client.get()));
        assert_eq!(Reply::read_head(&mut stream).unwrap().0, 200);
    }
    eventually("all have gone", || (sidecar.metric("longshore_connections") <= 1.0).then_some(()));
    let more = sidecar.memory().saturating_sub(before);
    assert!(more < (MANY * LARGE) as u64, "{more} bytes more than the {before} before");
}

/// A server whose calls wait for the gate, and a sidecar that waits for it.
fn waiting(gate: &Gate) -> (Scripted, Sidecar) {
    let waits = gate.clone();
    let server = Scripted::start(move |request, stream| {
        waits.pass();
        scripted::json(stream, &scripted::reply_to(request, &json!({"content": []})));
    });
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 300_000;
    let sidecar = Sidecar::start(&config).ready();
    (server, sidecar)
}

/// Calls whose clients go away when all of them are under way. They keep less than the large heads are.
fn go_on_without_clients(call: impl Fn(&Sidecar, &Client<'_>) -> TcpStream) {
    let gate = Gate::default();
    let (server, sidecar) = waiting(&gate);
    // A session has few streams, and a call that takes a while is one.
    let clients: Vec<_> = (0..MANY).map(|_| Client::open(&sidecar, None)).collect();
    let before = sidecar.memory();
    let mut calls = Vec::new();
    for client in &clients {
        calls.push(call(&sidecar, client));
        // One after the other: what is not read yet has a bound.
        eventually("it is under way", || (server.seen("tools/call").len() == calls.len()).then_some(()));
    }
    drop(calls);
    eventually("all have gone", || (sidecar.metric("longshore_connections") <= 1.0).then_some(()));
    // The allocator gives back what is free, but not at once.
    let more = || sidecar.memory().saturating_sub(before);
    eventually("nothing large is kept", || (more() < (MANY * LARGE) as u64).then_some(()));
    assert_eq!(sidecar.metric("longshore_calls") as usize, MANY, "they go on");
    gate.open();
}

#[test]
fn calls_keep_no_heads_of_clients_that_have_gone() {
    go_on_without_clients(|sidecar, client| {
        send(sidecar, client.request(client.message("tools/call", &json!({"name": "t"}))))
    });
}

/// What has come behind a large head is in the same memory.
#[test]
fn calls_keep_no_heads_of_requests_before() {
    go_on_without_clients(|sidecar, client| {
        let mut both = large(client.request(client.message("ping", &json!({})))).bytes();
        both.extend(client.request(client.message("tools/call", &json!({"name": "t"}))).bytes());
        let mut stream = connect(sidecar.mcp);
        stream.write_all(&both).unwrap();
        stream
    });
}
