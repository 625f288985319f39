//! Clients that speak HTTP+SSE, in front of servers that speak Streamable HTTP.

use std::io::{BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longshore_sidecar_config::Config;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::caller::{Caller, call, echo};
use crate::harness::client::initialize;
use crate::harness::config::{callers, idle, keys};
use crate::harness::http::{connect, read_chunk};
use crate::harness::replicas::Network;
use crate::harness::{
    Client, Events, Files, Gate, GoServer, Reply, Request, Scripted, Sidecar, config, eventually, scripted,
    within,
};

fn guarded(server: &GoServer) -> Sidecar {
    let files = Files::new();
    let mut config = config(server.port);
    config.limits.request_bytes = 20_000;
    files.write_with_keys(&config, &callers());
    Sidecar::with(files, &["--drain-minimum-ms", "300"]).loaded().ready()
}

/// 11: also while the handshake is under way, which takes as long as the server takes.
#[test]
fn r011_a_stream_lives_while_the_server_takes_its_time_to_greet() {
    let gate = Gate::default();
    let server = Scripted::greeting(&gate, |_, stream| scripted::no_stream(stream));
    let sidecar = Sidecar::keyed(&config(server.port), &keys(&[("alice", "key-a")]));
    let mut stream = connect(sidecar.mcp);
    Caller::request(Some("key-a")).write(&mut stream);
    let mut reader = BufReader::new(stream);
    assert_eq!(Reply::read_head(&mut reader).unwrap().0, 200);
    let mut next = || read_chunk(&mut reader).unwrap().map(|chunk| String::from_utf8(chunk).unwrap());
    let endpoint = next().unwrap();
    let endpoint = endpoint.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let greeted = Request::new("POST", endpoint).header("content-type", "application/json").key("key-a");
    assert_eq!(greeted.body(initialize("2024-11-05")).send(sidecar.mcp).status, 202);
    assert_eq!(next().unwrap(), ": keep-alive\n\n");
    // A key that is taken away closes it, whatever it waits for.
    sidecar.files.write_with_keys(&config(server.port), &keys(&[("bob", "key-b")]));
    assert_eq!(next(), None);
    gate.open();
}

#[test]
fn r061_a_stream_names_its_place_for_messages() {
    let server = GoServer::start(&[]);
    let sidecar = guarded(&server);
    let mut alice = Caller::open(&sidecar, Some("key-a"));
    assert!(alice.endpoint.starts_with("/messages?session="), "{}", alice.endpoint);
    // Nobody guesses the place of another stream: each has 128 bits at least, of its own.
    let names = [&alice, &Caller::open(&sidecar, Some("key-a")), &Caller::open(&sidecar, Some("key-b"))]
        .map(|caller| caller.endpoint.split_once('=').unwrap().1.to_owned());
    assert!(names.iter().all(|name| name.len() >= 22), "{names:?}");
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    let types = alice.stream.headers.iter().filter(|(name, _)| name == "content-type");
    assert_eq!(types.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["text/event-stream"]);
    assert_eq!(alice.call(&sidecar, 5, "echo", &echo("hi"))["result"]["content"][0]["text"], "hi");
    // Each message was decided on by itself.
    let line = sidecar.audit(|line| line["target"] == "echo");
    assert_eq!((&line["principal"], &line["rule"]), (&json!("alice"), &json!("all")));
    let missing = alice.call(&sidecar, 6, "no-such-tool", &json!({}));
    assert!(missing["error"]["code"].is_i64() || missing["result"]["isError"] == true, "{missing}");

    // What is wrong with a POST is said where it was posted.
    let long = "x".repeat(30_000);
    let other = alice.endpoint.replace("session=", "session=A");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (name, request, status, code) in [
        ("no key", alice.message("{}").without("authorization"), 401, -32600),
        (
            "another principal",
            alice.message(&call(7, "echo", &echo("a"))).with("authorization", "Bearer key-b"),
            404,
            -32600,
        ),
        ("no name", Request { path: "/messages".to_owned(), ..alice.message("{}") }, 400, -32600),
        ("another name", Request { path: other, ..alice.message("{}") }, 404, -32600),
        ("no JSON", alice.message("{"), 400, -32700),
        ("a batch of nothing", alice.message("[]"), 400, -32600),
        ("a batch", alice.message(&format!("[{ping}]")), 400, -32600),
        ("a batch with an id twice", alice.message(&format!("[{ping},{ping}]")), 400, -32600),
        ("another type", alice.message("{}").with("content-type", "text/plain"), 415, -32600),
        ("too large", alice.message(&long), 413, -32600),
        ("a GET", alice.message("").with_method("GET"), 405, -32600),
        ("a foreign origin", alice.message("{}").header("origin", "https://evil.example"), 403, -32600),
        ("a POST to the stream", Request { path: "/sse".to_owned(), ..alice.message("{}") }, 405, -32600),
        ("a stream for others", Caller::request(None), 401, -32600),
        (
            "a stream of another kind",
            Caller::request(Some("key-a")).with("accept", "application/json"),
            406,
            -32600,
        ),
        (
            "a stream for a foreign page",
            Caller::request(Some("key-a")).header("origin", "https://evil.example"),
            403,
            -32600,
        ),
    ] {
        let reply = request.send(sidecar.mcp);
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        assert_eq!(reply.message()["error"]["code"], code, "{name}: {}", reply.text());
    }
    // Whichever revision was agreed on: some have batches elsewhere.
    let newer = Caller::of(&sidecar, Some("key-a"), "2025-03-26");
    let refused = newer.post(&sidecar, &format!("[{ping}]"));
    assert_eq!(refused.status, 400);
    let words = refused.message()["error"]["message"].to_string();
    assert!(words.contains("HTTP+SSE"), "{words}");
    // A second handshake is a message, so it is refused in the stream, and the session goes on.
    assert_eq!(alice.post(&sidecar, &initialize("2024-11-05")).status, 202);
    let refused = alice.hear();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(0), &json!(-32600)), "{refused}");
    // The name is no session's.
    let name = alice.endpoint.split_once('=').unwrap().1.to_owned();
    assert_eq!(Request::post(ping).key("key-a").session(&name).send(sidecar.mcp).status, 404);
    assert_eq!(alice.call(&sidecar, 8, "echo", &echo("still"))["result"]["content"][0]["text"], "still");
    assert!(!sidecar.written().contains(&name), "it is in no log");
}

