//! Tasks where the two sides have not the same ones: nobody offers any, and whoever asks for one is told why.

use serde_json::{Value, json};

use super::{shared, task};
use crate::harness::scripted::{self, message};
use crate::harness::{Client, Request, Scripted, Sessionless, modern};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A server with sessions that has all that there is, in its revision.
fn older(revision: &'static str) -> Scripted {
    Scripted::of_with(revision, json!({"tools": {}, "tasks": {"list": {}}}), |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        let result = match scripted::method_of(request).as_str() {
            "tools/list" => json!({"tools": []}),
            _ => json!({"content": []}),
        };
        scripted::reply(stream, request, &result);
    })
}

fn names_both(answer: &Value, revisions: [&str; 2]) {
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(revisions.iter().all(|revision| words.contains(revision)), "{words}");
}

/// 47, 70: neither of the two kinds of tasks is carried into the other.
#[test]
fn r047_no_tasks_are_carried_between_revisions() {
    let extension = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let old = older("2025-11-25");
    let sidecar = shared(old.port);
    let request_of = |can: &Value, method: &str, params: Value| -> Request {
        let mut message = modern::message(1, method, params);
        message["params"]["_meta"][CAPABILITIES] = can.clone();
        modern::of(&message.to_string()).key("key-a")
    };
    let request = |method: &str, params: Value| request_of(&extension, method, params);
    let discovered = request("server/discover", json!({})).send(sidecar.mcp).message();
    let offered = &discovered["result"]["capabilities"];
    assert!(offered.get("tasks").is_none() && offered.get("extensions").is_none(), "{discovered}");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        // Who has not declared the extension is not told to: it would help nobody.
        for can in [&extension, &json!({})] {
            let params = json!({"taskId": "task-1", "inputResponses": {}});
            let reply = request_of(can, method, params).send(sidecar.mcp);
            assert_eq!(reply.status, 404, "{}", reply.text());
            names_both(&reply.message(), ["2026-07-28", "2025-11-25"]);
        }
        assert!(old.seen(method).is_empty());
    }

    let new = Sessionless::start(
        json!({"tools": {}, "extensions": extension["extensions"]}),
        json!([{"name": "slow", "inputSchema": {"type": "object"}}]),
        |request, stream| scripted::reply(stream, request, &json!({"resultType": "complete", "content": []})),
    );
    let older_still = older("2025-06-18");
    for (port, server) in [(new.port, "2026-07-28"), (older_still.port, "2025-06-18")] {
        let sidecar = shared(port);
        let mut first: Value =
            serde_json::from_str(&crate::harness::client::initialize("2025-11-25")).unwrap();
        first["params"]["capabilities"] = json!({"tasks": {}});
        let reply = Request::post(first.to_string()).key("key-a").send(sidecar.mcp).message();
        assert_eq!(reply["result"]["protocolVersion"], "2025-11-25");
        assert!(reply["result"]["capabilities"].get("tasks").is_none(), "{reply}");
        let client = Client::open(&sidecar, Some("key-a"));
        for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"] {
            names_both(&client.ask(method, json!({"taskId": "task-1"})), ["2025-11-25", server]);
        }
        // A call that wants to be one is a call like any other.
        let answer = client.ask("tools/call", json!({"name": "slow", "arguments": {}, "task": {"ttl": 1}}));
        assert_eq!(answer["result"]["content"], json!([]), "{answer}");
    }
    for call in new.seen("tools/call").iter().chain(&older_still.seen("tools/call")) {
        assert!(message(call)["params"].get("task").is_none());
    }
    // A revision that has none has no such methods at all.
    let sidecar = shared(old.port);
    let client = Client::of(&sidecar, Some("key-a"), "2025-06-18");
    // Nor do they begin what they could not ask for again.
    let call = json!({"name": "slow", "arguments": {}, "task": {}});
    let answers =
        [request("tools/call", call.clone()).send(sidecar.mcp).message(), client.ask("tools/call", call)];
    for (answer, call) in answers.iter().zip(old.seen("tools/call")) {
        assert_eq!(answer["result"]["content"], json!([]), "{answer}");
        assert!(message(&call)["params"].get("task").is_none());
    }
    assert_eq!(old.seen("tools/call").len(), answers.len());
    assert_eq!(client.ask("tasks/get", json!({"taskId": "task-1"}))["error"]["message"], "Method not found");
}

