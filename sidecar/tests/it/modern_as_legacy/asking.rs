//! Servers that ask back: by a result there, with requests here.

use serde_json::{Value, json};

use super::{able, answer, everything, sidecar, tools};
use crate::harness::config::callers;
use crate::harness::own::example_server;
use crate::harness::scripted::message;
use crate::harness::{Client, Event, Events, Files, Sessionless, Sidecar, config};

pub(super) fn form(text: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"message": text, "requestedSchema":
        {"type": "object", "properties": {"name": {"type": "string"}}}}})
}

fn sampling() -> Value {
    let content = json!({"type": "text", "text": "?"});
    json!({"method": "sampling/createMessage", "params": {
        "maxTokens": 10, "messages": [{"role": "user", "content": content}]}})
}

/// A server that asks for `rounds[n]` in round n, and says in the end what it was answered.
fn asking(rounds: Vec<Value>) -> Sessionless {
    asking_at(0, rounds)
}

/// The same at this port.
pub(super) fn asking_at(port: u16, rounds: Vec<Value>) -> Sessionless {
    Sessionless::at(port, everything(), tools(), move |request, stream| {
        let params = &message(request)["params"];
        let round = params["requestState"].as_str().map_or(0, |state| state.len());
        match rounds.get(round) {
            Some(questions) => {
                let state = "x".repeat(round + 1);
                let result = json!({
                    "resultType": "input_required", "requestState": state, "inputRequests": questions,
                });
                answer(request, stream, &result);
            }
            None => {
                let text = params["inputResponses"].to_string();
                answer(request, stream, &json!({"content": [{"type": "text", "text": text}]}));
            }
        }
    })
}

pub(super) fn reply(client: &Client<'_>, id: &Value, result: &Value) {
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    assert_eq!(client.request(body).send(client.sidecar.mcp).status, 202);
}

pub(super) fn next(events: &mut Events) -> Value {
    events.next().as_ref().map(Event::message).expect("an event")
}

pub(super) fn answer_to(question: &Value) -> Value {
    match question["method"].as_str().unwrap() {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "ann"}}),
        "sampling/createMessage" => {
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}})
        }
        _ => json!({"roots": [{"uri": "file:///a"}]}),
    }
}

#[test]
fn r072_questions_are_asked_on_the_stream_of_their_call() {
    let server = asking(vec![
        json!({"who": form("who?"), "model": sampling(), "where": {"method": "roots/list"}}),
        json!({"again": form("sure?")}),
        Value::Null,
    ]);
    let sidecar = sidecar(&server);
    for revision in super::WITH_FORMS {
        let client = able(&sidecar, revision);
        let mut events = client.stream("echo", json!({"big": 9_007_199_254_740_993_u64}));
        let mut questions: Vec<Value> = (0..3).map(|_| next(&mut events)).collect();
        let methods: Vec<_> = questions.iter().map(|question| question["method"].as_str().unwrap()).collect();
        assert_eq!(methods, ["sampling/createMessage", "roots/list", "elicitation/create"]);
        // In any order, and what nobody asked is nobody's.
        reply(&client, &json!("nobody-asked"), &json!({"roots": []}));
        let other = able(&sidecar, revision);
        reply(&other, &questions[0]["id"], &json!({"action": "decline"}));
        questions.reverse();
        for question in &questions {
            reply(&client, &question["id"], &answer_to(question));
            // Twice is once too often.
            reply(&client, &question["id"], &json!({"action": "decline"}));
        }
        let question = next(&mut events);
        assert_eq!(question["params"]["message"], "sure?");
        reply(&client, &question["id"], &answer_to(&question));
        let end = next(&mut events);
        let text = end["result"]["content"][0]["text"].as_str().unwrap();
        // In the round without questions there are no answers.
        assert_eq!(text, "null", "{end}");
        assert!(end["result"].get("resultType").is_none());

        let calls = server.seen("tools/call");
        let calls = &calls[calls.len() - 4..];
        let params: Vec<_> = calls.iter().map(|call| message(call)["params"].clone()).collect();
        assert_eq!(params[1]["inputResponses"]["who"], answer_to(&json!({"method": "elicitation/create"})));
        assert_eq!(params[1]["inputResponses"]["model"]["model"], "m");
        assert_eq!(params[1]["inputResponses"]["where"]["roots"][0]["uri"], "file:///a");
        assert_eq!(
            params[2]["inputResponses"],
            json!({"again": {"action": "accept", "content": {"name": "ann"}}})
        );
        for (round, params) in params.iter().enumerate() {
            assert_eq!(params["arguments"]["big"].to_string(), "9007199254740993");
            let state = (round > 0).then(|| json!("x".repeat(round)));
            assert_eq!(params.get("requestState").cloned(), state);
        }
        let ids: std::collections::BTreeSet<_> =
            calls.iter().map(|call| message(call)["id"].to_string()).collect();
        assert_eq!(ids.len(), 4, "each round is a request of its own");
    }
}

