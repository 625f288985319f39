//! Discovery, lists and calls, and what a server says beside them.

use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::{LOG_LEVEL, SERVER_INFO, call, is_error, request, roots, text};
use crate::harness::http::connect;
use crate::harness::peer::everything;
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Events, Gate, Reply, Scripted, Sidecar, config, eventually, modern, scripted};

/// 36, 34, 35: discovery and lists of a server that has neither.
#[test]
fn r036_a_server_with_a_handshake_is_discovered_and_listed() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let nothing = json!({});
    let reply = request("d", "server/discover", json!({}), &nothing).send(sidecar.mcp);
    let message = reply.message();
    assert_eq!((reply.status, &message["id"]), (200, &json!("d")), "{message}");
    let result = &message["result"];
    let served = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
    assert_eq!(result["supportedVersions"], json!(served), "what clients may speak, not the server");
    assert_eq!(reply.header("mcp-session-id"), None, "30: that is between the sidecar and its server");
    assert_eq!(result["resultType"], "complete");
    assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string(), "{message}");
    assert_eq!(result["_meta"][SERVER_INFO]["name"], "mcp-servers/everything");
    assert!(result["capabilities"]["tools"].is_object() && result["capabilities"].get("tasks").is_none());
    for (method, list) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let message = request(7, method, json!({}), &nothing).send(sidecar.mcp).message();
        let result = &message["result"];
        assert!(!result[list].as_array().unwrap().is_empty(), "{message}");
        assert_eq!((&result["resultType"], &message["id"]), (&json!("complete"), &json!(7)));
        assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string(), "{message}");
        assert_eq!(result["_meta"][SERVER_INFO]["name"], "mcp-servers/everything");
    }
    assert_eq!(text(&call("echo", json!({"message": "m"}), &nothing).send(sidecar.mcp)), "Echo: m");
    let missing = request(3, "resources/read", json!({"uri": "demo://nowhere"}), &nothing).send(sidecar.mcp);
    is_error(&missing, 200, -32602);
    for method in ["ping", "initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let reply = request("x", method, json!({}), &nothing).send(sidecar.mcp);
        assert_eq!(reply.message()["id"], "x");
        is_error(&reply, 404, -32601);
    }
}

/// 68: the same ids and tokens at the same time, over one process and over several connections.
#[test]
fn r068_calls_of_several_clients_are_never_confused() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let mcp = sidecar.mcp;
    let calls: Vec<_> = (0..12)
        .map(|number| {
            std::thread::spawn(move || {
                let who = format!("client {number}");
                let params = json!({
                    "name": "who", "arguments": {"who": who, "steps": 5, "seconds": 0.2},
                    "_meta": {"progressToken": "t"},
                });
                let reply = request("same", "tools/call", params, &json!({})).send(mcp);
                let events: Vec<Value> =
                    reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
                let (answer, reports) = events.split_last().unwrap();
                assert_eq!(answer["id"], "same");
                assert_eq!(answer["result"]["content"][0]["text"], json!(who));
                assert_eq!(reports.len(), 5);
                for report in reports {
                    assert_eq!(report["params"]["progressToken"], "t");
                    assert_eq!(report["params"]["message"], json!(who));
                }
            })
        })
        .collect();
    for call in calls {
        call.join().unwrap();
    }
    assert_eq!(_shim.processes().len(), 2, "one for the sidecar itself, and one for all of them");
}

/// 39, 74: the server is told the level, and each call hears its own messages from that level on.
#[test]
fn r074_log_messages_reach_the_call_that_asked_for_them() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let say = |level: Option<&str>, said: &str| {
        let mut params = json!({
            "name": "say", "arguments": {
                "method": "notifications/message", "params": {"level": said, "data": "d"}},
        });
        if let Some(level) = level {
            params["_meta"] = json!({LOG_LEVEL: level});
        }
        request(1, "tools/call", params, &json!({})).send(sidecar.mcp)
    };
    let heard = say(Some("info"), "warning");
    let events: Vec<Value> =
        heard.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!((&events[0]["method"], events.len()), (&json!("notifications/message"), 2), "{events:?}");
    for (level, said) in [(None, "emergency"), (Some("error"), "warning")] {
        let reply = say(level, said);
        assert_eq!(reply.header("content-type"), Some("application/json"), "{level:?} {}", reply.text());
        assert_eq!(text(&reply), "said");
    }
    let mut state = json!({"name": "state", "arguments": {}});
    state["_meta"] = json!({LOG_LEVEL: "debug"});
    let state = text(&request(1, "tools/call", state, &json!({})).send(sidecar.mcp));
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["level"], "debug");
}

