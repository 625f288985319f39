//! The tasks of 2025-11-25, in sessions.

use std::net::Shutdown;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use longshore_sidecar_config::Keys;
use serde_json::{Value, json};

use super::{forbid, is_unknown, shared, task};
use crate::harness::config::{keys, session_key};
use crate::harness::replicas::Network;
use crate::harness::{Client, Events, Gate, Reply, Scripted, config, eventually, scripted};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// What the server knows of a task.
fn whole(id: &str, status: &str) -> Value {
    let mut task = task(id, status);
    task["ttl"] = json!(60_000);
    task
}

/// A server that begins a task with each call that wants one, and knows them all, whoever asks. Its stream says what it
/// is told.
fn server() -> (Scripted, Sender<String>) {
    let begun = Mutex::new(0);
    let (tell, told) = channel::<String>();
    let told = Arc::new(Mutex::new(told));
    let server = Scripted::listening(move |request, stream| {
        if request.method == "GET" {
            scripted::begin_events(stream);
            let told = told.lock().unwrap();
            while let Ok(text) = told.recv() {
                scripted::say(stream, &text);
            }
            return scripted::until_closed(stream);
        }
        let message = scripted::message(request);
        let id = message["params"]["taskId"].as_str().unwrap_or_default();
        let result = match message["method"].as_str().unwrap() {
            "tools/call" if message["params"].get("task").is_some() => {
                let mut begun = begun.lock().unwrap();
                *begun += 1;
                json!({"task": whole(&format!("task-{begun}"), "working")})
            }
            "tasks/get" => whole(id, "working"),
            "tasks/cancel" => whole(id, "cancelled"),
            "tasks/result" => json!({"content": [], "_meta": {RELATED: {"taskId": id}, "x": 1}}),
            "tasks/list" => {
                let all =
                    (1..=*begun.lock().unwrap()).map(|number| whole(&format!("task-{number}"), "working"));
                json!({"tasks": all.collect::<Vec<_>>()})
            }
            _ => json!({"content": []}),
        };
        scripted::reply(stream, request, &result);
    });
    (server, tell)
}

fn begin(client: &Client<'_>) -> String {
    let begun = client.ask("tools/call", json!({"name": "slow", "arguments": {}, "task": {"ttl": 60_000}}));
    begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
}

#[test]
fn r047_a_task_is_its_principals_and_nobody_elses() {
    let (server, _tell) = server();
    let sidecar = shared(server.port);
    let alice = Client::open(&sidecar, Some("key-a"));
    let bob = Client::open(&sidecar, Some("key-b"));
    let (first, of_bob) = (begin(&alice), begin(&bob));
    let second = begin(&alice);
    assert!(first.len() > 100 && first != second, "{first}");
    // It is found in another session of the same principal too.
    let again = Client::open(&sidecar, Some("key-a"));
    for client in [&alice, &again] {
        for (method, status) in [("tasks/get", "working"), ("tasks/cancel", "cancelled")] {
            let answer = client.ask(method, json!({"taskId": first}));
            assert_eq!(answer["result"], whole(&first, status), "{method}");
        }
        let result = client.ask("tasks/result", json!({"taskId": first}));
        assert_eq!(result["result"]["_meta"], json!({RELATED: {"taskId": first}, "x": 1}));
    }
    let seen = server.seen("tasks/get");
    assert_eq!(scripted::message(seen.last().unwrap())["params"]["taskId"], "task-1", "the server's own id");
    // Neither a guess nor what was heard from somebody else opens anything.
    let asked = server.seen("tasks/get").len();
    for id in [&first, "task-1", ""] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            is_unknown(&bob.send(method, json!({"taskId": id})));
        }
    }
    assert_eq!(server.seen("tasks/get").len(), asked, "the server has not heard of it");
    let listed = |client: &Client<'_>| client.names("tasks/list", "tasks", "taskId");
    assert_eq!(listed(&alice), [first.clone(), second]);
    assert_eq!(listed(&bob), [of_bob]);
    assert_eq!(listed(&Client::open(&sidecar, Some("key-b"))).len(), 1);
    // What may not be called any more has come to nothing.
    forbid(&sidecar, server.port);
    is_unknown(&alice.send("tasks/result", json!({"taskId": first})));
    assert!(listed(&alice).is_empty() && listed(&bob).is_empty());
    let written = sidecar.written();
    assert!(!written.contains(&first) && !written.contains("task-1"), "ids are in a log");
}

