//! Servers that die, hang or talk nonsense.

mod given_up;
mod questions;

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::client::initialize;
use crate::harness::config::rule;
use crate::harness::http::Reply;
use crate::harness::scripted::Greeting;
use crate::harness::{
    Client, Gate, GoServer, Request, Scripted, Sidecar, config, eventually, modern, scripted, within,
};

#[test]
fn each_call_in_flight_hears_that_the_server_was_killed() {
    // With events the response has begun when the server dies; with JSON it has not.
    for flags in [&[][..], &["-json"]] {
        let mut server = GoServer::start(flags);
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let clients = [Client::open(&sidecar, None), Client::open(&sidecar, None)];
        let slow = json!({"name": "slow", "arguments": {"milliseconds": 30_000}});
        let calls = clients.each_ref().map(|client| client.begin(&slow));
        eventually("both calls are under way", || sidecar.metric("longshore_calls") == 2.0);
        server.kill();
        let killed = Instant::now();
        for stream in calls {
            let reply = Reply::on(stream);
            // Otherwise they would end with the call's own time.
            assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
            assert_eq!(reply.status, 200);
            let message = reply.message();
            assert_eq!((&message["id"], &message["error"]["code"]), (&json!(1), &json!(-32603)), "{message}");
            assert_eq!(message["error"]["message"], "the MCP server went away before it answered");
        }
        let line = sidecar.audit(|line| line["reason"] == "server broke off");
        assert_eq!((&line["decision"], &line["code"]), (&json!("permit"), &json!(-32603)));

        // It is waited for a little, since it may be restarting; after that there is a fast error.
        let message = clients[0].call("echo", json!({"text": "a"}));
        assert_eq!(message["error"]["code"], -32603, "{message}");
        // Whoever waits does so for four. A call that a busy machine makes late may be the first after another absence.
        eventually("there is a fast error", || {
            let asked = Instant::now();
            let message = clients[0].call("echo", json!({"text": "a"}));
            assert_eq!(message["error"]["code"], -32603, "{message}");
            asked.elapsed() < Duration::from_secs(3)
        });
        sidecar.log(|line| {
            line["message"] == "the MCP server is not connected" || line["reason"] == "server down"
        });

        // A notification has no answer that an error could ride in.
        let told = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
        let reply = clients[0].request(told).send(sidecar.mcp);
        assert_eq!((reply.status, &reply.message()["error"]["code"]), (502, &json!(-32603)));
        // The end of a session is the sidecar's to say.
        assert_eq!(clients[1].end().status, 204);

        // When it is back, the old sessions are unknown to it, and new ones work.
        server.start_again();
        assert_eq!(clients[0].send("ping", json!({})).status, 404);
        sidecar.audit(|line| line["reason"] == "server ended the session");
        assert_eq!(clients[0].send("ping", json!({})).status, 404);
        let client = Client::open(&sidecar, None);
        assert_eq!(client.call("echo", json!({"text": "b"}))["result"]["content"][0]["text"], "b");
        eventually("the monitor is back too", || sidecar.metric("longshore_server_connected") == 1.0);
    }
}

#[test]
fn what_comes_while_the_server_restarts_waits_for_it() {
    let mut server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    server.kill();
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| Client::open(&sidecar, None).call("echo", json!({"text": "a"})));
        // It waits: there is nobody who could answer.
        sidecar.log(|line| line["message"] == "the MCP server is not connected");
        assert!(!opened.is_finished());
        server.start_again();
        let message = opened.join().expect("it is served");
        assert_eq!(message["result"]["content"][0]["text"], "a", "{message}");
    });
}

#[test]
fn a_server_that_never_answers_keeps_nobody_from_the_one_that_takes_its_place() {
    // Connections are taken by the kernel, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let sidecar = Sidecar::start(&config(silent.local_addr().unwrap().port()));
    let server = GoServer::start(&[]);
    sidecar.runs(&sidecar.files.write(&config(server.port)));
    within(Duration::from_secs(10), "the other server is connected", || {
        sidecar.metric("longshore_server_connected") == 1.0
    });
}

