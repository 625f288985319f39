//! What holds for every message.

mod there_and_back;

use std::borrow::Cow;

use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{self, Id};
use longshore_mcp::error::Code;
use longshore_mcp::headers::Fields;
use longshore_mcp::ids::Numbers;
use longshore_mcp::method::{Method, ServerRequest};
use longshore_mcp::revision::{Era, Revision, Structured};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::requests::{self, Client};
use longshore_mcp::translate::responses::{self, Asked};
use longshore_mcp::translate::results::{self, Hints};
use longshore_mcp::translate::{Pair, Way, capabilities, errors, handshake, questions, tools};
use longshore_mcp::{batch, detect, level, logging, meta, parked, probe, rounds};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::messages::{self, EVERYWHERE, any_json, id, question, revision, revision_of, ruffled, text};
use longshore_mcp_schemas as schema;

const CLIENT: Client<'_> = Client {
    capabilities: r#"{"roots":{}}"#,
    info: Some(r#"{"name":"c","version":"1"}"#),
    level: Some(level::Level::Info),
};

fn everything() -> ClientCapabilities {
    let json = r#"{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#;
    ClientCapabilities::read(json).unwrap()
}

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(EVERYWHERE.to_vec())
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// A value without some members at its root.
fn without(mut value: Value, names: &[&str]) -> Value {
    if let Some(object) = value.as_object_mut() {
        for name in names {
            object.remove(*name);
        }
    }
    value
}

fn a_result() -> impl Strategy<Value = (Revision, Method, String)> {
    (revision(), method()).prop_flat_map(|(revision, method)| {
        (messages::result_of(revision, method), vec(any::<u8>(), 1..32))
            .prop_map(move |(value, choices)| (revision, method, ruffled(&value, &choices)))
    })
}

fn a_request() -> impl Strategy<Value = (Revision, Method, String)> {
    (revision(), method()).prop_flat_map(|(revision, method)| {
        (messages::request_of(revision, method), vec(any::<u8>(), 1..32))
            .prop_map(move |(value, choices)| (revision, method, ruffled(&value, &choices)))
    })
}

