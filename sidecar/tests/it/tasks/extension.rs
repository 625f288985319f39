//! The tasks of 2026-07-28, which are an extension.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{forbid, is_unknown, shared, task};
use crate::harness::replicas::{Network, knows};
use crate::harness::scripted::message;
use crate::harness::{
    Event, Events, Reply, Request, Sessionless, Sidecar, config, eventually, modern, scripted,
};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const RELATED: &str = "io.modelcontextprotocol/related-task";

fn extension() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

/// A server whose calls become tasks, whatever their clients have declared.
fn server() -> Sessionless {
    saying("")
}

/// One that says this of each.
fn saying(words: &str) -> Sessionless {
    let words = words.to_owned();
    let mut capabilities = extension();
    capabilities["tools"] = json!({});
    let tools = ["slow", "tells"].map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    Sessionless::start(capabilities, json!(tools), move |request, stream| {
        let message = message(request);
        let mut state = task(message["params"]["taskId"].as_str().unwrap_or("task-1"), "working");
        state["ttlMs"] = json!(null);
        if !words.is_empty() {
            state["statusMessage"] = json!(words);
        }
        let result = match message["method"].as_str().unwrap() {
            "tools/call" if message["params"]["name"] == "tells" => {
                let told = json!({"jsonrpc": "2.0", "method": "notifications/tasks", "params": state});
                let meta = json!({RELATED: {"taskId": state["taskId"]}});
                let content = json!([{"type": "text", "text": "task"}]);
                let result = json!({"resultType": "complete", "content": content, "_meta": meta});
                let answer = scripted::reply_to(request, &result);
                let [told, answer] = [told.to_string(), answer].map(|said| format!("data: {said}\n\n"));
                return scripted::events(stream, &[&told, &answer]);
            }
            "tools/call" => {
                state["resultType"] = json!("task");
                state
            }
            "tasks/get" => {
                state["resultType"] = json!("complete");
                state
            }
            "subscriptions/listen" => {
                let id = &message["id"];
                let wanted = &message["params"]["notifications"];
                scripted::begin_events(stream);
                let mut tell = |method: &str, mut params: Value| {
                    params["_meta"] = json!({SUBSCRIPTION: id});
                    let told = json!({"jsonrpc": "2.0", "method": method, "params": params});
                    scripted::say(stream, &told);
                };
                tell("notifications/subscriptions/acknowledged", json!({"notifications": wanted}));
                for id in ["task-9", "task-1"] {
                    let mut state = task(id, "working");
                    state["ttlMs"] = json!(null);
                    tell("notifications/tasks", state);
                }
                return scripted::until_closed(stream);
            }
            _ => json!({"resultType": "complete"}),
        };
        scripted::reply(stream, request, &result);
    })
}

/// A request of a client that can wait for tasks.
fn request(method: &str, params: Value) -> Request {
    let mut message = modern::message(1, method, params);
    message["params"]["_meta"][CAPABILITIES] = extension();
    modern::of(&message.to_string())
}

fn begin(sidecar: &Sidecar, key: &str) -> String {
    let begun = request("tools/call", json!({"name": "slow"})).key(key).send(sidecar.mcp).message();
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    begun["result"]["taskId"].as_str().unwrap().to_owned()
}

fn is_lacking(reply: &Reply) {
    let message = reply.message();
    assert_eq!((reply.status, &message["error"]["code"]), (400, &json!(-32021)), "{message}");
    assert_eq!(message["error"]["data"]["requiredCapabilities"], extension());
}

#[test]
fn r047_the_extension_is_for_those_who_declare_it() {
    let server = server();
    let sidecar = shared(server.port);
    let discovered =
        modern::request(1, "server/discover", json!({})).key("key-a").send(sidecar.mcp).message();
    assert_eq!(discovered["result"]["capabilities"]["extensions"], extension()["extensions"]);
    let id = begin(&sidecar, "key-a");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": id, "inputResponses": {}});
        is_lacking(&modern::request(1, method, params).key("key-a").send(sidecar.mcp));
        assert!(server.seen(method).is_empty());
        sidecar.audit(|line| line["method"] == method && line["decision"] == "deny");
    }
    // A server that forgets whom it talks to: the call was made.
    is_lacking(&modern::request(1, "tools/call", json!({"name": "slow"})).key("key-a").send(sidecar.mcp));
    let line = sidecar.audit(|line| line["reason"] == "capability not declared" && line["target"] == "slow");
    assert_eq!((&line["decision"], &line["status"]), (&json!("permit"), &json!(400)), "{line}");
    assert!(line["rule"].is_string(), "{line}");
}