#[test]
fn a_server_that_exits_in_a_call_is_told_apart_from_a_failing_tool() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    assert_eq!(client.call("fail", json!({}))["result"]["isError"], true);
    let message = client.call("exit", json!({"status": 3}));
    assert_eq!(message["error"]["code"], -32603, "{message}");
}

#[test]
fn an_event_that_broke_off_is_not_passed_and_an_error_is() {
    let gate = Gate::default();
    let goes_on = gate.clone();
    let server = Scripted::start(move |request, stream| {
        if scripted::message(request)["params"]["name"] == "held" {
            goes_on.pass();
            return scripted::reply(stream, request, &json!({"content": []}));
        }
        scripted::begin_events(stream);
        scripted::chunk(
            stream,
            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"res",
        );
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let sidecar = Sidecar::start(&config(server.port));
    // A call of another session is under way meanwhile, which does not notice.
    let other = Client::open(&sidecar, None);
    let held = other.begin(&json!({"name": "held"}));
    eventually("it is under way", || server.seen("tools/call").len() == 1);
    let reply = Client::open(&sidecar, None).send("tools/call", json!({"name": "t"}));
    assert_eq!(reply.events().len(), 2, "{}", reply.text());
    assert_eq!(reply.message()["error"]["code"], -32603);
    gate.open();
    let reply = Reply::on(held).message();
    assert_eq!(reply["result"], json!({"content": []}), "{reply}");
}

#[test]
fn nonsense_of_a_server_becomes_an_error() {
    for (what, status, content_type, body, expected) in [
        ("a page", 200, "text/html", "<html>", "something that is not an answer"),
        ("no JSON", 200, "application/json", "{", "something that is not an answer"),
        (
            "another id",
            200,
            "application/json",
            r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
            "something that is not an answer",
        ),
        (
            "a request",
            200,
            "application/json",
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            "something that is not an answer",
        ),
        ("an HTTP error", 500, "text/plain", "stack trace", "HTTP status 500"),
        ("an HTTP error in JSON", 500, "application/json", r#"{"error":"m"}"#, "HTTP status 500"),
        ("a redirect", 307, "text/plain", "", "HTTP status 307"),
        ("nothing", 202, "text/plain", "", "something that is not an answer"),
    ] {
        let server = Scripted::start(move |request, stream| {
            if scripted::message(request)["params"]["name"] == "fine" {
                return scripted::reply(stream, request, &json!({"content": []}));
            }
            let length = body.len();
            scripted::write(
                stream,
                &format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
                ),
            );
        });
        let sidecar = Sidecar::start(&config(server.port));
        let (client, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
        let message = client.call("t", json!({}));
        assert_eq!(message["error"]["code"], -32603, "{what}: {message}");
        assert!(message["error"]["message"].as_str().unwrap().contains(expected), "{what}: {message}");
        // Nobody else notices, and what follows in its own session does not either.
        for client in [&other, &client] {
            let message = client.call("fine", json!({}));
            assert_eq!(message["result"], json!({"content": []}), "{what}: {message}");
        }
    }
    // An error that is one passes, on 200.
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"m"}}"#;
    let server = Scripted::start(move |_, stream| scripted::json_with(stream, 400, "", error));
    let sidecar = Sidecar::start(&config(server.port));
    let reply = Client::open(&sidecar, None).send("tools/call", json!({"name": "t"}));
    assert_eq!((reply.status, reply.text()), (200, error));
    assert_eq!(sidecar.audit(|line| line["method"] == "tools/call")["code"], -32042);
}

/// A number that not every reader holds is no id here: who asks under one is told so, and goes on.
#[test]
fn a_question_under_a_number_that_is_too_large_is_answered() {
    const NUMBER: u64 = 9_007_199_254_740_993;
    for revision in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        let gate = Gate::default();
        let goes_on = gate.clone();
        let server = Scripted::start(move |request, stream| {
            scripted::begin_events(stream);
            let question = json!({"jsonrpc": "2.0", "id": NUMBER, "method": "roots/list"});
            scripted::say(stream, &question);
            goes_on.pass();
            let result = json!({"content": [{"type": "text", "text": "done"}]});
            scripted::say(stream, &scripted::reply_to(request, &result));
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let call = if revision == "2026-07-28" {
            modern::of(&modern::message(1, "tools/call", json!({"name": "t"})).to_string())
        } else {
            let client = Client::of(&sidecar, None, revision);
            client.request(client.message("tools/call", &json!({"name": "t"})))
        };
        std::thread::scope(|scope| {
            let reply = scope.spawn(|| call.send(sidecar.mcp));
            let heard = eventually("the server is answered", || {
                let posts = server.seen("POST");
                posts.iter().map(scripted::message).find(|message| message["id"] == NUMBER)
            });
            assert_eq!(heard["error"]["code"], -32600, "{revision}: {heard}");
            gate.open();
            let reply = reply.join().unwrap();
            assert_eq!(
                reply.message()["result"]["content"][0]["text"],
                "done",
                "{revision}: {}",
                reply.text()
            );
            assert!(!reply.text().contains("roots/list"), "{revision}: {}", reply.text());
        });
    }
}

/// Some servers write both outcomes of a call, and `null` for the one that it did not have.
#[test]
fn an_error_of_null_is_none() {
    let server = Scripted::start(|request, stream| {
        let id = scripted::message(request)["id"].clone();
        let result = json!({"content": [{"type": "text", "text": "done"}]});
        let text = json!({"jsonrpc": "2.0", "id": id, "result": result, "error": null});
        scripted::json(stream, &text.to_string());
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let modern = modern::of(&modern::message(1, "tools/call", json!({"name": "t"})).to_string());
    let older = Client::of(&sidecar, None, "2025-11-25");
    let older = older.request(older.message("tools/call", &json!({"name": "t"})));
    for call in [older, modern] {
        let message = call.send(sidecar.mcp).message();
        assert_eq!(message["result"]["content"][0]["text"], "done", "{message}");
    }
}

/// Nor is one in the answer to a handshake, where the client speaks another revision and hears what is written for it.
#[test]
fn an_error_of_null_ends_no_handshake() {
    let port = scripted::bare(|request, stream| {
        if scripted::method_of(request) != "initialize" {
            return beside_its_handshake(request, stream);
        }
        let id = scripted::message(request)["id"].clone();
        let info = json!({"name": "both", "version": "1"});
        let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info});
        let text = json!({"jsonrpc": "2.0", "id": id, "result": result, "error": null});
        scripted::json(stream, &text.to_string());
    });
    let sidecar = Sidecar::start(&config(port)).ready();
    let greeting = Request::post(initialize("2025-11-25")).send(sidecar.mcp).message();
    assert_eq!(greeting["result"]["protocolVersion"], "2025-11-25", "{greeting}");
    assert_eq!(greeting.get("error"), None, "{greeting}");
}

/// Many servers refuse a request without having read its id. There is only one that the error can be about.
#[test]
fn errors_that_do_not_say_what_they_are_about_are_answers_all_the_same() {
    let server = Scripted::of("2025-11-25", |request, stream| {
        let params = scripted::message(request)["params"].take();
        let id = if params["null"] == true { r#","id":null"# } else { "" };
        let error = format!(r#"{{"jsonrpc":"2.0"{id},"error":{{"code":-32000,"message":"not so"}}}}"#);
        match params["status"].as_u64().unwrap_or_default() {
            0 if request.method == "GET" => scripted::no_stream(stream),
            0 => scripted::events(stream, &[&format!("data: {error}\n\n")]),
            status => scripted::json_with(stream, u16::try_from(status).unwrap(), "", &error),
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for revision in ["2025-06-18", "2025-11-25"] {
        let client = Client::of(&sidecar, None, revision);
        for status in [0, 200, 400, 500] {
            for null in [false, true] {
                let case = format!("{revision}, {status}, {null}");
                let reply = client.send("tools/call", json!({"name": "t", "status": status, "null": null}));
                assert_eq!(reply.status, 200, "{case}");
                let message = reply.message();
                assert_eq!(message["error"], json!({"code": -32000, "message": "not so"}), "{case}");
                assert!(message["id"].is_u64(), "{case}: {message}");
            }
        }
    }
}

#[test]
fn r066_a_session_that_the_server_forgot_ends() {
    for status in [404, 400, 401, 403] {
        // The scripted server answers pings by itself, so the session lives for it: only 404 ends it.
        let server = Scripted::start(move |_, stream| scripted::json_with(stream, status, "", "{}"));
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::open(&sidecar, None);
        let reply = client.send("tools/call", json!({"name": "t"}));
        match status {
            404 => {
                assert_eq!(reply.status, 404);
                assert_eq!(client.send("ping", json!({})).status, 404);
            }
            _ => {
                assert_eq!(
                    reply.message()["error"]["message"],
                    format!("the MCP server answered with HTTP status {status}")
                );
                assert_eq!(client.send("ping", json!({})).status, 200, "the session goes on");
            }
        }
    }
}

/// 60, 68: what is answered twice, or was never asked, reaches nobody, in this session or another.
#[test]
fn answers_that_nobody_waits_for_reach_nobody() {
    let server = Scripted::start(|request, stream| {
        let answer = |id: &serde_json::Value, n: u32| {
            format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "result": {"n": n}}))
        };
        let own = scripted::message(request)["id"].clone();
        let odd = json!("nobody");
        let error = json!({"jsonrpc": "2.0", "id": odd, "error": {"code": 1, "message": "m"}});
        scripted::events(
            stream,
            &[
                &answer(&odd, 1),
                &answer(&json!(own.as_u64().unwrap() + 1), 2),
                &format!("data: {error}\n\n"),
                "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n",
                &(answer(&own, 3) + &answer(&own, 4)),
            ],
        );
    });
    let sidecar = Sidecar::start(&config(server.port));
    let (one, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    for client in [&one, &other, &one] {
        let events = client.stream("t", json!({})).all();
        let seen: Vec<_> = events.iter().map(crate::harness::Event::message).collect();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(seen[0]["method"], "notifications/progress");
        assert_eq!(seen[1]["result"], json!({"n": 3}));
    }
}

/// The same of a handshake, which reaches the server under another id than its client's. What else comes before the answer
/// is what it would be in a call: in the client's revision, and for whom it is.
#[test]
fn answers_that_no_handshake_waits_for_reach_nobody() {
    let log =
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
    let updated =
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "hidden:a"}});
    let complete = json!({
        "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e"},
    });
    let about_task = json!({
        "jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 2, "_meta": {
            "io.modelcontextprotocol/related-task": {"taskId": "of somebody else"},
        }},
    });
    let result = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "wrong", "version": "1"},
    });
    let early = vec![
        json!({"jsonrpc": "2.0", "id": 0, "result": result}),
        json!({"jsonrpc": "2.0", "id": "nobody", "error": {"code": 1, "message": "m"}}),
        json!([{"jsonrpc": "2.0", "id": 0, "result": result}]),
        json!("hello"),
        log.clone(),
        updated,
        complete.clone(),
        about_task.clone(),
    ];
    let server = Scripted::greeting_so(Greeting::After(early), Some("2025-11-25"));
    let mut config = config(server.port);
    config.access = vec![rule("most", &["*"], &["*"], &["shown:*"])];
    let sidecar = Sidecar::start(&config).ready();
    let mut of_no_task = about_task.clone();
    of_no_task["params"]["_meta"] = json!({});
    for (revision, beside) in [
        ("2025-11-25", &[&log, &complete, &of_no_task][..]),
        // It has neither the second one nor tasks.
        ("2025-06-18", &[&log, &about_task]),
    ] {
        let reply = Request::post(initialize(revision)).send(sidecar.mcp);
        let events: Vec<Value> =
            reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        let (answer, before) = events.split_last().unwrap();
        assert_eq!(before.iter().collect::<Vec<_>>(), beside, "{revision}: {}", reply.text());
        assert_eq!((&answer["id"], &answer["result"]["serverInfo"]["name"]), (&json!(0), &json!("scripted")));
        assert!(reply.header("mcp-session-id").is_some());
    }
}

