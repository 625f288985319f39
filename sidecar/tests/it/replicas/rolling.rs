//! A rolling update, as a Deployment does it: one pod more, then one less, until all are new.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::config::on_loss;
use crate::harness::replicas::{Network, knows};
use crate::harness::{Client, GoServer, Over, Request, Sidecar, config, eventually};

/// One pod: a sidecar, and its server.
struct Pod {
    number: u8,
    sidecar: Sidecar,
    server: GoServer,
}

fn start(network: &Network, number: u8) -> Pod {
    let server = GoServer::start(&[]);
    let config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    Pod { number, sidecar: network.start(number, &config).ready(), server }
}

#[test]
fn a_rolling_update_loses_no_call_and_no_session() {
    let network = Network::new();
    network.list(&[1, 2, 3]);
    let mut pods: VecDeque<Pod> = (1..=3).map(|number| start(&network, number)).collect();
    // Where a Service would send connections.
    let endpoints = Mutex::new(pods.iter().map(|pod| pod.sidecar.mcp).collect::<Vec<SocketAddr>>());
    let (done, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let sessions: Vec<_> =
        (0..9).map(|number| Client::open(&pods[number % 3].sidecar, Some("key-a")).session).collect();
    std::thread::scope(|scope| {
        let _over = Over(&done);
        for (number, session) in sessions.iter().enumerate() {
            let (endpoints, done, calls) = (&endpoints, &done, &calls);
            scope.spawn(move || {
                for round in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let to = {
                        let endpoints = endpoints.lock().unwrap();
                        endpoints[(number + round) % endpoints.len()]
                    };
                    let text = format!("{number}-{round}");
                    let body = json!({"jsonrpc": "2.0", "id": round + 1, "method": "tools/call", "params": {
                        "name": "echo", "arguments": {"text": text},
                    }});
                    let request = Request::post(body.to_string())
                        .key("key-a")
                        .session(session)
                        .header("mcp-protocol-version", "2025-11-25");
                    let reply = request.send(to);
                    assert_eq!(reply.status, 200, "{text}: {}", reply.text());
                    assert_eq!(reply.message()["result"]["content"][0]["text"], text, "{}", reply.text());
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 4..=6 {
            network.list(&[number - 3, number - 2, number - 1, number]);
            pods.push_back(start(&network, number));
            endpoints.lock().unwrap().push(pods[3].sidecar.mcp);
            let Some(mut old) = pods.pop_front() else { break };
            let _hook = old.sidecar.hook();
            old.sidecar.signal(Signal::TERM);
            // What leads connections to pods is behind; the drain's minimum is for that.
            std::thread::sleep(Duration::from_millis(100));
            endpoints.lock().unwrap().retain(|address| *address != old.sidecar.mcp);
            assert!(old.sidecar.wait(Duration::from_secs(30)).success(), "pod {}", old.number);
            old.server.kill();
            network.list(&[number - 2, number - 1, number]);
        }
    });
    let held: f64 = pods.iter().map(|pod| pod.sidecar.metric("longshore_sessions")).sum();
    assert_eq!(held, 9.0, "each is held by one");
    assert!(calls.load(Ordering::Relaxed) > 100);
}

/// Where nobody knows which pods are new, an older one may end next, and what goes there moves once more.
#[test]
fn what_a_pod_gives_away_goes_to_pods_that_came_after_it() {
    const SESSIONS: u8 = 12;
    let servers = [(); 3].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    for _ in 0..SESSIONS {
        Client::open(&replicas[1], Some("key-a"));
    }
    let hook = replicas[1].hook();
    replicas[1].signal(Signal::TERM);
    let has = |number: usize| replicas[number].metric("longshore_sessions");
    eventually("they have moved", || has(2) == f64::from(SESSIONS));
    assert_eq!(has(0), 0.0);
    drop(hook);
}

/// Of those that are made of one template each ends in a rollout, however young it is.
#[test]
fn what_a_pod_gives_away_goes_to_pods_of_the_next_template() {
    const SESSIONS: u8 = 12;
    let network = Network::new();
    network.list(&[1, 2, 3]);
    let servers = [(); 3].map(|()| GoServer::start(&["-stateless"]));
    // The last one is the youngest of all, and of those before.
    let replicas = [(1, "before"), (2, "next"), (3, "before")]
        .map(|(number, template): (u8, _)| {
            network.start_of(template, number, &config(servers[usize::from(number) - 1].port))
        })
        .map(Sidecar::ready);
    replicas.iter().for_each(|replica| knows(replica, 2));
    for _ in 0..SESSIONS {
        Client::open(&replicas[0], Some("key-a"));
    }
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    let has = |number: usize| replicas[number].metric("longshore_sessions");
    eventually("they have moved", || has(1) == f64::from(SESSIONS));
    assert_eq!(has(2), 0.0);
    drop(hook);
}
