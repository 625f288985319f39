//! How much memory processes have.

use longshore_shim::protocol::Report;

use super::takeover::killed;
use crate::harness::{NO_PATIENCE, Process, Setup, Shim, eventually};

#[test]
fn what_processes_have_is_told_and_what_is_much_is_in_the_log() {
    let cgroups = tempfile::tempdir().unwrap();
    std::fs::write(cgroups.path().join("memory.max"), (40 << 20).to_string()).unwrap();
    // By a child of the process that was started, which is the one that grows, and in a group of its own.
    let script = "setsid python3 -c 'a = b\"x\" * (64 << 20); print(len(a), flush=True); input()'; true";
    let shim =
        Setup::new(&["sh", "-c", script]).options(&["--cgroups", cgroups.path().to_str().unwrap()]).start();
    let mut process = shim.start(1);
    assert_eq!(process.line(), (64 << 20).to_string());
    let resident = loop {
        match process.lifeline.receive() {
            Some((Report::Resident(resident), _)) if resident.kilobytes > 64 << 10 => break resident,
            Some((Report::Resident(_), _)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!((64 << 10..256 << 10).contains(&resident.kilobytes), "{resident:?}");
    assert_eq!(resident.limit, 40 << 10);
    eventually("the line", || shim.log().contains("MiB in memory, of 40 MiB that this container may have"));
    process.end(NO_PATIENCE);
    process.ended();
}

/// It has heard nothing of what the one before was told.
#[test]
fn the_next_sidecar_is_told_what_a_process_has_that_stays_as_it_is() {
    let shim = Shim::of(&["cat"]);
    let told = |process: &Process| match process.lifeline.receive() {
        Some((Report::Resident(resident), _)) => resident.kilobytes,
        other => panic!("{other:?}"),
    };
    let process = shim.start(1);
    assert!(told(&process) > 0);
    killed(vec![process]);
    assert!(told(&shim.adopt(1).unwrap()) > 0);
}
