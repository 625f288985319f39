//! Handshakes that come to nothing here: the server may have begun a session all the same.

use longshore_sidecar_config::Config;
use serde_json::json;

use crate::harness::scripted::{Greeting, UPSTREAM_SESSION};
use crate::harness::{Gate, Reply, Request, Scripted, Sidecar, client, config, eventually};

/// A sidecar that waits for an answer for this long.
fn waiting(port: u16, milliseconds: u64) -> Sidecar {
    let mut config: Config = config(port);
    config.limits.request_timeout_ms = milliseconds;
    Sidecar::start(&config).ready()
}

fn greet(sidecar: &Sidecar) -> Reply {
    Request::post(client::initialize("2025-11-25")).send(sidecar.mcp)
}

/// Whether the server was told once that its session is over, in the revision that it speaks there, if there is a header
/// for that.
fn is_ended(server: &Scripted, revision: Option<&str>) {
    let told = eventually("the server is told", || server.seen("DELETE").pop());
    assert_eq!(told.value("mcp-session-id"), Some(UPSTREAM_SESSION));
    assert_eq!(told.value("mcp-protocol-version"), revision);
    assert_eq!(server.seen("DELETE").len(), 1);
}

#[test]
fn a_handshake_that_is_answered_too_late_leaves_no_session() {
    let gate = Gate::default();
    // It speaks an older revision than it is asked for, and may not take anything in another.
    let server = Scripted::greeting_so(Greeting::At(gate.clone()), Some("2025-03-26"));
    let sidecar = waiting(server.port, 300);
    let reply = greet(&sidecar);
    assert_eq!((reply.status, &reply.message()["error"]["code"]), (200, &json!(-32603)), "{}", reply.text());
    assert!(server.seen("DELETE").is_empty());
    gate.open();
    is_ended(&server, None);
    assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
}

#[test]
fn a_handshake_that_is_answered_by_halves_or_with_nonsense_leaves_no_session() {
    for greeting in [Greeting::Half, Greeting::Nonsense] {
        let server = Scripted::greeting_so(greeting, Some("2025-06-18"));
        let sidecar = waiting(server.port, 300);
        let reply = greet(&sidecar);
        assert_eq!(
            (reply.status, &reply.message()["error"]["code"]),
            (200, &json!(-32603)),
            "{}",
            reply.text()
        );
        is_ended(&server, Some("2025-06-18"));
        assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
    }
}
