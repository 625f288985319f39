//! Sessions that wait for a process.

use std::io::BufReader;
use std::net::TcpStream;
use std::time::Instant;

use longshore_sidecar_config::{Config, Isolation, Processes};

use super::{KEYS, pid};
use crate::harness::config::{keys, processes};
use crate::harness::http::{Reply, connect};
use crate::harness::shim::{server, serving_keyed, stdio};
use crate::harness::{Client, Request, Shim, Sidecar, client, eventually};

fn config(total: u32, per_principal: u32, queue_ms: u64) -> Config {
    let mut config = stdio();
    config.limits.processes = Some(Processes { queue_ms, ..processes(total, per_principal) });
    config
}

fn waiting(config: &Config) -> (Shim, Sidecar) {
    serving_keyed(config, &keys(&KEYS), &server(&[]), &[])
}

/// Begins to open a session, and waits until it waits.
fn begin(sidecar: &Sidecar, key: &str, queued: f64) -> BufReader<TcpStream> {
    let mut stream = connect(sidecar.mcp);
    Request::post(client::initialize("2025-11-25")).key(key).write(&mut stream);
    eventually("it waits", || sidecar.metric("longshore_processes_queued") == queued);
    BufReader::new(stream)
}

fn delete(sidecar: &Sidecar, key: &str, session: &str) {
    let request = Request::new("DELETE", "/mcp").session(session).key(key);
    assert_eq!(request.send(sidecar.mcp).status, 204);
}

#[test]
fn principals_wait_in_turn() {
    let (_shim, sidecar) = waiting(&config(1, 1, 60_000));
    let first = Client::open(&sidecar, Some("key-c"));
    let mut waits = ["key-a", "key-a", "key-b", "key-a"]
        .iter()
        .zip(1..)
        .map(|(key, number)| (*key, begin(&sidecar, key, f64::from(number))))
        .collect::<Vec<_>>();
    let mut last = ("key-c", first.session.clone());
    // Those of one principal in the order in which they came, and nobody twice while another waits.
    for index in [0, 1, 0, 0] {
        delete(&sidecar, last.0, &last.1);
        let (key, mut reader) = waits.remove(index);
        let reply = Reply::read(&mut reader).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        last = (key, reply.header("mcp-session-id").unwrap().to_owned());
        eventually("the others wait", || sidecar.metric("longshore_processes_queued") == waits.len() as f64);
    }
}

#[test]
fn who_has_enough_holds_up_nobody() {
    let (_shim, sidecar) = waiting(&config(2, 1, 60_000));
    let first = Client::open(&sidecar, Some("key-a"));
    let mut greedy = begin(&sidecar, "key-a", 1.0);
    let other = Client::open(&sidecar, Some("key-b"));
    pid(&other);
    delete(&sidecar, "key-b", &other.session);
    Client::open(&sidecar, Some("key-c"));
    delete(&sidecar, "key-a", &first.session);
    assert_eq!(Reply::read(&mut greedy).unwrap().status, 200);
}

#[test]
fn who_waits_in_vain_is_told_so() {
    for isolation in [Isolation::Session, Isolation::Principal] {
        let mut config = config(1, 1, 400);
        config.limits.processes.as_mut().unwrap().isolation = isolation;
        let (_shim, sidecar) = waiting(&config);
        let first = Client::open(&sidecar, Some("key-a"));
        let began = Instant::now();
        let reply = Request::post(client::initialize("2025-11-25")).key("key-b").send(sidecar.mcp);
        assert!(began.elapsed().as_millis() >= 400);
        assert_eq!(reply.status, 503, "{}", reply.text());
        // Nobody waits any more, and it is known that somebody did.
        let figures = ["longshore_processes_queued", "longshore_processes_refused_total"];
        assert_eq!(figures.map(|figure| sidecar.metric(figure)), [0.0, 1.0], "{isolation:?}");
        let again: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        // A session with a process of its own makes room when its client has been silent for long enough.
        let known = if isolation == Isolation::Session { 200..=301 } else { 30..=30 };
        assert!(known.contains(&again), "{again}");
        assert!(reply.text().contains("as may (1)"), "{}", reply.text());
        delete(&sidecar, "key-a", &first.session);
        pid(&Client::open(&sidecar, Some("key-c")));
    }
}

#[test]
fn who_gives_up_waiting_leaves_nothing_behind() {
    for isolation in [Isolation::Session, Isolation::Principal] {
        let mut config = config(1, 1, 60_000);
        config.limits.processes.as_mut().unwrap().isolation = isolation;
        let (_shim, sidecar) = waiting(&config);
        let first = Client::open(&sidecar, Some("key-a"));
        let started = sidecar.metric("longshore_processes_started_total");
        drop(begin(&sidecar, "key-b", 1.0));
        eventually("nobody waits", || sidecar.metric("longshore_processes_queued") == 0.0);
        sidecar.audit(|line| line["reason"] == "cancelled by its client");
        delete(&sidecar, "key-a", &first.session);
        pid(&Client::open(&sidecar, Some("key-c")));
        assert_eq!(sidecar.metric("longshore_processes_started_total"), started + 1.0, "{isolation:?}");
    }
}

#[test]
fn a_change_of_the_limits_counts_for_those_who_wait() {
    let (_shim, sidecar) = waiting(&config(1, 1, 60_000));
    let _first = Client::open(&sidecar, Some("key-a"));
    let mut waits = begin(&sidecar, "key-b", 1.0);
    sidecar.runs(&sidecar.files.write_with_keys(&config(2, 1, 60_000), &keys(&KEYS)));
    assert_eq!(Reply::read(&mut waits).unwrap().status, 200);
}