/// A server need not choose a revision where it does not speak the one that it is asked for: it may say which it does.
#[test]
fn r019_a_server_that_refuses_a_revision_is_asked_for_its_own() {
    let server = Scripted::strict("2025-03-26", |request, stream| {
        scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": "done"}]}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let message = Client::of(&sidecar, None, revision).call("t", json!({}));
        assert_eq!(message["result"]["content"][0]["text"], "done", "{revision}: {message}");
    }
    let modern = modern::of(&modern::message(1, "tools/call", json!({"name": "t"})).to_string());
    let message = modern.send(sidecar.mcp).message();
    assert_eq!(message["result"]["content"][0]["text"], "done", "{message}");
}

/// Whatever status it refuses with. What it refuses for something else it is not asked once more.
#[test]
fn a_handshake_is_made_once_more_for_its_revision_alone() {
    for (words, tried) in
        [("I speak 2025-06-18", &["2025-03-26", "2025-06-18"][..]), ("no seat is free", &["2025-03-26"])]
    {
        let asked = Arc::<Mutex<Vec<Value>>>::default();
        let into = asked.clone();
        let port = scripted::bare(move |request, stream| {
            if scripted::method_of(request) != "initialize" {
                return beside_its_handshake(request, stream);
            }
            let message = scripted::message(request);
            let version = &message["params"]["protocolVersion"];
            let is_own = message["params"]["clientInfo"]["name"] == "longshore-sidecar";
            if !is_own {
                into.lock().unwrap().push(version.clone());
            }
            if is_own || version == "2025-06-18" {
                let info = json!({"name": "strict", "version": "1"});
                let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info});
                scripted::json(stream, &scripted::reply_to(request, &result));
            } else {
                let error = json!({"code": -32000, "message": words});
                let refusal = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
                scripted::json_with(stream, 400, "", &refusal.to_string());
            }
        });
        let sidecar = Sidecar::start(&config(port)).ready();
        let greeting = Request::post(initialize("2025-03-26")).send(sidecar.mcp).message();
        assert_eq!(*asked.lock().unwrap(), tried, "{greeting}");
        if tried.len() == 1 {
            assert_eq!(greeting["error"]["message"], words, "{greeting}");
        } else {
            assert_eq!(greeting["result"]["protocolVersion"], "2025-03-26", "{greeting}");
        }
    }
}

