//! Calls side by side in one session, and what goes on beside them.

use std::io::BufReader;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{error, pid, said, text};
use crate::harness::http::{Reply, connect};
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Client, Event, Events, Request, Sidecar, eventually};

/// Allows calls so many milliseconds, once there is nothing left that has to start in as many.
fn allow(sidecar: &Sidecar, milliseconds: u64) {
    let mut config = stdio();
    config.limits.request_timeout_ms = milliseconds;
    sidecar.runs(&sidecar.files.write(&config));
}

fn under_way(client: &Client<'_>, calls: f64) {
    eventually("the calls are under way", || client.sidecar.metric("longshore_calls") == calls);
}

#[test]
fn answers_find_their_calls_in_any_order() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let slow = client.begin(&json!({"name": "later", "arguments": {"seconds": 0.6}}));
    let quick = client.begin(&json!({"name": "later", "arguments": {"seconds": 0.2}}));
    assert_eq!(said(&client, "echo", json!({"text": "at once"})), "at once");
    let (quick, slow) = (Reply::on(quick).message(), Reply::on(slow).message());
    assert_eq!((&quick["id"], &slow["id"]), (&json!(2), &json!(1)));
    assert_eq!((text(&quick), text(&slow)), ("later".to_owned(), "later".to_owned()));
}

#[test]
fn progress_goes_to_its_call() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let arguments = json!({"steps": 50, "seconds": 3});
    let params = json!({"name": "progress", "arguments": arguments, "_meta": {"progressToken": "t\u{e9}"}});
    let call = client.begin(&params);
    under_way(&client, 1.0);
    let other = client.begin(&json!({"name": "later", "arguments": {"seconds": 4.0}}));
    let reply = Reply::on(call);
    let events = reply.events();
    assert_eq!(events.len(), 51, "{}", reply.text());
    let steps = events[..50].iter().map(|event| serde_json::from_str::<Value>(event).unwrap());
    for (number, step) in steps.enumerate() {
        assert_eq!(
            (&step["method"], &step["params"]["progress"]),
            (&json!("notifications/progress"), &json!(number))
        );
    }
    assert_eq!(text(&reply.message()), "done");
    assert!(Reply::on(other).events().len() <= 1, "and to no other");
}

#[test]
fn what_the_server_asks_is_asked_in_a_call() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["ping"]), &[]);
    let client = Client::open(&sidecar, None);
    let mut events = client.stream("ask", json!({"method": "roots/list"}));
    let asked = events.next().unwrap().message();
    assert_eq!(asked["method"], "roots/list");
    let id = asked["id"].clone();
    // What answers nothing, or is not for this client to answer, is nobody's.
    let other = Client::open(&sidecar, None);
    for (client, id) in [(&client, json!("q")), (&client, json!(1)), (&other, id.clone())] {
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": "wrong"}}).to_string();
        assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
    }
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}}).to_string();
    assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
    assert_eq!(text(&events.next().unwrap().message()), r#"{"roots": []}"#);

    // Where there is no call, the sidecar answers itself: that it is there, and that nobody else is.
    for (method, expected) in [
        ("ping", r#""result": {}"#),
        ("roots/list", "no call is under way in which the client could be asked"),
    ] {
        said(&client, "ask-later", json!({"method": method}));
        eventually("it was answered", || sidecar.server_log().contains(expected));
        eventually("it has ended", || sidecar.metric("longshore_processes") == 2.0);
    }
}

/// Waits until so many processes have asked for roots, as soon as they were greeted. Gives what they have written.
fn have_asked(sidecar: &Sidecar, count: usize) -> String {
    eventually("it has asked", || {
        let log = sidecar.server_log();
        (log.matches("asked for roots").count() == count).then_some(log)
    })
}

/// Many ask for roots as soon as they are greeted, and no second time. Their clients listen a moment later, or call.
#[test]
fn what_the_server_asks_before_its_client_listens_waits_for_that() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["curious"]), &[]);
    for (number, listens) in [(1, true), (2, false)] {
        let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
        have_asked(&sidecar, number);
        let mut own = listens.then(|| Events::open(&client.get(), sidecar.mcp));
        let early = own.as_mut().map(|own| own.next().unwrap().message());
        let mut hears = client.stream("hear", json!({}));
        let asked = early.unwrap_or_else(|| hears.next().unwrap().message());
        assert_eq!(asked["method"], "roots/list", "{asked}");
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}).to_string();
        assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
        assert_eq!(text(&hears.next().unwrap().message()), r#"{"roots": []}"#);
    }
}

