//! Servers over stdio: the real shim, and behind it servers that others wrote, or one that does what no server should.

mod abandoned;
mod calls;
mod ends;
mod eras;
mod inventory;
mod limits;
mod memory;
mod noise;
mod peers;
mod pods;
mod queue;
mod shared;
mod stateless;
mod warm;

use longshore_sidecar_config::{Config, Isolation, Processes};
use serde_json::{Value, json};

use crate::harness::Client;
use crate::harness::config::processes;
use crate::harness::shim::stdio;

/// Three principals, and their keys.
const KEYS: [(&str, &str); 3] = [("a", "key-a"), ("b", "key-b"), ("c", "key-c")];

/// So many processes, and all of them may be one principal's.
fn config(isolation: Isolation, total: u32) -> Config {
    let mut config = stdio();
    config.limits.processes = Some(Processes { isolation, ..processes(total, total) });
    config
}

/// The text that a tool of the server answered with.
fn said(client: &Client<'_>, tool: &str, arguments: Value) -> String {
    text(&client.call(tool, arguments))
}

/// What a process knows of its client: what was set, and what it has heard.
fn state(client: &Client<'_>) -> Value {
    serde_json::from_str(&said(client, "state", json!({}))).unwrap()
}

/// The text in an answer.
fn text(message: &Value) -> String {
    let text = &message["result"]["content"][0]["text"];
    text.as_str().unwrap_or_else(|| panic!("no text: {message}")).to_owned()
}

/// Which process answers.
fn pid(client: &Client<'_>) -> u32 {
    said(client, "pid", json!({})).parse().expect("a number")
}

/// The words of an error.
fn error(message: &Value) -> &str {
    message["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {message}"))
}