/// 47: nor is a tool called there that has to be one, by whoever knows it all the same.
#[test]
fn r047_a_tool_that_has_to_be_a_task_is_called_in_its_own_revision() {
    let server = Scripted::of_with("2025-11-25", json!({"tools": {}, "tasks": {}}), |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        let tool = |name: &str, support: &str| json!({"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}});
        let result = match scripted::method_of(request).as_str() {
            "tools/list" => json!({"tools": [tool("quick", "optional"), tool("slow", "required")]}),
            _ => json!({"content": []}),
        };
        scripted::reply(stream, request, &result);
    });
    let sidecar = shared(server.port);
    let [same, older] =
        ["2025-11-25", "2025-06-18"].map(|revision| Client::of(&sidecar, Some("key-a"), revision));
    let modern = |name: &str| {
        modern::request(1, "tools/call", json!({"name": name})).key("key-a").send(sidecar.mcp).message()
    };
    for (answer, client) in [(modern("slow"), "2026-07-28"), (older.call("slow", json!({})), "2025-06-18")] {
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        let words = answer["error"]["message"].as_str().unwrap();
        let named = [client, "2025-11-25", "as a task"];
        assert!(named.iter().all(|named| words.contains(named)), "{words}");
    }
    assert!(server.seen("tools/call").is_empty());
    for answer in [same.call("slow", json!({})), modern("quick"), older.call("quick", json!({}))] {
        assert_eq!(answer["result"]["content"], json!([]), "{answer}");
    }
}

/// 47: nor does a server hear of a client's tasks that knows of none.
#[test]
fn r047_news_of_a_clients_tasks_goes_to_servers_that_have_the_same() {
    for (client, revision, goes_on) in [
        ("2025-11-25", "2025-11-25", true),
        ("2025-11-25", "2025-06-18", false),
        ("2025-06-18", "2025-06-18", false),
        ("2025-06-18", "2025-11-25", false),
    ] {
        let server = older(revision);
        let sidecar = shared(server.port);
        let client = Client::of(&sidecar, Some("key-a"), client);
        let mut params = task("t", "working");
        params["ttl"] = json!(60_000);
        let news = json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params});
        assert_eq!(client.request(news.to_string()).send(sidecar.mcp).status, 202);
        assert_eq!(server.seen("notifications/tasks/status").len(), usize::from(goes_on), "{revision}");
        let line = sidecar.audit(|line| line["method"] == "notifications/tasks/status");
        let (decision, reason) =
            if goes_on { ("permit", Value::Null) } else { ("deny", json!("no tasks in common")) };
        assert_eq!((&line["decision"], &line["reason"]), (&json!(decision), &reason), "{revision}: {line}");
    }
}

/// 47: nor does a server that counts its tasks hear of one of its own from who could not have begun it, whichever revision
/// that asks for.
#[test]
fn r047_no_task_of_the_servers_is_named_in_another_revision() {
    const RELATED: &str = "io.modelcontextprotocol/related-task";
    let meta = || json!({RELATED: {"taskId": "task-1"}, "x": 1});
    let call = || json!({"name": "slow", "arguments": {}, "_meta": meta()});
    let is_clean = |request: &Request| {
        let meta = &message(request)["params"]["_meta"];
        assert!(meta.get(RELATED).is_none() && meta["x"] == 1, "{meta}");
    };
    for (client, revision) in
        [("2025-06-18", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2025-11-25", "2025-06-18")]
    {
        let server = older(revision);
        let sidecar = shared(server.port);
        let client = Client::of(&sidecar, Some("key-a"), client);
        client.ask("tools/call", call());
        let params = json!({"progressToken": "p", "progress": 1, "_meta": meta()});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        assert_eq!(client.request(told.to_string()).send(sidecar.mcp).status, 202);
        for method in ["tools/call", "notifications/progress"] {
            let seen = server.seen(method);
            assert_eq!(seen.len(), 1, "{method} {revision}");
            is_clean(&seen[0]);
        }
    }
    let old = older("2025-11-25");
    let sidecar = shared(old.port);
    let answer = modern::request(1, "tools/call", call()).key("key-a").send(sidecar.mcp).message();
    assert_eq!(answer["result"]["content"], json!([]), "{answer}");
    is_clean(&old.seen("tools/call")[0]);
}
