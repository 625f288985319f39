//! Calls, and what becomes of them.

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{DONE, answered};
use crate::harness::config::keys;
use crate::harness::http::connect;
use crate::harness::{
    Client, Events, Gate, Request, Scripted, Sessionless, Sidecar, config, eventually, modern, scripted,
};
use crate::passthrough::EVENTS;

const ODD: &str = "{\"id\": \"\\u0061\" ,\"jsonrpc\":\"2.0\",\r\n \"method\":\"tools/call\",\"params\":{\"arguments\":{\"n\":1.0e+2,\"big\":12345678901234567890123},\"name\":\"t\",\"_meta\":{\"io.modelcontextprotocol/clientCapabilities\":{ },\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"x.example/y\":[ ]}}}";
const ODD_RESULT: &str =
    "{\"result\":{\"content\":[ ],\"n\":1.00,\"s\":\"\\u0041\"} , \"id\":\"a\",\"jsonrpc\":\"2.0\"}";

#[test]
fn params_and_results_keep_their_bytes() {
    for events in [false, true] {
        let server = Scripted::of_both(json!({}), move |_, stream| {
            if events {
                scripted::events(stream, &[&format!("id: 1\nretry: 5\ndata: {ODD_RESULT}\n\n")]);
            } else {
                scripted::json(stream, ODD_RESULT);
            }
        });
        let sidecar = Sidecar::start(&config(server.port));
        let reply = modern::of(ODD).send(sidecar.mcp);
        let expected =
            if events { format!("event: message\ndata: {ODD_RESULT}\n\n") } else { ODD_RESULT.to_owned() };
        assert_eq!((reply.status, reply.text()), (200, expected.as_str()));
        assert_eq!(server.seen("tools/call")[0].body, ODD.as_bytes());
        let line = sidecar.audit(|line| line["method"] == "tools/call");
        assert_eq!(
            (&line["target"], &line["decision"], &line["status"]),
            (&json!("t"), &json!("permit"), &json!(200))
        );
    }
}