#[test]
fn what_the_server_takes_back_before_its_client_listens_is_not_asked() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["curious", "inconstant"]), &[]);
    let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
    have_asked(&sidecar, 1);
    let mut own = Events::open(&client.get(), sidecar.mcp);
    said(&client, "change", json!({}));
    let first = own.next().unwrap().message();
    assert_eq!(first["method"], "notifications/tools/list_changed", "{first}");
    assert!(!have_asked(&sidecar, 1).contains("was answered"), "nobody answers it either");
}

#[test]
fn what_the_server_asks_of_a_client_that_neither_listens_nor_calls_is_an_error_in_the_end() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["curious"]), &[]);
    let _client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
    have_asked(&sidecar, 1);
    let asked = Instant::now();
    eventually("it was answered", || {
        let words = "no call is under way in which the client could be asked";
        have_asked(&sidecar, 1).contains(words)
    });
    assert!(asked.elapsed() > Duration::from_secs(1), "{:?}", asked.elapsed());
}

/// What waits for that client already is not lost to the question.
#[test]
fn what_the_server_asks_of_a_client_that_does_not_read_is_an_error_in_the_end() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["curious", "effusive"]), &[]);
    let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
    let body = client.message("logging/setLevel", &json!({"level": "info"}));
    let events = Events::open(&client.request(body), sidecar.mcp);
    // Until the question is not kept any more.
    std::thread::sleep(Duration::from_secs(3));
    let messages: Vec<_> = events.all().iter().filter(|it| it.has_messages()).map(Event::message).collect();
    let (answer, logged) = messages.split_last().unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(logged.len(), 4_000);
    for (number, message) in logged.iter().enumerate() {
        assert_eq!(message["params"]["logger"], number.to_string());
    }
    eventually("it was answered", || have_asked(&sidecar, 1).contains("the client does not read"));
}

/// In which of several calls it asks the server does not say: the client answers whichever it is.
#[test]
fn what_the_server_asks_outlives_the_call_that_it_is_asked_in() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    for is_cancelled in [true, false] {
        let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
        let arguments = json!({"method": "roots/list"});
        let asking = json!({"name": "ask-beside", "arguments": arguments, "_meta": {"progressToken": "t"}});
        let mut asking = Events::open(&client.request(client.message("tools/call", &asking)), sidecar.mcp);
        assert_eq!(asking.next().unwrap().message()["params"]["progress"], 1);
        if !is_cancelled {
            allow(&sidecar, 5_000);
        }
        let other = client.message("tools/call", &json!({"name": "hang"}));
        let mut other_events = Events::open(&client.request(other.clone()), sidecar.mcp);
        let asked = other_events.next().unwrap().message();
        assert_eq!(asked["method"], "roots/list", "{asked}");
        if is_cancelled {
            let id = serde_json::from_str::<Value>(&other).unwrap()["id"].take();
            assert_eq!(client.cancel(id).status, 202);
        }
        let message = other_events.next().unwrap().message();
        let words = if is_cancelled { "cancelled by its client" } else { "within 5 seconds" };
        assert!(error(&message).contains(words), "{message}");
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}).to_string();
        assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
        assert_eq!(text(&asking.next().unwrap().message()), r#"{"roots": []}"#);
    }
}

