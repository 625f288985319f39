//! Sessions that share processes, and pods that end.

use std::time::{Duration, Instant};

use longshore_sidecar_config::{Config, Isolation, OnOwnerLoss, Processes};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{pid, state, text};
use crate::harness::config::{ALICE, processes};
use crate::harness::replicas::Network;
use crate::harness::shim::{server, stdio};
use crate::harness::{Client, Events, Files, Pod, Sidecar, eventually};

const BOB: Option<&str> = Some("key-b");

/// Who shares a process, and what becomes of their sessions.
const CASES: [(Isolation, OnOwnerLoss); 4] = [
    (Isolation::Principal, OnOwnerLoss::Reinitialize),
    (Isolation::Shared, OnOwnerLoss::Reinitialize),
    (Isolation::Principal, OnOwnerLoss::NotFound),
    (Isolation::Shared, OnOwnerLoss::NotFound),
];

fn config(isolation: Isolation, what: OnOwnerLoss) -> Config {
    let mut config = stdio();
    let total = if isolation == Isolation::Shared { 1 } else { 8 };
    config.limits.processes = Some(Processes { isolation, ..processes(total, total) });
    config.sessions.on_owner_loss = what;
    config
}

/// Two sessions of Alice's and one of Bob's. Two of them have set something, which another pod keeps.
fn three(sidecar: &Sidecar, what: OnOwnerLoss) -> [Client<'_>; 3] {
    let clients = [ALICE, ALICE, BOB].map(|key| Client::open(sidecar, key));
    clients[0].ask("logging/setLevel", json!({"level": "notice"}));
    clients[2].ask("resources/subscribe", json!({"uri": "x:1"}));
    if what == OnOwnerLoss::Reinitialize {
        eventually("another pod keeps it", || sidecar.copied(1) >= 2);
    }
    clients
}