#[test]
fn r047_a_task_that_stands_alone_is_its_principals_and_nobody_elses() {
    let server = server();
    let sidecar = shared(server.port);
    let id = begin(&sidecar, "key-a");
    assert!(id.len() > 100 && begin(&sidecar, "key-a") == id, "one name for one task: {id}");
    let ask = |method: &str, id: &str, key: &str| {
        request(method, json!({"taskId": id, "inputResponses": {}})).key(key).send(sidecar.mcp)
    };
    let got = ask("tasks/get", &id, "key-a").message();
    assert_eq!((&got["result"]["taskId"], &got["result"]["resultType"]), (&json!(id), &json!("complete")));
    for method in ["tasks/update", "tasks/cancel"] {
        assert_eq!(
            ask(method, &id, "key-a").message()["result"],
            json!({"resultType": "complete"}),
            "{method}"
        );
    }
    // The server compares the header with the body, and knows the task by its own id.
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let seen = server.seen(method);
        assert_eq!(message(&seen[0])["params"]["taskId"], "task-1");
        for (id, key) in [(&*id, "key-b"), ("task-1", "key-a"), ("task-1", "key-b")] {
            is_unknown(&ask(method, id, key));
        }
        assert_eq!(server.seen(method).len(), 1, "{method}");
    }
    let other = request("tasks/get", json!({"taskId": id})).with("mcp-name", "task-1").key("key-a");
    assert_eq!(other.send(sidecar.mcp).message()["error"]["code"], -32020);
    forbid(&sidecar, server.port);
    is_unknown(&ask("tasks/get", &id, "key-a"));
    assert!(!sidecar.written().contains(&id), "ids are in a log");
}

/// What says much of itself as well, where most answers would pass as they come.
#[test]
fn r047_a_long_task_is_called_by_its_own_name_too() {
    let server = saying(&"m".repeat(70_000));
    let sidecar = shared(server.port);
    let id = begin(&sidecar, "key-a");
    assert!(id.len() > 100, "{id}");
    let got = request("tasks/get", json!({"taskId": id})).key("key-a").send(sidecar.mcp).message();
    assert_eq!(got["result"]["taskId"], id);
}

#[test]
fn r047_news_of_a_task_goes_to_who_listens_for_it() {
    let server = server();
    let sidecar = shared(server.port);
    let id = begin(&sidecar, "key-a");
    let listen = |declared: &str| {
        let wanted = json!({"notifications": {"taskIds": [id, "task-9"]}});
        let mut message = modern::message(1, "subscriptions/listen", wanted);
        message["params"]["_meta"][CAPABILITIES] = extension();
        modern::of(&message.to_string().replace("protocol/tasks", declared))
    };
    for (declared, key, own) in [
        ("protocol/tasks", "key-a", true),
        ("protocol/tasks", "key-b", false),
        // As some programs write a slash, and as nobody writes an S.
        ("protocol\\/tasks", "key-a", true),
        ("protocol\\/tasks", "key-b", false),
        ("protocol/task\\u0073", "key-a", true),
        // Without the extension nobody hears of tasks, whatever is asked for.
        ("protocol/nothing", "key-a", false),
        ("protocol/nothing", "key-b", false),
    ] {
        let mut events = Events::open(&listen(declared).key(key), sidecar.mcp);
        let heard = events.next().unwrap().message();
        let ids = if own { json!([id]) } else { json!([]) };
        assert_eq!(heard["params"]["notifications"], json!({"taskIds": ids}), "{heard}");
        if own {
            let told = events.next().unwrap().message();
            assert_eq!(
                (&told["method"], &told["params"]["taskId"]),
                (&json!("notifications/tasks"), &json!(id))
            );
        } else {
            events.patience(std::time::Duration::from_millis(300));
            assert!(events.try_any().is_err(), "not of other people's tasks");
        }
    }
    // It ends with the right to call the tool, and who asks again hears of nothing.
    let ask = || Events::open(&listen("protocol/tasks").key("key-a"), sidecar.mcp);
    let mut events = ask();
    for method in ["notifications/subscriptions/acknowledged", "notifications/tasks"] {
        assert_eq!(events.next().unwrap().message()["method"], method);
    }
    forbid(&sidecar, server.port);
    assert_eq!(events.next().unwrap().message()["result"]["resultType"], "complete");
    assert!(events.next().is_none());
    assert_eq!(ask().next().unwrap().message()["params"]["notifications"], json!({"taskIds": []}));
}

/// Some servers tell of a task in whatever call is under way. A call has become one only if its answer is that.
#[test]
fn r047_news_of_a_task_in_a_call_makes_it_nobody_elses() {
    let server = server();
    let sidecar = shared(server.port);
    let id = begin(&sidecar, "key-a");
    let heard = |key: &str| {
        let call = request("tools/call", json!({"name": "tells"})).key(key);
        let events = Events::open(&call, sidecar.mcp).all();
        let told = events.iter().map(Event::message).flat_map(|message| {
            [&message["params"], &message["result"]["_meta"][RELATED]].map(|of| of["taskId"].clone())
        });
        told.filter(|id| !id.is_null()).collect::<Vec<_>>()
    };
    assert_eq!((heard("key-b"), heard("key-a")), (vec![], vec![json!(id), json!(id)]));
    let ask = request("tasks/get", json!({"taskId": id})).key("key-a");
    assert_eq!(ask.send(sidecar.mcp).message()["result"]["taskId"], json!(id), "it has its name still");
}

