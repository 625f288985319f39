//! What clients have set in their sessions is set again: in those that are begun again, and by whoever takes them over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::json;

use super::restarts::taken;
use crate::harness::config::on_loss;
use crate::harness::replicas::{Network, knows};
use crate::harness::{Client, Gate, Scripted, Sidecar, config, eventually, scripted};

/// Methods, and the sessions that they came in.
pub(super) type Heard = Mutex<Vec<(String, String)>>;

/// A server that tells which message came in which session, and that forgets the client's first one when it is told to.
pub(super) fn forgetful(forget: Arc<AtomicBool>) -> (Scripted, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let into = heard.clone();
    let server = Scripted::start(move |request, stream| {
        let session = request.value("mcp-session-id").unwrap_or_default().to_owned();
        if forget.load(Ordering::Relaxed) && session == scripted::UPSTREAM_SESSION {
            return scripted::json_with(stream, 404, "", "{}");
        }
        let message = scripted::message(request);
        into.lock().unwrap().push((message["method"].as_str().unwrap_or_default().to_owned(), session));
        scripted::reply(stream, request, &json!({}));
    });
    (server, heard)
}

pub(super) fn set(client: &Client<'_>) {
    client.ask("logging/setLevel", json!({"level": "warning"}));
    for uri in ["file:///a", "file:///b"] {
        client.ask("resources/subscribe", json!({"uri": uri}));
    }
    client.ask("resources/unsubscribe", json!({"uri": "file:///a"}));
}

/// What the server heard in sessions but the first.
pub(super) fn again(heard: &Heard) -> Vec<String> {
    let heard = heard.lock().unwrap();
    let again = heard.iter().filter(|(_, session)| session != scripted::UPSTREAM_SESSION);
    again.map(|(method, _)| method.clone()).collect()
}

#[test]
fn what_a_client_has_set_is_set_again() {
    let forget = Arc::new(AtomicBool::new(false));
    let (server, heard) = forgetful(forget.clone());
    let config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    let sidecar = Sidecar::flagged(&config, &Sidecar::POD).ready();
    let client = Client::open(&sidecar, None);
    set(&client);
    forget.store(true, Ordering::Relaxed);
    client.call("t", json!({}));
    assert_eq!(again(&heard), ["logging/setLevel", "resources/subscribe", "tools/call"]);
}

/// What a session that is begun again costs at the server is given back where nobody could use it.
#[test]
fn what_is_begun_again_for_nobody_is_ended_at_its_server() {
    for (ends, status) in [(true, 404), (false, 200)] {
        let (forget, gate) = (Arc::new(AtomicBool::new(false)), Gate::default());
        let (server, heard) = slow_to_set(&forget, &gate, !ends);
        let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
        let client = Client::open(&sidecar, None);
        client.ask("logging/setLevel", json!({"level": "warning"}));
        forget.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let session = &client.session;
            let call = scope.spawn(|| Client::in_session(&sidecar, session).send("tools/list", json!({})));
            if ends {
                eventually("it is begun again", || {
                    again(&heard).last().filter(|it| *it == "logging/setLevel").map(drop)
                });
                assert_eq!(client.end().status, 204);
            }
            gate.open();
            assert_eq!(call.join().unwrap().status, status);
        });
        eventually("its server hears of the end", || {
            again(&heard).last().filter(|method| *method == "DELETE").map(drop)
        });
        assert_eq!(sidecar.metric("longshore_sessions"), if ends { 0.0 } else { 1.0 });
    }
}

/// And where nobody waits for it any more it is begun all the same, once.
#[test]
fn a_session_is_begun_again_once_however_long_that_takes() {
    let (forget, gate) = (Arc::new(AtomicBool::new(false)), Gate::default());
    let (server, heard) = slow_to_set(&forget, &gate, false);
    let mut config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    config.limits.request_timeout_ms = 1_000;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    client.ask("logging/setLevel", json!({"level": "warning"}));
    forget.store(true, Ordering::Relaxed);
    let late = client.call("t", json!({}));
    assert!(late["error"]["message"].as_str().is_some_and(|why| why.contains("within")), "{late}");
    gate.open();
    assert!(client.call("t", json!({}))["result"].is_object());
    let mut heard = again(&heard);
    // Of the call that was late, which says nothing to this one.
    heard.retain(|method| method != "notifications/cancelled");
    assert_eq!(heard, ["notifications/initialized", "logging/setLevel", "tools/call"]);
    assert_eq!(client.end().status, 204);
}

/// A server that can forget, and is in no hurry then to take what clients had set. It may refuse to begin.
fn slow_to_set(forget: &Arc<AtomicBool>, gate: &Gate, refuses: bool) -> (Scripted, Arc<Heard>) {
    let (forget, gate, heard) = (forget.clone(), gate.clone(), Arc::new(Heard::default()));
    let into = heard.clone();
    let server = Scripted::told(move |request, stream| {
        let message = scripted::message(request);
        let method = message["method"].as_str().unwrap_or(&request.method);
        let session = request.value("mcp-session-id").unwrap_or_default().to_owned();
        let forgets = forget.load(Ordering::Relaxed);
        if forgets && session == scripted::UPSTREAM_SESSION {
            return scripted::json_with(stream, 404, "", "{}");
        }
        if forgets {
            into.lock().unwrap().push((method.to_owned(), session));
        }
        match method {
            "notifications/initialized" if forgets && refuses => {
                scripted::json_with(stream, 503, "", "{}");
            }
            "logging/setLevel" if forgets => {
                gate.pass();
                scripted::reply(stream, request, &json!({}));
            }
            _ if message.get("id").is_some() => {
                scripted::reply(stream, request, &json!({}));
            }
            _ => scripted::accepted(stream),
        }
    });
    (server, heard)
}

