//! What clients leave out, and are served all the same.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::client::initialize;
use crate::harness::config::callers;
use crate::harness::sse_server::SseServer;
use crate::harness::{
    Client, Events, GoServer, Reply, Request, Scripted, Sessionless, Sidecar, config, modern, scripted,
};

/// The revisions whose clients have sessions.
const WITH_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// 53: some clients ask before they have said that they are there, and some never say so.
#[test]
fn r053_requests_before_initialized_are_served() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for revision in WITH_SESSIONS {
        let greeted = Request::post(initialize(revision)).send(sidecar.mcp);
        assert_eq!(greeted.message()["result"]["protocolVersion"], revision);
        let session = greeted.header("mcp-session-id").unwrap();
        for method in ["ping", "tools/list"] {
            let message = json!({"jsonrpc": "2.0", "id": method, "method": method});
            let reply = Request::post(message.to_string()).session(session).send(sidecar.mcp);
            assert_eq!(reply.status, 200, "{revision}: {method}: {}", reply.text());
            let message = reply.message();
            assert!(message["result"].is_object() && message["id"] == method, "{revision}: {message}");
        }
    }
}

/// 52: whoever leaves the header out speaks what the session speaks, and its server hears its own revision.
#[test]
fn r052_a_session_goes_on_without_the_header_of_its_revision() {
    for spoken in WITH_SESSIONS {
        let server = Scripted::of(spoken, |request, stream| match &*request.method {
            "GET" => scripted::no_stream(stream),
            _ => scripted::reply(stream, request, &json!({"tools": []})),
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        // Before 2025-06-18 there was no such header.
        let expected = Some(spoken).filter(|spoken| *spoken >= "2025-06-18");
        for revision in WITH_SESSIONS {
            let case = format!("a client of {revision}, a server of {spoken}");
            let client = Client::of(&sidecar, None, revision);
            for method in ["ping", "tools/list"] {
                let request = client.request(client.message(method, &json!({})));
                let reply = request.without("mcp-protocol-version").send(sidecar.mcp);
                assert_eq!(reply.status, 200, "{case}: {method}: {}", reply.text());
                assert!(reply.message()["result"].is_object(), "{case}: {}", reply.text());
                let heard = server.seen(method).pop().unwrap();
                assert_eq!(heard.value("mcp-protocol-version"), expected, "{case}: {method}");
            }
        }
    }
}

/// Some servers answer under the number that they were asked under, written in another way, and report so too.
#[test]
fn an_answer_may_write_its_number_in_another_way() {
    for (before, behind) in [("\"", "\""), ("", ".0")] {
        for events in [false, true] {
            let server = Scripted::offering(json!({"tools": {}}), move |request, stream| {
                if request.method == "GET" {
                    return scripted::no_stream(stream);
                }
                let message = scripted::message(request);
                let id = &message["id"];
                let answer = format!(
                    r#"{{"jsonrpc":"2.0","id":{before}{id}{behind},"result":{{"tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}],"content":[]}}}}"#
                );
                if events {
                    let token = &message["params"]["_meta"]["progressToken"];
                    let report = report(&format!("{before}{token}{behind}"));
                    let report = if token.is_null() { String::new() } else { format!("data: {report}\n\n") };
                    scripted::events(stream, &[&format!("{report}data: {answer}\n\n")]);
                } else {
                    scripted::json(stream, &answer);
                }
            });
            let sidecar = Sidecar::start(&config(server.port)).ready();
            let client = Client::open(&sidecar, None);
            let case = format!("{before}5{behind}, as events: {events}");
            for method in ["tools/list", "tools/call"] {
                let body = json!({"jsonrpc": "2.0", "id": 5, "method": method, "params": {"name": "t"}});
                let reply = client.request(body.to_string()).send(sidecar.mcp);
                let answer =
                    if events { serde_json::from_str(&reply.events()[0]).unwrap() } else { reply.message() };
                assert_eq!(answer["id"].to_string(), "5", "{case}: {}", reply.text());
                assert!(answer["result"]["tools"].is_array(), "{case}: {}", reply.text());
            }
            // And for who asks without a session.
            let lone =
                modern::request(5, "tools/call", json!({"name": "t", "arguments": {}})).send(sidecar.mcp);
            assert_eq!(lone.message()["id"].to_string(), "5", "{case}: {}", lone.text());
            assert!(lone.message()["result"].is_object(), "{case}: {}", lone.text());
            if events {
                let params = json!({"name": "t", "arguments": {}, "_meta": {"progressToken": "p"}});
                assert_reported(&modern::request(5, "tools/call", params).send(sidecar.mcp), &case);
            }
        }
    }
}

/// News of progress under this token.
fn report(token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
    )
}

/// A call that has asked for it under the token `p` hears of its progress.
fn assert_reported(reply: &Reply, case: &str) {
    let heard: Value = serde_json::from_str(&reply.events()[0]).unwrap();
    assert_eq!(heard["params"], json!({"progressToken": "p", "progress": 1}), "{case}: {}", reply.text());
}

/// An id, written in another way: as the other kind of number or with escapes, as text, or as that of another request.
fn respelled(id: &Value, way: &str) -> String {
    match (id, way) {
        (_, "another") => "77".to_owned(),
        (Value::String(id), _) => format!(r#""\u{:04x}{}""#, u32::from(id.as_bytes()[0]), &id[1..]),
        (id, "text") => format!("\"{id}\""),
        (id, _) => format!("{id}.0"),
    }
}

/// The same of answers of any size, of servers of any era, and whoever asks.
#[test]
fn an_answer_may_write_its_id_in_another_way_whatever_it_is() {
    fn answer(request: &Request, stream: &mut TcpStream) {
        let message = scripted::message(request);
        let arguments = &message["params"]["arguments"];
        let of = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let id = respelled(&message["id"], &of("way"));
        let text = "x".repeat(usize::try_from(arguments["size"].as_u64().unwrap_or_default()).unwrap());
        let kind = if request.value("mcp-session-id").is_none() { r#""resultType":"complete","# } else { "" };
        let result = format!(r#"{{{kind}"content":[{{"type":"text","text":"{text}"}}]}}"#);
        let answer = if of("first") == "id" {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
        } else {
            format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#)
        };
        if of("form") == "events" {
            scripted::events(stream, &[&format!("data: {answer}\n\n")]);
        } else {
            scripted::json(stream, &answer);
        }
    }
    let (older, both) = (Scripted::start(answer), Scripted::of_both(json!({}), answer));
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let newer = Sessionless::start(json!({"tools": {}}), tools, answer);
    for (era, port) in [("older", older.port), ("both", both.port), ("newer", newer.port)] {
        let sidecar = Sidecar::start(&config(port)).ready();
        let client = Client::open(&sidecar, None);
        let call = |id: &Value, arguments: &Value, is_modern: bool| {
            let params = json!({"name": "t", "arguments": arguments});
            if is_modern {
                return modern::request(id.clone(), "tools/call", params).send(sidecar.mcp).message();
            }
            let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            client.request(body.to_string()).send(sidecar.mcp).message()
        };
        for is_modern in [false, true] {
            for (form, size) in [("json", 10), ("json", 200_000), ("events", 10)] {
                for (id, way) in [(json!(5), "number"), (json!(5), "text"), (json!("ab"), "escapes")] {
                    for first in ["id", "result"] {
                        let arguments = json!({"form": form, "size": size, "way": way, "first": first});
                        let case = format!("{era}, {is_modern}: {id} {arguments}");
                        let answer = call(&id, &arguments, is_modern);
                        assert_eq!(answer["id"], id, "{case}: {answer:.200}");
                        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
                        assert_eq!(text.len(), size, "{case}");
                    }
                }
                // And that of another request is an error of this one.
                let arguments = json!({"form": form, "size": size, "way": "another", "first": "id"});
                let answer = call(&json!(5), &arguments, is_modern);
                let case = format!("{era}, {is_modern}: {arguments}");
                assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(5), &json!(-32603)), "{case}");
            }
        }
    }
}

/// The same over HTTP+SSE.
#[test]
fn an_answer_in_a_stream_of_its_own_may_write_its_number_in_another_way() {
    for (before, behind) in [("\"", "\""), ("", ".0")] {
        let server = SseServer::start(move |message, say| {
            let id = &message["id"];
            let answer =
                format!(r#"{{"jsonrpc":"2.0","id":{before}{id}{behind},"result":{{"content":[]}}}}"#);
            let token = &message["params"]["_meta"]["progressToken"];
            if !token.is_null() {
                say.raw(&format!(
                    "event: message\ndata: {}\n\n",
                    report(&format!("{before}{token}{behind}"))
                ));
            }
            say.raw(&format!("event: message\ndata: {answer}\n\n"));
        });
        let sidecar = Sidecar::start(&server.config()).ready();
        let client = Client::open(&sidecar, None);
        let answer = client.call("t", json!({}));
        let case = format!("{before}5{behind}");
        assert!(answer["result"].is_object(), "{case}: {answer}");
        let call = json!({"name": "t", "arguments": {}, "_meta": {"progressToken": "p"}});
        assert_reported(&client.send("tools/call", call.clone()), &case);
        assert_reported(&modern::request(5, "tools/call", call).send(sidecar.mcp), &case);
    }
}

/// Some servers have one id for every request that they refuse without reading it. What they say of it is heard, where
/// it is all that they say to it.
#[test]
fn an_error_that_is_all_of_an_answer_is_the_answer() {
    for status in [200, 400, 406] {
        let server = Scripted::start(move |_, stream| {
            let error = json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "No, since."}});
            scripted::json_with(stream, status, "", &error.to_string());
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let client = Client::open(&sidecar, None);
        for method in ["tools/list", "tools/call"] {
            let body = json!({"jsonrpc": "2.0", "id": 5, "method": method, "params": {"name": "t"}});
            let answer = client.request(body.to_string()).send(sidecar.mcp).message();
            let error = json!({"code": -32600, "message": "No, since."});
            assert_eq!(
                (&answer["id"], &answer["error"]),
                (&json!(5), &error),
                "{status}: {method}: {answer}"
            );
        }
    }
}

/// The same where either side has no sessions.
#[test]
fn an_error_that_is_all_of_an_answer_is_the_answer_to_a_request_that_stands_alone() {
    for status in [200, 400, 406] {
        let refuse = move |_: &Request, stream: &mut TcpStream| {
            let error = json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "No, since."}});
            scripted::json_with(stream, status, "", &error.to_string());
        };
        let legacy = Scripted::start(refuse);
        let modern =
            Sessionless::start(json!({"tools": {}}), json!([{"name": "t", "inputSchema": {}}]), refuse);
        for (era, port) in [("legacy", legacy.port), ("modern", modern.port)] {
            let sidecar = Sidecar::start(&config(port)).ready();
            let client = Client::open(&sidecar, None);
            let body = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "t"}});
            let alone = modern::request(5, "tools/call", json!({"name": "t"}));
            for (from, request) in [("a session", client.request(body.to_string())), ("alone", alone)] {
                let answer = request.send(sidecar.mcp).message();
                let error = json!({"code": -32600, "message": "No, since."});
                let case = format!("{status}: {from}, a {era} server: {answer}");
                assert_eq!((&answer["id"], &answer["error"]), (&json!(5), &error), "{case}");
            }
        }
    }
}

