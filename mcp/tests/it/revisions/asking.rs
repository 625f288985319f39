//! What servers ask of clients: the rows of their requests, and of the one error that asks for something.

use std::borrow::Cow;

use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::error::{Code, code_of};
use longshore_mcp::method::{Method, ServerNotification, ServerRequest};
use longshore_mcp::parked::{self, Parked};
use longshore_mcp::revision::{Elicitation, Era, Questions};
use longshore_mcp::rounds::{self, Rounds};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::responses::{self, Answer, Asked};
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, Untranslatable, questions};
use serde_json::{Value, json};

use super::Verdict::{self, Answered, Becomes, Passes, Refused, Unheard};
use super::features::ABLE;
use super::probed;
use crate::minted::Minted;

pub(super) fn ping_of_server(pair: Pair) -> Verdict {
    probed(ServerRequest::Ping.as_str());
    if pair.server.features().questions == Questions::InputRequired {
        return Unheard;
    }
    if pair.client.features().questions == Questions::Requests {
        assert_eq!(question(pair, ServerRequest::Ping, json!({})), Passes);
        // Where the connection is Longshore's own, it knows best whether anybody is there.
        return Becomes("passes over Streamable HTTP; over stdio and HTTP+SSE Longshore answers");
    }
    let mut call = Parked::new(pair, "1", ClientCapabilities::read(ABLE).unwrap());
    let parked::Asked::Answered(answer) = call.asked(Id::from_json("\"q\""), "ping", None) else {
        panic!("{pair:?}")
    };
    assert_eq!(answer, questions::outside_of_calls(pair.down(), Id::from_json("\"q\""), "ping"));
    assert!(answer.contains(r#""result":{}"#), "{answer}");
    Answered("answers")
}

/// A request of the server's.
pub(super) fn question(pair: Pair, request: ServerRequest, params: Value) -> Verdict {
    probed(request.as_str());
    let can = ClientCapabilities::read(&client_of(pair)).unwrap();
    let text = params.to_string();
    match (pair.server.features().questions, pair.client.features().questions) {
        (Questions::Requests, Questions::InputRequired) => {
            let mut call = Parked::new(pair, "1", can);
            match call.asked(Id::from_json("\"q\""), request.as_str(), Some(&text)) {
                parked::Asked::Kept => {
                    let round: Value = serde_json::from_str(&call.round("s", None).unwrap()).unwrap();
                    assert_eq!(round["resultType"], "input_required");
                    let asked: Vec<_> = round["inputRequests"].as_object().unwrap().values().collect();
                    let [asked] = asked[..] else { panic!("{round}") };
                    assert_eq!(asked["method"], request.as_str());
                    assert!(asked["params"].get("elicitationId").is_none(), "{round}");
                    Becomes("a result that asks for input")
                }
                parked::Asked::Answered(message) => to_the_server(&message),
            }
        }
        (Questions::InputRequired, Questions::Requests) => {
            let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}"#;
            let mut rounds = Rounds::new(pair, Method::ToolsCall, call, can);
            let asks = json!({"resultType": "input_required", "inputRequests": {"a": {"method": request.as_str(), "params": params}}}).to_string();
            match rounds.input_required(&asks, &mut Minted) {
                rounds::Next::Ask(_) => Becomes("a request on the call's stream"),
                rounds::Next::Result(result) => {
                    let result: Value = serde_json::from_str(&result).unwrap();
                    let words = result["content"][0]["text"].as_str().unwrap();
                    assert!(
                        words.contains(pair.client.as_str()) && words.contains(pair.server.as_str()),
                        "{words}"
                    );
                    assert_eq!(result["isError"], true);
                    assert!(matches!(
                        Rounds::new(pair, Method::PromptsGet, call, ClientCapabilities::default())
                            .input_required(&asks, &mut Minted),
                        rounds::Next::Error(error) if code_of(&error) == Some(i64::from(Code::InternalError.number()))
                    ));
                    Refused("an error as the tool's result (else -32603)".to_owned())
                }
                next => panic!("{next:?}"),
            }
        }
        _ if pair.is_same() => Passes,
        _ => match questions::ask(pair.down(), request, &text, &can) {
            Ok(Cow::Borrowed(_)) => Passes,
            Ok(Cow::Owned(made)) => {
                assert!(made.contains("enumNames") && !made.contains("default"), "{made}");
                Becomes("titles in `enumNames`, and no default")
            }
            Err(error) => untranslatable(pair, &error),
        },
    }
}

/// What a client of that revision can do at most.
fn client_of(pair: Pair) -> String {
    let knows = pair.client.features();
    let mut can = json!({"roots": {}, "sampling": {}});
    if knows.sampling_tools {
        can["sampling"] = json!({"tools": {}});
    }
    match knows.elicitation {
        Elicitation::None => {}
        Elicitation::Form => can["elicitation"] = json!({}),
        Elicitation::FormAndUrl => can["elicitation"] = json!({"form": {}, "url": {}}),
    }
    can.to_string()
}

fn to_the_server(message: &str) -> Verdict {
    let message: Value = serde_json::from_str(message).unwrap();
    Refused(format!("the server gets {}", message["error"]["code"]))
}

fn untranslatable(pair: Pair, error: &Untranslatable) -> Verdict {
    let words = error.to_string();
    assert!(words.contains(pair.client.as_str()) && words.contains(pair.server.as_str()), "{words}");
    Refused("an error to the server".to_owned())
}

pub(super) fn form(pair: Pair, needs: Elicitation, properties: Value) -> Verdict {
    if pair.server.features().elicitation < needs {
        return Unheard;
    }
    let schema = json!({"type": "object", "properties": properties});
    question(pair, ServerRequest::ElicitationCreate, json!({"message": "m", "requestedSchema": schema}))
}

pub(super) fn visit(pair: Pair) -> Value {
    let mut params = json!({"mode": "url", "message": "m", "url": "https://a.example"});
    if pair.server.era() == Era::Legacy {
        params["elicitationId"] = json!("e");
    }
    params
}

pub(super) fn urls(pair: Pair) -> Verdict {
    if !pair.server.features().url_elicitation_error {
        return Unheard;
    }
    let error = json!({"code": -32042, "message": "m", "data": {"elicitations": [visit(pair)]}}).to_string();
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
    let Ok(Message::Response(response)) = envelope::read(message.as_bytes()) else { panic!("{message}") };
    let asked = Asked { id: "1", method: Some(Method::ToolsCall), uri: None };
    match responses::response(pair, &asked, &response, &message, &Hints::default()).unwrap() {
        Answer::Message(Cow::Borrowed(_)) => Passes,
        Answer::Message(Cow::Owned(made)) => {
            let made: Value = serde_json::from_str(&made).unwrap();
            Becomes(match made["error"]["code"].as_i64() {
                Some(-32603) => "-32603 with words",
                other => panic!("{other:?}"),
            })
        }
        Answer::Visit(urls) => {
            assert_eq!(urls.len(), 1);
            let (able, unable) = (ClientCapabilities::read(ABLE).unwrap(), ClientCapabilities::default());
            let mut call = Parked::new(pair, "1", able.clone());
            let denied = call.visit(&urls, &unable).unwrap_err();
            call.visit(&urls, &able).unwrap();
            assert_eq!(code_of(&denied), Some(i64::from(Code::MissingClientCapability.number())));
            Becomes("a result that asks for the visit (-32021 if the client did not declare it)")
        }
        Answer::InputRequired(_) => panic!("it is an error"),
    }
}

/// A server takes back what it asked. Where it asks in results there is nothing to take back, and it may only end what a
/// client listens to.
pub(super) fn cancels_question(pair: Pair) -> Verdict {
    let name = ServerNotification::Cancelled.as_str();
    probed(name);
    let text = json!({"jsonrpc": "2.0", "method": name, "params": {"requestId": "q"}}).to_string();
    assert_eq!(notifications::to_client(pair, name, &text), Ok(Told::Cancels));
    if pair.is_same() {
        return Passes;
    }
    match (pair.server.features().questions, pair.client.features().questions) {
        (Questions::InputRequired, _) => Becomes("is about what Longshore listens to, and goes nowhere"),
        (_, Questions::Requests) => Passes,
        (_, Questions::InputRequired) => {
            let mut call = Parked::new(pair, "1", ClientCapabilities::read(ABLE).unwrap());
            let asked = call.asked(Id::from_json("\"q\""), ServerRequest::RootsList.as_str(), None);
            assert_eq!(asked, parked::Asked::Kept);
            assert!(call.withdrawn(Id::from_json("\"q\"")) && !call.is_waiting());
            Answered("asks no more for it, and takes no answer on")
        }
    }
}

/// The user has been where a question led.
pub(super) fn visited(pair: Pair) -> Verdict {
    let name = ServerNotification::ElicitationComplete.as_str();
    probed(name);
    if !pair.server.features().url_elicitation_error {
        return Unheard;
    }
    let text = json!({"jsonrpc": "2.0", "method": name, "params": {"elicitationId": "e"}}).to_string();
    match notifications::to_client(pair, name, &text).unwrap() {
        Told::On(made) if made == text => Passes,
        Told::Nowhere if pair.client.era() == Era::Modern => {
            Becomes("goes nowhere: the client finds out by asking again")
        }
        Told::Nowhere => Becomes("goes nowhere: the client cannot have been asked"),
        other => panic!("{pair:?}: {other:?}"),
    }
}

const SAMPLING: ServerRequest = ServerRequest::SamplingCreateMessage;

/// Sampling that its client may get in another form.
fn sampled(pair: Pair, params: &Value, form: impl Fn(&Value) -> &'static str) -> Verdict {
    let can = ClientCapabilities::read(&client_of(pair)).unwrap();
    match questions::ask(pair.down(), SAMPLING, &params.to_string(), &can) {
        Ok(Cow::Owned(made)) => Becomes(form(&serde_json::from_str(&made).unwrap())),
        Ok(Cow::Borrowed(_)) | Err(_) => question(pair, SAMPLING, params.clone()),
    }
}

fn message(content: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "maxTokens": 1})
}

