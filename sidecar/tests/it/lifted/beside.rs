//! What a server asks beside its calls, on the stream of their session, as the Rust SDK always does.

use std::process::Stdio;
use std::thread;

use serde_json::json;

use super::{again, asked, call, is_error, text};
use crate::conformance::rust::OLDER_SERVER;
use crate::conformance::suite;
use crate::harness::own;
use crate::harness::peer::{Peer, free_port};
use crate::harness::{Sidecar, config};

/// The server of the matrix on the last release of that SDK before 2026-07-28.
fn server() -> Peer {
    let port = free_port();
    let command = own::command(OLDER_SERVER, &["2025-11-25", "http", &port.to_string()]);
    let mut program = suite::patient(&command[0]);
    program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Peer::listening(program.spawn().expect("the server"), port)
}

const TOOL: &str = "test_elicitation";

/// 71: nothing says in which call it is asked, so each call that may be asked something has a session for itself, also
/// beside one that nobody comes back to.
#[test]
fn r071_what_is_asked_beside_a_call_is_asked_whatever_other_calls_there_are() {
    let server = server();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let (can, arguments) = (json!({"elicitation": {}}), json!({"message": "m"}));
    let ask = || asked(&call(TOOL, arguments.clone(), &can).send(sidecar.mcp));
    let left = ask();
    let others = thread::scope(|scope| {
        let others = [(); 3].map(|()| scope.spawn(ask));
        others.map(|other| other.join().unwrap())
    });
    for (questions, state) in others.iter().chain([&left]) {
        let declines = json!({questions[0].0.clone(): {"action": "decline"}});
        let reply = again(TOOL, arguments.clone(), &can, state, declines).send(sidecar.mcp);
        assert_eq!(text(&reply), "It was answered.");
    }
}

/// 32: a server waits for what it has asked. So it is heard also for a client that cannot be asked, and told so.
#[test]
fn r032_what_is_asked_beside_a_call_of_who_cannot_be_asked_ends_it() {
    let server = server();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let reply = call(TOOL, json!({"message": "m"}), &json!({})).send(sidecar.mcp);
    is_error(&reply, 400, -32021);
}
