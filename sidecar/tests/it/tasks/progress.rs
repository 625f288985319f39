//! How far a task of a session is, which its server says when the call is over that began it.

use longshore_sidecar_config::{Isolation, Processes};
use serde_json::{Value, json};

use super::task;
use crate::harness::config::{callers, processes};
use crate::harness::shim::{server, serving_keyed, stdio};
use crate::harness::sse_server::{Say, SseServer};
use crate::harness::{Client, Events, Sidecar};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const STEPS: u64 = 3;

/// Begins a task, and gives the name of it.
fn begin(client: &Client<'_>, token: &Value) -> String {
    let params = json!({
        "name": "slow", "arguments": {"steps": STEPS}, "task": {"ttl": 60_000}, "_meta": {"progressToken": token},
    });
    let begun = client.ask("tools/call", params);
    begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
}

/// Each session hears of its own tasks, under its own tokens, which may be the same.
fn is_told(sidecar: &Sidecar, sessions: &[(Client<'_>, Value)]) {
    let mut streams: Vec<_> =
        sessions.iter().map(|(client, _)| Events::open(&client.get(), sidecar.mcp)).collect();
    let ids: Vec<_> = sessions.iter().map(|(client, token)| begin(client, token)).collect();
    for (((_, token), stream), id) in sessions.iter().zip(&mut streams).zip(&ids) {
        for step in 0..STEPS {
            let told = stream.next().unwrap().message();
            let expected =
                json!({"progressToken": token, "progress": step, "_meta": {RELATED: {"taskId": id}}});
            assert_eq!((&told["method"], &told["params"]), (&json!("notifications/progress"), &expected));
        }
    }
}

#[test]
fn r047_the_token_of_a_task_outlives_its_call_over_stdio() {
    for isolation in [Isolation::Session, Isolation::Principal, Isolation::Shared] {
        let mut config = stdio();
        config.limits.processes = Some(Processes { isolation, ..processes(4, 4) });
        let (_shim, sidecar) = serving_keyed(&config, &callers(), &server(&[]), &[]);
        let open = |key| Client::of(&sidecar, Some(key), "2025-11-25");
        let sessions = [("key-a", json!(1)), ("key-a", json!(1)), ("key-b", json!("p"))];
        is_told(&sidecar, &sessions.map(|(key, token)| (open(key), token)));
    }
}

#[test]
fn r047_the_token_of_a_task_outlives_its_call_over_sse() {
    let server = SseServer::start(|heard: &Value, say: &Say<'_>| {
        let params = &heard["params"];
        if heard["method"] != "tools/call" {
            return;
        }
        let mut begun = task("task-1", "working");
        begun["ttl"] = json!(60_000);
        say.answer(heard, &json!({"task": begun}));
        for step in 0..STEPS {
            let related = json!({RELATED: {"taskId": "task-1"}});
            let params = json!({"progressToken": params["_meta"]["progressToken"], "progress": step, "_meta": related});
            say.say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    is_told(&sidecar, &[(Client::of(&sidecar, None, "2025-11-25"), json!(1))]);
}
