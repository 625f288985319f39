//! Streams of events: how they are numbered, what is kept of them, and what a client gets that comes back.

mod asked_again;
mod cuts;
mod drain;
mod gone;
mod limits;
mod listen;
mod numbers;
mod questions;
mod resume;
mod revoked;
mod sdk;
mod slow;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{Client, Event, Events, Request, Scripted, scripted};

const CHANGED: &str = "notifications/tools/list_changed";

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

/// Comes back for what followed an event of a call, and nobody knows that any more: the call ends with an error.
fn is_told_of_loss(client: &Client<'_>, last: &str) {
    let mut rest = Events::open(&client.rest(last), client.sidecar.mcp);
    assert_eq!(rest.status, 200, "{last}");
    let message = rest.next().expect("an event").message();
    assert_eq!(message["error"]["code"], -32603, "{message}");
    assert!(last.contains(&format!("-{}-", message["id"])), "{message} for {last}");
    assert!(rest.any().is_none());
}

/// What a tool of the scripted servers is asked for.
fn argument(request: &Request, name: &str) -> Value {
    scripted::message(request)["params"]["arguments"][name].clone()
}

/// A server whose stream says what it is told; nothing ends it.
fn told() -> (Scripted, Sender<Option<String>>) {
    let (tell, told) = channel();
    let told: Arc<Mutex<Receiver<Option<String>>>> = Arc::new(Mutex::new(told));
    let server = Scripted::listening(move |request, stream| {
        if request.method == "POST" {
            scripted::json(stream, &answer(request));
            return;
        }
        scripted::begin_events(stream);
        while let Ok(Some(text)) = told.lock().unwrap().recv() {
            scripted::chunk(stream, &text);
        }
        scripted::write(stream, "0\r\n\r\n");
    });
    (server, tell)
}

/// Opens the stream of what belongs to no call.
pub(crate) fn open(client: &Client<'_>) -> Events {
    let events = Events::open(&client.get(), client.sidecar.mcp);
    assert_eq!(events.status, 200);
    events
}
