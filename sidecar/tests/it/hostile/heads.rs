//! Requests with large heads, of which something goes on when their clients have gone.

use std::io::Write;
use std::net::TcpStream;

use serde_json::json;

use super::waiting;
use crate::harness::http::connect;
use crate::harness::{Client, Files, Gate, Reply, Request, Scripted, Sidecar, config, eventually, scripted};

/// How many, and how large.
const MANY: usize = 200;
const LARGE: usize = 60_000;

/// A request with a head of which nobody needs more than a few lines: so much is no part of a trace either.
fn large(request: Request) -> Request {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.header("baggage", &"x".repeat(LARGE)).header("traceparent", trace)
}

fn send(sidecar: &Sidecar, request: Request) -> TcpStream {
    let mut stream = connect(sidecar.mcp);
    large(request).write(&mut stream);
    stream
}

#[test]
fn streams_keep_no_heads_of_those_who_opened_them() {
    let server = Scripted::listening(|_, stream| scripted::stays_open(stream));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let clients: Vec<_> = (0..MANY).map(|_| Client::open(&sidecar, None)).collect();
    let before = sidecar.memory();
    for client in &clients {
        let mut stream = std::io::BufReader::new(send(&sidecar, client.get()));
        assert_eq!(Reply::read_head(&mut stream).unwrap().0, 200);
    }
    eventually("all have gone", || sidecar.metric("longshore_connections") <= 1.0);
    let more = sidecar.memory().saturating_sub(before);
    assert!(more < (MANY * LARGE) as u64, "{more} bytes more than the {before} before");
}

/// Calls whose clients go away when all of them are under way keep less than the large heads are.
#[test]
fn calls_keep_no_heads_of_clients_that_have_gone() {
    let gate = Gate::default();
    let (server, sidecar) = waiting(&gate);
    // A session has few streams, and a call that takes a while is one.
    let clients: Vec<_> = (0..MANY).map(|_| Client::open(&sidecar, None)).collect();
    let before = sidecar.memory();
    let mut calls = Vec::new();
    for client in &clients {
        calls.push(send(&sidecar, client.request(client.message("tools/call", &json!({"name": "t"})))));
        // One after the other: what is not read yet has a bound.
        eventually("it is under way", || server.seen("tools/call").len() == calls.len());
    }
    drop(calls);
    eventually("all have gone", || sidecar.metric("longshore_connections") <= 1.0);
    // The allocator gives back what is free as it is asked for more.
    let more = || {
        assert_eq!(clients[0].send("ping", json!({})).status, 200);
        sidecar.memory().saturating_sub(before)
    };
    eventually("nothing large is kept", || more() < (MANY * LARGE) as u64);
    assert_eq!(sidecar.metric("longshore_calls") as usize, MANY, "they go on");
    gate.open();
}

/// hyper reads on into the memory that it was in.
#[test]
fn a_large_head_is_the_last_of_its_connection() {
    let server = Scripted::start(|request, stream| scripted::reply(stream, request, &json!({"content": []})));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let ask = || client.request(client.message("ping", &json!({})));
    for (request, last) in [(ask(), None), (large(ask()), Some("close"))] {
        let reply = request.send(sidecar.mcp);
        assert_eq!((reply.status, reply.header("connection")), (200, last));
    }
}

/// Neither where it rests, nor for a head that has begun in the same piece as the end of a request.
#[test]
fn a_connection_keeps_little_of_what_it_has_brought() {
    const BODY: usize = 200_000;
    // A quarter of it rests, what was read at once, and is not gathered yet, comes to it.
    const RESTS: u64 = 44 << 10;
    let server = Scripted::start(|request, stream| scripted::reply(stream, request, &json!({"content": []})));
    let files = Files::new();
    files.write(&config(server.port));
    let cgroups = files.container(256 << 20);
    let sidecar =
        Sidecar::with(files, &["--cgroups-dir", &cgroups, "--max-connections", "400"]).loaded().ready();
    let client = Client::open(&sidecar, None);
    let call = |size: usize| {
        let params = json!({"name": "t", "arguments": {"text": "x".repeat(size)}});
        client.request(client.message("tools/call", &params))
    };
    call(BODY).send(sidecar.mcp);
    let before = sidecar.memory();
    let is_little = |beside: u64| {
        let more = sidecar.memory().saturating_sub(before + beside);
        (more < RESTS * MANY as u64).then_some(()).ok_or(more)
    };
    let mut kept: Vec<TcpStream> = (0..MANY).map(|_| connect(sidecar.mcp)).collect();
    for stream in &mut kept {
        for _ in 0..3 {
            call(BODY).write(stream);
            let mut answers = std::io::BufReader::new(stream.try_clone().unwrap());
            assert_eq!(Reply::read(&mut answers).unwrap().status, 200);
        }
    }
    assert_eq!(is_little(0), Ok(()), "at rest");
    let mut both = client.request(client.message("ping", &json!({}))).bytes();
    both.extend(format!("GET /mcp HTTP/1.1\r\nx: {}", "y".repeat(LARGE)).bytes());
    for stream in &mut kept {
        // It may be closed while it writes: what is read of heads from there on has a bound, of 2 MiB.
        let _ = stream.write_all(&both);
    }
    eventually("little is held where another head has begun", || {
        (0..20).for_each(|_| drop(client.send("ping", json!({}))));
        is_little(2 << 20).ok()
    });
}
