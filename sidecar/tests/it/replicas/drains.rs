//! Pods that end in an orderly way.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_sidecar_config::{OnOwnerLoss, paths};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::replicas::Network;
use crate::harness::{
    Client, Events, GoServer, Request, Scripted, Sidecar, client, config, eventually, modern, scripted,
};

const ALICE: Option<&str> = Some("key-a");

/// What `shim drain` does.
fn hook(sidecar: &Sidecar) -> UnixStream {
    let mut stream = UnixStream::connect(sidecar.files.path("sockets").join(paths::DRAIN_SOCKET)).unwrap();
    stream.write_all(b"drain\n").unwrap();
    stream
}

#[test]
fn a_pod_that_ends_hands_its_sessions_over_and_loses_no_call() {
    for (flags, what) in [(&["-stateless"][..], OnOwnerLoss::NotFound), (&[][..], OnOwnerLoss::Reinitialize)]
    {
        let mut servers = [(); 3].map(|()| GoServer::start(flags));
        let network = Network::new();
        let mut config = config(0);
        config.sessions.on_owner_loss = what;
        let replicas = network.replicas(&config, &servers.each_ref().map(|server| server.port));
        let done = AtomicBool::new(false);
        let sessions: Vec<_> = (0..12).map(|_| Client::open(&replicas[0], ALICE).session).collect();
        std::thread::scope(|scope| {
            for (number, session) in sessions.iter().enumerate() {
                let (replicas, done) = (&replicas, &done);
                scope.spawn(move || {
                    let mut client = Client::open(&replicas[1 + number % 2], ALICE);
                    client.session.clone_from(session);
                    for round in 0.. {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        // Some calls are under way when it happens.
                        let tool = json!({"name": "slow", "arguments": {"milliseconds": 10 * (number % 4)}});
                        let reply = client.send("tools/call", tool);
                        let message = reply.message();
                        assert_eq!(reply.status, 200, "{number} in round {round}: {message}");
                        assert!(message["result"].is_object(), "{number} in round {round}: {message}");
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(200));
            let hook = hook(&replicas[0]);
            replicas[0].signal(Signal::TERM);
            // New sessions begin where they can stay.
            let opened = Request::post(client::initialize("2025-11-25")).key("key-a").send(replicas[0].mcp);
            assert_eq!(opened.status, 200, "{}", opened.text());
            replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
            assert!(replicas[0].wait(Duration::from_secs(20)).success());
            drop(hook);
            servers[0].kill();
            network.list(&[2, 3]);
            std::thread::sleep(Duration::from_millis(500));
            done.store(true, Ordering::Relaxed);
        });
        let held = [1, 2].map(|number| replicas[number].metric("longshore_sessions"));
        // Theirs, those that each thread opened, and the one that began in the drain.
        assert_eq!(held.iter().sum::<f64>(), 12.0 + 12.0 + 1.0, "{held:?}");
    }
}

/// A client that has read everything of its stream comes back to another pod, and goes on there.
#[test]
fn the_stream_of_a_session_that_moves_goes_on_elsewhere() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let mut config = config(0);
    config.sessions.on_owner_loss = OnOwnerLoss::Reinitialize;
    let replicas = network.replicas(&config, &servers.each_ref().map(|server| server.port));
    let clients = [(); 2].map(|()| Client::open(&replicas[0], ALICE));
    let mut streams = clients.each_ref().map(|client| Events::open(&client.get(), replicas[0].mcp));
    clients[0].call("grow", json!({"name": "new"}));
    for stream in &mut streams {
        assert_eq!(stream.next().unwrap().message()["method"], "notifications/tools/list_changed");
    }
    let hook = hook(&replicas[0]);
    replicas[0].signal(Signal::TERM);
    for stream in &mut streams {
        assert_eq!(stream.any().unwrap().retry, Some(1000));
        assert!(stream.any().is_none());
    }
    replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
    eventually("they are there", || (replicas[1].metric("longshore_sessions") == 2.0).then_some(()));
    let [first, second] = &clients;
    let mut again = Events::open(&first.rest(&streams[0].last), replicas[1].mcp);
    assert_eq!(again.status, 200);
    first.through(&replicas[1]).call("grow", json!({"name": "newer"}));
    assert_eq!(again.next().unwrap().message()["method"], "notifications/tools/list_changed");
    // An event before it would be a gap, and so would be the same one again.
    let (prefix, number) = streams[1].last.rsplit_once('-').unwrap();
    let before = format!("{prefix}-{}", number.parse::<u64>().unwrap() - 1);
    assert_eq!(second.rest(&before).send(replicas[1].mcp).status, 400);
    drop(again);
    assert_eq!(first.rest(&streams[0].last).send(replicas[1].mcp).status, 400);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    drop(hook);
}

/// What stands alone is served by a replica that goes on, and a drain does not wait for who only listens.
#[test]
fn what_stands_alone_is_taken_elsewhere_in_a_drain() {
    let servers = [(); 2].map(|()| {
        Scripted::of_both(json!({}), |request, stream| {
            if scripted::message(request)["method"] == "subscriptions/listen" {
                let told = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"});
                scripted::begin_events(stream);
                scripted::chunk(stream, &format!("data: {told}\n\n"));
                let _ = std::io::Read::read(stream, &mut [0]);
            } else {
                scripted::json(stream, &scripted::reply_to(request, &json!({"resultType": "complete"})));
            }
        })
    });
    let network = Network::new();
    let replicas = network.replicas(&config(0), &servers.each_ref().map(|server| server.port));
    let call = || modern::request(1, "tools/call", json!({"name": "t"})).key("key-a").send(replicas[0].mcp);
    let listen = || {
        let params = json!({"notifications": {"toolsListChanged": true}});
        Events::open(&modern::request("l", "subscriptions/listen", params).key("key-a"), replicas[0].mcp)
    };
    assert_eq!(call().status, 200);
    let mut before = listen();
    before.next().unwrap();
    let seen = || servers.each_ref().map(|server| server.seen("tools/call").len());
    assert_eq!(seen(), [1, 0]);

    let hook = hook(&replicas[0]);
    replicas[0].signal(Signal::TERM);
    assert_eq!(before.next().unwrap().message()["result"]["resultType"], "complete");
    assert!(before.next().is_none(), "it ends in order");
    assert_eq!(call().status, 200);
    assert_eq!(seen(), [1, 1]);
    let mut during = listen();
    assert_eq!(during.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(servers[1].seen("subscriptions/listen").len(), 1);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    drop(hook);
}

/// The hook of a server that is crash-looping never runs.
#[test]
fn a_pod_whose_server_is_gone_hands_its_sessions_over_too() {
    let mut servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.replicas(&config(0), &servers.each_ref().map(|server| server.port));
    let client = Client::open(&replicas[0], ALICE);
    servers[0].kill();
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
    assert_eq!(client.send("ping", json!({})).status, 200, "the client's own connection leads there still");
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    assert_eq!(client.through(&replicas[1]).send("ping", json!({})).status, 200);
    assert_eq!(replicas[1].metric("longshore_sessions"), 1.0);
}

#[test]
fn a_sidecar_that_ends_alone_moves_nothing() {
    let servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.replicas(&config(0), &servers.each_ref().map(|server| server.port));
    let client = Client::open(&replicas[0], ALICE);
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "draining");
    assert_eq!(client.through(&replicas[1]).send("ping", json!({})).status, 200);
    assert_eq!(replicas[1].metric("longshore_sessions"), 0.0);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    assert!(!replicas[0].written().contains("sessions were handed"));
    eventually("it goes on elsewhere in the end", || {
        (client.through(&replicas[1]).send("ping", json!({})).status == 200).then_some(())
    });
}
