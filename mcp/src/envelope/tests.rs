//! Messages that are told apart, and those that two readers could understand differently.

use super::*;

fn kind(body: &str) -> String {
    match read(body.as_bytes()) {
        Ok(Message::Request(request)) => format!("request {} {}", request.id.as_json(), request.method),
        Ok(Message::Notification(notification)) => format!("notification {}", notification.method),
        Ok(Message::Response(response)) => {
            let outcome = match response.outcome {
                Outcome::Result(_) => "result",
                Outcome::Error(_) => "error",
            };
            format!("{outcome} {}", response.id.map_or("-", |id| id.as_json()))
        }
        Err(Malformed::NotJson) => "not json".to_owned(),
        Err(Malformed::Batch) => "batch".to_owned(),
        Err(Malformed::TooDeep) => "too deep".to_owned(),
        Err(Malformed::NotMessage(why)) => format!("not message: {why}"),
    }
}

#[test]
fn messages_are_told_apart() {
    for (body, expected) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request 1 ping"),
        (" \r\n{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0062\",\"method\":\"x\"}\n", "request \"a\\u0062\" x"),
        (
            r#"{"jsonrpc":"2.0","method":"notifications\/initialized"}"#,
            "notification notifications/initialized",
        ),
        (r#"{"result":{},"jsonrpc":"2.0","id":-7}"#, "result -7"),
        (r#"{"result":null,"jsonrpc":"2.0","id":7}"#, "result 7"),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#, "error -"),
        (r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#, "error -"),
        // Both, and `null` for the one that it is not.
        (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#, "result 7"),
        (r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"},"result":null}"#, "error 7"),
    ] {
        assert_eq!(kind(body), expected, "{body}");
    }
}

#[test]
fn an_id_that_was_kept_elsewhere_is_read_again() {
    for (json, is_id) in [
        ("7", true),
        ("-7", true),
        ("\"a-\\u0062\"", true),
        ("9007199254740992", false),
        ("+7", false),
        ("007", false),
        ("-0", false),
        ("7.0", false),
        (" 7", false),
        ("\"a", false),
        ("\"a\"x", false),
        ("\"a\",\"b\"", false),
        ("\"a\nb\"", false),
        ("null", false),
        ("", false),
    ] {
        assert_eq!(Id::parse(json).map(|id| id.as_json()), is_id.then_some(json), "{json}");
    }
}

#[test]
fn an_answer_may_write_its_number_in_another_way() {
    for (id, asked, answers) in [
        ("5", "5", true),
        ("\"5\"", "5", true),
        ("5.0", "5", true),
        ("5e0", "5", true),
        ("50E-1", "5", true),
        ("-5.0", "-5", true),
        ("1.073741824e9", "1073741824", true),
        ("6", "5", false),
        ("5.5", "5", false),
        ("\"05\"", "5", false),
        ("\"+5\"", "5", false),
        ("\" 5\"", "5", false),
        ("\"5.0\"", "5", false),
        ("\"a\\u0062\"", "\"ab\"", true),
        // A string is no number that is written in another way.
        ("5", "\"5\"", false),
    ] {
        assert_eq!(Id::from_json(id).answers(&Id::from_json(asked)), answers, "{id}, {asked}");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        let read = read_servers(answer.as_bytes());
        assert_eq!(matches!(read, Ok(Message::Response(_))), id != "5.5", "{answer}");
    }
    for id in ["5.0", "9007199254740993.0", "true", "[5]", "1e400"] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert!(read_servers(request.as_bytes()).is_err(), "{request}");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        assert!(read(answer.as_bytes()).is_err(), "{answer}");
        assert_eq!(read_servers(answer.as_bytes()).is_ok(), id == "5.0", "{answer}");
    }
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    for (body, expected) in [
        ("", "not json"),
        ("{", "not json"),
        ("\u{feff}{}", "not json"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, "not json"),
        (r#"{"jsonrpc":1,"id":1,"method":"#, "not json"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "batch"),
        (r#"["2.0",1,"ping"]"#, "batch"),
        ("7", "not message: it has to be an object"),
        ("{}", "not message: \"jsonrpc\" has to be \"2.0\""),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "not message: \"jsonrpc\" has to be \"2.0\""),
        (r#"{"jsonrpc":"2.0","id":1}"#, "not message: it has no \"method\""),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1e3,"method":"ping"}"#,
            "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1",
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#, "not message: duplicate field `method`"),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}"#,
            "not message: duplicate field `method`",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}"#,
            "not message: duplicate field `params`",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#,
            "not message: it is a request and a response at once",
        ),
        (r#"{"jsonrpc":"2.0","result":{}}"#, "not message: a result needs an \"id\""),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "not message: it has a result and an error"),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#,
            "not message: it has a result and an error",
        ),
    ] {
        assert_eq!(kind(body), expected, "{body}");
    }
    for (member, meant) in [
        ("JSONRPC", "jsonrpc"),
        ("j\u{17f}onrpc", "jsonrpc"),
        ("ID", "id"),
        ("Method", "method"),
        ("m\\u0045thod", "method"),
        ("Params", "params"),
        ("param\\u017f", "params"),
        ("rE\u{17f}ult", "result"),
        ("Error", "error"),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{member}":{{}}}}"#);
        assert_eq!(kind(&body), format!("not message: the member `{meant}` has to be spelled so"), "{body}");
    }
    for member in ["methods", "_method", "m\u{e9}thod", "x", ""] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{member}":{{"Method":1}}}}"#);
        assert_eq!(kind(&body), "request 1 ping", "{body}");
    }
    assert!(matches!(read(b"{\"jsonrpc\":\"\xff\"}"), Err(Malformed::NotJson)));
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(MAX_ID));
    assert!(kind(&long).starts_with("not message: the \"id\" is longer"));
}

#[test]
fn who_asks_under_a_number_that_is_none_hears_so_under_the_same() {
    for (id, answered) in
        [("9007199254740993", true), ("-0", true), ("1.5", true), ("1", false), ("null", false)]
    {
        let refusal =
            refusal_of_number(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).as_bytes());
        assert_eq!(refusal.is_some(), answered, "{id}");
        assert!(refusal.is_none_or(|refusal| refusal.contains(&format!(r#""id":{id},"error""#))), "{id}");
    }
    let long = "1".repeat(MAX_ID + 1);
    for other in [
        r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"ping"}"#,
        r#"{"id":1.5,"method":"ping"}"#,
        "hello",
        &format!(r#"{{"jsonrpc":"2.0","id":{long},"method":"ping"}}"#),
    ] {
        assert_eq!(refusal_of_number(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn ids_are_such_that_every_reader_keeps_them() {
    for (id, taken) in [
        ("0", true),
        ("-1", true),
        ("9007199254740991", true),
        ("-9007199254740991", true),
        (r#""""#, true),
        (r#""\ud83d\ude00""#, true),
        ("-0", false),
        ("9007199254740992", false),
        ("9007199254740993", false),
        ("-9007199254740992", false),
        ("18446744073709551617", false),
        ("1.0", false),
        ("1E0", false),
        (r#""\ud800""#, false),
        (r#""a\udc00b""#, false),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let expected = if taken {
            format!("request {id} ping")
        } else {
            "not message: the \"id\" has to be a string or an integer from -(2^53-1) to 2^53-1".to_owned()
        };
        assert_eq!(kind(&body), expected, "{id}");
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize, text: &str| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"a":{open}{close},"b":"{text}"}}}}"#)
    };
    assert_eq!(kind(&nested(MAX_DEPTH - 2, "")), "request 1 x");
    assert_eq!(kind(&nested(MAX_DEPTH - 1, "")), "too deep");
    assert_eq!(kind(&nested(1_000_000, "")), "too deep");
    // Brackets in strings are text.
    assert_eq!(kind(&nested(1, &"[\\\"[".repeat(1000))), "request 1 x");
    assert_eq!(kind(&"[".repeat(1_000_000)), "not json");
}

#[test]
fn ids_are_compared_by_value() {
    for (one, other, same) in
        [("1", "1", true), ("1", "\"1\"", false), ("\"ab\"", "\"a\\u0062\"", true), ("1", "2", false)]
    {
        assert_eq!(Id::from_json(one).is(&Id::from_json(other)), same, "{one} {other}");
    }
}