#[test]
fn the_end_of_a_stream_is_the_end_of_its_session() {
    let server = GoServer::start(&[]);
    let sidecar = guarded(&server);
    let caller = Caller::open(&sidecar, Some("key-a"));
    assert_eq!(sidecar.metric("longshore_sessions"), 1.0);
    let (message, name) = (caller.message(&call(1, "echo", &echo("a"))), caller.endpoint.clone());
    // Also with a call under way, whose answer nobody can come back for.
    let slow = call(2, "slow", &json!({"milliseconds": 600_000}));
    assert_eq!(caller.post(&sidecar, &slow).status, 202);
    eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
    drop(caller);
    eventually("its session ends", || sidecar.metric("longshore_sessions") == 0.0);
    assert_eq!(sidecar.metric("longshore_calls"), 1.0, "it has not waited for the call");
    sidecar.audit(|line| line["method"] == "DELETE" && line["principal"] == "alice");
    assert_eq!(message.send(sidecar.mcp).status, 404, "{name}");
}

#[test]
fn a_revoked_key_keeps_nothing_open() {
    let server = GoServer::start(&[]);
    let sidecar = guarded(&server);
    let alice = Caller::open(&sidecar, Some("key-a"));
    let mut bob = Caller::open(&sidecar, Some("key-b"));
    sidecar.files.write_with_keys(&config(server.port), &keys(&[("bob", "key-b")]));
    assert!(alice.stream.all().is_empty());
    assert_eq!(bob.call(&sidecar, 5, "echo", &echo("hi"))["result"]["content"][0]["text"], "hi");
}

