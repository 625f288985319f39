//! What goes wrong at a server with sessions, at the client, or with a session between them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{LOG_LEVEL, SERVER_INFO, SUBSCRIPTION, again, asked, call, is_error, request, text};
use crate::harness::http::connect;
use crate::harness::scripted::Greeting;
use crate::harness::{Client, Events, Gate, GoServer, Scripted, Sidecar, config, eventually, scripted};

/// 66: a server that has forgotten the session is greeted again, and the client does not notice.
#[test]
fn r066_a_session_that_the_server_has_forgotten_is_begun_again() {
    let mut server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    assert_eq!(text(&call("echo", json!({"text": "one"}), &json!({})).send(sidecar.mcp)), "one");
    server.start_again();
    eventually("it is known what the server speaks", || {
        let reply = call("echo", json!({"text": "two"}), &json!({})).send(sidecar.mcp);
        reply.message()["result"]["content"][0]["text"] == "two"
    });
}

/// 66: a server that serves no GET says so in many ways, and none of them means that it has forgotten the session. It may
/// still tell of changes, as it can nowhere else, while it answers a call.
#[test]
fn r066_a_server_without_a_stream_keeps_its_sessions() {
    for status in [404, 410, 400, 401, 403, 405, 501] {
        let can = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}});
        let server = Scripted::offering(can, move |request, stream| match &*request.method {
            "GET" => scripted::json_with(stream, status, "", "{}"),
            _ => {
                let result = json!({
                    "content": [{"type": "text", "text": "done"}],
                    "tools": [], "resources": [], "resourceTemplates": [],
                });
                let answer = scripted::reply_to(request, &result);
                if scripted::message(request)["params"]["name"] != "change" {
                    return scripted::json(stream, &answer);
                }
                let list = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                let resource = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated",
                    "params": {"uri": "a:b"}});
                let said = [list.to_string(), resource.to_string(), answer];
                let said = said.map(|message| format!("data: {message}\n\n"));
                scripted::events(stream, &said.each_ref().map(String::as_str));
            }
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["a:b"]});
        let mut listening = ["one", "two"].map(|id| {
            let params = json!({"notifications": filter});
            let mut events =
                Events::open(&request(id, "subscriptions/listen", params, &json!({})), sidecar.mcp);
            let begun = events.next().unwrap().message();
            assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{status}: {begun}");
            assert_eq!(begun["params"]["notifications"], filter, "{status}: both can come");
            for _ in 0..2 {
                assert_eq!(text(&call("x", json!({}), &json!({"roots": {}})).send(sidecar.mcp)), "done");
            }
            events
        });
        // Once for those who can be asked something, and once for those who cannot.
        assert_eq!(server.seen("initialize").len(), 2, "{status}");
        for (events, patience) in listening.iter_mut().zip([1500, 100]) {
            events.patience(Duration::from_millis(patience));
            assert!(events.try_any().is_err(), "{status}: nobody has ended it");
        }
        assert_eq!(server.seen("GET").len(), 2, "{status}: it is asked once");
        let reply = call("change", json!({}), &json!({})).send(sidecar.mcp);
        assert_eq!(text(&reply), "done", "{status}");
        assert!(!reply.text().contains("notifications/"), "{status}: that is for others");
        for (mut events, id) in listening.into_iter().zip(["one", "two"]) {
            events.patience(Duration::from_secs(20));
            for method in ["notifications/tools/list_changed", "notifications/resources/updated"] {
                let told = events.next().unwrap().message();
                let seen = (&told["method"], &told["params"]["_meta"][SUBSCRIPTION]);
                assert_eq!(seen, (&json!(method), &json!(id)), "{status}: {told}");
            }
        }
    }
}

