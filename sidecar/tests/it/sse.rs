//! HTTP+SSE, the transport of 2024-11-05.

mod caller;
mod callers;
mod ends;
mod keys;
mod peers;
mod posts;
mod upstream;

pub(crate) use caller::Caller;
use serde_json::{Value, json};

use crate::harness::sse_server::Say;

/// What most servers of these tests do: `echo` says its own text, `silent` nothing, `end` breaks the stream off, `cut` in
/// the middle of the answer, and `unended` before the line that ends its event.
fn hear(message: &Value, say: &Say<'_>) {
    let arguments = &message["params"]["arguments"];
    match message["params"]["name"].as_str() {
        Some("echo") => say.answer(message, &said(arguments["text"].as_str().unwrap_or_default())),
        Some("end") => say.end(),
        Some(name @ ("cut" | "unended")) => {
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": said(name)});
            let event = format!("event: message\ndata: {answer}\n");
            say.raw(if name == "cut" { &event[..event.len() - 20] } else { &event });
            say.end();
        }
        _ => {}
    }
}

fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