/// Also while its call says more than it reads.
#[test]
fn a_revoked_key_keeps_no_stream_open_in_which_much_is_said() {
    let server = Scripted::start(|_, stream| {
        scripted::begin_events(stream);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
            "params": {"level": "info", "data": "m".repeat(60_000)}});
        let event = format!("data: {note}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        while stream.write_all(chunk.as_bytes()).is_ok() {}
    });
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 60_000;
    let sidecar = Sidecar::keyed(&config, &callers()).ready();
    let mut alice = Caller::open(&sidecar, Some("key-a"));
    assert_eq!(alice.post(&sidecar, &call(1, "flood", &json!({}))).status, 202);
    alice.hear();
    sidecar.files.write_with_keys(&config, &keys(&[("bob", "key-b")]));
    let until = Instant::now() + Duration::from_secs(30);
    while alice.stream.any().is_some() {
        assert!(Instant::now() < until, "it goes on");
        // Slower than the server says it, so that there is always more.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whoever reads nothing of what has come is not waited for.
#[test]
fn a_revoked_key_keeps_no_session_whose_client_does_not_read() {
    let said = Arc::<AtomicUsize>::default();
    let says = said.clone();
    let server = Scripted::start(move |_, stream| {
        scripted::begin_events(stream);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
            "params": {"level": "info", "data": "m".repeat(60_000)}});
        let event = format!("data: {note}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        while stream.write_all(chunk.as_bytes()).is_ok() {
            says.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 300_000;
    let sidecar = Sidecar::keyed(&config, &callers()).ready();
    let alice = Caller::open(&sidecar, Some("key-a"));
    assert_eq!(alice.post(&sidecar, &call(1, "flood", &json!({}))).status, 202);
    eventually("nobody reads", || {
        let before = said.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        before > 0 && said.load(Ordering::Relaxed) == before
    });
    sidecar.files.write_with_keys(&config, &keys(&[("bob", "key-b")]));
    // Long before the kernel gives the connection up.
    within(Duration::from_secs(30), "its server hears of the end", || server.seen("DELETE").pop());
    drop(alice);
}

/// Its client cannot ask for the server's stream itself.
#[test]
fn what_a_server_says_unasked_is_asked_for_until_it_can_be_heard() {
    let asked = AtomicUsize::new(0);
    let server = Scripted::listening(move |request, stream| {
        if request.method != "GET" {
            return;
        }
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => scripted::write(stream, "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"),
            _ => {
                scripted::begin_events(stream);
                let news = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                scripted::say(stream, &news);
                scripted::until_closed(stream);
            }
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut caller = Caller::open(&sidecar, None);
    caller.stream.patience(Duration::from_secs(20));
    assert_eq!(caller.hear()["method"], "notifications/tools/list_changed");
    assert_eq!(server.seen("GET").len(), 2);
}

/// A client that hears of no ids comes back for nothing.
#[test]
fn nothing_is_kept_of_what_was_read() {
    const NOTES: usize = 20;
    const LARGE: usize = 45_000;
    let server = Scripted::listening(|request, stream| {
        let say = |stream: &mut _, method: &str, params: Value| {
            let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
            scripted::say(stream, &note);
        };
        scripted::begin_events(stream);
        let text = "m".repeat(LARGE);
        if request.method == "GET" {
            for _ in 0..NOTES {
                say(stream, "notifications/message", json!({"level": "info", "data": text}));
            }
            return scripted::until_closed(stream);
        }
        let token = &scripted::message(request)["params"]["_meta"]["progressToken"];
        for number in 0..NOTES {
            let params = json!({"progressToken": token, "progress": number, "message": text});
            say(stream, "notifications/progress", params);
        }
        let answer = scripted::reply_to(request, &json!({"content": []}));
        scripted::say(stream, &answer);
        scripted::write(stream, "0\r\n\r\n");
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut caller = Caller::open(&sidecar, None);
    let params = json!({"name": "t", "arguments": {}, "_meta": {"progressToken": "p"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    assert_eq!(caller.post(&sidecar, &message.to_string()).status, 202);
    let heard: Vec<_> = (0..=2 * NOTES).map(|_| caller.hear()).collect();
    for (what, expected) in [("notifications/message", NOTES), ("notifications/progress", NOTES)] {
        assert_eq!(heard.iter().filter(|message| message["method"] == what).count(), expected, "{what}");
    }
    // What belongs to no call has a stream still, which costs something itself.
    eventually("nothing is kept", || sidecar.metric("longshore_stream_bytes") < 1000.0);
    assert_eq!(sidecar.metric("longshore_streams"), 1.0);
}

/// Where nobody else serves they stay, and calls are taken. Those under way are answered, and then the streams end as
/// streams do.
#[test]
fn a_drain_ends_streams_in_order() {
    // A client of the last one could come back for an answer, if its transport were as new.
    for revision in ["2024-11-05", "2025-11-25"] {
        let server = GoServer::start(&[]);
        let sidecar = guarded(&server);
        let mut idle = Caller::open(&sidecar, Some("key-b"));
        let mut busy = Caller::of(&sidecar, Some("key-a"), revision);
        let slow = call(9, "slow", &json!({"milliseconds": 4000}));
        assert_eq!(busy.post(&sidecar, &slow).status, 202);
        eventually("it is under way", || sidecar.metric("longshore_calls") >= 1.0);
        // By then there would be a stream to come back to.
        std::thread::sleep(Duration::from_millis(1500));
        sidecar.signal(Signal::TERM);
        eventually("it ends", || sidecar.get("/readyz").status != 200);
        let said = idle.call(&sidecar, 3, "echo", &echo("still"));
        assert_eq!(said["result"]["content"][0]["text"], "still", "{said}");
        let answer = busy.hear();
        assert_eq!((&answer["id"], answer["result"].is_object()), (&json!(9), true), "{revision}: {answer}");
        assert!(idle.stream.all().is_empty());
        assert!(busy.stream.all().is_empty());
        assert!(sidecar.wait(Duration::from_secs(10)).success());
    }
}

/// Whatever the session has streams for, its client has one.
#[test]
fn calls_of_a_stream_are_none_of_the_sessions_streams() {
    let server = GoServer::start(&[]);
    let mut config = config(server.port);
    config.sessions.streams = 1;
    let sidecar = Sidecar::start(&config).ready();
    let mut caller = Caller::of(&sidecar, None, "2025-11-25");
    for id in [1, 2, 3] {
        let slow = call(id, "slow", &json!({"milliseconds": 1500, "steps": 3}));
        assert_eq!(caller.post(&sidecar, &slow).status, 202);
        std::thread::sleep(Duration::from_millis(300));
    }
    for id in [1, 2, 3] {
        let answer = caller.answer(id);
        assert!(answer["result"].is_object(), "{answer}");
    }
}

#[test]
fn any_replica_takes_messages_for_a_stream() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let mut replicas = network.in_front_of(&config(0), &servers);
    let mut caller = Caller::open(&replicas[0], Some("key-a"));
    for (id, replica) in [(1, &replicas[1]), (2, &replicas[0]), (3, &replicas[1])] {
        let answer = caller.call(replica, id, "echo", &echo("through"));
        assert_eq!(answer["result"]["content"][0]["text"], "through", "{answer}");
    }
    let elsewhere = caller.message("{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ping\"}");
    assert_eq!(elsewhere.clone().with("authorization", "Bearer key-b").send(replicas[1].mcp).status, 404);
    // With its replica it is gone: nothing is taken for it any more.
    let gone = replicas.remove(0);
    gone.signal(Signal::KILL);
    within(Duration::from_secs(10), "it is nowhere", || {
        elsewhere.clone().send(replicas[0].mcp).status == 404
    });
}

/// What a client of this transport may have is what one of the other may.
#[test]
fn streams_are_bounded() {
    let server = GoServer::start(&[]);
    let mut config = config(server.port);
    config.sessions.per_principal = 2;
    let sidecar = Sidecar::keyed(&config, &callers()).ready();
    let one = Caller::open(&sidecar, Some("key-a"));
    let _two = Caller::begin(&sidecar, Some("key-a"));
    assert_eq!(Caller::request(Some("key-a")).send(sidecar.mcp).status, 429);
    let _bob = Client::open(&sidecar, Some("key-b"));
    drop(one);
    eventually("there is room again", || {
        Events::open(&Caller::request(Some("key-a")), sidecar.mcp).status == 200
    });
}

/// Also where the client says something then that comes too late.
#[test]
fn calls_of_a_stream_outlive_the_age_of_its_session() {
    let gate = Gate::default();
    let server = waiting(&gate);
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let mut caller = Caller::open(&sidecar, None);
    becomes_too_old(&sidecar, &server, &caller, &mut config);
    gate.open();
    let answer = caller.answer(9);
    assert!(answer["result"].is_object(), "{answer}");
    assert!(caller.stream.all().is_empty(), "and then it is over");
}

/// And they hear what their client says.
#[test]
fn what_is_told_in_a_stream_outlives_the_age_of_its_session() {
    let gate = Gate::default();
    let server = waiting(&gate);
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let mut caller = Caller::open(&sidecar, None);
    becomes_too_old(&sidecar, &server, &caller, &mut config);
    let params = json!({"progressToken": 1, "progress": 1});
    let news = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string();
    assert_eq!(caller.post(&sidecar, &news).status, 202);
    assert_eq!(server.seen("notifications/progress").len(), 1);
    gate.open();
    let answer = caller.answer(9);
    assert!(answer["result"].is_object(), "{answer}");
}

/// The session comes of age while a call of the id 9 is under way: nothing that it takes to get there is too late.
fn becomes_too_old(sidecar: &Sidecar, server: &Scripted, caller: &Caller, config: &mut Config) {
    caller.stream.patience(Duration::from_secs(60));
    assert_eq!(caller.post(sidecar, &call(9, "t", &json!({}))).status, 202);
    eventually("the server has it", || server.seen("tools/call").pop());
    config.sessions.max_age_ms = 2_000;
    sidecar.runs(&sidecar.files.write(config));
    eventually("it is too old", || {
        caller.post(sidecar, r#"{"jsonrpc":"2.0","id":10,"method":"ping"}"#).status == 404
    });
}

/// Where the server has no stream of its own nothing else uses the session, and nothing else tells of its end.
#[test]
fn a_stream_lasts_as_long_as_its_session() {
    let gate = Gate::default();
    gate.open();
    let server = waiting(&gate);
    let sidecar = Sidecar::start(&idle(config(server.port), 500)).ready();
    let mut caller = Caller::open(&sidecar, None);
    let _other = Client::open(&sidecar, None);
    eventually("the other one is idle", || {
        sidecar.metric(r#"longshore_sessions_ended_total{cause="idle"}"#) == 1.0
    });
    let answer = caller.call(&sidecar, 3, "t", &json!({}));
    assert!(answer["result"].is_object(), "{answer}");
    drop(caller);
    eventually("it is over", || sidecar.metric("longshore_sessions") == 0.0);

    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let caller = Caller::open(&sidecar, None);
    caller.stream.patience(Duration::from_secs(60));
    config.sessions.max_age_ms = 2_000;
    sidecar.runs(&sidecar.files.write(&config));
    assert!(caller.stream.all().is_empty(), "it ends");
}

/// A server that has no stream of its own, and answers calls when the gate is open.
fn waiting(gate: &Gate) -> Scripted {
    let gate = gate.clone();
    Scripted::start(move |request, stream| {
        if scripted::method_of(request) == "tools/call" {
            gate.pass();
        }
        scripted::reply(stream, request, &json!({"content": [], "tools": []}));
    })
}
