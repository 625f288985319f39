//! Clients that hardly read.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::harness::http::connect;
use crate::harness::{Scripted, Sidecar, config, eventually, modern, scripted};

/// A call is over at its deadline, also if its client takes a byte now and then of what has no end.
#[test]
fn a_client_that_hardly_reads_does_not_keep_the_server_busy() {
    for events in [true, false] {
        let over = Arc::<AtomicBool>::default();
        let told = over.clone();
        let server = Scripted::of_both(json!({}), move |_, stream| {
            let piece = if events {
                scripted::begin_events(stream);
                let note = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": 1, "progress": 1, "message": "m".repeat(60_000)}});
                let event = format!("data: {note}\n\n");
                format!("{:x}\r\n{event}\r\n", event.len())
            } else {
                let head =
                    "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n";
                stream.write_all(head.as_bytes()).unwrap();
                "x".repeat(60_000)
            };
            while stream.write_all(piece.as_bytes()).is_ok() {}
            told.store(true, Ordering::SeqCst);
        });
        let mut config = config(server.port);
        config.limits.request_timeout_ms = 1_500;
        let sidecar = Sidecar::start(&config).ready();
        let mut stream = connect(sidecar.mcp);
        modern::request(1, "tools/call", json!({"name": "t"})).write(&mut stream);
        eventually("the server hears that nobody waits", || {
            stream.read_exact(&mut [0]).unwrap();
            over.load(Ordering::SeqCst)
        });
        let line = sidecar.audit(|line| line["method"] == "tools/call");
        assert_eq!((&line["reason"], &line["status"]), (&json!("server timed out"), &json!(200)));
        eventually("it is no call any more", || sidecar.metric("longshore_calls") == 0.0);
    }
}