#[test]
fn r047_a_task_is_found_from_every_replica() {
    let servers = [server(), server()];
    let network = Network::new();
    let mut replicas = network.in_front_of(&config(0), &servers);
    let id = begin(&replicas[0], "key-a");
    let ask =
        |sidecar: &Sidecar, key: &str| request("tasks/get", json!({"taskId": id})).key(key).send(sidecar.mcp);
    assert_eq!(ask(&replicas[1], "key-a").message()["result"]["taskId"], json!(id));
    assert_eq!((servers[0].seen("tasks/get").len(), servers[1].seen("tasks/get").len()), (1, 0));
    for replica in &replicas {
        is_unknown(&ask(replica, "key-b"));
    }
    // Without that replica it is what the other server makes of it.
    drop(replicas.remove(0));
    eventually("the loss is noticed", || {
        ask(&replicas[0], "key-a").message()["result"]["taskId"] == json!(id)
    });
    assert_eq!(servers[1].seen("tasks/get").len(), 1);
}

/// A node that starts anew has the same pods, at other addresses.
#[test]
fn a_task_is_found_where_its_pod_is_by_now() {
    let servers = [server(), server()];
    let network = Network::new();
    let mut replicas = network.in_front_of(&config(0), &servers);
    let id = begin(&replicas[0], "key-a");
    let before = replicas.remove(0);
    let files = before.files.clone();
    drop(before);
    network.list(&[2, 3]);
    let back = network.start_again(3, "pod-1", files).ready();
    knows(&replicas[0], 1);
    let ask = |sidecar: &Sidecar| request("tasks/get", json!({"taskId": id})).key("key-a").send(sidecar.mcp);
    for replica in [&replicas[0], &back] {
        let reply = ask(replica).message();
        assert_eq!(reply["result"]["taskId"], json!(id), "{reply}");
    }
    // While it is silent there it is not gone, though nobody is where it was before.
    back.signal(Signal::STOP);
    knows(&replicas[0], 0);
    assert_eq!(ask(&replicas[0]).status, 503);
    back.signal(Signal::CONT);
    assert_eq!((servers[0].seen("tasks/get").len(), servers[1].seen("tasks/get").len()), (2, 0));
}

/// Servers that count give the same ids beside each replica.
#[test]
fn r047_a_task_is_found_from_a_replica_where_somebody_else_has_one_of_its_id() {
    let servers = [server(), server()];
    let network = Network::new();
    let mut replicas = network.in_front_of(&config(0), &servers);
    let id = begin(&replicas[0], "key-a");
    begin(&replicas[1], "key-b");
    let ask = |sidecar: &Sidecar| request("tasks/get", json!({"taskId": id})).key("key-a").send(sidecar.mcp);
    assert_eq!(ask(&replicas[1]).message()["result"]["taskId"], json!(id));
    // Without that replica it is not what the other server knows by it.
    drop(replicas.remove(0));
    eventually("the loss is noticed", || ask(&replicas[0]).message()["error"]["code"] == -32602);
    assert_eq!((servers[0].seen("tasks/get").len(), servers[1].seen("tasks/get").len()), (1, 0));
}

/// The server of a task is at a replica that goes on serving; its client's requests come to one that does not.
#[test]
fn a_task_is_found_from_a_replica_that_ends() {
    let servers = [server(), server(), server()];
    let network = Network::ending_slowly();
    let replicas = network.in_front_of(&config(0), &servers);
    let id = begin(&replicas[2], "key-a");
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "draining");
    let seen = |method| servers.each_ref().map(|server| server.seen(method).len());
    // Whoever takes what stands alone elsewhere takes each to another one.
    for round in 1..=2 {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({"taskId": id, "inputResponses": {}});
            let reply = request(method, params).key("key-a").send(replicas[0].mcp).message();
            assert!(reply["result"].is_object(), "{method}: {reply}");
            assert_eq!(seen(method), [0, 0, round], "{method}");
        }
        let wanted = json!({"notifications": {"taskIds": [id]}});
        let mut events = Events::open(&request("subscriptions/listen", wanted).key("key-a"), replicas[0].mcp);
        let heard = events.next().unwrap().message();
        assert_eq!(heard["params"]["notifications"], json!({"taskIds": [id]}), "{heard}");
        assert_eq!(seen("subscriptions/listen"), [0, 0, round]);
    }
    drop(hook);
}
