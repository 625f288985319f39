//! How many streams a session may have, and how much all of them may hold.

use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;

use super::{answer, argument, event, is_told_of_loss, note};
use crate::harness::config::callers;
use crate::harness::{Client, Events, Files, Gate, Request, Scripted, Sidecar, config, eventually, scripted};

/// A server that answers with JSON when the gate is open.
fn server(gate: &Gate) -> Scripted {
    let gate = gate.clone();
    Scripted::listening(move |request, stream| {
        if request.method == "GET" {
            return scripted::stays_open(stream);
        }
        if argument(request, "json") == json!(true) {
            gate.pass();
            scripted::json(stream, &answer(request));
            return;
        }
        scripted::begin_events(stream);
        scripted::chunk(stream, &event(&note(1)));
        scripted::chunk(stream, &event(&answer(request)));
        scripted::write(stream, "0\r\n\r\n");
    })
}

#[test]
fn a_session_has_only_so_many_streams() {
    let gate = Gate::default();
    let server = server(&gate);
    let mut config = config(server.port);
    config.sessions.streams = 2;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    let own = Events::open(&client.get(), sidecar.mcp);
    // This one begins before it is known whether it needs a stream.
    let mut slow = client.stream("t", json!({"json": true}));
    assert_eq!(slow.any().unwrap().data, "");
    let calls = server.seen("tools/call").len();
    let refused = client.send("tools/call", json!({"name": "t", "arguments": {}}));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let words = refused.message()["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("as many streams open as it may (2)"), "{words}");
    assert_eq!(server.seen("tools/call").len(), calls, "the server has not heard of it");
    sidecar.audit(|line| line["reason"] == "too many streams" && line["status"] == 503);
    // Those who are in the middle of something can go on with it.
    let mut taken_over = Events::open(&client.rest(&slow.last), sidecar.mcp);
    assert_eq!(taken_over.status, 200);
    // Other sessions have streams of their own.
    let other = Client::open(&sidecar, None);
    assert_eq!(other.stream("t", json!({})).all().len(), 2);
    gate.open();
    assert!(taken_over.next().is_some(), "the answer");
    drop(own);
    eventually("there is room again", || {
        let reply = client.send("tools/call", json!({"name": "t", "arguments": {}}));
        reply.status == 200
    });
}

/// Nothing is refused once the server has heard of it.
#[test]
fn calls_that_began_together_get_the_streams_that_they_need() {
    let gate = Gate::default();
    let server = server(&gate);
    let mut config = config(server.port);
    config.sessions.streams = 1;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    // All three begin at once, when there is no stream yet.
    let arguments = json!({"json": true});
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3)
            .map(|_| {
                client.request(client.message("tools/call", &json!({"name": "t", "arguments": arguments})))
            })
            .map(|request| scope.spawn(move || request.send(sidecar.mcp)))
            .collect();
        eventually("all three have come", || server.seen("tools/call").len() == 3);
        eventually("all have begun", || sidecar.metric("longshore_streams") == 3.0);
        let surplus = client.send("tools/call", json!({"name": "t", "arguments": arguments}));
        assert_eq!((surplus.status, server.seen("tools/call").len()), (503, 3));
        gate.open();
        let replies: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        assert!(replies.iter().all(|reply| reply.message()["result"].is_object()));
    });
    assert!(server.seen("notifications/cancelled").is_empty());
}

#[test]
fn all_streams_together_hold_only_so_much() {
    let server = Scripted::start(|request, stream| {
        let text = "x".repeat(100_000);
        let large = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}});
        scripted::events(stream, &[&event(&large.to_string()), &event(&answer(request))]);
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-stream-bytes", "1000000"]);
    let clients: Vec<_> = (0..30).map(|_| Client::open(&sidecar, None)).collect();
    let first: Vec<_> = clients
        .iter()
        .map(|client| {
            let mut stream = client.stream("t", json!({}));
            let first = stream.any().unwrap();
            assert_eq!(stream.all().len(), 2);
            first
        })
        .collect();
    eventually("there is not too much", || sidecar.metric("longshore_stream_bytes") <= 1_000_000.0);
    assert!(sidecar.metric("longshore_streams_given_up_total") >= 20.0);
    // The oldest were given up, and the newest are whole.
    let (oldest, newest) = (clients.first().unwrap(), clients.last().unwrap());
    is_told_of_loss(oldest, &first[0].id);
    assert_eq!(Events::open(&newest.rest(&first[29].id), sidecar.mcp).all().len(), 2);
}

/// Answers a call by a note of so many bytes, and the answer.
fn say_much(request: &Request, stream: &mut TcpStream) {
    let size = usize::try_from(argument(request, "bytes").as_u64().unwrap()).unwrap();
    let data = "x".repeat(size);
    let large = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": data}});
    scripted::events(stream, &[&event(&large.to_string()), &event(&answer(request))]);
}

