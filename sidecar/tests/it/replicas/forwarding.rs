//! Requests that come to a replica that does not serve their session.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use longshore_sidecar_config::{OnOwnerLoss, ports};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::config::{ALICE, callers, keys, on_loss, session_key};
use crate::harness::http::{Reply, connect, read_chunk};
use crate::harness::replicas::{Network, knows, with_peers};
use crate::harness::scripted::Greeting;
use crate::harness::{
    Client, Events, Files, Gate, GoServer, Request, Scripted, Sidecar, config, eventually, scripted, within,
};

fn echo(client: &Client<'_>, text: &str) {
    let message = client.call("echo", json!({"text": text}));
    assert_eq!(message["result"]["content"][0]["text"], text, "{message}");
}

/// Two replicas with another flag, of which the second knows the first.
fn replicas_with(network: &Network, servers: &[GoServer; 2], flag: [&str; 2]) -> Vec<Sidecar> {
    network.list(&[1, 2]);
    let replicas: Vec<_> = (1..)
        .zip(servers)
        .map(|(number, server)| {
            let files = Files::new();
            files.write_with_keys(&with_peers(&config(server.port)), &keys(&[("alice", "key-a")]));
            let mut flags = network.flags(number, &format!("pod-{number}"));
            flags.extend(flag.map(str::to_owned));
            Sidecar::with(files, &flags.iter().map(String::as_str).collect::<Vec<_>>()).loaded()
        })
        .collect();
    let replicas: Vec<_> = replicas.into_iter().map(Sidecar::ready).collect();
    knows(&replicas[1], 1);
    replicas
}

fn forwarded(sidecar: &Sidecar, result: &str) -> f64 {
    sidecar.metric(&format!("longshore_forwarded_requests_total{{result=\"{result}\"}}"))
}

#[test]
fn every_replica_serves_every_session_of_its_principal() {
    let servers = [(); 3].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    for (number, replica) in replicas.iter().enumerate() {
        echo(&client.through(replica), &format!("through {number}"));
    }
    assert_eq!([0, 1, 2].map(|number| forwarded(&replicas[number], "answered")), [0.0, 1.0, 1.0]);
    // The owner alone decides and says so, and the token has stayed where it came.
    for _ in 0..3 {
        replicas[0]
            .audit(|line| line["target"] == "echo" && line["principal"] == "alice" && line["status"] == 200);
    }
    assert_eq!(replicas[1].audit_lines(), 0);

    // Nobody else's, by whichever way.
    let mut other = client.through(&replicas[1]);
    other.key = Some("key-b".to_owned());
    assert_eq!(other.send("ping", json!({})).status, 404);
    other.key = None;
    assert_eq!(other.send("ping", json!({})).status, 401);

    assert_eq!(client.through(&replicas[1]).end().status, 204);
    for replica in &replicas {
        assert_eq!(client.through(replica).send("ping", json!({})).status, 404);
    }
}

/// Which of its keys a client has come with only the replica knows that it came to.
#[test]
fn a_stream_that_comes_from_another_replica_ends_with_the_key_that_opened_it() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let both = keys(&[("alice", "key-a"), ("alice", "key-2")]);
    for (replica, server) in replicas.iter().zip(&servers) {
        replica.runs(&replica.files.write_with_keys(&with_peers(&config(server.port)), &both));
    }
    let client = Client::open(&replicas[0], Some("key-2"));
    let mut there = client.through(&replicas[1]);
    let mut stream = Events::open(&there.get(), replicas[1].mcp);
    stream.any().unwrap();
    let left = keys(&[("alice", "key-a")]);
    for (replica, server) in replicas.iter().zip(&servers) {
        replica.runs(&replica.files.write_with_keys(&with_peers(&config(server.port)), &left));
    }
    assert!(stream.next().is_none(), "it is closed");
    there.key = Some("key-a".to_owned());
    assert_eq!(Events::open(&there.get(), replicas[1].mcp).status, 200, "whoever has the other key goes on");
}

