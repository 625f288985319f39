//! How many streams a session may have, and how much all of them may hold.

use serde_json::json;

use super::{answer, argument, event, note};
use crate::harness::{Client, Events, Files, Gate, Scripted, Sidecar, config, eventually, scripted};

/// A server that answers with JSON when the gate is open.
fn server(gate: &Gate) -> Scripted {
    let gate = gate.clone();
    Scripted::listening(move |request, stream| {
        if request.method == "GET" {
            scripted::begin_events(stream);
            // Until the other side closes.
            let _ = std::io::Read::read(stream, &mut [0]);
            return;
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
        (reply.status == 200).then_some(())
    });
}

#[test]
fn an_answer_that_needs_no_stream_comes_without_one() {
    let gate = Gate::default();
    let server = server(&gate);
    let mut config = config(server.port);
    config.sessions.streams = 1;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    // All three begin at once, when there is no stream yet; one gets it.
    let arguments = json!({"json": true});
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3)
            .map(|_| {
                client.request(client.message("tools/call", &json!({"name": "t", "arguments": arguments})))
            })
            .map(|request| scope.spawn(move || request.send(sidecar.mcp)))
            .collect();
        eventually("all three have come", || (server.seen("tools/call").len() == 3).then_some(()));
        eventually("one has begun", || (sidecar.metric("longshore_streams") == 1.0).then_some(()));
        gate.open();
        let replies: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        let events = replies.iter().filter(|reply| reply.header("content-type") == Some("text/event-stream"));
        assert_eq!(events.count(), 1);
        assert!(replies.iter().all(|reply| reply.message()["result"].is_object()));
    });
}

#[test]
fn all_streams_together_hold_only_so_much() {
    let server = Scripted::start(|request, stream| {
        let text = "x".repeat(100_000);
        let large = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}});
        scripted::events(stream, &[&event(&large.to_string()), &event(&answer(request))]);
    });
    let files = Files::new();
    files.write(&config(server.port));
    let sidecar = Sidecar::with(files, &["--max-stream-bytes", "1000000"]).loaded();
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
    eventually("there is not too much", || {
        (sidecar.metric("longshore_stream_bytes") <= 1_000_000.0).then_some(())
    });
    assert!(sidecar.metric("longshore_streams_given_up_total") >= 20.0);
    // The oldest were given up, and the newest are whole.
    let (oldest, newest) = (clients.first().unwrap(), clients.last().unwrap());
    assert_eq!(oldest.rest(&first[0].id).send(sidecar.mcp).status, 400);
    assert_eq!(Events::open(&newest.rest(&first[29].id), sidecar.mcp).all().len(), 2);
}
