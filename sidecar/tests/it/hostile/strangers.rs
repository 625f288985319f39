//! Those of whom nothing is known: what they hold, and whom they are in the way of.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::config::keys;
use crate::harness::http::connect;
use crate::harness::peer::free_port;
use crate::harness::replicas::Network;
use crate::harness::{
    Client, Files, GoServer, Reply, Request, Scripted, Sidecar, config, eventually, scripted,
};

/// Connections on which the beginning of a head of this many bytes was sent.
fn beginnings(to: SocketAddr, count: usize, bytes: usize) -> Vec<TcpStream> {
    let head = format!("GET /mcp HTTP/1.1\r\nx: {}", "y".repeat(bytes));
    let open = (0..count).map(|_| {
        let mut stream = connect(to);
        // It may be closed while it writes.
        let _ = stream.write_all(head.as_bytes());
        stream.set_nonblocking(true).unwrap();
        stream
    });
    open.collect()
}

/// A sidecar that has so many connections at the most.
fn with_places(server: &GoServer, most: &str) -> Sidecar {
    Sidecar::flagged(&config(server.port), &["--max-connections", most]).ready()
}

/// Whether the sidecar has left this connection.
fn is_closed(stream: &TcpStream) -> bool {
    let mut stream = stream;
    !matches!(stream.read(&mut [0; 512]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn heads_that_never_end_are_held_within_a_bound() {
    let server = Scripted::start(|request, stream| scripted::reply(stream, request, &json!({"content": []})));
    let network = Network::new();
    let replicas = network.replicas(&config(0), &[server.port; 2]);
    let sidecar = &replicas[0];
    let client = Client::open(sidecar, Some("key-a"));
    let there = client.through(&replicas[1]);
    let call = |client: &Client<'_>| {
        let params = json!({"name": "t", "arguments": {"text": "x".repeat(20_000)}});
        client.request(client.message("tools/call", &params))
    };
    // From connections that have read much before more is read at once.
    let mut kept = connect(sidecar.mcp);
    let mut answers = BufReader::new(kept.try_clone().unwrap());
    let mut call_again = || {
        call(&client).write(&mut kept);
        Reply::read(&mut answers).map(|reply| reply.status)
    };
    for _ in 0..8 {
        assert_eq!(call_again().unwrap(), 200);
    }
    // 24 MB of which 16 MiB, and what each connection may have anyway, are held.
    let large = beginnings(sidecar.mcp, 400, 60_000);
    eventually("some are closed", || large.iter().any(is_closed));
    let small = beginnings(sidecar.mcp, 100, 5_000);
    eventually("there is no room at all", || small.iter().any(is_closed));
    assert_eq!(client.send("ping", json!({})).status, 200);
    // What is large and no head always has room.
    assert_eq!(call(&client).send(sidecar.mcp).status, 200);
    assert_eq!(call_again().unwrap(), 200);
    for _ in 0..3 {
        let reply = call(&there).send(replicas[1].mcp);
        assert!(reply.message()["result"].is_object(), "{}", reply.text());
    }
    assert!(sidecar.memory() < 64 << 20, "{} bytes", sidecar.memory());
    // What they held is free again.
    drop((large, small));
    eventually("there is room for large heads again", || {
        let large = beginnings(sidecar.mcp, 200, 60_000);
        std::thread::sleep(std::time::Duration::from_millis(100));
        !large.iter().any(is_closed)
    });
}

#[test]
fn probes_are_answered_whoever_else_is_connected_to_the_admin_port() {
    let server = Scripted::start(|_, stream| scripted::no_stream(stream));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let silent = beginnings(sidecar.admin, 300, 0);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(sidecar.get(path).status, 200, "{path}");
    }
    drop(silent);
}

/// They wait for the server together with the kubelet, each again and again.
#[test]
fn probes_of_strangers_hold_up_no_other_at_the_admin_port() {
    const SOON: Duration = Duration::from_secs(5);
    let sidecar = Sidecar::start(&config(free_port()));
    let probes = Request::new("GET", "/readyz").bytes().repeat(10);
    let strangers = [(); 200].map(|()| {
        let mut stream = connect(sidecar.admin);
        // It may be closed while it writes.
        let _ = stream.write_all(&probes);
        stream.set_nonblocking(true).unwrap();
        stream
    });
    let is_answered = |stream: &TcpStream| matches!(stream.peek(&mut [0]), Ok(1..));
    eventually("some are answered, and ask again", || strangers.iter().any(is_answered));
    for path in ["/healthz", "/metrics"] {
        let began = Instant::now();
        assert_eq!(sidecar.get(path).status, 200, "{path}");
        assert!(began.elapsed() < SOON, "{path} after {:?}", began.elapsed());
    }
    drop(strangers);
}

#[test]
fn clients_get_through_whoever_else_is_connected() {
    let server = GoServer::start(&[]);
    let sidecar = with_places(&server, "8");
    let client = Client::open(&sidecar, Some("key-a"));
    let call = |id: u64, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        client.request(
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string(),
        )
    };
    // One keeps its connection, and one waits for an answer.
    let mut kept = connect(sidecar.mcp);
    call(101, "echo", json!({"text": "a"})).write(&mut kept);
    let mut kept_reader = BufReader::new(kept.try_clone().unwrap());
    assert_eq!(Reply::read(&mut kept_reader).unwrap().status, 200);
    let mut waits = connect(sidecar.mcp);
    call(102, "slow", json!({"milliseconds": 1500})).write(&mut waits);
    let silent = beginnings(sidecar.mcp, 30, 0);
    eventually("the oldest make room", || silent[..20].iter().all(is_closed));
    assert_eq!(client.send("ping", json!({})).status, 200);
    call(103, "echo", json!({"text": "b"})).write(&mut kept);
    assert_eq!(Reply::read(&mut kept_reader).unwrap().status, 200, "strangers make room first");
    assert_eq!(Reply::on(waits).status, 200);
    assert!(sidecar.metric("longshore_connections") <= 8.0);
}

