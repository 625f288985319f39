//! Servers that give no session ids, and find the response of an answer by its id alone: to them all clients are one.

use std::collections::{HashMap, HashSet};
use std::net::TcpStream;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::ids::send;
use crate::harness::config::{keys, rule};
use crate::harness::{Client, Gate, Request, Scripted, Sidecar, config, eventually, modern, scripted};

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Json,
    Events,
    /// Larger than what is held, with the id before the result or behind it.
    Large {
        id_first: bool,
    },
}

/// A server that answers a call when there is another request, and that when the call has been answered.
fn server(form: Form) -> Scripted {
    let (gate, called) = (Gate::default(), Gate::default());
    let waiting = Mutex::new(HashMap::<String, TcpStream>::new());
    Scripted::nameless(move |request, stream| {
        let message = scripted::message(request);
        let id = message["id"].to_string();
        // The later one's stream wins.
        waiting.lock().unwrap().insert(id.clone(), stream.try_clone().unwrap());
        let is_call = message["method"] == "tools/call";
        if is_call {
            gate.pass();
        } else {
            gate.open();
            called.pass();
        }
        let Some(mut stream) = waiting.lock().unwrap().remove(&id) else { return };
        if !is_call {
            return scripted::json(&mut stream, &scripted::reply_to(request, &json!({})));
        }
        let size = if matches!(form, Form::Large { .. }) { 300_000 } else { 10 };
        let text = "private\"id\":".to_owned() + &"x".repeat(size);
        let result =
            json!({"content": [{"type": "text", "text": text}], "structuredContent": {"id": message["id"]}});
        let answer = match form {
            Form::Large { id_first: false } => format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#),
            _ => format!(r#"{{"jsonrpc":"2.0", "id": {id} ,"result":{result}}}"#),
        };
        if form == Form::Events {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}});
            // And what is of no call of this client's.
            let token = message["params"]["_meta"]["progressToken"].as_i64().unwrap();
            let others = progress.to_string().replace(&token.to_string(), &(token ^ 1).to_string());
            let events = [progress.to_string(), others, answer].map(|data| format!("data: {data}\n\n"));
            scripted::events(&mut stream, &[&events.concat()]);
        } else {
            scripted::json(&mut stream, &answer);
        }
        called.open();
    })
}

/// Alice and Carol may call everything, and Bob nothing.
fn sidecar(server: &Scripted) -> Sidecar {
    let mut config = config(server.port);
    let mut all = rule("all", &["*"], &["*"], &["*"]);
    all.principals = Some(vec!["alice".to_owned(), "carol".to_owned()]);
    config.access = vec![all];
    Sidecar::keyed(&config, &keys(&[("alice", "key-a"), ("bob", "key-b"), ("carol", "key-c")])).ready()
}

fn asked(server: &Scripted, method: &str) -> Value {
    scripted::message(&eventually("the server is asked", || server.seen(method).pop()))
}

