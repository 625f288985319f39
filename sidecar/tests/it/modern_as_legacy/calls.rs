//! Calls: what the server reads, and what the client does.

use serde_json::json;

use super::{able, answer, echoing, everything, serving, sidecar, tools};
use crate::harness::scripted::{self, message};
use crate::harness::{Events, Gate, Sessionless, eventually};

#[test]
fn r074_requests_say_what_the_session_knows() {
    let server = echoing();
    let sidecar = sidecar(&server);
    for revision in super::WITH_SESSIONS {
        let client = able(&sidecar, revision);
        for (level, expected) in [(None, "info"), (Some("error"), "error")] {
            if let Some(level) = level {
                client.ask("logging/setLevel", json!({"level": level}));
            }
            let said = client.call("echo", json!({"a": [1, 2.50]}));
            // Nothing of the other revision is left, and the rest is as it was.
            assert_eq!(said["result"], json!({"content": [{"type": "text", "text": r#"{"a":[1,2.5]}"#}]}));
            let asked = server.seen("tools/call").pop().unwrap();
            let text = String::from_utf8(asked.body.clone()).unwrap();
            assert!(text.contains(r#""arguments":{"a":[1,2.5]}"#), "{text}");
            let meta = &message(&asked)["params"]["_meta"];
            assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
            assert_eq!(meta["io.modelcontextprotocol/logLevel"], expected);
            assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "test");
            let can = &meta["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(can["roots"], json!({}), "nobody could tell that they change");
            assert!(can["sampling"].is_object());
            assert_eq!(can["elicitation"].is_object(), super::WITH_FORMS.contains(&revision));
            assert_eq!(asked.value("mcp-name"), Some("echo"));
            assert_eq!(asked.value("mcp-method"), Some("tools/call"));
        }
    }
}

#[test]
fn r027_arguments_are_repeated_as_the_servers_list_says() {
    let server = echoing();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let call = |arguments: serde_json::Value| client.call("marked", arguments);
    assert!(call(json!({"region": "h\u{e9}"}))["result"].is_object());
    let asked = server.seen("tools/call").pop().unwrap();
    assert_eq!(asked.value("mcp-param-region"), Some("=?base64?aMOp?="));
    assert!(call(json!({}))["result"].is_object());
    // The tool changes, and nobody says so: the server misses a header, and the list is read again.
    server.says(|says| {
        says.tools = json!([{"name": "marked", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Zone"}}}}]);
    });
    assert!(call(json!({"region": "eu"}))["result"].is_object());
    let asked = server.seen("tools/call").pop().unwrap();
    assert_eq!((asked.value("mcp-param-zone"), asked.value("mcp-param-region")), (Some("eu"), None));
    // One that cannot be called over HTTP is not offered.
    server.says(|says| {
        says.tools = json!([{"name": "fine", "inputSchema": {"type": "object"}}, {"name": "bad",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}}]);
    });
    assert_eq!(client.names("tools/list", "tools", "name"), ["fine"]);
}

/// Clients ask as often as they like.
#[test]
fn a_tool_that_nobody_can_call_is_told_of_by_the_sidecars_own_lists_alone() {
    let server = echoing();
    server.says(|says| {
        says.tools = json!([{"name": "bad", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "number", "x-mcp-header": "A"}}}}]);
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for _ in 0..10 {
        assert_eq!(client.ask("tools/list", json!({}))["result"]["tools"], json!([]));
    }
    let written = sidecar.written();
    let told: Vec<_> = written.lines().filter(|line| line.contains("in a way that cannot be used")).collect();
    assert!(told.len() < 5 && told.iter().any(|line| line.contains("bad")), "{written}");
}

/// What writes empty objects as arrays is not rare.
#[test]
fn a_tool_that_nobody_can_read_hides_no_other_one() {
    let server = echoing();
    server.says(|says| {
        says.tools = json!([{"name": "bad", "inputSchema": {"type": "object", "properties": []}},
            {"name": "good", "inputSchema": {"type": "object", "properties": {"a": true}}}]);
    });
    let sidecar = sidecar(&server);
    for revision in super::WITH_SESSIONS {
        let client = able(&sidecar, revision);
        let tools = &client.ask("tools/list", json!({}))["result"]["tools"];
        let good = json!([{"name": "good", "inputSchema": {"type": "object", "properties": {"a": {}}}}]);
        assert_eq!(tools, &good, "{revision}");
    }
    let written = sidecar.written();
    assert!(written.contains("cannot be read") && written.contains("bad"), "{written}");
}

#[test]
fn results_are_those_of_the_clients_revision() {
    let server = serving(|request, stream| {
        let result = match message(request)["method"].as_str().unwrap() {
            "resources/read" => {
                let text = json!({"jsonrpc": "2.0", "id": message(request)["id"],
                    "error": {"code": -32602, "message": "none", "data": {"uri": "a:b"}}});
                return scripted::json(stream, &text.to_string());
            }
            "tools/call" if message(request)["params"]["name"] == "echo" => {
                json!({"resultType": "task", "taskId": "t"})
            }
            _ => json!({"content": [], "structuredContent": [1, 2]}),
        };
        answer(request, stream, &result);
    });
    let sidecar = sidecar(&server);
    for revision in super::WITH_SESSIONS {
        let client = able(&sidecar, revision);
        assert_eq!(client.ask("prompts/list", json!({}))["result"], json!({"prompts": []}));
        let error = &client.ask("resources/read", json!({"uri": "a:b"}))["error"];
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32002), &json!("a:b")));
        let result = &client.call("list", json!({}))["result"];
        if super::WITH_FORMS.contains(&revision) {
            assert_eq!(result["structuredContent"], json!({"result": [1, 2]}));
        }
        assert_eq!(result["content"][0]["text"], "[1,2]");
        // What has no like there is an error that names both.
        let error = client.call("echo", json!({}))["error"]["message"].to_string();
        assert!(error.contains(revision) && error.contains("2026-07-28"), "{error}");
    }
}

#[test]
fn what_is_said_during_a_call_comes_on_its_stream() {
    let server = serving(|request, stream| {
        let token = &message(request)["params"]["_meta"]["progressToken"];
        let note = |method: &str, params: serde_json::Value| {
            let text = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
            format!("data: {text}\n\n")
        };
        let result = json!({"resultType": "complete", "content": []});
        scripted::events(
            stream,
            &[
                ": hello\n\n",
                &note("notifications/progress", json!({"progressToken": token, "progress": 1})),
                &note("notifications/message", json!({"level": "info", "data": "d"})),
                &note("com.example/done", json!({"a": 1})),
                "data: {\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"roots/list\"}\n\n",
                &format!("data: {}\n\n", scripted::reply_to(request, &result)),
            ],
        );
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let params = json!({"name": "echo", "_meta": {"progressToken": "t"}});
    let events = client.send("tools/call", params).events();
    let events: Vec<serde_json::Value> = events
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    assert_eq!(events.len(), 4, "{events:?}");
    assert_eq!(events[0]["params"]["progressToken"], "t");
    assert_eq!(events[1]["params"]["data"], "d");
    assert_eq!((&events[2]["method"], &events[2]["params"]), (&json!("com.example/done"), &json!({"a": 1})));
    assert_eq!(events[3]["result"], json!({"content": []}));
}

/// 58: to go away means nothing to a client with a session, whatever it would mean to the server.
#[test]
fn r058_a_client_that_goes_away_cancels_nothing_at_a_server_without_sessions() {
    let gate = Gate::default();
    let goes_on = gate.clone();
    let server = serving(move |request, stream| {
        scripted::begin_events(stream);
        let note = json!({
            "jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "begun"},
        });
        scripted::say(stream, &note);
        goes_on.pass();
        let result = json!({"resultType": "complete", "content": []});
        scripted::say(stream, &scripted::reply_to(request, &result));
        scripted::chunk(stream, "");
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let mut stream = client.stream("echo", json!({}));
    let begun = std::iter::from_fn(|| stream.any()).find(|event| event.data.contains("begun")).unwrap();
    drop(stream);
    gate.open();
    eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
    let rest = Events::open(&client.rest(&begun.id), sidecar.mcp).all();
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].message()["result"], json!({"content": []}));
}

#[test]
fn r059_a_cancelled_call_is_dropped_at_the_server() {
    let server = serving(|_, stream| {
        scripted::begin_events(stream);
        // Nothing more: who does not want to wait closes the connection.
        let mut rest = [0; 1];
        let _ = std::io::Read::read(stream, &mut rest);
    });
    let sidecar = &sidecar(&server);
    let client = able(sidecar, "2025-11-25");
    let before = server.connections();
    let message = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"echo"}}"#;
    std::thread::scope(|scope| {
        let request = client.request(message);
        let call = scope.spawn(move || request.send(sidecar.mcp));
        eventually("the call is under way", || server.seen("tools/call").len() == 1);
        let again = client.request(message).send(sidecar.mcp);
        assert_eq!(again.status, 400, "an id is used once at a time: {}", again.text());
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0063"}}"#;
        assert_eq!(client.request(cancel).send(sidecar.mcp).status, 202);
        let reply = call.join().unwrap();
        assert!(reply.text().contains("cancelled by its client"), "{}", reply.text());
    });
    eventually("the server is told", || server.connections() <= before);
    sidecar.audit(|line| line["reason"] == "cancelled by its client");
}

#[test]
fn servers_that_fail_are_told_of_as_they_are() {
    let server = serving(|request, stream| match message(request)["params"]["name"].as_str() {
        Some("gone") => {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        Some("cut") => scripted::events(stream, &["data: {\"jsonrpc\":\"2.0\",\"id\":1,\"res"]),
        Some("status") => scripted::write(stream, "HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n"),
        Some("html") => {
            scripted::write(stream, "HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 1\r\n\r\nx")
        }
        Some("other") => scripted::json(stream, r#"{"jsonrpc":"2.0","id":"other","result":{}}"#),
        _ => answer(request, stream, &json!({"content": []})),
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for (name, words) in [
        ("gone", "went away"),
        ("cut", "went away"),
        ("status", "503"),
        ("html", "not an answer"),
        ("other", "went away"),
    ] {
        let message = client.call(name, json!({}));
        let text = message["error"]["message"].as_str().unwrap_or_default();
        assert!(text.contains(words), "{name}: {message}");
        assert!(client.call("echo", json!({}))["result"].is_object(), "the session goes on after {name}");
    }
}

/// 60: what is answered twice, or was never asked, reaches nobody, in this session or another.
#[test]
fn r060_answers_that_nobody_waits_for_reach_nobody() {
    let server = serving(|request, stream| {
        let own = message(request)["id"].clone();
        let answer = |id: &serde_json::Value, text: &str| {
            let result = json!({"resultType": "complete", "content": [{"type": "text", "text": text}]});
            format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "result": result}))
        };
        let error = json!({"jsonrpc": "2.0", "id": own, "error": {"code": 1, "message": "m"}});
        let again = [answer(&own, "again"), format!("data: {error}\n\n")];
        let again = &again[usize::from(message(request)["params"]["arguments"]["fails"] == true)];
        let first =
            answer(&json!("nobody"), "foreign") + &answer(&json!(4711), "foreign") + &answer(&own, "own");
        if message(request)["params"]["arguments"]["late"] == true {
            scripted::events(stream, &[&first, ": a while\n\n", again]);
        } else {
            scripted::events(stream, &[&(first + again)]);
        }
    });
    let sidecar = sidecar(&server);
    for revision in super::WITH_SESSIONS {
        let (one, other) = (able(&sidecar, revision), able(&sidecar, revision));
        for late in [false, true] {
            for fails in [false, true] {
                for client in [&one, &other] {
                    let reply = client.send(
                        "tools/call",
                        json!({"name": "echo", "arguments": {"late": late, "fails": fails}}),
                    );
                    let case = format!("{revision}, {late}, {fails}: {}", reply.text());
                    assert!(reply.events().len() <= 1, "{case}");
                    assert_eq!(reply.message()["result"]["content"][0]["text"], "own", "{case}");
                }
            }
        }
    }
}

#[test]
fn lists_with_many_tools_are_read_once() {
    let server = Sessionless::start(everything(), tools(), |request, stream| {
        answer(request, stream, &json!({"content": []}));
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-06-18");
    for _ in 0..20 {
        client.call("echo", json!({}));
        client.call("unknown", json!({}));
    }
    assert!(server.seen("tools/list").len() <= 2, "{}", server.seen("tools/list").len());
}

/// No header holds an object, so a server that is strict misses one whatever its list says.
#[test]
fn an_argument_of_the_wrong_type_is_named_and_has_the_list_read_once_for_all() {
    let server = serving(|request, stream| {
        let error = json!({"code": -32020, "message": "the header Mcp-Param-Region is missing"});
        let answer = json!({"jsonrpc": "2.0", "id": message(request)["id"], "error": error});
        scripted::json_with(stream, 400, "", &answer.to_string());
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let error = client.call("marked", json!({"region": {"a": 1}}))["error"]["message"].to_string();
    assert!(error.contains("Mcp-Param-Region"), "{error}");
    // Each time takes five seconds from now on, of the twenty that a call has.
    server.says(|says| says.lists_nothing = true);
    std::thread::scope(|scope| {
        for id in 100..120 {
            let params = json!({"name": "marked", "arguments": {"region": {"a": 1}}});
            let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            let (request, mcp) = (client.request(message.to_string()), sidecar.mcp);
            scope.spawn(move || {
                let error = request.send(mcp).message()["error"]["message"].to_string();
                assert!(error.contains("Mcp-Param-Region"), "{error}");
            });
        }
    });
}

#[test]
fn calls_side_by_side_are_never_confused() {
    let server = echoing();
    let sidecar = &sidecar(&server);
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                // All of them use the same ids.
                let client = able(sidecar, "2025-11-25");
                for round in 0..50 {
                    let said = client.call("echo", json!({"client": number, "round": round}));
                    let text = said["result"]["content"][0]["text"].as_str().unwrap();
                    assert_eq!(text, json!({"client": number, "round": round}).to_string());
                }
            });
        }
    });
}

/// 59: a call can be cancelled while the sidecar itself waits for the server.
#[test]
fn r059_a_call_is_cancelled_while_the_servers_list_is_read() {
    let server = echoing();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    server.says(|says| says.lists_nothing = true);
    let read = || server.seen("tools/list").len();
    let before = read();
    // Nobody knows this tool, so the list is read first, which takes five seconds to fail.
    let params = json!({"name": "unheard-of"});
    let request = client
        .request(json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}).to_string());
    let mcp = sidecar.mcp;
    let calling = std::thread::spawn(move || request.send(mcp));
    eventually("the list is read", || read() > before);
    assert_eq!(client.cancel(77).status, 202);
    eventually("the call ends", || calling.is_finished());
    assert!(calling.join().unwrap().text().contains("cancelled"));
    assert!(server.seen("tools/call").is_empty());
    // It did not wait for the list: one that has failed is not read again at once for a tool that nobody knows.
    server.says(|says| says.lists_nothing = false);
    client.call("unheard-of", json!({}));
    assert_eq!(read(), before + 2);
}
