//! A server over HTTP+SSE: to its clients it is one over Streamable HTTP.

use std::io::BufReader;
use std::sync::Mutex;

use longshore_sidecar_config::{Config, Upstream};
use serde_json::{Value, json};
use socket2::SockRef;

use super::{hear, said};
use crate::harness::http::{Reply, connect};
use crate::harness::scripted::{self, message};
use crate::harness::sse_server::Say;
use crate::harness::{Client, Events, Sidecar, SseServer, config, eventually};

#[test]
fn r067_messages_go_only_to_the_server_itself() {
    for (endpoint, reason) in [
        ("http://192.0.2.1/messages", "another origin"),
        ("//localhost:1/messages", "another origin"),
        ("https://localhost/messages", "another origin"),
        ("", "not usable"),
        ("/mess ages", "not usable"),
    ] {
        let server = SseServer::naming(move |_| endpoint.to_owned(), hear);
        let sidecar = Sidecar::start(&server.config());
        let line = sidecar.log(|line| line["message"] == "the MCP server is not connected");
        assert!(line["detail"].as_str().unwrap().contains(reason), "{endpoint}: {line}");
        assert_eq!(line["reason"], "NotMcp", "{line}");
        assert!(server.seen("initialize").is_empty(), "{endpoint}");
    }
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let server = SseServer::naming(move |session| format!("?session={session}"), hear);
        let sidecar = Sidecar::start(&server.config()).ready();
        let client = Client::open(&sidecar, None);
        assert_eq!(client.call("echo", json!({"text": host}))["result"], said(host));
        let posted = &server.seen("tools/call")[0];
        assert!(posted.path.starts_with("/sse?session="), "{}", posted.path);
    }
}

#[test]
fn a_server_over_sse_is_one_with_sessions() {
    let server = SseServer::start(hear);
    let sidecar = Sidecar::start(&server.config()).ready();
    let (one, two) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    for text in ["a", "b\nc", "\u{fc}"] {
        for client in [&one, &two] {
            assert_eq!(client.call("echo", json!({"text": text}))["result"], said(text));
        }
    }
    assert_eq!(server.streams().len(), 3, "each has a stream, and so has the sidecar");
    let posted = &server.seen("tools/call")[0];
    let headers: Vec<_> = posted.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert!(headers.contains(&"content-type") && !headers.contains(&"mcp-session-id"), "{headers:?}");
    assert_eq!(posted.value("mcp-protocol-version"), Some("2025-11-25"));
    assert_eq!(one.end().status, 204);
    eventually("its stream is closed", || server.streams().len() == 2);
    assert_eq!(one.send("ping", json!({})).status, 404);
    assert_eq!(two.call("echo", json!({"text": "still"}))["result"], said("still"));
}

/// In the messages of the sidecar's own session too.
#[test]
fn a_server_over_sse_is_told_the_revision_in_a_header_where_its_revision_has_one() {
    for (revision, header) in [
        ("2024-11-05", None),
        ("2025-03-26", None),
        ("2025-06-18", Some("2025-06-18")),
        ("2025-11-25", Some("2025-11-25")),
    ] {
        let server = SseServer::start(hear);
        server.restarts_with(revision);
        let sidecar = Sidecar::start(&server.config()).ready();
        for of_client in ["2024-11-05", "2025-11-25"] {
            let client = Client::of(&sidecar, None, of_client);
            assert_eq!(client.call("echo", json!({"text": "a"}))["result"], said("a"), "{revision}");
        }
        for posted in server.seen_all() {
            let version = posted.value("mcp-protocol-version");
            let is_first = scripted::method_of(&posted) == "initialize";
            assert_eq!(version, header.filter(|_| !is_first), "{revision}: {}", scripted::message(&posted));
        }
    }
}

