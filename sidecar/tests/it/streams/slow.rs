//! Clients that read slowly or not at all, and servers that do not stop.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, SockRef, Socket, Type};

use super::{answer, argument, event, note};
use crate::harness::http::connect;
use crate::harness::replicas::Network;
use crate::harness::{
    Client, Events, Gate, Request, Scripted, Sidecar, config, eventually, scripted, within,
};

/// A server that says as much as anybody takes.
fn flood() -> Scripted {
    Scripted::listening(|request, stream| {
        if request.method == "POST" && argument(request, "flood") != json!(true) {
            scripted::json(stream, &answer(request));
            return;
        }
        scripted::begin_events(stream);
        let text: String = (0..200).map(|number| event(&note(number))).collect();
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        while std::io::Write::write_all(stream, chunk.as_bytes()).is_ok() {}
    })
}

#[test]
fn whoever_does_not_read_costs_little_and_nobody_else() {
    let server = flood();
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 15_000;
    config.sessions.resume.max_bytes = 1 << 20;
    let sidecar = Sidecar::flagged(&config, &["--max-stream-bytes", "20000000"]);
    let other = Client::open(&sidecar, None);
    other.call("t", json!({}));
    let before = sidecar.memory();

    let clients: Vec<_> = (0..12).map(|_| Client::open(&sidecar, None)).collect();
    let mut connections = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let request = if number % 2 == 0 {
            client.get()
        } else {
            client.request(client.message("tools/call", &json!({"name": "t", "arguments": {"flood": true}})))
        };
        let mut stream = connect(sidecar.mcp);
        request.write(&mut stream);
        connections.push(stream);
    }
    // Some read a byte now and then, some nothing at all, and some went away while their call goes on.
    let until = Instant::now() + Duration::from_secs(3);
    let mut byte = [0];
    connections.drain(8..);
    while Instant::now() < until {
        for stream in connections.iter_mut().take(4) {
            stream.read_exact(&mut byte).unwrap();
        }
        // The others are served.
        for _ in 0..20 {
            other.call("t", json!({}));
        }
        let (memory, held) = (sidecar.memory(), sidecar.metric("longshore_stream_bytes"));
        assert!(memory < before + (60 << 20), "{before} {memory}");
        assert!(held < 25e6, "{held}");
    }
    drop(connections);
    eventually("the calls end by their time-out", || sidecar.metric("longshore_calls") == 0.0);
    other.call("t", json!({}));
}

/// Each costs what is on its way to it, and all of them together what may be kept.
#[test]
fn many_who_do_not_read_cost_little_each() {
    const CLIENTS: u64 = 60;
    // Beyond what may be held: less than what would wait for one of them otherwise.
    const ONE_EVENT: u64 = 8 << 10;
    // What is under way to one, in the kernel for a part of it, can be asked for again.
    for (kept, each) in [(48_000_000_u64, 512 << 10), (8_000_000, 224 << 10), (1_000_000, 224 << 10)] {
        let server = flood();
        let sidecar = Sidecar::flagged(&config(server.port), &["--max-stream-bytes", &kept.to_string()]);
        let client = Client::open(&sidecar, None);
        client.call("t", json!({}));
        let before = sidecar.memory();
        let clients: Vec<_> = (0..CLIENTS).map(|_| Client::open(&sidecar, None)).collect();
        let connections: Vec<_> = clients
            .iter()
            .map(|client| {
                let flood = json!({"name": "t", "arguments": {"flood": true}});
                let mut stream = connect(sidecar.mcp);
                // It takes little itself, whatever the machine would.
                SockRef::from(&stream).set_recv_buffer_size(32 << 10).unwrap();
                client.request(client.message("tools/call", &flood)).write(&mut stream);
                stream
            })
            .collect();
        eventually("all are under way", || sidecar.metric("longshore_streams") >= 60.0);
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            client.call("t", json!({}));
            let (memory, held) = (sidecar.memory(), sidecar.metric("longshore_stream_bytes"));
            assert!(memory < before + (6 << 20) + CLIENTS * each, "{before} {memory} {held}");
        }
        eventually("no more is held than may be", || {
            let held = sidecar.metric("longshore_stream_bytes");
            held <= (kept + CLIENTS * ONE_EVENT) as f64
        });
        drop(connections);
    }
}