/// One may run for longer than the key is kept that its id was sealed with. Who asks which tasks there are goes on with it.
#[test]
fn a_task_that_a_list_shows_is_found_whatever_keys_there_were() {
    let (server, _tell) = server();
    let sidecar = shared(server.port);
    let first = begin(&Client::open(&sidecar, Some("key-a")));
    for (numbers, seal_with) in [(&[1, 2][..], 2), (&[2], 2)] {
        let mut config = config(server.port);
        config.sessions.seal_with = seal_with;
        let sessions = numbers.iter().map(|number| session_key(*number)).collect();
        let keys = Keys { sessions, ..keys(&[("alice", "key-a")]) };
        let digest = sidecar.files.write_with_keys(&config, &keys);
        sidecar.runs(&digest);
    }
    let alice = Client::open(&sidecar, Some("key-a"));
    is_unknown(&alice.send("tasks/get", json!({"taskId": first})));
    let listed = || alice.names("tasks/list", "tasks", "taskId");
    let named = listed();
    assert!(named.len() == 1 && named[0] != first, "{named:?}");
    assert_eq!(listed(), named, "it has one name");
    let task = alice.ask("tasks/get", json!({"taskId": named[0]}));
    assert_eq!(task["result"]["status"], "working", "{task}");
}

/// 47: servers that count their tasks give each id once beside every replica, and again when they start anew.
#[test]
fn r047_an_id_that_is_given_twice_is_whose_it_was_last() {
    let servers = [server().0, server().0];
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let of_alice = begin(&Client::open(&replicas[0], Some("key-a")));
    let (alice, bob) = (Client::open(&replicas[1], Some("key-a")), Client::open(&replicas[1], Some("key-b")));
    let of_bob = begin(&bob);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        is_unknown(&alice.send(method, json!({"taskId": of_alice})));
        assert!(servers[1].seen(method).is_empty(), "{method}: the server there has another task of this id");
    }
    assert_eq!(bob.ask("tasks/get", json!({"taskId": of_bob}))["result"], whole(&of_bob, "working"));
    // At the server that has begun it it is hers.
    let again = Client::open(&replicas[0], Some("key-a"));
    assert_eq!(again.ask("tasks/get", json!({"taskId": of_alice}))["result"], whole(&of_alice, "working"));
}

/// 47: what came of a task is seen by those who may call its tool, also if another tool's had the same id.
#[test]
fn r047_an_id_that_is_given_twice_is_of_the_tool_that_was_called_last() {
    let server = Scripted::listening(move |request, stream| {
        let begins = scripted::message(request)["params"].get("task").is_some();
        let result =
            if begins { json!({"task": whole("task-1", "working")}) } else { whole("task-1", "working") };
        scripted::reply(stream, request, &result);
    });
    let sidecar = shared(server.port);
    let alice = Client::open(&sidecar, Some("key-a"));
    let begin = |tool: &str| {
        let begun = alice.ask("tools/call", json!({"name": tool, "arguments": {}, "task": {"ttl": 60_000}}));
        begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned()
    };
    let names = [begin("slow"), begin("slow"), begin("other")];
    assert!(names[0] == names[1] && names[1] != names[2]);
    forbid(&sidecar, server.port);
    is_unknown(&alice.send("tasks/get", json!({"taskId": names[0]})));
    let answer = alice.ask("tasks/get", json!({"taskId": names[2]}));
    assert_eq!(answer["result"], whole(&names[2], "working"));
    // Nor by the name of the one before.
    let sidecar = shared(server.port);
    let alice = Client::open(&sidecar, Some("key-a"));
    let begin =
        |tool: &str| alice.ask("tools/call", json!({"name": tool, "arguments": {}, "task": {"ttl": 1}}));
    let before = begin("slow")["result"]["task"]["taskId"].clone();
    begin("other");
    is_unknown(&alice.send("tasks/get", json!({"taskId": before})));
}

