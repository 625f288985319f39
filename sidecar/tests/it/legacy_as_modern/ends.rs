//! Ends that a client does not wait for, or never hears of.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{LOG_LEVEL, again, asked, asking, call, is_error, listen, request, roots, text};
use crate::harness::config::idle;
use crate::harness::http::connect;
use crate::harness::scripted::{Greeting, UPSTREAM_SESSION};
use crate::harness::{Events, Files, Gate, Scripted, Sidecar, config, eventually, scripted};

/// 59: a client that goes away during the handshake leaves no session behind, and nothing is cancelled.
#[test]
fn r059_a_session_that_was_opened_for_nobody_is_ended() {
    let gate = Gate::default();
    let server = Scripted::greeting(&gate, |request, stream| {
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let sidecar = Sidecar::start(&idle(config(server.port), 400)).ready();
    let mut stream = connect(sidecar.mcp);
    call("t", json!({}), &json!({})).write(&mut stream);
    eventually("the handshake is under way", || server.seen("initialize").len() == 1);
    drop(stream);
    sidecar.audit(|line| line["method"] == "tools/call" && line["status"].is_null());
    gate.open();
    eventually("the server is told of the end", || server.seen("DELETE").len() == 1);
    assert!(server.seen("tools/call").is_empty() && server.seen("notifications/cancelled").is_empty());
    let reply = call("t", json!({}), &json!({})).send(sidecar.mcp);
    assert_eq!((reply.status, server.seen("initialize").len()), (200, 2), "{}", reply.text());
}

/// Nor is anybody held up by it who could have shared the session: the server may never answer.
#[test]
fn a_handshake_whose_client_has_gone_holds_up_nobody() {
    let gate = Gate::default();
    let server = Scripted::greeting(&gate, |request, stream| {
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut gone = connect(sidecar.mcp);
    call("t", json!({}), &json!({})).write(&mut gone);
    eventually("the handshake is under way", || server.seen("initialize").len() == 1);
    let mcp = sidecar.mcp;
    let waits = std::thread::spawn(move || call("t", json!({}), &json!({})).send(mcp));
    eventually("both are under way", || sidecar.metric("longshore_calls") == 2.0);
    assert_eq!(server.seen("initialize").len(), 1, "they would share it");
    drop(gone);
    eventually("the other one has its own", || server.seen("initialize").len() == 2);
    gate.open();
    let reply = waits.join().unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// The head of an answer says that the server has begun a session, whatever becomes of the rest.
#[test]
fn a_handshake_that_is_answered_by_halves_or_with_nonsense_leaves_no_session() {
    for greeting in [Greeting::BrokenOff, Greeting::Nonsense] {
        let server = Scripted::greeting_so(greeting, Some("2025-06-18"));
        let sidecar = Sidecar::start(&config(server.port)).ready();
        is_error(&call("t", json!({}), &json!({})).send(sidecar.mcp), 200, -32603);
        let told = eventually("the server is told", || server.seen("DELETE").pop());
        assert_eq!(told.value("mcp-session-id"), Some(UPSTREAM_SESSION));
        assert_eq!(told.value("mcp-protocol-version"), Some("2025-06-18"));
    }
}

/// A server that takes its time to begin a session is not asked for another one by each who has not waited for it, as long
/// as those take all that one may have: who comes then waits for what is under way.
#[test]
fn handshakes_that_nobody_waits_for_are_the_next_ones() {
    let gate = Gate::default();
    let server = Scripted::greeting(&gate, |request, stream| {
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let mut limited = config(server.port);
    limited.sessions.per_principal = 2;
    let sidecar = Sidecar::start(&limited).ready();
    for count in [1, 2] {
        let mut stream = connect(sidecar.mcp);
        call("t", json!({}), &json!({})).write(&mut stream);
        eventually("the handshake is under way", || server.seen("initialize").len() == count);
        drop(stream);
        eventually("it is left alone", || sidecar.metric("longshore_calls") == 0.0);
    }
    let replies = std::thread::scope(|scope| {
        let calls = [(); 2].map(|()| scope.spawn(|| call("t", json!({}), &json!({})).send(sidecar.mcp)));
        eventually("both are there", || sidecar.metric("longshore_calls") == 2.0);
        gate.open();
        calls.map(|call| call.join().unwrap())
    });
    for reply in replies {
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    assert_eq!(server.seen("initialize").len(), 2);
}

/// What belongs to the server from before ends, so that nobody waits for it, and it is told so.
#[test]
fn another_server_ends_what_is_under_way() {
    let (before, after) = (asking(), asking());
    let files = Arc::new(Files::new());
    files.write(&idle(config(before.port), 400));
    let sidecar = Sidecar::with(files.clone(), &[]).loaded().ready();
    let (questions, state) = asked(&call("ask", json!({}), &roots()).send(sidecar.mcp));
    let mut listening = Events::open(&listen("l", json!({"toolsListChanged": true})), sidecar.mcp);
    assert_eq!(listening.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    let hanging = {
        let mcp = sidecar.mcp;
        std::thread::spawn(move || call("hang", json!({}), &json!({})).send(mcp))
    };
    eventually("both calls are there", || before.seen("tools/call").len() == 2);

    sidecar.runs(&files.write(&idle(config(after.port), 400)));
    let end = listening.next().unwrap().message();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("l"), &json!("complete")), "{end}");
    let words = is_error(&hanging.join().unwrap(), 200, -32603);
    assert!(words.contains("another MCP server is configured"), "{words}");
    eventually("the call that waited is over", || {
        let responses = json!({questions[0].0.clone(): {"roots": []}});
        let reply = again("ask", json!({}), &roots(), &state, responses).send(sidecar.mcp);
        is_error(&reply, 200, -32602).contains("does not wait any more")
    });
    eventually("the server from before is told", || {
        before.seen("notifications/cancelled").len() == 2 && before.seen("DELETE").len() == 2
    });
    eventually("the other one is called", || {
        let reply = call("echo", json!({}), &json!({})).send(sidecar.mcp);
        reply.message()["result"]["content"][0]["text"] == "echoed"
    });
    assert!(!after.seen("tools/call").is_empty());
}

/// A client that never comes back is waited for as long as is said, and not for ever.
#[test]
fn a_call_that_waits_for_its_client_expires() {
    let server = asking();
    let sidecar = Sidecar::flagged(&config(server.port), &["--answer-timeout-ms", "700"]).ready();
    let (questions, state) = asked(&call("ask", json!({}), &roots()).send(sidecar.mcp));
    let asked = Instant::now();
    eventually("the server hears that nobody waits", || server.seen("notifications/cancelled").len() == 1);
    // Its question has an answer, so that nothing of it waits there.
    let answers = server.seen("");
    assert!(answers.iter().any(|answer| scripted::message(answer)["id"] == "q"), "{answers:?}");
    // A state is good to the end of a second: of that in which the call was given up.
    eventually("its state has expired", || asked.elapsed() > Duration::from_millis(1_700));
    let responses = json!({questions[0].0.clone(): {"roots": []}});
    let reply = again("ask", json!({}), &roots(), &state, responses).send(sidecar.mcp);
    let words = is_error(&reply, 200, -32602);
    assert!(words.contains("expired"), "{words}");
    assert_eq!(text(&call("echo", json!({}), &roots()).send(sidecar.mcp)), "echoed");
}

/// What has not left for the server when its client goes does not any more, and there is nothing to be cancelled.
#[test]
fn a_call_that_is_about_to_be_made_again_is_not_made_for_a_client_that_has_gone() {
    let gate = Gate::default();
    let opens = gate.clone();
    let offers = json!({"logging": {}});
    let server = Scripted::offering(offers, move |request, stream| match &*scripted::method_of(request) {
        _ if request.method == "GET" => scripted::no_stream(stream),
        "tools/call" => {
            let visit = json!({"mode": "url", "message": "m", "url": "https://example.com/a"});
            let error = json!({"code": -32042, "message": "m", "data": {"elicitations": [visit]}});
            let id = scripted::message(request)["id"].clone();
            scripted::json(stream, &json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
        }
        method => {
            if method == "logging/setLevel" {
                opens.pass();
            }
            scripted::json(stream, &scripted::reply_to(request, &json!({"tools": []})));
        }
    });
    let sidecar = Sidecar::start(&idle(config(server.port), 400)).ready();
    let can = json!({"elicitation": {"url": {}}});
    let (questions, state) = asked(&call("t", json!({}), &can).send(sidecar.mcp));
    let params = json!({
        "name": "t", "arguments": {}, "requestState": state, "_meta": {LOG_LEVEL: "info"},
        "inputResponses": {questions[0].0.clone(): {"action": "accept"}},
    });
    let mut goes = connect(sidecar.mcp);
    request(2, "tools/call", params, &can).write(&mut goes);
    eventually("the server is told a level", || server.seen("logging/setLevel").len() == 1);
    drop(goes);
    eventually("its client has gone", || sidecar.metric("longshore_calls") == 0.0);
    gate.open();
    eventually("the session is over", || server.seen("DELETE").len() == 1);
    assert_eq!(server.seen("tools/call").len(), 1);
    assert!(server.seen("notifications/cancelled").is_empty());
}

/// A server that offers subscriptions, whose first answer to one waits for the gate and is `first`.
fn subscribing(gate: &Gate, first: serde_json::Value) -> Scripted {
    let (gate, asked) = (gate.clone(), std::sync::atomic::AtomicBool::new(false));
    Scripted::offering(json!({"resources": {"subscribe": true}}), move |request, stream| {
        let message = scripted::message(request);
        if message["method"] == "resources/subscribe" {
            let mut answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
            if !asked.swap(true, std::sync::atomic::Ordering::SeqCst) {
                gate.pass();
                answer = json!({"jsonrpc": "2.0", "id": message["id"]});
                answer.as_object_mut().unwrap().extend(first.as_object().unwrap().clone());
            }
            return scripted::json(stream, &answer.to_string());
        }
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
    })
}

/// What a server was told to tell of is taken back, also if whoever wanted it left meanwhile.
#[test]
fn a_listener_that_leaves_while_the_server_is_told_is_subscribed_to_nothing() {
    let gate = Gate::default();
    let server = subscribing(&gate, json!({"result": {}}));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut stream = connect(sidecar.mcp);
    listen("l", json!({"resourceSubscriptions": ["a:b"]})).write(&mut stream);
    eventually("the server is being told", || server.seen("resources/subscribe").len() == 1);
    drop(stream);
    sidecar.audit(|line| line["method"] == "subscriptions/listen");
    gate.open();
    eventually("it is taken back", || server.seen("resources/unsubscribe").len() == 1);
}

/// Nobody is told that a server tells of something before it has said so.
#[test]
fn a_second_listener_is_not_promised_what_the_first_one_is_refused() {
    let gate = Gate::default();
    let server = subscribing(&gate, json!({"error": {"code": -32000, "message": "not now"}}));
    let mut limited = config(server.port);
    (limited.sessions.total, limited.sessions.per_principal) = (2, 2);
    let sidecar = Sidecar::start(&limited).ready();
    let wanted = json!({"resourceSubscriptions": ["a:b"]});
    let begin = |id: &str| {
        let (request, mcp) = (listen(id, wanted.clone()), sidecar.mcp);
        std::thread::spawn(move || {
            let mut events = Events::open(&request, mcp);
            (events.status == 200).then(|| events.next().unwrap().message())
        })
    };
    let first = begin("1");
    eventually("the server is being told", || server.seen("resources/subscribe").len() == 1);
    // One of them waits with the first one, and the other one is one too many: so that one is there.
    let others = [begin("2"), begin("3")];
    eventually("both have come", || others.iter().any(|other| other.is_finished()));
    gate.open();
    let first = first.join().unwrap().unwrap();
    let second = others.into_iter().find_map(|other| other.join().unwrap()).unwrap();
    assert_eq!(first["params"]["notifications"], json!({}), "{first}");
    assert_eq!(second["params"]["notifications"], wanted, "{second}");
    assert_eq!(server.seen("resources/subscribe").len(), 2, "it was asked once for each of them");
}
