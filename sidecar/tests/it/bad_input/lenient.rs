//! What clients leave out, and are served all the same.

use serde_json::json;

use crate::harness::client::initialize;
use crate::harness::sse_server::SseServer;
use crate::harness::{Client, GoServer, Request, Scripted, Sidecar, config, modern, scripted};

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
            _ => scripted::json(stream, &scripted::reply_to(request, &json!({"tools": []}))),
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

/// Some servers answer under the number that they were asked under, written in another way.
#[test]
fn an_answer_may_write_its_number_in_another_way() {
    for (before, behind) in [("\"", "\""), ("", ".0")] {
        for events in [false, true] {
            let server = Scripted::offering(json!({"tools": {}}), move |request, stream| {
                if request.method == "GET" {
                    return scripted::no_stream(stream);
                }
                let id = &scripted::message(request)["id"];
                let answer = format!(
                    r#"{{"jsonrpc":"2.0","id":{before}{id}{behind},"result":{{"tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}],"content":[]}}}}"#
                );
                if events {
                    scripted::events(stream, &[&format!("data: {answer}\n\n")]);
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
            say.raw(&format!("event: message\ndata: {answer}\n\n"));
        });
        let sidecar = Sidecar::start(&server.config()).ready();
        let client = Client::open(&sidecar, None);
        let answer = client.call("t", json!({}));
        assert!(answer["result"].is_object(), "{before}5{behind}: {answer}");
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
