//! What passes is passed as it is, and what must not pass does not.

mod breaks;
mod identity;

use std::io::BufReader;
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::config::{callers, keys};
use crate::harness::http::{Reply, connect, read_chunk};
use crate::harness::{Client, Events, Gate, GoServer, Request, Scripted, Sidecar, config, modern, scripted};

const ODD: &str = "{\"id\": 5 ,\"jsonrpc\":\"2.0\",\r\n \"method\":\"tools/call\",\"params\":{\"arguments\":{\"n\":1.0e+2,\"t\":\"\\u00e9\u{e9}\",\"big\":12345678901234567890123},\"name\":\"t\",\"_meta\":{\"progressToken\":\"p\",\"x.example/y\":[ ]}}}";
const ODD_RESULT: &str =
    "{\"result\":{\"content\":[ ],\"n\":1.00,\"s\":\"\\u0041\"} , \"id\":5,\"jsonrpc\":\"2.0\"}";

#[test]
fn params_and_results_keep_their_bytes() {
    let event = format!(": a comment\r\n\r\nevent: message\r\nid: 1\r\ndata: {ODD_RESULT}\r\n\r\n");
    for events in [false, true] {
        let text = event.clone();
        let server = Scripted::start(move |_, stream| {
            if events { scripted::events(stream, &[&text]) } else { scripted::json(stream, ODD_RESULT) }
        });
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::open(&sidecar, None);
        let reply = client.request(ODD).send(sidecar.mcp);
        if events {
            // The message as it is, in an event of the sidecar's own.
            let (id, message) = reply.text().split_once('\n').unwrap();
            assert!(id.starts_with("id: ") && id.ends_with("-1-0"), "{id}");
            assert_eq!(message, format!("data: {ODD_RESULT}\n\n"));
        } else {
            assert_eq!(reply.text(), ODD_RESULT);
        }
        assert_eq!(server.seen("tools/call")[0].body, ODD.as_bytes());
        if events {
            for (header, value) in [
                ("content-type", "text/event-stream"),
                ("cache-control", "no-cache, no-transform"),
                ("x-accel-buffering", "no"),
            ] {
                assert_eq!(reply.header(header), Some(value));
            }
        }
    }
}

/// What a server says to a call in which it asks for the roots, and goes on when the gate is open.
fn ask_for_roots(request: &Request, stream: &mut TcpStream, gate: &Gate) {
    scripted::begin_events(stream);
    scripted::chunk(stream, "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"roots/list\"}\n\n");
    gate.pass();
    let answer = scripted::reply_to(request, &json!({"content": []}));
    scripted::say(stream, &answer);
    scripted::write(stream, "0\r\n\r\n");
}

