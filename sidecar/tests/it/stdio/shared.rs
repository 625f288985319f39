//! Processes that several sessions share.

mod asking;
mod leaving;
mod levels;
mod mixed;
mod places;
mod rests;
mod revisions;

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longshore_sidecar_config::{Config, Isolation};
use serde_json::{Value, json};

use super::{KEYS, config, error, pid, said, state, text};
use crate::harness::config::keys;
use crate::harness::http::{Reply, read_chunk};
use crate::harness::shim::{server, serving_keyed};
use crate::harness::{Client, Request, Shim, Sidecar, eventually};

/// A sidecar that three principals may use.
fn shared(config: &Config, flags: &[&str], options: &[&str]) -> (Shim, Sidecar) {
    shared_by(config, &server(flags), options)
}

/// The same in front of this one.
fn shared_by(config: &Config, server: &[String], options: &[&str]) -> (Shim, Sidecar) {
    serving_keyed(config, &keys(&KEYS), server, options)
}

fn open(sidecar: &Sidecar, principal: usize) -> Client<'_> {
    Client::open(sidecar, Some(KEYS[principal].1))
}

/// A call that is answered when somebody says so ([`release`]), and hears what else comes.
fn listen(client: &Client<'_>) -> TcpStream {
    client.begin(&json!({"name": "wait"}))
}

fn release(client: &Client<'_>) {
    assert_eq!(said(client, "release", json!({})), "released");
}

fn events(stream: TcpStream) -> Vec<Value> {
    let reply = Reply::on(stream);
    let mut events: Vec<Value> =
        reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    events.retain(|event| event.get("method").is_some());
    events
}

fn under_way(sidecar: &Sidecar, calls: f64) {
    eventually("the calls are under way", || sidecar.metric("longshore_calls") == calls);
    // They have reached the sidecar; an answer behind them shows that they have reached the server.
}

fn say(client: &Client<'_>, method: &str, params: Value) {
    assert_eq!(said(client, "say", json!({"method": method, "params": params})), "said");
}

fn delete(client: &Client<'_>) {
    let request = Request::new("DELETE", "/mcp").session(&client.session).key(client.key.as_deref().unwrap());
    assert_eq!(request.send(client.sidecar.mcp).status, 204);
}

#[test]
fn sessions_share_a_process_as_far_as_they_may() {
    for (isolation, same_principal, all) in [
        (Isolation::Session, false, false),
        (Isolation::Principal, true, false),
        (Isolation::Shared, true, true),
    ] {
        let total = if isolation == Isolation::Shared { 1 } else { 8 };
        let (_shim, sidecar) = shared(&config(isolation, total), &[], &[]);
        let (first, second, other) = (open(&sidecar, 0), open(&sidecar, 0), open(&sidecar, 1));
        assert_eq!(pid(&first) == pid(&second), same_principal, "{isolation:?}");
        assert_eq!(pid(&first) == pid(&other), all, "{isolation:?}");
        if isolation == Isolation::Session {
            continue;
        }
        // The process has heard one handshake, in which nothing can be asked of a client.
        let heard = &state(&first)["heard"];
        assert_eq!(heard.as_array().unwrap().len(), 2, "{heard}");
        assert_eq!(
            (&heard[0]["capabilities"], &heard[0]["clientInfo"]["name"]),
            (&json!({}), &json!("longshore-sidecar"))
        );
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
        assert_eq!(first.request(changed.to_string()).send(sidecar.mcp).status, 202);
        assert_eq!(state(&first)["heard"].as_array().unwrap().len(), 2);
        // It lives for as long as one of them, and a little longer.
        let before = pid(&first);
        delete(&first);
        assert_eq!(pid(&second), before);
        assert_eq!(first.send("ping", json!({})).status, 404);
    }
}

