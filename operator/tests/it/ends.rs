//! The end of a run, in order and not: nothing that it started is left.

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Folder, LONGSHORE, Local, eventually, free_port, gone, peer};
use crate::peers::open;

/// Servers of each kind, one that starts others and ignores SIGTERM among them, and a client in the middle of a call.
fn busy() -> (Folder, Local, std::process::Child) {
    let folder = Folder::new();
    let port = free_port();
    let go = peer("go-server");
    let script =
        format!("trap '' TERM; {go} -listen 127.0.0.1:{port} & {go} -mute -listen 127.0.0.1:0 & wait; wait");
    for manifest in [
        open("example", &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}})),
        open("shell", &["sh", "-c", &script], json!({"streamableHttp": {"port": port}})),
    ] {
        folder.write(
            &format!("{}.json", manifest["metadata"]["name"].as_str().unwrap()),
            &manifest.to_string(),
        );
    }
    let mut local = Local::json(&[folder.path().to_str().unwrap()]);
    let served = local.server("example");
    // The sidecar's own stays; the one that was asked which revisions it speaks ends.
    eventually("one process", || (local.running("example-server").len() == 1).then_some(()));
    let caller = std::process::Command::new(peer("mcp-inspector"))
        .args(["--cli", &served.url, "--transport", "http", "--method", "tools/call"])
        .args(["--tool-name", "countdown", "--tool-arg", "seconds=1000"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    eventually("a process for the session", || (local.running("example-server").len() > 1).then_some(()));
    assert!(local.running("go-server").len() >= 2);
    (folder, local, caller)
}

#[test]
fn nothing_is_left_whether_it_is_asked_to_end_or_killed() {
    for (signals, code) in [
        (&[Signal::INT][..], Some(0)),
        (&[Signal::TERM], Some(0)),
        // The terminal is closed.
        (&[Signal::HUP], Some(0)),
        (&[Signal::INT, Signal::INT], Some(0)),
        (&[Signal::KILL], None),
    ] {
        let (_folder, mut local, mut caller) = busy();
        let family = local.descendants();
        assert!(family.len() >= 6, "{family:?}");
        for signal in signals {
            local.signal(*signal);
        }
        assert_eq!(local.code(), code, "{}", local.said());
        gone(&family);
        if code.is_some() {
            assert_eq!(local.files(), Vec::<std::path::PathBuf>::new());
        }
        let _ = caller.kill();
        let _ = caller.wait();
    }
}
