//! A client of one revision in front of a server of another, both with sessions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::config::config as configured;
use crate::harness::scripted::answered;
use crate::harness::{
    Client, Events, Request, Scripted, Sessionless, Sidecar, client, eventually, modern, scripted,
};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn no_stream_or(
    answer: impl Fn(&Request, &mut std::net::TcpStream) + Send + Sync + 'static,
) -> impl Fn(&Request, &mut std::net::TcpStream) + Send + Sync + 'static {
    move |request, stream| {
        if request.method == "GET" { scripted::no_stream(stream) } else { answer(request, stream) }
    }
}

/// What a request says of its revision beside its body.
fn version(request: &Request) -> Option<&str> {
    let found = request.headers.iter().find(|(name, _)| name == "mcp-protocol-version");
    found.map(|(_, version)| version.as_str())
}

/// What one of a session of this revision says there.
fn in_header(revision: &str) -> Option<&str> {
    (revision >= "2025-06-18").then_some(revision)
}

/// In every request, the sidecar's own too, whatever its client says there.
#[test]
fn a_server_is_told_the_revision_in_a_header_where_its_revision_has_one() {
    for server_revision in LEGACY {
        let server = Scripted::of_with(
            server_revision,
            json!({"tools": {"listChanged": true}}),
            no_stream_or(|request, stream| {
                scripted::reply(stream, request, &json!({"tools": [], "content": []}));
            }),
        );
        let sidecar = Sidecar::start(&configured(server.port)).ready();
        for revision in LEGACY {
            let client = Client::of(&sidecar, None, revision);
            client.call("t", json!({}));
            client.get().send(sidecar.mcp);
            client.end();
        }
        let alone = modern::request("m", "tools/call", json!({"name": "t"})).send(sidecar.mcp);
        assert_eq!(alone.status, 200, "{}", alone.text());
        let mut kinds = BTreeSet::new();
        for request in server.seen_all() {
            let method = scripted::method_of(&request);
            let expected = match method.as_str() {
                // Which one it is, is not known before.
                "initialize" => None,
                "server/discover" => Some("2026-07-28"),
                _ => in_header(server_revision),
            };
            assert_eq!(version(&request), expected, "{server_revision}, {} {method}", request.method);
            kinds.insert((request.method, method));
        }
        for (verb, method) in [
            ("POST", "initialize"),
            ("POST", "notifications/initialized"),
            ("POST", "tools/list"),
            ("POST", "tools/call"),
            ("GET", ""),
            ("DELETE", ""),
        ] {
            assert!(kinds.contains(&(verb.to_owned(), method.to_owned())), "{server_revision}: {kinds:?}");
        }
    }
}

/// 19, 70: the client speaks what it asked for, the server what it is of, and nothing changes between equals.
#[test]
fn r019_every_client_gets_the_revision_that_it_asks_for() {
    const RESULT: &str = r#"{"content":[{"type":"text","text":"t", "x":1.0},{"type":"audio","data":"AA==","mimeType":"audio/wav"},{"type":"resource_link","uri":"a://b","name":"n"}],"structuredContent":{ "a":1.0}}"#;
    const TOOLS: &str = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}, "execution":{"taskSupport":"optional"}}]}"#;
    for server_revision in LEGACY {
        let server = Scripted::of(
            server_revision,
            no_stream_or(|request, stream| match scripted::message(request)["method"].as_str() {
                Some("tools/list") => scripted::json(stream, &answered(request, TOOLS)),
                Some("resources/read") => scripted::json(
                    stream,
                    &format!(
                        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32042,"message":"m","data":{{"elicitations":[{{}}]}}}}}}"#,
                        scripted::message(request)["id"]
                    ),
                ),
                _ => scripted::events(stream, &[&format!("data: {}\n\n", answered(request, RESULT))]),
            }),
        );
        let sidecar = Sidecar::start(&configured(server.port)).ready();
        for revision in LEGACY {
            let case = format!("{revision} in front of {server_revision}");
            let reply = Request::post(client::initialize(revision)).send(sidecar.mcp);
            let greeting = reply.message();
            assert_eq!(greeting["result"]["protocolVersion"], revision, "{case}");
            assert_eq!(greeting["result"]["serverInfo"]["name"], "scripted", "{case}");
            let offered = scripted::message(&server.seen("initialize").pop().unwrap());
            let offered = offered["params"]["protocolVersion"].as_str().unwrap().to_owned();
            assert_eq!(offered, revision.min(server_revision), "{case}");

            let client = Client::of(&sidecar, None, revision);
            let called = client.send("tools/call", json!({"name": "t", "arguments": {"n": 1}}));
            let seen = server.seen("tools/call").pop().unwrap();
            assert_eq!(version(&seen), in_header(server_revision), "{case}");
            let result = &called.message()["result"];
            let kinds: Vec<_> =
                result["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
            let audio = if revision == "2024-11-05" { "resource" } else { "audio" };
            let link = if revision < "2025-06-18" { "text" } else { "resource_link" };
            if revision == server_revision {
                assert!(called.text().contains(RESULT), "{case}: {}", called.text());
            } else {
                assert_eq!(kinds, [&json!("text"), &json!(audio), &json!(link)], "{case}");
            }
            let listed = client.ask("tools/list", json!({}));
            let tool = &listed["result"]["tools"][0];
            assert_eq!(tool["name"], "t", "{case}");
            if revision != server_revision {
                assert_eq!(tool.get("execution"), None, "{case}: tasks are not carried");
            }
            let code = &client.ask("resources/read", json!({"uri": "a://b"}))["error"]["code"];
            // What an older server means by the code is its own.
            let knows = revision == "2025-11-25" || server_revision != "2025-11-25";
            assert_eq!(*code, if knows { json!(-32042) } else { json!(-32603) }, "{case}");
        }
    }
}

