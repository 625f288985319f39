//! What comes to a pod that ends, until its end.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::config::{ALICE, on_loss};
use crate::harness::http::{Reply, connect};
use crate::harness::replicas::Network;
use crate::harness::{Client, GoServer, Over, Request, client, config, eventually};

/// Calls that follow each other without a gap, each of them longer than a replica waits at its very end.
#[test]
fn calls_that_never_pause_are_not_cut_where_sessions_cannot_move() {
    let mut servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let mut config = config(0);
    config.limits.request_timeout_ms = 7_000;
    let replicas = network.in_front_of(&config, &servers);
    // Its streams stay open until the answer.
    let session = Client::of(&replicas[0], ALICE, "2025-06-18").session.clone();
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (entry, session, begun) = (&replicas[1], &session, &begun);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(1_250 * number));
                let mut client = Client::in_session(entry, session).with_key("key-a");
                client.revision = "2025-06-18";
                loop {
                    begun.fetch_add(1, Ordering::Relaxed);
                    let reply = client
                        .send("tools/call", json!({"name": "slow", "arguments": {"milliseconds": 5_000}}));
                    if reply.status == 404 {
                        // Its client begins anew, and nothing has happened yet.
                        break;
                    }
                    assert!(reply.message()["result"].is_object(), "{number}: {}", reply.text());
                }
            });
        }
        eventually("all of them call", || begun.load(Ordering::Relaxed) >= 4);
        let mut hook = replicas[0].hook();
        replicas[0].signal(Signal::TERM);
        // What the kubelet does then.
        assert_eq!(std::io::Read::read(&mut hook, &mut [0]).unwrap(), 0);
        servers[0].kill();
    });
    replicas[0].audit(|line| line["reason"] == "session ends with its replica" && line["status"] == 404);
    assert!(replicas[0].wait(Duration::from_secs(10)).success());
    drop(servers);
}

/// Each of these sessions has a call under way at any time, until new ones wait for a moment: also those that come in a
/// batch, which goes on at the next pod one by one.
#[test]
fn sessions_that_are_never_idle_move_too() {
    for (revision, batched) in [("2025-11-25", false), ("2025-03-26", true)] {
        let servers = [(); 2].map(|()| GoServer::start(&[]));
        let network = Network::new();
        let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
        let session = Client::of(&replicas[0], ALICE, revision).session.clone();
        let (done, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _over = Over(&done);
            for number in 0..3 {
                let (entry, session, done, calls) = (&replicas[1], &session, &done, &calls);
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(300 * number));
                    let mut client = Client::in_session(entry, session).with_key("key-a");
                    client.revision = revision;
                    let slow = json!({"name": "slow", "arguments": {"milliseconds": 900}});
                    while !done.load(Ordering::Relaxed) {
                        let call = client.message("tools/call", &slow);
                        let text = if batched { format!("[{call}]") } else { call };
                        let message = answer(&client.request(text).send(entry.mcp));
                        assert!(message["result"].is_object(), "{number}, {revision}: {message}");
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            eventually("all of them call", || calls.load(Ordering::Relaxed) >= 3);
            let hook = replicas[0].hook();
            replicas[0].signal(Signal::TERM);
            replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
            assert!(
                replicas[0].wait(Duration::from_secs(10)).success(),
                "it does not take as long as it might"
            );
            drop(hook);
        });
        assert_eq!(replicas[1].metric("longshore_sessions"), 1.0);
    }
}

/// The one answer in a response of any form.
fn answer(reply: &Reply) -> Value {
    match reply.header("content-type") {
        Some("application/json") => match reply.message() {
            Value::Array(mut answers) => answers.remove(0),
            answer => answer,
        },
        _ => serde_json::from_str(reply.events().last().unwrap()).unwrap(),
    }
}

