//! What servers ask, as a client of another revision is asked.

use super::*;
use crate::revision::Revision::{self, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};
use crate::scan::MAX_MEMBERS;
use ServerRequest::{ElicitationCreate, RootsList, SamplingCreateMessage};

fn asked(from: Revision, to: Revision, request: ServerRequest, params: &str) -> String {
    match ask(Way { from, to }, request, params, &ClientCapabilities::default()) {
        Ok(text) => text.into_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn questions_are_asked_as_their_reader_knows_them() {
    for (from, to, request, params, expected) in [
        (
            V2025_11_25,
            V2026_07_28,
            ElicitationCreate,
            r#"{"mode":"url","elicitationId":"e","url":"https://a","message":"m","task":{},"_meta":{"progressToken":1,"x":1}}"#,
            r#"{"mode":"url","url":"https://a","message":"m","_meta":{"x":1}}"#,
        ),
        (
            V2025_11_25,
            V2025_06_18,
            ElicitationCreate,
            r#"{"mode":"url","url":"https://a"}"#,
            "a request to visit a URL cannot be passed on from revision 2025-11-25 to revision 2025-06-18 of MCP",
        ),
        (
            V2025_06_18,
            V2025_03_26,
            ElicitationCreate,
            r#"{"message":"m"}"#,
            "a form for the user cannot be passed on from revision 2025-06-18 to revision 2025-03-26 of MCP",
        ),
        (V2025_06_18, V2026_07_28, ElicitationCreate, r#"{ "message":"m" }"#, r#"{ "message":"m" }"#),
        // The client knows tasks, and the server does not.
        (V2026_07_28, V2025_11_25, ElicitationCreate, r#"{"message":"m","task":{}}"#, r#"{"message":"m"}"#),
        (
            V2026_07_28,
            V2025_06_18,
            SamplingCreateMessage,
            r#"{"maxTokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}"#,
            r#"{"maxTokens":1,"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"user","content":{"type":"text","text":"b"}}]}"#,
        ),
        (
            V2026_07_28,
            V2024_11_05,
            SamplingCreateMessage,
            r#"{"messages":[{"role":"user","content":{"type":"audio"}}]}"#,
            "audio in a message of sampling cannot be passed on from revision 2026-07-28 to revision 2024-11-05 of MCP",
        ),
        (
            V2026_07_28,
            V2025_06_18,
            SamplingCreateMessage,
            r#"{"messages":[],"tools":[]}"#,
            "sampling with tools cannot be passed on from revision 2026-07-28 to revision 2025-06-18 of MCP",
        ),
        (
            V2026_07_28,
            V2025_06_18,
            SamplingCreateMessage,
            r#"{"messages":[],"toolChoice":{"mode":"none"}}"#,
            "sampling with tools cannot be passed on from revision 2026-07-28 to revision 2025-06-18 of MCP",
        ),
        // What some servers write where they have nothing to say.
        (V2025_11_25, V2026_07_28, RootsList, r#"{"_meta":null}"#, "{}"),
        (V2025_11_25, V2025_06_18, RootsList, r#"{"_meta":null}"#, "{}"),
        (
            V2025_11_25,
            V2026_07_28,
            ElicitationCreate,
            r#"{"_meta":null,"message":"m","mode":"url","url":"https://a"}"#,
            r#"{"message":"m","mode":"url","url":"https://a"}"#,
        ),
        (
            V2025_11_25,
            V2025_06_18,
            SamplingCreateMessage,
            r#"{"messages":[ ],"tools":null,"toolChoice":null}"#,
            r#"{"messages":[ ]}"#,
        ),
        (
            V2025_11_25,
            V2026_07_28,
            SamplingCreateMessage,
            r#"{"messages":[ ],"tools":null}"#,
            r#"{"messages":[ ]}"#,
        ),
        (
            V2025_03_26,
            V2026_07_28,
            SamplingCreateMessage,
            r#"{"messages":[ ],"includeContext":"thisServer"}"#,
            r#"{"messages":[ ]}"#,
        ),
        (
            V2026_07_28,
            V2025_11_25,
            SamplingCreateMessage,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","structuredContent":[1]},{ "type":"text"}]}]}"#,
            r#"{"messages":[{"role":"user","content":[{"type":"tool_result","structuredContent":{"result":[1]}},{ "type":"text"}]}]}"#,
        ),
        (V2024_11_05, V2026_07_28, RootsList, "{}", "{}"),
    ] {
        assert_eq!(asked(from, to, request, params), expected, "{from} {to} {params}");
    }
    for (request, params, expected) in [
        (ElicitationCreate, r#"{"mode":"url"}"#, Some(Need::ElicitationUrl)),
        (ElicitationCreate, r#"{"mode":"form"}"#, Some(Need::ElicitationForm)),
        (ElicitationCreate, "{}", Some(Need::ElicitationForm)),
        (SamplingCreateMessage, "{}", Some(Need::Sampling)),
        (SamplingCreateMessage, r#"{"tools":null,"toolChoice":null}"#, Some(Need::Sampling)),
        (SamplingCreateMessage, r#"{"toolChoice":{}}"#, Some(Need::SamplingTools)),
        (SamplingCreateMessage, r#"{"tools":[]}"#, Some(Need::SamplingTools)),
        (ServerRequest::Ping, "{}", None),
    ] {
        assert_eq!(need(request, params), expected, "{params}");
    }
    assert_eq!(with_elicitation_id("{}", "e").unwrap(), r#"{"elicitationId":"e"}"#);
}

#[test]
fn answers_are_checked_and_made_readable() {
    let answered = |from, to, request, result: &str| match answer(Way { from, to }, request, result) {
        Ok(text) => text.into_owned(),
        Err(Untranslatable::Unreadable { .. }) => "unreadable".to_owned(),
        Err(Untranslatable::Unknown { what, .. }) => what.into_owned(),
    };
    let sampled = |content: &str| format!(r#"{{"role":"assistant","model":"m","content":{content}}}"#);
    // Each element takes more memory than it has bytes.
    let many = |count, element: &str| format!("[{}]", vec![element; count].join(","));
    let (text, other) = (r#"{"type":"text","text":"a"}"#, r#"{"type":"tool_use"}"#);
    for (to, content, expected) in [
        (V2025_11_25, format!("[{text}]"), sampled(&format!("[{text}]"))),
        (V2025_06_18, format!("[{text}]"), sampled(text)),
        (V2025_06_18, format!("[{text},{text}]"), "a message of several blocks".to_owned()),
        (V2025_06_18, other.to_owned(), "a tool in a message of sampling".to_owned()),
        (V2024_11_05, r#"{"type":"audio"}"#.to_owned(), "audio in a message of sampling".to_owned()),
        (V2024_11_05, text.to_owned(), sampled(text)),
        (V2024_11_05, "7".to_owned(), "unreadable".to_owned()),
        (V2025_11_25, many(MAX_MEMBERS, "{}"), sampled(&many(MAX_MEMBERS, "{}"))),
        (V2025_11_25, many(MAX_MEMBERS + 1, "{}"), "unreadable".to_owned()),
        (V2025_06_18, many(MAX_MEMBERS + 1, "{}"), "unreadable".to_owned()),
    ] {
        assert_eq!(
            answered(V2026_07_28, to, SamplingCreateMessage, &sampled(&content)),
            expected,
            "{to} {content:.100}"
        );
    }
    let rooted = |count| format!(r#"{{"roots":{}}}"#, many(count, r#"{"uri":"a:b"}"#));
    for (request, result, taken) in [
        (ElicitationCreate, r#"{"action":"accept","content":{"a":1}}"#, true),
        (ElicitationCreate, r#"{"action":"decline"}"#, true),
        (ElicitationCreate, r#"{"action":"maybe"}"#, false),
        (ElicitationCreate, r#"{"action":"accept","content":[]}"#, false),
        (ElicitationCreate, "[]", false),
        (RootsList, r#"{"roots":[{"uri":"file:///a"}]}"#, true),
        (RootsList, r#"{"roots":[{}]}"#, false),
        (RootsList, &rooted(MAX_MEMBERS), true),
        (RootsList, &rooted(MAX_MEMBERS + 1), false),
        (RootsList, "{}", false),
    ] {
        let expected = if taken { result } else { "unreadable" };
        assert_eq!(answered(V2026_07_28, V2025_11_25, request, result), expected, "{result:.100}");
    }
    let declined = r#"{"action":"decline","content":null}"#;
    assert_eq!(
        answered(V2026_07_28, V2025_11_25, ElicitationCreate, declined),
        r#"{"action":"decline"}"#,
        "nothing is no content"
    );
}

#[test]
fn whole_messages_pass_between_legacy_revisions() {
    let way = Way { from: V2025_11_25, to: V2025_06_18 };
    let asked = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"task":{}},"x":1.0}"#;
    assert_eq!(
        request(way, SamplingCreateMessage, asked, &ClientCapabilities::default()).unwrap(),
        r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1},"x":1.0}"#
    );
    for (params, expected) in [
        ("", ""),
        (r#","params":null"#, ""),
        (r#","params":{"_meta":null}"#, r#","params":{}"#),
        (r#","params":{"_meta":{ "x":1}}"#, r#","params":{"_meta":{ "x":1}}"#),
    ] {
        let with = |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"roots/list"{params}}}"#);
        let asked = with(params);
        let made = request(way, RootsList, &asked, &ClientCapabilities::default());
        assert_eq!(made.unwrap(), with(expected), "{params}");
    }
    let way = Way { from: V2025_11_25, to: V2024_11_05 };
    let answered = r#"{"jsonrpc":"2.0","id":1,"result":{"role":"user","model":"m","content":[{"type":"text","text":"a"}]}}"#;
    assert_eq!(
        response(way, SamplingCreateMessage, answered).unwrap(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"role":"user","model":"m","content":{"type":"text","text":"a"}}}"#
    );
    let refused = r#"{"jsonrpc":"2.0","id":1,"error":{ "code":1,"message":"m"}}"#;
    assert_eq!(response(way, RootsList, refused).unwrap(), refused);
}

#[test]
fn nobody_is_asked_outside_of_a_call() {
    let id = Id::from_json("\"a\"");
    let way = Way { from: V2025_11_25, to: V2026_07_28 };
    assert_eq!(outside_of_calls(way, id, "ping"), r#"{"jsonrpc":"2.0","id":"a","result":{}}"#);
    for (method, names_both) in [("roots/list", true), ("elicitation/create", true), ("no/such", false)] {
        let answer = outside_of_calls(way, id, method);
        assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32601,"#), "{answer}");
        let names = [way.from, way.to].iter().all(|revision| answer.contains(revision.as_str()));
        assert_eq!(names, names_both, "{answer}");
    }
}
