//! How processes end.

use std::io::Write as _;

use longshore_shim::protocol::{Cause, Outcome};
use rustix::process::Signal;

use crate::harness::{ALL_PATIENCE, NO_PATIENCE, PATIENCE, Setup, Shim, TERM_SOON, eventually, runs};

const KILL: Outcome = Outcome::Killed(Signal::KILL.as_raw());
const TERM: Outcome = Outcome::Killed(Signal::TERM.as_raw());

#[test]
fn an_end_of_its_own_is_reported_with_its_last_words() {
    let cases: [(&str, Outcome, &[u8]); 5] = [
        ("exit 0", Outcome::Exited(0), b""),
        ("echo bad argument >&2; exit 3", Outcome::Exited(3), b"bad argument\n"),
        ("printf '\\377 no line feed' >&2; exit 255", Outcome::Exited(255), b"\xff no line feed"),
        ("kill -9 $$", KILL, b""),
        // In the middle of a call: something has been read, and half an answer written.
        ("read -r line; printf '{\"half\":'; kill -TERM $$", TERM, b""),
    ];
    for (script, outcome, stderr) in cases {
        let shim = Shim::script(script);
        let mut bystander = None;
        if script.starts_with("read") {
            bystander = Some(shim.start(2));
        }
        let mut process = shim.start(1);
        // It may be gone already.
        _ = process.stdin.as_ref().unwrap().write_all(b"call\n");
        let ended = process.ended();
        assert_eq!((ended.outcome, ended.cause), (outcome, Cause::Own), "{script}");
        assert_eq!(ended.stderr, stderr, "{script}");
        process.rest();
        if let Some(mut bystander) = bystander {
            bystander.write("call\n");
            assert_eq!(bystander.rest(), "{\"half\":");
        }
        // The number is free again.
        shim.start(1);
    }
}

#[test]
fn only_the_end_of_stderr_is_reported() {
    let shim = Shim::script("i=0; while [ $i -lt 1000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1");
    let stderr = String::from_utf8(shim.start(1).ended().stderr).unwrap();
    assert_eq!(stderr.len(), 2048);
    assert!(stderr.ends_with("line 998\nline 999\n"));
}

/// 64: stdin is closed first, then it is told by SIGTERM, and killed in the end.
#[test]
fn r064_termination_goes_as_far_as_it_must() {
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let polite = "trap 'echo bye >&2; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let cases = [
        ("echo ready; exec cat", ALL_PATIENCE, Outcome::Exited(0)),
        ("echo ready; exec sleep 1000", TERM_SOON, TERM),
        (polite, TERM_SOON, Outcome::Exited(7)),
        (stubborn, PATIENCE, KILL),
        (stubborn, NO_PATIENCE, KILL),
    ];
    for (script, patience, outcome) in cases {
        let shim = Shim::script(script);
        let mut process = shim.start(1);
        assert_eq!(process.line(), "ready");
        process.end(patience);
        let ended = process.ended();
        assert_eq!((ended.outcome, ended.cause), (outcome, Cause::Asked), "{script}");
        assert!(process.rest().is_empty());
    }
}

#[test]
fn an_end_can_be_hurried() {
    let shim = Shim::of(&["sleep", "1000"]);
    let mut process = shim.start(1);
    process.end(ALL_PATIENCE);
    process.end(NO_PATIENCE);
    assert!(matches!(process.ended().outcome, Outcome::Killed(_)));
}

#[test]
fn what_a_process_started_ends_with_it() {
    for script in ["sleep 1000 & echo $!; read -r line; exit 0", "sleep 1000 & echo $!; exec cat"] {
        let shim = Shim::script(script);
        let mut process = shim.start(1);
        let other = process.line();
        assert!(runs(&other));
        process.write("by itself, or as it is told\n");
        process.end(ALL_PATIENCE);
        process.ended();
        // It had the same stdout, which ends only now.
        process.rest();
        eventually("the other is gone", || !runs(&other));
    }
}

