//! Calls that are given up: nobody waits for them any more, or for no longer.

use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::http::{Reply, connect, read_chunk};
use crate::harness::{
    Client, Gate, Request, Scripted, Sessionless, Sidecar, SseServer, config, eventually, modern, scripted,
    within,
};

#[test]
fn r069_an_answer_that_does_not_come_is_ended_and_cancelled() {
    for events in [false, true] {
        let server = Scripted::start(move |_, stream| {
            if events {
                scripted::begin_events(stream);
            }
            scripted::until_closed(stream);
        });
        let mut config = config(server.port);
        let sidecar = Sidecar::start(&config);
        let client = Client::open(&sidecar, None);
        config.limits.request_timeout_ms = 300;
        sidecar.runs(&sidecar.files.write(&config));
        let message = client.call("t", json!({}));
        assert_eq!(message["error"]["code"], -32603);
        assert_eq!(message["error"]["message"], "the MCP server did not answer within 0.3 seconds");
        let cancelled = eventually("the server hears of it", || server.seen("notifications/cancelled").pop());
        let params = &scripted::message(&cancelled)["params"];
        assert_eq!(params["requestId"], message["id"]);
        assert_eq!(sidecar.audit(|line| line["method"] == "tools/call")["reason"], "server timed out");
    }
}

