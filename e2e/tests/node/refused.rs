//! Requests that the sidecar refuses, by way of a Service: nothing between changes what a client is told, and the log has a
//! line for each. (The table of all of them is the sidecar's own.)

use std::time::Duration;

use longshore_e2e::mcp_client::{Endpoint, REVISION};
use longshore_e2e::testing::eventually;
use serde_json::{Value, json};

use crate::STAGE;
use crate::faults::connect;
use crate::server::{becomes, go_server};

const MORE: &str = "  expose: {host: mcp.example.com, allowedOrigins: ['https://app.example.com']}
  limits: {requestBytes: 64Ki}
";

#[test]
fn what_is_refused_has_its_status_through_a_service_and_a_line_in_the_log() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let large = format!("{PING}{}", " ".repeat(64 << 10));
    let nothing: &[(&str, &str)] = &[];
    // Host, headers, body; status, JSON-RPC code, and the reason in the log.
    let table = [
        (None, nothing, PING, 200, None, None),
        (Some("mcp.example.com"), nothing, PING, 200, None, None),
        (Some("evil.example"), nothing, PING, 403, Some(-32600), Some("foreign host")),
        (None, &[("origin", "https://app.example.com")], PING, 200, None, None),
        (None, &[("origin", "https://evil.example")], PING, 403, Some(-32600), Some("foreign origin")),
        (None, nothing, "{", 400, Some(-32700), Some("not JSON")),
        (None, nothing, &large, 413, Some(-32600), Some("body too large")),
        (None, &[("mcp-session-id", "nobody's")], PING, 404, Some(-32600), Some("unknown session")),
    ];
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&(go_server("go", &[]) + MORE)).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let client = connect(namespace, &server, None).await;
        let session = client.session().expect("a session has an id");
        for (host, headers, body, status, code, reason) in table {
            let mut endpoint = client.endpoint().clone();
            endpoint.host = host.map_or(endpoint.host, str::to_owned);
            let Endpoint { host, .. } = &endpoint;
            let mut all = vec![("mcp-protocol-version", REVISION)];
            if !headers.iter().any(|(name, _)| *name == "mcp-session-id") {
                all.push(("mcp-session-id", session));
            }
            all.extend(headers);
            let answer =
                endpoint.post(body.to_owned(), &all, Duration::from_secs(30)).await.expect("an answer");
            let said =
                (answer.status.as_u16(), answer.messages.first().and_then(|it| it["error"]["code"].as_i64()));
            assert_eq!(said, (status, code), "{host} {headers:?} {reason:?}: {}", answer.body);
        }
        let expected: Vec<_> = table
            .iter()
            .filter_map(|(.., status, code, reason)| {
                Some(json!({"reason": (*reason)?, "status": status, "code": code, "decision": "deny"}))
            })
            .collect();
        let log = ["logs", "-l", "longshore.dev/server=go", "-c", "longshore-sidecar", "--tail=-1"];
        eventually("each has a line in the log", async || {
            let log = namespace.kubectl(&log).await.map_err(|error| error.to_string())?;
            assert!(!log.contains(session), "a session's id is in the log");
            let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let denied: Vec<_> = lines
                .filter(|line| line["audit"] == 1 && line["decision"] == "deny")
                .map(|line| ["reason", "status", "code", "decision"].map(|name| (name, line[name].clone())))
                .map(|members| members.into_iter().map(|(name, it)| (name.to_owned(), it)).collect())
                .map(Value::Object)
                .collect();
            if denied == expected { Ok(()) } else { Err(format!("{denied:#?}")) }
        })
        .await;
    });
}
