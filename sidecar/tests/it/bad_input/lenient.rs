//! What clients leave out, and are served all the same.

use serde_json::json;

use crate::harness::client::initialize;
use crate::harness::{Client, GoServer, Request, Scripted, Sidecar, config, scripted};

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
