//! Servers whose own stream ends again and again, or never comes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;

use super::{call, request, text};
use crate::harness::{Events, Gate, Scripted, Sidecar, config, eventually, scripted};

/// Listens until the server says that its tools have changed.
fn hears_of_a_change(sidecar: &Sidecar) {
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut events = Events::open(&request("l", "subscriptions/listen", params, &json!({})), sidecar.mcp);
    events.patience(Duration::from_secs(60));
    let methods: Vec<_> = (0..2).map(|_| events.next().unwrap().message()["method"].clone()).collect();
    assert_eq!(
        methods,
        ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"],
        "more polls than there are tries"
    );
}

/// 66: a server may end its stream as soon as it has numbered something, and have it asked for again.
#[test]
fn r066_a_server_that_has_its_stream_asked_for_again_and_again_keeps_its_session() {
    let server = Scripted::offering(json!({"tools": {"listChanged": true}}), |request, stream| {
        if request.method != "GET" {
            let result = json!({"content": [{"type": "text", "text": "done"}], "tools": []});
            return scripted::reply(stream, request, &result);
        }
        let last = request.headers.iter().find(|(name, _)| name == "last-event-id");
        let number = last.map_or(0, |(_, id)| id.parse::<u32>().unwrap_or_default()) + 1;
        let mut event = format!("id: {number}\nretry: 60\ndata: \n\n");
        if number == 14 {
            let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            event += &format!("data: {told}\n\n");
        }
        scripted::events(stream, &[&event]);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    hears_of_a_change(&sidecar);
    assert_eq!(text(&call("x", json!({}), &json!({})).send(sidecar.mcp)), "done");
    assert_eq!(server.seen("initialize").len(), 1, "one session for all of this");
}

/// 66: the next stream goes on after the last event that there was, also where the one before brought none.
#[test]
fn r066_a_stream_that_brings_nothing_keeps_the_place_of_the_one_before() {
    let server = Scripted::offering(json!({"tools": {"listChanged": true}}), |request, stream| {
        if request.method != "GET" {
            let result = json!({"content": [{"type": "text", "text": "done"}], "tools": []});
            return scripted::reply(stream, request, &result);
        }
        static POLLS: AtomicU32 = AtomicU32::new(0);
        let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        match POLLS.fetch_add(1, Ordering::Relaxed) {
            0 => scripted::events(stream, &["id: first\nretry: 60\ndata: \n\n"]),
            14 => scripted::events(stream, &[&format!("data: {told}\n\n")]),
            _ => scripted::events(stream, &[]),
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    hears_of_a_change(&sidecar);
    let polls = server.seen("GET");
    for poll in &polls[1..15] {
        let last = poll.headers.iter().find(|(name, _)| name == "last-event-id");
        assert_eq!(last.map(|(_, id)| id.as_str()), Some("first"));
    }
}

/// 66: where there was a stream and there is none any more, the server may be another one. Who listens has to know.
#[test]
fn r066_who_listens_hears_that_there_is_no_stream_any_more() {
    let ends = Gate::default();
    let (gate, times) = (ends.clone(), AtomicU32::new(0));
    let server = Scripted::offering(json!({"tools": {"listChanged": true}}), move |request, stream| {
        if request.method != "GET" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        if times.fetch_add(1, Ordering::SeqCst) > 0 {
            return scripted::no_stream(stream);
        }
        scripted::begin_events(stream);
        gate.pass();
        scripted::chunk(stream, "");
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut events = Events::open(&request("l", "subscriptions/listen", params, &json!({})), sidecar.mcp);
    assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    ends.open();
    events.patience(Duration::from_secs(10));
    while let Some(last) = events.try_any().expect("it ends") {
        assert!(last.data.is_empty() || last.message()["id"] == "l", "{last:?}");
    }
    assert_eq!(server.seen("GET").len(), 2);
}

/// Calls need no stream beside their own.
#[test]
fn a_server_that_never_gives_its_stream_keeps_its_session_where_nobody_listens() {
    let server = Scripted::offering(json!({"tools": {}}), |request, stream| {
        if request.method == "GET" {
            return scripted::json_with(stream, 503, "", "{}");
        }
        let result = json!({"content": [{"type": "text", "text": "done"}], "tools": []});
        scripted::reply(stream, request, &result);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let calls = || assert_eq!(text(&call("x", json!({}), &json!({"roots": {}})).send(sidecar.mcp)), "done");
    calls();
    let polls = || server.seen("GET").len();
    eventually("it is asked for often", || polls() >= 9);
    // Once it is given up, calls begin anew to ask for it.
    let before = polls();
    eventually("another call asks for it", || {
        calls();
        polls() > before
    });
    assert_eq!(server.seen("initialize").len(), 1, "all in one session");
}
