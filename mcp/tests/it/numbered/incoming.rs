//! 1 to 21, 52, 53 and 62 to 65: what comes in, and which conversation it belongs to.

use longshore_mcp::batch::{self, BadBatch, Body};
use longshore_mcp::detect::{self, Conversation, HttpMethod};
use longshore_mcp::envelope::{self, Malformed, Message};
use longshore_mcp::headers::{self, Field, Fields};
use longshore_mcp::probe::{self, Verdict};
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::session::{self, OutOfOrder};
use longshore_mcp::status::{self, Problem};
use longshore_mcp::{endpoint, lines, sse};
use serde_json::{Value, json};

pub(super) const MODERN: &str = "2026-07-28";

/// A request of 2026-07-28, or of what claims to be.
pub(super) fn modern(version: &str, method: &str, params: Value) -> String {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": "i", "method": method, "params": params}).to_string()
}

pub(super) fn legacy(method: &str, version: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {"protocolVersion": version}}).to_string()
}

/// The status, the code and the whole response to a body that is refused.
pub(super) fn refused(body: &str, headers: &[(&str, &str)], served: &[Revision]) -> (u16, i32, Value) {
    let fields = Fields::read(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    let mistake = detect::with_body(body.as_bytes(), &fields, served).expect_err(body);
    let answer = mistake.answer();
    let response: Value = serde_json::from_str(&mistake.response()).unwrap();
    assert_eq!(response["error"]["code"], answer.code.number());
    (answer.status, answer.code.number(), response)
}

pub(super) fn taken<'a>(body: &'a str, headers: &[(&str, &str)]) -> Conversation<'a> {
    let fields = Fields::read(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    detect::with_body(body.as_bytes(), &fields, &Revision::ALL).unwrap()
}

fn code(body: &str, headers: &[(&str, &str)]) -> (u16, i32) {
    let (status, code, _) = refused(body, headers, &Revision::ALL);
    (status, code)
}

const VERSION: &str = "MCP-Protocol-Version";
const HEADER: (&str, &str) = (VERSION, MODERN);

#[test]
fn r003_accept_and_content_type_are_needed() {
    assert!(headers::accepts_both(Some("application/json;q=0.9, text/*")));
    assert!(headers::accepts_both(Some("*/*")));
    assert!(!headers::accepts_both(Some("application/json")));
    assert!(headers::is_type(Some("application/json; charset=utf-8"), headers::JSON));
    for revision in Revision::ALL {
        assert_eq!(status::answer(Problem::NotAcceptable, revision).status, 406);
        assert_eq!(status::answer(Problem::UnsupportedMediaType, revision).status, 415);
    }
}

#[test]
fn r004_what_is_no_json_gets_an_error_without_an_id() {
    for headers in [&[][..], &[HEADER]] {
        for body in ["", "{", "{\"id\":1", "nul"] {
            let (status, code, response) = refused(body, headers, &Revision::ALL);
            assert_eq!((status, code), (400, -32700), "{body}");
            assert_eq!(response.get("id"), None);
        }
        let fields = Fields::read(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
        let mistake = detect::with_body(b"{\"a\":\"\xff\"}", &fields, &Revision::ALL).unwrap_err();
        let answer = mistake.answer();
        assert_eq!((answer.status, answer.code.number()), (400, -32700));
        let response: Value = serde_json::from_str(&mistake.response()).unwrap();
        assert_eq!((&response["error"]["code"], response.get("id")), (&json!(-32700), None));
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}{}}}"#,
            "[".repeat(500),
            "]".repeat(500)
        );
        assert_eq!(code(&deep, headers), (400, -32600));
        assert!(matches!(envelope::read(deep.as_bytes()), Err(Malformed::TooDeep)));
    }
    assert_eq!(status::answer(Problem::BodyTooLarge, Revision::V2025_11_25).status, 413);
}

#[test]
fn r005_ids_and_the_version_of_json_rpc_are_checked() {
    for body in [
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
    ] {
        assert_eq!(code(body, &[]), (400, -32600), "{body}");
        assert_eq!(code(body, &[HEADER]), (400, -32600), "{body}");
    }
}

#[test]
fn r006_newer_revisions_have_no_batches() {
    let body = format!("[{}]", legacy("ping", ""));
    for revision in Revision::ALL {
        let read = batch::read(body.as_bytes(), revision);
        if revision == Revision::V2025_03_26 {
            assert!(read.is_ok());
        } else {
            assert!(matches!(read, Err(BadBatch::Malformed(Malformed::Batch))), "{revision}");
            assert_eq!(status::answer(Problem::InvalidMessage, revision).status, 400);
        }
    }
}