#[test]
fn an_id_of_another_client_opens_nothing() {
    let large = [true, false].map(|id_first| Form::Large { id_first });
    for form in [Form::Json, Form::Events, large[0], large[1]] {
        let server = server(form);
        let sidecar = sidecar(&server);
        let [alice, bob] = ["key-a", "key-b"].map(|key| Client::open(&sidecar, Some(key)));
        let call = send(&alice, "tools/call", &json!({"name": "t", "_meta": {"progressToken": 7}}));
        let asked = asked(&server, "tools/call");
        let other = send(&bob, "logging/setLevel", &json!({"level": "info"})).join().unwrap();
        assert_eq!(other.message(), json!({"jsonrpc": "2.0", "id": 7, "result": {}}), "{form:?}");
        let called = call.join().unwrap();
        let answer = called.message();
        assert_eq!(answer["id"], 7, "{form:?}");
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().starts_with("private"), "{form:?}");
        assert_eq!(
            answer["result"]["structuredContent"]["id"], asked["id"],
            "{form:?}: results keep their bytes"
        );
        assert_eq!(asked["params"]["_meta"]["progressToken"], asked["id"], "{form:?}");
        if form == Form::Events {
            let tokens = called
                .events()
                .iter()
                .filter(|data| data.contains("progressToken"))
                .cloned()
                .collect::<Vec<_>>();
            assert!(tokens.len() == 1 && tokens[0].contains(r#""progressToken":7"#), "{tokens:?}");
        }
    }
}

#[test]
fn a_call_is_cancelled_by_its_own_client_alone() {
    let server = server(Form::Json);
    let sidecar = sidecar(&server);
    let [alice, bob] = ["key-a", "key-b"].map(|key| Client::open(&sidecar, Some(key)));
    let call = send(&alice, "tools/call", &json!({"name": "t"}));
    let asked = asked(&server, "tools/call");
    for (client, heard) in [(&bob, 0), (&alice, 1)] {
        assert_eq!(client.cancel(7).status, 202);
        assert_eq!(server.seen("notifications/cancelled").len(), heard);
    }
    let heard = scripted::message(&server.seen("notifications/cancelled")[0]);
    assert_eq!(heard["params"]["requestId"], asked["id"]);
    let left = call.join().unwrap().message();
    assert!(left["error"]["message"].as_str().unwrap().contains("cancelled"), "{left}");
}

/// Such a server takes what one client says for what all of them say.
#[test]
fn a_client_speaks_for_itself_alone() {
    let gate = Gate::default();
    let ends = gate.clone();
    let server = Scripted::nameless(move |request, stream| {
        let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list", "params": {"_meta": {"progressToken": 1}}});
        scripted::begin_events(stream);
        scripted::say(stream, &question);
        ends.pass();
        let answer = scripted::reply_to(request, &json!({"content": []}));
        scripted::say(stream, &answer);
        scripted::chunk(stream, "");
    });
    let sidecar = sidecar(&server);
    let open = |key| Client::with_capabilities(&sidecar, Some(key), "2025-11-25", &json!({"roots": {}}));
    let [alice, carol] = ["key-a", "key-c"].map(open);
    let mut call = alice.stream("t", json!({}));
    assert_eq!(call.next().unwrap().message()["id"], "q");
    let progress = |token: u8| json!({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
    let roots = json!({"method": "notifications/roots/list_changed"});
    let status =
        json!({"method": "notifications/tasks/status", "params": {"taskId": "1", "status": "working"}});
    for (client, message, goes_on) in [
        (&carol, progress(1), false),
        (&alice, progress(2), false),
        (&alice, progress(1), true),
        (&carol, roots, false),
        (&carol, status, false),
    ] {
        let method = message["method"].as_str().unwrap().to_owned();
        let before = server.seen(&method).len();
        let mut whole = message.clone();
        whole["jsonrpc"] = json!("2.0");
        assert_eq!(client.request(whole.to_string()).send(sidecar.mcp).status, 202, "{message}");
        assert_eq!(server.seen(&method).len() - before, usize::from(goes_on), "{message}");
    }
    gate.open();
    assert!(call.next().unwrap().message()["result"].is_object());
}

/// Whoever asks, also the sidecar for clients whose requests stand alone.
#[test]
fn no_two_requests_have_one_id() {
    let server = Scripted::nameless(|request, stream| {
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let sidecar = sidecar(&server);
    for _ in 0..2 {
        Client::open(&sidecar, Some("key-a")).call("t", json!({}));
        for (id, key) in [(1, "key-a"), (2, "key-c")] {
            let call = modern::request(id, "tools/call", json!({"name": "t"})).key(key).send(sidecar.mcp);
            assert_eq!((call.status, &call.message()["id"]), (200, &json!(id)), "{}", call.text());
        }
    }
    let methods = ["initialize", "tools/call"];
    let all = methods
        .iter()
        .flat_map(|method| server.seen(method))
        .map(|it| scripted::message(&it)["id"].to_string());
    let all: Vec<_> = all.collect();
    assert!(all.len() >= 8, "{all:?}");
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "{all:?}");
}

/// What stands for an integer is one, also for servers that read 32 bits, and what stands for a string is a string.
#[test]
fn an_id_keeps_its_type_at_the_server() {
    let server = Scripted::nameless(|request, stream| {
        if scripted::method_of(request) == "tools/call" {
            return scripted::json_with(stream, 400, "", "{}");
        }
        scripted::reply(stream, request, &json!({"tools": []}));
    });
    let named = Scripted::start(|request, stream| match &*scripted::method_of(request) {
        "tools/call" => scripted::json_with(stream, 400, "", "{}"),
        _ => scripted::reply(stream, request, &json!({"tools": []})),
    });
    for server in [&server, &named] {
        let mut config = config(server.port);
        config.access = vec![rule("all", &["*"], &["*"], &["*"])];
        let sidecar = Sidecar::start(&config).ready();
        for id in ["7", "\"7\""] {
            let with = |message: &str| message.replacen("\"id\":0", &format!("\"id\":{id}"), 1);
            let asked = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}});
            let greeted = Request::post(with(&asked.to_string())).send(sidecar.mcp);
            assert_eq!(greeted.message()["id"].to_string(), id, "{}", greeted.text());
            let client = Client::in_session(&sidecar, greeted.header("mcp-session-id").unwrap());
            // A call that the server refuses has it pinged, where it has sessions.
            for method in ["tools/list", "tools/call"] {
                let body = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": {"name": "t"}});
                let reply = client.request(with(&body.to_string())).send(sidecar.mcp);
                assert_eq!(reply.message()["id"].to_string(), id, "{}", reply.text());
            }
            for method in ["initialize", "tools/list", "tools/call"] {
                let heard = scripted::message(&server.seen(method).pop().unwrap())["id"].clone();
                assert_eq!(heard.is_string(), id.starts_with('"'), "{method}: {heard}");
                assert!(heard.as_i64().is_none_or(|id| i32::try_from(id).is_ok()), "{method}: {heard}");
            }
        }
    }
    let pings = named.seen("ping");
    assert!(
        !pings.is_empty() && pings.iter().all(|ping| scripted::message(ping)["id"].is_i64()),
        "{pings:?}"
    );
}
