//! Replicas that die, and what becomes of their sessions.

use longshore_sidecar_config::{Config, OnOwnerLoss};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::replicas::{Network, knows, with_peers};
use crate::harness::{Client, Files, Gate, GoServer, Scripted, config, eventually};

const ALICE: Option<&str> = Some("key-a");

fn on_loss(what: OnOwnerLoss) -> Config {
    let mut config = config(0);
    config.sessions.on_owner_loss = what;
    config
}

fn echo(client: &Client<'_>) {
    let message = client.call("echo", json!({"text": "a"}));
    assert_eq!(message["result"]["content"][0]["text"], "a", "{message}");
}

#[test]
fn sessions_of_a_dead_pod_go_on_where_they_can() {
    for (flags, what, goes_on) in [
        (&["-stateless"][..], OnOwnerLoss::NotFound, true),
        (&[][..], OnOwnerLoss::Reinitialize, true),
        (&[][..], OnOwnerLoss::NotFound, false),
    ] {
        let mut servers = [(); 3].map(|()| GoServer::start(flags));
        let network = Network::new();
        let replicas = network.replicas(&on_loss(what), &servers.each_ref().map(|server| server.port));
        let lost = Client::open(&replicas[0], ALICE);
        let kept = Client::open(&replicas[1], ALICE);
        echo(&lost.through(&replicas[1]));
        // All processes of the pod at once, and DNS hears of it.
        replicas[0].signal(Signal::KILL);
        servers[0].kill();
        network.list(&[2, 3]);
        if goes_on {
            for round in 0..4 {
                echo(&lost.through(&replicas[1 + round % 2]));
            }
            let holders = [1, 2].map(|number| replicas[number].metric("longshore_sessions"));
            assert_eq!(holders.iter().sum::<f64>(), 2.0, "one replica holds it: {holders:?}");
        } else {
            for replica in &replicas[1..] {
                assert_eq!(lost.through(replica).send("ping", json!({})).status, 404);
            }
        }
        for replica in &replicas[1..] {
            echo(&kept.through(replica));
        }
    }
}

/// Its client begins anew, and finds a pod that has room.
#[test]
fn a_session_that_is_lost_is_lost_also_where_there_is_no_room() {
    let mut servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let mut config = on_loss(OnOwnerLoss::NotFound);
    config.sessions.per_principal = 1;
    let replicas = network.replicas(&config, &servers.each_ref().map(|server| server.port));
    let [lost, kept] = [0, 1].map(|number| Client::open(&replicas[number], ALICE));
    replicas[0].signal(Signal::KILL);
    servers[0].kill();
    network.list(&[2]);
    assert_eq!(lost.through(&replicas[1]).send("ping", json!({})).status, 404);
    echo(&kept);
}

#[test]
fn another_pod_at_the_address_is_not_the_owner() {
    let servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.replicas(&config(0), &servers.each_ref().map(|server| server.port));
    let client = Client::open(&replicas[0], ALICE);
    replicas[0].signal(Signal::KILL);
    let _ = replicas[0].wait(std::time::Duration::from_secs(5));
    let files = Files::new();
    files.write_with_keys(
        &with_peers(&config(servers[0].port)),
        &crate::harness::config::keys(&[("alice", "key-a"), ("bob", "key-b")]),
    );
    let newcomer = network.start_again(1, "pod-9", files).ready();
    knows(&newcomer, 1);
    knows(&replicas[1], 1);
    for replica in [&replicas[1], &newcomer, &replicas[1]] {
        echo(&client.through(replica));
    }
    let holders = [&replicas[1], &newcomer].map(|replica| replica.metric("longshore_sessions"));
    assert_eq!(holders.iter().sum::<f64>(), 1.0, "{holders:?}");
}

/// A client takes 200 for the end of its session, and nothing else does.
#[test]
fn an_end_that_is_lost_with_its_replica_is_noted_where_it_came() {
    let gate = Gate::default();
    let servers = [(); 2].map(|()| Scripted::ending(&gate));
    let network = Network::new();
    let config = on_loss(OnOwnerLoss::Reinitialize);
    let replicas = network.replicas(&config, &servers.each_ref().map(|server| server.port));
    let client = Client::open(&replicas[0], ALICE);
    let other = client.through(&replicas[1]);
    std::thread::scope(|scope| {
        let (other, session) = (&replicas[1], &other.session);
        let ended = scope.spawn(move || Client::in_session(other, session).with_key("key-a").end());
        eventually("it is on its way", || (!servers[0].seen("DELETE").is_empty()).then_some(()));
        replicas[0].signal(Signal::KILL);
        assert_eq!(ended.join().unwrap().status, 204);
    });
    assert_eq!(other.send("ping", json!({})).status, 404);
    replicas[1].audit(|line| line["method"] == "DELETE" && line["status"] == 204);
    gate.open();
}

#[test]
fn an_ended_session_never_lives_again() {
    let mut servers = [(); 3].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.replicas(&config(0), &servers.each_ref().map(|server| server.port));
    let client = Client::open(&replicas[0], ALICE);
    assert_eq!(client.through(&replicas[1]).end().status, 204);
    replicas[0].signal(Signal::KILL);
    servers[0].kill();
    for replica in &replicas[1..] {
        assert_eq!(client.through(replica).send("ping", json!({})).status, 404);
    }
    // One that was not there then has been told before it is ready.
    network.list(&[2, 3, 4]);
    let newcomer = network.start(4, &config(servers[1].port)).ready();
    for replica in &replicas[1..] {
        replica.signal(Signal::KILL);
    }
    network.list(&[4]);
    assert_eq!(client.through(&newcomer).send("ping", json!({})).status, 404);
    eventually("only it is left", || {
        (newcomer.metric("longshore_replicas{state=\"serving\"}") == 0.0).then_some(())
    });
    assert_eq!(client.through(&newcomer).send("ping", json!({})).status, 404);
}