/// Those that calls have left behind make room for more; one of no call may be answered still.
#[test]
fn what_the_server_asks_outside_of_calls_outlives_what_they_have_left() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
    let mut own = Events::open(&client.get(), sidecar.mcp);
    said(&client, "ask-outside", json!({"method": "roots/list"}));
    let asked = own.next().unwrap().message();
    assert_eq!(asked["method"], "roots/list", "{asked}");
    for name in ["a", "b"] {
        let mut events =
            client.stream("ask-and-leave", json!({"name": name, "questions": 200, "method": "roots/list"}));
        let last = std::iter::from_fn(|| events.next()).last().unwrap().message();
        assert_eq!(text(&last), "left");
    }
    let mut hears = client.stream("hear", json!({}));
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}).to_string();
    assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
    assert_eq!(text(&hears.next().unwrap().message()), r#"{"roots": []}"#);
}

#[test]
fn a_cancelled_call_ends_soon_and_the_server_hears_of_it() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["frank"]), &[]);
    let client = Client::open(&sidecar, None);
    let call = client.begin(&json!({"name": "hang"}));
    under_way(&client, 1.0);
    assert_eq!(client.cancel(1).status, 202);
    let cancelled = Instant::now();
    let message = Reply::on(call).message();
    // Otherwise it would end at its time out, after twenty.
    assert!(cancelled.elapsed() < Duration::from_secs(15), "{:?}", cancelled.elapsed());
    assert_eq!(error(&message), "the call was cancelled by its client");
    eventually("the server heard of it", || sidecar.server_log().contains("cancelled 1"));
    // Should its answer still come, it is not taken for that of another call with the same id.
    let again = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    assert_eq!(client.request(again).send(sidecar.mcp).message()["result"], json!({}));
    pid(&client);
}

/// A process that has a call which it does not answer, and then reads nothing until it is told to go on; and the call that
/// is in front of whatever follows.
fn reads_nothing(client: &Client<'_>) -> (Pid, TcpStream, TcpStream) {
    let process = Pid::from_raw(pid(client).cast_signed()).unwrap();
    let call = client.begin(&json!({"name": "hang"}));
    // Behind it, so that the process has it.
    pid(client);
    kill_process(process, Signal::STOP).unwrap();
    // More than a pipe holds, and more than waits for it.
    let large = client.begin(&json!({"name": "echo", "arguments": {"text": "x".repeat(400_000)}}));
    under_way(client, 2.0);
    (process, call, large)
}

#[test]
fn a_cancelled_call_ends_soon_though_the_server_reads_nothing() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["frank"]), &[]);
    let client = Client::open(&sidecar, None);
    let (process, call, large) = reads_nothing(&client);
    // One that the process has not heard of yet.
    let behind = client.begin(&json!({"name": "echo", "arguments": {"text": "behind"}}));
    under_way(&client, 3.0);
    let mut cancels = Vec::new();
    for id in [2, 5] {
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        let mut stream = connect(sidecar.mcp);
        client.request(cancel.to_string()).write(&mut stream);
        cancels.push(stream);
    }
    for call in [call, behind] {
        assert_eq!(error(&Reply::on(call).message()), "the call was cancelled by its client");
    }
    kill_process(process, Signal::CONT).unwrap();
    assert_eq!(text(&Reply::on(large).message()).len(), 400_000);
    // Of the one, and not of the other, which it never heard of.
    for cancel in cancels {
        assert_eq!(Reply::on(cancel).status, 202);
    }
    pid(&client);
    eventually("the server heard of it", || sidecar.server_log().contains("cancelled 2"));
    let log = sidecar.server_log();
    assert_eq!(log.matches("cancelled ").count(), 1, "{log}");
}