/// However many there are, and though the answer comes in one piece with them.
#[test]
fn r074_no_log_message_of_a_process_is_lost() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    for (times, token) in [(40, None), (1, Some("t"))] {
        let mut params = json!({"name": "log", "arguments": {"times": times}, "_meta": {LOG_LEVEL: "debug"}});
        if let Some(token) = token {
            params["_meta"]["progressToken"] = json!(token);
        }
        let events = Events::open(&request(1, "tools/call", params, &json!({})), sidecar.mcp).all();
        let methods = events.iter().map(|event| event.message()["method"].as_str().map(str::to_owned));
        let logged = methods.filter(|method| method.as_deref() == Some("notifications/message"));
        assert_eq!((logged.count(), events.len()), (times, times + 1 + token.iter().count()));
    }
}

/// A process does not say which call it speaks of, so what could be about any of several is about none.
#[test]
fn what_nobody_knows_is_told_in_no_other_call() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let (nothing, mcp) = (json!({}), sidecar.mcp);
    let heard = |reply: Reply| reply.text().matches(r#""com.example/x""#).count();
    let say = json!({"method": "com.example/x", "params": {}});
    for can in [&nothing, &roots()] {
        assert_eq!(heard(call("say", say.clone(), can).send(mcp)), 1, "it is the only call");
    }

    let count = || text(&call("count", json!({}), &nothing).send(mcp)).parse::<u32>().unwrap();
    let mut next = count() + 1;
    let older = call("wait", json!({"says": "com.example/x"}), &nothing);
    let older = std::thread::spawn(move || older.send(mcp));
    eventually("the server has it", || {
        let is_there = count() > next;
        next += 1;
        is_there
    });
    assert_eq!(heard(call("release", json!({}), &nothing).send(mcp)), 0, "it was said of another one");
    assert_eq!(heard(older.join().unwrap()), 0);
}

/// 41: the server is told that nobody waits any more.
#[test]
fn r041_a_client_that_goes_away_has_cancelled_at_a_server_with_sessions() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["frank"]), &[]);
    let mut stream = connect(sidecar.mcp);
    call("hang", json!({}), &json!({})).write(&mut stream);
    eventually("the call is under way", || sidecar.metric("longshore_calls") == 1.0);
    // The server has begun with it when it answers something that came later.
    assert_eq!(text(&call("echo", json!({"text": "t"}), &json!({})).send(sidecar.mcp)), "t");
    drop(stream);
    eventually("the call is over", || sidecar.metric("longshore_calls") == 0.0);
    eventually("the server has heard it", || sidecar.server_log().contains("cancelled"));
}

#[test]
fn a_slow_call_reports_its_progress_under_its_own_token() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let params = json!({
        "name": "trigger-long-running-operation", "arguments": {"duration": 0.5, "steps": 5},
        "_meta": {"progressToken": 77},
    });
    let mut events = Events::open(&request("p", "tools/call", params, &json!({})), sidecar.mcp);
    events.patience(Duration::from_secs(20));
    for step in 1..=5 {
        let report = events.next().unwrap().message();
        assert_eq!(report["params"], json!({"progress": step, "total": 5, "progressToken": 77}));
    }
    let answer = events.next().unwrap().message();
    assert_eq!((&answer["id"], &answer["result"]["resultType"]), (&json!("p"), &json!("complete")));
    assert!(events.next().is_none());
    assert_eq!(modern::REVISION, "2026-07-28");
}