/// 69: however much the server says meanwhile, and whatever the two sides speak.
#[test]
fn r069_a_call_of_which_news_comes_all_the_time_ends_at_its_time_out() {
    fn report(request: &Request, stream: &mut TcpStream) {
        scripted::begin_events(stream);
        let token = &scripted::message(request)["params"]["_meta"]["progressToken"];
        // For a minute.
        for progress in 1..1200 {
            let params = json!({"progressToken": token, "progress": progress});
            let news = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            scripted::say(stream, &news);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let (both, older) = (Scripted::of_both(json!({}), report), Scripted::start(report));
    let newer = Sessionless::start(json!({"tools": {}}), json!([]), report);
    for port in [both.port, older.port, newer.port] {
        let mut config = config(port);
        let sidecar = Sidecar::start(&config).ready();
        let client = Client::open(&sidecar, None);
        config.limits.request_timeout_ms = 1_000;
        sidecar.runs(&sidecar.files.write(&config));
        let params = json!({"name": "t", "_meta": {"progressToken": "p"}});
        for call in [
            client.request(client.message("tools/call", &params)),
            modern::request(1, "tools/call", params.clone()),
        ] {
            let asked = Instant::now();
            let reply = call.send(sidecar.mcp);
            // Nobody else ends it before the minute is over.
            assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
            let words = &reply.message()["error"]["message"];
            assert_eq!(words, "the MCP server did not answer within 1 seconds", "{}", reply.text());
            assert!(reply.events().len() > 2, "it was not silent: {}", reply.text());
        }
    }
}

/// The same where the two sides are not of one era, or both without sessions: each server hears it in its own way, one of
/// 2026-07-28 by the end of the connection.
#[test]
fn r069_a_call_is_cancelled_at_a_server_of_any_era() {
    /// Says when whoever called has gone.
    fn hang(gone: &Arc<AtomicBool>) -> impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static {
        let gone = gone.clone();
        move |_, stream| {
            scripted::until_closed(stream);
            gone.store(true, Ordering::SeqCst);
        }
    }
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    for (is_modern, has_sessions) in [(true, true), (false, false), (true, false)] {
        let case = format!("a client of 2026-07-28: {is_modern}, a server with sessions: {has_sessions}");
        let gone = Arc::default();
        let older = has_sessions.then(|| Scripted::start(hang(&gone)));
        let newer =
            (!has_sessions).then(|| Sessionless::start(json!({"tools": {}}), tools.clone(), hang(&gone)));
        let port = older.as_ref().map(|server| server.port).or(newer.as_ref().map(|server| server.port));
        let mut config = config(port.unwrap());
        let sidecar = Sidecar::start(&config).ready();
        let client = (!is_modern).then(|| Client::open(&sidecar, None));
        config.limits.request_timeout_ms = 300;
        sidecar.runs(&sidecar.files.write(&config));
        let call = match &client {
            Some(client) => client.request(client.message("tools/call", &json!({"name": "t"}))),
            None => modern::of(&modern::message(1, "tools/call", json!({"name": "t"})).to_string()),
        };
        let message = call.send(sidecar.mcp).message();
        assert_eq!(message["error"]["message"], "the MCP server did not answer within 0.3 seconds", "{case}");
        match &older {
            Some(server) => {
                let cancelled =
                    eventually("the server is told", || server.seen("notifications/cancelled").pop());
                let called = server.seen("tools/call").pop().unwrap();
                let [cancelled, called] = [&cancelled, &called].map(scripted::message);
                assert_eq!(cancelled["params"]["requestId"], called["id"], "{case}");
            }
            None => eventually("the server is told", || gone.load(Ordering::SeqCst)),
        }
    }
}

/// So it is when what the server says before its answer is more than can be read.
#[test]
fn r069_a_call_in_which_the_server_says_too_much_is_cancelled() {
    const SIZE: usize = 33 << 20;
    let server = Scripted::start(|_, stream| {
        scripted::begin_events(stream);
        scripted::chunk(stream, &format!("data: {}", "x".repeat(SIZE)));
        scripted::until_closed(stream);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let params = json!({"name": "t"});
    let calls = [
        client.request(client.message("tools/call", &params)),
        modern::request(7, "tools/call", params.clone()),
    ];
    for (told, call) in calls.into_iter().enumerate() {
        let error = call.send(sidecar.mcp).message()["error"]["message"].take();
        assert!(error.as_str().is_some_and(|error| error.contains("larger than")), "{error}");
        let cancelled = eventually("the server hears of it", || {
            server.seen("notifications/cancelled").into_iter().nth(told)
        });
        let called = server.seen("tools/call").pop().unwrap();
        let [cancelled, called] = [&cancelled, &called].map(scripted::message);
        assert_eq!(cancelled["params"]["requestId"], called["id"]);
    }
}

/// 59: also where there is no room for the words of its client.
#[test]
fn r059_a_server_hears_of_a_call_whose_cancellation_was_refused() {
    type Seen<'a> = &'a dyn Fn(&str) -> Vec<Request>;
    const NOTE: &str = "notifications/roots/list_changed";
    let http = Scripted::hearing(&Gate::default(), |_, stream| scripted::until_closed(stream));
    let sse = SseServer::start(|_, _| {});
    let servers: [(_, Seen<'_>); 2] =
        [(config(http.port), &|method| http.seen(method)), (sse.config(), &|method| sse.seen(method))];
    for (config, seen) in servers {
        let sidecar = Sidecar::flagged(&config, &["--max-calls", "2"]).ready();
        let client = Client::of(&sidecar, None, "2025-11-25");
        let message = client.message("tools/call", &json!({"name": "silent"}));
        let mut call = connect(sidecar.mcp);
        client.request(message.clone()).write(&mut call);
        let called = scripted::message(&eventually("the call is under way", || seen("tools/call").pop()));
        let note = json!({"jsonrpc": "2.0", "method": NOTE, "params": {"name": "held"}});
        let _told = [(); 2].map(|()| {
            let mut stream = connect(sidecar.mcp);
            client.request(note.to_string()).write(&mut stream);
            stream
        });
        eventually("nothing more can be told", || seen(NOTE).len() == 2);
        let id = serde_json::from_str::<serde_json::Value>(&message).unwrap()["id"].take();
        assert_eq!(client.cancel(id).status, 503);
        let answer = Reply::on(call).message();
        assert_eq!(answer["error"]["message"], "the call was cancelled by its client", "{answer}");
        let cancelled = eventually("the server hears of it", || seen("notifications/cancelled").pop());
        assert_eq!(scripted::message(&cancelled)["params"]["requestId"], called["id"]);
    }
}

/// However many they are, and before any of them looks whether it is.
#[test]
fn calls_that_are_cancelled_together_end_together() {
    const CALLS: usize = 80;
    let server = Scripted::start(|_, stream| scripted::until_closed(stream));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::of(&sidecar, None, "2025-11-25");
    let calls = [(); CALLS].map(|()| {
        let mut stream = connect(sidecar.mcp);
        let message = client.message("tools/call", &json!({"name": "t"}));
        client.request(message.clone()).write(&mut stream);
        (serde_json::from_str::<serde_json::Value>(&message).unwrap()["id"].clone(), stream)
    });
    eventually("they are under way", || sidecar.metric("longshore_calls") == CALLS as f64);
    for (id, _) in &calls {
        let params = json!({"requestId": id});
        let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert_eq!(client.request(body.to_string()).send(sidecar.mcp).status, 202);
    }
    // Long before they would end by themselves.
    within(Duration::from_secs(10), "all of them end", || sidecar.metric("longshore_calls") == 0.0);
}

#[test]
fn a_client_that_goes_away_cancels_nothing_and_leaves_nothing() {
    let (finished, finish) = std::sync::mpsc::channel();
    let finished = std::sync::Mutex::new(finished);
    let server = Scripted::start(move |request, stream| {
        scripted::begin_events(stream);
        for step in 0..5 {
            scripted::chunk(
                stream,
                &format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{\"data\":{step}}}}}\n\n"
                ),
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        scripted::say(stream, &scripted::reply_to(request, &json!({})));
        // Written to somebody who is still there.
        let alive = stream.write_all(b"0\r\n\r\n").is_ok();
        finished.lock().unwrap().send(alive).unwrap();
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    for read_something in [true, false] {
        let call = client.request(client.message("tools/call", &json!({"name": "t"})));
        if read_something {
            let mut stream = connect(sidecar.mcp);
            call.write(&mut stream);
            let mut reader = BufReader::new(stream);
            Reply::read_head(&mut reader).unwrap();
            read_chunk(&mut reader).unwrap();
        } else {
            sidecar.is_left_with(&call);
        }
        assert!(finish.recv_timeout(Duration::from_secs(30)).unwrap(), "the call went on to its end");
        assert!(server.seen("notifications/cancelled").is_empty());
    }
    let lines = || sidecar.written().matches("\"method\":\"tools/call\"").count();
    eventually("both calls are in the audit log", || lines() == 2);
    assert_eq!(sidecar.metric("longshore_connections"), 0.0);
}

/// A server does not answer what was cancelled, and may leave the response open: nobody waits for it then.
#[test]
fn r059_a_cancelled_call_ends_though_its_server_leaves_it_open() {
    let server =
        Scripted::start(|request, stream| match scripted::message(request)["params"]["name"].as_str() {
            Some("hang") => scripted::stays_open(stream),
            _ => scripted::reply(stream, request, &json!({"content": []})),
        });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for revision in ["2025-06-18", "2025-11-25"] {
        let client = Client::of(&sidecar, None, revision);
        let call =
            |name: &str| json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name}});
        let mut stream = connect(sidecar.mcp);
        client.request(call("hang").to_string()).write(&mut stream);
        eventually("the call is under way", || sidecar.metric("longshore_calls") == 1.0);
        // Somebody else's, and one of another type.
        assert_eq!(Client::of(&sidecar, None, revision).cancel(7).status, 202);
        assert_eq!(client.through(&sidecar).cancel("7").status, 202);
        assert_eq!(sidecar.metric("longshore_calls"), 1.0);
        assert_eq!(client.cancel(7).status, 202);
        let reply = Reply::on(stream);
        assert_eq!((&reply.message()["id"], &reply.message()["error"]["code"]), (&json!(7), &json!(-32603)));
        eventually("nothing is under way", || sidecar.metric("longshore_calls") == 0.0);
        // The id is free, and what was cancelled before does not count.
        let reply = client.request(call("quick").to_string()).send(sidecar.mcp);
        assert_eq!(reply.message()["result"], json!({"content": []}), "{revision}");
    }
    sidecar.audit(|line| line["reason"] == "cancelled by its client");
}

/// Others end it at once, with nothing in it: that is no fault of theirs.
#[test]
fn r059_a_cancelled_call_is_no_failure_of_a_server_that_ends_it() {
    for events in [false, true] {
        let gate = Gate::default();
        let cancelled = gate.clone();
        let server = Scripted::start(move |_, stream| {
            cancelled.pass();
            if events { scripted::events(stream, &[]) } else { scripted::accepted(stream) }
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let client = Client::of(&sidecar, None, "2025-06-18");
        let message = client.message("tools/call", &json!({"name": "t"}));
        let mut stream = connect(sidecar.mcp);
        client.request(message.clone()).write(&mut stream);
        eventually("the call is under way", || server.seen("tools/call").len() == 1);
        let id = serde_json::from_str::<serde_json::Value>(&message).unwrap()["id"].take();
        assert_eq!(client.cancel(id).status, 202);
        gate.open();
        let answer = Reply::on(stream).message();
        assert_eq!(answer["error"]["message"], "the call was cancelled by its client", "{answer}");
        let line = sidecar.audit(|line| line["method"] == "tools/call");
        assert_eq!(line["reason"], "cancelled by its client", "{line}");
    }
}
