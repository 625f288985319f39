//! Servers that write to stdout what is no message.

use serde_json::{Value, json};

use super::{error, pid, said};
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Client, modern};

/// 62: and reaches no client.
#[test]
fn r062_what_is_no_message_is_dropped_and_counted() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["banner"]), &[]);
    let client = Client::open(&sidecar, None);
    let dropped = || sidecar.metric("longshore_dropped_lines_total{kind=\"noise\"}");
    let first = pid(&client);
    let mut before = dropped();
    for (what, bytes, times, lines) in [
        ("a log line", &b"INFO serving\n"[..], 1, 1.0),
        ("an empty object", b"{}\n", 1, 1.0),
        ("blank lines", b"\n\r\n   \n", 1, 0.0),
        ("binary", b"\xff\xfe\x00\x01\n\x80\n", 1, 2.0),
        ("half a message", b"{\"jsonrpc\":\"2.0\",\"id\":1,\n", 1, 1.0),
        ("a batch", b"[{\"jsonrpc\":\"2.0\",\"method\":\"x\"}]\n", 1, 1.0),
        ("JSON that is no message", b"7\n{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}\n", 1, 2.0),
        ("a line of a megabyte", &[b"x".repeat(1 << 20), b"\n".to_vec()].concat(), 1, 1.0),
        ("ten thousand lines", b"again\n", 10_000, 10_000.0),
        // Fifteen of them with a message between are not too many.
        ("eight megabytes", &[b"x".repeat(1 << 10), b"\n".to_vec()].concat(), 8 << 10, 8192.0),
        ("eight more", &[b"x".repeat(1 << 10), b"\n".to_vec()].concat(), 8 << 10, 8192.0),
    ] {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(said(&client, "write", json!({"hex": hex, "times": times})), "written", "{what}");
        assert_eq!(dropped() - before, lines, "{what}");
        before = dropped();
    }
    assert_eq!(pid(&client), first, "the session goes on");

    let unasked = || sidecar.metric("longshore_dropped_lines_total{kind=\"unasked\"}");
    let before = unasked();
    assert_eq!(said(&client, "strange-answers", json!({})), "still there");
    assert_eq!(unasked() - before, 2.0);
    assert!(!sidecar.written().contains("serving\\n"), "what servers write is in no log");
}

/// Some servers answer under the number that they were asked under, written in another way, and report so too.
#[test]
fn an_answer_of_a_process_may_write_its_number_in_another_way() {
    for flag in ["ids-as-text", "ids-as-floats"] {
        let (_shim, sidecar) = serving(&stdio(), &server(&[flag]), &[]);
        let client = Client::open(&sidecar, None);
        assert_eq!(said(&client, "echo", json!({"text": "a"})), "a", "{flag}");
        let arguments = json!({"steps": 1, "seconds": 0});
        let call = json!({"name": "progress", "arguments": arguments, "_meta": {"progressToken": "p"}});
        let alone = modern::request(5, "tools/call", call.clone()).send(sidecar.mcp);
        for reply in [client.send("tools/call", call), alone] {
            let report: Value = serde_json::from_str(&reply.events()[0]).unwrap();
            assert_eq!(report["params"], json!({"progressToken": "p", "progress": 0}), "{flag}: {report}");
        }
    }
}

#[test]
fn line_ends_of_every_kind_are_understood() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let notification =
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"d\"}}";
    for end in [&b"\n"[..], b"\r\n", b" \t\r\n\n"] {
        let hex: String =
            [&notification[..], end].concat().iter().map(|byte| format!("{byte:02x}")).collect();
        let reply = client.send("tools/call", json!({"name": "write", "arguments": {"hex": hex}}));
        assert_eq!(reply.events().len(), 2, "{}", reply.text());
        assert_eq!(reply.events()[0].as_bytes(), notification);
    }
    // A message whose body has line ends is one line for the server.
    let body = client.message("tools/call", &json!({"name": "echo", "arguments": {"text": "a\nb"}}));
    let pretty =
        serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(&body).unwrap()).unwrap();
    let reply = client.request(pretty.replace('\n', "\r\n")).send(sidecar.mcp);
    assert_eq!(super::text(&reply.message()), "a\nb");
    // And an answer without a line end, from a process that is gone then, is an answer.
    assert_eq!(client.call("half", json!({}))["result"]["content"], json!([]));
}

/// Nobody need look for what prints it.
#[test]
fn half_a_message_of_a_process_that_has_died_is_no_noise() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let dropped = || sidecar.metric("longshore_dropped_lines_total{kind=\"noise\"}");
    let before = dropped();
    let message = client.call("half", json!({"bytes": 20}));
    assert!(error(&message).contains("exit status 0"), "{message}");
    pid(&client);
    assert_eq!(dropped(), before);
}

#[test]
fn r062_a_process_without_measure_is_ended_alone() {
    for (tool, words, cause) in [
        ("flood", "without a message of MCP", "stdout"),
        ("flood-blank", "without a message of MCP", "stdout"),
        ("endless-line", "a line of more than", "stdout"),
        ("close", "closed its stdin or stdout", "closed"),
        ("flood-stderr", "floods stderr", "stderr"),
    ] {
        let mut config = stdio();
        // A busy machine takes long to read so much.
        config.limits.request_timeout_ms = 60_000;
        let (_shim, sidecar) = serving(&config, &server(&[]), &[]);
        let (client, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
        let (first, others) = (pid(&client), pid(&other));
        let message = client.call(tool, json!({}));
        assert!(error(&message).contains(words), "{tool}: {message}");
        assert_eq!(message["error"]["code"], -32603);
        assert_eq!(pid(&other), others, "{tool}: another session notices nothing");
        assert_ne!(pid(&client), first, "{tool}: the next call gets a fresh process");
        let ended = format!("longshore_processes_ended_total{{cause=\"{cause}\"}}");
        assert_eq!(sidecar.metric(&ended), 1.0, "{tool}");
        assert_eq!(sidecar.metric("longshore_processes"), 3.0, "{tool}");
        // It lives in as little memory as before.
        assert!(sidecar.memory() < 300 << 20, "{tool}: {}", sidecar.memory());
    }
}

/// Where a server may write batches, what is around their messages is of none.
#[test]
fn a_process_that_writes_empty_batches_without_measure_is_ended() {
    let mut config = stdio();
    config.limits.request_timeout_ms = 60_000;
    let (_shim, sidecar) = serving(&config, &server(&[]), &[]);
    let client = Client::of(&sidecar, None, "2025-03-26");
    let message = client.call("flood-batches", json!({}));
    assert!(error(&message).contains("without a message of MCP"), "{message}");
}

#[test]
fn a_flood_of_messages_that_nobody_wants_costs_little() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let (client, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    // Told, and nobody waits for an answer: so nobody is there for what follows.
    let stream = client.begin(&json!({"name": "flood-messages"}));
    assert_eq!(client.cancel(1).status, 202);
    drop(stream);
    crate::harness::eventually("they are dropped", || {
        sidecar.metric("longshore_dropped_lines_total{kind=\"unasked\"}") > 10_000.0
    });
    for _ in 0..20 {
        pid(&other);
    }
    assert!(sidecar.memory() < 200 << 20, "{}", sidecar.memory());
}
