//! 22 to 47 and 85: requests and results of 2026-07-28.

use longshore_mcp::capabilities::{ClientCapabilities, Need};
use longshore_mcp::detect::Conversation;
use longshore_mcp::envelope::Id;
use longshore_mcp::error::{Code, code_of};
use longshore_mcp::headers::{Fields, argument};
use longshore_mcp::level::Level;
use longshore_mcp::listen::{Filter, Offers, Streams};
use longshore_mcp::method::{List, Method};
use longshore_mcp::object;
use longshore_mcp::parked::{Asked, BadAnswer, Next, Parked};
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::results::{self, Hints, Scope};
use longshore_mcp::translate::{Pair, Way, errors, handshake, names};
use longshore_mcp::{detect, logging, status};
use serde_json::{Value, json};

use super::incoming::{MODERN, legacy, modern, refused, taken};
use crate::messages::EVERYWHERE;

const VERSION: (&str, &str) = ("MCP-Protocol-Version", MODERN);
const NEW: Revision = Revision::V2026_07_28;
const OLD: [Revision; 4] =
    [Revision::V2024_11_05, Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2025_11_25];

fn code(body: &str, headers: &[(&str, &str)]) -> (u16, i32) {
    let (status, code, response) = refused(body, headers, &Revision::ALL);
    assert_eq!(response["id"], "i", "{body}");
    (status, code)
}

fn call(method: &str, params: Value) -> String {
    modern(MODERN, method, params)
}

fn result(from: Revision, method: Method, json: &Value, hints: &Hints<'_>) -> Value {
    let json = json.to_string();
    let made = results::result(Way { from, to: NEW }, Some(method), &json, hints).unwrap();
    serde_json::from_str(&made).unwrap()
}

fn empty(method: Method) -> Value {
    match (method.list(), method) {
        (Some(list), _) => json!({list.member(): []}),
        (_, Method::ToolsCall) => json!({"content": []}),
        (_, Method::PromptsGet) => json!({"messages": []}),
        (_, Method::ResourcesRead) => json!({"contents": []}),
        _ => json!({"completion": {"values": []}}),
    }
}

#[test]
fn r022_the_envelope_has_to_be_complete() {
    let whole: Value = serde_json::from_str(&call("tools/list", json!({}))).unwrap();
    let headers = [VERSION, ("Mcp-Method", "tools/list")];
    for missing in ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"] {
        let mut body = whole.clone();
        body["params"]["_meta"].as_object_mut().unwrap().remove(missing);
        assert_eq!(code(&body.to_string(), &headers), (400, -32602), "{missing}");
    }
    for params in [json!(null), json!({}), json!({"_meta": null}), json!({"_meta": {}})] {
        let mut body = whole.clone();
        body["params"] = params;
        assert_eq!(code(&body.to_string(), &headers), (400, -32602), "{body}");
    }
    let body = whole.to_string();
    let Conversation::Modern(modern) = taken(&body, &headers) else { panic!("{body}") };
    assert_eq!(modern.envelope.client_info, None);
}

#[test]
fn r023_the_method_has_to_be_repeated() {
    let body = call("tools/list", json!({}));
    assert_eq!(code(&body, &[VERSION]), (400, -32020));
    assert_eq!(code(&body, &[VERSION, ("Mcp-Method", "Tools/list")]), (400, -32020));
    assert!(matches!(
        taken(&body, &[("mcp-PROTOCOL-version", MODERN), ("MCP-METHOD", "tools/list")]),
        Conversation::Modern(_)
    ));
}

#[test]
fn r024_the_name_has_to_be_repeated() {
    for (method, params, right) in [
        ("tools/call", json!({"name": "h\u{e9}"}), "=?base64?aMOp?="),
        ("tools/call", json!({"name": "echo"}), "  echo\t"),
        ("prompts/get", json!({"name": "p"}), "p"),
        ("resources/read", json!({"uri": "a://b"}), "a://b"),
        ("tasks/get", json!({"taskId": "t"}), "t"),
    ] {
        let body = call(method, params);
        let headers = [VERSION, ("Mcp-Method", method)];
        assert_eq!(code(&body, &headers), (400, -32020), "{method}");
        assert_eq!(code(&body, &[headers[0], headers[1], ("Mcp-Name", "wrong")]), (400, -32020), "{method}");
        let conversation = taken(&body, &[headers[0], headers[1], ("Mcp-Name", right)]);
        assert!(matches!(conversation, Conversation::Modern(_)), "{method}");
    }
}

