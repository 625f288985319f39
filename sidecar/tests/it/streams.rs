//! Streams of events: how they are numbered, what is kept of them, and what a client gets that comes back.

mod cuts;
mod drain;
mod limits;
mod listen;
mod numbers;
mod resume;
mod sdk;
mod slow;

use serde_json::{Value, json};

use crate::harness::{Event, Request, scripted};

/// A notification with a number.
fn note(number: usize) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}})
        .to_string()
}

/// The number in a notification, or "answer".
fn said(event: &Event) -> String {
    let message = event.message();
    if message["method"].is_null() { "answer".to_owned() } else { message["params"]["data"].to_string() }
}

/// An event of the server's.
fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// The answer to a request.
fn answer(request: &Request) -> String {
    scripted::reply_to(request, &json!({"content": [{"type": "text", "text": "done"}]}))
}

/// What a tool of the scripted servers is asked for.
fn argument(request: &Request, name: &str) -> Value {
    scripted::message(request)["params"]["arguments"][name].clone()
}
