//! Clients that come back for what nobody knows any more. It is no gap, and no end of their sessions: many clients give
//! them up where they are answered otherwise than with a stream.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{answer, event, note, said};
use crate::harness::replicas::Network;
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{Client, Events, Gate, Request, Scripted, Sidecar, config, eventually, scripted};

/// As many as another pod would keep.
const SUBSCRIPTIONS: usize = 64;
const CHANGED: &str = "notifications/tools/list_changed";

/// What a server tells: when its tools change, and resources that are subscribed to.
fn offers() -> Value {
    json!({"tools": {"listChanged": true}, "prompts": {}, "resources": {"subscribe": true}})
}

/// It takes everything. In each stream of no call it says the number of that, but in the first.
fn says_their_number() -> impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static {
    let streams = AtomicUsize::new(0);
    move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"tools": [], "prompts": []}));
        }
        scripted::begin_events(stream);
        let number = streams.fetch_add(1, Ordering::SeqCst);
        if number > 0 {
            scripted::chunk(stream, &event(&note(number)));
        }
        scripted::until_closed(stream);
    }
}

#[test]
fn a_stream_of_no_call_goes_on_after_a_crash_with_what_may_have_been_missed() {
    let server = Scripted::offering(offers(), says_their_number());
    let sidecar = Sidecar::flagged(&config(server.port), &Sidecar::POD).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = Events::open(&client.get(), sidecar.mcp);
    assert!(stream.any().is_some_and(|event| event.data.is_empty()));
    let (last, session) = (stream.last.clone(), client.session.clone());

    let sidecar = sidecar.again();
    let client = Client::in_session(&sidecar, &session);
    let mut stream = Events::open(&client.rest(&last), sidecar.mcp);
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
    assert_eq!(said(&stream.next().unwrap()), "1", "what the server does not tell of is not told");
    assert_eq!(sidecar.metric("longshore_resumptions_total{result=\"gone\"}"), 1.0);
    let line = sidecar.audit(|line| line["method"] == "GET");
    assert_eq!((&line["decision"], &line["status"]), (&json!("permit"), &json!(200)));
    // From here on it is a stream like any other.
    let mut again = Events::open(&client.rest(&stream.last), sidecar.mcp);
    assert!(stream.next().is_none());
    drop(stream);
    assert_eq!(again.status, 200);
    // What an earlier release has written says of nothing what it is.
    let (rest, number) = last.rsplit_once('-').unwrap();
    let earlier = format!("{}-{number}", rest.strip_suffix("-get").expect("it says so"));
    assert_eq!(client.rest(&earlier).send(sidecar.mcp).status, 400);
    again.patience(Duration::from_millis(300));
    assert!(again.try_any().is_err(), "and nothing more is told anew");
}

/// A server with lists. In its stream it says this at once, and when the gate is open more than is kept.
fn saying_much(first: Option<usize>) -> (Scripted, Gate) {
    let gate = Gate::default();
    let says = gate.clone();
    let offers = json!({"tools": {"listChanged": true}});
    let server = Scripted::offering(offers, move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        scripted::begin_events(stream);
        first.iter().for_each(|number| scripted::chunk(stream, &event(&note(*number))));
        says.pass();
        scripted::chunk(stream, &(1..50).map(|number| event(&note(number))).collect::<String>());
        scripted::until_closed(stream);
    });
    (server, gate)
}

