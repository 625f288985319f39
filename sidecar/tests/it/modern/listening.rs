//! Listening: how long it goes on, who may, and how much of it there is at once.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::harness::config::{callers, keys, rule};
use crate::harness::{
    Events, Files, Gate, Request, Scripted, Sessionless, Sidecar, config, eventually, modern, scripted,
};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// A server that acknowledges, tells of one change, and goes on listening.
fn server() -> Scripted {
    let gate = Gate::default();
    gate.open();
    server_behind(gate)
}

/// The same, once this is open.
fn server_behind(gate: Gate) -> Scripted {
    Scripted::of_both(json!({}), move |request, stream| {
        gate.pass();
        tell(request, stream);
    })
}

fn tell(request: &Request, stream: &mut TcpStream) {
    let id = &scripted::message(request)["id"];
    let notification = |method: &str| json!({"jsonrpc": "2.0", "method": method, "params": {"notifications": {}, "_meta": {SUBSCRIPTION: id}}});
    scripted::begin_events(stream);
    for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
        scripted::say(stream, &notification(method));
    }
    scripted::until_closed(stream);
}

fn listen(id: &str) -> Request {
    modern::request(id, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}))
}

/// 42: acknowledged first, and ended in order when the sidecar ends.
#[test]
fn r042_a_subscription_goes_on_until_the_end() {
    let server = Sessionless::start(json!({"tools": {"listChanged": true}}), json!([]), tell);
    let mut config = config(server.port);
    // What has no end of its own is not held to the time of calls.
    config.limits.request_timeout_ms = 2_000;
    let sidecar = Sidecar::start(&config).ready();
    let mut events = Events::open(&listen("l"), sidecar.mcp);
    assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
    events.patience(Duration::from_secs(3));
    assert!(events.try_any().is_err(), "it goes on");
    assert_eq!(sidecar.metric("longshore_calls"), 0.0, "it is no call");
    sidecar.signal(rustix::process::Signal::TERM);
    events.patience(Duration::from_secs(20));
    let last = events.any().unwrap();
    assert!(last.id.is_empty() && last.retry.is_none(), "13: nobody comes back for the rest: {last:?}");
    let end = last.message();
    let meta = json!({SUBSCRIPTION: "l", SERVER_INFO: {"name": "modern", "version": "1"}});
    assert_eq!(
        end,
        json!({"jsonrpc": "2.0", "id": "l", "result": {"resultType": "complete", "_meta": meta}}),
        "35: it says who the server is"
    );
    assert!(events.any().is_none());
    let line = sidecar.audit(|line| line["method"] == "subscriptions/listen");
    assert_eq!((&line["status"], &line["reason"]), (&json!(200), &json!(null)));
}

/// 42: where nobody else serves it goes on while there is anything to wait for: who comes back would find nobody.
#[test]
fn r042_a_subscription_stays_where_there_is_nobody_else() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let server = Scripted::of_both(json!({}), move |request, stream| {
        if scripted::method_of(request) == "tools/call" {
            waiting.pass();
            return scripted::reply(stream, request, &json!({"resultType": "complete"}));
        }
        tell(request, stream);
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--drain-minimum-ms", "300"]).ready();
    let mut events = Events::open(&listen("l"), sidecar.mcp);
    for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
        assert_eq!(events.next().unwrap().message()["method"], method);
    }
    let call = modern::request(1, "tools/call", json!({"name": "t"}));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| call.send(sidecar.mcp).status);
        eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
        sidecar.signal(rustix::process::Signal::TERM);
        eventually("it ends", || sidecar.get("/readyz").status != 200);
        events.patience(Duration::from_secs(2));
        assert!(events.try_any().is_err(), "it goes on");
        gate.open();
        assert_eq!(call.join().unwrap(), 200);
    });
    events.patience(Duration::from_secs(10));
    assert_eq!(events.next().unwrap().message()["result"]["resultType"], "complete");
    assert!(events.next().is_none());
}

