//! Tasks of 2025-11-25 with a server that has them, from their beginning to their end.

use std::process::{Command, Stdio};

use serde_json::json;

use super::is_unknown;
use crate::harness::config::callers;
use crate::harness::peer::{Peer, free_port};
use crate::harness::{Client, Events, Files, Shim, Sidecar, config, eventually, own, shim};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// The project's own server.
fn example(transport: &str, port: u16) -> Vec<String> {
    own::command("conformance::server::example", &["2025-11-25", transport, &port.to_string()])
}

fn sidecar(config: &longshore_sidecar_config::Config, files: Files) -> Sidecar {
    files.write_with_keys(config, &callers());
    Sidecar::with(files, &[]).loaded().ready()
}

#[test]
fn r047_a_task_asks_its_client_and_says_what_came_of_it_over_http() {
    let port = free_port();
    let command = example("http", port);
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let server = Peer::listening(program.spawn().expect("the server"), port).heard(0);
    asks_and_ends(&sidecar(&config(server.port), Files::new()));
}

#[test]
fn r047_a_task_asks_its_client_and_says_what_came_of_it_over_stdio() {
    let files = Files::new();
    let _shim = Shim::start(&files, &example("stdio", 0));
    asks_and_ends(&sidecar(&shim::stdio(), files));
}

fn asks_and_ends(sidecar: &Sidecar) {
    let open = |key| {
        Client::with_capabilities(sidecar, Some(key), "2025-11-25", &json!({"elicitation": {"form": {}}}))
    };
    let (alice, bob) = (open("key-a"), open("key-b"));
    let mut told = Events::open(&alice.get(), sidecar.mcp);
    let call = json!({"name": "confirm_delete", "arguments": {"filename": "a.txt"}, "task": {"ttl": 60_000}});
    let begun = alice.ask("tools/call", call);
    let id = begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
    let named = json!({"taskId": id});
    eventually("it waits for its client", || {
        alice.ask("tasks/get", named.clone())["result"]["status"] == "input_required"
    });
    is_unknown(&bob.send("tasks/result", named.clone()));

    let mut waiting = Events::open(&alice.request(alice.message("tasks/result", &named)), sidecar.mcp);
    let asked = waiting.next().unwrap().message();
    assert_eq!(
        (&asked["method"], &asked["params"]["_meta"][RELATED]),
        (&json!("elicitation/create"), &named)
    );
    let result = json!({"action": "accept", "content": {"confirm": true}});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    assert_eq!(alice.request(answer.to_string()).send(sidecar.mcp).status, 202);
    let result = waiting.next().unwrap().message()["result"].take();
    assert_eq!(
        (&result["content"][0]["text"], &result["_meta"][RELATED]),
        (&json!("a.txt was deleted"), &named)
    );

    assert_eq!(alice.ask("tasks/get", named.clone())["result"]["status"], "completed");
    assert_eq!(alice.names("tasks/list", "tasks", "taskId"), [id.as_str()]);
    assert!(bob.names("tasks/list", "tasks", "taskId").is_empty());
    let mut states = Vec::new();
    while states.last().is_none_or(|status| status != "completed") {
        let news = told.next().unwrap().message();
        assert_eq!(
            (&news["method"], &news["params"]["taskId"]),
            (&json!("notifications/tasks/status"), &json!(id))
        );
        states.push(news["params"]["status"].as_str().unwrap().to_owned());
    }
    assert_eq!(states, ["input_required", "working", "completed"]);
}
