//! How replicas find and know each other.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use longshore_sidecar_config::{Config, Keys, ports};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::client::echo;
use crate::harness::config::{keys, session_key};
use crate::harness::replicas::{Network, knows, with_peers};
use crate::harness::{Client, Files, GoServer, Sidecar, config, eventually, within};

fn alive(sidecar: &Sidecar, state: &str) -> f64 {
    sidecar.metric(&format!("longshore_replicas{{state=\"{state}\"}}"))
}

#[test]
fn replicas_find_each_other_and_notice_who_comes_drains_and_goes() {
    let server = GoServer::start(&[]);
    let network = Network::ending_slowly();
    let mut replicas = network.replicas(&config(server.port), &[server.port; 2]);
    // One more, which DNS lists to it alone at first: who is greeted knows of it.
    let third = network.start(3, &config(server.port));
    eventually("it greets the others", || alive(&third, "serving") == 2.0);
    let third = third.ready();
    for replica in &replicas {
        knows(replica, 2);
    }
    // One that drains says so at once.
    replicas[0].signal(Signal::TERM);
    within(Duration::from_secs(15), "it is seen to drain", || alive(&third, "serving") == 1.0);
    assert!(replicas.remove(0).wait(Duration::from_secs(60)).success());
    eventually("it is gone", || alive(&third, "draining") == 0.0);
}

/// Name servers keep answers for up to half a minute, and all of them are behind for as long where the API server was
/// away. Pods are Ready meanwhile, and clients come to any of them.
#[test]
fn sessions_are_served_by_way_of_replicas_that_dns_does_not_list_yet() {
    let mut servers = [(); 3].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let start = |number: u8, server: &GoServer| network.start(number, &config(server.port)).ready();
    // To whoever comes first it lists nobody at all.
    let first = start(1, &servers[0]);
    let second = start(2, &servers[1]);
    assert_eq!(alive(&second, "serving"), 0.0);
    let client = Client::open(&first, Some("key-a"));
    echo(&client.through(&second));
    knows(&second, 1);
    knows(&first, 1);
    assert_eq!(first.metric("longshore_sessions"), 1.0);

    // It lists those two for long, and another one comes, whom they hear.
    network.list(&[1, 2]);
    let third = start(3, &servers[2]);
    for replica in [&first, &second] {
        knows(replica, 2);
    }
    // The first is lost with all of its processes: whoever takes the session is certain that nobody else does.
    first.signal(Signal::KILL);
    servers[0].kill();
    for replica in [&third, &second] {
        echo(&client.through(replica));
    }
    let holders = [&second, &third].map(|replica| replica.metric("longshore_sessions"));
    assert_eq!(holders.iter().sum::<f64>(), 1.0, "one replica holds it: {holders:?}");
}

/// Two rollouts within the time for which name servers keep answers: all of those whom they list are gone.
#[test]
fn replicas_that_dns_overlooks_meet_by_way_of_the_service() {
    let mut servers = [(); 4].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    network.list(&[1]);
    let first = network.start(1, &config(servers[0].port)).ready();
    let second = network.start_at(1, 2, &config(servers[1].port)).ready();
    let client = Client::open(&first, Some("key-a"));
    knows(&first, 1);
    knows(&second, 1);
    // By then whoever was there has vouched for whoever has come, which nobody sees. A rollout takes longer.
    let introduced = || std::thread::sleep(Duration::from_secs(5));
    introduced();
    let hook = first.hook();
    first.signal(Signal::TERM);
    first.log(|line| line["message"] == "sessions were handed to other replicas");
    assert!(first.wait(Duration::from_secs(10)).success());
    drop(hook);

    let third = network.start_at(2, 3, &config(servers[2].port)).ready();
    let fourth = network.start_at(3, 4, &config(servers[3].port)).ready();
    for replica in [&second, &third, &fourth] {
        knows(replica, 2);
        echo(&client.through(replica));
    }
    introduced();
    // They vouch for each other: what is lost with one of them is taken by another one.
    second.signal(Signal::KILL);
    servers[1].kill();
    echo(&client.through(&third));
    echo(&client.through(&fourth));
    let holders = [&third, &fourth].map(|replica| replica.metric("longshore_sessions"));
    assert_eq!(holders.iter().sum::<f64>(), 1.0, "one replica holds it: {holders:?}");
}

