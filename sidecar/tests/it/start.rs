//! How a sidecar starts, and the hook that waits for it.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use longshore_sidecar::start::install;
use longshore_sidecar_config::paths;

use crate::harness::{Files, GoServer, Request, Sidecar, config, peer};

fn await_start(admin: &str, timeout: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longshore-sidecar"))
        .args(["await", "--admin-addr", admin, "--timeout", timeout])
        .output()
        .unwrap()
}

#[test]
fn the_hook_returns_when_the_shim_is_there_and_the_configuration_is_loaded() {
    // Nothing listens at the server's port: that is not waited for.
    let files = Files::new();
    files.write(&config(peer::free_port()));
    let (source, program) = (files.path("the-shim"), files.path("program"));
    std::fs::write(&source, b"#!/bin/sh\n").unwrap();
    let flags = ["--shim", source.to_str().unwrap()];
    let sidecar = Sidecar::with(files, &flags);
    let began = Instant::now();
    let output = await_start(&sidecar.admin.to_string(), "60");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let shim = program.join(paths::SHIM);
    assert_eq!(std::fs::read(&shim).unwrap(), b"#!/bin/sh\n");
    assert_eq!(shim.metadata().unwrap().permissions().mode() & 0o777, 0o555);
    let names = std::fs::read_dir(&program).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(
        !names.into_iter().any(|name| name.to_string_lossy().starts_with('.')),
        "nothing half is left there"
    );
}

#[test]
fn the_hook_says_why_it_fails() {
    let sidecar = Sidecar::with(Files::new(), &[]);
    let output = await_start(&sidecar.admin.to_string(), "1");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        text.contains("the sidecar is not ready after 1 seconds: cannot read")
            && text.contains("config.json"),
        "{text}"
    );

    let output = await_start(&format!("127.0.0.1:{}", peer::free_port()), "0");
    assert!(String::from_utf8_lossy(&output.stderr).contains("does not answer: "));
}

#[test]
fn what_a_sidecar_that_was_killed_has_left_of_a_shim_is_in_nobodys_way() {
    let files = Files::new();
    let (source, program) = (files.path("the-shim"), files.path("program"));
    std::fs::write(&source, b"#!/bin/sh\n").unwrap();
    // In a container every life of the sidecar has the same number.
    let left = program.join(format!(".{}.{}", paths::SHIM, std::process::id()));
    std::fs::write(&left, b"half").unwrap();
    std::fs::set_permissions(&left, Permissions::from_mode(0o555)).unwrap();
    // Root may write to it all the same, which is seen under another name.
    let same = files.path("same");
    std::fs::hard_link(&left, &same).unwrap();
    install(&source, &program).unwrap();
    assert_eq!(std::fs::read(program.join(paths::SHIM)).unwrap(), b"#!/bin/sh\n");
    assert_eq!(std::fs::read(same).unwrap(), b"half", "it is not written to");
    assert!(!left.exists());
}

#[test]
fn a_shim_that_cannot_be_installed_ends_the_start() {
    let files = Files::new();
    files.write(&config(peer::free_port()));
    let output = Command::new(env!("CARGO_BIN_EXE_longshore-sidecar"))
        .args(["serve", "--shim", "/nowhere/shim", "--program-dir"])
        .arg(files.path("program"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("cannot install /nowhere/shim in "), "{text}");
}

#[test]
fn one_listener_serves_both_families() {
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let files = Files::new();
    files.write(&config(peer::free_port()));
    let sidecar = Sidecar::with(files, &["--mcp-addr", "[::]:0", "--admin-addr", "[::]:0"]);
    for host in ["127.0.0.1", "::1"] {
        let address = |port| std::net::SocketAddr::new(host.parse().unwrap(), port);
        assert_eq!(Request::new("GET", "/healthz").send(address(sidecar.admin.port())).status, 200, "{host}");
        assert_eq!(Request::new("PUT", "/mcp").send(address(sidecar.mcp.port())).status, 405, "{host}");
    }
}

#[test]
fn a_port_that_is_taken_ends_the_start() {
    let server = GoServer::start(&[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flags = ["--mcp-addr", "--admin-addr", "--peers-addr"];
    for flag in flags {
        for workers in ["1", "2"] {
            let files = Files::new();
            files.write(&config(server.port));
            let mut command = Command::new(env!("CARGO_BIN_EXE_longshore-sidecar"));
            command.args(["serve", "--workers", workers]);
            for other in flags {
                command.args([other, if other == flag { &address } else { "127.0.0.1:0" }]);
            }
            for (flag, directory) in
                [("--config-dir", "config"), ("--keys-dir", "keys"), ("--sockets-dir", "sockets")]
            {
                command.arg(flag).arg(files.path(directory));
            }
            let output = command.output().unwrap();
            assert!(!output.status.success());
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            // Nobody else is to hear what was meant for the sidecar without being named.
            let user = rustix::process::geteuid().as_raw();
            let named = format!("cannot listen on {address}: a program of user {user} does");
            assert!(text.contains(&named), "{text}");
        }
    }
}
