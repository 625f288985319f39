//! The preStop hook: it waits for the sidecar, where there is one.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{DEADLINE, eventually};

fn drain(socket: &std::path::Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_shim")).arg("drain").arg(socket).stdin(Stdio::null()).spawn().unwrap()
}

fn end(hook: &mut Child) -> ExitStatus {
    let mut status = None;
    eventually("the hook ends", || {
        status = hook.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

#[test]
fn waits_until_the_sidecar_closes_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drain.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut hook = drain(&socket);

    let mut accepted = None;
    eventually("the hook connects", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (mut connection, _) = accepted.unwrap();
    connection.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut line = [0; 6];
    connection.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"drain\n");
    connection.write_all(b"whatever a later sidecar may say\n").unwrap();
    // It says one line and then nothing, and it is there for as long as we are.
    connection.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(connection.read(&mut line).is_err(), "the hook ended, or said more");
    assert!(hook.try_wait().unwrap().is_none());

    drop(connection);
    assert!(end(&mut hook).success());
}

#[test]
fn ends_at_once_and_well_without_a_sidecar() {
    let folder = tempfile::tempdir().unwrap();
    let abandoned = folder.path().join("abandoned.sock");
    drop(UnixListener::bind(&abandoned).unwrap());
    for socket in [folder.path().join("missing.sock"), abandoned] {
        let start = Instant::now();
        assert!(end(&mut drain(&socket)).success());
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn says_its_version_and_its_usage() {
    let shim =
        |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_shim")).args(arguments).output().unwrap();
    let version = shim(&["--version"]);
    assert!(version.status.success());
    assert_eq!(String::from_utf8(version.stdout).unwrap(), format!("shim {}\n", env!("CARGO_PKG_VERSION")));
    let usage = shim(&["dig"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8(usage.stderr).unwrap().starts_with("usage: shim"));
}
