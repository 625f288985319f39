//! Several messages in one body, which only 2025-03-26 has.

use std::io::Write;

use serde_json::{Value, json};

use crate::harness::config::rule;
use crate::harness::http::connect;
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{
    Client, Events, Gate, GoServer, Reply, Scripted, Sidecar, config, eventually, modern, scripted,
};
use crate::modern_as_legacy::{self, able, echoing};
use crate::sse::Caller;

const REVISION: &str = "2025-03-26";

fn call(id: impl Into<Value>, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": params})
}

fn told(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": method})
}

fn send(client: &Client<'_>, batch: &Value) -> Reply {
    client.request(batch.to_string()).send(client.sidecar.mcp)
}

#[test]
fn r007_each_message_of_a_batch_is_served_by_itself() {
    let server = GoServer::start(&[]);
    let mut config = config(server.port);
    config.access = vec![rule("some", &["echo", "slow"], &[], &[])];
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::of(&sidecar, None, REVISION);
    let lines = sidecar.audit_lines();
    let reply = send(
        &client,
        &json!([
            call("a", "echo", &json!({"text": "one"})),
            told("notifications/roots/list_changed"),
            call(2, "add", &json!({"a": 1, "b": 2})),
            call(3, "slow", &json!({"milliseconds": 100})),
            {"jsonrpc": "2.0", "id": 4, "method": "ping"},
        ]),
    );
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json")),
        "{}",
        reply.text()
    );
    let answers: Value = serde_json::from_str(reply.text()).unwrap();
    let ids: Vec<_> = answers.as_array().unwrap().iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!("a"), json!(2), json!(3), json!(4)]);
    assert_eq!(answers[0]["result"]["content"][0]["text"], "one");
    assert_eq!(answers[1]["error"]["code"], -32602, "nobody may call it: {answers}");
    assert_eq!(answers[3]["result"], json!({}));
    // One line for each of them.
    let written: Vec<_> = (0..5).map(|at| sidecar.audit_after(lines + at)).collect();
    let denied: Vec<_> = written.iter().filter(|line| line["decision"] == "deny").collect();
    assert_eq!((denied.len(), &denied[0]["target"]), (1, &json!("add")), "{written:?}");

    // Without requests there is nothing to answer.
    let none = send(&client, &json!([told("notifications/roots/list_changed"), told("notifications/x")]));
    assert_eq!((none.status, none.text()), (202, ""));
}