/// 47: what a server says of tasks reaches those who know them.
#[test]
fn r047_news_of_a_task_goes_to_its_principal() {
    let (server, tell) = server();
    let sidecar = shared(server.port);
    let alice = Client::open(&sidecar, Some("key-a"));
    let id = begin(&alice);
    let mut events = Events::open(&alice.get(), sidecar.mcp);
    assert_eq!(events.any().unwrap().data, "");
    let status = |id: &str| json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": whole(id, "completed")});
    let log = |related: Value| {
        let params = json!({"level": "info", "data": 1, "_meta": {RELATED: related}});
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    };
    for told in [
        status("task-9"),
        status("task-1"),
        log(json!({"taskId": "task-1"})),
        log(json!({"taskId": "task-9"})),
    ] {
        tell.send(told.to_string()).unwrap();
    }
    assert_eq!(events.next().unwrap().message(), status(&id));
    assert_eq!(events.next().unwrap().message(), log(json!({"taskId": id})));
    assert_eq!(events.next().unwrap().message()["params"]["_meta"], json!({}), "of whom nobody knows");
    // Nor is there news of what came of a tool that may not be called any more.
    forbid(&sidecar, server.port);
    for told in [status("task-1"), log(json!({"taskId": "task-1"}))] {
        tell.send(told.to_string()).unwrap();
    }
    assert_eq!(events.next().unwrap().message()["params"]["_meta"], json!({}));
}

/// A server may speak of a task before it has answered the call that begins it.
#[test]
fn r047_news_of_a_task_that_is_about_to_begin_waits_for_its_name() {
    let (tell, told) = channel::<Vec<String>>();
    let told = Arc::new(Mutex::new(told));
    let gate = Gate::default();
    let waits = gate.clone();
    let server = Scripted::listening(move |request, stream| {
        if request.method == "GET" {
            scripted::begin_events(stream);
            let told = told.lock().unwrap();
            while let Ok(texts) = told.recv() {
                let events: String = texts.iter().map(|text| format!("data: {text}\n\n")).collect();
                scripted::chunk(stream, &events);
            }
            return scripted::until_closed(stream);
        }
        let task = scripted::message(request)["params"]["task"].is_object();
        if task {
            waits.pass();
        }
        let result = if task { json!({"task": whole("task-1", "working")}) } else { json!({"content": []}) };
        scripted::reply(stream, request, &result);
    });
    let sidecar = shared(server.port);
    let alice = Client::open(&sidecar, Some("key-a"));
    let mut events = Events::open(&alice.get(), sidecar.mcp);
    assert_eq!(events.any().unwrap().data, "");
    let status = |id: &str| json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": whole(id, "working")});
    let log = |number: u64| {
        let params = json!({"level": "info", "data": number});
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    };
    let call = json!({"name": "slow", "arguments": {}, "task": {"ttl": 60_000}});
    let begun = alice.begin(&call);
    eventually("it is at the server", || server.seen("tools/call").len() == 1);
    tell.send([log(1), status("task-1"), log(2)].map(|told| told.to_string()).into()).unwrap();
    // The first of what was said together does not wait.
    assert_eq!(events.next().unwrap().message(), log(1));
    gate.open();
    let begun = Reply::on(begun).message();
    let id = begun["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("{begun}"));
    assert_eq!(events.next().unwrap().message(), status(id));
    assert_eq!(events.next().unwrap().message(), log(2));
    // Nobody waits for a task that no call is about to begin.
    tell.send([status("task-9"), log(3)].map(|told| told.to_string()).into()).unwrap();
    assert_eq!(events.next().unwrap().message(), log(3));
}

/// A task asks in the call that waits for what comes of it, and waits for the answer however that call ends.
#[test]
fn r047_what_a_task_asks_outlives_the_call_that_waits_for_it() {
    let gate = Gate::default();
    let opened = gate.clone();
    let server = Scripted::start(move |request, stream| {
        if scripted::method_of(request) == "tools/call" {
            return scripted::reply(stream, request, &json!({"task": whole("task-1", "working")}));
        }
        scripted::begin_events(stream);
        for (id, meta) in [("task's", json!({RELATED: {"taskId": "task-1"}})), ("call's", json!({}))] {
            let params = json!({"_meta": meta});
            let asked = json!({"jsonrpc": "2.0", "id": id, "method": "roots/list", "params": params});
            scripted::say(stream, &asked);
        }
        opened.pass();
        let _ = stream.shutdown(Shutdown::Both);
    });
    let sidecar = shared(server.port);
    let alice = Client::with_capabilities(&sidecar, Some("key-a"), "2025-11-25", &json!({"roots": {}}));
    let id = begin(&alice);
    let result = alice.message("tasks/result", &json!({"taskId": id}));
    let mut waiting = Events::open(&alice.request(result), sidecar.mcp);
    let mut next = || waiting.next().unwrap().message();
    assert_eq!(next()["params"]["_meta"][RELATED]["taskId"], id);
    assert_eq!(next()["id"], "call's");
    gate.open();
    let (taken_back, error) = (next(), next());
    assert_eq!(taken_back["params"]["requestId"], "call's", "{taken_back}");
    assert_eq!(error["error"]["code"], -32603, "{error}");
}
