//! HTTP+SSE, the transport of 2024-11-05.

mod callers;
mod ends;
mod letters;
mod peers;
mod upstream;

use serde_json::{Value, json};

use crate::harness::sse_server::Say;

/// What most servers of these tests do: `echo` says its own text, `silent` nothing, `end` breaks the stream off.
fn hear(message: &Value, say: &Say<'_>) {
    let arguments = &message["params"]["arguments"];
    match message["params"]["name"].as_str() {
        Some("echo") => say.answer(message, &said(arguments["text"].as_str().unwrap_or_default())),
        Some("end") => say.end(),
        _ => {}
    }
}

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