/// Also when whoever cancelled has been told by then that it took too long, and however many messages were before it.
#[test]
fn a_server_that_reads_again_hears_of_the_calls_that_were_cancelled_meanwhile() {
    for before in [0, 40] {
        let mut config = stdio();
        config.sessions.streams = 100;
        let (_shim, sidecar) = serving(&config, &server(&["frank"]), &[]);
        let client = Client::open(&sidecar, None);
        let (process, call, large) = reads_nothing(&client);
        let others: Vec<_> = (0..before).map(|_| client.begin(&json!({"name": "pid"}))).collect();
        under_way(&client, f64::from(before) + 2.0);
        // Later than the call itself is given up.
        config.limits.request_timeout_ms = 2_000;
        sidecar.runs(&sidecar.files.write(&config));
        assert_ne!(client.cancel(2).status, 202);
        assert_eq!(error(&Reply::on(call).message()), "the call was cancelled by its client");
        kill_process(process, Signal::CONT).unwrap();
        eventually("the server heard of it", || sidecar.server_log().contains("cancelled "));
        assert_eq!(text(&Reply::on(large).message()).len(), 400_000);
        for other in others {
            text(&Reply::on(other).message());
        }
        let log = sidecar.server_log();
        assert_eq!(log.matches("cancelled ").count(), 1, "{log}");
        assert!(log.contains("cancelled 2"), "{log}");
    }
}

/// Also when there was no room for the words of its client.
#[test]
fn a_server_that_reads_again_hears_of_a_call_whose_cancellation_was_refused() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["frank"]), &["--max-calls", "2"]);
    let client = Client::open(&sidecar, None);
    let (process, call, large) = reads_nothing(&client);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).to_string();
    eventually("nothing more can be told", || {
        let mut stream = connect(sidecar.mcp);
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        client.request(note.clone()).write(&mut stream);
        Reply::read(&mut BufReader::new(stream)).ok().filter(|reply| reply.status == 503)
    });
    assert_eq!(client.cancel(2).status, 503);
    assert_eq!(error(&Reply::on(call).message()), "the call was cancelled by its client");
    kill_process(process, Signal::CONT).unwrap();
    eventually("the server heard of it", || sidecar.server_log().contains("cancelled 2"));
    assert_eq!(text(&Reply::on(large).message()).len(), 400_000);
}

/// A client's answer is said once, and its call would wait for ever: whether anybody waits to hear that it is written or not.
#[test]
fn a_server_that_reads_again_hears_the_answer_that_came_meanwhile() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let process = Pid::from_raw(pid(&client).cast_signed()).unwrap();
    let mut events = client.stream("ask", json!({"method": "roots/list"}));
    let id = events.next().unwrap().message()["id"].clone();
    kill_process(process, Signal::STOP).unwrap();
    let large = client.begin(&json!({"name": "echo", "arguments": {"text": "x".repeat(400_000)}}));
    under_way(&client, 2.0);
    allow(&sidecar, 500);
    let answering = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}}).to_string();
    assert_ne!(client.request(answering).send(sidecar.mcp).status, 202);
    kill_process(process, Signal::CONT).unwrap();
    assert_eq!(text(&events.next().unwrap().message()), r#"{"roots": []}"#);
    drop(large);
}

#[test]
fn r069_a_call_that_takes_too_long_is_cancelled() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["frank"]), &[]);
    let client = Client::open(&sidecar, None);
    allow(&sidecar, 500);
    let message = client.call("hang", json!({}));
    assert_eq!(error(&message), "the MCP server did not answer within 0.5 seconds");
    eventually("the server heard of it", || sidecar.server_log().contains("cancelled 1"));
}

#[test]
fn an_id_is_used_once_at_a_time() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let body = |name: &str| {
        json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": name}}).to_string()
    };
    let mut first = connect(sidecar.mcp);
    client.request(body("wait")).write(&mut first);
    under_way(&client, 1.0);
    let reply = client.request(body("pid").replace("\"x\"", "\"\\u0078\"")).send(sidecar.mcp);
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert_eq!(reply.message()["error"]["code"], -32600);
    sidecar.audit(|line| line["reason"] == "id in use");
    said(&client, "release", json!({}));
    assert_eq!(text(&Reply::on(first).message()), "released");
    assert_eq!(client.request(body("pid")).send(sidecar.mcp).status, 200, "and then again");
}

