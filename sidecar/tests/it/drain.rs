//! The end of a sidecar, and of the server beside it.

mod unread;

use std::collections::VecDeque;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_sidecar_config::paths;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::http::{Reply, connect};
use crate::harness::peer::free_port;
use crate::harness::{
    Client, Files, Gate, GoServer, Request, Scripted, Sidecar, client, config, eventually, scripted,
};

/// Sooner than by the end of the time for which calls are waited for in vain, which is more than twenty seconds.
const SOON: Duration = Duration::from_secs(18);

fn sidecar(port: u16, minimum: &str) -> Sidecar {
    Sidecar::flagged(&config(port), &["--drain-minimum-ms", minimum]).ready()
}

/// Begins a call that takes a while.
fn slow_call(client: &Client<'_>, milliseconds: u64) -> std::net::TcpStream {
    let stream = client.begin(&json!({"name": "slow", "arguments": {"milliseconds": milliseconds}}));
    eventually("the call is under way", || client.sidecar.metric("longshore_calls") >= 1.0);
    stream
}

/// A server whose calls `first` and `second` are answered when their gates are open, and others at once.
fn gated() -> (Scripted, [Gate; 2]) {
    let gates = [Gate::default(), Gate::default()];
    let [first, second] = gates.clone();
    let server = Scripted::start(move |request, stream| {
        let name = scripted::message(request)["params"]["name"].as_str().unwrap_or_default().to_owned();
        match &*name {
            "first" => first.pass(),
            "second" => second.pass(),
            _ => {}
        }
        scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": name}]}));
    });
    (server, gates)
}

/// Begins a call, which the server has then.
fn begin(client: &Client<'_>, server: &Scripted, name: &str) -> std::net::TcpStream {
    let stream = client.begin(&json!({"name": name}));
    eventually("the server has it", || {
        let calls = server.seen("tools/call");
        calls.iter().any(|call| scripted::message(call)["params"]["name"] == name)
    });
    stream
}

/// A server whose tools are more than waits anywhere on the way to a client.
fn large() -> Scripted {
    Scripted::start(|request, stream| {
        let tool = |number: usize| json!({"name": format!("t{number}"), "description": "x".repeat(10_000), "inputSchema": {"type": "object"}});
        let tools: Vec<_> = (0..300).map(tool).collect();
        scripted::reply(stream, request, &json!({"tools": tools}));
    })
}

/// Asks such a server for them. The call is over then, and the body of its answer, which is that long, is not read.
fn begin_to_read(client: &Client<'_>) -> (BufReader<std::net::TcpStream>, usize) {
    let mut stream = connect(client.sidecar.mcp);
    client.request(client.message("tools/list", &json!({}))).write(&mut stream);
    let mut stream = BufReader::with_capacity(64, stream);
    let (status, headers) = Reply::read_head(&mut stream).unwrap();
    let length = headers.iter().find(|(name, _)| name == "content-length").unwrap().1.parse().unwrap();
    assert!(status == 200 && length > 3_000_000, "{status} {length}");
    eventually("the call is over", || client.sidecar.metric("longshore_calls") == 0.0);
    (stream, length)
}

fn answer(stream: std::net::TcpStream) -> Value {
    Reply::on(stream).message()
}

/// Whether a hook is held for so long.
fn is_held(hook: &mut UnixStream, time: Duration) -> bool {
    hook.set_read_timeout(Some(time)).unwrap();
    hook.read(&mut [0]).is_err()
}

#[test]
fn calls_in_flight_are_answered_and_nothing_new_begins() {
    let (server, [gate, _]) = gated();
    let sidecar = sidecar(server.port, "600");
    // Its streams stay open until the answer.
    let client = Client::of(&sidecar, None, "2025-06-18");
    let call = begin(&client, &server, "first");
    sidecar.signal(Signal::TERM);
    eventually("readiness goes before anything else", || sidecar.get("/readyz").text() == "draining\n");
    // Sessions that are there work on, new ones go elsewhere, and connections end after each response.
    let reply = client.send("tools/call", json!({"name": "echo", "arguments": {"text": "a"}}));
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    let refused = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
    assert_eq!(refused.status, 503);
    sidecar.audit(|line| line["reason"] == "draining");

    // Longer than it waits for clients that still come.
    std::thread::sleep(Duration::from_secs(3));
    assert!(!sidecar.written().contains("\"drained\""), "it waits for the call");
    gate.open();
    assert_eq!(answer(call)["result"]["content"][0]["text"], "first");
    drop(client);
    assert!(sidecar.wait(SOON).success());
    let line = sidecar.audit(|line| line["target"] == "first");
    assert_eq!(line["status"], 200, "the last lines are written");
}