/// 19: one that has no handshake, or that nobody knows, is answered with the newest that has one, whatever the server speaks.
#[test]
fn r019_who_asks_for_a_revision_without_a_handshake_gets_the_newest_that_has_one() {
    let answer = |request: &Request, stream: &mut std::net::TcpStream| {
        scripted::reply(stream, request, &json!({"tools": []}));
    };
    let older = LEGACY.map(|revision| Scripted::of(revision, no_stream_or(answer)));
    let newer = Sessionless::start(json!({"tools": {}}), json!([]), |_, _| {});
    for port in older.each_ref().map(|server| server.port).into_iter().chain([newer.port]) {
        let sidecar = Sidecar::start(&configured(port)).ready();
        for asked in ["2026-07-28", "2099-01-01", "banana"] {
            let reply = Request::post(client::initialize(asked)).send(sidecar.mcp);
            assert_eq!(
                reply.message()["result"]["protocolVersion"],
                "2025-11-25",
                "{asked}: {}",
                reply.text()
            );
            let client = Client::in_session(&sidecar, reply.header("mcp-session-id").unwrap());
            assert_eq!(client.ask("tools/list", json!({}))["result"]["tools"], json!([]), "{asked}");
        }
    }
}

/// A call in which the server asks something, and the question as it reaches the client; none if it does not.
fn asked(
    server_revision: &'static str,
    client_revision: &'static str,
    question: &Value,
) -> (Option<Value>, Scripted, Option<Value>) {
    let text = format!("data: {question}\n\n");
    let server = Scripted::of(
        server_revision,
        no_stream_or(move |request, stream| {
            scripted::begin_events(stream);
            scripted::chunk(stream, &text);
            scripted::say(stream, &answered(request, r#"{"content":[]}"#));
            scripted::write(stream, "0\r\n\r\n");
        }),
    );
    let sidecar = Sidecar::start(&configured(server.port)).ready();
    let client = Client::of(&sidecar, None, client_revision);
    let seen =
        Events::open(&client.request(client.message("tools/call", &json!({"name": "t"}))), sidecar.mcp).all();
    let heard = (seen.len() > 1).then(|| seen[0].message());
    let answer = match &heard {
        None => Some(eventually("the server hears why", || {
            let posts = server.seen("POST");
            posts.iter().map(scripted::message).find(|message| message["id"] == question["id"])
        })),
        Some(_) => {
            let content = json!([{"type": "text", "text": "a"}]);
            let result = json!({"role": "assistant", "model": "m", "content": content});
            let body = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
            assert_eq!(client.request(body.to_string()).send(sidecar.mcp).status, 202);
            server.seen("POST").iter().map(scripted::message).find(|message| message["id"] == question["id"])
        }
    };
    (heard, server, answer)
}

/// What the client's revision does not have is never passed over in silence, and never looks like a success.
#[test]
fn what_cannot_be_asked_is_answered_with_both_revisions() {
    let visit = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {
        "mode": "url", "message": "m", "url": "https://a.example", "elicitationId": "e",
    }});
    let form = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {
        "message": "m", "requestedSchema": {"type": "object", "properties": {}},
    }});
    let sampling = |content: Value| {
        json!({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {
            "messages": [{"role": "user", "content": content}], "maxTokens": 5,
        }})
    };
    let text = json!({"type": "text", "text": "a"});
    for (server, client, question, passes) in [
        ("2025-11-25", "2025-06-18", &visit, false),
        ("2025-11-25", "2025-11-25", &visit, true),
        ("2025-11-25", "2025-06-18", &form, true),
        ("2025-06-18", "2025-03-26", &form, false),
        ("2025-03-26", "2025-11-25", &sampling(text.clone()), true),
        ("2025-11-25", "2025-03-26", &sampling(json!([text.clone(), text])), true),
    ] {
        let case = format!("{question} from {server} to {client}");
        let (heard, _server, answer) = asked(server, client, question);
        assert_eq!(heard.is_some(), passes, "{case}");
        let answer = answer.expect("an answer");
        if passes {
            // One block stands alone where there could be only one.
            let is_list = answer["result"]["content"].is_array();
            assert_eq!(is_list, server == "2025-11-25", "{case}: {answer}");
        } else {
            let why = answer["error"]["message"].as_str().unwrap();
            assert!(why.contains(server) && why.contains(client), "{case}: {why}");
        }
        if let Some(heard) = heard
            && server == "2025-11-25"
            && client == "2025-03-26"
        {
            assert_eq!(heard["params"]["messages"].as_array().unwrap().len(), 2, "{case}: {heard}");
        }
    }
}

