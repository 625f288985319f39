//! What waits in the kernel since nobody reads it, which is the container's memory as well. Of whoever was read fast before, it
//! would take megabytes.

use std::io::{BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;

use crate::harness::http::connect;
use crate::harness::{Client, Gate, Reply, Scripted, Sidecar, config, eventually, scripted};

/// How large the messages are that are read fast before.
const LARGE: usize = 3_000_000;
/// What is taken at most then: by the kernel, by the program, and by the kernel of whoever writes.
const LITTLE: usize = 1 << 20;
/// What whoever writes, or reads nothing, has its own kernel take, about.
const OWN: usize = 16 << 10;

/// How much of this is taken until nothing is any more.
fn taken(stream: &mut TcpStream, of: &[u8]) -> usize {
    SockRef::from(&*stream).set_send_buffer_size(OWN).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut taken = 0;
    while taken < of.len() {
        match stream.write(&of[taken..]) {
            Ok(bytes) => taken += bytes,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                break;
            }
        }
    }
    taken
}

#[test]
fn little_is_taken_of_what_a_client_sends_behind_its_call() {
    let gate = Gate::default();
    let waits = gate.clone();
    let server = Scripted::start(move |request, stream| {
        if scripted::message(request)["params"]["arguments"]["waits"] == json!(true) {
            waits.pass();
        }
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let call = |arguments: Value| {
        client.request(client.message("tools/call", &json!({"name": "t", "arguments": arguments})))
    };
    let large = || call(json!({"text": "x".repeat(LARGE)}));
    let mut stream = connect(sidecar.mcp);
    for _ in 0..3 {
        large().write(&mut stream);
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        assert_eq!(Reply::read(&mut answers).unwrap().status, 200);
    }
    call(json!({"waits": true})).write(&mut stream);
    eventually("it is under way", || server.seen("tools/call").len() == 4);
    let taken = taken(&mut stream, &large().bytes());
    assert!((1..LITTLE).contains(&taken), "{taken} bytes");
    gate.open();
}

#[test]
fn little_is_taken_of_an_answer_that_its_client_does_not_read() {
    let (says, said) = mpsc::channel();
    let params = json!({"level": "info", "data": "x".repeat(15_000)});
    let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
    let event = format!("data: {message}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let flood = chunk.repeat(4 * LITTLE / chunk.len()).into_bytes();
    let server = Scripted::start(move |request, stream| {
        let message = scripted::message(request);
        if message["params"]["arguments"]["floods"] == json!(true) {
            scripted::begin_events(stream);
            let _ = says.send(taken(stream, &flood));
            return;
        }
        let text = if message["method"] == "tools/call" { "x".repeat(LARGE) } else { String::new() };
        scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": text}]}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    for _ in 0..3 {
        client.call("t", json!({}));
    }
    let mut stream = connect(sidecar.mcp);
    SockRef::from(&stream).set_recv_buffer_size(OWN).unwrap();
    let params = json!({"name": "t", "arguments": {"floods": true}});
    client.request(client.message("tools/call", &params)).write(&mut stream);
    let taken = said.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!((1..LITTLE).contains(&taken), "{taken} bytes");
}
