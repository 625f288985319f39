//! The first process of a container (`init`). Without root there is none.

use std::process::Command;

use longshore_shim::protocol::Cause;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Setup, children_of, eventually};

#[test]
fn a_first_process_ends_when_it_is_told_to() {
    let Some(setup) = Setup::new(&["sh", "-c", "(sleep 0.1 & echo $!); exec cat"]).first() else { return };
    let mut shim = setup.start();
    let mut process = shim.start(1);
    // Numbers are those of its own namespace.
    assert!(process.line().parse::<u32>().unwrap() < 100);
    eventually("the orphan is reaped", || shim.children().len() == 1);
    process.write("the sidecar's number is 0 in there\n");
    assert_eq!(process.line(), "the sidecar's number is 0 in there");
    shim.terminate();
    assert_eq!(process.ended().cause, Cause::Stopping);
    assert!(shim.wait().success());
}

/// Images say by which signal they are to be stopped, and mean what they were made for, which a server is not.
#[test]
fn a_first_process_ends_by_whatever_signal_its_image_says() {
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "WINCH", "RTMIN+3"] {
        let Some(setup) = Setup::new(&["cat"]).first() else { return };
        let mut shim = setup.start();
        let process = shim.start(1);
        let first = shim.first().to_string();
        assert!(Command::new("kill").args(["-s", signal, &first]).status().unwrap().success(), "{signal}");
        assert_eq!(process.ended().cause, Cause::Stopping, "{signal}");
        assert!(shim.wait().success(), "{signal}");
    }
}

/// Some watch for the end of whoever started them, and take 1 for that.
#[test]
fn no_server_has_the_first_process_as_its_parent() {
    let Some(setup) = Setup::new(&["sh", "-c", "echo $PPID; exec cat"]).first() else { return };
    let shim = setup.start();
    let parent = shim.start(1).line();
    assert!(parent.parse::<u32>().unwrap() > 1, "{parent}");
    let name = std::fs::read_to_string(format!("/proc/{}/comm", shim.pid())).unwrap();
    assert_eq!(name, "shim\n", "whoever looks at processes knows it");
}

#[test]
fn a_first_process_ends_with_the_one_that_serves() {
    let Some(setup) = Setup::new(&["cat"]).first() else { return };
    let mut shim = setup.start();
    kill_process(Pid::from_raw(shim.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
    assert_eq!(shim.wait().code(), Some(128 + Signal::KILL.as_raw()));
}

#[test]
fn a_first_process_fails_as_the_one_that_serves_does() {
    let Some(setup) = Setup::new(&["cat"]).options(&["--socket", "/no/such/folder/stdio.sock"]).first()
    else {
        return;
    };
    let mut shim = setup.start_unheard();
    assert_eq!(shim.wait().code(), Some(1));
    let said =
        "longshore: cannot listen at /no/such/folder/stdio.sock: No such file or directory (os error 2)\n";
    assert_eq!(shim.log(), said);
}

#[test]
fn what_was_executed_from_outside_and_is_lost_is_reaped() {
    let Some(setup) = Setup::new(&["cat"]).first() else { return };
    let shim = setup.start();
    let mut enter = Command::new("nsenter");
    enter.arg("--target").arg(shim.first().to_string()).args(["--pid", "sh", "-c", "sleep 3 &"]);
    assert!(enter.status().unwrap().success());
    eventually("it comes to the first process", || children_of(shim.first()).len() == 2);
    eventually("it is reaped", || children_of(shim.first()).len() == 1);
}
