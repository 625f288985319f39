//! Processes that are started before a session needs them.

use std::time::Duration;

use longshore_sidecar_config::{Config, Isolation, Processes};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::pid;
use crate::harness::config::{keys, processes};
use crate::harness::http::connect;
use crate::harness::shim::{server, serving, serving_keyed, stdio};
use crate::harness::{Client, Files, Request, Shim, Sidecar, client, eventually, within};

fn config(isolation: Isolation, total: u32, warm: u32) -> Config {
    let mut config = stdio();
    config.limits.processes = Some(Processes { isolation, warm, ..processes(total, total) });
    config
}

/// The processes that wait, once there are so many.
fn warm(shim: &Shim, sidecar: &Sidecar, count: f64) -> Vec<u32> {
    eventually("they wait", || sidecar.metric("longshore_processes_warm") == count);
    shim.processes()
}

pub(super) fn handshakes(sidecar: &Sidecar) -> usize {
    sidecar.server_log().matches("shook hands").count()
}

#[test]
fn a_new_session_takes_one_that_waits_and_another_is_started() {
    for isolation in [Isolation::Session, Isolation::Principal, Isolation::Shared] {
        let (shim, sidecar) = serving(&config(isolation, 8, 2), &server(&[]), &["--workers", "2"]);
        let waiting = warm(&shim, &sidecar, 2.0);
        let client = Client::open(&sidecar, None);
        assert!(waiting.contains(&pid(&client)), "{isolation:?}");
        assert_eq!(warm(&shim, &sidecar, 2.0).len(), 4, "the sidecar's own, this one, and two that wait");
        for _ in 0..20 {
            pid(&client);
        }
        drop(client);
    }
}

/// The first process may install what all of them are made of, and not every installer bears another beside it.
#[test]
fn none_is_started_before_the_sidecars_own_serves() {
    let files = Files::new();
    files.write(&config(Isolation::Session, 8, 2));
    let shim = Shim::start(&files, &server(&["sluggish"]));
    let sidecar = Sidecar::with(files, &[]).loaded();
    eventually("its own serves", || {
        let running = shim.processes().len();
        let serves = sidecar.metric("longshore_server_connected") == 1.0;
        assert!(serves || running <= 1, "{running} run");
        serves
    });
    warm(&shim, &sidecar, 2.0);
}

/// The first one took long, so the time of a turn is long, and few start at once. They are ready and say nothing.
#[test]
fn those_that_wait_hold_up_no_session_whose_process_has_died() {
    let marks = Files::new();
    let flag = format!("installs={}", marks.path("installed").display());
    let (_shim, sidecar) = serving(&config(Isolation::Session, 8, 3), &server(&[&flag]), &[]);
    eventually("one waits", || sidecar.metric("longshore_processes_warm") >= 1.0);
    let client = Client::open(&sidecar, None);
    let before = pid(&client);
    kill_process(Pid::from_raw(before.cast_signed()).unwrap(), Signal::KILL).unwrap();
    within(Duration::from_secs(10), "another one has taken its place", || {
        let message = client.call("pid", json!({}));
        message["result"].is_object() && super::text(&message) != before.to_string()
    });
}

#[test]
fn what_clients_keep_saying_is_said_ahead() {
    let (shim, sidecar) = serving(&config(Isolation::Session, 8, 1), &server(&["frank"]), &[]);
    for sessions in 1..=3 {
        warm(&shim, &sidecar, 1.0);
        Client::open(&sidecar, None);
        eventually("it shakes hands", || handshakes(&sidecar) > sessions);
    }
    eventually("one has shaken hands ahead", || handshakes(&sidecar) == 5);
    let waiting = warm(&shim, &sidecar, 1.0);
    let body = client::initialize("2025-11-25").replace("\"id\":0", "\"id\":\"mine\"");
    assert!(body.contains("mine"), "{body}");
    let reply = Request::post(body).send(sidecar.mcp);
    let message = reply.message();
    assert_eq!(
        (&message["id"], &message["result"]["protocolVersion"]),
        (&json!("mine"), &json!("2025-11-25"))
    );
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid"}});
    let session = reply.header("mcp-session-id").unwrap();
    let reply = Request::post(call.to_string()).session(session).send(sidecar.mcp);
    assert!(waiting.contains(&super::text(&reply.message()).parse().unwrap()));

    // Who says something else is told what a process says to that.
    eventually("the next one has, too", || handshakes(&sidecar) == 6);
    let waiting = warm(&shim, &sidecar, 1.0);
    let reply = Request::post(client::initialize("2025-06-18")).send(sidecar.mcp);
    assert_eq!(reply.message()["result"]["protocolVersion"], "2025-06-18");
    let session = reply.header("mcp-session-id").unwrap();
    let reply = Request::post(call.to_string()).session(session).send(sidecar.mcp);
    assert!(!waiting.contains(&super::text(&reply.message()).parse().unwrap()));
    // And what waits then has been told nothing.
    eventually("the one that was told ends", || {
        let left = shim.processes();
        waiting.iter().filter(|pid| left.contains(pid)).count() == waiting.len() - 1
    });
    let before = handshakes(&sidecar);
    warm(&shim, &sidecar, 1.0);
    Client::open(&sidecar, None);
    eventually("it shakes hands", || handshakes(&sidecar) > before);
}