#[test]
fn older_clients_are_asked_for_what_they_know() {
    let server = asking(vec![json!({"model": sampling(), "where": {"method": "roots/list"}})]);
    let sidecar = sidecar(&server);
    for revision in ["2024-11-05", "2025-03-26"] {
        let client = able(&sidecar, revision);
        let mut events = client.stream("echo", json!({}));
        for _ in 0..2 {
            let question = next(&mut events);
            reply(&client, &question["id"], &answer_to(&question));
        }
        let text = next(&mut events)["result"]["content"][0]["text"].to_string();
        assert!(text.contains("file:///a") && text.contains("yes"), "{text}");
    }
}

/// Each visit has a name, which the client wants and the server does not know.
#[test]
fn visits_to_urls_are_asked_for_by_name() {
    let visit = |url: &str| json!({"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": url}});
    let actions = ["accept", "decline", "cancel"];
    let server = asking(vec![
        json!({"a": visit("https://a.example/?b=1"), "f": form("who?")}),
        json!({"b": visit("https://b.example")}),
        json!({"c": visit("https://c.example")}),
    ]);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let mut events = client.stream("echo", json!({}));
    let mut names = std::collections::BTreeSet::new();
    let urls = ["https://a.example/?b=1", "https://b.example", "https://c.example"];
    for (round, (action, url)) in actions.into_iter().zip(urls).enumerate() {
        for _ in 0..if round == 0 { 2 } else { 1 } {
            let question = next(&mut events);
            assert_eq!(question["method"], "elicitation/create", "{question}");
            if question["params"]["mode"] != "url" {
                reply(&client, &question["id"], &answer_to(&question));
                continue;
            }
            let mut params = question["params"].clone();
            let name = params.as_object_mut().unwrap().remove("elicitationId").expect("a name");
            assert_eq!(params, json!({"mode": "url", "message": "m", "url": url}));
            assert!(names.insert(name.as_str().expect("text").to_owned()), "a name of its own: {name}");
            reply(&client, &question["id"], &json!({"action": action}));
        }
    }
    let end = next(&mut events);
    assert!(end["result"]["content"].is_array() && end["result"]["isError"] != true, "{end}");
    let calls: Vec<_> = server.seen("tools/call").iter().map(message).collect();
    let declared = &calls[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["elicitation"];
    assert!(declared["url"].is_object(), "{declared}");
    let answers: Vec<_> = calls[1..].iter().map(|call| call["params"]["inputResponses"].clone()).collect();
    let form = json!({"action": "accept", "content": {"name": "ann"}});
    assert_eq!(
        answers,
        [
            json!({"a": {"action": "accept"}, "f": form}),
            json!({"b": {"action": "decline"}}),
            json!({"c": {"action": "cancel"}}),
        ]
    );
}