/// Of larger events there is one at the sidecar and little more on its way, where there is not room for all.
#[test]
fn many_who_do_not_read_large_events_cost_little_each() {
    const CLIENTS: u64 = 200;
    // What a call takes that is under way, an event here and one on its way, and what is read ahead of it.
    const EACH: u64 = 140 << 10;
    let server = Scripted::start(|request, stream| {
        if argument(request, "flood") != json!(true) {
            return scripted::json(stream, &answer(request));
        }
        scripted::begin_events(stream);
        let params = json!({"level": "info", "data": "x".repeat(8_000)});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
        let event = event(&note.to_string());
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        while std::io::Write::write_all(stream, chunk.as_bytes()).is_ok() {}
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-stream-bytes", "1000000"]);
    let client = Client::open(&sidecar, None);
    client.call("t", json!({}));
    let before = sidecar.memory();
    let flood = json!({"name": "t", "arguments": {"flood": true}});
    let sessions: Vec<_> = (0..CLIENTS / 10).map(|_| Client::open(&sidecar, None)).collect();
    let connections: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = &sessions[usize::try_from(number / 10).unwrap()];
            let mut stream = connect(sidecar.mcp);
            SockRef::from(&stream).set_recv_buffer_size(16 << 10).unwrap();
            client.request(client.message("tools/call", &flood)).write(&mut stream);
            stream
        })
        .collect();
    eventually("all are under way", || sidecar.metric("longshore_streams") >= CLIENTS as f64);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        // Whoever reads is served.
        client.call("t", json!({}));
        let memory = sidecar.memory();
        assert!(memory < before + (4 << 20) + CLIENTS * EACH, "{before} {memory}");
    }
    drop(connections);
}