/// Has a pod end in which this client has a call under way, and waits until it takes no more of them by that way. The call
/// and the server's hook go on until these are dropped.
fn ends_during_a_call(client: &Client<'_>, way: &Client<'_>) -> (TcpStream, UnixStream) {
    let replica = client.sidecar;
    let stream = client.begin(&json!({"name": "slow", "arguments": {"milliseconds": 15_000}}));
    eventually("the call is under way", || replica.metric("longshore_calls") == 1.0);
    let hook = replica.hook();
    replica.signal(Signal::TERM);
    eventually("no more calls are taken", || takes_no_call(way));
    (stream, hook)
}

fn takes_no_call(way: &Client<'_>) -> bool {
    way.send("tools/call", json!({"name": "echo", "arguments": {"text": "e"}})).status == 404
}

/// Its client names the session from before still, which a pod that ends keeps for a call that is under way.
#[test]
fn who_begins_anew_does_so_while_its_session_ends() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    let _under_way = ends_during_a_call(&client, &client.through(&replicas[1]));
    let begin = Request::post(client::initialize("2025-11-25")).key("key-a");
    let reply = begin.header("mcp-session-id", &client.session).send(replicas[1].mcp);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_ne!(reply.header("mcp-session-id"), Some(&*client.session));
    replicas[1].audit(|line| line["method"] == "initialize" && line["decision"] == "permit");
    assert_eq!(replicas[0].metric("longshore_calls"), 1.0, "the call goes on");
}

/// Errors that answer what is in it would not have its client begin anew.
#[test]
fn a_batch_in_a_session_that_ends_is_refused_as_a_whole() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::of(&replicas[0], ALICE, "2025-03-26");
    let through = client.through(&replicas[1]);
    let _under_way = ends_during_a_call(&client, &through);
    let echo = json!({"name": "echo", "arguments": {"text": "e"}});
    for client in [&client, &through] {
        let [call, ping, other] = [("tools/call", &echo), ("ping", &json!({})), ("ping", &json!({}))]
            .map(|(method, params)| client.message(method, params));
        let reply = client.request(format!("[{call},{ping}]")).send(client.sidecar.mcp);
        assert_eq!(reply.status, 404, "{}", reply.text());
        let reply = client.request(format!("[{other}]")).send(client.sidecar.mcp);
        assert_eq!(reply.status, 200, "what is no call is heard: {}", reply.text());
    }
}

/// The hook of a server that dies goes with it, and so does one whose kubelet starts again.
#[test]
fn a_pod_that_ends_does_so_whatever_becomes_of_the_servers_hook() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    let (_call, hook) = ends_during_a_call(&client, &client);
    drop(hook);
    replicas[0].log(|line| line["message"] == "the server's preStop hook closed its connection");
    assert!(takes_no_call(&client));
}

/// The others are there, and too busy to say so in time.
#[test]
fn a_call_that_comes_last_waits_for_replicas_that_are_silent() {
    let mut servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
    let client = Client::open(&replicas[0], ALICE);
    let mut stream = connect(replicas[0].mcp);
    replicas[1].signal(Signal::STOP);
    let mut hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    assert_eq!(std::io::Read::read(&mut hook, &mut [0]).unwrap(), 0);
    let slow = json!({"name": "slow", "arguments": {"milliseconds": 500}});
    client.request(client.message("tools/call", &slow)).write(&mut stream);
    // What the kubelet does then.
    std::thread::sleep(Duration::from_millis(250));
    servers[0].kill();
    replicas[1].signal(Signal::CONT);
    let reply = Reply::on(stream);
    assert!(reply.message()["result"].is_object(), "{}", reply.text());
    assert!(replicas[0].wait(Duration::from_secs(10)).success());
}

/// It comes when nobody was waited for any more, and takes longer than last words do.
#[test]
fn a_call_that_comes_last_is_answered_by_its_own_replica() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[1], ALICE);
    let mut stream = connect(replicas[0].mcp);
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "drained");
    let slow = json!({"name": "slow", "arguments": {"milliseconds": 7_000}});
    client.request(client.message("tools/call", &slow)).write(&mut stream);
    let reply = Reply::on(stream);
    assert!(reply.message()["result"].is_object(), "{}", reply.text());
    assert!(replicas[0].wait(Duration::from_secs(60)).success());
    drop(hook);
}