/// 30: nothing of a session is read, and none is named.
#[test]
fn r030_nothing_of_the_caller_reaches_the_server_but_what_belongs_to_the_message() {
    let server = Scripted::of_both(json!({}), |_, stream| {
        scripted::json_with(stream, 200, "mcp-session-id: s\r\nset-cookie: a=b\r\n", ODD_RESULT);
    });
    let sidecar = Sidecar::keyed(&config(server.port), &keys(&[("alice", "key-a")]));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let reply = modern::of(ODD)
        .key("key-a")
        .header("cookie", "c=1")
        .header("traceparent", trace)
        .header("mcp-session-id", "of-nobody")
        .header("last-event-id", "7")
        .header("mcp-param-region", "eu")
        .send(sidecar.mcp);
    assert_eq!((reply.status, reply.text()), (200, ODD_RESULT));
    for header in ["mcp-session-id", "set-cookie", "last-event-id"] {
        assert_eq!(reply.header(header), None, "{header}");
    }
    let mut headers = server.seen("tools/call")[0].headers.clone();
    headers.sort();
    let length = ODD.len().to_string();
    let expected = [
        ("accept", "application/json, text/event-stream"),
        ("content-length", &*length),
        ("content-type", "application/json"),
        ("host", &*format!("127.0.0.1:{}", server.port)),
        ("mcp-method", "tools/call"),
        ("mcp-name", "t"),
        ("mcp-param-region", "eu"),
        ("mcp-protocol-version", "2026-07-28"),
        ("traceparent", trace),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn r021_both_eras_are_served_at_one_address() {
    let server =
        Scripted::of_both(json!({}), |request, stream| scripted::json(stream, &answered(request, DONE)));
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    for _ in 0..3 {
        assert_eq!(client.call("t", json!({}))["result"]["x"], 1.0);
        let reply = modern::request(1, "tools/call", json!({"name": "t"})).send(sidecar.mcp);
        assert_eq!(reply.message()["result"]["x"], 1.0);
        // Whose head says so is in no session, even if it names one.
        let reply = modern::request(2, "tools/call", json!({"name": "t"})).session(&client.session);
        assert_eq!(reply.send(sidecar.mcp).status, 200);
    }
    let seen = server.seen("tools/call");
    let in_session =
        seen.iter().filter(|request| request.headers.iter().any(|(name, _)| name == "mcp-session-id"));
    assert_eq!((seen.len(), in_session.count()), (9, 3));
}

/// 31, 38: the server's own errors have the status of their revision, and the id.
#[test]
fn errors_of_the_server_have_the_status_of_the_revision() {
    let server = Scripted::of_both(json!({}), |request, stream| {
        let name = scripted::message(request)["params"]["name"].as_str().unwrap().to_owned();
        let (status, code) = name.split_once(' ').unwrap();
        let error = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m"}}}}"#);
        let error = if code == "-32603" { error.replace(r#""id":1,"#, "") } else { error };
        match status.parse() {
            Ok(status) => scripted::json_with(stream, status, "retry-after: 5\r\n", &error),
            Err(_) => scripted::events(stream, &[&format!("data: {error}\n\n")]),
        }
    });
    let sidecar = Sidecar::start(&config(server.port));
    for (said, code, status) in [
        ("200", -32602, 200),
        ("400", -32602, 200),
        ("400", -32021, 400),
        ("404", -32601, 404),
        ("200", -32601, 404),
        ("500", -32603, 200),
        // A server that has no time says for how long.
        ("429", -32000, 429),
        ("503", -32000, 503),
        // However quickly it comes: a moment later the response would have begun.
        ("events", -32601, 200),
        ("events", -32021, 200),
    ] {
        let name = format!("{said} {code}");
        let reply = modern::request(1, "tools/call", json!({"name": name})).send(sidecar.mcp);
        assert_eq!((reply.status, &reply.message()["error"]["code"]), (status, &json!(code)), "{name}");
        assert_eq!(reply.message()["id"], 1, "{name}");
        let later = matches!(status, 429 | 503).then_some("5");
        assert_eq!(reply.header("retry-after"), later, "{name}");
        let line = sidecar.audit(|line| line["target"] == name);
        assert_eq!((&line["code"], &line["status"]), (&json!(code), &json!(status)), "{name}");
    }
}

/// 12, 13, 39, 40: of all that a server may say beside its answer, only what the client can use reaches it.
#[test]
fn r040_only_what_belongs_to_the_request_passes() {
    let server = Scripted::of_both(json!({}), |request, stream| {
        let log = |level: &str| {
            format!(
                r#"data: {{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
            )
        };
        scripted::events(
            stream,
            &[
                "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{ }}\n\n",
                "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\n",
                "data: {\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n\nretry: 3\ndata: \n\nevent: other\ndata: {}\n\n",
                &format!("{}\n\n{}\n\n", log("debug"), log("error")),
                &format!("data: {}\n\ndata: {}\n\n", answered(request, DONE), answered(request, "{}")),
            ],
        );
    });
    let sidecar = Sidecar::start(&config(server.port));
    for (level, logs) in [(Value::Null, 0), (json!("warning"), 1), (json!("debug"), 2)] {
        let mut meta = json!({});
        if !level.is_null() {
            meta["io.modelcontextprotocol/logLevel"] = level;
        }
        let request = modern::request("a", "tools/call", json!({"name": "t", "_meta": meta}));
        let mut events = Events::open(&request, sidecar.mcp);
        let headers = events.headers.clone();
        for (header, value) in EVENTS {
            assert!(headers.contains(&(header.to_owned(), value.to_owned())), "{header}");
        }
        let mut seen = Vec::new();
        while let Some(event) = events.any() {
            assert!(event.id.is_empty() && event.retry.is_none(), "{event:?}");
            seen.push(event.message());
        }
        let methods: Vec<_> = seen.iter().filter_map(|message| message["method"].as_str()).collect();
        assert_eq!(methods.iter().filter(|method| **method == "notifications/progress").count(), 1);
        assert_eq!(methods.len(), 1 + logs, "{seen:?}");
        assert_eq!(seen.last().unwrap()["result"]["x"], 1.0);
        assert_eq!(seen.len(), 2 + logs, "{seen:?}");
    }
}

#[test]
fn r041_a_client_that_goes_away_has_cancelled() {
    for begun in [false, true] {
        let (gone, wait) = mpsc::channel();
        let server = Scripted::of_both(json!({}), move |_, stream| {
            if begun {
                scripted::begin_events(stream);
                scripted::chunk(
                    stream,
                    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n",
                );
            }
            // Reads until the other side closes.
            let closed = std::io::Read::read(stream, &mut [0]).is_ok_and(|read| read == 0);
            gone.send(closed).unwrap();
        });
        let sidecar = Sidecar::start(&config(server.port));
        let call = modern::request(1, "tools/call", json!({"name": "t"}));
        let mut stream = connect(sidecar.mcp);
        call.write(&mut stream);
        eventually("the server has it", || server.seen("tools/call").len() == 1);
        if begun {
            std::io::Read::read(&mut stream, &mut [0; 64]).unwrap();
        }
        drop(stream);
        assert!(wait.recv_timeout(Duration::from_secs(5)).unwrap(), "the connection to the server is closed");
        let line = sidecar.audit(|line| line["method"] == "tools/call");
        assert_eq!(line["decision"], "permit");
        let (status, reason) =
            if begun { (json!(200), json!("cancelled by its client")) } else { (json!(null), json!(null)) };
        assert_eq!((&line["status"], &line["reason"]), (&status, &reason));
        eventually("no call is under way", || sidecar.metric("longshore_calls") == 0.0);
    }
}

#[test]
fn a_server_that_fails_is_answered_for() {
    let server = Scripted::of_both(json!({}), |request, stream| {
        match scripted::message(request)["params"]["name"].as_str() {
            Some("cut") => {
                scripted::begin_events(stream);
                scripted::chunk(
                    stream,
                    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\ndata: {\"jsonr",
                );
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            Some("ends") => {
                scripted::events(
                    stream,
                    &["data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"],
                );
            }
            Some("fine") => scripted::json(stream, &answered(request, DONE)),
            Some("other") => scripted::json(stream, r#"{"jsonrpc":"2.0","id":77,"result":{}}"#),
            Some("status") => scripted::json_with(stream, 500, "", "oops"),
            Some("slow") => std::thread::sleep(Duration::from_secs(3)),
            Some("slow events") => {
                scripted::begin_events(stream);
                scripted::chunk(
                    stream,
                    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n",
                );
                std::thread::sleep(Duration::from_secs(3));
            }
            _ => scripted::json(stream, "[]"),
        }
    });
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let usual = config.limits.request_timeout_ms;
    // What is to be answered has all of its time.
    let mut allow = |milliseconds| {
        config.limits.request_timeout_ms = milliseconds;
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
    };
    let other = Client::open(&sidecar, None);
    for (name, reason) in [
        ("cut", "server broke off"),
        ("ends", "server broke off"),
        ("other", "server answered nonsense"),
        ("status", "server answered with an HTTP error"),
        ("slow", "server timed out"),
        ("slow events", "server timed out"),
        ("nonsense", "server answered nonsense"),
    ] {
        let is_slow = name.contains("slow");
        if is_slow {
            allow(1_500);
        }
        let reply = modern::request("i", "tools/call", json!({"name": name})).send(sidecar.mcp);
        if is_slow {
            allow(usual);
        }
        let message = reply.message();
        assert_eq!((reply.status, &message["error"]["code"]), (200, &json!(-32603)), "{name}: {message}");
        assert_eq!(message["id"], "i", "{name}");
        let line = sidecar.audit(|line| line["target"] == name);
        assert_eq!(line["reason"], reason, "{name}: {line}");
        // Nobody else notices, with a session or without.
        let fine = modern::request("j", "tools/call", json!({"name": "fine"})).send(sidecar.mcp).message();
        for message in [fine, other.call("fine", json!({}))] {
            assert_eq!(message["result"]["x"], 1.0, "{name}: {message}");
        }
    }
}

#[test]
fn large_messages_pass_both_ways() {
    let server = Scripted::of_both(json!({}), |request, stream| {
        let size = scripted::message(request)["params"]["arguments"]["text"].as_str().unwrap().len();
        scripted::reply(stream, request, &json!({"text": "y".repeat(size)}));
    });
    let sidecar = Sidecar::start(&config(server.port));
    for size in [10, 60_000, 70_000, 3_000_000] {
        let params = json!({"name": "t", "arguments": {"text": "x".repeat(size)}});
        let message = modern::request(1, "tools/call", params).send(sidecar.mcp).message();
        assert_eq!(message["result"]["text"].as_str().unwrap().len(), size);
    }
}

/// The client says in every request that it knows tasks, and no task says so much of itself.
#[test]
fn a_large_answer_passes_as_it_comes_whether_its_server_has_tasks_or_not() {
    const SIZE: usize = 33 << 20;
    for has_tasks in [false, true] {
        let extension = json!({"io.modelcontextprotocol/tasks": {}});
        let mut capabilities = json!({"tools": {}});
        if has_tasks {
            capabilities["extensions"] = extension.clone();
        }
        let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
        let server = Sessionless::start(capabilities, tools, |request, stream| {
            let content = json!([{"type": "text", "text": "y".repeat(SIZE)}]);
            scripted::reply(stream, request, &json!({"resultType": "complete", "content": content}));
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let mut call = modern::message(1, "tools/call", json!({"name": "t", "arguments": {}}));
        call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({"extensions": extension});
        let answer = modern::of(&call.to_string()).send(sidecar.mcp).message();
        let text = answer["result"]["content"][0]["text"].as_str().map(str::len);
        assert_eq!(text, Some(SIZE), "{has_tasks}: {}", answer["error"]);
    }
}

/// Whatever the server says of itself while it comes.
#[test]
fn an_answer_that_has_begun_to_come_is_refused_for_nothing_that_its_server_says_later() {
    const SIZE: usize = 100 << 10;
    let (begun, gate) = (Gate::default(), Gate::default());
    let (begins, goes_on) = (begun.clone(), gate.clone());
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let server = Sessionless::start(json!({"tools": {}}), tools, move |request, stream| {
        let content = json!([{"type": "text", "text": "y".repeat(SIZE)}]);
        let text = scripted::reply_to(request, &json!({"resultType": "complete", "content": content}));
        let head = "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length:";
        let (start, rest) = text.split_at(100);
        write!(stream, "{head} {}\r\n\r\n{start}", text.len()).unwrap();
        begins.open();
        goes_on.pass();
        stream.write_all(rest.as_bytes()).unwrap();
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let extension = json!({"io.modelcontextprotocol/tasks": {}});
    let mut call = modern::message(1, "tools/call", json!({"name": "t", "arguments": {}}));
    call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"extensions": extension});
    let (call, mcp) = (modern::of(&call.to_string()), sidecar.mcp);
    let calling = std::thread::spawn(move || call.send(mcp).message());
    begun.pass();
    // It is greeted once more where it does not know for a moment who it is.
    server.says(|says| {
        says.capabilities["extensions"] = extension;
        says.is_shy = 2;
    });
    let initialize = crate::harness::client::initialize("2025-11-25");
    assert!(Request::post(initialize).send(sidecar.mcp).message().get("error").is_some());
    eventually("it is greeted anew", || {
        sidecar.written().matches("the MCP server is connected").count() == 2
    });
    gate.open();
    let answer = calling.join().unwrap();
    let text = answer["result"]["content"][0]["text"].as_str().map(str::len);
    assert_eq!(text, Some(SIZE), "{}", answer["error"]);
}
