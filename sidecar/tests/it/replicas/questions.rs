//! What servers ask their clients, when the answer comes to another replica than the one that has the session.

use serde_json::{Value, json};

use crate::harness::config::ALICE;
use crate::harness::own::{example, example_server};
use crate::harness::replicas::Network;
use crate::harness::shim::stdio;
use crate::harness::{
    Client, Event, Events, Gate, Pod, Request, Scripted, Sidecar, config, eventually, scripted,
};

const REVISION: &str = "2025-11-25";

/// What a server may ask.
const KINDS: [&str; 3] = ["sampling/createMessage", "elicitation/create", "roots/list"];

fn can() -> Value {
    json!({"sampling": {}, "elicitation": {}, "roots": {}})
}

/// An answer with this word in it.
fn result(method: &str, word: &str) -> Value {
    match method {
        "sampling/createMessage" => {
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": word}})
        }
        "elicitation/create" => {
            json!({"action": "accept", "content": {"username": word, "email": "a@b.example"}})
        }
        _ => json!({"roots": [{"uri": format!("file:///{word}")}]}),
    }
}

fn answer(id: &Value, method: &str, word: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result(method, word)}).to_string()
}

/// The tool of the example server that asks this, and what it wants to be told.
fn tool(method: &str) -> (&'static str, Value) {
    match method {
        "sampling/createMessage" => ("test_sampling", json!({"prompt": "?"})),
        "elicitation/create" => ("test_elicitation", json!({"message": "?"})),
        _ => ("test_input_required_result_list_roots", json!({})),
    }
}

/// The question that comes next.
fn question(events: &mut Events, method: &str) -> Value {
    let question = events.next().as_ref().map(Event::message).expect("a question");
    assert_eq!(question["method"], method, "{question}");
    question["id"].clone()
}

/// Three sessions, two of them at the same replica, are asked the same at the same time. Each of them calls and answers
/// by way of replicas that have nothing to do with it.
fn each_session_gets_its_own_answer(replicas: &[&Sidecar]) {
    let owners = [0, 0, 1];
    let sessions = owners.map(|owner| Client::with_capabilities(replicas[owner], ALICE, REVISION, &can()));
    for method in KINDS {
        for turn in 0..3 {
            let entry = |owner: usize, further: usize| replicas[(owner + turn + further) % 3];
            let (name, arguments) = tool(method);
            let ways = || sessions.iter().zip(owners);
            let mut calls: Vec<_> = ways()
                .map(|(client, at)| client.through(entry(at, 0)).stream(name, arguments.clone()))
                .collect();
            let ids: Vec<_> = calls.iter_mut().map(|call| question(call, method)).collect();
            for (number, (client, at)) in ways().enumerate().rev() {
                // With the first turn it is another one than has the session; with each it is another than was called.
                let through = client.through(entry(at, 1));
                let answer = answer(&ids[number], method, &format!("word{number}"));
                assert_eq!(through.request(answer).send(through.sidecar.mcp).status, 202);
            }
            for (number, call) in calls.iter_mut().enumerate() {
                let said = call.next().as_ref().map(Event::message).expect("an answer");
                let text = said["result"]["content"][0]["text"].as_str().unwrap_or_default();
                assert!(text.contains(&format!("word{number}")), "{method}, turn {turn}: {said}");
            }
        }
    }
}

#[test]
fn r060_an_answer_by_way_of_another_replica_reaches_the_session_that_was_asked() {
    let servers = [(); 3].map(|()| example_server(REVISION, 0));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    each_session_gets_its_own_answer(&replicas.iter().collect::<Vec<_>>());
}

#[test]
fn r060_so_does_one_to_a_process() {
    let network = Network::new();
    let pods = Pod::start(&network, &stdio(), &example(REVISION, "stdio", 0), 3);
    each_session_gets_its_own_answer(&pods.iter().map(|pod| &pod.sidecar).collect::<Vec<_>>());
}

/// A server that asks this in every call, and on the stream that belongs to none, and waits at the gate.
fn asking(
    method: &'static str,
    gate: &Gate,
) -> impl Fn(&Request, &mut std::net::TcpStream) + Send + Sync + use<> {
    let gate = gate.clone();
    move |request, stream| {
        let params = match method {
            "sampling/createMessage" => json!({
                "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 1,
            }),
            "elicitation/create" => {
                json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}})
            }
            _ => json!({}),
        };
        let question = json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params});
        scripted::begin_events(stream);
        scripted::say(stream, &question);
        gate.pass();
        if request.method == "POST" {
            let answer = scripted::reply_to(request, &json!({"content": []}));
            scripted::say(stream, &answer);
        }
        scripted::write(stream, "0\r\n\r\n");
    }
}

/// The answers that a server has got.
fn answers(server: &Scripted) -> Vec<Request> {
    server.seen("POST").into_iter().filter(|request| scripted::method_of(request).is_empty()).collect()
}

/// Two servers ask under the same id. Whose an answer is the id of the session says alone; it comes once, as it was
/// written, and under the name that the server has for the session, if it has one.
#[test]
fn r060_an_answer_by_way_of_another_replica_reaches_its_server_once() {
    for (method, is_named, listens) in [
        (KINDS[0], true, false),
        (KINDS[1], true, true),
        (KINDS[2], true, true),
        (KINDS[0], false, false),
        (KINDS[1], false, false),
    ] {
        let case = format!("{method}, named: {is_named}, on the client's stream: {listens}");
        let gate = Gate::default();
        let servers = [(); 3].map(|()| {
            if is_named {
                Scripted::listening(asking(method, &gate))
            } else {
                Scripted::nameless(asking(method, &gate))
            }
        });
        let network = Network::new();
        let replicas = network.in_front_of(&config(0), &servers);
        let sessions =
            [0, 1].map(|owner| Client::with_capabilities(&replicas[owner], ALICE, REVISION, &can()));
        let mut streams = sessions.each_ref().map(|client| {
            let third = client.through(&replicas[2]);
            if listens { Events::open(&third.get(), third.sidecar.mcp) } else { third.stream("t", json!({})) }
        });
        for stream in &mut streams {
            assert_eq!(question(stream, method), "q", "{case}");
        }
        // By way of the one that has the other's session, which was asked the same, and of the third.
        for (number, client) in sessions.iter().enumerate() {
            let sent = answer(&json!("q"), method, &format!("word{number}"));
            let through = client.through(&replicas[if number == 0 { 1 } else { 2 }]);
            assert_eq!(through.request(sent.as_str()).send(through.sidecar.mcp).status, 202, "{case}");
            let got = eventually("the server has it", || answers(&servers[number]).pop());
            assert_eq!(got.body, sent.as_bytes(), "{case}");
            assert_eq!(got.value("mcp-session-id"), is_named.then_some(scripted::UPSTREAM_SESSION), "{case}");
        }
        gate.open();
        if !listens {
            for stream in &mut streams {
                let said = stream.next().as_ref().map(Event::message).expect("an answer");
                assert_eq!(said["result"], json!({"content": []}), "{case}");
            }
        }
        assert_eq!(servers.each_ref().map(|server| answers(server).len()), [1, 1, 0], "{case}");
    }
}
