//! The end of a run, in order and not: nothing that it started is left.

use std::io::Read as _;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Folder, LONGSHORE, Local, eventually, free_port, get, gone, peer, session};
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

/// A server that has said more than is kept for a reader, and so more than any pipe holds.
fn talker() -> (Folder, Local, std::process::ChildStderr) {
    let folder = Folder::new();
    let (port, written) = (free_port(), folder.path().join("written"));
    let script = format!(
        "yes 'nobody reads this' | head -c 3000000 >&2; touch {}; \
         exec {LONGSHORE} example-server --transport http --port {port}",
        written.display()
    );
    let manifest = open("talker", &["sh", "-c", &script], json!({"streamableHttp": {"port": port}}));
    let manifest = folder.write("a.json", &manifest.to_string());
    let (local, stderr) = Local::unread(&["--audit", manifest.to_str().unwrap()]);
    eventually("all is written", || written.exists().then_some(()));
    (folder, local, stderr)
}

#[test]
fn it_serves_and_ends_when_nobody_reads_what_it_says() {
    let (_folder, mut local, mut stderr) = talker();
    let url = local.server("talker").url;
    // A line of the audit log, which cannot be written either.
    get(&url, &[]);
    local.catalog("/v1/servers/tools/talker");
    let family = local.descendants();
    local.signal(Signal::TERM);
    assert_eq!(local.code(), Some(0));
    gone(&family);
    let mut said = Vec::new();
    stderr.read_to_end(&mut said).unwrap();
    assert!(String::from_utf8_lossy(&said).contains("tools/talker | nobody reads this\n"));
}

#[test]
fn who_reads_late_hears_how_much_is_lost() {
    let (_folder, mut local, stderr) = talker();
    local.announced();
    local.read(stderr);
    local.says("lines are lost here");
}

#[test]
fn no_server_has_the_terminal_of_local() {
    let folder = Folder::new();
    let port = free_port();
    for manifest in [
        open("stdio", &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}})),
        open(
            "http",
            &[LONGSHORE, "example-server", "--transport", "http", "--port", &port.to_string()],
            json!({"streamableHttp": {"port": port}}),
        ),
    ] {
        folder.write(
            &format!("{}.json", manifest["metadata"]["name"].as_str().unwrap()),
            &manifest.to_string(),
        );
    }
    let mut local = Local::json(&[folder.path().to_str().unwrap()]);
    local.announced();
    assert_eq!(local.guards("example-server").len(), 1);
    let own = session(std::process::id()).unwrap();
    // A new session has no terminal, and Ctrl-C reaches nobody in it.
    let family = local.descendants();
    assert!(family.len() >= 4, "{family:?}");
    for (pid, _) in family {
        // What has ended meanwhile has no terminal either.
        assert_ne!(session(pid), Some(own), "{pid}");
    }
}
