//! Ids that a server gives twice: where each process or each session counts for itself, and where it counts anew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use longshore_sidecar_config::{Isolation, OnOwnerLoss, Processes};
use serde_json::{Value, json};

use super::{is_unknown, task};
use crate::harness::config::{keys, on_loss, processes};
use crate::harness::shim::{server, serving_keyed, stdio};
use crate::harness::{Client, Scripted, Sidecar, config, scripted};

const KEYS: [(&str, &str); 2] = [("alice", "key-a"), ("bob", "key-b")];

/// A server with sessions that counts its tasks, and says of each which tool it is of.
#[derive(Default)]
struct Counting {
    /// The tasks of each session, or those of all.
    stores: Mutex<HashMap<String, Vec<String>>>,
    /// How many of its sessions it has forgotten.
    forgotten: AtomicUsize,
}

impl Counting {
    /// The server, with a store of tasks for each session or one for all.
    fn start(apart: bool) -> (Scripted, Arc<Self>) {
        let counting = Arc::<Self>::default();
        let own = counting.clone();
        let server = Scripted::counting(move |request, stream| {
            let session = request.value("mcp-session-id").unwrap_or_default();
            let number: usize = session.trim_start_matches("session-").parse().unwrap_or(usize::MAX);
            if number <= counting.forgotten.load(Ordering::SeqCst) {
                return scripted::json_with(stream, 404, "", "{}");
            }
            let mut stores = counting.stores.lock().unwrap();
            let tasks = stores.entry(if apart { session } else { "all" }.to_owned()).or_default();
            let whole = |number: usize, tool: &String| {
                let mut task = task(&format!("task-{number}"), "working");
                (task["ttl"], task["statusMessage"]) = (json!(60_000), json!(tool));
                task
            };
            let all = |tasks: &[String]| (1..).zip(tasks).map(|(number, tool)| whole(number, tool)).collect();
            let message = scripted::message(request);
            let result = match message["method"].as_str().unwrap() {
                "tools/call" => {
                    tasks.push(message["params"]["name"].as_str().unwrap().to_owned());
                    json!({"task": whole(tasks.len(), tasks.last().unwrap())})
                }
                "tasks/list" => json!({"tasks": Value::Array(all(tasks))}),
                _ => {
                    let all: Vec<Value> = all(tasks);
                    let asked = |task: &&Value| task["taskId"] == message["params"]["taskId"];
                    all.iter().find(asked).cloned().unwrap_or_else(|| json!({"taskId": "none"}))
                }
            };
            scripted::reply(stream, request, &result);
        });
        (server, own)
    }

    /// Forgets all that there was, after so many sessions.
    fn restart(&self, sessions: usize) {
        self.forgotten.store(sessions, Ordering::SeqCst);
        self.stores.lock().unwrap().clear();
    }
}

/// A sidecar in front of it, which begins sessions again.
fn in_front_of(server: &Scripted) -> Sidecar {
    Sidecar::keyed(&on_loss(config(server.port), OnOwnerLoss::Reinitialize), &keys(&KEYS)).ready()
}

fn open<'a>(sidecar: &'a Sidecar, key: &str) -> Client<'a> {
    Client::with_capabilities(sidecar, Some(key), "2025-11-25", &json!({"roots": {}}))
}

fn begin(client: &Client<'_>, tool: &str) -> String {
    let begun = client.ask("tools/call", json!({"name": tool, "arguments": {}, "task": {"ttl": 60_000}}));
    begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
}

/// Which tool's task it is.
fn tool(client: &Client<'_>, id: &str) -> Value {
    let got = client.ask("tasks/get", json!({"taskId": id}));
    assert_eq!(got["result"]["taskId"], id, "{got}");
    got["result"]["statusMessage"].clone()
}

fn listed(client: &Client<'_>) -> Vec<String> {
    client.names("tasks/list", "tasks", "taskId")
}

/// 47: each process counts for itself.
#[test]
fn r047_processes_that_count_alike_have_tasks_of_their_own() {
    let mut config = stdio();
    config.limits.processes = Some(Processes { isolation: Isolation::Shared, ..processes(2, 2) });
    let (_shim, sidecar) = serving_keyed(&config, &keys(&KEYS), &server(&[]), &[]);
    let (alice, bob) = (Client::open(&sidecar, Some("key-a")), Client::open(&sidecar, Some("key-b")));
    let (of_alice, of_bob) = (begin(&alice, "slow"), begin(&bob, "other"));
    tool(&alice, &of_alice);
    tool(&bob, &of_bob);
    // Who comes to another process finds neither its own task there nor somebody else's.
    let pid = |client: &Client<'_>| client.call("pid", json!({}))["result"]["content"][0]["text"].clone();
    let of_before = pid(&alice);
    let mut there = [(); 2].map(|()| {
        let again = Client::open(&sidecar, Some("key-a"));
        let is_there = pid(&again) == of_before;
        if is_there {
            tool(&again, &of_alice);
        } else {
            is_unknown(&again.send("tasks/get", json!({"taskId": of_alice})));
        }
        is_there
    });
    there.sort_unstable();
    assert_eq!(there, [false, true]);
}

/// 47: so does each session of many servers.
#[test]
fn r047_sessions_that_count_alike_have_tasks_of_their_own() {
    let (server, _) = Counting::start(true);
    let sidecar = in_front_of(&server);
    let sessions = ["key-a", "key-a", "key-b"].map(|key| open(&sidecar, key));
    let tools = ["slow", "other", "slow"];
    let ids: Vec<_> = sessions.iter().zip(tools).map(|(session, tool)| begin(session, tool)).collect();
    for ((session, id), name) in sessions.iter().zip(&ids).zip(tools) {
        assert_eq!(tool(session, id), name);
        assert_eq!(listed(session), std::slice::from_ref(id));
    }
    // None of them is in a session of somebody else's, whatever that calls its own.
    let of_bob = &ids[2];
    is_unknown(&sessions[0].send("tasks/get", json!({"taskId": of_bob})));
    // Nor is another tool's in one of the same principal.
    is_unknown(&sessions[1].send("tasks/get", json!({"taskId": ids[0]})));
}

/// 47: a server that has one count for all sessions begins it anew when it is restarted. Whose the newest task is, has it.
#[test]
fn r047_an_id_of_before_a_restart_shows_nothing_of_after_it() {
    let (server, counting) = Counting::start(false);
    let sidecar = in_front_of(&server);
    let (alice, bob) = (open(&sidecar, "key-a"), open(&sidecar, "key-b"));
    let of_alice = begin(&alice, "slow");
    assert_eq!(tool(&open(&sidecar, "key-a"), &of_alice), "slow", "in another session too");
    counting.restart(3);
    let of_bob = begin(&bob, "other");
    let asked = server.seen("tasks/get").len();
    // Her session is begun again by this.
    is_unknown(&alice.send("tasks/get", json!({"taskId": of_alice})));
    for client in [&alice, &open(&sidecar, "key-a")] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            is_unknown(&client.send(method, json!({"taskId": of_alice})));
        }
        assert!(listed(client).is_empty());
    }
    let asked_since = server.seen("tasks/get").len() - asked;
    assert!(asked_since <= 1, "but for the one that the server did not take");
    for client in [&bob, &open(&sidecar, "key-b")] {
        assert_eq!(tool(client, &of_bob), "other");
        assert_eq!(listed(client), std::slice::from_ref(&of_bob));
    }
}
