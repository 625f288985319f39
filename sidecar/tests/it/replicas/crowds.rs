//! Clients that are many at one replica, by way of others.

use std::time::{Duration, Instant};

use crate::harness::client::echo;
use crate::harness::config::callers;
use crate::harness::replicas::{Network, knows, with_peers};
use crate::harness::{Client, Events, Files, GoServer, Sidecar, config, eventually};

/// A replica of that number with other flags.
fn start(network: &Network, number: u8, server: &GoServer, more: &[&str]) -> Sidecar {
    let files = Files::new();
    let keys = callers();
    files.write_with_keys(&with_peers(&config(server.port)), &keys);
    let flags = network.flags(number, &format!("pod-{number}"));
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Sidecar::with(files, &flags).loaded()
}

/// Two replicas, of which the first has these flags and is known to the second.
fn two(network: &Network, servers: &[GoServer], more: &[&str]) -> [Sidecar; 2] {
    network.list(&[1, 2]);
    let (first, second) = (start(network, 1, &servers[0], more), start(network, 2, &servers[1], &[]));
    let replicas = [first.ready(), second.ready()];
    knows(&replicas[1], 1);
    replicas
}

/// A new session at the first replica, whose client listens by way of the second.
fn listen(replicas: &[Sidecar; 2], key: &str) -> Events {
    let client = Client::open(&replicas[0], Some(key));
    Events::open(&client.through(&replicas[1]).get(), replicas[1].mcp)
}

/// Whoever comes to it would take silence for its death.
#[test]
fn a_replica_that_many_listen_to_by_way_of_others_answers_all_others() {
    const SOON: Duration = Duration::from_secs(6);
    let servers = [(); 3].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = two(&network, &servers, &["--max-connections", "4"]);
    let crowd = [(); 8].map(|()| listen(&replicas, "key-a"));
    assert_eq!(crowd.each_ref().map(|events| events.status), [200; 8]);
    let client = Client::open(&replicas[0], Some("key-a"));
    network.list(&[1, 2, 3]);
    let third = start(&network, 3, &servers[2], &[]).ready();
    knows(&third, 2);
    for replica in [&third, &replicas[1]] {
        let began = Instant::now();
        (0..20).for_each(|_| echo(&client.through(replica)));
        assert!(began.elapsed() < SOON, "after {:?}", began.elapsed());
    }
    assert_eq!(third.metric("longshore_forwarded_requests_total{result=\"answered\"}"), 20.0);
}

#[test]
fn who_listens_by_way_of_others_leaves_room_for_others() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = two(&network, &servers, &["--max-calls", "8"]);
    let four = |key| [(); 4].map(|()| Some(listen(&replicas, key)).filter(|events| events.status == 200));
    let is_refused = |key, status, why: &str| {
        assert_eq!(listen(&replicas, key).status, status, "{key}");
        replicas[0].audit(|line| line["method"] == "GET" && line["reason"] == why);
    };
    let alices = four("key-a");
    is_refused("key-a", 429, "too many calls of one caller");
    let bobs = four("key-b");
    is_refused("key-b", 503, "too many calls");
    assert!(alices.iter().chain(&bobs).all(Option::is_some));
    // Who calls has other places.
    let client = Client::open(&replicas[0], Some("key-a"));
    echo(&client.through(&replicas[1]));
    drop((alices, bobs));
    eventually("there is room again", || listen(&replicas, "key-a").status == 200);
}
