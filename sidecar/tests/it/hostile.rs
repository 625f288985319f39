//! Clients that take their time with what they send, and with what they are sent by way of another replica: what all of
//! them together may cost.

mod crowds;
mod events;
mod halves;
mod heads;
mod kernel;
mod readers;
mod strangers;

use std::io::{BufReader, Write};
use std::net::TcpStream;

use serde_json::json;
use socket2::SockRef;

use crate::harness::config::rule;
use crate::harness::http::{self, connect};
use crate::harness::replicas::Network;
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{Client, Events, Files, Gate, Reply, Scripted, Sidecar, config, eventually, scripted};

/// How large the messages are that are sent slowly.
const LARGE: usize = 400_000;

/// A server whose calls wait for the gate, and a sidecar that waits for it.
fn waiting(gate: &Gate) -> (Scripted, Sidecar) {
    let waits = gate.clone();
    let server = Scripted::start(move |request, stream| {
        waits.pass();
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 300_000;
    let sidecar = Sidecar::start(&config).ready();
    (server, sidecar)
}

#[test]
fn what_is_sent_slowly_is_held_within_a_bound() {
    let server = Scripted::start(|request, stream| {
        let answer = scripted::reply_to(request, &json!({"content": [{"type": "text", "text": "done"}]}));
        scripted::json(stream, &answer);
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-held-bytes", "1000000"]);
    let client = Client::open(&sidecar, None);
    let message = |size: usize| {
        let text = "x".repeat(size);
        client.message("tools/call", &json!({"name": "t", "arguments": {"text": text}}))
    };
    // All of a message but for its end.
    let begin = || -> (TcpStream, String) {
        let body = message(LARGE);
        let (start, end) = body.split_at(LARGE);
        let mut stream = connect(sidecar.mcp);
        let head = client.request("").head();
        write!(stream, "{head}content-length: {}\r\n\r\n{start}", body.len()).unwrap();
        (stream, end.to_owned())
    };
    let (mut first, mut second) = (begin(), begin());
    let refused = eventually("there is no room for a third", || {
        let reply = client.request(message(LARGE)).send(sidecar.mcp);
        let is_refused = reply.status == 503;
        if !is_refused {
            // If one of them had not all come yet, there was no room for that.
            (first, second) = (begin(), begin());
        }
        is_refused.then_some(reply)
    });
    assert!(
        refused.message()["error"]["message"].as_str().unwrap().contains("as many bytes"),
        "{}",
        refused.text()
    );
    assert_eq!(sidecar.audit(|line| line["status"] == 503)["reason"], "too many bytes held");
    // What comes in one piece needs none, and what was begun goes on.
    client.call("t", json!({}));
    let (mut first, end) = first;
    first.write_all(end.as_bytes()).unwrap();
    assert_eq!(Reply::on(first).status, 200);
    client.call("t", json!({"text": "x".repeat(LARGE)}));
    drop(second);
    let (both, others) = (begin(), begin());
    drop((both, others));
    eventually("they have gone", || client.request(message(2 * LARGE)).send(sidecar.mcp).status == 200);
}

/// Also of what is written anew, or was one of several, and after the response has begun.
#[test]
fn what_is_under_way_is_held_within_a_bound() {
    for (revision, speaks, params, is_batch) in [
        ("2025-03-26", "2025-03-26", json!({}), true),
        ("2025-11-25", "2025-06-18", json!({"task": {}}), false),
    ] {
        let gate = Gate::default();
        let opened = gate.clone();
        let server = Scripted::of(speaks, move |request, stream| {
            gate.pass();
            scripted::reply(stream, request, &json!({"content": []}));
        });
        let sidecar = Sidecar::flagged(&config(server.port), &["--max-held-bytes", "1000000"]).ready();
        let client = Client::of(&sidecar, None, revision);
        let call = || {
            let mut params = params.clone();
            (params["name"], params["arguments"]) = (json!("t"), json!({"text": "x".repeat(LARGE)}));
            let message = client.message("tools/call", &params);
            client.request(if is_batch { format!("[{message}]") } else { message })
        };
        let under_way = [(); 2].map(|()| Events::open(&call(), sidecar.mcp));
        assert_eq!(call().send(sidecar.mcp).status, 503, "{revision}");
        opened.open();
        for events in under_way {
            assert_eq!((events.status, events.all().is_empty()), (200, false), "{revision}");
        }
        eventually("there is room again", || call().send(sidecar.mcp).status == 200);
    }
}

/// However many calls are under way that could be meant.
#[test]
fn cancellations_of_what_was_never_called_leave_nothing_behind() {
    const MANY: usize = 20;
    const LONG: usize = 400 << 10;
    let gate = Gate::default();
    let (server, sidecar) = waiting(&gate);
    let client = Client::open(&sidecar, None);
    let calls = [(); MANY].map(|()| client.begin(&json!({"name": "t"})));
    eventually("the server has them", || server.seen("tools/call").len() == MANY);
    let cancel = |id: String| assert_eq!(client.cancel(id).status, 202);
    cancel("x".repeat(LONG));
    let before = sidecar.memory();
    (0..MANY).for_each(|number| cancel(number.to_string() + &"x".repeat(LONG)));
    let more = sidecar.memory().saturating_sub(before);
    assert!(more < 4 << 20, "{more} bytes");
    gate.open();
    for call in calls {
        assert!(Reply::on(call).message()["result"].is_object());
    }
}

/// What has to be whole before it can be given: a list of which entries are taken out, and what a process has said.
#[test]
fn answers_that_nobody_reads_are_held_within_a_bound() {
    let flags = ["--max-held-bytes", "1000000"];
    let http = Scripted::listing(LARGE);
    let over_http = Sidecar::flagged(&config(http.port), &flags);
    let (_shim, over_stdio) = serving(&stdio(), &shim::server(&[]), &flags);
    let large = json!({"name": "echo", "arguments": {"text": "x", "times": LARGE}});
    for (sidecar, method, params) in
        [(&over_http, "tools/list", json!({})), (&over_stdio, "tools/call", large)]
    {
        let client = Client::open(sidecar, None);
        let ask = || {
            let mut stream = connect(sidecar.mcp);
            SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
            client.request(client.message(method, &params)).write(&mut stream);
            let mut answer = BufReader::new(stream);
            let (status, _) = Reply::read_head(&mut answer).unwrap();
            (status, answer)
        };
        let unread = [ask(), ask()];
        assert_eq!(unread.each_ref().map(|(status, _)| *status), [200; 2], "{method}");
        let refused = client.send(method, params.clone());
        // It is no request to try again: what was asked for is done.
        assert_eq!((refused.status, &refused.message()["error"]["code"]), (200, &json!(-32603)), "{method}");
        sidecar.audit(|line| line["reason"] == "answer not held" && line["decision"] == "permit");
        // Small ones need no room, and there is some when nobody is there any more who does not read.
        client.ask("tools/call", json!({"name": "echo", "arguments": {"text": "x"}}));
        drop(unread);
        eventually("they have gone", || client.ask(method, params.clone()).get("result").map(drop));
    }
}

/// What is on its way there comes to what is held.
#[test]
fn answers_that_nobody_reads_cost_little_beside_what_is_held() {
    const MANY: usize = 200;
    // What there is for a connection, and twice what is read of a server at once.
    const EACH: u64 = (44 + 2 * 16 + 8) << 10;
    let text = "x".repeat(4_000_000);
    let server = Scripted::start(move |request, stream| {
        let (head, id) =
            ("HTTP/1.1 200 OK\r\ncontent-type: application/json", &scripted::message(request)["id"]);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":["{text}"]}}}}"#);
        scripted::write(stream, &format!("{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len()));
    });
    let files = Files::new();
    files.write(&config(server.port));
    let sidecar = Sidecar::with(files, &["--max-held-bytes", "100000", "--max-connections", "400"]).loaded();
    let clients: Vec<_> = (0..MANY).map(|_| Client::open(&sidecar, None)).collect();
    let before = sidecar.memory();
    let mut unread: Vec<_> = clients.iter().map(|_| connect(sidecar.mcp)).collect();
    for (client, stream) in clients.iter().zip(&mut unread) {
        SockRef::from(&*stream).set_recv_buffer_size(16 << 10).unwrap();
        client.request(client.message("tools/call", &json!({"name": "t"}))).write(stream);
    }
    eventually("all are under way", || server.seen("tools/call").len() == MANY);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let each = sidecar.peak().saturating_sub(before) / MANY as u64;
    assert!(each < EACH, "{each} bytes");
    drop(unread);
}

/// Whoever sends much may not read what comes back.
#[test]
fn a_refusal_does_not_repeat_all_that_is_refused() {
    let server = Scripted::start(|_, stream| scripted::no_stream(stream));
    let mut config = config(server.port);
    config.access = vec![rule("none", &["t"], &[], &[])];
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    let long = "x".repeat(LARGE);
    for (method, params) in [
        ("resources/read", json!({"uri": long})),
        ("tools/call", json!({"name": long})),
        ("prompts/get", json!({"name": long})),
    ] {
        let reply = client.send(method, params);
        let error = &reply.message()["error"];
        assert!(reply.body.len() < 2_000, "{method}: {}", reply.body.len());
        assert!(error["message"].as_str().unwrap().ends_with("xxx…"), "{method}: {error}");
    }
    let twice = client.message("tools/call", &json!({"name": "t"}));
    let twice = twice.replace(r#""name":"t""#, &format!(r#""name":"t","{long}":1,"{long}":2"#));
    let reply = client.request(twice).send(sidecar.mcp);
    assert!(reply.body.len() < 2_000 && reply.text().contains("duplicate field"), "{}", reply.body.len());
    let short = "a:".to_owned() + &"x".repeat(1_500);
    let refused = client.send("resources/read", json!({"uri": short})).message();
    assert_eq!(refused["error"]["data"]["uri"], short, "what is of use is said");
}

/// It would be taken for a whole one, or for nonsense of the server's.
#[test]
fn half_an_answer_never_ends_as_a_whole_one() {
    let text = "x".repeat(5 * LARGE);
    let server = Scripted::start(move |request, stream| {
        scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": text}]}));
    });
    let mut config = config(server.port);
    // A busy machine takes seconds to make such an answer.
    config.limits.request_timeout_ms = 8_000;
    let sidecar = Sidecar::start(&config);
    // Newer clients come back for an answer that takes a busy machine long, so all of it is kept for them.
    let client = Client::of(&sidecar, None, "2025-06-18");
    let mut stream = connect(sidecar.mcp);
    SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
    client.request(client.message("tools/call", &json!({"name": "t"}))).write(&mut stream);
    let mut answer = BufReader::new(stream);
    assert_eq!(Reply::read_head(&mut answer).unwrap().0, 200);
    // Only then is it read: a busy sidecar may be late, and what is read in time is whole.
    let call = sidecar.audit(|line| line["method"] == "tools/call");
    assert_eq!(call["reason"], "not read by its client");
    let broken = loop {
        match http::read_chunk(&mut answer) {
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broken, "it ends as if that were all");
}

#[test]
fn who_does_not_read_what_another_replica_answers_costs_little_at_both() {
    const CLIENTS: u64 = 40;
    const HELD: u64 = 800 << 10;
    const PASSED: u64 = 192 << 10;
    let server = Scripted::start(|request, stream| {
        scripted::begin_events(stream);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "info", "data": "x".repeat(900),
        }});
        let event = format!("data: {note}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        let is_flood = scripted::message(request)["params"]["arguments"]["flood"] == json!(true);
        while is_flood && stream.write_all(chunk.as_bytes()).is_ok() {}
        let answer = scripted::reply_to(request, &json!({"content": []}));
        scripted::say(stream, &answer);
        scripted::write(stream, "0\r\n\r\n");
    });
    let replicas = Network::new().replicas(&config(server.port), &[server.port; 2]);
    let [owner, other] = &replicas[..] else { panic!("two replicas") };
    let clients: Vec<_> = (0..=CLIENTS).map(|_| Client::open(owner, Some("key-a"))).collect();
    let (reads, others) = clients.split_last().unwrap();
    let reads = reads.through(other);
    reads.call("t", json!({}));
    let before = [owner.memory(), other.memory()];
    let _connections: Vec<_> = others
        .iter()
        .map(|client| {
            let mut stream = connect(other.mcp);
            // It takes little itself, whatever the machine would.
            SockRef::from(&stream).set_recv_buffer_size(32 << 10).unwrap();
            let flood = json!({"name": "t", "arguments": {"flood": true}});
            client.request(client.message("tools/call", &flood)).write(&mut stream);
            stream
        })
        .collect();
    eventually("all are under way", || owner.metric("longshore_streams") >= 40.0);
    // Until no more of it is passed on, which others do not wait for.
    let (mut held, mut before_that) = (1.0, 0.0);
    while held > before_that {
        (0..20).for_each(|_| drop(reads.call("t", json!({}))));
        before_that = std::mem::replace(&mut held, owner.metric("longshore_stream_bytes"));
    }
    let now = [owner.memory(), other.memory()];
    let grown = [0, 1].map(|at| now[at].saturating_sub(before[at]));
    // The owner can be asked again for what is on its way. What is at the other one is on its way and nothing else.
    assert!(held < (CLIENTS * HELD) as f64, "{held}");
    assert!(grown[0] < (8 << 20) + CLIENTS * HELD && grown[1] < (8 << 20) + CLIENTS * PASSED, "{grown:?}");
}
