//! What a client is asked in a call while it is away, and is not kept until it is back.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{event, note};
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{
    Client, Events, Gate, Request, Scripted, Sessionless, Sidecar, config, eventually, scripted,
};

/// An event without data is kept then, and no question.
const FEW: u64 = 170;
/// Nothing ends by itself in that time.
const LONG: u64 = 600_000;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{}}"#;

/// Asks when its gate is open, says more than is kept, and goes on when it has its answer. Only as `silent` it says nothing
/// before it asks.
fn asks(gate: &Gate) -> impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static {
    let (gate, heard) = (gate.clone(), Arc::<Mutex<Value>>::default());
    move |request, stream| {
        let message = scripted::message(request);
        if message.get("method").is_none() {
            *heard.lock().unwrap() = message;
            return scripted::accepted(stream);
        }
        let says_first = message["params"]["name"] != "silent";
        if says_first {
            scripted::begin_events(stream);
            scripted::chunk(stream, &event(&note(1)));
        }
        gate.pass();
        if !says_first {
            scripted::begin_events(stream);
        }
        scripted::chunk(stream, &event(QUESTION));
        (2..50).for_each(|number| scripted::chunk(stream, &event(&note(number))));
        let heard =
            eventually("it has its answer", || Some(heard.lock().unwrap().take()).filter(|it| !it.is_null()));
        assert_eq!(heard["id"], "q", "{heard}");
        let text = json!({"type": "text", "text": heard.to_string()});
        let answer = scripted::reply_to(request, &json!({"content": [text], "isError": true}));
        scripted::chunk(stream, &event(&answer));
        scripted::write(stream, "0\r\n\r\n");
    }
}

/// A sidecar that keeps less of a stream than the server says.
fn keeps_little(server: &Scripted) -> Sidecar {
    let mut config = config(server.port);
    config.sessions.resume.max_bytes = 1000;
    Sidecar::start(&config).ready()
}

fn able(sidecar: &Sidecar) -> Client<'_> {
    Client::with_capabilities(sidecar, None, "2025-11-25", &json!({"roots": {}}))
}

fn is_away(sidecar: &Sidecar) {
    eventually("its client has gone", || sidecar.metric("longshore_connections") == 0.0);
}

/// The answer of a call that was made with what the server heard, for whoever comes back after this event.
fn is_answered(client: &Client<'_>, last: &str) {
    let rest = Events::open(&client.rest(last), client.sidecar.mcp).all();
    let answer = rest.last().expect("the answer").message();
    assert!(answer.to_string().contains("it is not kept any more"), "{answer}");
}

/// Its server would wait for an answer until the time of the call is over.
#[test]
fn a_question_that_nobody_has_read_and_that_is_not_kept_is_answered_for_its_client() {
    let gate = Gate::default();
    let server = Scripted::answered(asks(&gate));
    let sidecar = keeps_little(&server);
    let client = able(&sidecar);
    let mut stream = client.stream("t", json!({}));
    let first = stream.next().unwrap();
    drop(stream);
    is_away(&sidecar);
    gate.open();
    eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
    is_answered(&client, &first.id);
}

/// It was written into a connection that was lost before its client had it.
#[test]
fn a_question_that_its_client_does_not_know_and_that_is_not_kept_is_answered_for_it() {
    let gate = Gate::default();
    let server = Scripted::answered(asks(&gate));
    let sidecar = keeps_little(&server);
    let client = able(&sidecar);
    let mut stream = client.stream("t", json!({}));
    let first = stream.next().unwrap();
    gate.open();
    // All of it was read, as far as anybody knows.
    while super::said(&stream.next().unwrap()) != "49" {}
    drop(stream);
    is_away(&sidecar);
    assert_eq!(sidecar.metric("longshore_calls"), 1.0, "it may come to answer");
    is_answered(&client, &first.id);
}

/// It was never told by which id to come back.
#[test]
fn a_question_to_a_client_that_went_before_its_response_began_is_answered_for_it() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let gate = Gate::default();
        let server = Scripted::answered(asks(&gate));
        let mut config = config(server.port);
        config.limits.request_timeout_ms = LONG;
        let sidecar = Sidecar::start(&config).ready();
        let client = Client::with_capabilities(&sidecar, None, revision, &json!({"roots": {}}));
        let call = client.begin(&json!({"name": "silent"}));
        eventually("the server has it", || server.seen("tools/call").len() == 1);
        drop(call);
        is_away(&sidecar);
        gate.open();
        eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
        let heard = server.seen_all().into_iter().filter(|it| it.method == "POST");
        let answers: Vec<_> =
            heard.map(|it| scripted::message(&it)).filter(|it| it.get("method").is_none()).collect();
        let heard: Vec<_> = answers.iter().map(|it| (&it["id"], &it["error"]["code"])).collect();
        assert_eq!(heard, [(&json!("q"), &json!(-32603))], "{revision}: {answers:?}");
    }
}

#[test]
fn a_question_over_stdio_that_is_not_kept_is_answered_for_its_client() {
    let mut config = stdio();
    config.sessions.resume.max_bytes = FEW;
    config.limits.request_timeout_ms = LONG;
    let (_shim, sidecar) = serving(&config, &shim::server(&[]), &[]);
    let asks = sidecar.files.path("asks");
    let client = able(&sidecar);
    let mut stream = client.stream("need", json!({"method": "roots/list", "when": asks}));
    stream.any().unwrap();
    drop(stream);
    is_away(&sidecar);
    std::fs::write(&asks, "").unwrap();
    eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
}

/// Of a server of 2026-07-28 as well, which asks by a result.
#[test]
fn a_question_of_a_newer_server_that_is_not_kept_is_answered_for_its_client() {
    let gate = Gate::default();
    let asks = gate.clone();
    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let server = Sessionless::start(json!({"tools": {}}), tools, move |request, stream| {
        asks.pass();
        let result = json!({"resultType": "input_required", "requestState": "s", "inputRequests": {
            "a": {"method": "roots/list"}}});
        scripted::reply(stream, request, &result);
    });
    let mut config = config(server.port);
    config.sessions.resume.max_bytes = FEW;
    config.limits.request_timeout_ms = LONG;
    let sidecar = Sidecar::start(&config).ready();
    let client = able(&sidecar);
    let mut stream = client.stream("t", json!({}));
    stream.any().unwrap();
    drop(stream);
    is_away(&sidecar);
    gate.open();
    eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
}