/// 66: only a ping in it tells that a session is lost, where an answer could mean anything; a call that the server may have
/// taken is not made twice.
#[test]
fn r066_a_call_is_made_again_only_in_place_of_a_forgotten_session() {
    for (to_calls, to_pings, forgotten) in [
        (404, 200, true),
        (410, 200, true),
        (400, 404, true),
        (400, 400, true),
        (401, 401, true),
        (403, 404, true),
    ]
    .into_iter()
    .chain([200, 429, 503].map(|to_pings| (400, to_pings, false)))
    .chain([401, 403].map(|to_calls| (to_calls, 200, false)))
    {
        let server = Scripted::pinged(move |request, stream| match &*scripted::method_of(request) {
            "ping" if to_pings == 200 => scripted::reply(stream, request, &json!({})),
            "ping" => scripted::json_with(stream, to_pings, "", "{}"),
            _ => scripted::json_with(stream, to_calls, "", "{}"),
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let case = format!("{to_calls}, and {to_pings} to a ping");
        is_error(&call("x", json!({}), &json!({})).send(sidecar.mcp), 200, -32603);
        let made = if forgotten { 2 } else { 1 };
        assert_eq!(server.seen("tools/call").len(), made, "{case}");
        assert_eq!(server.seen("initialize").len(), made, "{case}");
        // A client with a session hears that it is lost, or that the call came to nothing.
        let client = Client::open(&sidecar, None);
        let reply = client.send("tools/call", json!({"name": "x"}));
        assert_eq!(reply.status, if forgotten { 404 } else { 200 }, "{case}: {}", reply.text());
    }
}

/// Also where the server takes so long to say that it knows no such session that the response has begun.
#[test]
fn a_session_that_turns_out_late_to_be_forgotten_is_begun_again_too() {
    let is_first = AtomicBool::new(true);
    let server = Scripted::start(move |request, stream| {
        if scripted::method_of(request) == "tools/call" && is_first.swap(false, Ordering::SeqCst) {
            // Longer than a response is held back for.
            std::thread::sleep(Duration::from_secs(6));
            return scripted::json_with(stream, 404, "", "{}");
        }
        let result = json!({"content": [{"type": "text", "text": "done"}], "tools": []});
        scripted::json(stream, &scripted::reply_to(request, &result));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let reply = call("x", json!({}), &json!({})).send(sidecar.mcp);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"), "{}", reply.text());
    assert_eq!(text(&reply), "done");
    assert_eq!((server.seen("initialize").len(), server.seen("tools/call").len()), (2, 2));
}

/// But no call is made twice of which its client has heard something: the server has begun with it.
#[test]
fn a_call_of_which_its_client_has_heard_is_not_made_again() {
    let gate = Gate::default();
    let (heard, beside) = (gate.clone(), Mutex::new(None));
    let server = Scripted::offering(json!({"tools": {}}), move |request, stream| {
        if request.method == "GET" {
            scripted::begin_events(stream);
            *beside.lock().unwrap() = Some(stream.try_clone().unwrap());
            // Until the other side closes.
            let _ = std::io::Read::read(stream, &mut [0]);
            return;
        }
        if scripted::method_of(request) != "tools/call" {
            return scripted::json(stream, &scripted::reply_to(request, &json!({"tools": []})));
        }
        let token = &scripted::message(request)["params"]["_meta"]["progressToken"];
        let params = json!({"progressToken": token, "progress": 1});
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        let mut open = eventually("the stream of its session is open", || beside.lock().unwrap().take());
        scripted::chunk(&mut open, &format!("data: {progress}\n\n"));
        heard.pass();
        scripted::json_with(stream, 404, "", "{}");
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let params = json!({"name": "x", "arguments": {}, "_meta": {"progressToken": "p"}});
    let mut events = Events::open(&request(1, "tools/call", params, &json!({})), sidecar.mcp);
    assert_eq!(events.next().unwrap().message()["method"], "notifications/progress");
    gate.open();
    let end = events.next().unwrap().message();
    assert_eq!(end["error"]["code"], -32603, "{end}");
    assert_eq!(server.seen("tools/call").len(), 1);
}

/// A server that says nothing to a level of log messages: calls that ask for one do not all wait for it.
#[test]
fn levels_that_a_server_never_answers_to_hold_up_one_call() {
    let can = json!({"logging": {}});
    let server = Scripted::offering(can, |request, stream| match &*scripted::method_of(request) {
        "logging/setLevel" => scripted::stays_open(stream),
        _ => {
            let result = json!({"content": [{"type": "text", "text": "done"}], "tools": []});
            scripted::reply(stream, request, &result);
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for level in ["info", "warning", "debug"] {
        let mut params = json!({"name": "x", "arguments": {}});
        params["_meta"] = json!({LOG_LEVEL: level});
        assert_eq!(text(&request(1, "tools/call", params, &json!({})).send(sidecar.mcp)), "done");
    }
    assert_eq!(server.seen("logging/setLevel").len(), 1);
}

/// A call whose client goes while the server is told a level has told it nothing, and the next one does not go before the
/// server has heard what it wants.
#[test]
fn a_level_is_told_again_where_its_first_call_was_given_up() {
    let (gate, first) = (Gate::default(), AtomicBool::new(true));
    let opens = gate.clone();
    let server = Scripted::offering(json!({"logging": {}}), move |request, stream| {
        if scripted::method_of(request) == "logging/setLevel" {
            if first.swap(false, Ordering::SeqCst) {
                return scripted::until_closed(stream);
            }
            opens.pass();
        }
        scripted::reply(stream, request, &json!({"content": [], "tools": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let call = || {
        let params = json!({"name": "x", "arguments": {}, "_meta": {LOG_LEVEL: "info"}});
        request(1, "tools/call", params, &json!({}))
    };
    let told = |times| {
        eventually("it is told", || server.seen("logging/setLevel").len() == times);
    };
    let mut given_up = connect(sidecar.mcp);
    call().write(&mut given_up);
    told(1);
    drop(given_up);
    eventually("the call is over", || sidecar.metric("longshore_calls") == 0.0);
    std::thread::scope(|scope| {
        let calls = [(); 2].map(|()| scope.spawn(|| call().send(sidecar.mcp)));
        told(2);
        std::thread::sleep(Duration::from_millis(200));
        assert!(server.seen("tools/call").is_empty(), "neither is sent before it has heard");
        gate.open();
        for call in calls {
            assert!(call.join().unwrap().message()["result"].is_object());
        }
    });
    assert_eq!((server.seen("tools/call").len(), server.seen("logging/setLevel").len()), (2, 2));
}

/// A server may have its reasons not to begin a session, and says them to who could do something about it.
#[test]
fn a_server_that_refuses_the_handshake_is_quoted() {
    let server = Scripted::greeting_so(Greeting::Refusal, Some("2025-11-25"));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for method in ["tools/call", "server/discover"] {
        let params = if method == "tools/call" { json!({"name": "x"}) } else { json!({}) };
        let words = is_error(&request(1, method, params, &json!({})).send(sidecar.mcp), 200, -32603);
        assert!(words.contains("-32000: no seat is free \u{fffd}"), "{words}");
    }
    let line = sidecar.audit(|line| line["method"] == "tools/call");
    assert_eq!(line["reason"], "server refused the handshake");
}

/// A strict server serves nothing in a session before it has heard that it has begun.
#[test]
fn a_session_whose_beginning_the_server_has_not_taken_is_not_used() {
    let (has_refused, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let server = Scripted::told(move |request, stream| {
        let is_own = request.headers.iter().any(|(_, value)| value == scripted::OWN_SESSION);
        match &*scripted::method_of(request) {
            "notifications/initialized" if !is_own && !has_refused.swap(true, Ordering::SeqCst) => {
                scripted::json_with(stream, 503, "", "{}");
            }
            "notifications/initialized" => {
                has_begun.fetch_or(!is_own, Ordering::SeqCst);
                scripted::accepted(stream);
            }
            "tools/call" if !has_begun.load(Ordering::SeqCst) => {
                let id = scripted::message(request)["id"].clone();
                let error = json!({"code": -32000, "message": "not initialized"});
                scripted::json(stream, &json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
            }
            _ => {
                let result = json!({"content": [{"type": "text", "text": "done"}], "tools": []});
                scripted::reply(stream, request, &result);
            }
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let words = is_error(&call("x", json!({}), &json!({})).send(sidecar.mcp), 200, -32603);
    assert!(words.contains("503"), "{words}");
    assert_eq!(server.seen("DELETE").len(), 1, "it is open at the server");
    assert_eq!(text(&call("x", json!({}), &json!({})).send(sidecar.mcp)), "done");
}

/// Clients read who the server is as an object, or do without.
#[test]
fn a_server_that_says_nothing_of_itself_is_nobody() {
    for info in [Value::Null, json!("me")] {
        let server = Scripted::being(info.clone(), |request, stream| {
            scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": "done"}]}));
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let discovered = request(1, "server/discover", json!({}), &json!({})).send(sidecar.mcp).message();
        assert!(discovered["result"]["_meta"][SERVER_INFO].is_object(), "{info}: {discovered}");
        let called = call("x", json!({}), &json!({})).send(sidecar.mcp);
        assert_eq!(text(&called), "done", "{info}");
        assert!(called.message()["result"].get("_meta").is_none(), "{info}: {}", called.text());
    }
}

/// 32: what a tool says that was told that nobody can be asked is not lost. One that does without, and fails of something
/// else, says so itself.
#[test]
fn r032_what_a_tool_says_that_lacks_its_client_is_said() {
    const LACKS: &str = "no model here: the client did not declare sampling";
    let server = Scripted::start(|request, stream| {
        let question = json!({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {
            "messages": [], "maxTokens": 1,
        }});
        let fails_of_itself = scripted::message(request)["params"]["name"] == "full";
        let words = if fails_of_itself { "disk full" } else { LACKS };
        let result = json!({"content": [{"type": "text", "text": words}], "isError": true});
        let event = |message: &str| format!("data: {message}\n\n");
        let answer = scripted::reply_to(request, &result);
        scripted::events(stream, &[&event(&question.to_string()), &event(&answer)]);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let reply = call("x", json!({}), &json!({})).send(sidecar.mcp);
    let words = is_error(&reply, 400, -32021);
    assert!(words.ends_with(&format!("it says: {LACKS}")), "{words}");
    assert_eq!(reply.message()["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
    let reply = call("full", json!({}), &json!({})).send(sidecar.mcp);
    assert_eq!(reply.message()["result"]["isError"], true, "{}", reply.text());
    assert_eq!(text(&reply), "disk full");
}

/// However long the client took to answer, what follows is the answer to another request: its status is not decided yet.
#[test]
fn an_error_after_a_slow_answer_has_its_status() {
    let (gate, passed) = (Gate::default(), Gate::default());
    let (opens, answered) = (gate.clone(), passed.clone());
    let server = Scripted::start(move |request, stream| {
        scripted::begin_events(stream);
        scripted::ask_for_roots(stream);
        opens.pass();
        let id = scripted::message(request)["id"].clone();
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}});
        scripted::say(stream, &error);
        answered.open();
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let can = json!({"roots": {}});
    let (questions, state) = asked(&call("x", json!({}), &can).send(sidecar.mcp));
    // Longer than a response is held back for.
    std::thread::sleep(Duration::from_secs(6));
    let responses = json!({&questions[0].0: {"roots": []}});
    let again = again("x", json!({}), &can, &state, responses);
    let reply = std::thread::scope(|scope| {
        let reply = scope.spawn(|| again.send(sidecar.mcp));
        eventually("the server has the answer", || {
            server.seen("POST").iter().any(|request| scripted::message(request)["id"] == "q")
        });
        gate.open();
        reply.join().unwrap()
    });
    is_error(&reply, 404, -32601);
}

/// What a server does that nobody expects, and what its client hears.
#[test]
fn mistakes_of_a_server_are_errors_of_one_call() {
    let server = Scripted::start(|request, stream| {
        let id = scripted::message(request)["id"].clone();
        let good =
            json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "good"}]}});
        match scripted::message(request)["params"]["name"].as_str().unwrap_or_default() {
            "good" => scripted::json(stream, &good.to_string()),
            // Answers to others, and to nobody, before its own; and its own twice.
            "twice" => {
                let other = json!({"jsonrpc": "2.0", "id": 77, "result": {"content": []}});
                let event = |message: &Value| format!("data: {message}\n\n");
                scripted::events(stream, &[&event(&other), &event(&good), &event(&good)]);
            }
            "cut" => {
                scripted::begin_events(stream);
                scripted::chunk(stream, "data: {\"jsonrpc\":");
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            "silent" => scripted::events(stream, &[": nothing\n\n"]),
            "status" => scripted::write(stream, "HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n"),
            "nonsense" => scripted::json(stream, "{}"),
            "reserved" => scripted::json(
                stream,
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32020, "message": "mine"}})
                    .to_string(),
            ),
            "missing" => scripted::json(
                stream,
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}).to_string(),
            ),
            other => panic!("{other}"),
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for (name, status, code, says) in [
        ("cut", 200, -32603, "went away before it answered"),
        ("silent", 200, -32603, "went away before it answered"),
        ("status", 200, -32603, "HTTP status 500"),
        ("nonsense", 200, -32603, "not an answer to this request"),
        ("reserved", 200, -32603, "mine"),
        ("missing", 404, -32601, "no"),
    ] {
        let reply = call(name, json!({}), &json!({})).send(sidecar.mcp);
        let words = is_error(&reply, status, code);
        assert!(words.contains(says), "{name}: {words}");
        assert_eq!(reply.message()["id"], 1, "{name}: {words}");
        assert_eq!(text(&call("good", json!({}), &json!({})).send(sidecar.mcp)), "good", "after {name}");
    }
    assert_eq!(text(&call("twice", json!({}), &json!({})).send(sidecar.mcp)), "good");
    // What the server got: nothing of the other era.
    let seen = server.seen("tools/call");
    for request in &seen {
        let message = scripted::message(request);
        assert!(message["id"].is_u64() && message["params"].get("_meta").is_none(), "{message}");
        assert!(request.headers.iter().all(|(name, _)| !["mcp-method", "mcp-name"].contains(&name.as_str())));
        assert!(
            request
                .headers
                .iter()
                .any(|(name, value)| name == "mcp-protocol-version" && value == "2025-11-25")
        );
        assert!(request.headers.iter().any(|(name, _)| name == "mcp-session-id"));
    }
    let mut ids: Vec<_> = seen.iter().map(|request| scripted::message(request)["id"].as_u64()).collect();
    ids.dedup();
    assert_eq!(ids.len(), seen.len(), "no id is used twice");
}

/// What a client says of itself that nobody can read, and what it brings back that nobody gave.
#[test]
fn mistakes_of_a_client_are_its_own() {
    let server = Scripted::start(|request, stream| {
        scripted::reply(stream, request, &json!({"content": [], "tools": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let (able, unreadable) = (json!({}), [json!({"sampling": true}), json!({"elicitation": "form"})]);
    let mut cases: Vec<_> = [json!(7), json!({}), json!(["s"]), json!("")]
        .into_iter()
        .map(|state| {
            let params = json!({"name": "t", "requestState": state, "inputResponses": {}});
            (request(1, "tools/call", params, &able), 200, "is none that this server gave you")
        })
        .collect();
    for can in &unreadable {
        for (method, params) in [
            ("tools/call", json!({"name": "t"})),
            ("prompts/get", json!({"name": "p"})),
            ("server/discover", json!({})),
            ("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})),
        ] {
            cases.push((request(1, method, params, can), 400, "clientCapabilities\" in"));
        }
    }
    for (request, status, words) in cases {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let before = sidecar.audit_lines();
        let reply = request.send(sidecar.mcp);
        let said = is_error(&reply, status, -32602);
        assert!(said.contains(words), "{text}: {said}");
        assert_eq!(reply.message()["id"], 1, "{text}");
        assert_eq!(sidecar.audit_after(before)["code"], -32602, "{text}");
    }
    assert!(server.seen("initialize").is_empty() && server.seen("tools/call").is_empty());
    assert_eq!(call("t", json!({}), &able).send(sidecar.mcp).status, 200);
}

/// Each principal has sessions of its own with the server, and each set of capabilities.
#[test]
fn sessions_with_the_server_are_shared_by_those_who_are_alike() {
    let server = Scripted::start(|request, stream| {
        scripted::reply(stream, request, &json!({"content": [], "tools": []}));
    });
    let mut config = config(server.port);
    config.sessions.idle_timeout_ms = 5_000;
    let sidecar = Sidecar::start(&config).ready();
    let ask = |can: Value| {
        let reply = request(1, "tools/call", json!({"name": "t"}), &can).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    for can in
        [json!({}), json!({"roots": {}, "sampling": {}}), json!({"sampling": {}, "roots": {}}), json!({})]
    {
        ask(can);
    }
    let greeted = server.seen("initialize");
    let said: Vec<_> =
        greeted.iter().map(|request| scripted::message(request)["params"]["capabilities"].clone()).collect();
    assert_eq!(said, [json!({}), json!({"roots": {}, "sampling": {}})]);
    // Nobody uses them any more.
    eventually("both are ended", || server.seen("DELETE").len() == 2);
    ask(json!({}));
    assert_eq!(server.seen("initialize").len(), 3);
}
