//! Conversations: each line is an event, a letter and what it is about.

use std::collections::BTreeMap;

use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::ids::Numbers;
use longshore_mcp::method::Method;
use longshore_mcp::parked::{self, Parked};
use longshore_mcp::revision::Revision;
use longshore_mcp::rounds::{self, Rounds};
use longshore_mcp::translate::Pair;
use serde_json::Value;

use crate::input::{Input, able, is_json, value};

/// The most events of one input: more of them say nothing new.
const EVENTS: usize = 200;

/// Answers find their questions among those of many clients.
pub(super) fn numbers(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut numbers = Numbers::new(8);
    let mut open: BTreeMap<u64, (u8, String)> = BTreeMap::new();
    let mut given = 0;
    for _ in 0..EVENTS {
        let Some(line) = input.text_line() else { break };
        let Some((event, text)) = line.split_at_checked(1) else { continue };
        // Ids are JSON with nothing around it: whoever read the message has seen to that.
        if value(text).is_none() || text.trim() != text {
            continue;
        }
        let owner = text.bytes().next().unwrap_or_default() % 4;
        match event {
            "g" => match numbers.give(owner, text) {
                Ok(number) => {
                    assert!(number > given, "a number is never given twice");
                    given = number;
                    open.insert(number, (owner, text.to_owned()));
                }
                Err(_) => assert_eq!(open.len(), 8),
            },
            "t" => {
                let said = open.keys().copied().find(|number| says(text, *number));
                let expected = said.and_then(|number| open.remove(&number));
                assert_eq!(numbers.take(Id::from_json(text)), expected);
            }
            "f" => {
                let found = numbers.find(Id::from_json(text), |of| *of == owner);
                if let Some(number) = found {
                    assert_eq!(open[&number].0, owner, "it is somebody else's");
                }
            }
            _ => {
                let owner =
                    numbers.owner(Id::from_json(text)).map(|(owner, theirs)| (*owner, theirs.to_owned()));
                assert!(owner.is_none_or(|owner| open.values().any(|open| *open == owner)));
            }
        }
        assert_eq!((numbers.len(), numbers.is_empty()), (open.len(), open.is_empty()));
    }
}

/// Whether JSON is that number: as one, however it is written, or as the text of one.
fn says(json: &str, number: u64) -> bool {
    match value(json) {
        Some(Value::Number(said)) => said.as_f64() == Some(number as f64),
        Some(Value::String(said)) => said == number.to_string(),
        _ => false,
    }
}