/// 42: acknowledged first, also where it ends before the server has said anything.
#[test]
fn r042_a_subscription_that_ends_at_once_is_acknowledged_before() {
    let server = Scripted::of_both(json!({}), |_, stream| scripted::stays_open(stream));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut events = Events::open(&listen("l"), sidecar.mcp);
    sidecar.signal(rustix::process::Signal::TERM);
    let first = events.next().unwrap().message();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    assert_eq!(first["params"], json!({"notifications": {}, "_meta": {SUBSCRIPTION: "l"}}));
    let meta = json!({SUBSCRIPTION: "l"});
    assert_eq!(
        events.next().unwrap().message(),
        json!({"jsonrpc": "2.0", "id": "l", "result": {"resultType": "complete", "_meta": meta}}),
        "the server has not said who it is"
    );
    assert!(events.next().is_none());
}

/// 42: and bounded, for each principal.
#[test]
fn r042_subscriptions_are_counted() {
    let server = server();
    let mut config = config(server.port);
    (config.sessions.total, config.sessions.per_principal) = (3, 2);
    let sidecar = Sidecar::start(&config);
    let open = || Events::open(&listen("l"), sidecar.mcp);
    let held = [open(), open()];
    assert!(held.iter().all(|events| events.status == 200));
    let refused = listen("m").send(sidecar.mcp);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(
        (&refused.message()["id"], &refused.message()["error"]["code"]),
        (&json!("m"), &json!(-32603))
    );
    drop(held);
    eventually("a place is free", || open().status == 200);
}

/// To hear of a resource takes the right to read it.
#[test]
fn only_what_may_be_read_is_listened_to() {
    let server = server();
    let mut config = config(server.port);
    config.access = vec![rule("some", &[], &[], &["memo://a"])];
    let sidecar = Sidecar::start(&config);
    let request = |uri: &str| {
        modern::request(
            "l",
            "subscriptions/listen",
            json!({"notifications": {"resourceSubscriptions": ["memo://a", uri]}}),
        )
    };
    assert_eq!(Events::open(&request("memo://a"), sidecar.mcp).status, 200);
    let refused = request("memo://b").send(sidecar.mcp).message();
    assert_eq!(refused["error"]["code"], -32602);
    assert_eq!(refused["error"]["data"], json!({"uri": "memo://b"}));
    for (params, words) in [
        (json!({}), "is missing"),
        (json!({"notifications": null}), "is missing"),
        (json!({"notifications": {"resourceSubscriptions": "memo://a"}}), "is not usable"),
    ] {
        let none = modern::request("l", "subscriptions/listen", params).send(sidecar.mcp).message();
        assert_eq!(none["error"]["code"], -32602);
        assert!(none["error"]["message"].as_str().unwrap().contains(words), "{none}");
    }
}

/// A key that was revoked keeps nothing open.
#[test]
fn a_subscription_ends_with_the_right_to_it() {
    let server = server();
    let files = std::sync::Arc::new(Files::new());
    let config = config(server.port);
    files.write_with_keys(&config, &callers());
    let sidecar = Sidecar::with(files.clone(), &[]).loaded();
    let mut both = ["key-a", "key-b"].map(|key| Events::open(&listen("l").key(key), sidecar.mcp));
    for events in &mut both {
        events.next().unwrap();
        events.next().unwrap();
    }
    let digest = files.write_with_keys(&config, &keys(&[("bob", "key-b")]));
    sidecar.runs(&digest);
    let [mut alice, mut bob] = both;
    assert_eq!(alice.next().unwrap().message()["result"]["resultType"], "complete");
    assert!(alice.next().is_none());
    bob.patience(Duration::from_millis(300));
    assert!(bob.try_any().is_err(), "bob's goes on");
}

