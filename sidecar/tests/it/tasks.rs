//! Tasks: whose they are, wherever they are asked for.

mod core;
mod eras;
mod extension;
mod progress;
mod twice;
mod whole;

use serde_json::{Value, json};

use crate::harness::config::{callers, rule};
use crate::harness::{Reply, Sidecar, config};

/// A sidecar for two clients, in front of a server at this port.
fn shared(port: u16) -> Sidecar {
    Sidecar::keyed(&config(port), &callers()).ready()
}

/// From now on nobody may call this server's tools but one that it does not have.
fn forbid(sidecar: &Sidecar, port: u16) {
    let mut config = config(port);
    config.access = vec![rule("none", &["other"], &[], &[])];
    let digest = sidecar.files.write_with_keys(&config, &callers());
    sidecar.runs(&digest);
}

/// A task as both revisions write it.
fn task(id: &str, status: &str) -> Value {
    json!({
        "taskId": id, "status": status, "createdAt": "2026-11-20T00:00:00Z", "lastUpdatedAt": "2026-11-20T00:00:00Z",
    })
}

/// Whether there is no such task, for this client.
fn is_unknown(reply: &Reply) {
    let message = reply.message();
    assert_eq!((reply.status, &message["error"]["code"]), (200, &json!(-32602)), "{message}");
    assert_eq!(message["error"]["message"], "there is no such task");
}
