//! Arguments that are repeated as headers, where the tool's schema says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{DONE, answered};
use crate::harness::{Request, Scripted, Sidecar, config, modern, scripted};

/// 27: a client holds itself to the list that it has read last, which a server may change without a word.
#[test]
fn r027_marks_that_do_not_fit_are_read_again() {
    let marked = Arc::new(AtomicBool::new(true));
    let is_marked = marked.clone();
    let server = Scripted::of_both(json!({"tools": {}}), move |request, stream| {
        let text = match scripted::message(request)["method"].as_str() {
            Some("tools/list") => {
                let mark = if is_marked.load(Ordering::SeqCst) { "Region" } else { "Place" };
                let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": mark}}});
                scripted::reply_to(request, &json!({"tools": [{"name": "t", "inputSchema": schema}]}))
            }
            _ => answered(request, DONE),
        };
        scripted::json(stream, &text);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let call = |header: &str| {
        modern::request(1, "tools/call", json!({"name": "t", "arguments": {"region": "eu"}}))
            .header(header, "eu")
            .send(sidecar.mcp)
    };
    assert_eq!(call("mcp-param-region").status, 200);
    marked.store(false, Ordering::SeqCst);
    assert_eq!(call("mcp-param-place").status, 200);
    let refused = call("mcp-param-region");
    assert_eq!((refused.status, &refused.message()["error"]["code"]), (400, &json!(-32020)));
    assert_eq!(server.seen("tools/call").len(), 2);
}

/// 27: the schema is the server's own, as the sidecar has listed it.
#[test]
fn r027_marked_arguments_are_repeated_as_headers() {
    let server = Scripted::of_both(json!({"tools": {}}), |request, stream| {
        let text = match scripted::message(request)["method"].as_str() {
            Some("tools/list") => {
                let schema = json!({"type": "object", "properties": {
                    "region": {"type": "string", "x-mcp-header": "Region"},
                    "size": {"type": "integer", "x-mcp-header": "Size"}}});
                scripted::reply_to(request, &json!({"tools": [{"name": "t", "inputSchema": schema}]}))
            }
            _ => answered(request, DONE),
        };
        scripted::json(stream, &text);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let call_with =
        |arguments: Value| modern::request(1, "tools/call", json!({"name": "t", "arguments": arguments}));
    let call = |region: &str| call_with(json!({"region": region}));
    let mismatch = |request: Request| {
        let reply = request.send(sidecar.mcp);
        (reply.status, reply.message()["error"]["code"].clone(), reply.message()["error"]["data"].clone())
    };
    let expected = (400, json!(-32020), json!({"header": "Mcp-Param-Region"}));
    assert_eq!(mismatch(call("eu")), expected);
    // Some readers take such arguments, and each of them other ones.
    let twice = call("eu");
    let body =
        String::from_utf8_lossy(&twice.body).replace(r#""region":"eu""#, r#""region":"eu","x":1,"x":2"#);
    assert_eq!(mismatch(twice.body(body)), expected);
    assert_eq!(mismatch(call("eu").header("mcp-param-region", "us")), expected);
    assert_eq!(mismatch(call_with(json!({})).header("mcp-param-region", "eu")), expected);
    assert_eq!(
        mismatch(call("eu").header("mcp-param-region", "eu").header("Mcp-Param-Region", "eu")),
        expected
    );
    assert!(server.seen("tools/call").is_empty());
    let reply = call("\u{e9}")
        .header("Mcp-Param-REGION", "=?base64?w6k=?=")
        .header("mcp-param-other", "1")
        .send(sidecar.mcp);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = server.seen("tools/call").pop().unwrap();
    for (name, value) in [("mcp-param-region", "=?base64?w6k=?="), ("mcp-param-other", "1")] {
        assert!(seen.headers.contains(&(name.to_owned(), value.to_owned())), "{name}: {:?}", seen.headers);
    }
    // What fits into no header clients leave out, and the server says to the model what is wrong with it.
    for arguments in [json!({"region": ["eu"]}), json!({"region": {}}), json!({"size": (1_u64 << 53) + 1})] {
        let reply = call_with(arguments.clone()).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{arguments}: {}", reply.text());
        let seen = server.seen("tools/call").pop().unwrap();
        assert_eq!(scripted::message(&seen)["params"]["arguments"], arguments);
        let repeated = ["mcp-param-region", "mcp-param-size"].map(|name| seen.value(name));
        assert_eq!(repeated, [None, None], "{arguments}");
    }
    // Servers compare what has an exponent as a text.
    let call = call_with(json!({"size": 1.0e7})).header("mcp-param-size", "10000000");
    let body = String::from_utf8_lossy(&call.body).replace("10000000.0", "1.0E7");
    assert!(body.contains("1.0E7"));
    assert_eq!(call.body(body).send(sidecar.mcp).status, 200);
    assert_eq!(server.seen("tools/call").pop().unwrap().value("mcp-param-size"), Some("10000000"));
}
