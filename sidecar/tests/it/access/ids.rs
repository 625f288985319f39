//! Servers that find the response of an answer by its id alone, as the official ones do: whoever uses an id again that
//! is under way gets what was to be the other request's answer, if that reaches the server under the same id.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::harness::config::rule;
use crate::harness::{Client, Events, Gate, Reply, Scripted, Sidecar, config, eventually, scripted};

/// The lists that may not be seen whole, and where their entries are.
const LISTS: [(&str, &str); 5] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("tasks/list", "tasks"),
];

/// The server. It answers a list, after it has said how far it is, when there is another request, and that when the list
/// has been answered.
struct Server(Scripted);

fn entries(member: &str) -> Value {
    let entry = |name: &str| {
        let uri = format!("memo://{name}");
        match member {
            "tools" => json!({"name": name, "inputSchema": {"type": "object"}}),
            "prompts" => json!({"name": name}),
            "resources" => json!({"name": name, "uri": uri}),
            "resourceTemplates" => json!({"name": name, "uriTemplate": uri + "/{x}"}),
            _ => json!({"taskId": name, "status": "working", "createdAt": "2026-01-01T00:00:00Z",
                "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": 60_000}),
        }
    };
    json!([entry("shown"), entry("hidden")])
}

impl Server {
    fn start(events: bool) -> Self {
        let (gate, listed) = (Gate::default(), Gate::default());
        let waiting = Arc::new(Mutex::new(HashMap::<String, TcpStream>::new()));
        // The sidecar itself reads no lists then.
        let capabilities = json!({"logging": {}, "tasks": {"list": {}}});
        Self(Scripted::offering(capabilities, move |request, stream| {
            if request.method == "GET" {
                return scripted::no_stream(stream);
            }
            let message = scripted::message(request);
            let id = message["id"].to_string();
            // The later one's stream wins.
            waiting.lock().unwrap().insert(id.clone(), stream.try_clone().unwrap());
            let list = LISTS.iter().find(|(method, _)| message["method"] == *method);
            let result = match list {
                Some((_, member)) => {
                    gate.pass();
                    json!({*member: entries(member)})
                }
                None => {
                    gate.open();
                    listed.pass();
                    json!({})
                }
            };
            let found = waiting.lock().unwrap().remove(&id);
            if let Some(mut stream) = found {
                let answer = scripted::reply_to(request, &result);
                if events {
                    let token = &message["params"]["_meta"]["progressToken"];
                    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": 1}});
                    let before =
                        if token.is_null() { String::new() } else { format!("data: {progress}\n\n") };
                    scripted::events(&mut stream, &[&format!("{before}data: {answer}\n\n")]);
                } else {
                    scripted::json(&mut stream, &answer);
                }
            }
            if list.is_some() {
                listed.open();
            }
        }))
    }

    fn sidecar(&self) -> Sidecar {
        let mut config = config(self.0.port);
        config.access = vec![rule("some", &["shown"], &["shown"], &["memo://shown*"])];
        Sidecar::start(&config).ready()
    }

    /// What the server was asked, once it was.
    fn asked(&self, method: &str) -> Value {
        let request = eventually("the server is asked", || self.0.seen(method).pop());
        scripted::message(&request)
    }
}

/// Sends a request of this id, and reads the response elsewhere.
pub(super) fn send(client: &Client<'_>, method: &str, params: &Value) -> JoinHandle<Reply> {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let (request, to) = (client.request(body.to_string()), client.sidecar.mcp);
    thread::spawn(move || request.send(to))
}

fn level(client: &Client<'_>) -> JoinHandle<Reply> {
    send(client, "logging/setLevel", &json!({"level": "info"}))
}

