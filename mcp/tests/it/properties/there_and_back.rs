//! What comes back as it was, between revisions that lose nothing of it.

use longshore_mcp::error::Code;
use longshore_mcp::listen::{Filter, Offers, Streams};
use longshore_mcp::method::{Method, ServerRequest};
use longshore_mcp::revision::{Elicitation, Era, Revision};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::{Pair, Way, errors, questions};
use longshore_mcp_schemas as schema;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{a_question, everything, value, without};
use crate::messages::{self, any_json, revision, ruffled, text};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Whether all that one revision may ask, or answer, can be said in another.
fn keeps(from: Revision, over: Revision) -> bool {
    let (has, knows) = (from.features(), over.features());
    knows.audio >= has.audio
        && knows.elicitation >= has.elicitation
        && knows.sampling_tools >= has.sampling_tools
        && knows.structured >= has.structured
}

/// An answer of a client to one of the questions that its revision knows.
fn an_answer() -> impl Strategy<Value = (Revision, ServerRequest, String)> {
    revision().prop_flat_map(|revision| {
        (messages::answer(revision), vec(any::<u8>(), 1..32))
            .prop_map(move |((asked, answer), choices)| (revision, asked, ruffled(&answer, &choices)))
    })
}

/// An error, often one with a code that means something.
fn an_error() -> impl Strategy<Value = Value> {
    let code = prop_oneof![
        3 => prop::sample::select(Code::ALL.to_vec()).prop_map(Code::number),
        1 => any::<i32>(),
        1 => -32099..-31999,
    ];
    let data = prop_oneof![
        Just(Value::Null),
        any_json(),
        text().prop_map(|uri| json!({"uri": uri, "com.example/a": [1.0]})),
    ];
    (code, text(), data).prop_map(|(code, message, data)| {
        let mut error = json!({"code": code, "message": message});
        if !data.is_null() {
            error["data"] = data;
        }
        error
    })
}

/// What a client of 2026-07-28 hears on its stream if it listens to everything; other messages as they are.
fn heard(told: Told<'_>, message: &str) -> Option<String> {
    match told {
        Told::On(text) | Told::Log(text) => Some(text.into_owned()),
        Told::Subscriptions => {
            let filter = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a://b"]}}"#;
            let offers = Offers { tools: true, prompts: true, resources: true, updates: true };
            let mut streams = Streams::new();
            streams.open("\"s\"", Filter::read(filter).unwrap(), offers).unwrap();
            streams.deliver(message).pop().map(|(_, text)| text)
        }
        Told::Cancels | Told::Nowhere => None,
    }
}

/// A notification without what says on which stream it came.
fn unmarked(json: &str) -> Value {
    let mut message = value(json);
    let meta = without(message["params"]["_meta"].take(), &[SUBSCRIPTION]);
    if meta != Value::Null && meta != json!({}) {
        message["params"]["_meta"] = meta;
    } else {
        message["params"] = without(message["params"].take(), &["_meta"]);
    }
    message
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn questions_there_and_back((from, asked, params) in a_question(), over in revision()) {
        let there = questions::ask(Way { from, to: over }, asked, &params, &everything());
        // What only its newest reader could say otherwise is not there.
        let is_plain = from == Revision::V2026_07_28 && over == Revision::V2025_11_25
            && !value(&params).to_string().contains("structuredContent");
        if !keeps(from, over) && !is_plain {
            return Ok(());
        }
        let there = there.unwrap();
        let back = questions::ask(Way { from: over, to: from }, asked, &there, &everything()).unwrap();
        // 2026-07-28 has no ids of visits: they are made anew.
        let ids = ["elicitationId"];
        prop_assert_eq!(without(value(&params), &ids), without(value(&back), &ids));
        if from.era() == over.era() {
            prop_assert_eq!(value(&params), value(&back));
        }
    }

    #[test]
    fn answers_there_and_back((from, asked, answer) in an_answer(), over in revision()) {
        let definition = match asked {
            ServerRequest::SamplingCreateMessage => "CreateMessageResult",
            ServerRequest::ElicitationCreate => "ElicitResult",
            _ => "ListRootsResult",
        };
        schema::check(from, definition, &answer);
        let there = questions::answer(Way { from, to: over }, asked, &answer);
        let is_known = asked != ServerRequest::ElicitationCreate || over.features().elicitation > Elicitation::None;
        if let Ok(there) = &there && is_known {
            schema::check(over, definition, there);
        }
        if keeps(from, over) {
            let there = there.unwrap();
            let back = questions::answer(Way { from: over, to: from }, asked, &there).unwrap();
            prop_assert_eq!(value(&answer), value(&back));
        }
    }

    /// The code always, and `data` but for the resource that an error is about, which one era names in it.
    #[test]
    fn errors_there_and_back(
        error in an_error(), choices in vec(any::<u8>(), 1..8), from in revision(), over in revision(),
    ) {
        const RESERVED: std::ops::RangeInclusive<i64> = -32099..=-32020;
        let number = error["code"].as_i64().unwrap();
        let code = Code::of(number);
        // Codes that one of the two does not have, or that are about the way itself, are not carried.
        let is_carried = code.is_none_or(|code| code.is_in(from) && (code.is_in(over) || code == Code::ResourceNotFound))
            && (from.era() == over.era() || !RESERVED.contains(&number));
        if !is_carried {
            return Ok(());
        }
        let written = ruffled(&error, &choices);
        for method in [Method::ToolsCall, Method::ResourcesRead] {
            let crosses = from.era() != over.era();
            let data = &error["data"];
            let names = data["uri"].is_string();
            let has_place = data.is_null() || data.is_object() && (names || data.get("uri").is_none());
            let is_lost = match code {
                // Without a name it is one of bad parameters.
                Some(Code::ResourceNotFound) => crosses && (method != Method::ResourcesRead || !has_place),
                // And an older server's that has a name is one of a resource.
                Some(Code::InvalidParams) =>
                    crosses && from.era() == Era::Legacy && names && method == Method::ResourcesRead,
                _ => false,
            };
            if is_lost {
                continue;
            }
            let ask = |client, server, error: &str| {
                errors::error(Pair { client, server }, Some(method), Some("a://b"), error).into_owned()
            };
            let there = ask(over, from, &written);
            let back = value(&ask(from, over, &there));
            let mut expected = error.clone();
            if code == Some(Code::ResourceNotFound) && crosses && !names {
                if expected["data"].is_null() {
                    expected["data"] = json!({});
                }
                expected["data"]["uri"] = json!("a://b");
            }
            prop_assert_eq!(back, expected, "{} over {}: {}", from, over, there);
        }
    }

    #[test]
    fn notifications_there_and_back(
        (method, message) in messages::news(), choices in vec(any::<u8>(), 1..32), from in revision(), over in revision(),
    ) {
        let message = ruffled(&message, &choices);
        let tell = |server, client, message: &str| {
            heard(notifications::to_client(Pair { client, server }, method, message).unwrap(), message)
        };
        let there = tell(from, over, &message).expect("it goes on");
        let back = tell(over, from, &there).expect("and comes back");
        prop_assert_eq!(unmarked(&message), unmarked(&back));
        // Whoever has no subscriptions hears nothing of them.
        for (reader, sender, text) in [(over, from, &there), (from, over, &back)] {
            prop_assert!(reader.era() == Era::Modern || sender == reader || !text.contains(SUBSCRIPTION), "{}", text);
        }
    }
}