/// The same of a stream that was forgotten, and of what was not kept of one to which the server writes.
#[test]
fn what_is_not_kept_of_a_stream_of_no_call_may_have_been_missed() {
    let mut config = config(0);
    config.sessions.resume.max_bytes = 1_000;
    config.sessions.resume.ttl_ms = 500;
    let (server, gate) = saying_much(Some(0));
    config.upstream = crate::harness::config(server.port).upstream;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(said(&stream.next().unwrap()), "0");
    let last = stream.last.clone();
    drop(stream);
    eventually("it is forgotten", || sidecar.metric("longshore_streams") == 0.0);
    let mut stream = Events::open(&client.rest(&last), sidecar.mcp);
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
    assert_eq!(said(&stream.next().unwrap()), "0");
    let last = stream.last.clone();
    gate.open();
    while said(&stream.next().unwrap()) != "49" {}
    // The old connection is still there: nobody knows yet that it is dead.
    let mut again = Events::open(&client.rest(&last), sidecar.mcp);
    assert_eq!(again.status, 200);
    let mut told = std::iter::from_fn(|| again.next());
    let kept: Vec<_> = told.by_ref().take_while(|event| event.message()["method"] != CHANGED).collect();
    let kept: Vec<usize> = kept.iter().map(|event| said(event).parse().unwrap()).collect();
    assert!(kept.first().is_some_and(|first| *first > 1), "{kept:?}");
    assert!(kept.iter().copied().eq(kept[0]..50), "what is kept is not left out: {kept:?}");
    assert!(stream.next().is_none());
}

/// Clients of earlier revisions have no id before something was said.
#[test]
fn what_a_silent_stream_would_have_told_may_have_been_missed() {
    let mut config = config(0);
    config.sessions.resume.ttl_ms = 500;
    let offers = json!({"tools": {"listChanged": true}});
    let server = Scripted::offering(offers, |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        scripted::stays_open(stream);
    });
    config.upstream = crate::harness::config(server.port).upstream;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::of(&sidecar, None, "2025-06-18");
    let mut stream = Events::open(&client.get(), sidecar.mcp);
    stream.patience(Duration::from_millis(300));
    assert!(stream.try_any().is_err(), "who has never listened has missed nothing");
    drop(stream);
    eventually("it is forgotten", || sidecar.metric("longshore_streams") == 0.0);
    let mut stream = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
}

/// The same where the server's stream was heard meanwhile, and what it said was too much to be kept.
#[test]
fn what_nobody_has_read_and_is_not_kept_may_have_been_missed() {
    let mut config = config(0);
    config.sessions.resume.max_bytes = 1_000;
    let (server, gate) = saying_much(None);
    config.upstream = crate::harness::config(server.port).upstream;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::of(&sidecar, None, "2025-06-18");
    drop(Events::open(&client.get(), sidecar.mcp));
    eventually("it has gone", || sidecar.metric("longshore_connections") == 0.0);
    gate.open();
    eventually("as much is kept as may be", || sidecar.metric("longshore_stream_bytes") > 700.0);
    let mut stream = Events::open(&client.get(), sidecar.mcp);
    let mut told = std::iter::from_fn(|| stream.next());
    let kept: Vec<_> = told.by_ref().take_while(|event| event.message()["method"] != CHANGED).collect();
    let kept: Vec<usize> = kept.iter().map(|event| said(event).parse().unwrap()).collect();
    assert!(kept.first().is_some_and(|first| *first > 1), "{kept:?}");
    assert!(kept.iter().copied().eq(kept[0]..50), "what is kept is not left out: {kept:?}");
    // Whoever has heard that is told it once.
    drop(stream);
    eventually("it has gone", || sidecar.metric("longshore_connections") == 0.0);
    let mut stream = Events::open(&client.get(), sidecar.mcp);
    stream.patience(Duration::from_millis(300));
    assert!(stream.try_any().is_err());
}