/// 7: a server of 2026-07-28, which has no batches, gets one request after the other.
#[test]
fn r007_a_server_that_knows_no_batches_gets_requests() {
    let server = echoing();
    let sidecar = modern_as_legacy::sidecar(&server);
    let client = able(&sidecar, REVISION);
    let lines = sidecar.audit_lines();
    let reply = send(
        &client,
        &json!([
            call("a", "echo", &json!({"n": 1})),
            told("notifications/roots/list_changed"),
            {"jsonrpc": "2.0", "id": 2, "method": "ping"},
            call(3, "echo", &json!({"n": 3})),
            {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"arguments": {}}},
            {"jsonrpc": "2.0", "id": 5, "method": "prompts/list"},
        ]),
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answers: Value = serde_json::from_str(reply.text()).unwrap();
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let expected = [
        (json!("a"), text(r#"{"n":1}"#)),
        (json!(2), json!({})),
        (json!(3), text(r#"{"n":3}"#)),
        (json!(4), Value::Null),
        (json!(5), json!({"prompts": []})),
    ];
    let seen: Vec<_> =
        answers.as_array().unwrap().iter().map(|answer| (&answer["id"], &answer["result"])).collect();
    assert_eq!(seen, expected.each_ref().map(|(id, result)| (id, result)), "{answers}");
    assert_eq!(answers[3]["error"]["code"], -32602, "{answers}");
    // One line for each, and at the server one whole request for each that is one there.
    (0..6).for_each(|at| drop(sidecar.audit_after(lines + at)));
    for (method, count) in
        [("tools/call", 2), ("prompts/list", 1), ("ping", 0), ("notifications/roots/list_changed", 0)]
    {
        let seen = server.seen(method);
        assert_eq!(seen.len(), count, "{method}");
        for request in seen {
            let meta = &scripted::message(&request)["params"]["_meta"];
            assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28", "{method}");
        }
    }
}

/// 7: what several calls have asked may be answered together, whichever way their server asks.
#[test]
fn r007_answers_to_questions_may_come_in_a_batch() {
    let (gate, roots) = (Gate::default(), json!({"method": "roots/list"}));
    let opens = gate.clone();
    let older = Scripted::start(move |request, stream| {
        scripted::begin_events(stream);
        let id = &scripted::message(request)["params"]["arguments"]["id"];
        let question = json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"});
        scripted::say(stream, &question);
        opens.pass();
        let done = json!({"content": [{"type": "text", "text": "done"}]});
        scripted::say(stream, &scripted::reply_to(request, &done));
        scripted::write(stream, "0\r\n\r\n");
    });
    let newer = modern_as_legacy::serving(move |request, stream| {
        let answers = scripted::message(request)["params"]["inputResponses"].clone();
        let result = if answers.is_null() {
            json!({"resultType": "input_required", "inputRequests": {"where": roots}})
        } else {
            json!({"content": [{"type": "text", "text": answers["where"]["roots"][0]["uri"]}]})
        };
        modern_as_legacy::answer(request, stream, &result);
    });
    for (port, expected) in [(older.port, ["done", "done"]), (newer.port, ["file:///1", "file:///2"])] {
        let sidecar = Sidecar::start(&config(port)).ready();
        let client = able(&sidecar, REVISION);
        let mut calls = ["q1", "q2"].map(|id| client.stream("echo", json!({"id": id})));
        let questions = calls.each_mut().map(|call| call.next().unwrap().message());
        let answer = |at: usize| {
            let result = json!({"roots": [{"uri": format!("file:///{}", at + 1)}]});
            json!({"jsonrpc": "2.0", "id": questions[at]["id"], "result": result})
        };
        // In another order than they were asked in.
        let answers = [answer(1), answer(0)];
        let reply = send(&client, &json!(answers));
        assert_eq!((reply.status, reply.text()), (202, ""));
        if port == older.port {
            eventually("the server has both", || {
                let heard: Vec<_> = older.seen("POST").iter().map(scripted::message).collect();
                answers.iter().all(|answer| heard.contains(answer))
            });
            gate.open();
        }
        for (mut call, expected) in calls.into_iter().zip(expected) {
            assert_eq!(call.next().unwrap().message()["result"]["content"][0]["text"], expected);
        }
    }
}

/// What takes longer, or is not alone, comes as events.
#[test]
fn r007_answers_that_take_longer_come_as_events() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::of(&sidecar, None, REVISION);
    let mut progress = call(2, "slow", &json!({"milliseconds": 300, "steps": 3}));
    progress["params"]["_meta"] = json!({"progressToken": "p"});
    let batch = json!([
        call(1, "echo", &json!({"text": "first"})),
        progress,
        call(3, "slow", &json!({"milliseconds": 1500})),
    ]);
    let events = Events::open(&client.request(batch.to_string()), sidecar.mcp);
    assert_eq!(events.status, 200);
    let messages: Vec<_> = events.all().iter().map(|event| event.message()).collect();
    let ids: Vec<_> = messages.iter().filter_map(|message| message["id"].as_u64()).collect();
    assert_eq!(ids, [1, 2, 3], "{messages:?}");
    let steps = messages.iter().filter(|message| message["method"] == "notifications/progress");
    assert_eq!(steps.count(), 3);
    eventually("no call is left behind", || sidecar.metric("longshore_calls") == 0.0);
    // Their client has heard of no ids to come back with.
    eventually("nothing is kept", || sidecar.metric("longshore_stream_bytes") == 0.0);
}

#[test]
fn r006_what_is_no_batch_is_refused_as_a_whole() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let initialize = json!({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {}});
    let modern = json!({
        "jsonrpc": "2.0", "id": 2, "method": "ping",
        "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}},
    });
    let batches = [
        ("nothing", json!([])),
        ("an id twice", json!([ping, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}])),
        ("a handshake", json!([ping, initialize])),
        ("a modern request", json!([ping, modern])),
        ("a batch in a batch", json!([[ping]])),
        ("no message", json!([ping, 7])),
        ("requests and responses", json!([ping, {"jsonrpc": "2.0", "id": 7, "result": {}}])),
        ("too many", json!(vec![told("notifications/x"); 65])),
    ];
    for revision in ["2024-11-05", REVISION, "2025-06-18", "2025-11-25"] {
        let client = Client::of(&sidecar, None, revision);
        for (name, batch) in &batches {
            let reply = send(&client, batch);
            let error: Value = serde_json::from_str(reply.text()).unwrap();
            let seen = (reply.status, &error["error"]["code"], error.get("id"));
            assert_eq!(seen, (400, &json!(-32600), None), "{revision}: {name}: {error}");
        }
        let whole = send(&client, &json!([ping]));
        let status = if revision == REVISION { 200 } else { 400 };
        assert_eq!(whole.status, status, "{revision}: {}", whole.text());
        assert_eq!(client.send("ping", json!({})).status, 200, "the session goes on");
    }
}

/// Whether its client goes as soon as it has written, or while the calls are under way.
#[test]
fn a_client_that_goes_away_takes_nothing_of_its_batch_along() {
    for at_once in [true, false] {
        let gate = Gate::default();
        let opens = gate.clone();
        let server = Scripted::start(move |request, stream| {
            opens.pass();
            scripted::reply(stream, request, &json!({"content": []}));
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let client = Client::of(&sidecar, None, REVISION);
        let calls = [1, 2].map(|id| call(id, "t", &json!({})));
        let batch = json!([calls[0], told("notifications/roots/list_changed"), calls[1]]);
        let request = client.request(batch.to_string());
        let stream = (!at_once).then(|| {
            let mut stream = connect(sidecar.mcp);
            request.write(&mut stream);
            stream
        });
        if at_once {
            sidecar.is_left_with(&request);
        }
        for (method, each) in [("tools/call", 2), ("notifications/roots/list_changed", 1)] {
            eventually("the server has them", || server.seen(method).len() == each);
        }
        drop(stream);
        gate.open();
        let lines = || sidecar.written().matches("\"method\":\"tools/call\"").count();
        eventually("the calls end, each with its line", || lines() == 2);
        eventually("nothing is under way", || sidecar.metric("longshore_calls") == 0.0);
        assert!(server.seen("notifications/cancelled").is_empty());
    }
}

/// The limits of calls count each of them.
#[test]
fn a_batch_is_no_way_around_limits() {
    let server = GoServer::start(&[]);
    let mut limited = config(server.port);
    limited.limits.request_timeout_ms = 3_000;
    let sidecar = Sidecar::flagged(&limited, &["--max-calls", "2"]).ready();
    let client = Client::of(&sidecar, None, REVISION);
    let calls: Vec<_> = (1..=5).map(|id| call(id, "slow", &json!({"milliseconds": 500}))).collect();
    let reply = send(&client, &json!(calls));
    let answers: Value = serde_json::from_str(reply.text()).unwrap();
    let answers = answers.as_array().unwrap();
    let refused = answers.iter().filter(|answer| answer["error"]["message"].as_str().is_some());
    assert_eq!((answers.len(), refused.count()), (5, 3), "{answers:?}");
}

/// A server that is slow to take one notification does not hold up the others.
#[test]
fn notifications_of_a_batch_do_not_wait_for_each_other() {
    let gate = Gate::default();
    let server = Scripted::hearing(&gate, |_, _| {});
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::of(&sidecar, None, REVISION);
    let request = client.request(json!(vec![told("notifications/roots/list_changed"); 5]).to_string());
    let mcp = sidecar.mcp;
    let sending = std::thread::spawn(move || request.send(mcp));
    eventually("all are on their way", || server.seen("notifications/roots/list_changed").len() == 5);
    gate.open();
    assert_eq!(sending.join().unwrap().status, 202);
}

/// What is held whole has a bound for all, and is given back.
#[test]
fn large_answers_share_the_room_that_there_is() {
    let gate = Gate::default();
    let opened = gate.clone();
    let server = Scripted::start(move |request, stream| {
        let text = "x".repeat(700_000);
        let result = json!({"content": [{"type": "text", "text": text}]});
        let answer = scripted::reply_to(request, &result);
        let (start, end) = answer.split_at(answer.len() - 1);
        let length = answer.len();
        // All but the last byte, so that it is held while the others come.
        let head =
            format!("HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        let _ = stream.write_all(format!("{head}{start}").as_bytes());
        opened.pass();
        let _ = stream.write_all(end.as_bytes());
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-held-bytes", "1500000"]);
    let client = Client::of(&sidecar, None, REVISION);
    let batch =
        |ids: std::ops::Range<u32>| json!(ids.map(|id| call(id, "t", &json!({}))).collect::<Vec<_>>());
    let mut events = Events::open(&client.request(batch(1..4).to_string()), sidecar.mcp);
    let refused = events.next().unwrap().message();
    assert!(refused["error"]["message"].as_str().unwrap().contains("answer is lost"), "{refused}");
    gate.open();
    assert_eq!(events.all().len(), 2, "each of them is answered");
    for at in 1..4 {
        let reply = send(&client, &batch(10 * at..10 * at + 1));
        assert!(reply.text().contains("xxx"), "nothing is kept");
    }
}

/// Where others hold all that there is, as those do who never finish what they say.
#[test]
fn small_answers_need_no_room() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-held-bytes", "1000000"]).ready();
    let client = Client::of(&sidecar, None, REVISION);
    let mut caller = Caller::open(&sidecar, None);
    let begin = || {
        let mut stream = connect(sidecar.mcp);
        let whole = client.request("x".repeat(249_500)).bytes();
        stream.write_all(&whole[..whole.len() - 1]).unwrap();
        stream
    };
    let mut halves = [(); 4].map(|()| begin());
    let text = |letter: &str, length: usize| json!({"text": letter.repeat(length)});
    eventually("they hold all", || {
        let large = client.send("tools/call", json!({"name": "echo", "arguments": text("x", 20_000)}));
        if large.status != 503 {
            // There may have been no room for one of them.
            halves = [(); 4].map(|()| begin());
        }
        large.status == 503
    });
    let batch = json!([call(1, "echo", &text("y", 3_500)), call(2, "echo", &text("z", 3_500))]);
    let reply = send(&client, &batch);
    let has = |letter: &str| reply.text().contains(&letter.repeat(3_500));
    assert!(has("y") && has("z"), "{}", reply.text());
    let answer = caller.call(&sidecar, 3, "echo", &text("x", 3_500));
    assert!(answer["result"].is_object(), "{answer}");
    drop(halves);
}

#[test]
fn an_answer_that_there_is_room_for_alone_finds_it_in_a_batch() {
    const LARGE: usize = 400_000;
    let flags = ["--max-held-bytes", "700000"];
    let http = Scripted::listing(LARGE);
    let over_http = Sidecar::flagged(&config(http.port), &flags);
    let (_shim, over_stdio) = serving(&stdio(), &shim::server(&[]), &flags);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let echo = call(1, "echo", &json!({"text": "x", "times": LARGE}));
    for (sidecar, message) in [(&over_http, list), (&over_stdio, echo)] {
        let client = Client::of(sidecar, None, REVISION);
        for batch in [json!([message]), json!([message, {"jsonrpc": "2.0", "id": 2, "method": "ping"}])] {
            let reply = send(&client, &batch);
            assert!(reply.text().len() > LARGE, "{message}: {:.300}", reply.text());
        }
    }
}

/// 7: a server of that revision may write batches in its streams, and whoever its client is, their messages come one by
/// one. The sidecar's own requests are answered so too, or it would not be ready.
#[test]
fn r007_what_a_server_writes_in_batches_is_understood() {
    let gate = Gate::default();
    let opens = gate.clone();
    let capabilities = json!({"tools": {"listChanged": true}});
    let server = Scripted::of_with(REVISION, capabilities, move |request, stream| {
        let batch = |messages: &[Value]| format!("data: {}\n\n", json!(messages));
        if request.method == "GET" {
            scripted::begin_events(stream);
            opens.pass();
            let changed = told("notifications/tools/list_changed");
            scripted::chunk(stream, &batch(&[changed.clone(), changed]));
            return scripted::until_closed(stream);
        }
        let asked = scripted::message(request);
        let mut progress = told("notifications/progress");
        progress["params"] =
            json!({"progressToken": asked["params"]["_meta"]["progressToken"], "progress": 1});
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": [], "content": []}});
        let mut events = vec![batch(&[progress.clone(), progress]), batch(&[answer])];
        if asked["method"] != "tools/call" {
            events.remove(0);
        }
        scripted::events(stream, &events.iter().map(String::as_str).collect::<Vec<_>>());
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();

    let alone = |method, params| Events::open(&modern::request("a", method, params), sidecar.mcp);
    let mut listening = alone("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(listening.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    gate.open();
    let clients = [REVISION, "2025-06-18"].map(|revision| Client::of(&sidecar, None, revision));
    let [same, newer] = clients.each_ref().map(|client| Events::open(&client.get(), sidecar.mcp));
    for mut events in [listening, same, newer] {
        for _ in 0..2 {
            assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
        }
    }

    let call = json!({"name": "t", "_meta": {"progressToken": "p"}});
    let requests = |method: &str, params: &Value| {
        let mut requests = vec![modern::request("a", method, params.clone())];
        requests.extend(clients.iter().map(|client| client.request(client.message(method, params))));
        requests
    };
    for (method, params, progress) in [("tools/call", call, 2), ("tools/list", json!({}), 0)] {
        for request in requests(method, &params) {
            let reply = request.send(sidecar.mcp);
            let messages: Vec<Value> = match reply.header("content-type") {
                Some("text/event-stream") => {
                    reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect()
                }
                _ => vec![reply.message()],
            };
            let (answer, before) = messages.split_last().unwrap();
            assert_eq!(answer["result"]["tools"], json!([]), "{method}: {}", reply.text());
            assert_eq!(before.len(), progress, "{method}: {}", reply.text());
            assert!(before.iter().all(|told| told["params"]["progressToken"] == "p"), "{before:?}");
        }
    }
}