#[test]
fn a_server_of_another_revision_is_named() {
    // The scripted server agrees to whatever it is asked for; this one does not.
    let port = scripted::bare(|request, stream| {
        let result = json!({"protocolVersion": "2023-01-01", "capabilities": {}, "serverInfo": {}});
        scripted::reply(stream, request, &result);
    });
    let sidecar = Sidecar::start(&config(port));
    sidecar.log(|line| {
        line["message"] == "the MCP server is not connected"
            && line["reason"].to_string().contains("UnsupportedRevision")
    });
    let reply = Request::post(initialize("2025-11-25")).send(sidecar.mcp);
    let message = reply.message();
    assert_eq!(message["error"]["code"], -32603);
    assert!(message["error"]["message"].as_str().unwrap().contains("\"2023-01-01\""), "{message}");
    assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
}

/// What a legacy server without streams answers to all but its handshake.
fn beside_its_handshake(request: &Request, stream: &mut TcpStream) {
    match scripted::method_of(request).as_str() {
        "server/discover" => scripted::json_with(stream, 400, "", "{}"),
        method if method.starts_with("notifications/") => scripted::accepted(stream),
        _ if request.method == "GET" => scripted::no_stream(stream),
        _ => scripted::reply(stream, request, &json!({})),
    }
}