#[test]
fn one_that_never_reads_hinders_nobody() {
    let shim = Shim::script("read -r kind; if [ $kind = deaf ]; then exec sleep 1000; else exec cat; fi");
    let mut deaf = shim.start(1);
    deaf.write("deaf\n");
    let mut stdin = deaf.stdin.as_ref().unwrap();
    rustix::io::ioctl_fionbio(stdin, true).unwrap();
    eventually("its pipe is full", || {
        stdin.write(&[b'x'; 4096]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    });
    let mut other = shim.start(2);
    other.write("ears\nhello\n");
    assert_eq!(other.line(), "hello");
    deaf.end(TERM_SOON);
    assert_eq!(deaf.ended().outcome, TERM);
}

#[test]
fn one_that_floods_stdout_waits_for_its_reader() {
    let shim = Shim::of(&["yes"]);
    let mut process = shim.start(1);
    assert_eq!(process.line(), "y");
    process.end(TERM_SOON);
    assert_eq!(process.ended().outcome, TERM);
}

#[test]
fn one_that_floods_stderr_is_ended() {
    let line = "y".repeat(63);
    let shim = Shim::script(&format!(
        "read -r kind; if [ $kind = flood ]; then exec yes {line} >&2; else exec cat; fi"
    ));
    let mut other = shim.start(1);
    other.write("calm\n");
    let mut flood = shim.start(2);
    flood.write("flood\n");
    let ended = flood.ended();
    assert_eq!((ended.outcome, ended.cause), (TERM, Cause::Flood));
    assert_eq!(ended.stderr, format!("{line}\n").repeat(32).as_bytes());
    other.write("hello\n");
    assert_eq!(other.line(), "hello");
    eventually("the log says so", || {
        let log = shim.log();
        log.contains("[2] longshore: ended, since it writes to stderr without measure")
            && log.contains("bytes of stderr left out")
    });
    assert!(shim.log().len() < 2 << 20, "a burst of a megabyte, with a number before each of its lines");
}

#[test]
fn the_end_of_the_container_ends_all() {
    let mut shim = Shim::script(
        "read -r kind; if [ $kind = stubborn ]; then trap '' TERM; echo ready; while :; do sleep 0.05; done; fi; \
         echo ready; exec cat",
    );
    let mut processes: Vec<_> = (1..=3).map(|session| shim.start(session)).collect();
    for (process, kind) in processes.iter_mut().zip(["calm", "calm", "stubborn"]) {
        process.write(&format!("{kind}\n"));
        assert_eq!(process.line(), "ready");
    }
    shim.terminate();
    eventually("nobody can connect any more", || !shim.socket().exists());
    // The sidecar has their stdin open, so it is SIGTERM that they get.
    for (process, outcome) in processes.iter().zip([TERM, TERM, KILL]) {
        let ended = process.ended();
        assert_eq!((ended.outcome, ended.cause), (outcome, Cause::Stopping));
    }
    assert!(shim.wait().success());
    assert!(shim.log().contains("[3] longshore: did not end by itself"));
}

/// One whose session has just ended writes what it remembers: the end of its container takes no time from it for that.
#[test]
fn the_end_of_the_container_hurries_nobody_whose_stdin_is_closed() {
    let mut shim = Shim::script("cat; echo writes; sleep 0.3; exit 7");
    let mut process = shim.start(1);
    process.end(ALL_PATIENCE);
    assert_eq!(process.line(), "writes");
    shim.terminate();
    let ended = process.ended();
    assert_eq!((ended.outcome, ended.cause), (Outcome::Exited(7), Cause::Asked));
    assert!(shim.wait().success());
}

#[test]
fn the_end_of_its_stdin_ends_the_shim_where_it_was_told_so() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut shim = Setup::new(&["cat"]).options(&["--until-stdin-closes"]).stdin(reader.into()).start();
    let mut process = shim.start(1);
    process.write("hello\n");
    assert_eq!(process.line(), "hello");
    drop(writer);
    assert_eq!(process.ended().cause, Cause::Stopping);
    assert!(shim.wait().success());
    assert!(!shim.socket().exists());
}

#[test]
fn what_got_away_from_its_group_ends_with_the_shim() {
    // A session of its own, and a parent that is gone, is how a daemon is made.
    let mut shim = Shim::script("setsid sh -c 'sleep 1000 & sleep 1000 & echo $! $$'; exec cat");
    let mut process = shim.start(1);
    let daemon = process.line();
    let (daemon, parent) = daemon.split_once(' ').unwrap();
    eventually("its parent is gone", || !runs(parent));
    process.end(ALL_PATIENCE);
    process.ended();
    assert!(runs(daemon), "no signal reaches it");
    shim.terminate();
    assert!(shim.wait().success());
    eventually("it is gone", || !runs(daemon));
}

#[test]
fn an_idle_shim_ends_at_once() {
    let mut shim = Shim::of(&["cat"]);
    shim.terminate();
    assert!(shim.wait().success());
    assert!(!shim.socket().exists());
}