/// An answer that the server's revision has no words for is an error to the server, which would wait for ever.
#[test]
fn what_cannot_be_answered_is_an_error_to_the_server() {
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "a"}}], "maxTokens": 5,
    }});
    let question = format!("data: {question}\n\n");
    let server = Scripted::of(
        "2025-03-26",
        no_stream_or(move |_, stream| {
            scripted::begin_events(stream);
            scripted::chunk(stream, &question);
            scripted::until_closed(stream);
        }),
    );
    let sidecar = Sidecar::start(&configured(server.port)).ready();
    let client = Client::of(&sidecar, None, "2025-11-25");
    let call = client.request(client.message("tools/call", &json!({"name": "t"})));
    let mut events = Events::open(&call, sidecar.mcp);
    assert_eq!(events.next().unwrap().message()["id"], "q");
    let block = json!({"type": "text", "text": "a"});
    let result = json!({"role": "assistant", "model": "m", "content": [block, block]});
    let body = json!({"jsonrpc": "2.0", "id": "q", "result": result}).to_string();
    assert_eq!(client.request(body).send(sidecar.mcp).status, 202);
    let heard = eventually("the server hears why", || {
        server.seen("POST").iter().map(scripted::message).find(|message| message["id"] == "q")
    });
    let why = heard["error"]["message"].as_str().unwrap();
    assert!(why.contains("2025-11-25") && why.contains("2025-03-26"), "{heard}");
}

#[test]
fn what_belongs_to_no_call_is_carried_too() {
    let server = Scripted::of("2025-11-25", |_, stream| {
        scripted::begin_events(stream);
        for message in [
            json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}}),
            json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "u", "elicitationId": "e"}}),
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
        ] {
            scripted::say(stream, &message);
        }
        scripted::until_closed(stream);
    });
    let sidecar = Sidecar::start(&configured(server.port)).ready();
    for (revision, first) in [
        ("2025-06-18", "notifications/tools/list_changed"),
        ("2025-11-25", "notifications/elicitation/complete"),
    ] {
        let client = Client::of(&sidecar, None, revision);
        let mut events = Events::open(&client.get(), sidecar.mcp);
        assert_eq!(events.next().unwrap().message()["method"], first, "{revision}");
    }
    eventually("the server hears why", || {
        server.seen("POST").iter().map(scripted::message).find(|message| message["id"] == "q")
    });
}