/// All of it, however much that is: who is sent away for what it was to hear comes back for the same.
#[test]
fn who_has_missed_something_hears_of_each_of_many_subscriptions() {
    let mut config = stdio();
    config.sessions.resume.max_bytes = 1_000;
    let (_shim, sidecar) = serving(&config, &shim::server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let long = "x".repeat(990);
    for number in 0..SUBSCRIPTIONS {
        client.ask("resources/subscribe", json!({"uri": format!("x:{number}-{long}")}));
    }
    let mut stream = Events::open(&client.get(), sidecar.mcp);
    assert!(stream.any().is_some_and(|event| event.data.is_empty()));
    let first = stream.last.clone();
    for _ in 0..10 {
        client.call("change", json!({}));
        assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
    }
    let mut stream = Events::open(&client.rest(&first), sidecar.mcp);
    let told = std::iter::from_fn(|| stream.next()).map(|event| event.message()["method"].clone());
    let updated = told.filter(|method| method == "notifications/resources/updated");
    assert_eq!(updated.take(SUBSCRIPTIONS).count(), SUBSCRIPTIONS);
}

/// Also by way of another pod, which knows what the client has subscribed to.
#[test]
fn what_a_client_has_subscribed_to_may_have_been_missed_in_a_pod_that_died() {
    let servers = [(); 2].map(|()| Scripted::nameless_offering(offers(), says_their_number()));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], Some("key-a"));
    for uri in ["memo://a", "memo://b"] {
        client.ask("resources/subscribe", json!({"uri": uri}));
    }
    client.ask("resources/unsubscribe", json!({"uri": "memo://b"}));
    let mut stream = Events::open(&client.get(), replicas[0].mcp);
    assert!(stream.any().is_some());
    replicas[0].signal(Signal::KILL);
    network.list(&[2]);
    let mut stream = Events::open(&client.through(&replicas[1]).rest(&stream.last), replicas[1].mcp);
    assert_eq!(stream.status, 200);
    assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
    let updated = stream.next().unwrap().message();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "memo://a");
    drop(stream);
    // By now the server's stream is heard here, whoever reads it.
    let mut stream = Events::open(&client.through(&replicas[1]).get(), replicas[1].mcp);
    stream.patience(Duration::from_millis(300));
    while let Ok(Some(event)) = stream.try_any() {
        assert!(!event.data.contains("list_changed"), "{event:?}");
    }
}

/// A response that has begun has an id to come back with: what it leads to is the error that ends the call.
#[test]
fn a_call_whose_sidecar_died_is_answered_by_an_error() {
    let gate = Gate::default();
    let waits = gate.clone();
    let server = Scripted::start(move |request, stream| {
        if scripted::message(request)["params"]["name"] == "told" {
            return scripted::events(stream, &[&event(&note(1)), &event(&answer(request))]);
        }
        waits.pass();
        scripted::json(stream, &answer(request));
    });
    let sidecar = Sidecar::flagged(&config(server.port), &Sidecar::POD).ready();
    let client = Client::open(&sidecar, None);
    let session = client.session.clone();
    let begun = |id: &Value| {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t"}});
        let mut stream = Events::open(&client.request(call.to_string()), sidecar.mcp);
        assert!(stream.any().is_some_and(|event| event.data.is_empty()));
        stream.last
    };
    let known = [json!(7), json!(-7), json!("a-7"), json!("7c9e6679-7425-40de-944b-e07fc1f90ae7")];
    let known = known.map(|id| (begun(&id), id));
    let unsaid = [json!("x".repeat(60)), json!("two words"), json!("\u{e9}")].map(|id| begun(&id));
    let told = client.stream("told", json!({})).all().pop().unwrap().id;

    let sidecar = sidecar.again();
    let client = Client::in_session(&sidecar, &session);
    for (last, id) in known {
        let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
        assert_eq!(rest.status, 200, "{last}");
        let end = rest.next().unwrap();
        let message = end.message();
        assert_eq!((&message["id"], &message["error"]["code"]), (&id, &json!(-32603)), "{message}");
        assert!(message["error"]["message"].as_str().unwrap().contains("its answer is lost"), "{message}");
        assert!(rest.any().is_none());
        // Some clients come back once more where their streams end with an error.
        assert_eq!(client.rest(&end.id).send(sidecar.mcp).status, 204);
    }
    let line = sidecar.audit(|line| line["reason"] == "answer not kept");
    let said = ["decision", "status", "code"].map(|name| line[name].clone());
    assert_eq!(said, [json!("permit"), json!(200), json!(-32603)], "{line}");
    for last in unsaid {
        assert_eq!(client.rest(&last).send(sidecar.mcp).status, 400, "{last}");
    }
    assert_eq!(sidecar.metric("longshore_resumptions_total{result=\"gone\"}"), 7.0);
    // Who has the answer is told no other one, whoever gave it.
    assert_eq!(client.rest(&told).send(sidecar.mcp).status, 204);
    assert_eq!(client.send("ping", json!({})).status, 200, "the session goes on");
    gate.open();
}
