//! The state of a call that waits for its client: whose it is, and what it is worth.

use serde_json::{Value, json};

use super::{again, asked, call, is_error, request, text};
use crate::harness::config::{callers, rule};
use crate::harness::shim::{Shim, server, stdio};
use crate::harness::{Files, Request, Sidecar, eventually};

fn can() -> Value {
    json!({"roots": {}})
}

fn ask() -> Value {
    json!({"method": "roots/list"})
}

fn answer(questions: &[(String, Value)]) -> Value {
    json!({questions[0].0.clone(): {"roots": []}})
}

fn keyed(request: Request, key: &str) -> Request {
    request.key(key)
}

/// 44, 46: nobody but its client goes on with a call, with nothing but the same request, once, and while it waits.
#[test]
fn r044_a_state_is_worth_something_to_one_client_for_one_request_once() {
    let files = Files::new();
    files.write_with_keys(&stdio(), &callers());
    let shim = Shim::start(&files, &server(&[]));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let begin = || asked(&keyed(call("ask", ask(), &can()), "key-a").send(sidecar.mcp));
    let send = |request: Request, key: &str| keyed(request, key).send(sidecar.mcp);

    let (questions, state) = begin();
    let responses = answer(&questions);
    let mut forged = state.clone().into_bytes();
    let middle = forged.len() / 2;
    forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let foreign = "is none that this server gave you";
    for (request, key, words) in [
        (again("ask", ask(), &can(), &forged, responses.clone()), "key-a", foreign),
        (again("ask", ask(), &can(), "of somebody else", responses.clone()), "key-a", foreign),
        // Somebody else's, as if there were none.
        (again("ask", ask(), &can(), &state, responses.clone()), "key-b", foreign),
        (again("echo", ask(), &can(), &state, responses.clone()), "key-a", "belongs to another request"),
        (
            again("ask", json!({"method": "ping"}), &can(), &state, responses.clone()),
            "key-a",
            "another request",
        ),
        // What differs is nothing but the method.
        (
            request(
                2,
                "prompts/get",
                json!({
                    "name": "ask", "arguments": ask(), "requestState": state, "inputResponses": responses.clone(),
                }),
                &can(),
            ),
            "key-a",
            "another request",
        ),
    ] {
        let words_said = is_error(&send(request, key), 200, -32602);
        assert!(words_said.contains(words), "{words_said}");
    }
    // None of that has touched the call.
    let reply = send(again("ask", ask(), &can(), &state, responses.clone()), "key-a");
    assert_eq!(text(&reply), r#"{"roots": []}"#);
    let replayed =
        is_error(&send(again("ask", ask(), &can(), &state, responses.clone()), "key-a"), 200, -32602);
    assert!(replayed.contains("does not wait any more"), "{replayed}");
    // Each request that goes on with a call is decided on, and has a line of its own.
    let permitted = || sidecar.written().matches("\"decision\":\"permit\"").count();
    eventually("the lines are written", || permitted() >= 8);

    // Its process dies while it waits.
    let (questions, state) = begin();
    for process in shim.processes() {
        let pid = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    eventually("they are gone", || {
        let reply = send(again("ask", ask(), &can(), &state, answer(&questions)), "key-a");
        reply.message().get("error").is_some()
    });
    // And the next call is served.
    eventually("it is there again", || {
        let reply =
            keyed(request(1, "tools/call", json!({"name": "pid"}), &can()), "key-a").send(sidecar.mcp);
        reply.message().get("result").is_some()
    });
    let written = sidecar.written();
    assert!(!written.contains(&state) && !written.contains("key-a"), "secrets are in a log");
}

/// A call that waits is waited for when the sidecar ends, and answered; a state of the one before is worth nothing.
#[test]
fn a_drain_waits_for_calls_that_wait_for_their_clients() {
    let files = std::sync::Arc::new(Files::new());
    let mut config = stdio();
    config.limits.request_timeout_ms = 8_000;
    files.write(&config);
    let _shim = Shim::start(&files, &server(&[]));
    let sidecar = Sidecar::with(files.clone(), &["--drain-minimum-ms", "100"]).loaded().ready();
    let (questions, state) = asked(&call("ask", ask(), &can()).send(sidecar.mcp));
    sidecar.signal(rustix::process::Signal::TERM);
    sidecar.log(|line| line["message"] == "draining");
    let reply = again("ask", ask(), &can(), &state, answer(&questions)).send(sidecar.mcp);
    assert_eq!(text(&reply), r#"{"roots": []}"#);
    sidecar.wait(std::time::Duration::from_secs(20));
    drop(sidecar);
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let lost =
        is_error(&again("ask", ask(), &can(), &state, answer(&questions)).send(sidecar.mcp), 200, -32602);
    assert!(lost.contains("was lost"), "{lost}");
}

/// 46: a request that goes on with a call is decided on like the first one.
#[test]
fn r046_who_may_not_call_any_more_may_not_go_on_either() {
    let files = std::sync::Arc::new(Files::new());
    files.write(&stdio());
    let _shim = Shim::start(&files, &server(&[]));
    let sidecar = Sidecar::with(files.clone(), &[]).loaded().ready();
    let (questions, state) = asked(&call("ask", ask(), &can()).send(sidecar.mcp));
    let mut stricter = stdio();
    stricter.access = vec![rule("none", &["echo"], &[], &[])];
    sidecar.runs(&files.write(&stricter));
    let request = || again("ask", ask(), &can(), &state, answer(&questions)).send(sidecar.mcp);
    assert_eq!(is_error(&request(), 200, -32602), "Unknown tool: ask");
    sidecar.audit(|line| line["target"] == "ask" && line["decision"] == "deny");
    files.write(&stdio());
    let reply = eventually("it may be called again", || {
        let reply = request();
        (reply.message()["error"]["message"] != "Unknown tool: ask").then_some(reply)
    });
    assert_eq!(text(&reply), r#"{"roots": []}"#);
}

/// 46: the audit log says that a call goes on only of one that does: nobody hides a call by saying so.
#[test]
fn r046_a_call_is_marked_as_one_that_goes_on_by_its_state_alone() {
    let files = Files::new();
    files.write_with_keys(&stdio(), &callers());
    let shim = Shim::start(&files, &server(&[]));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let send = |request: Request, key: &str| {
        let before = sidecar.audit_lines();
        let reply = keyed(request, key).send(sidecar.mcp);
        (reply, sidecar.audit_after(before).get("again").cloned())
    };
    let echo = json!({"name": "echo", "arguments": {"text": "a"}, "inputResponses": {}});
    let (first, mark) = send(request(1, "tools/call", echo, &can()), "key-a");
    assert_eq!((text(&first).as_str(), mark), ("a", None));
    let (first, mark) = send(call("ask", ask(), &can()), "key-a");
    let (questions, state) = asked(&first);
    assert_eq!(mark, None);
    let goes_on = |state: &str| again("ask", ask(), &can(), state, answer(&questions));
    for (state, key) in [("made up", "key-a"), (state.as_str(), "key-b")] {
        let (refused, mark) = send(goes_on(state), key);
        is_error(&refused, 200, -32602);
        assert_eq!(mark, None);
    }
    let (last, mark) = send(goes_on(&state), "key-a");
    text(&last);
    assert_eq!(mark, Some(json!(true)));
    drop(shim);
}