#[test]
fn what_a_client_cannot_answer_ends_its_call_in_words() {
    let visit = json!({"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a.example"}});
    for (revision, able_to, question, words) in [
        ("2025-11-25", json!({}), form("who?"), ["2026-07-28", "2025-11-25"]),
        ("2025-03-26", json!({"elicitation": {}}), form("who?"), ["2026-07-28", "2025-03-26"]),
        ("2025-06-18", json!({"elicitation": {}}), visit.clone(), ["2026-07-28", "2025-06-18"]),
        ("2025-06-18", json!({"elicitation": {"url": {}}}), visit, ["2026-07-28", "2025-06-18"]),
        ("2025-11-25", json!({"sampling": {}}), json!({"method": "ping"}), ["not usable", "asked"]),
    ] {
        let server = asking(vec![json!({"q": question})]);
        let sidecar = sidecar(&server);
        let client = Client::with_capabilities(&sidecar, None, revision, &able_to);
        let end = client.call("echo", json!({}));
        assert_eq!(end["result"]["isError"], true, "{end}");
        let text = end["result"]["content"][0]["text"].as_str().unwrap();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        // It was not told that it could ask.
        let call = message(&server.seen("tools/call")[0]);
        let declared = &call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["elicitation"];
        assert!(declared["url"].is_null() && (revision != "2025-03-26" || declared.is_null()), "{call}");
        let end = client.ask("prompts/get", json!({"name": "p"}));
        assert!(end["error"]["message"].is_string(), "{end}");
    }
}

#[test]
fn rounds_have_an_end() {
    let server = asking((0..20).map(|round| json!({"q": form(&round.to_string())})).collect());
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let mut events = client.stream("echo", json!({}));
    for round in 0.. {
        let said = next(&mut events);
        if said.get("method").is_none() {
            assert_eq!(round, 8, "{said}");
            assert!(said["result"]["content"][0]["text"].as_str().unwrap().contains("more than 8 times"));
            break;
        }
        reply(&client, &said["id"], &answer_to(&said));
    }
    // An answer that is none ends the call too, and the other questions are taken back.
    let server = asking(vec![json!({"a": sampling(), "b": form("b")})]);
    let sidecar = self::sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let mut events = client.stream("echo", json!({}));
    let (first, second) = (next(&mut events), next(&mut events));
    reply(&client, &first["id"], &json!({"role": "nobody"}));
    let taken_back = next(&mut events);
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], second["id"]);
    assert_eq!(next(&mut events)["result"]["isError"], true);
}

/// 72: sampling with tools too, where the client's revision has it.
#[test]
fn r072_a_model_uses_the_tools_of_a_server() {
    let server = example_server("2026-07-28", 0);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let can = json!({"sampling": {"tools": {}}});
    let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &can);
    let (tool, arguments) = ("test_sampling_with_tools", json!({"prompt": "Umbrella?"}));
    let mut events = client.stream(tool, arguments.clone());
    let used = json!({"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Paris"}});
    let model = |content: Value| json!({"role": "assistant", "model": "m", "content": content});
    let says = [model(json!([used])), model(json!({"type": "text", "text": "Take an umbrella"}))];
    let mut heard = Vec::new();
    for said in &says {
        let question = next(&mut events);
        assert_eq!(question["method"], "sampling/createMessage", "{question}");
        assert_eq!(question["params"]["tools"][0]["name"], "weather");
        heard.push(question["params"]["messages"].clone());
        reply(&client, &question["id"], said);
    }
    let end = next(&mut events);
    assert_eq!(end["result"]["content"][0]["text"], "after 1 uses of a tool: Take an umbrella", "{end}");
    assert_eq!((heard[0].as_array().unwrap().len(), &heard[1][1]["content"]), (1, &json!([used])));
    let result = &heard[1][2]["content"][0];
    assert_eq!((&result["type"], &result["toolUseId"]), (&json!("tool_result"), &json!("1")));
    // A client whose revision has none cannot have declared it.
    let refused = able(&sidecar, "2025-06-18").call(tool, arguments);
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
}

/// 59: who wants no answer any more has none to give either.
#[test]
fn r059_the_questions_of_a_cancelled_call_are_taken_back() {
    let server = asking(vec![json!({"a": sampling(), "b": form("b")})]);
    let sidecar = sidecar(&server);
    for revision in super::WITH_FORMS {
        let client = able(&sidecar, revision);
        let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "echo"}});
        let mut events = Events::open(&client.request(call.to_string()), sidecar.mcp);
        let (first, second) = (next(&mut events), next(&mut events));
        reply(&client, &first["id"], &answer_to(&first));
        assert_eq!(client.cancel("c").status, 202);
        let taken_back = next(&mut events);
        assert_eq!(taken_back["method"], "notifications/cancelled", "{taken_back}");
        assert_eq!(taken_back["params"]["requestId"], second["id"]);
        // Nothing more of what was asked.
        let end = next(&mut events);
        assert!(end["error"]["message"].as_str().unwrap().contains("cancelled by its client"), "{end}");
        assert!(events.next().is_none());
    }
}

