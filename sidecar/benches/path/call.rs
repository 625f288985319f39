//! The calls, as bytes that are ready to be sent.

use std::net::SocketAddr;

use longshore_mcp::revision::Revision;

use super::harness::{Request, client, eventually};

/// The key of the caller.
pub(crate) const KEY: &str = "lsk_0123456789abcdefghijklmnopqrstuv";
/// What a client says when its session has begun.
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The revision with sessions that is measured.
pub(crate) const SESSIONS: Revision = Revision::V2025_11_25;
/// The one whose requests stand alone.
pub(crate) const ALONE: Revision = Revision::V2026_07_28;

/// A call for each connection.
pub(crate) struct Prepared(pub(crate) Vec<Vec<u8>>);

/// Calls through the sidecar at this address whose answers are of about that size; each in a session of its own, where
/// there are any.
pub(crate) fn prepare(sidecar: SocketAddr, revision: Revision, connections: usize, size: usize) -> Prepared {
    let arguments = format!(r#"{{"size":{size},"text":"What does this library need to run?"}}"#);
    let calls = (0..connections).map(|id| match revision {
        SESSIONS => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
            );
            let request = Request::post(body).header("mcp-protocol-version", revision.as_str());
            request.session(&open(sidecar, revision))
        }
        _ => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#,
                revision.as_str()
            );
            Request::post(body)
                .header("mcp-protocol-version", revision.as_str())
                .header("mcp-method", "tools/call")
                .header("mcp-name", "echo")
        }
    });
    let calls: Vec<_> = calls.map(|request| request.key(KEY)).collect();
    // What the sidecar finds out about its server it may still be finding out.
    if let Some(call) = calls.first() {
        eventually("a call is answered", || (call.send(sidecar).status == 200).then_some(()));
    }
    Prepared(calls.iter().map(Request::bytes).collect())
}

fn open(sidecar: SocketAddr, revision: Revision) -> String {
    let reply = eventually("a session begins", || {
        let reply = Request::post(client::initialize(revision.as_str())).key(KEY).send(sidecar);
        (reply.status == 200).then_some(reply)
    });
    let id = reply.header("mcp-session-id").expect("a session").to_owned();
    Request::post(READY)
        .key(KEY)
        .session(&id)
        .header("mcp-protocol-version", revision.as_str())
        .send(sidecar);
    id
}