/// Clients listen for as long as they like, and most of them do.
#[test]
fn who_listens_through_another_replica_takes_no_calls_place() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = replicas_with(&network, &servers, ["--max-calls", "1"]);
    let client = Client::open(&replicas[0], ALICE);
    let there = client.through(&replicas[1]);
    let stream = Events::open(&there.get(), replicas[1].mcp);
    assert_eq!(stream.status, 200);
    echo(&there, "there is room");
    assert_eq!(forwarded(&replicas[1], "answered"), 2.0);
}

/// A replica is no caller: what comes by way of it was counted there, and takes nobody's connections here.
#[test]
fn who_listens_through_another_replica_has_its_connections_there() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = replicas_with(&network, &servers, ["--max-connections", "4"]);
    let clients: Vec<_> = (0..5).map(|_| Client::open(&replicas[0], ALICE)).collect();
    let listens: Vec<_> = (0..4)
        .map(|at| Events::open(&clients[at].get(), replicas[at / 2].mcp))
        .inspect(|events| assert_eq!(events.status, 200))
        .collect();
    for replica in &replicas {
        assert_eq!(clients[4].get().send(replica.mcp).status, 429);
        replica.audit(|line| line["reason"] == "too many connections of one caller");
    }
    drop(listens);
}

#[test]
fn workers_and_connections_make_no_difference() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = replicas_with(&network, &servers, ["--workers", "3"]);
    let sessions: Vec<_> = (0..8).map(|_| Client::open(&replicas[0], ALICE).session).collect();
    std::thread::scope(|scope| {
        for (number, session) in sessions.iter().enumerate() {
            let entry = &replicas[1];
            scope.spawn(move || {
                let mut client = Client::open(entry, ALICE);
                client.session.clone_from(session);
                for round in 0..20 {
                    echo(&client, &format!("{number}-{round}"));
                }
            });
        }
    });
    assert_eq!(forwarded(&replicas[1], "answered"), 160.0);
}

#[test]
fn what_is_forwarded_keeps_its_bytes_and_its_size_has_the_same_bound() {
    let server = Scripted::start(|request, stream| {
        let size = scripted::message(request)["params"]["arguments"]["text"].as_str().unwrap().len();
        scripted::reply(stream, request, &json!({"text": "y".repeat(size)}));
    });
    let network = Network::new();
    let replicas = network.replicas(&config(0), &[server.port; 2]);
    let client = Client::open(&replicas[0], ALICE);
    let other = client.through(&replicas[1]);
    for size in [0, 10, 60_000, 70_000, 3_000_000] {
        let message = other.call("t", json!({"text": "x".repeat(size)}));
        assert_eq!(message["result"]["text"].as_str().unwrap().len(), size);
    }
    let seen = server.seen("tools/call").len();
    let mut stream = connect(replicas[1].mcp);
    let head = other.request("").head() + "content-length: 5000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(Reply::on(stream).status, 413);
    // What the entry refuses never leaves it.
    let foreign = other.request(other.message("ping", &json!({}))).header("origin", "https://evil.example");
    assert_eq!(foreign.send(replicas[1].mcp).status, 403);
    assert_eq!(server.seen("tools/call").len(), seen);
    // Tokens and cookies stay at the entry; what belongs to the message goes on.
    let request = other
        .request(other.message("tools/call", &json!({"name": "t", "arguments": {"text": "x"}})))
        .header("cookie", "c=1")
        .header("longshore-principal", "Ym9i")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(request.send(replicas[1].mcp).status, 200);
    let headers = server.seen("tools/call").pop().unwrap().headers;
    assert!(headers.iter().any(|(name, _)| name == "traceparent"));
    assert!(
        headers
            .iter()
            .all(|(name, _)| !["cookie", "authorization", "longshore-principal"].contains(&&**name))
    );
    replicas[0].audit(|line| line["principal"] == "alice");
}

