//! How long a process that sessions share is there: until it rests, is too old for more of them, or nobody shares it.

use std::time::{Duration, Instant};

use longshore_sidecar_config::{Config, Isolation};
use serde_json::json;

use super::{KEYS, config, delete, error, listen, open, pid, shared, state};
use crate::harness::config::keys;
use crate::harness::{Files, eventually};

#[test]
fn a_process_that_nobody_shares_any_more_ends() {
    let mut config = config(Isolation::Principal, 2);
    config.limits.processes.as_mut().unwrap().idle_ms = 300;
    let (shim, sidecar) = shared(&config, &[], &[]);
    delete(&open(&sidecar, 0));
    eventually("it has ended", || shim.processes().len() == 1);
    // One that is needed elsewhere ends at once.
    config.limits.processes.as_mut().unwrap().idle_ms = 600_000;
    config.generation = 2;
    sidecar.runs(&sidecar.files.write_with_keys(&config, &keys(&KEYS)));
    let kept = open(&sidecar, 0);
    delete(&open(&sidecar, 1));
    let third = open(&sidecar, 2);
    assert_ne!(pid(&third), pid(&kept));
}

#[test]
fn a_process_that_nobody_calls_rests() {
    let mut config = config(Isolation::Principal, 1);
    config.limits.processes.as_mut().unwrap().idle_ms = 300;
    let (_shim, sidecar) = shared(&config, &[], &[]);
    // The process is gone before its place is free: the sidecar has to hear of its end.
    let rests = || sidecar.metric("longshore_processes") == 1.0;
    let (first, second) = (open(&sidecar, 0), open(&sidecar, 0));
    first.ask("logging/setLevel", json!({"level": "notice"}));
    let mut last = 0;
    // More often than one may die.
    for _ in 0..7 {
        let now = pid(&second);
        assert_ne!(now, last);
        assert_eq!(state(&first)["level"], "notice", "what was asked for is asked for again");
        last = now;
        eventually("it has ended", rests);
    }
    // Its place is another's meanwhile.
    let other = open(&sidecar, 1);
    other.ask("resources/subscribe", json!({"uri": "x:1"}));
    let refused = first.send("ping", json!({}));
    assert!(error(&refused.message()).contains("as many processes of this server run"), "{}", refused.text());
    // One that has to tell somebody something does not rest.
    let now = pid(&other);
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(pid(&other), now);
    delete(&other);
    eventually("there is room again", || first.send("ping", json!({})).message().get("result").map(drop));
    pid(&first);
}

/// Not every server answers what the sidecar itself says to the next one.
#[test]
fn a_process_rests_that_owes_an_answer_to_nobody() {
    let marks = Files::new();
    let mark = marks.path("reticent");
    let flag = format!("reticent={}", mark.display());
    let mut config = config(Isolation::Principal, 1);
    config.limits.processes.as_mut().unwrap().idle_ms = 300;
    let (_shim, sidecar) = shared(&config, &[&flag], &[]);
    let rests = || sidecar.metric("longshore_processes") == 1.0;
    let client = open(&sidecar, 0);
    client.ask("logging/setLevel", json!({"level": "notice"}));
    eventually("it has ended", rests);
    std::fs::write(&mark, "").unwrap();
    pid(&client);
    eventually("so has the next one", rests);
}

#[test]
fn a_process_of_a_certain_age_takes_no_more_sessions_while_there_may_be_another() {
    for isolation in [Isolation::Shared, Isolation::Principal] {
        let mut config = config(isolation, 2);
        config.limits.processes.as_mut().unwrap().max_age_ms = Some(400);
        let (shim, sidecar) = shared(&config, &[], &[]);
        let grow_old = || std::thread::sleep(Duration::from_millis(500));
        let first = open(&sidecar, 0);
        let before = pid(&first);
        grow_old();
        let second = open(&sidecar, 0);
        assert_ne!(pid(&second), before);
        grow_old();
        let third = open(&sidecar, 0);
        assert_eq!(pid(&third), before, "{isolation:?}: better an old one than none");
        assert_eq!(pid(&first), before, "who has it keeps it");
        delete(&first);
        delete(&third);
        eventually("it ends with its last session", || shim.processes().len() == 2);
        // The sidecar hears of its end later than the kernel.
        eventually("there may be another again", || {
            let fourth = open(&sidecar, 0);
            let is_another = pid(&fourth) != pid(&second);
            delete(&fourth);
            is_another
        });
    }
}

/// What counts is the process, and not since when there is somebody who has one now and then.
#[test]
fn a_process_that_was_started_anew_is_young() {
    let mut config = config(Isolation::Principal, 2);
    let processes = config.limits.processes.as_mut().unwrap();
    (processes.idle_ms, processes.max_age_ms) = (300, Some(5_000));
    let (_shim, sidecar) = shared(&config, &[], &[]);
    let began = Instant::now();
    let first = open(&sidecar, 0);
    eventually("it has ended", || sidecar.metric("longshore_processes") == 1.0);
    std::thread::sleep(Duration::from_millis(5_500).saturating_sub(began.elapsed()));
    // From here on it has something to do.
    let _under_way = listen(&first);
    let another = pid(&first);
    let second = open(&sidecar, 0);
    assert_eq!(pid(&second), another, "it is no older than a moment");
    // It grows old as the first did.
    std::thread::sleep(Duration::from_millis(5_500));
    let third = open(&sidecar, 0);
    assert_ne!(pid(&third), another);
    assert_eq!(pid(&first), another, "who has it keeps it");
}

/// One that rests is of no age: whoever comes has its next process, and a second one would keep half of what is kept.
#[test]
fn a_process_that_is_not_there_is_not_old() {
    let mut config = config(Isolation::Principal, 2);
    let processes = config.limits.processes.as_mut().unwrap();
    (processes.idle_ms, processes.max_age_ms) = (300, Some(2_000));
    let (_shim, sidecar) = shared(&config, &[], &[]);
    let began = Instant::now();
    let first = open(&sidecar, 0);
    eventually("it has ended", || sidecar.metric("longshore_processes") == 1.0);
    std::thread::sleep(Duration::from_millis(2_500).saturating_sub(began.elapsed()));
    let second = open(&sidecar, 0);
    // From here on it has something to do.
    let _under_way = listen(&first);
    let process = pid(&first);
    assert_eq!(pid(&second), process);
}

/// Also for processes that were started before.
#[test]
fn a_change_of_the_limits_counts_at_once() {
    let mut config = config(Isolation::Principal, 2);
    config.limits.processes.as_mut().unwrap().idle_ms = 600_000;
    let (_shim, sidecar) = shared(&config, &[], &[]);
    let change = |config: &Config| sidecar.runs(&sidecar.files.write_with_keys(config, &keys(&KEYS)));
    let first = open(&sidecar, 0);
    let before = pid(&first);
    config.limits.processes.as_mut().unwrap().max_age_ms = Some(1);
    config.generation += 1;
    change(&config);
    assert_ne!(pid(&open(&sidecar, 0)), before, "it is too old by now");
    assert_eq!(pid(&first), before, "who has it keeps it");
    config.limits.processes.as_mut().unwrap().idle_ms = 300;
    config.generation += 1;
    change(&config);
    eventually("both rest", || sidecar.metric("longshore_processes") == 1.0);
}