/// Whether they share as before, with processes that were greeted once and know what was set.
fn go_on(clients: &[Client<'_>; 3], isolation: Isolation) {
    let [first, second, other] = clients.each_ref().map(pid);
    assert_eq!(first, second, "{isolation:?}");
    assert_eq!(first == other, isolation == Isolation::Shared, "{isolation:?}");
    let (alices, bobs) = (state(&clients[0]), state(&clients[2]));
    for state in [&alices, &bobs] {
        assert_eq!(state["heard"].as_array().unwrap().len(), 2, "{isolation:?}: {state}");
    }
    assert_eq!((&alices["level"], &bobs["subscriptions"]), (&json!("notice"), &json!(["x:1"])));
}

/// Whether they are over. Their clients begin anew where others go on.
fn are_over(clients: &[Client<'_>; 3]) {
    for client in clients {
        assert_eq!(client.send("ping", json!({})).status, 404);
    }
    pid(&Client::open(clients[0].sidecar, ALICE));
}

/// Begins a call in a session of Alice's that is answered after so many seconds, by way of this pod.
fn later(sidecar: &Sidecar, session: &str, seconds: f64) -> Events {
    let client = Client::in_session(sidecar, session).with_key("key-a");
    client.stream("later", json!({"seconds": seconds}))
}

/// The answer of a call whose client comes back for it when it is sent away.
fn answer_of(mut call: Events, sidecar: &Sidecar, session: &str) -> Value {
    let client = Client::in_session(sidecar, session).with_key("key-a");
    loop {
        match call.next() {
            Some(event) => return event.message(),
            None => call = Events::open(&client.rest(&call.last), sidecar.mcp),
        }
        assert_eq!(call.status, 200);
    }
}

#[test]
fn sessions_that_share_a_process_move_or_end_when_their_pod_drains() {
    for (isolation, what) in CASES {
        let network = Network::new();
        let pods = Pod::start(&network, &config(isolation, what), &server(&[]), 2);
        let [leaves, stays] = &pods[..] else { panic!("two pods") };
        let clients = three(&leaves.sidecar, what);
        let beside = Client::open(&stays.sidecar, BOB);
        let before = [&clients[0], &beside].map(pid);
        let through = clients.each_ref().map(|client| client.through(&stays.sidecar));
        let call = later(&stays.sidecar, &clients[1].session, 4.0);
        let hook = leaves.sidecar.hook();
        leaves.sidecar.signal(Signal::TERM);
        if what == OnOwnerLoss::NotFound {
            eventually("its clients are told, at the latest when it takes no more calls", || {
                let reply = through[0].send("tools/call", json!({"name": "pid"}));
                if reply.status == 200 {
                    assert_eq!(text(&reply.message()), before[0].to_string());
                }
                reply.status == 404
            });
        }
        let answer = answer_of(call, &stays.sidecar, &clients[1].session);
        assert_eq!(text(&answer), "later", "{isolation:?}, {what:?}");
        if what == OnOwnerLoss::Reinitialize {
            leaves.sidecar.log(|line| line["message"] == "sessions were handed to other replicas");
        }
        assert!(leaves.sidecar.wait(Duration::from_secs(30)).success());
        drop(hook);
        eventually("its processes have ended", || leaves.shim.processes().is_empty());
        network.list(&[2]);
        match what {
            OnOwnerLoss::Reinitialize => {
                go_on(&through, isolation);
                assert_eq!(pid(&through[2]), before[1], "Bob has one process there");
                assert_eq!(stays.sidecar.metric("longshore_sessions"), 4.0);
            }
            OnOwnerLoss::NotFound => are_over(&through),
        }
        assert_eq!(pid(&beside), before[1], "{isolation:?}, {what:?}");
    }
}

#[test]
fn sessions_that_share_a_process_are_begun_again_or_end_when_their_pod_dies() {
    for (isolation, what) in CASES {
        let network = Network::new();
        let mut pods = Pod::start(&network, &config(isolation, what), &server(&[]), 2);
        let Ok([dies, stays]) = pods.get_disjoint_mut([0, 1]) else { panic!("two pods") };
        let clients = three(&dies.sidecar, what);
        let beside = Client::open(&stays.sidecar, BOB);
        let before = pid(&beside);
        let through = clients.map(|client| client.through(&stays.sidecar));
        let mut call = later(&stays.sidecar, &through[1].session, 60.0);
        dies.dies();
        network.list(&[2]);
        let failed = call.next().expect("what was under way has failed").message();
        assert_eq!(failed["error"]["code"], -32603, "{isolation:?}, {what:?}: {failed}");
        match what {
            OnOwnerLoss::Reinitialize => {
                go_on(&through, isolation);
                assert_eq!(pid(&through[2]), before, "Bob has one process there");
            }
            OnOwnerLoss::NotFound => are_over(&through),
        }
        assert_eq!(pid(&beside), before, "{isolation:?}, {what:?}");
    }
}

/// It has a process of its own, which needs a place like that of a new session.
#[test]
fn a_session_that_is_begun_again_has_a_place_like_any_other() {
    let network = Network::new();
    let mut config = config(Isolation::Session, OnOwnerLoss::Reinitialize);
    config.limits.processes = Some(processes(8, 1));
    let mut pods = Pod::start(&network, &config, &server(&[]), 2);
    let Ok([dies, stays]) = pods.get_disjoint_mut([0, 1]) else { panic!("two pods") };
    let lost = Client::open(&dies.sidecar, ALICE).through(&stays.sidecar);
    let other = Client::open(&stays.sidecar, ALICE);
    let before = pid(&other);
    dies.dies();
    network.list(&[2]);
    let refused = lost.send("tools/call", json!({"name": "pid"}));
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(pid(&other), before);
    assert_eq!(other.end().status, 204);
    assert_ne!(pid(&lost), before);
}

/// Three pods with so many places, as many of them for Alice as she has sessions in each of the first two.
fn crowded(network: &Network, total: u32, own: u32) -> (Vec<Pod>, Vec<String>) {
    let mut config = config(Isolation::Session, OnOwnerLoss::Reinitialize);
    config.limits.processes = Some(processes(total, own));
    let pods = Pod::start(network, &config, &server(&[]), 3);
    let open = |pod: &Pod| (0..own).map(|_| Client::open(&pod.sidecar, ALICE).session).collect();
    let sessions = open(&pods[0]);
    let _others: Vec<String> = open(&pods[1]);
    (pods, sessions)
}

fn sessions_of(pod: &Pod) -> f64 {
    pod.sidecar.metric("longshore_sessions")
}

/// Whether all places are taken, or Alice's alone.
#[test]
fn sessions_of_a_pod_that_drains_go_where_there_is_room() {
    for total in [6, 12] {
        let network = Network::new();
        let (pods, sessions) = crowded(&network, total, 6);
        let [leaves, full, free] = &pods[..] else { panic!("three pods") };
        let hook = leaves.sidecar.hook();
        leaves.sidecar.signal(Signal::TERM);
        eventually("they have moved", || sessions_of(free) == 6.0);
        for session in &sessions {
            pid(&Client::in_session(&full.sidecar, session).with_key("key-a"));
        }
        assert_eq!([full, free].map(sessions_of), [6.0, 6.0], "of {total}");
        assert_eq!(full.sidecar.metric("longshore_processes_refused_total"), 0.0, "nobody waits there");
        assert!(leaves.sidecar.wait(Duration::from_secs(30)).success());
        drop(hook);
    }
}

/// Three pods with a process for everybody each.
fn with_one_each(network: &Network, processes: Processes) -> Vec<Pod> {
    let mut config = config(Isolation::Shared, OnOwnerLoss::Reinitialize);
    config.limits.processes = Some(Processes { isolation: Isolation::Shared, ..processes });
    Pod::start(network, &config, &server(&[]), 3)
}

/// The process of the one speaks another revision, in which they cannot go on, and the other has none yet. Also where that
/// process rests: its place is free then, but its sessions want it back.
#[test]
fn sessions_of_a_pod_that_drains_go_where_their_revision_is_spoken() {
    for idle_ms in [300, 60_000] {
        let network = Network::new();
        let pods = with_one_each(&network, Processes { idle_ms, ..processes(1, 1) });
        let [leaves, other, free] = &pods[..] else { panic!("three pods") };
        let newer = Client::open(&other.sidecar, BOB);
        if idle_ms < 1_000 {
            let rests = || other.sidecar.metric("longshore_processes") == 1.0;
            eventually("its process has ended", rests);
        }
        let clients = [(); 6].map(|()| Client::of(&leaves.sidecar, ALICE, "2025-06-18"));
        let through = clients.each_ref().map(|client| client.through(&other.sidecar));
        let hook = leaves.sidecar.hook();
        leaves.sidecar.signal(Signal::TERM);
        eventually("they have moved", || sessions_of(leaves) == 0.0);
        for client in &through {
            pid(client);
            pid(&newer);
        }
        assert_eq!([other, free].map(sessions_of), [1.0, 6.0], "{idle_ms}");
        assert_eq!(other.sidecar.metric("longshore_processes_refused_total"), 0.0, "nobody waits there");
        assert!(leaves.sidecar.wait(Duration::from_secs(30)).success());
        drop(hook);
    }
}

/// They do not join those that cannot.
#[test]
fn new_clients_are_translated_for_while_sessions_pass_by_that_cannot_be() {
    let network = Network::new();
    let pods = with_one_each(&network, Processes { queue_ms: 5_000, ..processes(1, 1) });
    let [leaves, other, free] = &pods[..] else { panic!("three pods") };
    let _newer = Client::open(&other.sidecar, BOB);
    let _clients = [(); 6].map(|()| Client::of(&leaves.sidecar, ALICE, "2025-06-18"));
    let hook = leaves.sidecar.hook();
    leaves.sidecar.signal(Signal::TERM);
    eventually("they have moved", || {
        let client = Client::of(&other.sidecar, ALICE, "2025-06-18");
        pid(&client);
        assert_eq!(client.end().status, 204);
        sessions_of(free) == 6.0
    });
    assert_eq!(sessions_of(other), 1.0);
    assert!(leaves.sidecar.wait(Duration::from_secs(30)).success());
    drop(hook);
}

/// Nobody waits where the only process there may be is somebody else's.
#[test]
fn sessions_of_a_pod_that_drains_pass_by_where_somebody_else_has_all_places() {
    let network = Network::new();
    let mut config = config(Isolation::Principal, OnOwnerLoss::Reinitialize);
    config.limits.processes = Some(Processes { isolation: Isolation::Principal, ..processes(1, 1) });
    let pods = Pod::start(&network, &config, &server(&[]), 3);
    let [leaves, full, free] = &pods[..] else { panic!("three pods") };
    let others = Client::open(&full.sidecar, BOB);
    let clients = [(); 6].map(|()| Client::open(&leaves.sidecar, ALICE));
    let hook = leaves.sidecar.hook();
    leaves.sidecar.signal(Signal::TERM);
    eventually("they have moved", || sessions_of(free) == 6.0);
    for client in &clients {
        pid(&client.through(&full.sidecar));
    }
    pid(&others);
    assert_eq!(full.sidecar.metric("longshore_processes_refused_total"), 0.0, "nobody waits there");
    assert!(leaves.sidecar.wait(Duration::from_secs(30)).success());
    drop(hook);
}

/// When nobody has any room left, whoever comes is told so.
#[test]
fn sessions_of_a_pod_that_died_go_where_there_is_room() {
    let network = Network::new();
    let (mut pods, sessions) = crowded(&network, 12, 6);
    let Ok([dies, full, free]) = pods.get_disjoint_mut([0, 1, 2]) else { panic!("three pods") };
    let other = Client::open(&free.sidecar, ALICE);
    dies.dies();
    network.list(&[2, 3]);
    let ways = [&full.sidecar, &free.sidecar].into_iter().cycle();
    let clients: Vec<_> = sessions
        .iter()
        .zip(ways)
        .map(|(session, way)| Client::in_session(way, session).with_key("key-a"))
        .collect();
    let (last, first) = clients.split_last().unwrap();
    for client in first {
        pid(client);
    }
    assert_eq!([&*full, &*free].map(sessions_of), [6.0, 6.0]);
    let refused = last.send("tools/call", json!({"name": "pid"}));
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(other.end().status, 204);
    pid(last);
    assert_eq!([&*full, &*free].map(sessions_of), [6.0, 6.0]);
}

/// The processes are still there, but nobody knows any more who had asked them for what.
#[test]
fn sessions_that_share_a_process_are_begun_again_or_end_when_their_sidecar_alone_dies() {
    for (isolation, what) in CASES {
        let network = Network::new();
        let mut pods = Pod::start(&network, &config(isolation, what), &server(&[]), 2);
        let (first, second) = (pods.remove(0), pods.remove(0));
        let clients = three(&first.sidecar, what);
        let beside = Client::open(&second.sidecar, BOB);
        let before = [&clients[0], &beside].map(pid);
        let through = clients.map(|client| client.through(&second.sidecar));
        first.sidecar.signal(Signal::KILL);
        let files = first.sidecar.files.clone();
        drop(first.sidecar);
        let again = network.start_again(1, "pod-1", files).ready();
        let through = through.map(|client| client.through(&again));
        match what {
            OnOwnerLoss::Reinitialize => {
                go_on(&through, isolation);
                assert_ne!(pid(&through[0]), before[0]);
                assert_eq!(again.metric("longshore_sessions"), 3.0, "they stay in their pod");
            }
            OnOwnerLoss::NotFound => are_over(&through),
        }
        assert_eq!(pid(&beside), before[1], "{isolation:?}, {what:?}");
    }
}

/// The process of a session goes on with the next sidecar, and what its client has set is told to the one after it.
#[test]
fn what_was_set_outlives_the_sidecar_and_the_process() {
    for what in [OnOwnerLoss::NotFound, OnOwnerLoss::Reinitialize] {
        let network = Network::new();
        let config = config(Isolation::Session, what);
        let mut pods = Pod::start(&network, &config, &server(&[]), 2);
        let (first, second) = (pods.remove(0), pods.remove(0));
        let client = Client::open(&first.sidecar, ALICE);
        client.ask("logging/setLevel", json!({"level": "notice"}));
        client.ask("resources/subscribe", json!({"uri": "x:1"}));
        eventually("another pod keeps it", || first.sidecar.copied(2) > 0);
        let before = pid(&client);
        let through = client.through(&second.sidecar);
        first.sidecar.signal(Signal::KILL);
        let files = first.sidecar.files.clone();
        drop(first.sidecar);
        let again = network.start_again(1, "pod-1", files).ready();
        let through = through.through(&again);
        assert_eq!(pid(&through), before, "its process goes on");
        kill_process(Pid::from_raw(i32::try_from(before).unwrap()).unwrap(), Signal::KILL).unwrap();
        eventually("another one has taken its place", || {
            let message = through.call("pid", json!({}));
            message["result"].is_object() && text(&message) != before.to_string()
        });
        let state = state(&through);
        assert_eq!(
            (&state["level"], &state["subscriptions"]),
            (&json!("notice"), &json!(["x:1"])),
            "{what:?}"
        );
    }
}

/// It asks while the sidecar tells it what the client has set, and before the client is back.
#[test]
fn what_the_next_process_of_a_session_asks_first_waits_for_the_client() {
    let network = Network::new();
    let config = config(Isolation::Session, OnOwnerLoss::Reinitialize);
    let pods = Pod::start(&network, &config, &server(&["curious"]), 2);
    let [leaves, stays] = &pods[..] else { panic!("two pods") };
    let client = Client::with_capabilities(&leaves.sidecar, ALICE, "2025-11-25", &json!({"roots": {}}));
    client.ask("logging/setLevel", json!({"level": "notice"}));
    eventually("another pod keeps it", || leaves.sidecar.copied(1) > 0);
    let hook = leaves.sidecar.hook();
    leaves.sidecar.signal(Signal::TERM);
    eventually("it has moved", || sessions_of(stays) == 1.0);
    let client = client.through(&stays.sidecar);
    let mut own = Events::open(&client.get(), stays.sidecar.mcp);
    // It may be told of the other server's lists, too.
    let mut heard = std::iter::from_fn(|| own.next()).map(|event| event.message());
    let asked = heard.find(|message| message["method"] == "roots/list").expect("it is asked");
    eventually("it was told the level", || state(&client)["level"] == "notice");
    let mut hears = client.stream("hear", json!({}));
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}).to_string();
    assert_eq!(client.request(answer).send(stays.sidecar.mcp).status, 202);
    assert_eq!(text(&hears.next().unwrap().message()), r#"{"roots": []}"#);
    assert!(leaves.sidecar.wait(Duration::from_secs(30)).success());
    drop(hook);
}

/// No client comes to the next sidecar before that has a process of its own, which takes longer than processes wait.
/// What waits for no session ends by then, and nothing else is started beside those that wait.
#[test]
fn a_process_waits_for_a_sidecar_whose_server_starts_slowly() {
    for (isolation, warm) in [(Isolation::Session, 1), (Isolation::Shared, 0)] {
        let network = Network::new();
        let marks = Files::new();
        let mark = marks.path("slow");
        let flag = format!("slow-with={}", mark.display());
        let mut config = config(isolation, OnOwnerLoss::NotFound);
        config.limits.processes.as_mut().unwrap().warm = warm;
        let mut pods = Pod::start(&network, &config, &server(&[&flag]), 1);
        let pod = pods.remove(0);
        let client = Client::open(&pod.sidecar, ALICE);
        let before = pid(&client);
        let are = |count| (pod.shim.processes().len() == count).then_some(());
        // The sidecar has one, too.
        let count = 2 + warm as usize;
        eventually("as many run as are to", || are(count));
        std::fs::write(&mark, "").unwrap();
        pod.sidecar.signal(Signal::KILL);
        let _ = pod.sidecar.wait(Duration::from_secs(5));
        let again = network.start_again(1, "pod-1", pod.sidecar.files.clone());
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            let there = pod.shim.processes();
            assert!(there.len() <= count + 1, "{isolation:?}: the next one has more than its own: {there:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let again = again.ready();
        if isolation == Isolation::Session {
            assert_eq!(pid(&client.through(&again)), before, "its process goes on");
            eventually("those that are to run do, and no others", || are(count));
        } else {
            assert!(!pod.shim.processes().contains(&before), "nobody can go on with it");
        }
    }
}