#[test]
fn everybodys_sessions_are_spread() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 3), &[], &[]);
    let sessions: Vec<_> = (0..9).map(|number| open(&sidecar, number % 3)).collect();
    let mut pids: Vec<_> = sessions.iter().map(pid).collect();
    pids.sort_unstable();
    assert_eq!(
        pids.chunks(3).filter(|three| three.iter().all(|pid| *pid == three[0])).count(),
        3,
        "{pids:?}"
    );
    assert_eq!(sidecar.metric("longshore_processes"), 4.0);
}

#[test]
fn each_hears_what_it_has_asked_for() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    let ask = |client: &Client<'_>, method: &str, params: Value| {
        assert_eq!(client.ask(method, params.clone())["result"], json!({}), "{method} {params}");
    };
    for (client, uri) in [(&a, "x:1"), (&b, "x:1"), (&b, "x:2")] {
        ask(client, "resources/subscribe", json!({"uri": uri}));
    }
    assert_eq!(state(&c)["subscriptions"], json!(["x:1", "x:2"]), "each of them once");
    let long = a.ask("resources/subscribe", json!({"uri": "x".repeat(4_097)}));
    assert_eq!(long["error"]["code"], -32602, "{long}");
    assert!(error(&long).contains("URIs of 4096 bytes at most"), "{long}");
    let heard = |method: &str, params: Value, expected: [usize; 3]| {
        let streams = [&a, &b, &c].map(listen);
        under_way(&sidecar, 3.0);
        let speaker = open(&sidecar, 0);
        say(&speaker, method, params.clone());
        release(&speaker);
        assert_eq!(streams.map(|stream| events(stream).len()), expected, "{method} {params}");
        delete(&speaker);
    };
    let updated = "notifications/resources/updated";
    heard(updated, json!({"uri": "x:1"}), [1, 1, 0]);
    heard(updated, json!({"uri": "x:2"}), [0, 1, 0]);
    heard(updated, json!({"uri": "x:3"}), [0, 0, 0]);
    heard("notifications/tools/list_changed", json!({}), [1, 1, 1]);
    heard("notifications/unheard-of", json!({}), [0, 0, 0]);
    // What is said while calls of several are under way could be about any of them.
    heard("notifications/message", json!({"level": "error", "data": 1}), [0, 0, 0]);

    ask(&a, "resources/unsubscribe", json!({"uri": "x:1"}));
    assert_eq!(state(&c)["subscriptions"], json!(["x:1", "x:2"]), "the other one is still there");
    heard(updated, json!({"uri": "x:1"}), [0, 1, 0]);
    delete(&b);
    eventually("nobody is subscribed any more", || state(&c)["subscriptions"] == json!([]));
}

#[test]
fn levels_are_each_sessions_own() {
    let (_shim, sidecar) = shared(&config(Isolation::Principal, 4), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 0), open(&sidecar, 0));
    let level = |client: &Client<'_>, level: &str| {
        assert_eq!(client.ask("logging/setLevel", json!({"level": level}))["result"], json!({}));
    };
    level(&a, "error");
    assert_eq!(state(&c)["level"], "error");
    level(&b, "info");
    assert_eq!(state(&c)["level"], "info", "the most talkative");
    level(&a, "warning");
    assert_eq!(state(&c)["level"], "info");
    let message = c.ask("logging/setLevel", json!({"level": "loud"}));
    assert_eq!(message["error"]["code"], -32602, "{message}");
    for (said, expected) in [("info", [0, 1, 0]), ("warning", [1, 1, 0]), ("debug", [0, 0, 0])] {
        let streams = [&a, &b, &c].map(listen);
        under_way(&sidecar, 3.0);
        let speaker = open(&sidecar, 0);
        say(&speaker, "notifications/message", json!({"level": said, "data": "d"}));
        release(&speaker);
        assert_eq!(streams.map(|stream| events(stream).len()), expected, "{said}");
        delete(&speaker);
    }
    delete(&b);
    eventually("the others want less", || state(&c)["level"] == "warning");
}