#[test]
fn r007_batches_are_answered_as_a_whole() {
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let (one, two) = (legacy("ping", ""), legacy("tools/list", "").replace(":7", ":8"));
    let body = format!("[{one},{told},{two}]");
    let Conversation::SessionBatch(batch) = taken(&body, &[]) else { panic!("no batch") };
    let mut answers = batch.answers().unwrap();
    for id in ["8", "7"] {
        assert!(!answers.is_complete());
        assert!(answers.take(envelope::Id::from_json(id), format!("{{\"id\":{id}}}")));
    }
    assert_eq!(answers.write(), r#"[{"id":7},{"id":8}]"#);
    let only_told = format!("[{told}]");
    let Conversation::SessionBatch(batch) = taken(&only_told, &[]) else { panic!("no batch") };
    assert!(batch.answers().is_none());
    let many = vec![told; batch::MAX_MESSAGES + 1].join(",");
    let initialize = legacy("initialize", "2025-03-26");
    for body in ["[]", &format!("[{initialize}]"), &format!("[{one},{one}]"), &format!("[{many}]")] {
        assert_eq!(code(body, &[]), (400, -32600), "{body}");
    }
}

#[test]
fn r008_a_modern_body_is_one_request() {
    for body in [
        format!("[{}]", modern(MODERN, "tools/list", json!({}))),
        "[]".to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#.to_owned(),
    ] {
        assert_eq!(code(&body, &[HEADER]), (400, -32600), "{body}");
    }
}

#[test]
fn r010_modern_notifications_are_dropped() {
    let told = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert!(matches!(taken(told, &[HEADER]), Conversation::ModernNotification));
    assert_eq!(code(told, &[(VERSION, "2099-01-01")]), (400, -32022));
}

#[test]
fn r012_one_message_is_one_event() {
    let mut decoder = sse::Decoder::new(1 << 10);
    let mut messages = Vec::new();
    let stream = ": comment\n\nid: 1\n\ndata: {\"a\":\ndata: 1}\n\nevent: other\ndata: x\n\nevent: message\ndata: {}\n\n";
    let each = |event: sse::Event<'_>| {
        messages.extend(event.message().map(<[u8]>::to_vec));
    };
    decoder.push(&stream.into(), each).unwrap();
    assert_eq!(messages, [&b"{\"a\":\n1}"[..], b"{}"]);
}

#[test]
fn r013_modern_events_have_no_ids() {
    let event = String::from_utf8(sse::message(b"{\n}")).unwrap();
    assert!(event.lines().all(|line| !line.starts_with("id") && !line.starts_with("retry")), "{event}");
}

#[test]
fn r014_initialize_with_an_envelope_is_an_unknown_method() {
    let body = modern(MODERN, "initialize", json!({"protocolVersion": "2025-11-25"}));
    assert_eq!(code(&body, &[HEADER, ("Mcp-Method", "initialize")]), (404, -32601));
}

#[test]
fn r015_a_modern_header_needs_an_envelope() {
    assert_eq!(code(&legacy("tools/list", ""), &[HEADER]), (400, -32602));
    assert_eq!(code(&legacy("initialize", "2025-11-25"), &[HEADER]), (400, -32602));
}

#[test]
fn r016_an_envelope_needs_the_header() {
    assert_eq!(
        code(&modern(MODERN, "tools/list", json!({})), &[("Mcp-Method", "tools/list")]),
        (400, -32020)
    );
}

#[test]
fn r017_header_and_envelope_have_to_agree() {
    for (envelope, header) in [(MODERN, "2025-11-25"), ("v999", MODERN), (MODERN, "v999"), ("v1", "v2")] {
        let body = modern(envelope, "tools/list", json!({}));
        assert_eq!(
            code(&body, &[(VERSION, header), ("Mcp-Method", "tools/list")]),
            (400, -32020),
            "{envelope}"
        );
    }
}

#[test]
fn r018_an_unknown_revision_is_told_what_is_served() {
    let body = modern("2099-01-01", "tools/list", json!({}));
    let headers = [(VERSION, "2099-01-01"), ("Mcp-Method", "tools/list")];
    let (status, code, response) = refused(&body, &headers, &[Revision::V2025_11_25, Revision::V2026_07_28]);
    assert_eq!((status, code), (400, -32022));
    assert_eq!(
        response["error"]["data"],
        json!({"supported": ["2026-07-28", "2025-11-25"], "requested": "2099-01-01"})
    );
}

#[test]
fn r019_initialize_ends_in_a_legacy_revision() {
    assert!(matches!(taken(&legacy("initialize", MODERN), &[]), Conversation::Handshake(_)));
    for (asked, expected) in
        [(MODERN, Revision::V2025_11_25), ("2024-11-05", Revision::V2024_11_05), ("x", Revision::V2025_11_25)]
    {
        assert_eq!(session::negotiate(asked, &Revision::ALL), Some(expected));
    }
}