/// However often they are refused while nobody reads the log.
#[test]
fn strangers_push_nobody_else_out_of_the_audit_log() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    files.write_with_keys(&config(server.port), &keys(&[("alice", "key-a")]));
    let mut sidecar = Sidecar::unread(files, &["--drain-minimum-ms", "0"]).loaded().ready();
    let refused = Request::new("GET", "/mcp").bytes().repeat(100);
    let mut flood = connect(sidecar.mcp);
    let mut answers = flood.try_clone().unwrap();
    let answers = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    let lost = || sidecar.metric("longshore_audit_lines_lost_total");
    eventually("lines are lost", || {
        flood.write_all(&refused).unwrap();
        lost() > 0.0
    });
    let client = Client::open(&sidecar, Some("key-a"));
    client.call("echo", json!({"text": "a"}));
    flood.shutdown(Shutdown::Write).unwrap();
    answers.join().unwrap().unwrap();
    let lost = lost();
    sidecar.signal(Signal::TERM);
    let left = sidecar.left_unread();
    let lines: Vec<Value> = left.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["target"] == "echo" && line["principal"] == "alice"));
    let counted: f64 = lines.iter().filter_map(|line| line["lost"].as_f64()).sum();
    assert_eq!(counted, lost);
}

#[test]
fn connections_wait_while_all_others_wait_for_answers() {
    let server = GoServer::start(&[]);
    let sidecar = with_places(&server, "2");
    let [first, second, third] = [(); 3].map(|()| {
        let client = Client::open(&sidecar, Some("key-a"));
        client.request("").with_method("GET").with("accept", "text/event-stream")
    });
    let busy = [first, second].map(|stream| {
        let mut listens = connect(sidecar.mcp);
        stream.write(&mut listens);
        let head = Reply::read_head(&mut BufReader::new(listens.try_clone().unwrap())).unwrap();
        assert_eq!(head.0, 200);
        listens
    });
    let mut waits = connect(sidecar.mcp);
    third.write(&mut waits);
    waits.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut early = [0; 300];
    let read = waits.read(&mut early);
    assert!(read.is_err(), "it is not served yet: {read:?} {}", String::from_utf8_lossy(&early));
    drop(busy);
    waits.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(Reply::read_head(&mut BufReader::new(waits)).unwrap().0, 200);
}
