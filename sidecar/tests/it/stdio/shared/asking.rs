//! What a server asks or logs, where it is not always clear of whom.

use std::io::BufReader;

use longshore_sidecar_config::Isolation;
use serde_json::{Value, json};

use super::{KEYS, config, events, listen, open, release, say, shared, under_way};
use crate::harness::http::{Reply, connect, read_chunk};
use crate::harness::{Client, Events, Request, Sidecar, eventually};
use crate::stdio::{error, said, text};

#[test]
fn what_a_server_asks_is_asked_only_if_it_is_clear_whom() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let session = able(&sidecar).session;
    let (plain, stranger) = (open(&sidecar, 0), open(&sidecar, 1));
    let ask = json!({"name": "ask", "arguments": {"method": "roots/list"}});
    // A client that has said nothing of roots.
    let words = said(&plain, "ask", ask["arguments"].clone());
    assert!(words.contains("does not understand"), "{words}");
    // One that has.
    let able = |id: u32| {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": ask});
        let mut stream = connect(sidecar.mcp);
        Request::post(body.to_string()).key("key-a").session(&session).write(&mut stream);
        stream
    };
    let mut reader = BufReader::new(able(1));
    Reply::read_head(&mut reader).unwrap();
    let mut next = || loop {
        let event = String::from_utf8(read_chunk(&mut reader).unwrap().unwrap()).unwrap();
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or_default();
        if !data.is_empty() {
            return serde_json::from_str::<Value>(data).unwrap();
        }
    };
    let id = next()["id"].clone();
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": [{"uri": "file:///1"}]}}).to_string();
    // Nobody answers for another.
    assert_eq!(stranger.request(answer.replace("///1", "///2")).send(sidecar.mcp).status, 202);
    assert_eq!(Request::post(answer).key("key-a").session(&session).send(sidecar.mcp).status, 202);
    assert_eq!(text(&next()), r#"{"roots": [{"uri": "file:///1"}]}"#);
    // While another call is under way it could be either's.
    let other = listen(&stranger);
    under_way(&sidecar, 1.0);
    let reply = Reply::on(able(2));
    assert!(text(&reply.message()).contains("nobody knows whose client is meant"), "{}", reply.text());
    drop(other);
}

/// Nor where one of those who share it listens: the question could be about any of them.
#[test]
fn nobody_is_asked_outside_of_a_call_where_sessions_share_a_process() {
    for isolation in [Isolation::Principal, Isolation::Shared] {
        let (_shim, sidecar) = shared(&config(isolation, 1), &[], &[]);
        let client = able(&sidecar);
        let mut stream = Events::open(&client.get(), sidecar.mcp);
        said(&client, "ask-later", json!({"method": "roots/list"}));
        eventually("it is told so", || {
            sidecar.server_log().contains("no call is under way in which the client could be asked")
        });
        eventually("it has ended", || sidecar.metric("longshore_processes") == 1.0);
        say(&client, "notifications/tools/list_changed", json!({}));
        assert_eq!(stream.next().unwrap().message()["method"], "notifications/tools/list_changed");
    }
}

/// The process may be busy with it still, so what it asks, or logs, could be about that call, and not the one that is
/// under way. Where it could only be the same caller's, it does no harm. Whether it answers the call or not.
#[test]
fn a_call_that_was_given_up_makes_it_unclear_who_is_meant() {
    const HANGS: (&str, &str) = ("hang", "the call was cancelled by its client");
    const YIELDS: (&str, &str) = ("yield", "Request cancelled");
    for (isolation, (tool, ends), goes_on) in [
        (Isolation::Principal, HANGS, true),
        (Isolation::Shared, HANGS, false),
        (Isolation::Shared, YIELDS, false),
    ] {
        let (_shim, sidecar) = shared(&config(isolation, 1), &[], &[]);
        let (client, other) = (able(&sidecar), open(&sidecar, 0));
        client.ask("logging/setLevel", json!({"level": "debug"}));
        let logged = || {
            let words = json!({"method": "notifications/message", "params": {"level": "error", "data": 1}});
            let saying = client.message("tools/call", &json!({"name": "say", "arguments": words}));
            client.request(saying).send(sidecar.mcp).text().contains("notifications/message")
        };
        let question = json!({"method": "roots/list"});
        assert!(logged(), "{isolation:?}");
        is_asked(&client);
        let given_up = other.begin(&json!({"name": tool}));
        under_way(&sidecar, 1.0);
        assert_eq!(other.cancel(1).status, 202);
        let reply = Reply::on(given_up);
        assert_eq!(error(&reply.message()), ends);
        assert_eq!(logged(), goes_on, "{isolation:?} {tool}");
        if goes_on {
            is_asked(&client);
        } else {
            let refused = said(&client, "ask", question.clone());
            assert!(refused.contains("nobody knows whose client is meant"), "{refused}");
        }
    }
}

/// A process may go on with a call that it has answered: what it asks or logs then could be that one's, though another's is
/// the only one under way.
#[test]
fn what_a_call_leaves_behind_is_not_taken_for_anothers() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (client, other) = (able(&sidecar), open(&sidecar, 1));
    client.ask("logging/setLevel", json!({"level": "debug"}));
    // To look at what there is leaves nothing behind.
    other.ask("tools/list", json!({}));
    is_asked(&client);
    let words = json!({"method": "notifications/message", "params": {"level": "error", "data": 1}});
    for (whose, heard) in [(&open(&sidecar, 0), 1), (&other, 0)] {
        let stream = listen(&client);
        under_way(&sidecar, 1.0);
        assert_eq!(said(whose, "say-after", words.clone()), "soon");
        release(whose);
        assert_eq!(events(stream).len(), heard);
    }
    let refused = said(&client, "ask", json!({"method": "roots/list"}));
    assert!(refused.contains("nobody knows whose client is meant"), "{refused}");
    let stream = listen(&client);
    under_way(&sidecar, 1.0);
    said(&other, "ask-later", json!({"method": "roots/list"}));
    assert_eq!(events(stream), Vec::<Value>::new());
    // Another process is busy with nothing.
    is_asked(&client);
}

fn is_asked(client: &Client<'_>) {
    let mut stream = client.stream("ask", json!({"method": "roots/list"}));
    let asked = stream.next().unwrap().message();
    assert_eq!(asked["method"], "roots/list", "{asked}");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
    assert_eq!(client.request(answer.to_string()).send(client.sidecar.mcp).status, 202);
    assert_eq!(text(&stream.next().unwrap().message()), r#"{"roots": []}"#);
}

/// A session of a client that can be asked for its roots.
fn able(sidecar: &Sidecar) -> Client<'_> {
    Client::with_capabilities(sidecar, Some(KEYS[0].1), "2025-11-25", &json!({"roots": {}}))
}