/// Outside of calls nobody asks for what nobody knows.
#[test]
fn what_nobody_knows_passes_in_calls_alone() {
    let note = |method: &str| {
        let note = json!({"jsonrpc": "2.0", "method": method, "params": {"a": 1}});
        format!("data: {note}\n\n")
    };
    let server = Scripted::offering(json!({"tools": {"listChanged": true}}), move |request, stream| {
        if request.method == "GET" {
            scripted::begin_events(stream);
            scripted::chunk(stream, &note("com.example/done"));
            scripted::chunk(stream, &note("notifications/tools/list_changed"));
            return scripted::until_closed(stream);
        }
        let result = json!({"tools": [], "content": []});
        let answer = format!("data: {}\n\n", scripted::reply_to(request, &result));
        scripted::events(stream, &[&note("com.example/done"), &answer]);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut events = Events::open(&request("l", "subscriptions/listen", wanted, &json!({})), sidecar.mcp);
    for expected in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
        assert_eq!(events.next().unwrap().message()["method"], expected);
    }
    let events = call("t", json!({}), &json!({})).send(sidecar.mcp).events();
    let events: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!((&events[0]["method"], events.len()), (&json!("com.example/done"), 2), "{events:?}");
}

/// 68: many servers report on the stream of the session, and not on that of the call.
#[test]
fn r068_progress_beside_a_call_reaches_the_call() {
    let (gate, listened) = (Gate::default(), Listened::default());
    let waits = gate.clone();
    let server = Scripted::of_with("2025-06-18", json!({"tools": {}}), move |request, client| {
        if request.method == "GET" {
            return listened.hears(client);
        }
        let message = scripted::message(request);
        if message["method"] == "tools/call" {
            let token = &message["params"]["_meta"]["progressToken"];
            let report = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": token, "progress": 1,
            }});
            scripted::say(&mut listened.stream(), &report);
            waits.pass();
        }
        scripted::reply(client, request, &json!({"tools": [], "content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let params = json!({"name": "t", "arguments": {}, "_meta": {"progressToken": "t"}});
    let mut events = Events::open(&request("c", "tools/call", params, &json!({})), sidecar.mcp);
    let report = events.next().unwrap().message();
    assert_eq!(report["params"], json!({"progressToken": "t", "progress": 1}), "{report}");
    gate.open();
    assert!(events.next().unwrap().message()["result"].is_object());
    assert!(events.next().is_none());
}

/// The stream on which a client's session hears what belongs to no call. The call may be there before it.
#[derive(Default)]
struct Listened(Mutex<Option<TcpStream>>);

impl Listened {
    fn hears(&self, client: &mut TcpStream) {
        scripted::begin_events(client);
        *self.0.lock().unwrap() = Some(client.try_clone().unwrap());
        scripted::until_closed(client);
    }

    fn stream(&self) -> TcpStream {
        let stream = || self.0.lock().unwrap().as_ref().map(|stream| stream.try_clone().unwrap());
        eventually("it is listened to", stream)
    }
}

/// However much of it comes in one piece.
#[test]
fn what_a_server_says_beside_the_only_call_is_heard_in_it() {
    const MANY: usize = 200;
    let (gate, listened) = (Gate::default(), Listened::default());
    let waits = gate.clone();
    let server = Scripted::offering(json!({"tools": {}, "logging": {}}), move |request, client| {
        if request.method == "GET" {
            return listened.hears(client);
        }
        if scripted::method_of(request) == "tools/call" {
            let said = (0..MANY).map(|number| {
                let params = json!({"level": "info", "data": number});
                let said = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
                format!("data: {said}\n\n")
            });
            scripted::chunk(&mut listened.stream(), &said.collect::<String>());
            waits.pass();
        }
        scripted::reply(client, request, &json!({"tools": [], "content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let params = json!({"name": "t", "arguments": {}, "_meta": {LOG_LEVEL: "debug"}});
    let mut events = Events::open(&request("c", "tools/call", params, &json!({})), sidecar.mcp);
    for number in 0..MANY {
        assert_eq!(events.next().unwrap().message()["params"]["data"], number);
    }
    gate.open();
    assert!(events.next().unwrap().message()["result"].is_object());
}