#[test]
fn r025_base64_has_to_be_canonical() {
    let body = call("tools/call", json!({"name": "a"}));
    for name in ["=?base64?YQ?=", "=?base64?YR==?=", "=?base64?!!!!?=", "=?base64?/w==?="] {
        assert_eq!(
            code(&body, &[VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", name)]),
            (400, -32020),
            "{name}"
        );
    }
}

#[test]
fn r026_no_header_may_be_there_twice() {
    let body = call("tools/call", json!({"name": "a"}));
    let headers = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", "a")];
    for twice in headers {
        let [one, two, three] = headers;
        assert_eq!(code(&body, &[one, two, three, twice]), (400, -32020), "{twice:?}");
    }
}

#[test]
fn r027_arguments_have_to_be_repeated() {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}).to_string();
    let marked = argument::marked(&schema).unwrap();
    for (arguments, value, fits) in [
        (r#"{"n":42}"#, Some("42.0"), true),
        (r#"{"n":42}"#, Some("41"), false),
        (r#"{"n":42}"#, None, false),
        ("{}", Some("42"), false),
        (r#"{"n":null}"#, None, true),
    ] {
        let headers = value.map(|value| ("Mcp-Param-n", value.as_bytes())).into_iter();
        let fields = Fields::read(headers.chain([("Mcp-Param-Other", &b"x"[..])]));
        let checked = argument::check(&marked, Some(arguments), &fields);
        assert_eq!(checked.is_ok(), fits, "{arguments} {value:?}");
        if let Err(mismatch) = checked {
            let answer = status::answer(detect::Wrong::Header(mismatch).problem(NEW), NEW);
            assert_eq!((answer.status, answer.code), (400, Code::HeaderMismatch));
        }
    }
}

#[test]
fn r028_methods_that_are_gone_are_unknown() {
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "no/such",
    ] {
        assert_eq!(
            code(&call(method, json!({})), &[VERSION, ("Mcp-Method", method)]),
            (404, -32601),
            "{method}"
        );
    }
}

#[test]
fn r029_there_are_no_streams_without_a_session() {
    for method in [detect::HttpMethod::Get, detect::HttpMethod::Delete] {
        let fields = Fields::read([("mcp-protocol-version", MODERN.as_bytes())]);
        assert_eq!(detect::without_body(method, &fields, &Revision::ALL).unwrap_err().answer().status, 405);
    }
}

#[test]
fn r030_session_headers_mean_nothing() {
    let body = call("tools/list", json!({}));
    let headers = [VERSION, ("Mcp-Method", "tools/list"), ("Mcp-Session-Id", "x"), ("Last-Event-ID", "7")];
    let conversation = taken(&body, &headers);
    assert!(matches!(conversation, Conversation::Modern(_)));
}

#[test]
fn r031_errors_have_the_id_of_their_request() {
    let right = [VERSION, ("Mcp-Method", "tools/list")];
    for (body, headers) in [
        (call("tools/list", json!({})), &[][..]),
        (call("tools/list", json!({})), &right[..1]),
        (call("no/such", json!({})), &[VERSION, ("Mcp-Method", "no/such")]),
        (modern("2099-01-01", "tools/list", json!({})), &[("MCP-Protocol-Version", "2099-01-01"), right[1]]),
        (legacy("tools/list", "").replace(":7", ":\"i\""), &right[..]),
    ] {
        code(&body, headers);
    }
}

#[test]
fn r032_a_missing_capability_is_named_as_an_object() {
    let error: Value =
        serde_json::from_str(&errors::lacking(Need::Sampling, Way { from: OLD[3], to: NEW })).unwrap();
    assert_eq!(error["data"]["requiredCapabilities"], json!({"sampling": {}}));
    assert_eq!(error["code"], -32021);
    assert_eq!(status::of_error(-32021, NEW), 400);
}

#[test]
fn r033_every_result_has_a_type() {
    for from in OLD {
        for method in EVERYWHERE {
            assert_eq!(result(from, method, &empty(method), &Hints::default())["resultType"], "complete");
        }
    }
}

#[test]
fn r034_what_can_be_kept_says_how_long() {
    for method in EVERYWHERE {
        let kept = result(OLD[0], method, &empty(method), &Hints::default());
        let expected =
            if method.is_cacheable() { (json!(0), json!("private")) } else { (Value::Null, Value::Null) };
        assert_eq!((kept["ttlMs"].clone(), kept["cacheScope"].clone()), expected, "{method:?}");
    }
    let hints = Hints { ttl_ms: 60_000, scope: Scope::Public, ..Hints::default() };
    let kept = result(OLD[3], Method::ToolsList, &empty(Method::ToolsList), &hints);
    assert_eq!((&kept["ttlMs"], &kept["cacheScope"]), (&json!(60_000), &json!("public")));
    let cacheable = Method::ALL.into_iter().filter(|method| method.is_cacheable()).count();
    assert_eq!(cacheable, 6);
}

#[test]
fn r035_results_say_who_the_server_is() {
    let info = json!({"name": "s", "version": "1"});
    let text = info.to_string();
    let hints = Hints { server_info: Some(&text), ..Hints::default() };
    for method in EVERYWHERE {
        let made = result(OLD[2], method, &empty(method), &hints);
        assert_eq!(made["_meta"]["io.modelcontextprotocol/serverInfo"], info);
    }
}

#[test]
fn r036_every_server_can_be_discovered() {
    for from in OLD {
        let initialized = json!({
            "protocolVersion": from.as_str(), "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"},
        })
        .to_string();
        let way = Way { from, to: NEW };
        let made = handshake::discovered(way, &initialized, &Revision::ALL, &Hints::default()).unwrap();
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(made["supportedVersions"].as_array().unwrap().len(), Revision::ALL.len());
        assert_eq!(made["supportedVersions"][0], MODERN);
        assert_eq!(made["capabilities"], json!({"tools": {}}));
    }
}

#[test]
fn r037_lists_keep_their_order() {
    let tools: Vec<Value> = ["b", "a", "c"]
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}, "execution": {}}))
        .collect();
    let made = result(OLD[3], Method::ToolsList, &json!({"tools": tools}), &Hints::default());
    let names: Vec<_> =
        made[List::Tools.member()].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["b", "a", "c"]);
}