/// Two calls under way, whose answers come the other way round, with progress under tokens that are the same number as
/// somebody's id.
#[test]
fn r068_ids_and_tokens_are_never_confused() {
    let waiting: Mutex<Vec<Value>> = Mutex::default();
    let server = SseServer::start(move |heard: &Value, say: &Say<'_>| {
        if heard["method"] != "tools/call" {
            return;
        }
        let mut waiting = waiting.lock().unwrap();
        waiting.push(heard.clone());
        if waiting.len() < 2 {
            return;
        }
        for call in waiting.drain(..).rev() {
            let token = &call["params"]["_meta"]["progressToken"];
            say.say(&json!({
                "jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 1, "of": call["params"]["name"]},
            }));
            say.answer(&call, &said(call["params"]["name"].as_str().unwrap()));
            // Once more, and to nobody.
            say.answer(&call, &said("again"));
            say.say(&json!({"jsonrpc": "2.0", "id": 4711, "result": {}}));
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    let client = Client::open(&sidecar, None);
    let calls: Vec<_> = [("first", 2), ("second", 1)]
        .map(|(name, token)| {
            let params = json!({"name": name, "arguments": {}, "_meta": {"progressToken": token}});
            (name, token, client.begin(&params))
        })
        .into();
    for (at, (name, token, stream)) in calls.into_iter().enumerate() {
        let reply = Reply::on(stream);
        let events = reply.events();
        assert_eq!(events.len(), 2, "{name}: {}", reply.text());
        let [progress, answer] = [0, 1].map(|at| -> Value { serde_json::from_str(&events[at]).unwrap() });
        assert_eq!(progress["params"], json!({"progressToken": token, "progress": 1, "of": name}));
        assert_eq!((&answer["id"], &answer["result"]), (&json!(at + 1), &said(name)));
    }
    let dropped = "longshore_dropped_lines_total{kind=\"unasked\"}";
    eventually("what nobody asked for is dropped", || sidecar.metric(dropped) >= 4.0);
}

/// What a server asks in a call goes to that call's client in its stream, and the answer back.
#[test]
fn r055_what_a_server_says_goes_to_one_stream() {
    let server = SseServer::start(|heard: &Value, say: &Say<'_>| {
        if heard["method"] == "tools/call" {
            say.say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            say.say(&json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}));
            say.say(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
        } else if heard["id"] == "q" {
            // Whoever asked is answered now.
            say.say(&json!({"jsonrpc": "2.0", "id": 2, "result": heard["result"]}));
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    let client = Client::open(&sidecar, None);
    let mut listening = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(listening.status, 200);
    let mut call = client.stream("ask", json!({}));
    let asked = call.next().unwrap().message();
    assert_eq!((&asked["method"], &asked["id"]), (&json!("roots/list"), &json!("q")));
    let answer = json!({"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}).to_string();
    assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
    assert_eq!(call.next().unwrap().message()["result"], json!({"roots": []}));
    assert_eq!(listening.next().unwrap().message()["method"], "notifications/tools/list_changed");
    eventually("its ping is answered", || {
        let posted = server.seen_all();
        posted.iter().map(message).any(|message| message["id"] == "p")
    });
}

/// In which of several calls it asks the server does not say: the client answers whichever it is.
#[test]
fn what_the_server_asks_outlives_the_call_that_it_is_asked_in() {
    let asking: Mutex<Value> = Mutex::default();
    let server = SseServer::start(move |heard: &Value, say: &Say<'_>| {
        let mut asking = asking.lock().unwrap();
        match heard["params"]["name"].as_str() {
            Some("ask") => {
                *asking = heard.clone();
                let params =
                    json!({"progressToken": heard["params"]["_meta"]["progressToken"], "progress": 1});
                say.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
            }
            Some("other") => say.say(&json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})),
            _ if heard["id"] == "q" => say.answer(&asking, &heard["result"]),
            _ => {}
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
    let asking = json!({"name": "ask", "_meta": {"progressToken": "t"}});
    let mut asking = Events::open(&client.request(client.message("tools/call", &asking)), sidecar.mcp);
    assert_eq!(asking.next().unwrap().message()["params"]["progress"], 1);
    let other = client.message("tools/call", &json!({"name": "other"}));
    let mut other_events = Events::open(&client.request(other.clone()), sidecar.mcp);
    assert_eq!(other_events.next().unwrap().message()["id"], "q");
    let params = json!({"requestId": serde_json::from_str::<Value>(&other).unwrap()["id"]});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(client.request(cancel.to_string()).send(sidecar.mcp).status, 202);
    let message = other_events.next().unwrap().message();
    assert_eq!(message["error"]["message"], "the call was cancelled by its client", "{message}");
    let answer = json!({"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}).to_string();
    assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
    assert_eq!(asking.next().unwrap().message()["result"], json!({"roots": []}));
}

/// 7: in this transport too.
#[test]
fn r007_a_server_may_write_batches_where_its_revision_has_them() {
    let server = SseServer::start(|heard: &Value, say: &Say<'_>| {
        let answer = json!({"jsonrpc": "2.0", "id": heard["id"], "result": said("batched")});
        let progress = json!({
            "jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": heard["params"]["_meta"]["progressToken"], "progress": 1},
        });
        if heard["method"] == "tools/call" {
            say.say(&json!([progress, progress]));
            say.say(&json!([answer]));
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    for revision in ["2024-11-05", "2025-03-26"] {
        let client = Client::of(&sidecar, None, revision);
        let reply = client.send("tools/call", json!({"name": "t", "_meta": {"progressToken": "p"}}));
        let messages: Vec<Value> =
            reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        let (answer, before) = messages.split_last().unwrap();
        assert_eq!(answer["result"], said("batched"), "{revision}");
        assert_eq!(before.len(), 2, "{revision}: {messages:?}");
    }
}

/// What waits behind a message for which its reader has no room yet.
#[test]
fn the_rest_of_a_batch_that_is_not_read_is_held_within_a_bound() {
    const MANY: usize = 350;
    let server = SseServer::start(|heard: &Value, say: &Say<'_>| {
        let token = &heard["params"]["_meta"]["progressToken"];
        if heard["method"] != "tools/call" {
            return;
        }
        if token.is_null() {
            return say.answer(heard, &said("done"));
        }
        let text = "x".repeat(2_400);
        let progress = |number: usize| {
            let params = json!({"progressToken": token, "progress": number, "message": text});
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        };
        say.say(&Value::Array((1..=MANY).map(progress).collect()));
    });
    let sidecar = Sidecar::flagged(&server.config(), &["--max-held-bytes", "4000000"]).ready();
    let client = Client::of(&sidecar, None, "2025-03-26");
    let mut unread = BufReader::new(connect(sidecar.mcp));
    SockRef::from(unread.get_ref()).set_recv_buffer_size(16 << 10).unwrap();
    let call = client.message("tools/call", &json!({"name": "t", "_meta": {"progressToken": "p"}}));
    client.request(call).write(unread.get_mut());
    // All of the batch has come by then, while there was room for it.
    assert_eq!(Reply::read_head(&mut unread).unwrap().0, 200);
    // Nearly all that there is.
    let large = || {
        let params = json!({"name": "t", "arguments": {"text": "x".repeat(3_900_000)}});
        client.request(client.message("tools/call", &params)).send(sidecar.mcp).status
    };
    eventually("there is no room beside it", || large() == 503);
    drop(unread);
    eventually("there is room again", || large() == 200);
}

/// Before a session has begun nobody counts what comes.
#[test]
fn a_server_that_says_much_before_it_says_where_to_post_is_not_read_on() {
    let port = scripted::bare(|_, stream| {
        scripted::begin_events(stream);
        scripted::chunk(stream, &format!(": {}", "x".repeat(400_000)));
        scripted::until_closed(stream);
    });
    let line = not_connected(port);
    assert!(line["detail"].as_str().unwrap().contains("not a stream of events"), "{line}");
}

/// One over Streamable HTTP, say, which has no stream without a session: that is about no revision.
#[test]
fn a_server_that_gives_no_stream_is_elsewhere_or_speaks_over_something_else() {
    for (status, headers, words) in [
        (400, "", "a GET of /sse with HTTP status 400: is this the path"),
        (307, "location: /sse/\r\n", "HTTP status 307, a redirect to /sse/, and"),
    ] {
        let port = scripted::bare(move |_, stream| scripted::json_with(stream, status, headers, "{}"));
        let line = not_connected(port);
        assert_eq!(line["reason"], "NotMcp", "{line}");
        assert!(line["detail"].as_str().unwrap().contains(words), "{line}");
    }
}

/// Why the server at this port cannot be used.
fn not_connected(port: u16) -> Value {
    let upstream = Upstream::Sse { port, path: "/sse".to_owned() };
    let sidecar = Sidecar::start(&Config { upstream, ..config(port) });
    sidecar.log(|line| line["message"] == "the MCP server is not connected")
}
