//! Lines of stdin and stdout.

use longshore_example_server::{Server, Settings, over_pipes};
use longshore_mcp::revision::Revision::{self, V2024_11_05, V2025_03_26, V2025_11_25, V2026_07_28};
use serde_json::{Value, json};

use crate::harness::{initialize, request, within};
use crate::schema;

/// What comes of these lines, once stdin has ended.
async fn answers(revision: Revision, lines: &[String]) -> Vec<Value> {
    let server = Server::new(&Settings::of(revision));
    let mut output = Vec::new();
    let input = lines.join("\n");
    within("it ends", over_pipes(server, input.as_bytes(), &mut output)).await.unwrap();
    let text = String::from_utf8(output).unwrap();
    let messages: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for message in messages.iter().filter(|message| message.is_object()) {
        schema::check_message(revision, message);
    }
    messages
}

fn hello(revision: Revision) -> Vec<String> {
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    vec![initialize(revision, json!({})).to_string(), ready.to_string()]
}

fn lone(id: u64, method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    request(id, method, params).to_string()
}

fn codes(messages: &[Value]) -> Vec<(Value, i64)> {
    let code = |message: &Value| message["error"]["code"].as_i64().unwrap_or_default();
    messages.iter().map(|message| (message["id"].clone(), code(message))).collect()
}

#[tokio::test]
async fn sessions_begin_with_a_handshake() {
    for revision in Revision::ALL.into_iter().filter(|revision| *revision < V2026_07_28) {
        let list = |id| request(id, "tools/list", json!({})).to_string();
        let lines = [
            vec![list(1), request(2, "ping", json!({})).to_string()],
            hello(revision),
            vec![list(3), list(3)],
        ];
        let found = answers(revision, &lines.concat()).await;
        let mut found = codes(&found);
        // The last two are answered in any order.
        found.sort_by_key(|(id, code)| (id.as_u64(), *code));
        let expected = [(0, 0), (1, -32600), (2, 0), (3, -32600), (3, 0)];
        assert_eq!(found, expected.map(|(id, code)| (json!(id), code)), "{revision}");
    }
}

#[tokio::test]
async fn what_is_no_message_is_refused_if_there_is_a_way_to_say_so() {
    let broken = ["{", "7", r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#].map(str::to_owned);
    assert_eq!(answers(V2024_11_05, &broken).await, Vec::<Value>::new(), "its errors need an id");
    for revision in [V2025_11_25, V2026_07_28] {
        let found = codes(&answers(revision, &broken).await);
        assert_eq!(found, [-32700, -32600, -32600].map(|code| (Value::Null, code)), "{revision}");
    }
}

#[tokio::test]
async fn batches_are_answered_as_batches_where_there_are_any() {
    let batch = json!([request(1, "ping", json!({})), request(2, "tools/list", json!({}))]).to_string();
    for revision in Revision::ALL.into_iter().filter(|revision| *revision < V2026_07_28) {
        let found = answers(revision, &[hello(revision), vec![batch.clone()]].concat()).await;
        if revision == V2025_03_26 {
            let ids: Vec<_> = found[1].as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
            assert_eq!(ids.len(), 2, "{found:?}");
            schema::check(revision, "JSONRPCBatchResponse", &found[1]);
        } else {
            assert!(
                found.get(1).is_none_or(|refusal| refusal["error"]["code"] == -32600),
                "{revision}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn requests_that_stand_alone_need_no_handshake() {
    let without = request(1, "tools/list", json!({})).to_string();
    let other = lone(2, "tools/list", json!({})).replace("2026-07-28", "2099-01-01");
    let found = answers(
        V2026_07_28,
        &[
            without,
            other,
            initialize(V2025_11_25, json!({})).to_string(),
            lone(3, "initialize", json!({})),
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
            lone(4, "server/discover", json!({})),
        ],
    )
    .await;
    let expected = [
        (json!(1), -32602),
        (json!(2), -32022),
        (json!(0), -32022),
        (json!(3), -32601),
        (Value::Null, -32600),
        (json!(4), 0),
    ];
    assert_eq!(codes(&found), expected);
    schema::check(V2026_07_28, "DiscoverResult", &found[5]["result"]);
}

#[tokio::test]
async fn what_is_cancelled_is_not_answered() {
    for revision in Revision::ALL {
        let params = json!({"name": "countdown", "arguments": {"seconds": 3000}});
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        let mut lines = if revision == V2026_07_28 { Vec::new() } else { hello(revision) };
        lines.push(if revision == V2026_07_28 {
            lone(7, "tools/call", params)
        } else {
            request(7, "tools/call", params).to_string()
        });
        lines.push(cancel.to_string());
        let found = answers(revision, &lines).await;
        assert!(found.iter().all(|message| message["id"] != 7), "{revision}: {found:?}");
    }
}