#[test]
fn r038_codes_of_older_revisions_stay_there() {
    for server in OLD {
        for sent in [-32002, -32042, -32020, -32021, -32022, -32050] {
            let error = json!({"code": sent, "message": "m"}).to_string();
            let pair = Pair { client: NEW, server };
            for method in [Method::ToolsCall, Method::ResourcesRead, Method::PromptsList] {
                let made = code_of(&errors::error(pair, Some(method), Some("a://b"), &error)).unwrap();
                let is_reserved = (-32099..=-32020).contains(&made);
                assert!(made != -32002 && !is_reserved, "{sent} became {made}");
            }
        }
    }
}

#[test]
fn r039_log_messages_have_to_be_asked_for() {
    let message =
        json!({"method": "notifications/message", "params": {"level": "info", "data": 1}}).to_string();
    assert!(!logging::is_wanted(&message, None));
    assert!(logging::is_wanted(&message, Some(Level::Info)));
    assert!(!logging::is_wanted(&message, Some(Level::Notice)));
}

fn parked(capabilities: &str) -> Parked {
    let pair = Pair { client: NEW, server: Revision::V2025_11_25 };
    Parked::new(pair, "9", ClientCapabilities::read(capabilities).unwrap())
}

#[test]
fn r040_questions_are_results() {
    let mut call = parked(r#"{"roots":{}}"#);
    assert_eq!(call.asked(Id::from_json("1"), "roots/list", None), Asked::Kept);
    let round: Value = serde_json::from_str(&call.round("s", None).unwrap()).unwrap();
    let question = &round["inputRequests"]["roots-1"];
    assert_eq!(question, &json!({"method": "roots/list"}));
    assert_eq!((round.get("id"), round.get("method")), (None, None));
}

#[test]
fn r041_an_abandoned_call_is_cancelled_at_the_server() {
    let told = parked("{}").abandon("the client has gone");
    assert_eq!(told.len(), 1);
    assert_eq!(names::cancelled_id(&told[0]), Some("9"));
}

#[test]
fn r042_listening_is_in_order() {
    let mut streams = Streams::new();
    let wanted =
        Filter::read(r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true}}"#).unwrap();
    let offers = Offers { tools: true, ..Offers::default() };
    let opened = streams.open("\"l\"", wanted, offers).unwrap();
    let subscription = ["params", "_meta", "io.modelcontextprotocol/subscriptionId"];
    assert_eq!(object::at(&opened.acknowledgement, &subscription), Some("\"l\""));
    assert_eq!(
        object::at(&opened.acknowledgement, &["params", "notifications"]),
        Some(r#"{"toolsListChanged":true}"#)
    );
    let changed = |what: &str| {
        json!({"jsonrpc": "2.0", "method": format!("notifications/{what}/list_changed")}).to_string()
    };
    let delivered = streams.deliver(&changed("tools"));
    assert_eq!(object::at(&delivered[0].1, &subscription), Some("\"l\""));
    assert!(streams.deliver(&changed("prompts")).is_empty());
    for unrelated in ["notifications/progress", "notifications/message"] {
        assert!(streams.deliver(&json!({"method": unrelated, "params": {}}).to_string()).is_empty());
    }
    let ended = streams.end(opened.stream, None).unwrap();
    assert_eq!(object::at(&ended, &["id"]), Some("\"l\""));
    assert_eq!(object::at(&ended, &["result", "resultType"]), Some("\"complete\""));
}

#[test]
fn r043_only_what_was_declared_is_asked_for() {
    let may: Vec<_> = Method::ALL.into_iter().filter(|method| method.may_need_input()).collect();
    assert_eq!(may, [Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead]);
    let form = Some(r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#);
    let visit = Some(r#"{"mode":"url","message":"m","url":"https://a","elicitationId":"e"}"#);
    let sampling = Some(r#"{"messages":[],"maxTokens":1}"#);
    for (capabilities, asked) in [
        ("{}", [false, false, false, false]),
        (r#"{"elicitation":{}}"#, [true, false, false, false]),
        (r#"{"elicitation":{"url":{}}}"#, [false, true, false, false]),
        (r#"{"sampling":{}}"#, [false, false, true, false]),
        (r#"{"roots":{}}"#, [false, false, false, true]),
    ] {
        for (at, (method, params)) in [
            ("elicitation/create", form),
            ("elicitation/create", visit),
            ("sampling/createMessage", sampling),
            ("roots/list", None),
        ]
        .into_iter()
        .enumerate()
        {
            let mut call = parked(capabilities);
            let kept = call.asked(Id::from_json("1"), method, params) == Asked::Kept;
            assert_eq!(kept, asked[at], "{capabilities} {method} {params:?}");
        }
    }
}

#[test]
fn r045_answers_are_asked_for_until_they_are_there() {
    let can = || ClientCapabilities::read(r#"{"roots":{}}"#).unwrap();
    let mut call = parked(r#"{"roots":{}}"#);
    assert_eq!(call.asked(Id::from_json("1"), "roots/list", None), Asked::Kept);
    for nothing in [None, Some("{}"), Some(r#"{"other":{"roots":[]}}"#)] {
        assert_eq!(call.answered(nothing, can()), Ok(Next::AskAgain(Vec::new())));
    }
    let wrong = call.answered(Some(r#"{"roots-1":{"roots":7}}"#), can());
    assert!(matches!(wrong, Err(BadAnswer::Unusable { .. })));
    let right = call.answered(Some(r#"{"roots-1":{"roots":[]},"other":7}"#), can()).unwrap();
    assert!(matches!(right, Next::Tell(told) if told.len() == 1));
}

#[test]
fn r047_tasks_are_named_by_their_id() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let body = call(method, json!({"taskId": "t"}));
        let headers = [VERSION, ("Mcp-Method", method)];
        assert_eq!(code(&body, &[headers[0], headers[1], ("Mcp-Name", "u")]), (400, -32020));
        let conversation = taken(&body, &[headers[0], headers[1], ("Mcp-Name", "t")]);
        assert!(matches!(conversation, Conversation::Modern(_)));
    }
    assert_eq!(Need::Tasks.as_capabilities(), json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    // The core has others.
    assert_eq!(Method::of(Revision::V2026_07_28, "tasks/list"), None);
    assert_eq!(Method::parse("tasks/update"), None);
}

#[test]
fn r085_what_a_client_says_of_itself_decides_nothing() {
    let headers = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", "echo")];
    for info in [json!({}), json!({"name": "admin", "version": "1", "roles": ["root"]})] {
        let mut body: Value = serde_json::from_str(&call("tools/call", json!({"name": "echo"}))).unwrap();
        body["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = info;
        let body = body.to_string();
        let Conversation::Modern(modern) = taken(&body, &headers) else { panic!("{body}") };
        assert_eq!((modern.method, modern.revision), (Method::ToolsCall, NEW));
    }
}
