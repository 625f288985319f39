//! Which conversation a request belongs to, and what is said of each mistake.

use super::*;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"VERSION","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn modern(version: &str, method: &str, params: &str) -> String {
    let comma = if params.is_empty() { "" } else { "," };
    let meta = META.replace("VERSION", version);
    format!(r#"{{"jsonrpc":"2.0","id":"i","method":"{method}","params":{{{params}{comma}{meta}}}}}"#)
}

fn legacy(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{"protocolVersion":"2025-06-18"}}}}"#)
}

fn fields<'a>(headers: &'a [(&'a str, &'a str)]) -> Fields<'a> {
    Fields::read(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
}

fn judge(body: &str, headers: &[(&str, &str)], served: &[Revision]) -> String {
    match with_body(body.as_bytes(), &fields(headers), served) {
        Ok(Conversation::Modern(modern)) => format!("modern {}", modern.method.as_str()),
        Ok(Conversation::ModernNotification) => "dropped".to_owned(),
        Ok(Conversation::Handshake(_)) => "handshake".to_owned(),
        Ok(Conversation::Session(_)) => "session".to_owned(),
        Ok(Conversation::SessionBatch(_)) => "batch".to_owned(),
        Ok(Conversation::Stream | Conversation::End) => unreachable!(),
        Err(mistake) => {
            let answer = mistake.answer();
            let id = mistake.id.map_or("-", |id| id.as_json()).to_owned();
            format!("{} {} {id}", answer.status, answer.code.number())
        }
    }
}

const V: &str = "MCP-Protocol-Version";
const M: &str = "Mcp-Method";
const N: &str = "Mcp-Name";
const NEW: (&str, &str) = (V, "2026-07-28");

#[test]
fn each_mistake_has_its_answer() {
    let list = modern("2026-07-28", "tools/list", "");
    let call = modern("2026-07-28", "tools/call", r#""name":"echo""#);
    let told = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let batch = format!("[{},{}]", legacy("ping"), told);
    for (body, headers, expected) in [
        // The ladder, from its foot.
        ("{", &[NEW][..], "400 -32700 -"),
        ("7", &[NEW], "400 -32600 -"),
        (&batch, &[NEW], "400 -32600 -"),
        ("[]", &[], "400 -32600 -"),
        (&format!("[{list}]"), &[], "400 -32600 -"),
        (answer, &[NEW], "400 -32600 -"),
        (told, &[NEW], "dropped"),
        (told, &[(V, "2099-01-01")], "400 -32022 -"),
        (told, &[(V, "banana")], "400 -32022 -"),
        (told, &[(V, "banana"), ("Mcp-Session-Id", "x")], "session"),
        (told, &[(V, "2025-06-18")], "session"),
        (told, &[NEW, NEW], "400 -32600 -"),
        (&told.replace("\"requestId\":1", &META.replace("VERSION", "x")), &[], "dropped"),
        (&told.replace("\"requestId\":1", &META.replace("VERSION", "x")), &[NEW, NEW], "400 -32020 -"),
        (&legacy("tools/list"), &[NEW], "400 -32602 7"),
        (
            &list.replace("protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCap", "clientX"),
            &[NEW],
            "400 -32602 \"i\"",
        ),
        (&list.replace("clientCapabilities", "x"), &[NEW, (M, "tools/list")], "400 -32602 \"i\""),
        (&list, &[], "400 -32020 \"i\""),
        (&list, &[(V, "2025-11-25"), (M, "tools/list")], "400 -32020 \"i\""),
        (&list, &[NEW, NEW, (M, "tools/list")], "400 -32020 \"i\""),
        (&list, &[NEW], "400 -32020 \"i\""),
        (&list, &[NEW, (M, "Tools/List")], "400 -32020 \"i\""),
        (&list, &[NEW, (M, "tools/list"), (M, "tools/list")], "400 -32020 \"i\""),
        (&modern("v999", "tools/list", ""), &[NEW, (M, "tools/list")], "400 -32020 \"i\""),
        (&modern("v999", "tools/list", ""), &[(V, "v999"), (M, "tools/list")], "400 -32022 \"i\""),
        (
            &modern("2025-11-25", "tools/list", ""),
            &[(V, "2025-11-25"), (M, "tools/list")],
            "400 -32022 \"i\"",
        ),
        (&modern("2026-07-28", "initialize", ""), &[NEW, (M, "initialize")], "404 -32601 \"i\""),
        (&modern("2026-07-28", "ping", ""), &[NEW, (M, "ping")], "404 -32601 \"i\""),
        (&call, &[NEW, (M, "tools/call")], "400 -32020 \"i\""),
        (&call, &[NEW, (M, "tools/call"), (N, "other")], "400 -32020 \"i\""),
        (&call, &[NEW, (M, "tools/call"), (N, "echo")], "modern tools/call"),
        (&list, &[NEW, (M, "tools/list"), ("Mcp-Session-Id", "x")], "modern tools/list"),
        (&list.replace("_meta", "_Meta"), &[NEW, (M, "tools/list")], "400 -32602 \"i\""),
        // The other era at the same address.
        (&list.replace("_meta", "_Meta"), &[], "200 -32602 \"i\""),
        (&legacy("initialize"), &[], "handshake"),
        (&legacy("initialize"), &[(V, "2024-10-07")], "handshake"),
        (&legacy("initialize"), &[NEW], "400 -32602 7"),
        (&legacy("tools/list"), &[("Mcp-Session-Id", "x"), (V, "2025-06-18")], "session"),
        (&legacy("tools/list"), &[("Mcp-Session-Id", "x"), (V, "banana")], "session"),
        (&legacy("tools/list"), &[(V, "banana")], "400 -32602 7"),
        (&legacy("tools/list"), &[], "session"),
        (&legacy("tools/list"), &[(V, "2025-06-18"), (V, "2025-06-18")], "400 -32600 7"),
        (told, &[], "session"),
        (answer, &[], "session"),
        (&batch, &[], "batch"),
    ] {
        assert_eq!(judge(body, headers, &Revision::ALL), expected, "{body} {headers:?}");
    }
}

#[test]
fn an_era_that_is_not_served_is_named() {
    let (old, new) = (&Revision::ALL[..4], &Revision::ALL[4..]);
    let list = modern("2026-07-28", "tools/list", "");
    assert_eq!(judge(&list, &[NEW, (M, "tools/list")], old), "400 -32022 \"i\"");
    assert_eq!(judge(&legacy("initialize"), &[], new), "400 -32022 7");
    assert_eq!(judge(&legacy("ping"), &[], new), "400 -32022 7");
    assert_eq!(judge("[]", &[], new), "400 -32600 -");
    let body = legacy("initialize");
    let mistake = with_body(body.as_bytes(), &Fields::default(), new).unwrap_err();
    assert_eq!(
        mistake.response(),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"revision \"2025-06-18\" is not served here: use one of data.supported","data":{"requested":"2025-06-18","supported":["2026-07-28"]}}}"#
    );
}