#[test]
fn a_crash_costs_each_one_error_and_nothing_that_was_asked_for() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    a.ask("resources/subscribe", json!({"uri": "x:1"}));
    b.ask("logging/setLevel", json!({"level": "notice"}));
    let before = pid(&c);
    let stream = listen(&b);
    under_way(&sidecar, 1.0);
    assert!(error(&a.call("exit", json!({"status": 3}))).contains("exit status 3"));
    let reply = Reply::on(stream);
    assert!(error(&reply.message()).contains("exit status 3"), "{}", reply.text());
    assert_ne!(pid(&c), before, "the one that had no call under way notices nothing");
    for client in [&a, &b] {
        let state = state(client);
        assert_eq!((&state["level"], &state["subscriptions"]), (&json!("notice"), &json!(["x:1"])));
        assert_eq!(state["heard"].as_array().unwrap().len(), 2, "and shook hands: {state}");
    }
}

#[test]
fn nobody_cancels_or_ends_what_is_anothers() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &["frank"], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    // Both calls have the same id.
    let reply = |stream| Reply::on(stream).message();
    let [first, second] = [listen(&a), listen(&b)];
    under_way(&sidecar, 2.0);
    assert_eq!(a.cancel(1).status, 202);
    assert_eq!(error(&reply(first)), "the call was cancelled by its client");
    release(&c);
    let answered = reply(second);
    assert_eq!((text(&answered).as_str(), &answered["id"]), ("released", &json!(1)));
    let log = || sidecar.server_log();
    assert_eq!(log().matches("cancelled ").count(), 1, "{}", log());
    // The end of a session is the end of its calls, for the server too.
    let [first, second] = [listen(&a), listen(&b)];
    under_way(&sidecar, 2.0);
    delete(&a);
    assert_eq!(error(&reply(first)), "the session was ended while the call was under way");
    release(&c);
    assert_eq!(text(&reply(second)), "released");
    eventually("the server heard of it", || log().matches("cancelled ").count() == 2);
}

#[test]
fn a_call_that_nobody_reads_ends_where_others_share_the_process() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &["frank"], &[]);
    let (deaf, reader, other) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    let pour = |client: &Client<'_>| client.begin(&json!({"name": "pour", "_meta": {"progressToken": "t"}}));
    let log = || sidecar.server_log();
    let unread = pour(&deaf);
    eventually("the server is told", || log().matches("cancelled ").count() == 1);
    // What it has not read waits for it, and why there is no more.
    let reply = Reply::on(unread);
    let events = reply.events();
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert!(events.len() > 10 && error(&last).contains("its client read nothing"), "{last}");
    sidecar.audit(|line| line["reason"] == "not read by its client");
    // Whoever reads is not ended, for longer than others were.
    let mut stream = BufReader::new(pour(&reader));
    let (mut head, began) = (String::new(), Instant::now());
    while head != "\r\n" {
        head.clear();
        stream.read_line(&mut head).unwrap();
    }
    while began.elapsed() < Duration::from_secs(3) {
        assert!(read_chunk(&mut stream).unwrap().is_some());
    }
    assert_eq!(log().matches("cancelled ").count(), 1, "{}", log());
    pid(&other);
}

/// It could be about anybody's call.
#[test]
fn what_a_process_wrote_last_is_told_to_its_callers_where_they_are_of_one_principal() {
    for (isolation, stderr) in
        [(Isolation::Principal, json!("first words\nlast words")), (Isolation::Shared, Value::Null)]
    {
        let (_shim, sidecar) = shared(&config(isolation, 2), &[], &[]);
        let message = open(&sidecar, 0).call("exit", json!({"status": 3}));
        assert!(error(&message).contains("exit status 3"), "{message}");
        assert_eq!(message["error"]["data"]["stderr"], stderr, "{isolation:?}");
    }
}