#[test]
fn an_id_that_is_under_way_opens_no_list() {
    for (round, (method, member)) in LISTS.into_iter().enumerate() {
        let events = round % 2 == 0;
        let server = Server::start(events);
        let sidecar = server.sidecar();
        let client = Client::open(&sidecar, None);
        let list = send(&client, method, &json!({"_meta": {"progressToken": 7}}));
        let asked = server.asked(method);
        let other = level(&client).join().unwrap();
        assert_eq!(other.message(), json!({"jsonrpc": "2.0", "id": 7, "result": {}}), "{method}");
        let listed = list.join().unwrap();
        let (answer, all) = (listed.message(), entries(member));
        let shown = if member == "tasks" { json!([]) } else { json!([all[0]]) };
        assert_eq!((&answer["id"], &answer["result"][member]), (&json!(7), &shown), "{method}: {answer}");
        assert_eq!(listed.text().contains(r#""progressToken":7"#), events, "{method}: {}", listed.text());
        // Nor does a guess.
        let again = send(&client, method, &json!({})).join().unwrap().message();
        assert_eq!(again["result"][member], shown, "{method}: {again}");
        let ids = [&asked["id"], &server.asked(method)["id"]];
        assert!(ids[0] != ids[1] && ids.iter().all(|id| id.is_i64()), "{method}: {ids:?}");
    }
}

/// A server may say in its log messages what it was asked. It may also take digits for the number that they are.
#[test]
fn an_id_of_the_sidecars_own_opens_no_list() {
    for (list, guess) in [("7", false), ("7", true), ("\"7\"", false)] {
        let server = Server::start(false);
        let sidecar = server.sidecar();
        let client = Client::open(&sidecar, None);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{list},"method":"tools/list"}}"#);
        let (request, to) = (client.request(body), sidecar.mcp);
        let listed = thread::spawn(move || request.send(to));
        let own = server.asked("tools/list")["id"].to_string();
        let id = if guess { format!("\"{own}\"") } else { own.replacen('o', "\\u006f", 1) };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"logging/setLevel","params":{{"level":"info"}}}}"#
        );
        let other = client.request(body).send(sidecar.mcp);
        assert_eq!(other.message()["result"], json!({}), "{}", other.text());
        assert!(other.text().contains(&id), "{}", other.text());
        let heard = server.asked("logging/setLevel")["id"].to_string();
        assert!(heard != own && heard != id, "{heard} is not its client's {id}");
        assert_eq!(listed.join().unwrap().message()["result"]["tools"], json!([entries("tools")[0]]));
    }
}

/// The sidecar does not wait for the answer to what was cancelled, and it may come when the id is free again.
#[test]
fn an_id_that_was_cancelled_opens_no_list() {
    for (events, (method, _)) in [(true, LISTS[0]), (false, LISTS[4])] {
        let server = Server::start(events);
        let sidecar = server.sidecar();
        let client = Client::open(&sidecar, None);
        let list = send(&client, method, &json!({}));
        let asked = server.asked(method);
        let cancel = || {
            assert_eq!(client.cancel(7).status, 202);
            server.0.seen("notifications/cancelled")
        };
        let told = cancel();
        assert_eq!(told.len(), 1, "{method}");
        let id = &scripted::message(&told[0])["params"]["requestId"];
        assert_eq!(*id, asked["id"], "{method}: the server is told of its own id");
        let left = list.join().unwrap().message();
        assert!(left["error"]["message"].as_str().unwrap().contains("cancelled"), "{method}: {left}");
        let other = level(&client).join().unwrap();
        assert_eq!(other.message(), json!({"jsonrpc": "2.0", "id": 7, "result": {}}), "{method}");
        // It is over, and nothing is called so any more.
        assert_eq!(cancel().len(), 1, "{method}");
    }
}

/// Also an error, and what comes late and is read later.
#[test]
fn a_list_is_answered_under_its_clients_id() {
    let gate = Gate::default();
    let opened = gate.clone();
    let server = Scripted::start(move |request, stream| {
        if scripted::method_of(request) == "prompts/list" {
            let id = &scripted::message(request)["id"];
            let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "no"}});
            return scripted::json(stream, &error.to_string());
        }
        gate.pass();
        scripted::reply(stream, request, &json!({"tools": []}));
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let refused = send(&client, "prompts/list", &json!({})).join().unwrap().message();
    assert_eq!((&refused["id"], &refused["error"]["message"]), (&json!(7), &json!("no")));
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}).to_string();
    let mut events = Events::open(&client.request(body), sidecar.mcp);
    let first = events.any().expect("an event to come back to").id;
    drop(events);
    opened.open();
    let answer = Events::open(&client.rest(&first), sidecar.mcp).next().expect("an answer").message();
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 7, "result": {"tools": []}}));
}