#[test]
fn what_is_kept_of_one_principal_does_not_push_out_another() {
    let server = Scripted::start(say_much);
    let files = Files::new();
    files.write_with_keys(&config(server.port), &callers());
    let sidecar = Sidecar::with(files, &["--max-stream-bytes", "1000000"]).loaded();
    let alice = Client::open(&sidecar, Some("key-a"));
    let mut first = alice.stream("t", json!({"bytes": 100_000}));
    let first_id = first.any().unwrap().id;
    assert_eq!(first.all().len(), 2);
    // All that comes after it is somebody else's.
    for _ in 0..4 {
        let bob = Client::open(&sidecar, Some("key-b"));
        for _ in 0..10 {
            assert_eq!(bob.stream("t", json!({"bytes": 100_000})).all().len(), 2);
        }
    }
    eventually("there is not too much", || sidecar.metric("longshore_stream_bytes") <= 1_000_000.0);
    assert!(sidecar.metric("longshore_streams_given_up_total") >= 20.0);
    assert_eq!(Events::open(&alice.rest(&first_id), sidecar.mcp).all().len(), 2);
}

/// Room is made by what nobody is reading, as long as there is any.
#[test]
fn who_reads_an_answer_reads_it_to_its_end() {
    const NOTE: usize = 8 << 10;
    const LARGE: usize = 300_000;
    let (tell, told) = channel::<bool>();
    let told = Mutex::new(told);
    let server = Scripted::start(move |request, stream| {
        if argument(request, "bytes").is_u64() {
            return say_much(request, stream);
        }
        scripted::begin_events(stream);
        let data = "x".repeat(NOTE);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": data}});
        while told.lock().unwrap().recv().unwrap() {
            scripted::chunk(stream, &event(&note.to_string()));
        }
        let content = json!({"content": [{"type": "text", "text": "x".repeat(LARGE)}]});
        scripted::chunk(stream, &event(&scripted::reply_to(request, &content)));
        scripted::write(stream, "0\r\n\r\n");
    });
    let mut config = config(server.port);
    config.sessions.resume.max_bytes = 20_000;
    config.limits.request_timeout_ms = 60_000;
    let sidecar = Sidecar::flagged(&config, &["--max-stream-bytes", "500000"]);
    let client = Client::open(&sidecar, None);
    tell.send(true).unwrap();
    let mut stream = client.stream("t", json!({}));
    let mut notes = 1;
    // Until some of it waits for its client, which reads nothing.
    while sidecar.metric("longshore_stream_bytes") < 45_000.0 {
        assert!(notes < 5_000, "it is read all the time");
        tell.send(true).unwrap();
        notes += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    tell.send(false).unwrap();
    eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
    let others = Client::open(&sidecar, None);
    for _ in 0..30 {
        assert_eq!(others.stream("t", json!({"bytes": 15_000})).all().len(), 2);
    }
    eventually("there is not too much", || sidecar.metric("longshore_stream_bytes") <= 500_000.0);
    assert!(sidecar.metric("longshore_streams_given_up_total") >= 5.0);
    for _ in 0..notes {
        assert!(stream.next().unwrap().data.len() > NOTE);
    }
    assert!(stream.next().unwrap().data.len() > LARGE);
}

/// A client that does not read has its stream here until its connection is given up, a minute later.
#[test]
fn a_stream_is_given_up_once_though_its_client_goes_on_to_have_it() {
    // More than the machine takes for a client, and than is kept of a stream that was read.
    const LARGE: usize = 4_000_000;
    const LIMIT: usize = 5_000_000;
    const EACH: usize = 500_000;
    const OTHERS: usize = 2 * LIMIT / EACH;
    let server = Scripted::start(|request, stream| {
        if argument(request, "bytes").is_u64() {
            return say_much(request, stream);
        }
        let content = json!({"content": [{"type": "text", "text": "x".repeat(LARGE)}]});
        scripted::events(stream, &[&event(&note(1)), &event(&scripted::reply_to(request, &content))]);
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-stream-bytes", &LIMIT.to_string()]);
    let slow = Client::open(&sidecar, None);
    let _unread = slow.stream("t", json!({}));
    eventually("its answer is on its way", || {
        sidecar.metric("longshore_calls") == 0.0 && sidecar.metric("longshore_stream_bytes") < EACH as f64
    });
    let others = Client::open(&sidecar, None);
    for _ in 0..OTHERS {
        assert_eq!(others.stream("t", json!({"bytes": EACH})).all().len(), 2);
        eventually("there is not too much", || sidecar.metric("longshore_stream_bytes") <= LIMIT as f64);
    }
    let given_up = sidecar.metric("longshore_streams_given_up_total");
    let may_be = 1 + OTHERS - LIMIT / EACH + 2;
    assert!(given_up > 2.0 && given_up <= may_be as f64, "{given_up} of {may_be}");
}