#[test]
fn streams_are_forwarded_as_they_come() {
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let server = Scripted::start(move |request, stream| {
        scripted::begin_events(stream);
        scripted::chunk(
            stream,
            "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":1}}\n\n",
        );
        let _ = wait.lock().unwrap().recv();
        scripted::chunk(
            stream,
            &format!("data: {}\n\n", scripted::reply_to(request, &json!({"done": true}))),
        );
        scripted::write(stream, "0\r\n\r\n");
    });
    let network = Network::new();
    let replicas = network.replicas(&config(0), &[server.port; 2]);
    let client = Client::open(&replicas[0], ALICE);
    let other = client.through(&replicas[1]);
    let begin = || {
        let mut reader = BufReader::new(other.begin(&json!({"name": "t"})));
        assert_eq!(Reply::read_head(&mut reader).unwrap().0, 200);
        // The sidecar's own first event comes before it.
        while !String::from_utf8(read_chunk(&mut reader).unwrap().unwrap()).unwrap().contains("progress") {}
        reader
    };
    let mut reader = begin();
    go_on.send(()).unwrap();
    let mut rest = String::new();
    while let Some(chunk) = read_chunk(&mut reader).unwrap() {
        rest.push_str(&String::from_utf8(chunk).unwrap());
    }
    assert!(rest.contains("\"done\":true"), "{rest}");

    // A client that goes away is gone for the owner too, and the call goes on there.
    let reader = begin();
    eventually("the call is under way", || replicas[0].metric("longshore_calls") == 1.0);
    drop(reader);
    eventually("the entry has let it go", || replicas[1].descriptors() > 0);
    go_on.send(()).unwrap();
    eventually("the call has ended", || replicas[0].metric("longshore_calls") == 0.0);
}

/// What a client says last is served wherever its session is, though it has gone by then.
#[test]
fn a_client_that_goes_cancels_nothing_at_another_replica() {
    const CALLS: usize = 20;
    let server = Scripted::start(|request, stream| scripted::reply(stream, request, &json!({"content": []})));
    let network = Network::new();
    let replicas = network.replicas(&config(0), &[server.port; 2]);
    let client = Client::open(&replicas[0], ALICE);
    let other = client.through(&replicas[1]);
    for number in 1..=CALLS {
        let message = other.message("tools/call", &json!({"name": "t", "arguments": {"number": number}}));
        let mut stream = connect(replicas[1].mcp);
        other.request(message).write(&mut stream);
        drop(stream);
        within(Duration::from_secs(30), "the server hears of it", || {
            server.seen("tools/call").len() == number
        });
    }
    assert_eq!(server.seen("notifications/cancelled").len(), 0);
    eventually("the calls have ended", || replicas[0].metric("longshore_calls") == 0.0);
    // The end of the session too.
    let mut stream = connect(replicas[1].mcp);
    Request::new("DELETE", "/mcp").session(&other.session).key("key-a").write(&mut stream);
    drop(stream);
    eventually("the session has ended", || replicas[0].metric("longshore_sessions") == 0.0);
}

/// A client may pause for longer than replicas wait for each other's words.
#[test]
fn a_client_that_pauses_holds_up_nobody_and_misses_nothing() {
    const PAUSE: Duration = Duration::from_secs(15);
    // Together far more than waits anywhere between the server and the client.
    const EVENTS: usize = 400;
    let server = Scripted::start(|request, stream| {
        if scripted::message(request)["params"]["name"] == "echo" {
            return scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": "here"}]}));
        }
        scripted::begin_events(stream);
        let data = "x".repeat(64 << 10);
        for number in 0..EVENTS {
            let params = json!({"progressToken": 1, "progress": number, "message": data});
            let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            scripted::say(stream, &note);
        }
        let answer = scripted::reply_to(request, &json!({"content": []}));
        scripted::say(stream, &answer);
        scripted::write(stream, "0\r\n\r\n");
    });
    let network = Network::new();
    let mut config = config(0);
    config.limits.request_timeout_ms = 120_000;
    let replicas = network.replicas(&config, &[server.port; 2]);
    let client = Client::open(&replicas[0], ALICE);
    let other = client.through(&replicas[1]);
    let mut events = other.stream("t", json!({}));
    let next = |events: &mut Events| serde_json::from_str::<Value>(&events.next().unwrap().data).unwrap();
    assert_eq!(next(&mut events)["params"]["progress"], 0);
    let until = Instant::now() + PAUSE;
    while Instant::now() < until {
        echo(&other, "here");
        std::thread::sleep(Duration::from_millis(100));
    }
    for number in 1..EVENTS {
        assert_eq!(next(&mut events)["params"]["progress"], number);
    }
    assert!(next(&mut events)["result"].is_object());
    assert_eq!(forwarded(&replicas[1], "lost"), 0.0);
}