#[test]
fn r072_a_client_that_does_not_answer_is_not_waited_for_without_end() {
    let server = asking(vec![json!({"q": form("who?")})]);
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 3_000;
    let sidecar = Sidecar::start(&config).ready();
    let client = able(&sidecar, "2025-11-25");
    let mut events = client.stream("echo", json!({}));
    let question = next(&mut events);
    let taken_back = next(&mut events);
    assert_eq!(taken_back["method"], "notifications/cancelled", "{taken_back}");
    assert_eq!(taken_back["params"]["requestId"], question["id"], "{taken_back}");
    let end = next(&mut events);
    assert!(end["error"]["message"].as_str().unwrap().contains("3 seconds"), "{end}");
    // Too late: nothing comes of it, and the session goes on.
    reply(&client, &question["id"], &answer_to(&question));
    assert_eq!(client.send("ping", json!({})).status, 200);
    assert_eq!(server.seen("tools/call").len(), 1);
}

/// The same where the call itself might take longer.
#[test]
fn r072_an_answer_of_a_client_is_waited_for_as_long_as_is_said() {
    let server = asking(vec![json!({"q": form("who?")})]);
    let sidecar = Sidecar::flagged(&config(server.port), &["--answer-timeout-ms", "600"]).ready();
    let client = able(&sidecar, "2025-11-25");
    let mut events = client.stream("echo", json!({}));
    let question = next(&mut events);
    let taken_back = next(&mut events);
    assert_eq!(taken_back["params"]["requestId"], question["id"], "{taken_back}");
    let end = next(&mut events);
    let text = end["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("did not answer in time"), "{end}");
}

/// One who has much waiting does not take the room of others.
#[test]
fn calls_that_wait_for_their_clients_are_bounded_for_each_principal() {
    let server = asking(vec![json!({"q": form("who?")})]);
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 120_000;
    let sidecar = Sidecar::keyed(&config, &callers()).ready();
    let able = json!({"elicitation": {}});
    let open = |key| Client::with_capabilities(&sidecar, Some(key), "2025-11-25", &able);
    let (alice, bob) = (open("key-a"), open("key-b"));
    let large = json!({"text": "x".repeat(3_900_000)});
    let ask = |client: &Client<'_>| {
        let mut events = client.stream("echo", large.clone());
        let said = next(&mut events);
        (events, said)
    };
    let waiting: Vec<_> = (0..4).map(|_| ask(&alice)).collect();
    assert!(waiting.iter().all(|(_, said)| said["method"] == "elicitation/create"));
    let refused = alice.send("tools/call", json!({"name": "echo", "arguments": large.clone()}));
    assert!(refused.text().contains("too many calls wait"), "{}", refused.text());
    assert_eq!(ask(&bob).1["method"], "elicitation/create", "there is room for others");
}

/// One call has to be possible, as large as the limits say, and its answer too.
#[test]
fn a_large_call_may_ask_its_client_where_there_is_little_memory() {
    let server = asking(vec![json!({"q": sampling()})]);
    let files = Files::new();
    files.write(&config(server.port));
    let cgroups = files.container(256 << 20);
    let sidecar = Sidecar::with(files, &["--cgroups-dir", &cgroups]).loaded().ready();
    let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"sampling": {}}));
    let mut events = client.stream("echo", json!({"text": "x".repeat(3_900_000)}));
    let question = next(&mut events);
    assert_eq!(question["method"], "sampling/createMessage", "{question}");
    let mut said = answer_to(&question);
    said["content"]["text"] = "y".repeat(3_900_000).into();
    reply(&client, &question["id"], &said);
    let end = next(&mut events);
    assert!(end["result"]["content"][0]["text"].as_str().is_some_and(|text| text.len() > 3_900_000));
}
