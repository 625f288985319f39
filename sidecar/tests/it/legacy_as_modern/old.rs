//! Requests that stand alone, in front of a server of the oldest revision, over HTTP+SSE.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{again, asked, call, request, roots, text};
use crate::harness::sse_server::Say;
use crate::harness::{Events, Sidecar, SseServer, eventually, scripted};

fn said(text: &Value) -> Value {
    json!({"content": [{"type": "text", "text": text.to_string()}]})
}

/// 71: everything of a call is in the stream of its session, also what is asked in it.
#[test]
fn r071_a_server_over_http_and_sse_is_called_asked_back_and_told() {
    let calling = Mutex::new(None);
    let server = SseServer::start(move |heard: &Value, say: &Say<'_>| {
        let params = &heard["params"];
        match (heard["method"].as_str(), params["name"].as_str()) {
            (Some("tools/call"), Some("echo")) => {
                let token = &params["_meta"]["progressToken"];
                say.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1}}));
                say.answer(heard, &said(&params["arguments"]["text"]));
            }
            (Some("tools/call"), Some("ask")) => {
                *calling.lock().unwrap() = Some(heard.clone());
                say.say(&json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"}));
            }
            (Some("tools/call"), _) => {}
            // The answer to its question.
            (None, _) => {
                let call = calling.lock().unwrap().take().unwrap();
                say.answer(&call, &said(&heard["result"]["roots"]));
            }
            (Some(_), _) => {}
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    let discovered = request("d", "server/discover", json!({}), &json!({})).send(sidecar.mcp).message();
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28", "{discovered}");
    let mut params = json!({"name": "echo", "arguments": {"text": "hi"}});
    params["_meta"] = json!({"progressToken": "p"});
    let heard: Vec<_> = Events::open(&request("e", "tools/call", params, &json!({})), sidecar.mcp).all();
    let [progress, answer] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!(progress.message()["params"]["progressToken"], "p");
    assert_eq!(answer.message()["result"]["content"][0]["text"], "\"hi\"");

    let (questions, state) = asked(&call("ask", json!({}), &roots()).send(sidecar.mcp));
    assert_eq!(questions[0].1["method"], "roots/list");
    let responses = json!({questions[0].0.clone(): {"roots": [{"uri": "file:///a"}]}});
    let reply = again("ask", json!({}), &roots(), &state, responses).send(sidecar.mcp);
    assert!(text(&reply).contains("file:///a"), "{}", reply.text());

    // Who goes away cancels.
    let mut stream = crate::harness::http::connect(sidecar.mcp);
    call("hang", json!({}), &json!({})).write(&mut stream);
    let hanging = |request: &crate::harness::Request| scripted::message(request)["params"]["name"] == "hang";
    let called = eventually("it is under way", || server.seen("tools/call").into_iter().find(hanging));
    drop(stream);
    let cancelled = eventually("the server is told", || server.seen("notifications/cancelled").pop());
    assert_eq!(scripted::message(&cancelled)["params"]["requestId"], scripted::message(&called)["id"]);
}