/// What a replica says where DNS does not answer.
const ASKS_DNS: &str = "cannot find out which other replicas there are";

/// DNS lists a pod a moment after it starts, and where it was asked before it keeps for long that it does not.
#[test]
fn where_nobody_is_ready_yet_dns_is_asked_later() {
    let servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    network.fail();
    let begun = Instant::now();
    let asks_dns = |line: &Value| line["message"] == ASKS_DNS;
    // Nobody is ever there. That is not known at once: the Service is as new.
    let unknown = TcpListener::bind((network.address(9), ports::PEERS)).unwrap();
    let alone = network.start_at(9, 1, &config(servers[0].port));
    std::thread::sleep(Duration::from_secs(1));
    drop(unknown);
    let alone = alone.ready();
    alone.log(asks_dns);
    assert!(begun.elapsed() >= Duration::from_secs(20));
    // Soon after somebody is, also if it is the replica itself, DNS lists whoever is there.
    let first = network.start_at(3, 2, &config(servers[0].port)).ready();
    let begun = Instant::now();
    let second = network.start_at(3, 3, &config(servers[1].port));
    // Whoever is led to one that waits, waits as well.
    loop {
        let written = [&first, &second].map(|replica| replica.written());
        // This was written before that time, or is not looked at.
        if begun.elapsed() >= Duration::from_secs(2) {
            break;
        }
        assert!(written.iter().all(|written| !written.contains(ASKS_DNS)));
        std::thread::sleep(Duration::from_millis(100));
    }
    for replica in [&first, &second] {
        replica.log(asks_dns);
        knows(replica, 1);
    }
}

#[test]
fn a_replica_with_other_keys_is_nobodys_peer() {
    let server = GoServer::start(&[]);
    let network = Network::new();
    let replicas = network.replicas(&config(server.port), &[server.port; 2]);
    network.list(&[1, 2, 3]);
    let strange = Keys { sessions: vec![session_key(9)], ..keys(&[]) };
    let seal_with = |id| {
        let mut config = config(server.port);
        config.sessions.seal_with = id;
        config
    };
    let stranger = network.start_with(3, &seal_with(9), &strange);
    stranger.log(|line| line["message"] == "no connection to another replica");
    // It becomes ready all the same: who cannot be reached holds nobody up for ever.
    let stranger = stranger.ready();
    assert_eq!(alive(&stranger, "serving"), 0.0);
    replicas[0].log(|line| line["message"] == "a connection at the port for replicas was refused");
    assert_eq!(alive(&replicas[0], "serving"), 1.0);

    // With both keys it is one of them, whichever it shows; and connections that stand are not closed for it.
    let both = Keys { sessions: vec![session_key(1), session_key(9)], ..keys(&[]) };
    for replica in replicas.iter().chain([&stranger]) {
        let digest = replica.files.write_with_keys(&with_peers(&seal_with(9)), &both);
        replica.runs(&digest);
    }
    for replica in replicas.iter().chain([&stranger]) {
        knows(replica, 2);
    }
}

#[test]
fn nobody_listens_without_a_configuration_of_replicas() {
    let server = GoServer::start(&[]);
    let network = Network::new();
    network.list(&[1]);
    let files = Files::new();
    let alone: Config = config(server.port);
    files.write(&alone);
    let replica = network.start_again(1, "pod-1", files).ready();
    let address = (network.address(1), ports::PEERS);
    assert!(std::net::TcpStream::connect(address).is_err());
    replica.files.write(&with_peers(&alone));
    eventually("it listens", || std::net::TcpStream::connect(address).ok());
}
