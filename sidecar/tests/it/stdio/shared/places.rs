//! The places of processes that sessions share: who waits for one, and for how long.

use std::time::{Duration, Instant};

use longshore_sidecar_config::Isolation;
use serde_json::json;

use super::{KEYS, config, delete, error, open, pid, shared, shared_by};
use crate::harness::config::keys;
use crate::harness::{Client, Request, client, eventually, modern};
use crate::stdio::eras::server;

/// Also in a session that was begun under others.
#[test]
fn a_process_that_rested_waits_for_its_place_as_long_as_is_said_now() {
    let mut config = config(Isolation::Principal, 1);
    let processes = config.limits.processes.as_mut().unwrap();
    (processes.idle_ms, processes.queue_ms) = (300, 60_000);
    let (_shim, sidecar) = shared(&config, &[], &[]);
    let first = open(&sidecar, 0);
    eventually("it rests", || sidecar.metric("longshore_processes") == 1.0);
    let other = open(&sidecar, 1);
    // It has to tell somebody something, and keeps its process.
    other.ask("resources/subscribe", json!({"uri": "x:1"}));
    config.limits.processes.as_mut().unwrap().queue_ms = 0;
    config.generation += 1;
    sidecar.runs(&sidecar.files.write_with_keys(&config, &keys(&KEYS)));
    let asked = Instant::now();
    let refused = first.send("ping", json!({}));
    // Not the minute from before.
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}: {}", asked.elapsed(), refused.text());
    assert_eq!(refused.status, 503, "{}", refused.text());
}

#[test]
fn one_that_takes_all_its_time_to_end_gives_way_too() {
    let (_shim, sidecar) = shared(&config(Isolation::Principal, 1), &["obstinate"], &[]);
    delete(&open(&sidecar, 0));
    pid(&open(&sidecar, 1));
}

/// Who waits already need not wait until nobody has used it for long, and does not go while it ends.
#[test]
fn one_that_nobody_uses_any_more_is_whose_who_waits() {
    for (flags, queue_ms) in [(&[][..], 20_000), (&["obstinate"], 4_000)] {
        let mut config = config(Isolation::Principal, 1);
        config.limits.processes.as_mut().unwrap().queue_ms = queue_ms;
        let (_shim, sidecar) = shared(&config, flags, &[]);
        let first = open(&sidecar, 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pid(&open(&sidecar, 1)));
            eventually("it waits", || sidecar.metric("longshore_processes_queued") == 1.0);
            delete(&first);
            waits.join().unwrap();
        });
    }
}

/// One that waits needs one place, however long a process takes to give it.
#[test]
fn no_more_processes_end_than_are_waited_for() {
    let mut config = config(Isolation::Principal, 2);
    config.limits.processes.as_mut().unwrap().queue_ms = 20_000;
    let (shim, sidecar) = shared(&config, &["obstinate"], &[]);
    let clients = [0, 1].map(|principal| open(&sidecar, principal));
    let before = clients.each_ref().map(pid);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pid(&open(&sidecar, 2)));
        eventually("it waits", || sidecar.metric("longshore_processes_queued") == 1.0);
        clients.iter().for_each(delete);
        waits.join().unwrap();
    });
    let there = shim.processes();
    assert_eq!(before.iter().filter(|pid| there.contains(pid)).count(), 1, "{before:?}, {there:?}");
}

/// Nobody is helped by a process that makes room in another principal's part.
#[test]
fn each_waits_for_the_processes_that_help() {
    let mut config = config(Isolation::Principal, 4);
    let processes = config.limits.processes.as_mut().unwrap();
    (processes.per_principal, processes.queue_ms) = (1, 20_000);
    let (_shim, sidecar) = shared_by(&config, &server("2025-11-25", "2026-07-28", "obstinate"), &[]);
    let clients = [0, 1].map(|principal| open(&sidecar, principal));
    std::thread::scope(|scope| {
        let wait = [0, 1].map(|principal: usize| {
            let sidecar = &sidecar;
            // What stands alone takes a process of its own.
            let call = modern::request(1, "tools/call", json!({"name": "pid", "arguments": {}}));
            let call = call.key(KEYS[principal].1);
            scope.spawn(move || assert_eq!(call.send(sidecar.mcp).status, 200))
        });
        eventually("they wait", || sidecar.metric("longshore_processes_queued") == 2.0);
        clients.iter().rev().for_each(delete);
        for waits in wait {
            waits.join().unwrap();
        }
    });
}

/// It costs nothing any more, and nobody may call again.
#[test]
fn a_process_that_died_keeps_its_place_no_longer_than_one_that_rests() {
    let mut config = config(Isolation::Principal, 1);
    let processes = config.limits.processes.as_mut().unwrap();
    (processes.idle_ms, processes.queue_ms) = (300, 20_000);
    let (_shim, sidecar) = shared(&config, &[], &[]);
    let first = open(&sidecar, 0);
    assert!(error(&first.call("exit", json!({"status": 3}))).contains("exit status 3"));
    let other = open(&sidecar, 1);
    let pid_of_other = pid(&other);
    assert_ne!(pid(&first), pid_of_other, "it gets another one, when there is room");
}

/// One may have it also who asks for what it does not speak, and others keep theirs.
#[test]
fn a_process_that_nobody_uses_makes_room_within_its_principals_part() {
    let mut config = config(Isolation::Principal, 4);
    config.limits.processes.as_mut().unwrap().per_principal = 1;
    let (_shim, sidecar) = shared(&config, &[], &[]);
    let [others, own] = [1, 0].map(|principal| {
        let client = open(&sidecar, principal);
        let pid = pid(&client);
        delete(&client);
        pid
    });
    let older = Request::post(client::initialize("2025-06-18")).key(KEYS[0].1);
    eventually("it is there", || older.send(sidecar.mcp).status == 200);
    assert_eq!(pid(&open(&sidecar, 1)), others);
    assert_ne!(pid(&Client::of(&sidecar, Some(KEYS[0].1), "2025-06-18")), own);
}