#[test]
fn r020_without_legacy_revisions_initialize_is_told_what_is_served() {
    let served = [Revision::V2026_07_28];
    let (status, code, response) = refused(&legacy("initialize", "2025-06-18"), &[], &served);
    assert_eq!((status, code, &response["error"]["data"]["supported"]), (400, -32022, &json!([MODERN])));
    for method in [HttpMethod::Get, HttpMethod::Delete] {
        let mistake = detect::without_body(method, &Fields::default(), &served).unwrap_err();
        assert_eq!(mistake.answer().status, 405);
    }
}

#[test]
fn r021_both_eras_live_at_one_address() {
    let call = modern(MODERN, "tools/list", json!({}));
    for _ in 0..2 {
        let conversation = taken(&call, &[HEADER, ("Mcp-Method", "tools/list")]);
        assert!(matches!(conversation, Conversation::Modern(modern) if modern.revision.era() == Era::Modern));
        assert!(matches!(taken(&legacy("initialize", "2025-06-18"), &[]), Conversation::Handshake(_)));
        let body = legacy("tools/list", "");
        let conversation = taken(&body, &[("Mcp-Session-Id", "x"), (VERSION, "2025-06-18")]);
        assert!(matches!(conversation, Conversation::Session(Message::Request(_))));
    }
}

#[test]
fn r052_the_header_has_to_be_the_sessions() {
    for (session, header, fits) in [
        (Revision::V2025_06_18, Field::One("2025-06-18"), true),
        (Revision::V2025_11_25, Field::Absent, true),
        (Revision::V2025_11_25, Field::One("2025-06-18"), false),
        (Revision::V2025_11_25, Field::One("banana"), false),
    ] {
        assert_eq!(session::judge_version(header, session).is_ok(), fits, "{header:?}");
        let problem = OutOfOrder::Version(session).problem();
        assert_eq!(status::answer(problem, session).status, 400);
    }
}

#[test]
fn r053_a_session_has_one_handshake() {
    let body = legacy("initialize", "2025-06-18");
    let Body::One(message) = batch::read(body.as_bytes(), Revision::V2025_06_18).unwrap() else { panic!() };
    let order = session::judge(&message, Field::Absent, Revision::V2025_06_18).unwrap_err();
    let answer = status::answer(order.problem(), Revision::V2025_06_18);
    assert_eq!((answer.status, answer.code.number()), (400, -32600));
    let body = legacy("tools/list", "");
    let Body::One(message) = batch::read(body.as_bytes(), Revision::V2025_06_18).unwrap() else { panic!() };
    assert!(session::judge(&message, Field::Absent, Revision::V2025_06_18).is_ok());
}

#[test]
fn r062_stdio_has_one_line_a_message() {
    let line = lines::line("{\"jsonrpc\":\"2.0\",\r\n\"id\":1,\"method\":\"ping\"}");
    assert!(!line.contains(['\n', '\r']));
    assert!(envelope::read(line.as_bytes()).is_ok());
    for noise in ["Server listening", "", "\u{1b}[32mok\u{1b}[0m"] {
        assert!(!lines::may_be_message(noise.as_bytes()), "{noise}");
    }
}

#[test]
fn r065_a_servers_era_is_known_by_its_answer() {
    let unknown = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}"#;
    let found = r#"{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]}}"#;
    assert_eq!(probe::over_stdio(Some(found)), Verdict::Modern(Revision::V2026_07_28));
    assert_eq!(probe::over_stdio(Some(unknown)), Verdict::Legacy);
    assert_eq!(probe::over_stdio(None), Verdict::Legacy);
    assert_eq!(probe::over_http(200, Some(found)), Verdict::Modern(Revision::V2026_07_28));
    for (status, verdict) in [(404, Verdict::Legacy), (401, Verdict::Nothing), (502, Verdict::Nothing)] {
        assert_eq!(probe::over_http(status, None), verdict);
    }
}

#[test]
fn r067_an_endpoint_is_on_the_streams_own_server() {
    let stream = "http://127.0.0.1:8080/sse";
    for (reference, expected) in [
        ("/messages?sessionId=x", Some("/messages?sessionId=x")),
        ("http://127.0.0.1:8080/m", Some("/m")),
        ("http://127.0.0.2:8080/m", None),
        ("//evil.example.com/m", None),
    ] {
        assert_eq!(endpoint::resolve(stream, reference).ok().as_deref(), expected, "{reference}");
    }
}