#[test]
fn those_that_die_are_replaced() {
    let (shim, sidecar) = serving(&config(Isolation::Session, 8, 1), &server(&[]), &[]);
    let own = shim.processes()[0];
    for _ in 0..3 {
        let waiting = warm(&shim, &sidecar, 1.0);
        let victim = *waiting.iter().find(|pid| **pid != own).unwrap();
        kill_process(Pid::from_raw(victim.cast_signed()).unwrap(), Signal::KILL).unwrap();
        eventually("another waits", || {
            let processes = shim.processes();
            processes.len() == 2 && !processes.contains(&victim)
        });
    }
    pid(&Client::open(&sidecar, None));
}

#[test]
fn they_count_and_give_way() {
    let (shim, sidecar) = serving(&config(Isolation::Session, 2, 2), &server(&["frank"]), &[]);
    warm(&shim, &sidecar, 2.0);
    let (_first, _second) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    eventually("none waits", || sidecar.metric("longshore_processes_warm") == 0.0);
    assert_eq!(shim.processes().len(), 3);
    let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
    assert_eq!(reply.status, 503, "{}", reply.text());

    // One that was told something that nobody says makes room for who says something else.
    let (shim, sidecar) = serving(&config(Isolation::Session, 1, 1), &server(&["frank"]), &[]);
    for _ in 0..3 {
        warm(&shim, &sidecar, 1.0);
        let client = Client::open(&sidecar, None);
        assert_eq!(Request::new("DELETE", "/mcp").session(&client.session).send(sidecar.mcp).status, 204);
    }
    eventually("one has shaken hands ahead", || handshakes(&sidecar) == 5);
    let reply = Request::post(client::initialize("2025-06-18")).send(sidecar.mcp);
    assert_eq!(reply.message()["result"]["protocolVersion"], "2025-06-18", "{}", reply.text());
}

#[test]
fn who_has_enough_and_waits_does_not_hold_them_up() {
    let mut config = stdio();
    config.limits.processes = Some(Processes { warm: 1, queue_ms: 60_000, ..processes(4, 1) });
    let (shim, sidecar) = serving_keyed(&config, &keys(&[("a", "key-a"), ("b", "key-b")]), &server(&[]), &[]);
    warm(&shim, &sidecar, 1.0);
    Client::open(&sidecar, Some("key-a"));
    let mut waits = connect(sidecar.mcp);
    Request::post(client::initialize("2025-11-25")).key("key-a").write(&mut waits);
    eventually("it waits", || sidecar.metric("longshore_processes_queued") == 1.0);
    warm(&shim, &sidecar, 1.0);
    pid(&Client::open(&sidecar, Some("key-b")));
    eventually("the sidecar's own runs, two of sessions, and one that waits", || {
        warm(&shim, &sidecar, 1.0).len() == 4
    });
    assert_eq!(sidecar.metric("longshore_processes_queued"), 1.0);
}

#[test]
fn the_configuration_is_followed() {
    let (shim, sidecar) = serving(&config(Isolation::Session, 8, 3), &server(&[]), &[]);
    warm(&shim, &sidecar, 3.0);
    for (warm, generation) in [(1, 2), (2, 3), (0, 4)] {
        let mut config = config(Isolation::Session, 8, warm);
        config.generation = generation;
        sidecar.runs(&sidecar.files.write(&config));
        eventually("as many as are wanted", || shim.processes().len() == 1 + warm as usize);
    }
    for (max_age_ms, generation) in [(None, 5), (Some(600_000), 6)] {
        let before = shim.processes();
        let mut config = config(Isolation::Session, 8, 2);
        config.limits.processes.as_mut().unwrap().max_age_ms = max_age_ms;
        config.generation = generation;
        sidecar.runs(&sidecar.files.write(&config));
        eventually("others, that end at that age", || {
            let now = shim.processes();
            now.len() == 3 && now.iter().filter(|pid| before.contains(pid)).count() == 1
        });
    }
}