/// Its time begins when its session is there, which may take longer than the call may.
#[test]
fn a_call_waits_for_its_session_also_by_way_of_another_replica() {
    const REVISION: &str = "2025-03-26";
    // Some of them go to the second replica, and others to the third.
    const SESSIONS: usize = 8;
    let (gate, lost) = (Gate::default(), GoServer::start(&[]));
    let next = [(); 2].map(|()| {
        let greeting = Greeting::At(gate.clone());
        Scripted::greeting_again(REVISION, greeting, |request, stream| {
            scripted::reply(stream, request, &json!({"content": []}));
        })
    });
    let network = Network::new();
    let mut config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    config.limits.request_timeout_ms = 2_000;
    let replicas = network.replicas(&config, &[lost.port, next[0].port, next[1].port]);
    let sessions = [(); SESSIONS].map(|()| Client::of(&replicas[0], ALICE, REVISION).session);
    replicas[0].signal(Signal::KILL);
    network.list(&[2, 3]);
    std::thread::scope(|scope| {
        let entry = &replicas[1];
        let calls = sessions.each_ref().map(|session| {
            scope.spawn(move || {
                let mut client = Client::in_session(entry, session).with_key("key-a");
                client.revision = REVISION;
                client.send("tools/call", json!({"name": "t"}))
            })
        });
        let begins = |it: &&Request| scripted::message(it)["params"]["protocolVersion"] == REVISION;
        let begun = |server: &Scripted| server.seen_all().iter().filter(begins).count();
        eventually("all are begun", || next.iter().map(begun).sum::<usize>() >= SESSIONS);
        // Longer than the call may take, and the wait for it beyond that.
        std::thread::sleep(Duration::from_secs(8));
        gate.open();
        for call in calls {
            let reply = call.join().unwrap();
            assert!(reply.message()["result"].is_object(), "{}", reply.text());
        }
    });
}

#[test]
fn a_replica_that_dies_with_a_call_is_an_error_with_its_id() {
    let (begun, wait) = channel::<()>();
    let begun = Mutex::new(begun);
    let server = Scripted::start(move |request, stream| {
        if scripted::message(request)["params"]["name"] == "events" {
            scripted::begin_events(stream);
            scripted::chunk(stream, ": first\n\n");
        }
        let _ = begun.lock().unwrap().send(());
        scripted::until_closed(stream);
    });
    let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    for tool in ["json", "events"] {
        let network = Network::new();
        let replicas = network.replicas(&config, &[server.port; 2]);
        let client = Client::open(&replicas[0], ALICE);
        let other = client.through(&replicas[1]);
        let text = other.message("tools/call", &json!({"name": tool}));
        let id = serde_json::from_str::<Value>(&text).unwrap()["id"].clone();
        let request = other.request(text);
        let reply = std::thread::scope(|scope| {
            let call = scope.spawn(|| request.send(replicas[1].mcp));
            wait.recv().unwrap();
            if tool == "events" {
                eventually("the stream has begun", || forwarded(&replicas[1], "answered") == 1.0);
            }
            replicas[0].signal(Signal::KILL);
            call.join().unwrap()
        });
        assert_eq!(reply.status, 200);
        let message = reply.message();
        assert_eq!((&message["id"], &message["error"]["code"]), (&id, &json!(-32603)), "{message}");
        if tool == "events" {
            // Some clients come back once more where their streams end with an error.
            let (_, last) = reply.text().rsplit_once("id: ").expect("the last event has one");
            let rest = other.rest(last.lines().next().unwrap());
            network.list(&[2]);
            assert_eq!(rest.send(replicas[1].mcp).status, 204);
        }
        assert_eq!(forwarded(&replicas[1], "lost"), 1.0);
        let line =
            replicas[1].audit(|line| line["reason"] == "replica broke off" && line["method"] == "tools/call");
        assert_eq!(line["decision"], "permit", "it may have been made");
    }
}