/// 42: with its own mark, and of what it asked for.
#[test]
fn r042_a_subscription_hears_that_other_rules_leave_other_lists() {
    let capabilities = json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}});
    let server = Sessionless::start(capabilities, json!([]), tell);
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let mut events = Events::open(&listen("l"), sidecar.mcp);
    for _ in 0..2 {
        events.next().unwrap();
    }
    config.access = vec![rule("some", &["a"], &[], &[])];
    sidecar.runs(&sidecar.files.write(&config));
    let params = json!({"_meta": {SUBSCRIPTION: "l"}});
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params});
    assert_eq!(events.next().unwrap().message(), changed);
    events.patience(Duration::from_millis(300));
    assert!(events.try_any().is_err(), "once");
}

/// 42: also of rules that changed before the server acknowledged it, once it has.
#[test]
fn r042_a_subscription_hears_of_rules_that_were_others_before_it_was_acknowledged() {
    let gate = Gate::default();
    let held = gate.clone();
    let server =
        Sessionless::start(json!({"tools": {"listChanged": true}}), json!([]), move |request, stream| {
            let params =
                json!({"notifications": {}, "_meta": {SUBSCRIPTION: scripted::message(request)["id"]}});
            scripted::begin_events(stream);
            held.pass();
            let method = "notifications/subscriptions/acknowledged";
            scripted::say(stream, &json!({"jsonrpc": "2.0", "method": method, "params": params}));
            scripted::until_closed(stream);
        });
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let mut events = Events::open(&listen("l"), sidecar.mcp);
    config.access = vec![rule("some", &["a"], &[], &[])];
    sidecar.runs(&sidecar.files.write(&config));
    gate.open();
    for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
        assert_eq!(events.next().unwrap().message()["method"], method);
    }
}

/// Also one that is revoked while the server takes its time.
#[test]
fn a_subscription_ends_that_may_not_begin_any_more() {
    let gate = Gate::default();
    let server = server_behind(gate.clone());
    let files = std::sync::Arc::new(Files::new());
    let config = config(server.port);
    files.write_with_keys(&config, &callers());
    let sidecar = Sidecar::with(files.clone(), &[]).loaded();
    let (request, mcp) = (listen("l").key("key-a"), sidecar.mcp);
    let opened = std::thread::spawn(move || Events::open(&request, mcp));
    eventually("the server is asked", || !server.seen("subscriptions/listen").is_empty());
    let digest = files.write_with_keys(&config, &keys(&[("bob", "key-b")]));
    sidecar.runs(&digest);
    gate.open();
    let heard = opened.join().unwrap().all();
    assert_eq!(heard.last().unwrap().message()["result"]["resultType"], "complete", "{heard:?}");
}

/// What is listened to is kept for as long as somebody listens, whoever the server is.
#[test]
fn what_is_listened_to_is_held_within_a_bound() {
    let server = server();
    let mut config = config(server.port);
    config.access = vec![rule("all", &[], &[], &["*"])];
    let sidecar = Sidecar::keyed(&config, &callers());
    let listen = |count: usize, length: usize| {
        let width = length - 2;
        let uris: Vec<String> = (0..count).map(|number| format!("a:{number:0>width$}")).collect();
        modern::request(
            "l",
            "subscriptions/listen",
            json!({"notifications": {"resourceSubscriptions": uris}}),
        )
    };
    // A bit more than the half of what one principal may have.
    let large = |key: &str| listen(1020, 4096).key(key);
    let first = Events::open(&large("key-a"), sidecar.mcp);
    assert_eq!(first.status, 200);
    assert_eq!(Events::open(&large("key-a"), sidecar.mcp).status, 503);
    assert_eq!(sidecar.audit(|line| line["status"] == 503)["reason"], "too many bytes kept");
    // There is room for others, and again when it is over.
    assert_eq!(Events::open(&large("key-b"), sidecar.mcp).status, 200);
    drop(first);
    eventually("there is room again", || Events::open(&large("key-a"), sidecar.mcp).status == 200);
    let long = listen(1, 4097).key("key-a").send(sidecar.mcp).message();
    assert_eq!(long["error"]["code"], -32602, "{long}");
}
