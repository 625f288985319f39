//! Sessions that have ended, and stay so whichever replica is asked.

use std::time::{SystemTime, UNIX_EPOCH};

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::config::{ALICE, callers, hex, on_loss};
use crate::harness::replicas::{Network, with_peers};
use crate::harness::{Client, Files, Gate, GoServer, Scripted, Sidecar, config, eventually};

/// A client takes 200 for the end of its session, and nothing else does.
#[test]
fn an_end_that_is_lost_with_its_replica_is_noted_where_it_came() {
    let gate = Gate::default();
    let servers = [(); 2].map(|()| Scripted::ending(&gate));
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
    let client = Client::open(&replicas[0], ALICE);
    let other = client.through(&replicas[1]);
    std::thread::scope(|scope| {
        let (other, session) = (&replicas[1], &other.session);
        let ended = scope.spawn(move || Client::in_session(other, session).with_key("key-a").end());
        eventually("it is on its way", || !servers[0].seen("DELETE").is_empty());
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
    let replicas = network.in_front_of(&config(0), &servers);
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
    eventually("only it is left", || newcomer.metric("longshore_replicas{state=\"serving\"}") == 0.0);
    assert_eq!(client.through(&newcomer).send("ping", json!({})).status, 404);
}

/// As one does that its client ended.
#[test]
fn a_session_that_nobody_used_or_that_is_too_old_never_lives_again() {
    for (is_idle, what) in [
        (true, OnOwnerLoss::NotFound),
        (true, OnOwnerLoss::Reinitialize),
        (false, OnOwnerLoss::NotFound),
        (false, OnOwnerLoss::Reinitialize),
    ] {
        let case = format!("idle: {is_idle}, {what:?}");
        let flags = if what == OnOwnerLoss::NotFound { &["-stateless"][..] } else { &[] };
        let mut servers = [(); 3].map(|()| GoServer::start(flags));
        let network = Network::new();
        let mut config = on_loss(config(0), what);
        if is_idle {
            config.sessions.idle_timeout_ms = 4_000;
        } else {
            config.sessions.max_age_ms = 4_000;
        }
        let replicas = network.in_front_of(&config, &servers);
        let client = Client::open(&replicas[0], ALICE);
        let cause = if is_idle { "idle" } else { "aged" };
        let ended = format!("longshore_sessions_ended_total{{cause=\"{cause}\"}}");
        eventually("it is over", || replicas[0].metric(&ended) == 1.0);
        let nobody_has_it = |replicas: &[Sidecar]| {
            for replica in replicas {
                assert_eq!(client.through(replica).send("ping", json!({})).status, 404, "{case}");
                assert_eq!(client.through(replica).get().send(replica.mcp).status, 404, "{case}");
                assert_eq!(replica.metric("longshore_sessions"), 0.0, "{case}");
            }
        };
        nobody_has_it(&replicas);
        // What the id does not say they tell each other.
        let known = if is_idle { 1.0 } else { 0.0 };
        for replica in &replicas {
            eventually("everybody knows", || replica.metric("longshore_ended_sessions") == known);
        }
        replicas[0].signal(Signal::KILL);
        servers[0].kill();
        network.list(&[2, 3]);
        nobody_has_it(&replicas[1..]);
    }
}

/// One that was too old for a while is not young again when sessions may be older.
#[test]
fn a_session_that_was_too_old_stays_so_whatever_is_configured_later() {
    let servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let long = config(0);
    let replicas = network.in_front_of(&long, &servers);
    let client = Client::open(&replicas[0], ALICE);
    let configure = |max_age_ms| {
        for (replica, server) in replicas.iter().zip(&servers) {
            let mut config = with_peers(&config(server.port));
            config.sessions.max_age_ms = max_age_ms;
            let keys = callers();
            replica.runs(&replica.files.write_with_keys(&config, &keys));
        }
    };
    configure(1_000);
    eventually("it is over", || replicas[0].metric("longshore_sessions") == 0.0);
    for replica in &replicas {
        eventually("everybody knows", || replica.metric("longshore_ended_sessions") == 1.0);
    }
    configure(long.sessions.max_age_ms);
    for replica in &replicas {
        assert_eq!(client.through(replica).send("ping", json!({})).status, 404);
    }
}

/// What another has ended stays so, though it would be forgotten sooner.
#[test]
fn who_ends_more_sessions_than_are_remembered_has_its_own_forgotten() {
    let server = GoServer::start(&["-stateless"]);
    let files = Files::new();
    files.write_with_keys(&config(server.port), &callers());
    // Later than all that begin now.
    let late = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 400_000;
    let of_bob = &hex(b"bob")[..4];
    let ended: String = (0..65_536).map(|number| format!("{late} {of_bob}{number:028x}\n")).collect();
    std::fs::write(files.path("program").join("ended-sessions"), ended).unwrap();
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let clients = [ALICE, Some("key-b")].map(|key| Client::open(&sidecar, key));
    clients.iter().for_each(|client| assert_eq!(client.end().status, 204));
    let status = clients.map(|client| client.send("ping", json!({})).status);
    assert_eq!(status, [404, 200], "alice's, and bob's");
}

/// One principal alone can end so many.
#[test]
fn it_is_said_where_more_sessions_have_ended_than_are_remembered() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    files.write(&config(server.port));
    // They end in this hour.
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3_600;
    let ended: String = (0..65_536).map(|number| format!("{soon} {number:032x}\n")).collect();
    std::fs::write(files.path("program").join("ended-sessions"), ended).unwrap();
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let said = "more sessions have ended than are remembered";
    let clients = [(); 2].map(|()| Client::open(&sidecar, None));
    assert!(!sidecar.written().contains(said), "there is room for all that there were");
    clients.iter().for_each(|client| assert_eq!(client.end().status, 204));
    sidecar.log(|line| line["message"].as_str().is_some_and(|message| message.starts_with(said)));
    assert_eq!(sidecar.written().matches(said).count(), 1);
    assert_eq!(sidecar.metric("longshore_ended_sessions"), 65_536.0);
}