/// One at a time may take more room than there is. Whoever has that for a client that reads nothing gives it to others, and
/// not only when the connection is given up, a minute later.
#[test]
fn whoever_does_not_read_keeps_nobody_from_large_answers_for_long() {
    const HALF: usize = 30_000;
    let server = Scripted::listening(|request, stream| {
        let half = "x".repeat(HALF);
        scripted::begin_events(stream);
        if request.method == "POST" {
            let result = json!({"content": [{"type": "text", "text": half}]});
            let event = event(&scripted::reply_to(request, &result));
            let (start, end) = event.split_at(HALF);
            scripted::chunk(stream, start);
            scripted::chunk(stream, end);
            return scripted::write(stream, "0\r\n\r\n");
        }
        // Each piece has the end of one event and the beginning of the next.
        let begin =
            r#"data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""#;
        let mut piece = format!("{begin}{half}");
        loop {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            if std::io::Write::write_all(stream, chunk.as_bytes()).is_err() {
                return;
            }
            piece = format!("{half}\"}}}}\n\n{begin}{half}");
        }
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-held-bytes", "100000"]);
    let other = Client::open(&sidecar, None);
    let call = || other.send("tools/call", json!({"name": "t", "arguments": {}})).message();
    // It is one only if the end of what the machine gives at once leaves enough of an event.
    let _silent = eventually("one has more than its share", || {
        let client = Client::open(&sidecar, None);
        let mut stream = connect(sidecar.mcp);
        SockRef::from(&stream).set_recv_buffer_size(32 << 10).unwrap();
        client.get().write(&mut stream);
        (0..50).any(|_| call()["error"].is_object()).then_some((client, stream))
    });
    within(Duration::from_secs(55), "the other has its turn", || call()["result"].is_object());
}

/// A client that comes back only to what breaks off has all of that by then, however slowly it is written, also by way of
/// another replica: otherwise it would come back for the same again and again.
#[test]
fn what_was_kept_is_whole_before_its_stream_breaks_off() {
    for by in 0..2 {
        let (asked, gate) = (AtomicUsize::new(0), Gate::default());
        let says = gate.clone();
        let server = Scripted::listening(move |request, stream| {
            if request.method == "POST" {
                return scripted::json(stream, &answer(request));
            }
            if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                return scripted::no_stream(stream);
            }
            scripted::begin_events(stream);
            scripted::chunk(stream, &event(&note(1)));
            says.pass();
            let data = "x".repeat(60_000) + " the end";
            let params = json!({"level": "info", "data": data});
            let large = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
            scripted::chunk(stream, &event(&large.to_string()));
            scripted::write(stream, "0\r\n\r\n");
        });
        let network = Network::new();
        let replicas = network.replicas(&config(server.port), &[server.port; 2]);
        let client = Client::of(&replicas[0], Some("key-a"), "2025-06-18");
        let mut first = Events::open(&client.get(), replicas[by].mcp);
        assert_eq!(super::said(&first.next().unwrap()), "1");
        let last = first.last.clone();
        drop(first);
        gate.open();
        eventually("it has been asked again", || server.seen("GET").len() > 1);
        let got = read_slowly(&client.rest(&last), replicas[by].mcp);
        assert!(got.contains("the end"), "{} bytes by way of {by}", got.len());
        assert!(!got.ends_with("\r\n0\r\n\r\n"), "it breaks off");
    }
}

/// What comes to somebody a long way off, where the machine takes little of it at once, who has other things to do first.
fn read_slowly(request: &Request, at: SocketAddr) -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.set_tcp_mss(536).unwrap();
    socket.connect(&at.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    request.write(&mut stream);
    std::thread::sleep(Duration::from_millis(200));
    let mut got = Vec::new();
    // However it is closed.
    let _ = stream.read_to_end(&mut got);
    String::from_utf8_lossy(&got).into_owned()
}

/// What the one before had yet to read, its client has read by another connection.
#[test]
fn whoever_takes_the_place_of_one_that_does_not_read_hears_what_comes() {
    let (server, tell) = super::told();
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::of(&sidecar, None, "2025-06-18");
    let mut first = super::open(&client);
    let params = json!({"level": "info", "data": "x".repeat(6_000)});
    let large = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string();
    // More than the machine takes, and all of it is kept.
    let ids: Vec<_> = (0..150)
        .map(|_| {
            tell.send(Some(event(&large))).unwrap();
            first.next().unwrap().id
        })
        .collect();
    let mut silent = connect(sidecar.mcp);
    SockRef::from(&silent).set_recv_buffer_size(16 << 10).unwrap();
    client.rest(&ids[0]).write(&mut silent);
    assert!(first.next().is_none(), "it has the place");
    // The server is read no further after this, which nobody hears.
    tell.send(Some(": nothing\n\n".to_owned())).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut next = Events::open(&client.rest(&first.last), sidecar.mcp);
    assert_eq!(next.status, 200);
    tell.send(Some(event(&note(1)))).unwrap();
    assert_eq!(super::said(&next.next().unwrap()), "1");
}

#[test]
fn a_slow_client_gets_everything_in_its_own_time() {
    let server = Scripted::listening(|request, stream| {
        scripted::begin_events(stream);
        for number in 0..3000 {
            scripted::chunk(stream, &event(&note(number)));
        }
        if request.method == "POST" {
            scripted::chunk(stream, &event(&answer(request)));
            scripted::write(stream, "0\r\n\r\n");
        } else {
            scripted::until_closed(stream);
        }
    });
    let mut config = config(server.port);
    // Far less than what is said: what is slow is waited for.
    config.sessions.resume.max_bytes = 1000;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    for mut stream in [Events::open(&client.get(), sidecar.mcp), client.stream("t", json!({}))] {
        for number in 0..3000 {
            if number % 300 == 0 {
                std::thread::sleep(Duration::from_millis(100));
            }
            assert_eq!(super::said(&stream.next().unwrap()), number.to_string());
        }
    }
}