#[test]
fn an_idle_sidecar_stays_for_the_minimum() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "700");
    let began = Instant::now();
    sidecar.signal(Signal::TERM);
    assert!(sidecar.wait(SOON).success());
    assert!(began.elapsed() >= Duration::from_millis(700));
}

#[test]
fn clients_that_still_come_are_waited_for() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "2000");
    let client = Client::open(&sidecar, None);
    let began = Instant::now();
    sidecar.signal(Signal::TERM);
    // As if nobody had told whoever sends them here. Every one of them is answered while the listener is there.
    let (mut last, mut longest) = (began, Duration::ZERO);
    while let Ok(mut stream) = std::net::TcpStream::connect(sidecar.mcp) {
        longest = longest.max(last.elapsed());
        last = Instant::now();
        client.request(client.message("ping", &json!({}))).write(&mut stream);
        match Reply::read(&mut BufReader::new(stream)) {
            Ok(reply) => assert_eq!(reply.status, 200),
            // It came while the listener went: the kernel takes connections that nobody has accepted yet. On a busy machine
            // the test may have paused for so long before.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                assert!(std::net::TcpStream::connect(sidecar.mcp).is_err(), "it listens still");
            }
        }
    }
    // Not for ever.
    let took = began.elapsed();
    // On a busy machine the test itself may not come for so long that nobody seems to come any more.
    let is_steady = longest < Duration::from_millis(300);
    assert!((took >= Duration::from_millis(2500) || !is_steady) && took < SOON, "{took:?}");
    assert!(sidecar.wait(SOON).success());
}

#[test]
fn a_request_that_is_on_its_way_when_connections_end_is_answered() {
    comes_at_the_end(|client, mut stream| {
        client.request(client.message("ping", &json!({}))).write(&mut stream);
        let reply = Reply::on(stream);
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    });
}

/// There is nothing more to hear.
#[test]
fn who_comes_to_listen_when_connections_end_holds_no_end_up() {
    comes_at_the_end(|client, mut stream| {
        client.get().write(&mut stream);
        stream
    });
}

/// On a connection that was there before, once nothing is under way any more. What is given back is there until the sidecar
/// ends.
fn comes_at_the_end<K>(says: impl FnOnce(&Client<'_>, std::net::TcpStream) -> K) {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "300");
    let client = Client::open(&sidecar, None);
    let stream = connect(sidecar.mcp);
    sidecar.signal(Signal::TERM);
    sidecar.log(|line| line["message"] == "drained");
    let _kept = says(&client, stream);
    assert!(sidecar.wait(SOON).success());
}

/// Nobody knows of whoever does not go on with it, and nobody is to be waited for.
#[test]
fn half_a_head_holds_no_end_up() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "300");
    let client = Client::open(&sidecar, None);
    let half = b"GET /mcp HTTP/1.1\r\n";
    // One on a new connection, and one on a connection that was in use.
    let mut connections = [(); 2].map(|()| connect(sidecar.mcp));
    client.request(client.message("ping", &json!({}))).write(&mut connections[0]);
    let mut reader = BufReader::new(connections[0].try_clone().unwrap());
    assert_eq!(Reply::read(&mut reader).unwrap().status, 200);
    for connection in &mut connections {
        connection.write_all(half).unwrap();
    }
    sidecar.signal(Signal::TERM);
    assert!(sidecar.wait(SOON).success());
}

/// Clients keep connections, and nobody has told this one that they end.
#[test]
fn a_request_on_a_connection_that_was_idle_is_answered_too() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "300");
    let client = Client::open(&sidecar, None);
    let mut stream = connect(sidecar.mcp);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    client.request(client.message("ping", &json!({}))).write(&mut stream);
    let mut reply = Reply::read(&mut reader).unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, None));
    sidecar.signal(Signal::TERM);
    sidecar.log(|line| line["message"] == "drained");
    client.request(client.message("ping", &json!({}))).write(&mut stream);
    reply = Reply::read(&mut reader).unwrap();
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    assert!(sidecar.wait(SOON).success());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "60000");
    sidecar.signal(Signal::TERM);
    sidecar.log(|line| line["message"] == "draining");
    sidecar.signal(Signal::INT);
    assert!(!sidecar.wait(SOON).success());
    sidecar.log(|line| line["error"] == "a second signal ended the drain early");
}