#[test]
fn a_replica_that_hangs_is_a_clear_error_until_it_answers_again() {
    let servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    let other = client.through(&replicas[1]);
    echo(&other, "before");
    replicas[0].signal(Signal::STOP);
    // It may be alive behind a broken network, so nobody else takes its session.
    let reply = within(Duration::from_secs(25), "an error", || {
        let reply = other.send("ping", json!({}));
        (reply.status == 503).then_some(reply)
    });
    assert!(reply.message()["error"]["message"].is_string(), "{}", reply.text());
    assert_eq!(reply.header("retry-after"), Some("1"));
    replicas[0].signal(Signal::CONT);
    eventually("it is served again", || other.send("ping", json!({})).status == 200);
    echo(&other, "after");
    assert_eq!(replicas[1].metric("longshore_sessions"), 0.0, "it has stayed where it was");
    let _ = Request::new("GET", "/healthz").send(replicas[0].admin);
}

/// The local ports of the connections that are open to this address, as the kernel shows them.
fn connections_to(address: std::net::Ipv4Addr) -> std::collections::BTreeSet<u16> {
    const ESTABLISHED: &str = "01";
    let to = format!("{:08X}:{:04X}", u32::from_le_bytes(address.octets()), ports::PEERS);
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let open = lines.filter(|line| line.len() > 3 && line[2] == to && line[3] == ESTABLISHED);
    open.map(|line| u16::from_str_radix(line[1].split_once(':').unwrap().1, 16).unwrap()).collect()
}

/// A connection goes on for as long as the keys do that it was made with, and what is called meanwhile is answered.
#[test]
fn connections_do_not_outlive_their_keys() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    let through = client.through(&replicas[1]);
    echo(&through, "before");
    let before = eventually("there are connections", || {
        let open = [1, 2].map(|number| connections_to(network.address(number)));
        (!open.iter().any(|open| open.is_empty())).then_some(open)
    });
    // Another key is accepted, then used by all, and then the first one is taken away.
    for (accepted, used) in [(&[1, 2][..], 1), (&[1, 2], 2), (&[2], 2)] {
        for (replica, server) in replicas.iter().zip(&servers) {
            let mut config = with_peers(&config(server.port));
            config.sessions.seal_with = used;
            let mut keys = callers();
            keys.sessions = accepted.iter().map(|id| session_key(*id)).collect();
            replica.runs(&replica.files.write_with_keys(&config, &keys));
        }
        if accepted.contains(&1) {
            echo(&through, "meanwhile");
        }
    }
    eventually("none of them is open", || {
        [1, 2]
            .into_iter()
            .zip(&before)
            .all(|(number, before)| connections_to(network.address(number)).is_disjoint(before))
    });
    // The others know each other still.
    replicas.iter().for_each(|replica| knows(replica, 1));
    let client = Client::open(&replicas[0], ALICE);
    echo(&client.through(&replicas[1]), "after");
}

/// Who shows no key is in nobody's way, and makes room for the next who does not.
#[test]
fn strangers_at_the_port_for_replicas_keep_no_replica_out() {
    let (network, servers) = (Network::new(), [(); 2].map(|()| GoServer::start(&[])));
    let replicas = replicas_with(&network, &servers, ["--max-connections", "64"]);
    let client = Client::open(&replicas[0], ALICE);
    let port = (network.address(1), ports::PEERS).into();
    let silent: Vec<_> = (0..400).map(|_| connect(port)).collect();
    for round in 0..3 {
        echo(&client.through(&replicas[1]), &format!("beside strangers, {round}"));
    }
    // Sooner than who takes its time with the handshake.
    silent[0].set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let oldest = (&silent[0]).read(&mut [0]);
    assert!(!oldest.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "the oldest makes room");
    drop(silent);
}