fn a_question() -> impl Strategy<Value = (Revision, ServerRequest, String)> {
    revision().prop_flat_map(|revision| {
        (question(revision), vec(any::<u8>(), 1..32)).prop_map(move |((method, params), choices)| {
            (revision, ServerRequest::parse(method).unwrap(), ruffled(&params, &choices))
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// What is generated follows its own schema: otherwise the tests below would show nothing.
    #[test]
    fn generated_messages_are_valid(
        (of, method, result) in a_result(),
        (of_request, request_method, request) in a_request(),
        (of_question, asked, params) in a_question(),
    ) {
        schema::check(of, schema::result_of(method), &result);
        schema::check(of_request, schema::request_of(request_method), &request);
        let message = match of_question.era() {
            Era::Modern => format!(r#"{{"method":"{}","params":{params}}}"#, asked.as_str()),
            Era::Legacy => format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{params}}}"#, asked.as_str()),
        };
        schema::check(of_question, schema::question_of(asked), &message);
    }

    #[test]
    fn results_are_valid_for_every_reader((from, method, result) in a_result(), wrapped in any::<bool>()) {
        let hints = Hints {
            server_info: Some(r#"{"name":"s","version":"1"}"#),
            wrapped: Some(wrapped),
            ..Hints::default()
        };
        for to in Revision::ALL {
            let made = results::result(Way { from, to }, Some(method), &result, &hints).unwrap();
            schema::check(to, schema::result_of(method), &made);
            if from == to {
                prop_assert!(matches!(made, Cow::Borrowed(same) if same == result));
            }
        }
    }

    #[test]
    fn requests_are_valid_for_every_reader((client, method, request) in a_request()) {
        for server in Revision::ALL {
            let made = requests::request(Pair { client, server }, Some(method), &request, &CLIENT).unwrap();
            schema::check(server, schema::request_of(method), &made);
            if client == server {
                prop_assert!(matches!(made, Cow::Borrowed(same) if same == request));
            }
            let told = value(&made);
            prop_assert_eq!(&told["id"], &value(&request)["id"]);
            let is_claim = told["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
            prop_assert_eq!(is_claim, server.era() == Era::Modern);
        }
    }

    #[test]
    fn questions_are_valid_for_every_reader((from, asked, params) in a_question()) {
        for to in Revision::ALL {
            let way = Way { from, to };
            let Ok(made) = questions::ask(way, asked, &params, &everything()) else { continue };
            if from == to {
                prop_assert!(matches!(made, Cow::Borrowed(same) if same == params));
            }
            let mut made = made.into_owned();
            if from.era() == Era::Modern && to.era() == Era::Legacy && questions::is_visit(&made) {
                made = questions::with_elicitation_id(&made, "e").unwrap();
            }
            let message = match to.era() {
                Era::Modern => format!(r#"{{"method":"{}","params":{made}}}"#, asked.as_str()),
                Era::Legacy => format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{made}}}"#, asked.as_str()),
            };
            schema::check(to, schema::question_of(asked), &message);
        }
    }

    #[test]
    fn errors_are_valid_for_every_reader(
        server in revision(), known in prop::sample::select(Code::ALL.to_vec()), other in any::<i32>(),
        is_known in any::<bool>(), words in prop::option::of(text()), data in any_json(), choices in vec(any::<u8>(), 1..8),
    ) {
        let code = if is_known { known.number() } else { other };
        let error = ruffled(&json!({"code": code, "message": words, "data": data}), &choices);
        for client in Revision::ALL.into_iter().filter(|client| *client != server) {
            let pair = Pair { client, server };
            for method in [Method::ToolsCall, Method::ResourcesRead] {
                let made = errors::error(pair, Some(method), Some("a://b"), &error);
                let response = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{made}}}"#);
                schema::check(client, schema::error_of(client), &response);
                if let Some(code) = longshore_mcp::error::code_of(&made).and_then(Code::of) {
                    // Until 2025-11-25 no code was reserved, so what a server of that time means by one is its own.
                    prop_assert!(code.is_in(client) || server.era() == client.era());
                }
            }
        }
    }

    /// A legacy server's result comes back from a modern one's as it was.
    #[test]
    fn results_there_and_back((from, method, result) in a_result(), over in revision()) {
        let there = results::result(Way { from, to: over }, Some(method), &result, &Hints::default()).unwrap();
        let back = results::result(Way { from: over, to: from }, Some(method), &there, &Hints::default()).unwrap();
        let said = ["resultType", "ttlMs", "cacheScope"];
        let (before, after) = (without(value(&result), &said), without(value(&back), &said));
        let keeps = from.features();
        let (lost, new) = (over.features(), over.features().structured);
        let loses_content = (keeps.audio && !lost.audio)
            || (keeps.resource_links && !lost.resource_links)
            || (new != Structured::Any && before["structuredContent"] != Value::Null);
        let loses_tools = method == Method::ToolsList && from != over;
        if !loses_content && !loses_tools {
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn requests_there_and_back((client, method, request) in a_request(), over in revision()) {
        let there = requests::request(Pair { client, server: over }, Some(method), &request, &CLIENT).unwrap();
        let back = requests::request(Pair { client: over, server: client }, Some(method), &there, &CLIENT).unwrap();
        let strip = |json: &str| {
            let mut message = value(json);
            message["params"] = without(message["params"].clone(), &["context"]);
            let meta = without(message["params"]["_meta"].clone(), &meta::OF_MODERN_REQUESTS);
            message["params"]["_meta"] = if meta == json!({}) { Value::Null } else { meta };
            message
        };
        prop_assert_eq!(strip(&request), strip(&back));
    }

    /// Each part that is not changed keeps its bytes.
    #[test]
    fn arguments_keep_their_bytes(arguments in any_json(), choices in vec(any::<u8>(), 1..32)) {
        let arguments = ruffled(&json!({"x": arguments}), &choices);
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        );
        for client in Revision::ALL {
            for server in Revision::ALL {
                let pair = Pair { client, server };
                let made = requests::request(pair, Some(Method::ToolsCall), &request, &CLIENT).unwrap();
                prop_assert!(made.contains(&arguments));
                let result = format!(r#"{{"content":[{{"type":"text","text":"t"}}],"x":{arguments}}}"#);
                let made = results::result(pair.down(), Some(Method::ToolsCall), &result, &Hints::default()).unwrap();
                prop_assert!(made.contains(&arguments));
            }
        }
    }

    /// Whatever comes, nothing panics, and no error is silent about the revisions.
    #[test]
    fn nothing_panics(
        json in any_json(), words in text(), from in revision(), to in revision(), choices in vec(any::<u8>(), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut all = vec![ruffled(&json, &choices), words];
        for wrapper in ["params", "result", "error", "content", "tools", "messages", "capabilities", "inputRequests"] {
            all.push(ruffled(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", wrapper: json}), &choices));
            all.push(ruffled(&json!({wrapper: [json]}), &choices));
        }
        let mut broken = all[2].clone();
        broken.truncate((0..=cut.index(broken.len() + 1)).rev().find(|at| broken.is_char_boundary(*at)).unwrap_or(0));
        all.push(broken);
        let (way, pair) = (Way { from, to }, Pair { client: to, server: from });
        for text in &all {
            exercise(text, way, pair);
        }
    }

    /// Answers find their questions among those of many clients.
    #[test]
    fn ids_are_never_confused(events in vec((0u8..4, id(), any::<bool>()), 0..60)) {
        let mut numbers = Numbers::new(32);
        let mut open: Vec<(u64, u8, String)> = Vec::new();
        for (owner, id, ends) in events {
            if ends && !open.is_empty() {
                let (number, owner, theirs) = open.remove(usize::from(owner) % open.len());
                let json = number.to_string();
                prop_assert_eq!(numbers.take(Id::from_json(&json)), Some((owner, theirs)));
                prop_assert_eq!(numbers.take(Id::from_json(&json)), None);
            } else if let Ok(number) = numbers.give(owner, &id.to_string()) {
                prop_assert!(open.iter().all(|(other, ..)| *other != number));
                open.push((number, owner, id.to_string()));
            } else {
                prop_assert_eq!(open.len(), 32);
            }
            prop_assert_eq!(numbers.len(), open.len());
        }
    }

    /// Every question of a parked call is answered once, by its own answer, in whatever order things happen.
    #[test]
    fn parked_questions_get_their_own_answers(events in vec((0u8..4, 0usize..20), 0..60)) {
        let pair = Pair { client: Revision::V2026_07_28, server: Revision::V2025_11_25 };
        let mut call = parked::Parked::new(pair, "0", everything());
        // The id of each open question by its key. The number in the URI says which one an answer is for.
        let mut open: Vec<(String, usize)> = Vec::new();
        let mut next = 0;
        for (event, which) in events {
            match event {
                0 | 1 => {
                    let asked = call.asked(Id::from_json(&next.to_string()), "roots/list", None);
                    if asked == parked::Asked::Kept {
                        let Ok(round) = call.round("s", None) else { break };
                        let result = value(&round);
                        let requests = result["inputRequests"].as_object().unwrap().clone();
                        let key = requests.keys().find(|key| open.iter().all(|(known, _)| known != *key)).unwrap();
                        schema::check(pair.client, "InputRequiredResult", &round);
                        open.push((key.clone(), next));
                    }
                    next += 1;
                }
                2 if !open.is_empty() => {
                    let (key, number) = open.remove(which % open.len());
                    let answers = json!({key: {"roots": [{"uri": format!("a://{number}")}]}, "unknown": 7});
                    let told = call.answered(Some(&answers.to_string()), everything()).unwrap();
                    let (parked::Next::Tell(told) | parked::Next::AskAgain(told)) = told else { panic!("{told:?}") };
                    prop_assert_eq!(told.len(), 1);
                    let message = value(&told[0]);
                    prop_assert_eq!(&message["id"], &json!(number));
                    prop_assert_eq!(&message["result"]["roots"][0]["uri"], &json!(format!("a://{number}")));
                    schema::check(pair.server, "ListRootsResult", &message["result"].to_string());
                }
                3 if !open.is_empty() => {
                    let (_, number) = open.remove(which % open.len());
                    prop_assert!(call.withdrawn(Id::from_json(&number.to_string())));
                }
                _ => {}
            }
            prop_assert_eq!(call.is_waiting(), !open.is_empty());
        }
        for message in call.abandon("over") {
            let message = value(&message);
            let definition = if message.get("method").is_some() {
                "CancelledNotification"
            } else {
                schema::error_of(pair.server)
            };
            schema::check(pair.server, definition, &message.to_string());
        }
    }

    /// What a legacy client is asked, and what its server is then told, follow their schemas.
    #[test]
    fn rounds_are_valid_on_both_sides(
        client in revision_of(Era::Legacy), asked in vec(question(Revision::V2026_07_28), 1..4), state in text(),
    ) {
        let pair = Pair { client, server: Revision::V2026_07_28 };
        let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let mut rounds = rounds::Rounds::new(pair, Method::ToolsCall, call, everything());
        let mut requests = serde_json::Map::new();
        for (at, (method, params)) in asked.iter().enumerate() {
            requests.insert(format!("k{at}"), json!({"method": method, "params": params}));
        }
        let result = json!({"resultType": "input_required", "inputRequests": requests, "requestState": state});
        let messages = match rounds.input_required(&result.to_string(), &mut Counting(0)) {
            rounds::Next::Ask(messages) => messages,
            rounds::Next::Result(result) => {
                schema::check(client, "CallToolResult", &result);
                prop_assert!(result.contains(client.as_str()) && result.contains("2026-07-28"));
                return Ok(());
            }
            other => panic!("{other:?}"),
        };
        let mut last = None;
        for (message, (method, _)) in messages.iter().zip(&asked) {
            let request = ServerRequest::parse(method).unwrap();
            schema::check(client, schema::question_of(request), message);
            let id = value(message)["id"].to_string();
            let answer = match request {
                ServerRequest::SamplingCreateMessage => {
                    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "t"}})
                }
                ServerRequest::ElicitationCreate => json!({"action": "accept", "content": {}}),
                _ => json!({"roots": []}),
            };
            last = rounds.answered(Id::from_json(&id), Ok(&answer.to_string()));
        }
        prop_assert_eq!(last, Some(rounds::Next::Again));
        let again = rounds.again("4").unwrap();
        schema::check(pair.server, "CallToolRequest", &again);
        let again = value(&again);
        prop_assert_eq!(&again["params"]["requestState"], &json!(state));
        prop_assert_eq!(again["params"]["inputResponses"].as_object().unwrap().len(), asked.len());
    }
}

struct Counting(u32);

impl rounds::Mint for Counting {
    fn id(&mut self) -> String {
        self.0 += 1;
        self.0.to_string()
    }

    fn visit(&mut self) -> String {
        "visit".to_owned()
    }
}

/// Everything that reads, on one text.
fn exercise(text: &str, way: Way, pair: Pair) {
    let fields = Fields::read([("mcp-protocol-version", text.as_bytes()), ("mcp-name", text.as_bytes())]);
    let _ = detect::with_body(text.as_bytes(), &fields, &Revision::ALL).map_err(|mistake| mistake.response());
    if let Ok(envelope::Message::Response(response)) = envelope::read(text.as_bytes()) {
        let asked = Asked { id: "7", method: Some(Method::ToolsCall), uri: None };
        let _ = responses::response(pair, &asked, &response, text, &Hints::default());
    }
    let _ = batch::read(text.as_bytes(), way.from);
    let _ = probe::over_http(400, Some(text));
    let _ = logging::is_wanted(text, Some(level::Level::Debug));
    let _ = errors::error(pair, Some(Method::ResourcesRead), Some(text), text);
    let _ = capabilities::server(way, text);
    let _ = tools::definition(way, text);
    let _ = tools::is_wrapped(text);
    for method in [Method::ToolsCall, Method::ToolsList, Method::PromptsGet, Method::ResourcesRead] {
        if let Err(error) = results::result(way, Some(method), text, &Hints::default()) {
            let words = error.to_string();
            assert!(words.contains(way.from.as_str()) && words.contains(way.to.as_str()), "{words}");
        }
    }
    let _ = requests::request(pair, Some(Method::CompletionComplete), text, &CLIENT);
    let _ = handshake::offer(way, text);
    let _ = handshake::accept(way, text);
    let _ = handshake::discovered(way, text, &Revision::ALL, &Hints::default());
    let _ = handshake::initialized(way, text);
    for request in ServerRequest::ALL {
        let _ = questions::ask(way, request, text, &everything());
        let _ = questions::answer(way, request, text);
    }
    for method in ["notifications/message", "notifications/tools/list_changed", text] {
        if let Ok(Told::On(_)) = notifications::to_client(pair, method, text) {}
    }
    let mut parked = parked::Parked::new(pair, "1", everything());
    let _ = parked.asked(Id::from_json(text), "elicitation/create", Some(text));
    let _ = parked.answered(Some(text), everything());
    let _ = parked.visit(&[text], &everything());
    let mut rounds = rounds::Rounds::new(pair, Method::ToolsCall, text, everything());
    let _ = rounds.input_required(text, &mut Counting(0));
    let _ = rounds.answered(Id::from_json(text), Ok(text));
    let _ = rounds.again("1");
}