/// All calls are over by then, but not all answers are read.
#[test]
fn a_second_signal_is_heard_to_the_end() {
    let server = large();
    let sidecar = sidecar(server.port, "300");
    let client = Client::of(&sidecar, None, "2025-06-18");
    let _unread = begin_to_read(&client);
    sidecar.signal(Signal::TERM);
    sidecar.log(|line| line["message"] == "drained");
    sidecar.signal(Signal::TERM);
    assert!(!sidecar.wait(SOON).success());
    sidecar.log(|line| line["error"] == "a second signal ended the drain early");
}

#[test]
fn the_server_is_held_until_the_pods_calls_have_ended() {
    let (server, [gate, _]) = gated();
    let sidecar = sidecar(server.port, "100");
    let socket = sidecar.files.path("sockets").join(paths::DRAIN_SOCKET);
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    // Its streams stay open until the answer.
    let client = Client::of(&sidecar, None, "2025-06-18");
    let call = begin(&client, &server, "first");
    let mut hook = sidecar.hook();
    sidecar.signal(Signal::TERM);
    assert!(is_held(&mut hook, Duration::from_millis(1000)), "while the call goes on");
    gate.open();
    assert_eq!(answer(call)["result"]["content"][0]["text"], "first");
    assert!(!is_held(&mut hook, SOON), "it is let go");
    drop(client);
    assert!(sidecar.wait(SOON).success());
}

/// On a node that is busy the signal comes long after the hook.
#[test]
fn the_server_is_held_by_a_signal_that_comes_late_too() {
    let (server, [first, second]) = gated();
    let sidecar = sidecar(server.port, "100");
    // Its streams stay open until the answer.
    let client = Client::of(&sidecar, None, "2025-06-18");
    let call = begin(&client, &server, "first");
    let mut hook = sidecar.hook();
    sidecar.log(|line| line["message"] == "the server alone is being restarted");
    let later = begin(&client, &server, "second");
    sidecar.signal(Signal::TERM);
    sidecar.log(|line| line["message"] == "draining");
    first.open();
    assert_eq!(answer(call)["result"]["content"][0]["text"], "first");
    assert!(is_held(&mut hook, Duration::from_millis(1000)), "while the other call goes on");
    second.open();
    assert_eq!(answer(later)["result"]["content"][0]["text"], "second");
    assert!(!is_held(&mut hook, SOON), "it is let go");
    drop(client);
    assert!(sidecar.wait(SOON).success());
}

/// What a call may take has changed, and the pod's grace period has not: it is that of the limit from before.
#[test]
fn a_pod_ends_with_the_time_that_it_was_made_for() {
    for (longest, changed, answered) in [("60000", 1_000, true), ("2000", 60_000, false)] {
        let server = GoServer::start(&[]);
        let mut config = config(server.port);
        config.limits.request_timeout_ms = 60_000;
        let files = Files::new();
        files.write(&config);
        let flags = ["--drain-minimum-ms", "100", "--longest-call-ms", longest];
        let sidecar = Sidecar::with(files, &flags).loaded().ready();
        let client = Client::of(&sidecar, None, "2025-06-18");
        let call = slow_call(&client, 12_000);
        config.limits.request_timeout_ms = changed;
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
        sidecar.signal(Signal::TERM);
        let answer = answer(call);
        if answered {
            assert_eq!(answer["result"]["content"][0]["text"], "took 12000 ms", "{answer}");
        } else {
            let words = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(words.contains("2 seconds"), "{answer}");
        }
        drop(client);
        assert!(sidecar.wait(Duration::from_secs(30)).success());
        assert!(!sidecar.written().contains("calls did not end in time"));
    }
}

#[test]
fn a_server_that_is_restarted_alone_ends_nothing() {
    let (server, [gate, _]) = gated();
    let sidecar = sidecar(server.port, "100");
    let client = Client::open(&sidecar, None);
    let call = begin(&client, &server, "first");
    let mut held = sidecar.hook();
    assert!(is_held(&mut held, Duration::from_millis(1500)), "while the call goes on");
    sidecar.log(|line| line["message"] == "the server alone is being restarted");
    // Calls that begin meanwhile are served and not waited for.
    let later = begin(&client, &server, "second");
    assert_eq!(sidecar.get("/readyz").status, 200);
    gate.open();
    assert_eq!(answer(call)["result"]["content"][0]["text"], "first");
    assert!(!is_held(&mut held, SOON), "it is let go");
    assert!(sidecar.is_running());
    assert_eq!(client.call("echo", json!({"text": "a"}))["result"]["content"][0]["text"], "echo");
    drop(later);
}

