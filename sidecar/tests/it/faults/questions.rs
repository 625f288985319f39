//! What a client is asked in a call that comes to nothing.

use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use crate::harness::{
    Client, Events, Gate, Request, Scripted, Sessionless, Sidecar, config, eventually, scripted,
};

/// How a call ends that its server has asked something in.
#[derive(Clone, Copy, Debug)]
enum End {
    TimesOut,
    BreaksOff,
}

/// 69: nobody waits any more for what a client was asked in a call that has come to nothing. It is told so, or would go on
/// to ask its user.
#[test]
fn r069_the_questions_of_a_call_that_comes_to_nothing_are_taken_back() {
    fn sampling() -> Value {
        let content = json!({"type": "text", "text": "?"});
        json!({"maxTokens": 10, "messages": [{"role": "user", "content": content}]})
    }
    /// Asks three questions, takes the last of them back, and ends so when its gate is open.
    fn ask(end: End, gates: &[Gate; 4]) -> impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static {
        let gates = gates.clone();
        move |request, stream| {
            let at = scripted::message(request)["params"]["arguments"]["gate"].as_u64().unwrap();
            scripted::begin_events(stream);
            for (id, method, params) in [
                (json!("q1"), "sampling/createMessage", sampling()),
                (json!(2), "roots/list", json!({})),
                (json!("q3"), "roots/list", json!({})),
            ] {
                let question = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
                scripted::say(stream, &question);
            }
            let taken_back =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q3"}});
            scripted::say(stream, &taken_back);
            gates[usize::try_from(at).unwrap()].pass();
            if let End::TimesOut = end {
                scripted::until_closed(stream);
            }
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    /// The same where questions are results.
    fn ask_by_result(request: &Request, stream: &mut TcpStream) {
        let result = json!({"resultType": "input_required", "requestState": "s", "inputRequests": {
            "a": {"method": "sampling/createMessage", "params": sampling()}, "b": {"method": "roots/list"}}});
        scripted::reply(stream, request, &result);
    }
    /// How often the server was told that it gets no answer to the second of them, and to no other.
    fn refused(server: &Scripted) -> usize {
        let refused = server
            .seen_all()
            .into_iter()
            .map(|said| scripted::message(&said))
            .filter(|said| said.get("error").is_some());
        refused.inspect(|said| assert_eq!(said["id"], 2, "{said}")).count()
    }
    fn are_taken_back(sidecar: &Sidecar, revision: &'static str, (at, gate): (usize, &Gate), is_newer: bool) {
        let can = json!({"roots": {}, "sampling": {}});
        let client = Client::with_capabilities(sidecar, None, revision, &can);
        let mut events = client.stream("t", json!({"gate": at}));
        let mut next = || events.next().unwrap_or_else(|| panic!("{revision}: an event")).message();
        let (first, second) = (next(), next());
        if !is_newer {
            assert_eq!(next()["id"], "q3", "{revision}");
            assert_eq!(next()["params"]["requestId"], "q3", "{revision}");
        }
        let content = json!({"type": "text", "text": "yes"});
        let result = json!({"role": "assistant", "model": "m", "content": content});
        let body = json!({"jsonrpc": "2.0", "id": first["id"], "result": result}).to_string();
        assert_eq!(client.request(body).send(sidecar.mcp).status, 202, "{revision}");
        gate.open();
        let taken_back = next();
        assert_eq!(taken_back["method"], "notifications/cancelled", "{revision}: {taken_back}");
        assert_eq!(taken_back["params"]["requestId"], second["id"], "{revision}: {taken_back}");
        let error = next();
        assert_eq!(error["error"]["code"], -32603, "{revision}: {error}");
        assert!(events.next().is_none(), "{revision}");
    }
    for end in [End::TimesOut, End::BreaksOff] {
        let gates: [[Gate; 4]; 3] = Default::default();
        let (named, nameless) =
            (Scripted::start(ask(end, &gates[0])), Scripted::nameless(ask(end, &gates[1])));
        let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
        let newer = Sessionless::start(json!({"tools": {}}), tools, ask_by_result);
        let newer = matches!(end, End::TimesOut).then_some(newer.port);
        for (port, gates) in [named.port, nameless.port].into_iter().chain(newer).zip(&gates) {
            let mut config = config(port);
            config.limits.request_timeout_ms = if let End::TimesOut = end { 5_000 } else { 60_000 };
            let sidecar = Sidecar::start(&config).ready();
            std::thread::scope(|scope| {
                let revisions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
                for (revision, gate) in revisions.into_iter().zip(gates.iter().enumerate()) {
                    let sidecar = &sidecar;
                    scope.spawn(move || are_taken_back(sidecar, revision, gate, newer == Some(port)));
                }
            });
            // Nor does the server wait, which may do so for ever where it has not heard that the call is over. (It is
            // told while the sidecar is there.)
            if port == named.port {
                let told = if let End::BreaksOff = end { 4 } else { 0 };
                eventually("the server is told", || refused(&named) == told);
            }
        }
        assert_eq!(refused(&nameless), 0, "whose answer that is it would not know");
    }
}

fn question(id: &str) -> String {
    let question = json!({"jsonrpc": "2.0", "id": id, "method": "roots/list", "params": {}});
    format!("data: {question}\n\n")
}

fn answer(client: &Client<'_>, question: &Value) {
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
    assert_eq!(client.request(answer.to_string()).send(client.sidecar.mcp).status, 202);
}

/// However many others there were, each once, and not those that the server has taken back somewhere else.
#[test]
fn r069_what_is_open_in_a_call_that_comes_to_nothing_is_taken_back_once() {
    /// Together more than are known at once.
    const MANY: usize = 40;
    fn asker(gates: &[Gate; 2]) -> impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static {
        let gates = gates.clone();
        move |request, stream| {
            scripted::begin_events(stream);
            if request.method == "GET" {
                gates[0].pass();
                let params = json!({"requestId": "elsewhere"});
                let told = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
                scripted::say(stream, &told);
                return scripted::until_closed(stream);
            }
            for id in ["elsewhere", "once", "twice", "twice"] {
                scripted::chunk(stream, &question(id));
            }
            for gate in &gates {
                (0..MANY).for_each(|number| scripted::chunk(stream, &question(&number.to_string())));
                gate.pass();
            }
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    let gates = <[Gate; 2]>::default();
    let server = Scripted::listening(asker(&gates));
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 60_000;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::with_capabilities(&sidecar, None, "2025-11-25", &json!({"roots": {}}));
    let mut told = Events::open(&client.get(), sidecar.mcp);
    let mut events = client.stream("t", json!({}));
    let mut next = || events.next().expect("an event").message();
    for id in ["elsewhere", "once", "twice", "twice"] {
        assert_eq!(next()["id"], id);
    }
    (0..MANY).for_each(|_| answer(&client, &next()));
    gates[0].open();
    let taken_back = told.next().expect("an event").message();
    assert_eq!(taken_back["params"]["requestId"], "elsewhere", "{taken_back}");
    (0..MANY).for_each(|_| answer(&client, &next()));
    gates[1].open();
    for id in ["once", "twice"] {
        let taken_back = next();
        assert_eq!(taken_back["params"]["requestId"], id, "{taken_back}");
    }
    let error = next();
    assert_eq!(error["error"]["code"], -32603, "{error}");
}
