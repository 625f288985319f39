//! Calls of modern clients, whose legacy server asks back.

use super::*;
use crate::revision::Revision;

const PAIR: Pair = Pair { client: Revision::V2026_07_28, server: Revision::V2025_11_25 };

fn can(json: &str) -> ClientCapabilities {
    ClientCapabilities::read(json).unwrap()
}

fn everything() -> ClientCapabilities {
    can(r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#)
}

fn ask(parked: &mut Parked, id: &str, method: &str, params: Option<&str>) -> Asked {
    parked.asked(Id::from_json(id), method, params)
}

const FORM: &str = r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#;

#[test]
fn questions_are_asked_in_one_round_and_answered_by_key() {
    let mut parked = Parked::new(PAIR, "7", everything());
    assert!(!parked.is_waiting());
    assert_eq!(ask(&mut parked, "1", "elicitation/create", Some(FORM)), Asked::Kept);
    assert_eq!(ask(&mut parked, "\"r\"", "roots/list", Some("null")), Asked::Kept);
    assert_eq!(
        parked.round("s\"1", Some(r#"{"name":"s"}"#)).unwrap(),
        format!(
            r#"{{"resultType":"input_required","inputRequests":{{"elicitation-1":{{"method":"elicitation/create","params":{FORM}}},"roots-2":{{"method":"roots/list"}}}},"requestState":"s\"1","_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"s"}}}}}}"#
        )
    );
    assert_eq!(ask(&mut parked, "\"n\"", "roots/list", Some(r#"{"_meta":null}"#)), Asked::Kept);
    let round = parked.round("s", None).unwrap();
    assert!(round.contains(r#""roots-3":{"method":"roots/list","params":{}}"#), "{round}");
    assert!(parked.withdrawn(Id::from_json("\"n\"")));
    // One answer is enough to go on with that one; what nobody asked is ignored.
    let next = parked.answered(Some(r#"{"roots-2":{"roots":[ ]},"other":7}"#), everything()).unwrap();
    assert_eq!(next, Next::AskAgain(vec![r#"{"jsonrpc":"2.0","id":"r","result":{"roots":[ ]}}"#.to_owned()]));
    assert!(!parked.round("s2", None).unwrap().contains("roots"));
    // A wrong one is not passed on, and costs nothing.
    assert_eq!(parked.answered(Some("[]"), everything()), Err(BadAnswer::NotObject));
    let wrong = parked.answered(Some(r#"{"elicitation-1":{"action":"perhaps"}}"#), everything());
    assert!(matches!(wrong, Err(BadAnswer::Unusable { key, .. }) if key == "elicitation-1"));
    assert_eq!(parked.answered(None, everything()), Ok(Next::AskAgain(Vec::new())));
    let related = r#"{"elicitation-1":{"action":"decline","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}}"#;
    let next = parked.answered(Some(related), everything()).unwrap();
    assert_eq!(
        next,
        Next::Tell(vec![r#"{"jsonrpc":"2.0","id":1,"result":{"action":"decline","_meta":{}}}"#.to_owned()])
    );
    // The next question has a key of its own, and the same id may come again.
    assert_eq!(ask(&mut parked, "1", "elicitation/create", Some(FORM)), Asked::Kept);
    assert!(parked.round("s3", None).unwrap().contains("elicitation-4"));
}

#[test]
fn what_a_client_cannot_do_is_refused_for_it() {
    let mut parked = Parked::new(PAIR, "7", can(r#"{"elicitation":{}}"#));
    let code = |asked| match asked {
        Asked::Kept => 0,
        Asked::Answered(text) => crate::object::at(&text, &["error"]).and_then(error::code_of).unwrap_or(1),
    };
    for (id, method, params, expected) in [
        ("1", "ping", None, 1),
        ("2", "roots/list", None, -32601),
        ("3", "sampling/createMessage", Some("{}"), -32601),
        ("4", "elicitation/create", Some(r#"{"mode":"url"}"#), -32602),
        ("5", "tasks/get", Some("{}"), -32601),
        ("6", "elicitation/create", Some("[]"), -32602),
        ("7", "elicitation/create", Some(FORM), 0),
        ("7", "elicitation/create", Some(FORM), -32600),
    ] {
        assert_eq!(code(ask(&mut parked, id, method, params)), expected, "{method} {params:?}");
    }
    for number in 100..100 + MAX_QUESTIONS - 1 {
        assert_eq!(ask(&mut parked, &number.to_string(), "elicitation/create", Some(FORM)), Asked::Kept);
    }
    assert_eq!(code(ask(&mut parked, "200", "elicitation/create", Some(FORM))), -32603);
    for _ in 0..MAX_ROUNDS {
        parked.round("", None).unwrap();
    }
    assert_eq!(parked.round("", None), Err(TooManyRounds));
}

#[test]
fn a_server_may_change_its_mind() {
    let mut parked = Parked::new(PAIR, "7", everything());
    ask(&mut parked, "1", "elicitation/create", Some(FORM));
    assert!(!parked.withdrawn(Id::from_json("2")));
    assert!(parked.withdrawn(Id::from_json("1")));
    assert!(!parked.is_waiting());
    assert_eq!(
        parked.answered(Some(r#"{"elicitation-1":{"action":"accept"}}"#), everything()),
        Ok(Next::Tell(Vec::new()))
    );
}

#[test]
fn a_url_to_visit_is_a_question_too() {
    let error = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a","message":"m"}]}}"#;
    let urls = errors::urls_to_visit(error).unwrap();
    let mut parked = Parked::new(PAIR, "7", everything());
    parked.visit(&urls, &everything()).unwrap();
    let round = parked.round("s", None).unwrap();
    assert!(round.contains(r#""params":{"mode":"url","url":"https://a","message":"m"}"#), "{round}");
    assert_eq!(parked.answered(None, everything()), Ok(Next::AskAgain(Vec::new())));
    // However it is written.
    let next = parked.answered(Some(r#"{"elicitation-1":{"action":"\u0061ccept"}}"#), everything());
    assert_eq!(next, Ok(Next::CallAgain));

    let mut parked = Parked::new(PAIR, "7", everything());
    parked.visit(&urls, &everything()).unwrap();
    let next = parked.answered(Some(r#"{"elicitation-1":{"action":"cancel"}}"#), everything()).unwrap();
    assert!(matches!(next, Next::Declined(error) if error.contains("-32602")));

    // A visit, whether it says so or not.
    let mut parked = Parked::new(PAIR, "7", everything());
    parked.visit(&[r#"{"url":"https://a"}"#], &everything()).unwrap();
    assert!(parked.round("s", None).unwrap().contains(r#""params":{"url":"https://a","mode":"url"}"#));
    assert!(parked.visit(&["7"], &everything()).unwrap_err().contains("-32603"));

    // Whoever waits has to be able to, whoever began the call.
    let lacking = r#""requiredCapabilities":{"elicitation":{"url":{}}}"#;
    let mut parked = Parked::new(PAIR, "7", everything());
    assert!(parked.visit(&urls, &can("{}")).unwrap_err().contains(lacking));
    parked.visit(&urls, &everything()).unwrap();
    let next = parked.answered(None, can("{}")).unwrap();
    assert!(matches!(next, Next::Declined(error) if error.contains(lacking)));
}

#[test]
fn a_client_is_asked_again_only_for_what_it_can_do_now() {
    let mut parked = Parked::new(PAIR, "7", everything());
    ask(&mut parked, "1", "elicitation/create", Some(FORM));
    ask(&mut parked, "2", "sampling/createMessage", Some("{}"));
    ask(&mut parked, "3", "roots/list", None);
    let refused =
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"the client did not declare sampling"}}"#;
    let next = parked.answered(None, can(r#"{"roots":{},"elicitation":{}}"#)).unwrap();
    assert_eq!(next, Next::AskAgain(vec![refused.to_owned()]));
    assert!(!parked.round("s", None).unwrap().contains("sampling"));
    let Ok(Next::Tell(refused)) = parked.answered(None, can("{}")) else {
        panic!("it is asked for something")
    };
    assert_eq!(refused.len(), 2);
}

#[test]
fn an_abandoned_call_leaves_nobody_waiting() {
    let mut parked = Parked::new(PAIR, "7", everything());
    ask(&mut parked, "1", "elicitation/create", Some(FORM));
    ask(&mut parked, "2", "roots/list", None);
    assert_eq!(
        parked.abandon("the client has gone"),
        [
            r#"{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the client has gone"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"the client has gone"}}"#,
        ]
    );
}