/// A parked call: each of the server's questions is answered once, under its own id.
pub(super) fn parked(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let server = input.pick(&Revision::ALL[..4]);
    let pair = Pair { client: Revision::V2026_07_28, server };
    let mut call = Parked::new(pair, "77", able());
    // The server's ids that wait, as it wrote them.
    let mut waiting: Vec<String> = Vec::new();
    let mut rounds = 0;
    for _ in 0..EVENTS {
        let Some(line) = input.text_line() else { break };
        let Some((event, text)) = line.split_at_checked(1) else { continue };
        match event {
            "q" => {
                let Ok(Message::Request(request)) = envelope::read(text.as_bytes()) else { continue };
                let params = request.params.map(|params| params.get());
                match call.asked(request.id, &request.method, params) {
                    parked::Asked::Kept => waiting.push(request.id.as_json().to_owned()),
                    parked::Asked::Answered(message) => {
                        let message = value(&message).expect("JSON");
                        assert_eq!(Some(&message["id"]), value(request.id.as_json()).as_ref());
                    }
                }
                assert!(waiting.len() <= parked::MAX_QUESTIONS);
            }
            "w" => {
                let was_open = waiting.iter().any(|open| Id::from_json(open).is(&Id::from_json(text)));
                assert_eq!(call.withdrawn(Id::from_json(text)), was_open);
                waiting.retain(|open| !Id::from_json(open).is(&Id::from_json(text)));
            }
            "r" if call.is_waiting() => {
                rounds += 1;
                let Ok(result) = call.round(text, None) else {
                    assert!(rounds > parked::MAX_ROUNDS);
                    continue;
                };
                let result = value(&result).expect("JSON");
                assert_eq!(result["requestState"], text);
                assert_eq!(
                    result["inputRequests"].as_object().map(serde_json::Map::len),
                    Some(waiting.len())
                );
            }
            "a" | "b" => match call
                .answered(Some(text), if event == "a" { able() } else { Default::default() })
            {
                Ok(parked::Next::Tell(messages) | parked::Next::AskAgain(messages)) => {
                    for message in messages {
                        let message = value(&message).expect("JSON");
                        let at = waiting.iter().position(|open| value(open).as_ref() == Some(&message["id"]));
                        waiting.remove(at.expect("it answers a question that was open"));
                    }
                }
                Ok(parked::Next::CallAgain) => break,
                Ok(parked::Next::Declined(error)) => {
                    is_json(&error);
                    break;
                }
                Err(error) => assert!(error.to_string().len() < line.len() * 8 + 400),
            },
            "v" if waiting.is_empty() => {
                match call.visit(&[text], &able()) {
                    // From here on there are questions without an id.
                    Ok(()) => {
                        _ = call.round("s", None).map(|round| is_json(&round));
                        _ = call.answered(Some(r#"{"1":{"action":"accept"}}"#), able());
                        break;
                    }
                    Err(error) => is_json(&error),
                }
            }
            _ => {}
        }
    }
    for message in call.abandon("it is over") {
        is_json(&message);
    }
}

struct Counting(u32);

impl rounds::Mint for Counting {
    fn id(&mut self) -> String {
        self.0 += 1;
        format!("\"own-{}\"", self.0)
    }

    fn visit(&mut self) -> String {
        "visit".to_owned()
    }
}

/// A call that is sent again: the client's answers go where they were asked for, the server's state is as it was.
pub(super) fn rounds(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let client = input.pick(&Revision::ALL[..4]);
    let pair = Pair { client, server: Revision::V2026_07_28 };
    let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","xkept":[ 1.0 ]}}"#;
    let mut rounds = Rounds::new(pair, Method::ToolsCall, call, able());
    let mut mint = Counting(0);
    // What was asked, by the id that the client knows.
    let mut asked: Vec<String> = Vec::new();
    let mut state = None;
    for _ in 0..EVENTS {
        let Some(line) = input.text_line() else { break };
        let Some((event, text)) = line.split_at_checked(1) else { continue };
        match event {
            "i" => match rounds.input_required(text, &mut mint) {
                rounds::Next::Ask(messages) => {
                    assert!(messages.len() <= rounds::MAX_QUESTIONS);
                    let ids = messages.iter().map(|message| value(message).expect("JSON")["id"].to_string());
                    asked = ids.collect();
                    state = value(text).and_then(|result| result["requestState"].as_str().map(str::to_owned));
                }
                rounds::Next::AgainLater => {
                    asked.clear();
                    state = value(text).and_then(|result| result["requestState"].as_str().map(str::to_owned));
                }
                rounds::Next::Result(json) | rounds::Next::Error(json) => {
                    is_json(&json);
                    break;
                }
                next @ (rounds::Next::Wait | rounds::Next::Again) => panic!("nobody has answered: {next:?}"),
            },
            "a" | "e" if !asked.is_empty() => {
                let id = asked.remove(text.len() % asked.len());
                let outcome = if event == "a" { Ok(text) } else { Err(text) };
                match rounds.answered(Id::from_json(&id), outcome) {
                    Some(rounds::Next::Wait) => assert!(!asked.is_empty()),
                    Some(rounds::Next::Again) => assert!(asked.is_empty()),
                    Some(rounds::Next::Result(json) | rounds::Next::Error(json)) => {
                        is_json(&json);
                        break;
                    }
                    next => panic!("{next:?}"),
                }
                assert!(rounds.answered(Id::from_json(&id), Ok("{}")).is_none(), "it was answered");
            }
            "s" => assert!(
                rounds.answered(Id::from_json(text), Ok("{}")).is_none() || text.starts_with("\"own-")
            ),
            _ => {}
        }
        let again = rounds.again("9").expect("the call can be sent again");
        assert!(again.contains(r#""xkept":[ 1.0 ]"#));
        let again = value(&again).expect("JSON");
        assert_eq!(again["id"], 9);
        assert_eq!(again["params"]["requestState"].as_str(), state.as_deref());
    }
}
