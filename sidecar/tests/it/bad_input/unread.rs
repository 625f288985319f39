//! Requests that are refused before their bodies are read. Clients that read nothing before they have sent everything hear
//! why all the same.

use std::io::{BufReader, Read, Write};
use std::net::Shutdown;

use serde_json::{Value, json};

use super::KEY;
use crate::harness::config::keys;
use crate::harness::http::{Reply, Request, connect};
use crate::harness::{Client, Files, GoServer, Sidecar, config, eventually, modern};
use crate::modern_as_legacy::echoing;

/// The largest body that is permitted.
const LIMIT: usize = 1 << 20;
/// How often each is sent: whether an answer is lost depends on who is quicker.
const TIMES: usize = 20;

fn sidecar(port: u16) -> Sidecar {
    let mut config = config(port);
    config.limits.request_bytes = LIMIT as u64;
    Sidecar::keyed(&config, &keys(&[("alice", KEY)])).ready()
}

/// A sidecar with less memory than its configuration permits, and the most that a principal may hold there.
fn in_little_memory(port: u16) -> (Sidecar, usize) {
    let files = Files::new();
    files.write_with_keys(&config(port), &keys(&[("alice", KEY)]));
    let cgroups = files.container(36 << 20);
    let sidecar = Sidecar::with(files, &["--cgroups-dir", &cgroups]).loaded().ready();
    let largest = sidecar.log(|line| line["message"].as_str().is_some_and(|it| it.contains("requestBytes")));
    assert_eq!(largest["permitted"], 4 << 20);
    (sidecar, usize::try_from(largest["largest"].as_u64().unwrap()).unwrap())
}

fn call(size: usize) -> Value {
    json!({"name": "echo", "arguments": {"text": "x", "more": "x".repeat(size)}})
}

/// Such a request would never find room, however often its client tried again.
#[test]
fn what_there_is_no_memory_for_is_too_large_whatever_is_permitted() {
    let is_too_large = |refused: Reply, limit: usize| {
        assert_eq!(refused.status, 413, "{}", refused.text());
        assert!(refused.text().contains(&limit.to_string()), "{}", refused.text());
    };
    let server = GoServer::start(&[]);
    let (sidecar, largest) = in_little_memory(server.port);
    let client = Client::open(&sidecar, Some(KEY));
    assert_ne!(client.send("tools/call", call(largest - 1_000)).status, 413);
    is_too_large(client.send("tools/call", call(largest)), largest);
    // Between the eras it is held in the words of either.
    let modern = |size| modern::request(1, "tools/call", call(size)).key(KEY).send(sidecar.mcp);
    assert_ne!(modern(largest / 2 - 1_000).status, 413);
    is_too_large(modern(largest / 2), largest / 2);
    let newer = echoing();
    let (sidecar, largest) = in_little_memory(newer.port);
    let client = Client::open(&sidecar, Some(KEY));
    assert_ne!(client.send("tools/call", call(largest / 2 - 1_000)).status, 413);
    is_too_large(client.send("tools/call", call(largest / 2)), largest / 2);
}

#[test]
fn what_is_refused_unread_is_told_so_each_time() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let post = |size: usize| Request::post(vec![b' '; size]).key(KEY);
    let chunked = {
        let mut bytes = post(0).head().into_bytes();
        bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
        for _ in 0..32 {
            bytes.extend_from_slice(format!("10000\r\n{}\r\n", " ".repeat(0x10000)).as_bytes());
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    };
    let nowhere = {
        let mut request = post(LIMIT);
        request.path = "/nowhere".to_owned();
        request
    };
    let nothing = "?".repeat(2 * LIMIT).into_bytes();
    let head = format!("POST /mcp HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(2 * LIMIT)).into_bytes();
    for (name, bytes, status) in [
        ("a large body", post(2 * LIMIT).bytes(), 413),
        ("a large body of unknown length", chunked, 413),
        ("a wrong key", post(LIMIT).with("authorization", "Bearer nope").bytes(), 401),
        ("a foreign host", post(LIMIT).with("host", "evil.example").bytes(), 403),
        ("another path", nowhere.bytes(), 404),
        ("another method", post(LIMIT).with_method("PUT").bytes(), 405),
        ("half of Accept", post(LIMIT).with("accept", "application/json").bytes(), 406),
        ("a wrong type", post(LIMIT).with("content-type", "text/plain").bytes(), 415),
        ("a large head", head, 431),
        ("no HTTP", nothing, 400),
    ] {
        for _ in 0..TIMES {
            let mut stream = connect(sidecar.mcp);
            // Enough to be refused, and the rest when it is.
            let (start, rest) = bytes.split_at(bytes.len() / 2 + (128 << 10));
            stream.write_all(start).unwrap_or_else(|error| panic!("{name}: {error}"));
            stream.peek(&mut [0]).unwrap_or_else(|error| panic!("{name}: {error}"));
            stream.write_all(rest).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut reader = BufReader::new(stream);
            let reply = Reply::read(&mut reader).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(reply.status, status, "{name}");
            assert_eq!(reply.header("connection"), Some("close"), "{name}");
            // What nobody could read is told by its status alone.
            assert_eq!(reply.body.is_empty(), matches!(status, 400 | 431), "{name}");
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{name}: and nothing else");
        }
    }
    eventually("nobody is connected", || sidecar.metric("longshore_connections") == 0.0);
    eventually("the others are audited", || sidecar.audit_lines() == 8 * TIMES);
    assert!(!sidecar.is_audited(|line| line["status"] == 431 || line["status"] == 400));
}

/// It holds a place meanwhile, as any connection does.
#[test]
fn whoever_sends_on_after_a_refusal_is_listened_to_for_a_while() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let mut stream = connect(sidecar.mcp);
    let head = Request::post("").key("nope").head();
    write!(stream, "{head}content-length: {LIMIT}\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    assert_eq!(Reply::read(&mut reader).unwrap().status, 401);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nothing else comes");
    stream.write_all(&[b' '; 1000]).unwrap();
    assert_eq!(sidecar.metric("longshore_connections"), 1.0);
    // Nothing more, and no end either.
    eventually("it is given up", || sidecar.metric("longshore_connections") == 0.0);

    let mut stream = connect(sidecar.mcp);
    write!(stream, "{head}content-length: {LIMIT}\r\nexpect: 100-continue\r\n\r\n").unwrap();
    let reply = Reply::on(&stream);
    assert_eq!((reply.status, reply.header("connection")), (401, Some("close")), "it is not told to go on");
    stream.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn a_connection_goes_on_after_a_small_message_that_was_refused() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port);
    let alice = Client::open(&sidecar, Some(KEY));
    let ping = || alice.request(alice.message("ping", &json!({})));
    let mut stream = connect(sidecar.mcp);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for (body, whole) in [(1000, true), (1000, false), (60_000, true)] {
        let refused = Request::post(vec![b' '; body]).key("nope").bytes();
        let (start, rest) = refused.split_at(if whole { refused.len() } else { refused.len() - 500 });
        stream.write_all(start).unwrap();
        // As it is when it comes in two packets.
        std::thread::yield_now();
        stream.write_all(rest).unwrap();
        let reply = Reply::read(&mut reader).unwrap();
        assert_eq!((reply.status, reply.header("connection")), (401, None), "{body}");
        ping().write(&mut stream);
        assert_eq!(Reply::read(&mut reader).unwrap().status, 200, "{body}");
    }
}
