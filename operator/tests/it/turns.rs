//! Servers that are in each other's way, and those that are not.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Folder, LONGSHORE, Local, PORTS_OF_A_RUN, eventually, free_port, free_ports};
use crate::peers::open;

fn example(name: &str) -> Value {
    open(name, &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}}))
}

fn at(name: &str, port: u16) -> Value {
    let port_text = port.to_string();
    let command = [LONGSHORE, "example-server", "--transport", "http", "--port", &port_text];
    open(name, &command, json!({"streamableHttp": {"port": port}}))
}

/// A server at a port, whose guard does not hear that it is to end before it is let go.
struct Held {
    guard: Pid,
    server: Vec<u32>,
}

impl Held {
    fn of(local: &Local) -> Self {
        let [guard] = *local.guards("example-server") else { panic!("{}", local.said()) };
        let (guard, server) = (pid(guard), local.running("example-server"));
        kill_process(guard, Signal::STOP).unwrap();
        Self { guard, server }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if kill_process(self.guard, Signal::CONT).is_err() {
            // It was waited for in vain, and killed; nobody is left who would end the server.
            for server in &self.server {
                let _ = kill_process(pid(*server), Signal::KILL);
            }
        }
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).unwrap()
}

#[test]
fn others_begin_while_a_server_takes_its_time_to_end() {
    // A busy machine may need longer for that than a server is waited for, though not each time.
    let in_time = (0..5).any(|_| {
        let folder = Folder::new();
        let port = free_port();
        folder.write("slow.json", &at("slow", port).to_string());
        let mut local = Local::json(&[folder.path().to_str().unwrap()]);
        local.announced();
        let held = Held::of(&local);
        std::fs::remove_file(folder.path().join("slow.json")).unwrap();
        folder.write("other.json", &example("other").to_string());
        folder.write("same-port.json", &at("same-port", port).to_string());
        local.says("tools/other is ready: 4 tools");
        let in_time = !local.guards("example-server").is_empty();
        drop(held);
        // Who wants its port has it in the end, and was not told that another program has it.
        local.says("tools/same-port is ready: 4 tools");
        assert!(!in_time || !local.said().contains("is taken"), "{}", local.said());
        let listed = local.catalog("/v1/servers");
        assert_eq!(listed["total"], 2, "{listed}");
        in_time
    });
    assert!(in_time, "others waited for it each time");
}

#[test]
fn a_server_that_changes_while_it_waits_begins_as_it_is_wanted_then() {
    let folder = Folder::new();
    let (before, after) = (free_port(), free_port());
    folder.write("a.json", &at("a", before).to_string());
    let mut local = Local::apart(folder.path());
    let served = local.server("a");
    let held = Held::of(&local);
    folder.write("a.json", &at("a", after).to_string());
    local.says("tools/a: its manifest has changed");
    let changed = local.said().matches("tools/a: its manifest has changed").count();
    folder.write("a.json", &example("a").to_string());
    eventually("it is read", || {
        (local.said().matches("tools/a: its manifest has changed").count() > changed).then_some(())
    });
    drop(held);
    eventually("it runs as it is wanted now", || (local.running("stdio").len() == 1).then_some(()));
    eventually("at the same URL", || {
        let server = local.catalog("/v1/servers")["items"][0].clone();
        (server["health"]["state"] == "Up" && server["url"] == served.url.as_str()).then_some(())
    });
}

#[test]
fn clients_come_to_no_port_at_which_a_server_is_to_listen() {
    let folder = Folder::new();
    let port = free_ports(PORTS_OF_A_RUN);
    folder.write("a.json", &example("a").to_string());
    folder.write("b.json", &at("b", port + 1).to_string());
    let path = folder.path().to_str().unwrap().to_owned();
    let mut local = Local::json(&["--port", &port.to_string(), &path]);
    let (a, b) = (local.server("a"), local.server("b"));
    assert_eq!(a.url, format!("http://127.0.0.1:{port}/mcp"));
    assert_ne!(b.url, format!("http://127.0.0.1:{}/mcp", port + 1));
    drop(local);

    // The one that was asked for cannot be given to both.
    folder.write("b.json", &at("b", port).to_string());
    let mut local = Local::json(&["--port", &port.to_string(), &path]);
    assert_eq!(local.code(), Some(2));
    local.says(&format!("tools/b: clients of `longshore local` come to port {port}"));
}

#[test]
fn whoever_takes_the_port_of_a_server_that_has_ended_is_noticed_before_that_is_started_again() {
    let folder = Folder::new();
    let (port, starts) = (free_port(), folder.path().join("starts"));
    let script = format!("echo >> {}; exit 3", starts.display());
    let manifest = open("ends", &["sh", "-c", &script], json!({"streamableHttp": {"port": port}}));
    let manifest = folder.write("ends.json", &manifest.to_string());
    let local = Local::json(&[manifest.to_str().unwrap()]);
    // From then on four seconds go by until the next time.
    let started = |times| (std::fs::read(&starts).is_ok_and(|lines| lines.len() >= times)).then_some(());
    eventually("it ends again and again", || started(4));
    let (taken, began) = (std::net::TcpListener::bind(("127.0.0.1", port)).unwrap(), Instant::now());
    local.says(&format!("tools/ends does not run: port {port}, at which the server is to listen, is taken"));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    drop(taken);
    eventually("it is started again", || started(5));
}
