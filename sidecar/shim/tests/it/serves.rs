//! What a process gets.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use longshore_shim::protocol::{Cause, Outcome, Refusal, Request, Session};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{ALL_PATIENCE, Setup, Shim, eventually};

#[test]
fn a_connection_is_a_process_of_its_own() {
    let shim = Shim::of(&["cat"]);
    let mut first = shim.start(1);
    let mut second = shim.start(2);
    second.write("to the second\n");
    first.write("to the first\n");
    assert_eq!(first.line(), "to the first");
    assert_eq!(second.line(), "to the second");
    assert_eq!((first.number, second.number), (1, 2));

    first.end(ALL_PATIENCE);
    let ended = first.ended();
    assert_eq!((ended.outcome, ended.cause, ended.stderr), (Outcome::Exited(0), Cause::Asked, Vec::new()));
    assert_eq!(first.rest(), "");
    second.write("still there\n");
    assert_eq!(second.line(), "still there");
}

#[test]
fn a_process_inherits_nothing_of_the_shims() {
    let script = "
        sed -n -E 's/^Sig(Blk|Ign|Cgt)/\\1/p' /proc/self/status
        echo umask $(umask)
        echo descriptors $(ls /proc/self/fd)
        echo group $(cut -d ' ' -f 5 /proc/$$/stat) of $$
        echo variable $A_VARIABLE in $(pwd)";
    let shim = Setup::new(&["sh", "-c", script])
        .before(
            "umask 027; exec 7</dev/null 8</dev/null; export A_VARIABLE=value; cd /usr
            trap '' HUP INT QUIT USR1 ALRM TSTP; set -- env --block-signal=TERM,CHLD,USR2,URG \"$@\"",
        )
        .start();
    let mode = std::fs::metadata(shim.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660, "whatever the umask");

    let mut process = shim.start(1);
    let nothing = format!("\t{}", "0".repeat(16));
    assert_eq!(process.line(), format!("Blk:{nothing}"));
    // Those that the C library keeps to itself are ignored in all that it starts.
    assert!(["Ign:\t0000000180000000", &format!("Ign:{nothing}")].contains(&process.line().as_str()));
    // What sed itself catches: nothing.
    assert_eq!(process.line(), format!("Cgt:{nothing}"));
    assert_eq!(process.line(), "umask 0027");
    assert_eq!(process.line(), "descriptors 0 1 2 3", "the last is the folder that ls reads");
    let group = process.line();
    let (group, own) = group.strip_prefix("group ").and_then(|ids| ids.split_once(" of ")).unwrap();
    assert_eq!(group, own);
    assert_eq!(process.line(), "variable value in /usr");

    // What it ignores it goes on ignoring, and what was blocked reaches it.
    let mut shim = shim;
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1] {
        shim.signal(signal);
    }
    assert_eq!(shim.start(2).line(), format!("Blk:{nothing}"));
    shim.terminate();
    assert!(shim.wait().success());
}

#[test]
fn the_limit_of_descriptors_is_the_containers_for_processes_and_the_most_for_the_shim() {
    let shim = Setup::new(&["sh", "-c", "ulimit -n; exec cat"]).before("ulimit -S -n 20").start();
    let mut processes: Vec<_> = (0..20).map(|session| shim.start(session)).collect();
    for process in &mut processes {
        assert_eq!(process.line(), "20");
    }
    assert!(shim.descriptors() > 60);
}

#[test]
fn without_descriptors_it_refuses_and_goes_on() {
    let shim = Setup::new(&["cat"]).before("ulimit -n 20").start();
    let mut processes = Vec::new();
    let (reason, errno, _) = loop {
        match shim.ask(Request::Start(Session(processes.len() as u128))) {
            Ok(process) => processes.push(process),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((reason, errno), (Refusal::NotStarted, Errno::MFILE.raw_os_error()));
    for process in &mut processes {
        process.write("still served\n");
        assert_eq!(process.line(), "still served");
    }
    let mut last = processes.pop().unwrap();
    last.end(ALL_PATIENCE);
    last.ended();
    shim.start(99).write("in its place\n");
}

#[test]
fn stderr_is_numbered_lines_of_the_log() {
    let shim = Shim::script("printf 'one\\r\\ntwo' >&2; read -r line; echo \"$line\" >&2");
    let mut first = shim.start(1);
    let mut second = shim.start(2);
    second.write("the second\n");
    assert_eq!(second.ended().stderr, b"one\r\ntwothe second\n");
    first.write("the first\n");
    assert_eq!(first.ended().stderr, b"one\r\ntwothe first\n");
    eventually("both are logged", || {
        let log = shim.log();
        let has = |line: &str| log.lines().any(|logged| logged == line);
        has("[1] one") && has("[1] twothe first") && has("[2] one") && has("[2] twothe second")
    });
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    let script = "i=0; while [ $i -lt 2000 ]; do echo a line that fills the pipe of the log sooner or later >&2; \
        i=$((i+1)); done & exec cat";
    let shim = Setup::new(&["sh", "-c", script]).log(Stdio::from(writer)).start();
    for session in 0..10 {
        let mut process = shim.start(session);
        process.write("still served\n");
        assert_eq!(process.line(), "still served");
    }
    drop(reader);
}

#[test]
fn nothing_is_left_of_a_hundred_processes() {
    let shim = Shim::of(&["cat"]);
    // Once, so that whatever is made once is made.
    let mut warm = shim.start(1000);
    warm.end(ALL_PATIENCE);
    warm.ended();
    eventually("the first has gone", || shim.children().is_empty());
    let descriptors = shim.descriptors();

    let mut processes: Vec<_> = (0..100).map(|session| shim.start(session)).collect();
    assert_eq!(shim.children().len(), 100);
    for process in &mut processes {
        process.write("hello\n");
        assert_eq!(process.line(), "hello");
    }
    for process in &mut processes {
        process.end(ALL_PATIENCE);
    }
    for process in &processes {
        assert_eq!(process.ended().outcome, Outcome::Exited(0));
    }
    eventually("no process is left", || shim.children().is_empty());
    eventually("no descriptor is left", || shim.descriptors() == descriptors);
}

#[test]
fn orphans_are_reaped() {
    // The inner shell is gone before the sleep ends, in a session of its own that no signal reaches.
    let shim = Shim::script("setsid sh -c 'sleep 1000 & echo $!'; exec cat");
    let mut process = shim.start(1);
    let orphan = process.line();
    eventually("it comes to the shim", || shim.children().len() == 2);
    kill_process(orphan.parse().ok().and_then(Pid::from_raw).unwrap(), Signal::KILL).unwrap();
    eventually("it is reaped", || !std::path::Path::new("/proc").join(&orphan).exists());
    assert_eq!(shim.children().len(), 1);
    process.write("no concern of mine\n");
    assert_eq!(process.line(), "no concern of mine");
}