#[test]
fn streams_belong_to_sessions() {
    let judge = |method, headers: &[(&str, &str)], served: &[Revision]| {
        without_body(method, &fields(headers), served).map_err(|mistake| mistake.answer().status)
    };
    let all = &Revision::ALL[..];
    assert!(matches!(judge(HttpMethod::Get, &[], all), Ok(Conversation::Stream)));
    assert!(matches!(judge(HttpMethod::Delete, &[("mcp-session-id", "x"), NEW], all), Ok(Conversation::End)));
    assert_eq!(judge(HttpMethod::Get, &[NEW], all).unwrap_err(), 405);
    assert_eq!(judge(HttpMethod::Get, &[], &all[4..]).unwrap_err(), 405);
    assert_eq!(judge(HttpMethod::Delete, &[], &all[4..]).unwrap_err(), 405);
}

#[test]
fn what_has_no_headers_is_judged_by_its_body() {
    for (body, expected) in [
        (modern("2026-07-28", "tools/call", r#""name":"echo""#), "modern tools/call"),
        (modern("2099-01-01", "tools/list", ""), "-32022 \"i\""),
        (modern("2025-11-25", "tools/list", ""), "-32022 \"i\""),
        (modern("2026-07-28", "initialize", ""), "-32601 \"i\""),
        (modern("2026-07-28", "ping", ""), "-32601 \"i\""),
        (modern("2026-07-28", "tools/list", "").replace("clientCapabilities", "x"), "-32602 \"i\""),
        (modern("2026-07-28", "tools/list", "").replace("_meta", "_Meta"), "-32602 \"i\""),
        (legacy("tools/list"), "-32602 7"),
        (legacy("initialize"), "-32022 7"),
    ] {
        let Ok(Message::Request(request)) = crate::envelope::read(body.as_bytes()) else { panic!("{body}") };
        let judged = match without_headers(request, &Revision::ALL[4..]) {
            Ok(modern) => format!("modern {}", modern.method.as_str()),
            Err(mistake) => {
                let id = mistake.id.map_or("-", |id| id.as_json()).to_owned();
                format!("{} {id}", mistake.answer().code.number())
            }
        };
        assert_eq!(judged, expected, "{body}");
    }
}