/// JSON's null is what many programs write where they have nothing. Servers that are strict refuse it.
#[test]
fn parameters_that_are_null_are_none() {
    for revision in WITH_SESSIONS {
        let server = Scripted::of(revision, |request, stream| match &*request.method {
            "GET" => scripted::no_stream(stream),
            _ if scripted::message(request)["id"].is_null() => scripted::accepted(stream),
            _ => scripted::reply(stream, request, &json!({"tools": []})),
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let client = Client::of(&sidecar, None, revision);
        for (message, status) in [
            (r#"{"jsonrpc":"2.0","method":"ping", "p\u0061rams": null,"id":7}"#, 200),
            (r#"{"jsonrpc":"2.0","id":8,"method":"tools/list","params":null}"#, 200),
            (r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":null}"#, 202),
        ] {
            let reply = client.request(message).send(sidecar.mcp);
            assert_eq!(reply.status, status, "{revision}: {message}: {}", reply.text());
            assert!(status == 202 || reply.message()["result"].is_object(), "{revision}: {}", reply.text());
            let method = serde_json::from_str::<serde_json::Value>(message).unwrap()["method"].clone();
            let heard = server.seen(method.as_str().unwrap()).pop().unwrap();
            let heard = scripted::message(&heard);
            assert_eq!(heard.get("params"), None, "{revision}: {heard}");
        }
        let batch = r#"[{"jsonrpc":"2.0","id":9,"method":"ping","params":null}]"#;
        if revision == "2025-03-26" {
            let reply = client.request(batch).send(sidecar.mcp);
            assert!(reply.message()[0]["result"].is_object(), "{}", reply.text());
        }
        // Where something is needed it is missing.
        let call = r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":null}"#;
        let reply = client.request(call).send(sidecar.mcp);
        assert_eq!(reply.message()["error"]["code"], -32602, "{}", reply.text());
    }
}

/// Many clients end every address with a slash.
#[test]
fn a_slash_at_the_end_of_an_address_is_as_good_as_none() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let with_slash = |mut request: Request| {
        request.path = request.path.replacen("/mcp", "/mcp/", 1).replacen("/messages", "/messages/", 1);
        request
    };
    let greeted = with_slash(Request::post(initialize("2025-11-25"))).send(sidecar.mcp);
    assert_eq!(greeted.status, 200, "{}", greeted.text());
    let client = Client::in_session(&sidecar, greeted.header("mcp-session-id").unwrap());
    let reply = with_slash(client.request(client.message("tools/list", &json!({})))).send(sidecar.mcp);
    assert!(reply.message()["result"]["tools"].is_array(), "{}", reply.text());
    assert_eq!(Events::open(&with_slash(client.get()), sidecar.mcp).status, 200);
    let end = with_slash(Request::new("DELETE", "/mcp").session(&client.session));
    assert_eq!(end.send(sidecar.mcp).status, 204);

    let stream = Request::new("GET", "/sse/").header("accept", "text/event-stream");
    let mut stream = Events::open(&stream, sidecar.mcp);
    assert_eq!(stream.status, 200);
    let mut post = Request::post(initialize("2024-11-05"));
    post.path = stream.next().unwrap().data;
    assert_eq!(with_slash(post).send(sidecar.mcp).status, 202);
    assert!(stream.next().unwrap().message()["result"].is_object());
    // One, and at those alone.
    for path in ["/mcp//", "/", "//mcp", "/mcp/x/"] {
        assert_eq!(Request::new("POST", path).send(sidecar.mcp).status, 404, "{path}");
    }
}

/// Some send with every request what they have kept of the session before.
#[test]
fn a_handshake_in_a_session_that_is_not_there_begins_another() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::keyed(&config(server.port), &callers()).ready();
    let bob = Client::open(&sidecar, Some("key-b"));
    let ended = Client::open(&sidecar, Some("key-a"));
    assert_eq!(ended.end().status, 204);
    let greet = |session: &str| Request::post(initialize("2025-11-25")).key("key-a").session(session);
    // Whose it is, and whether it lives, makes no difference to others.
    for session in [&*ended.session, &*bob.session, "never-there"] {
        let reply = greet(session).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let other = reply.header("mcp-session-id").unwrap();
        assert_ne!(other, session);
        let client = Client::in_session(&sidecar, other).with_key("key-a");
        assert!(client.ask("tools/list", json!({}))["result"]["tools"].is_array());
        // There is none to be in for anything else.
        let call = client.request(client.message("tools/list", &json!({}))).without("mcp-session-id");
        assert_eq!(call.session(session).send(sidecar.mcp).status, 404);
        // One that lives has had its handshake.
        let second = greet(other).send(sidecar.mcp);
        assert_eq!(second.status, 400, "{}", second.text());
        sidecar.audit(|line| line["reason"] == "second initialize");
    }
    assert!(bob.ask("tools/list", json!({}))["result"]["tools"].is_array(), "it goes on");
}
