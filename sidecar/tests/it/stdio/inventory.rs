//! What the operator hears of a server over stdio.

use std::time::{Duration, Instant};

use longshore_sidecar_config::inventory::{ConnectionReason, ConnectionState};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::said;
use crate::harness::shim::{python, server, serving, stdio};
use crate::harness::{Client, Cluster, Files, Shim, Sidecar, eventually, within};

fn started(flags: &[&str]) -> (Shim, Sidecar, String) {
    let cluster = Cluster::new();
    let mut config = stdio();
    cluster.trust(&mut config);
    let (shim, sidecar) = serving(&config, &server(flags), &[]);
    (shim, sidecar, cluster.token(|_| {}))
}

#[test]
fn it_has_the_first_line_that_is_no_message() {
    let (_shim, sidecar, token) = started(&["banner"]);
    let inventory = sidecar.inventory(&token);
    assert_eq!(inventory.connection.state, ConnectionState::Connected);
    assert_eq!(inventory.tools.len(), 1);
    assert_eq!(inventory.noise.as_deref(), Some("Starting\\u{1b}[1m a server"));

    // A server that is silent until it is called is found out by that, but what it says may be its caller's.
    let (_shim, sidecar, token) = started(&[]);
    assert_eq!(sidecar.inventory(&token).noise, None);
    let client = Client::open(&sidecar, None);
    said(&client, "write", json!({"hex": "68656c6c6f0a"}));
    eventually("the line", || {
        sidecar.inventory(&token).noise.as_deref() == Some("(not shown: of a client's session)")
    });
}

#[test]
fn the_sidecars_own_process_is_replaced_when_it_dies() {
    let began = Instant::now();
    let (shim, sidecar, token) = started(&[]);
    let [first] = shim.processes()[..] else { panic!("one process") };
    kill_process(Pid::from_raw(first.cast_signed()).unwrap(), Signal::KILL).unwrap();
    eventually("another process", || {
        let processes = shim.processes();
        processes.len() == 1 && processes[0] != first
    });
    eventually("it is connected", || sidecar.metric("longshore_handshakes_total{result=\"ok\"}") == 2.0);
    let connection = sidecar.inventory(&token).connection;
    assert_eq!(connection.state, ConnectionState::Connected);
    let readiness = sidecar.get("/readyz").status;
    // It ended soon after its handshake, so the next one has to stay: for ten seconds, if the machine did not stand still.
    if began.elapsed() < Duration::from_secs(9) {
        assert_eq!(connection.reason, Some(ConnectionReason::ConnectionLost));
        assert_eq!(connection.message, "the server's process ended soon after its handshake");
        assert_eq!(readiness, 503);
    }
}

#[test]
fn changes_in_the_running_server_show_at_once() {
    let (_shim, sidecar, token) = {
        let cluster = Cluster::new();
        let mut config = stdio();
        cluster.trust(&mut config);
        let files = Files::new();
        files.write(&config);
        // A tool more every half second, in each of its processes.
        let script = r#"
import json, sys, threading
tools = []
def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()
def grow():
    tools.append({"name": "tool-%d" % len(tools), "inputSchema": {"type": "object"}})
    send({"method": "notifications/tools/list_changed"})
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {}}
        send({"id": message["id"], "result": result})
    elif message["method"] == "tools/list":
        send({"id": message["id"], "result": {"tools": tools}})
        threading.Timer(0.5, grow).start()
    elif "id" in message:
        send({"id": message["id"], "result": {}})
"#;
        let shim = Shim::start(&files, &python(&["-c", script]));
        (shim, Sidecar::with(files, &[]).loaded().ready(), cluster.token(|_| {}))
    };
    // Without being heard, lists are read again once a minute.
    within(Duration::from_secs(10), "three tools", || sidecar.inventory(&token).tools.len() >= 3);
}
