//! Sidecars that are restarted in order, while their pods live.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::client::echo;
use crate::harness::config::{ALICE, on_loss};
use crate::harness::replicas::Network;
use crate::harness::{Client, GoServer, Over, Scripted, Sidecar, config, eventually, scripted};

#[test]
fn a_sidecar_that_ends_alone_moves_nothing() {
    let servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "draining");
    assert_eq!(client.through(&replicas[1]).send("ping", json!({})).status, 200);
    assert_eq!(replicas[1].metric("longshore_sessions"), 0.0);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    assert!(!replicas[0].written().contains("sessions were handed"));
    eventually("it goes on elsewhere in the end", || {
        client.through(&replicas[1]).send("ping", json!({})).status == 200
    });
}

/// Calls that begin while others are under way, by way of another replica, all of which are short. The process does not go
/// on until it is killed with some of them: it ends, and the next one serves the others.
#[test]
fn a_sidecar_that_ends_alone_does_so_though_calls_never_pause() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let mut replicas = network.in_front_of(&config(0), &servers);
    let session = Client::open(&replicas[0], ALICE).session.clone();
    let (stays, ends) = (replicas.pop().unwrap(), replicas.pop().unwrap());
    let (done, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&done);
        for number in 0..4 {
            let (stays, session, done, calls) = (&stays, &session, &done, &calls);
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(200 * number));
                let client = Client::in_session(stays, session).with_key("key-a");
                while !done.load(Ordering::Relaxed) {
                    let slow = json!({"name": "slow", "arguments": {"milliseconds": 700}});
                    let reply = client.send("tools/call", slow);
                    assert!(reply.message()["result"].is_object(), "{number}: {}", reply.text());
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let calls_go_on = |how_many| {
            let before = calls.load(Ordering::Relaxed);
            eventually("they call", || calls.load(Ordering::Relaxed) >= before + how_many);
        };
        calls_go_on(4);
        ends.signal(Signal::TERM);
        assert!(ends.wait(Duration::from_secs(12)).success());
        let files = ends.files.clone();
        drop(ends);
        let back = network.start_again(1, "pod-1", files).ready();
        calls_go_on(8);
        assert_eq!(back.metric("longshore_sessions_taken_total{how=\"restarted\"}"), 1.0);
        // It lives as long as they call.
        back
    });
}

/// A server that is of no use by then is there nevertheless, and so are its sessions.
#[test]
fn a_sidecar_that_ends_alone_beside_a_server_that_answers_amiss_moves_nothing() {
    let pings = Arc::<Mutex<VecDeque<_>>>::default();
    let servers = [pings.clone(), Arc::default()]
        .map(|pings| Scripted::unlisting(pings, |_, stream| scripted::no_stream(stream)));
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
    let _client = Client::open(&replicas[0], ALICE);
    // It is greeted again, and lists nothing.
    pings.lock().unwrap().push_back((404, "{}"));
    replicas[0].log(|line| line["reason"] == "ListFailed");
    replicas[0].signal(Signal::TERM);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    assert!(!replicas[0].written().contains("sessions were handed"));
}

/// Its pod lives, and so does what the server there knows of its sessions: they are waited for.
#[test]
fn a_sidecar_that_ends_alone_comes_back_to_its_sessions() {
    for what in [OnOwnerLoss::NotFound, OnOwnerLoss::Reinitialize] {
        let servers = [(); 2].map(|()| GoServer::start(&[]));
        let network = Network::new();
        let mut replicas = network.in_front_of(&on_loss(config(0), what), &servers);
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