/// A server that gives no session ids goes by the ids in messages, and any client could give those of another one.
#[test]
fn r060_answers_and_cancellations_stay_apart_where_the_server_has_no_sessions() {
    let gate = Gate::default();
    let answered = gate.clone();
    let server = Scripted::nameless(move |request, stream| ask_for_roots(request, stream, &answered));
    let sidecar = Sidecar::keyed(&config(server.port), &callers());
    let [alice, bob] = ["key-a", "key-b"].map(|key| Client::open(&sidecar, Some(key)));
    let mut call = alice.stream("t", json!({}));
    assert_eq!(call.next().expect("a question").message()["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"roots": []}}).to_string();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let roots = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    for (client, message, line) in [
        (&bob, &answer, ["bob", "response", "deny"]),
        (&bob, &roots.to_string(), ["bob", "notifications/roots/list_changed", "deny"]),
        (&bob, &cancel.to_string(), ["bob", "notifications/cancelled", "deny"]),
        (&alice, &answer, ["alice", "response", "permit"]),
        // It was asked once.
        (&alice, &answer, ["alice", "response", "deny"]),
    ] {
        let reply = client.request(message.as_str()).send(sidecar.mcp);
        assert_eq!((reply.status, reply.text()), (202, ""), "{message}");
        sidecar.audit(|seen| ["principal", "method", "decision"].map(|member| &seen[member]) == line);
    }
    let seen = ["", "notifications/cancelled", "notifications/roots/list_changed"];
    assert_eq!(seen.map(|method| server.seen(method).len()), [1, 0, 0]);
    gate.open();
    assert_eq!(call.next().expect("an answer").message()["result"], json!({"content": []}));
}

/// Nobody else could give it then, and the server would wait in vain.
#[test]
fn an_answer_that_is_lost_on_its_way_may_be_given_again() {
    let (answered, is_lost) = (Gate::default(), AtomicBool::new(true));
    let gate = answered.clone();
    let server = Scripted::nameless_answered(move |request, stream| {
        if !scripted::method_of(request).is_empty() {
            ask_for_roots(request, stream, &answered);
        } else if is_lost.swap(false, Ordering::Relaxed) {
            stream.shutdown(Shutdown::Both).expect("a connection");
        } else {
            scripted::accepted(stream);
            gate.open();
        }
    });
    let sidecar = Sidecar::keyed(&config(server.port), &callers());
    let [alice, bob] = ["key-a", "key-b"].map(|key| Client::open(&sidecar, Some(key)));
    let mut call = alice.stream("t", json!({}));
    assert_eq!(call.next().expect("a question").message()["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": {"roots": []}}).to_string();
    for (client, status, got) in [(&alice, 502, 1), (&bob, 202, 1), (&alice, 202, 2), (&alice, 202, 2)] {
        assert_eq!(client.request(answer.as_str()).send(sidecar.mcp).status, status);
        assert_eq!(server.seen("").len(), got);
    }
    assert_eq!(call.next().expect("an answer").message()["result"], json!({"content": []}));
}

#[test]
fn nothing_of_the_caller_reaches_the_server() {
    let server = Scripted::start(|_, stream| scripted::json(stream, ODD_RESULT));
    let sidecar = Sidecar::keyed(&config(server.port), &keys(&[("alice", "key-a")]));
    let client = Client::open(&sidecar, Some("key-a"));
    let mut request = client
        .request(ODD)
        .header("cookie", "c=1")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        // Whoever adds to this may do so in a header of its own.
        .header("tracestate", "a=1")
        .header("tracestate", "b=2")
        .header("x-forwarded-host", "evil.example")
        // Some call their charset so.
        .header("content-encoding", "utf-8");
    request.path = "/mcp?secret=1".to_owned();
    let reply = request.send(sidecar.mcp);
    assert_eq!(reply.text(), ODD_RESULT);
    let seen = &server.seen("tools/call")[0];
    assert_eq!(seen.path, "/mcp");
    let mut headers = seen.headers.clone();
    headers.sort();
    let length = ODD.len().to_string();
    let expected = [
        ("accept", "application/json, text/event-stream"),
        ("content-length", &*length),
        ("content-type", "application/json"),
        ("host", &*format!("127.0.0.1:{}", server.port)),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-session-id", scripted::UPSTREAM_SESSION),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "a=1"),
        ("tracestate", "b=2"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    // And nothing of the server's session reaches the caller.
    assert_ne!(client.session, scripted::UPSTREAM_SESSION);
    assert_eq!(reply.header("mcp-session-id"), None);
}

#[test]
fn the_handshake_loses_only_what_nobody_could_use() {
    let server = Scripted::start(|_, _| {});
    let sidecar = Sidecar::start(&config(server.port));
    for (asked, offered) in [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {
            "protocolVersion": asked, "capabilities": {"tasks": {}, "roots": {}}, "clientInfo": {"name": asked, "version": "1"},
        }});
        let reply = Request::post(body.to_string()).send(sidecar.mcp);
        let result = &reply.message()["result"];
        assert_eq!(result["protocolVersion"], offered, "{asked}");
        let tasks = if offered == "2025-11-25" { json!({"tasks": {"list": {}}}) } else { json!({}) };
        assert_eq!(result["capabilities"], tasks, "tasks are hidden where nobody has them");
        let session = reply.header("mcp-session-id").unwrap();
        assert!(session.len() < 1024 && longshore_mcp::headers::is_session_id(session), "{session}");
        let seen = server.seen("initialize").pop().unwrap();
        let params = &scripted::message(&seen)["params"];
        assert_eq!(params["protocolVersion"], offered);
        let heard =
            if offered == "2025-11-25" { json!({"tasks": {}, "roots": {}}) } else { json!({"roots": {}}) };
        assert_eq!(params["capabilities"], heard, "and from the server");
        assert_eq!(params["clientInfo"]["name"], asked);
    }
}

#[test]
fn both_sides_can_ask_within_a_call() {
    let question =
        r#"{"jsonrpc":"2.0","id":"q1","method":"sampling/createMessage","params":{"messages":[ ]}}"#;
    let answered = std::sync::Arc::new(std::sync::Barrier::new(2));
    let wait = answered.clone();
    let server = Scripted::start(move |request, stream| {
        scripted::begin_events(stream);
        scripted::say(stream, &question);
        wait.wait();
        scripted::chunk(
            stream,
            &format!("data: {}\n\n", scripted::reply_to(request, &json!({"done": true}))),
        );
        scripted::write(stream, "0\r\n\r\n");
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let call = client.request(client.message("tools/call", &json!({"name": "t"})));
    let mut events = Events::open(&call, sidecar.mcp);
    assert_eq!(events.status, 200);
    assert_eq!(events.next().unwrap().data, question);

    let answer = r#"{"jsonrpc":"2.0","id":"q1","result":{ "role":"assistant"}}"#;
    let reply = client.request(answer).send(sidecar.mcp);
    assert_eq!((reply.status, reply.body.len()), (202, 0));
    let posts = server.seen("POST");
    assert!(posts.iter().any(|request| request.body == answer.as_bytes()), "the answer reached the server");
    answered.wait();
    assert!(events.next().unwrap().data.contains("\"done\":true"));
    assert!(events.next().is_none(), "the stream ends with the answer");
}

/// What is asked, whether by a client of 2026-07-28, and whether the rest is there.
const HOW: [(&str, bool, bool); 5] = [
    ("tools/call", true, true),
    ("tools/call", true, false),
    ("tools/call", false, true),
    ("tools/list", false, true),
    ("tools/call", false, false),
];

/// 66: not before the time that the server has said, which is longer here than what is waited where it says none.
#[test]
fn r066_a_stream_that_the_server_ends_early_goes_on() {
    for (method, is_modern, answered) in HOW {
        goes_on(method, is_modern, answered, |stream| scripted::write(stream, "0\r\n\r\n"));
    }
}

/// 66: the same where the connection breaks, in the middle of an event.
#[test]
fn r066_a_stream_whose_connection_breaks_goes_on() {
    for (method, is_modern, answered) in HOW {
        goes_on(method, is_modern, answered, |stream| {
            scripted::chunk(stream, "data: {\"jsonrpc\":");
            stream.shutdown(Shutdown::Both).unwrap();
        });
    }
}

/// A call whose answer begins with one event, and then ends so: it goes on with the rest, or comes to nothing.
fn goes_on(
    method: &str,
    is_modern: bool,
    answered: bool,
    end: impl Fn(&mut TcpStream) + Send + Sync + 'static,
) {
    const RETRY: Duration = Duration::from_millis(1_300);
    let (asked, (waited, waits)) = (Mutex::new(None), channel());
    let server = Scripted::start(move |request, stream| {
        let mut asked = asked.lock().unwrap();
        if request.method == "GET" {
            let (asked, ended): &(Request, Instant) = asked.as_ref().unwrap();
            waited.send(ended.elapsed()).unwrap();
            if answered {
                let answer = scripted::reply_to(asked, &json!({"tools": [], "content": []}));
                scripted::events(stream, &[&format!("id: e2\ndata: {answer}\n\n")]);
            } else {
                scripted::write(stream, "HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n");
            }
        } else {
            *asked = Some((request.clone(), Instant::now()));
            let retry = RETRY.as_millis();
            scripted::begin_events(stream);
            scripted::chunk(stream, &format!("retry: {retry}\nid: e1\ndata: \n\n"));
            end(stream);
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let reply = if is_modern {
        modern::request(1, method, json!({"name": "t"})).send(sidecar.mcp)
    } else {
        Client::open(&sidecar, None).send(method, json!({"name": "t"}))
    };
    let wait = waits.try_recv().expect("it was asked for the rest");
    assert!(wait >= RETRY, "{method}, {is_modern}: {wait:?}");
    if answered {
        assert_eq!(reply.message()["result"]["tools"], json!([]), "{}", reply.text());
        let resumed = server.seen("GET").pop().unwrap();
        for (name, value) in [("last-event-id", "e1"), ("mcp-session-id", scripted::UPSTREAM_SESSION)] {
            assert!(resumed.headers.contains(&(name.to_owned(), value.to_owned())), "{name}");
        }
    } else {
        assert_eq!(reply.message()["error"]["code"], -32603);
    }
}

/// What every stream of events says of itself, so that nobody holds it back.
pub(crate) const EVENTS: [(&str, &str); 3] = [
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
];

#[test]
fn r011_a_silent_stream_is_kept_alive() {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Scripted::of_both(json!({}), move |request, stream| {
        scripted::begin_events(stream);
        let _ = wait.lock().unwrap().recv();
        scripted::say(stream, &scripted::reply_to(request, &json!({})));
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    // What would be packed would wait until there is enough of it.
    let packed = |request: Request| request.header("accept-encoding", "gzip, deflate, br");
    let mut stream = connect(sidecar.mcp);
    packed(client.request(client.message("tools/call", &json!({"name": "t"})))).write(&mut stream);
    let mut alone = connect(sidecar.mcp);
    packed(modern::request(1, "tools/call", json!({"name": "t"}))).write(&mut alone);
    let (mut reader, mut alone) = (BufReader::new(stream), BufReader::new(alone));
    let heads = [Reply::read_head(&mut reader).unwrap(), Reply::read_head(&mut alone).unwrap()];
    let begun = Instant::now();
    for (status, headers) in heads {
        assert_eq!(status, 200);
        assert!(headers.iter().all(|(name, _)| name != "content-encoding"), "{headers:?}");
        for (name, value) in EVENTS {
            assert!(headers.contains(&(name.to_owned(), value.to_owned())), "{name}: {headers:?}");
        }
    }
    assert!(read_chunk(&mut reader).unwrap().unwrap().starts_with(b"id: "));
    assert_eq!(read_chunk(&mut reader).unwrap().unwrap(), b": keep-alive\n\n");
    // What nobody comes back for has no ids.
    assert_eq!(read_chunk(&mut alone).unwrap().unwrap(), b": keep-alive\n\n");
    // After fifteen seconds, and some for the machine: the next one would be there after thirty.
    assert!(begun.elapsed() < Duration::from_secs(28), "{:?}", begun.elapsed());
    go_on.send(()).unwrap();
    go_on.send(()).unwrap();
    assert!(read_chunk(&mut reader).unwrap().unwrap().starts_with(b"id: "));
    assert!(read_chunk(&mut alone).unwrap().unwrap().starts_with(b"event: message\ndata: "));
}

#[test]
fn large_messages_pass_both_ways() {
    let server = Scripted::start(|request, stream| {
        let size = scripted::message(request)["params"]["arguments"]["text"].as_str().unwrap().len();
        scripted::reply(stream, request, &json!({"text": "y".repeat(size)}));
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    for size in [10, 60_000, 70_000, 3_000_000] {
        let message = client.call("t", json!({"text": "x".repeat(size)}));
        assert_eq!(message["result"]["text"].as_str().unwrap().len(), size);
    }
}

#[test]
fn a_server_without_sessions_is_served_in_sessions() {
    let server = GoServer::start(&["-stateless"]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    assert_eq!(client.call("echo", json!({"text": "a"}))["result"]["content"][0]["text"], "a");
    let reply = Request::new("DELETE", "/mcp").session(&client.session).send(sidecar.mcp);
    assert_eq!(reply.status, 204);
    assert_eq!(client.send("ping", json!({})).status, 404);
}

#[test]
fn a_server_that_listens_on_ipv6_alone_is_found() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let port = crate::harness::peer::free_port();
    let mut command = std::process::Command::new(crate::harness::peer::folder().join("bin/go-server"));
    let mut child = command
        .args(["-listen", &format!("[::1]:{port}")])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let sidecar = Sidecar::start(&config(port)).ready();
    let names = Client::open(&sidecar, None).names("tools/list", "tools", "name");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names.len(), 6);
}