#[test]
fn a_server_that_never_reads_costs_only_its_own_session() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let (client, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    said(&client, "deaf", json!({}));
    // Not less: it is the other's time too.
    allow(&sidecar, 10_000);
    // More than a pipe holds.
    let large = json!({"name": "echo", "arguments": {"text": "x".repeat(1 << 20)}});
    let calls: Vec<_> = (0..4).map(|_| client.begin(&large)).collect();
    assert_eq!(said(&other, "echo", json!({"text": "x".repeat(1 << 20)})).len(), 1 << 20);
    for call in calls {
        let message = Reply::on(call).message();
        assert_eq!(error(&message), "the MCP server did not answer within 10 seconds");
    }
    // The session can be ended all the same, although the process hears nothing.
    assert_eq!(Request::new("DELETE", "/mcp").session(&client.session).send(sidecar.mcp).status, 204);
    eventually("it is gone", || sidecar.metric("longshore_processes") == 2.0);
}

#[test]
fn large_calls_that_wait_for_a_busy_server_are_held_once() {
    const CALLS: u32 = 7;
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let busy = client.begin(&json!({"name": "busy", "arguments": {"seconds": 5}}));
    under_way(&client, 1.0);
    let large = json!({"name": "pid", "arguments": {"text": "x".repeat(3 << 20)}});
    let calls: Vec<_> = (0..CALLS).map(|_| client.begin(&large)).collect();
    under_way(&client, f64::from(1 + CALLS));
    let before = sidecar.peak();
    for call in calls.into_iter().chain([busy]) {
        Reply::on(call);
    }
    let more = sidecar.peak().saturating_sub(before);
    assert!(more < 12 << 20, "{more}");
}

#[test]
fn a_client_that_does_not_read_slows_only_its_own_session() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let (client, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    allow(&sidecar, 3000);
    let started = Instant::now();
    let flooded = client.begin(&json!({"name": "flood-messages"}));
    under_way(&client, 1.0);
    for _ in 0..20 {
        pid(&other);
    }
    // What is not read is not read from the process either.
    assert!(sidecar.memory() < 200 << 20, "{}", sidecar.memory());
    eventually("the call ends", || sidecar.metric("longshore_calls") == 0.0);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    drop(flooded);
    pid(&other);
}

#[test]
fn an_answer_that_takes_long_begins_as_events() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let quick = client.send("tools/call", json!({"name": "echo", "arguments": {"text": "a"}}));
    assert_eq!(quick.header("content-type"), Some("application/json"));
    let slow = client.send("tools/call", json!({"name": "later", "arguments": {"seconds": 5.5}}));
    assert_eq!(slow.header("content-type"), Some("text/event-stream"));
    assert_eq!(text(&slow.message()), "later");
}

#[test]
fn a_large_answer_passes_whole() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let long = "\u{e9}\u{2028}\"".repeat(300_000);
    assert_eq!(said(&client, "echo", json!({"text": long})), long);
}

#[test]
fn a_large_error_is_written_down_as_one() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let refused = client.send("tools/call", json!({"name": "refuse", "arguments": {"times": 100_000}}));
    assert_eq!(refused.message()["error"]["message"], "x".repeat(100_000));
    assert_eq!(sidecar.audit(|line| line["target"] == "refuse")["code"], 7);
}

#[test]
fn threads_share_sessions() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &["--workers", "4"]);
    let client = Client::open(&sidecar, None);
    // Each request is a connection of its own, on a thread of the kernel's choice.
    let first = pid(&client);
    for number in 2..30 {
        assert_eq!(said(&client, "count", json!({})), number.to_string());
    }
    assert_eq!(pid(&client), first);
    assert_eq!(Request::new("DELETE", "/mcp").session(&client.session).send(sidecar.mcp).status, 204);
    eventually("it is gone", || sidecar.metric("longshore_processes") == 1.0);
}