/// It is of no use to others, and its calls are of use to those who made them.
#[test]
fn a_server_that_answers_amiss_is_held_for_its_calls_all_the_same() {
    let (pings, gate) = (Arc::<Mutex<VecDeque<_>>>::default(), Gate::default());
    let held = gate.clone();
    let server = Scripted::unlisting(pings.clone(), move |request, stream| {
        held.pass();
        scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": "done"}]}));
    });
    let sidecar = sidecar(server.port, "100");
    // Its streams stay open until the answer.
    let client = Client::of(&sidecar, None, "2025-06-18");
    let call = begin(&client, &server, "slow");
    // It is greeted again, and lists nothing.
    pings.lock().unwrap().push_back((404, "{}"));
    let mut hook = sidecar.hook();
    sidecar.log(|line| line["reason"] == "ListFailed");
    assert!(is_held(&mut hook, Duration::from_secs(8)), "while the call goes on");
    gate.open();
    assert_eq!(answer(call)["result"]["content"][0]["text"], "done");
    assert!(!is_held(&mut hook, SOON), "it is let go");
}

#[test]
fn a_server_that_does_not_answer_is_not_held_for_long() {
    let mut server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "100");
    let client = Client::open(&sidecar, None);
    let call = slow_call(&client, 30_000);
    server.kill();
    assert_eq!(answer(call)["error"]["code"], -32603);
    let mut hook = sidecar.hook();
    assert!(!is_held(&mut hook, Duration::from_secs(8)), "it is let go");
    assert!(sidecar.is_running());
}

/// One ping is enough to know it, while its container waits for its end.
#[test]
fn a_server_that_hangs_is_not_held_for_long() {
    let server = GoServer::start(&[]);
    let sidecar = sidecar(server.port, "100");
    let client = Client::open(&sidecar, None);
    let call = slow_call(&client, 60_000);
    server.hang();
    let mut hook = sidecar.hook();
    sidecar.log(|line| line["detail"] == "the server has not answered a ping, and is to be restarted");
    assert!(!is_held(&mut hook, Duration::from_secs(30)), "it is let go");
    assert!(sidecar.is_running());
    drop(call);
}

#[test]
fn a_restart_takes_the_socket_over() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    files.write(&config(server.port));
    let socket = files.path("sockets").join(paths::DRAIN_SOCKET);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    drop(sidecar.hook());
    assert!(sidecar.is_running());
}

/// An answer that was there when the end began is read to its end, however long that takes, as far as there is time.
#[test]
fn who_reads_an_answer_slowly_is_waited_for() {
    let server = large();
    let sidecar = sidecar(server.port, "300");
    // Of a revision whose clients get an answer whole, however long it takes.
    let client = Client::of(&sidecar, None, "2025-06-18");
    let (mut stream, length) = begin_to_read(&client);
    sidecar.signal(Signal::TERM);
    sidecar.log(|line| line["message"] == "drained");
    // Longer than what has nothing to deliver gets.
    let until = Instant::now() + Duration::from_secs(9);
    let mut body = vec![0; length];
    let (slowly, rest) = body.split_at_mut(64 * 100);
    for piece in slowly.chunks_mut(64) {
        stream.read_exact(piece).unwrap();
        std::thread::sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)));
    }
    stream.read_exact(rest).unwrap();
    assert!(serde_json::from_slice::<Value>(&body).is_ok());
    assert!(sidecar.wait(Duration::from_secs(30)).success());
}

/// Whoever reads the logs may have stopped to: that keeps nobody from being answered, nor from ending.
#[test]
fn logs_that_nobody_reads_hold_nothing_up() {
    /// So many are more than a pipe takes that nobody reads, of either log.
    const LINES: usize = 700;
    let files = Files::new();
    files.write(&config(free_port()));
    let mut sidecar = Sidecar::unread(files, &["--drain-minimum-ms", "0"]).loaded();
    for _ in 0..LINES {
        let ping = Request::post(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string());
        assert!(ping.send(sidecar.mcp).status >= 400, "there is no session");
    }
    sidecar.signal(Signal::TERM);
    assert!(sidecar.wait(SOON).success());
    let left = sidecar.left_unread().lines().count();
    assert!((1..LINES).contains(&left), "{left} lines");
}
