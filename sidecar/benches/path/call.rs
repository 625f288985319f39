//! The calls, as bytes that are ready to be sent.

use std::net::SocketAddr;

use longshore_mcp::revision::Revision;

use super::harness::{Request, client, eventually};

/// The key of the caller.
pub(crate) const KEY: &str = "lsk_0123456789abcdefghijklmnopqrstuv";
/// The session that a server with sessions gives to everybody.
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Whether there are sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// There are: 2025-11-25.
    Sessions,
    /// Requests stand alone: 2026-07-28.
    Alone,
}

/// A call for each connection.
pub(crate) struct Prepared(pub(crate) Vec<Vec<u8>>);

impl Era {
    pub(crate) fn parse(text: &str) -> Self {
        if text == Self::Alone.name() { Self::Alone } else { Self::Sessions }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sessions => Revision::V2025_11_25.as_str(),
            Self::Alone => Revision::V2026_07_28.as_str(),
        }
    }
}

/// Calls through the sidecar at this address whose answers are of about that size; each in a session of its own, where
/// there are any.
pub(crate) fn prepare(sidecar: SocketAddr, era: Era, connections: usize, size: usize) -> Prepared {
    let arguments = format!(r#"{{"size":{size},"text":"What does this library need to run?"}}"#);
    let calls = (0..connections).map(|id| match era {
        Era::Sessions => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
            );
            let request = Request::post(body).header("mcp-protocol-version", era.name());
            request.session(&open(sidecar, era))
        }
        Era::Alone => {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#,
                era.name()
            );
            Request::post(body)
                .header("mcp-protocol-version", era.name())
                .header("mcp-method", "tools/call")
                .header("mcp-name", "echo")
        }
    });
    let calls: Vec<_> = calls.map(|request| request.key(KEY)).collect();
    // What the sidecar finds out about its server it may still be finding out.
    for call in calls.iter().take(1) {
        eventually("a call is answered", || (call.send(sidecar).status == 200).then_some(()));
    }
    Prepared(calls.iter().map(bytes).collect())
}

fn open(sidecar: SocketAddr, era: Era) -> String {
    let reply = eventually("a session begins", || {
        let reply = Request::post(client::initialize(era.name())).key(KEY).send(sidecar);
        (reply.status == 200).then_some(reply)
    });
    let id = reply.header("mcp-session-id").expect("a session").to_owned();
    Request::post(READY).key(KEY).session(&id).header("mcp-protocol-version", era.name()).send(sidecar);
    id
}

fn bytes(request: &Request) -> Vec<u8> {
    let mut bytes = request.head().into_bytes();
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", request.body.len()).as_bytes());
    bytes.extend_from_slice(&request.body);
    bytes
}