pub(super) fn sampling_blocks(pair: Pair) -> Verdict {
    if !pair.server.features().sampling_tools {
        return Unheard;
    }
    let block = |text: &str| json!({"type": "text", "text": text});
    sampled(pair, &message(&json!([block("a"), block("b")])), |made| {
        let messages = made["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 2);
        assert_eq!((&messages[0]["content"], &messages[1]["content"]), (&block("a"), &block("b")));
        "several messages of one block each"
    })
}

pub(super) fn sampling_audio(pair: Pair) -> Verdict {
    if !pair.server.features().audio {
        return Unheard;
    }
    let audio = json!({"type": "audio", "data": "", "mimeType": "audio/wav"});
    sampled(pair, &message(&audio), |made| panic!("{pair:?}: {made}"))
}

pub(super) fn sampling_context(pair: Pair) -> Verdict {
    let mut params = message(&json!({"type": "text", "text": "a"}));
    params["includeContext"] = json!("thisServer");
    let declares = ClientCapabilities::read(ABLE).unwrap();
    let kept = questions::ask(pair.down(), SAMPLING, &params.to_string(), &declares).unwrap().into_owned();
    assert!(kept.contains("includeContext"), "{pair:?}: {kept}");
    sampled(pair, &params, |made| {
        assert!(made.get("includeContext").is_none(), "{made}");
        "left out, unless the client declares `sampling.context`"
    })
}

/// A client's answer, for a server that asked for a message.
pub(super) fn sampling_answer(pair: Pair, has: bool, content: Value) -> Verdict {
    if !has {
        return Unheard;
    }
    let answer = json!({"role": "assistant", "model": "m", "content": content}).to_string();
    match (questions::answer(pair.up(), SAMPLING, &answer), pair.client.era()) {
        (Ok(made), _) if made == answer => Passes,
        (Ok(made), _) => panic!("{pair:?}: {made}"),
        (Err(error), Era::Legacy) => {
            untranslatable(pair, &error);
            Refused("the server gets -32603".to_owned())
        }
        (Err(error), Era::Modern) => {
            untranslatable(pair, &error);
            let mut call = Parked::new(pair, "1", ClientCapabilities::read(ABLE).unwrap());
            let params = message(&json!({"type": "text", "text": "a"})).to_string();
            let asked = call.asked(Id::from_json("1"), SAMPLING.as_str(), Some(&params));
            assert_eq!(asked, parked::Asked::Kept);
            let given = format!(r#"{{"sampling-1":{answer}}}"#);
            let refused = call.answered(Some(&given), ClientCapabilities::read(ABLE).unwrap());
            assert!(matches!(refused, Err(parked::BadAnswer::Unusable { .. })), "{refused:?}");
            Refused("the client gets -32602, and may answer again".to_owned())
        }
    }
}