/// And the one that comes after it, since whoever has it tells another one.
#[test]
fn what_a_client_has_set_outlives_its_replica() {
    let (server, heard) = forgetful(Arc::default());
    let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    let network = Network::new();
    let replicas = network.replicas(&config, &[server.port; 3]);
    let client = Client::open(&replicas[0], Some("key-a"));
    set(&client);
    let mut others: Vec<_> = replicas.iter().collect();
    let mut owner = others.remove(0);
    let mut expected = Vec::new();
    while let Some(other) = others.first() {
        eventually("it is told", || owner.copied(2) > 0);
        owner.signal(Signal::KILL);
        // One that is forwarded before it is known is lost with it.
        eventually("it goes on", || client.through(other).call("t", json!({})).get("result").map(drop));
        expected.extend(["logging/setLevel", "resources/subscribe", "tools/call"]);
        assert_eq!(again(&heard), expected);
        let at = others.iter().position(|replica| taken(replica, "adopted") == 1.0);
        owner = others.remove(at.expect("somebody has it"));
    }
}

/// Also where the one that was told ends in order before anybody asks for the session again.
#[test]
fn what_a_client_has_set_is_passed_on_by_a_replica_that_ends() {
    const SESSIONS: usize = 6;
    let (server, heard) = forgetful(Arc::default());
    let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    let network = Network::new();
    let mut replicas = network.replicas(&config, &[server.port; 3]);
    let (last, ending, owner) = (replicas.pop().unwrap(), replicas.pop().unwrap(), replicas.pop().unwrap());
    // Either of the others is told of some of them.
    let clients: Vec<_> = (0..SESSIONS).map(|_| Client::open(&owner, Some("key-a"))).collect();
    clients.iter().for_each(set);
    eventually("it is told", || owner.copied(2) >= SESSIONS);
    owner.signal(Signal::KILL);
    let hook = ending.hook();
    ending.signal(Signal::TERM);
    assert!(ending.wait(Duration::from_secs(60)).success());
    drop(hook);
    network.list(&[3]);
    for client in &clients {
        eventually("it goes on", || client.through(&last).call("t", json!({})).get("result").map(drop));
    }
    let expected = ["logging/setLevel", "resources/subscribe", "tools/call"].repeat(SESSIONS);
    assert_eq!(again(&heard), expected);
}

/// Also where the one that had it has lost it meanwhile.
#[test]
fn what_a_client_has_set_is_told_again_to_a_replica_that_restarts() {
    let (server, heard) = forgetful(Arc::default());
    let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    let network = Network::new();
    let mut replicas = network.replicas(&config, &[server.port; 2]);
    let (mut other, owner) = (replicas.pop().unwrap(), replicas.pop().unwrap());
    let client = Client::open(&owner, Some("key-a"));
    set(&client);
    let told = || owner.copied(2);
    eventually("it is told", || told() > 0);
    // Once a second it is looked at who serves.
    for is_seen_gone in [false, true] {
        let before = told();
        other.signal(Signal::KILL);
        if is_seen_gone {
            knows(&owner, 0);
            std::thread::sleep(Duration::from_secs(3));
        }
        let files = other.files.clone();
        drop(other);
        other = network.start_again(2, "pod-2", files).ready();
        eventually("it is told again", || told() > before);
    }
    owner.signal(Signal::KILL);
    eventually("it goes on", || client.through(&other).call("t", json!({})).get("result").map(drop));
    assert_eq!(again(&heard), ["logging/setLevel", "resources/subscribe", "tools/call"]);
}

/// Also where nobody else is told: the one replica writes it down for the sidecar that comes after it, or after that one.
#[test]
fn what_a_client_has_set_outlives_the_sidecar_of_the_only_replica() {
    let (server, heard) = forgetful(Arc::default());
    let sidecar = Sidecar::flagged(&config(server.port), &Sidecar::POD).ready();
    let (kept, ended) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    ended.ask("logging/setLevel", json!({"level": "error"}));
    set(&kept);
    for changes in [1, 4] {
        sidecar.log(|line| {
            line["message"] == "what a client has set is written down" && line["changes"] == changes
        });
    }
    assert_eq!(ended.end().status, 204);
    let (kept, ended) = (kept.session.clone(), ended.session.clone());
    let written = std::fs::read_to_string(sidecar.files.path("program").join("set-in-sessions")).unwrap();
    assert!(!written.contains("file:///"), "{written}");
    let sidecar = sidecar.again().again();
    let before = heard.lock().unwrap().len();
    assert_eq!(Client::in_session(&sidecar, &ended).send("ping", json!({})).status, 404);
    Client::in_session(&sidecar, &kept).call("t", json!({}));
    let mut heard = heard.lock().unwrap().split_off(before);
    heard.retain(|(_, session)| session == scripted::UPSTREAM_SESSION);
    let methods: Vec<_> = heard.iter().map(|(method, _)| method).collect();
    assert_eq!(methods, ["logging/setLevel", "resources/subscribe", "tools/call"]);
}
