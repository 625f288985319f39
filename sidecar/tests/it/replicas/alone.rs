//! Sidecars that are restarted in order, while their pods live.

use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::client::echo;
use crate::harness::replicas::Network;
use crate::harness::{Client, GoServer, Sidecar, config, eventually};

const ALICE: Option<&str> = Some("key-a");

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

/// Its pod lives, and so does what the server there knows of its sessions: they are waited for.
#[test]
fn a_sidecar_that_ends_alone_comes_back_to_its_sessions() {
    for what in [OnOwnerLoss::NotFound, OnOwnerLoss::Reinitialize] {
        let servers = [(); 2].map(|()| GoServer::start(&[]));
        let network = Network::new();
        let mut config = config(0);
        config.sessions.on_owner_loss = what;
        let mut replicas = network.replicas(&config, &servers.each_ref().map(|server| server.port));
        let session = Client::open(&replicas[0], ALICE).session;
        let (stays, ends) = (replicas.pop().unwrap(), replicas.pop().unwrap());
        ends.signal(Signal::TERM);
        assert!(ends.wait(Duration::from_secs(20)).success());
        let files = ends.files.clone();
        drop(ends);
        let go_on = |replica: &Sidecar| echo(&Client::in_session(replica, &session).with_key("key-a"));
        std::thread::scope(|scope| {
            // Whoever asks the other one waits until it is back.
            let waits = scope.spawn(|| go_on(&stays));
            let back = network.start_again(1, "pod-1", files).ready();
            [&back, &stays].into_iter().for_each(go_on);
            waits.join().unwrap();
            assert_eq!(back.metric("longshore_sessions_taken_total{how=\"restarted\"}"), 1.0, "{what:?}");
            let held = [&back, &stays].map(|replica| replica.metric("longshore_sessions"));
            assert_eq!(held, [1.0, 0.0], "{what:?}");
        });
    }
}
