//! Clients that give up on a server which starts slowly, and come again.

use std::fs;
use std::io::Write;
use std::net::Shutdown;

use longshore_sidecar_config::{Isolation, Processes};
use serde_json::{Value, json};

use super::eras::server;
use super::text;
use crate::harness::config::processes;
use crate::harness::http::connect;
use crate::harness::shim::{settled, stdio};
use crate::harness::{Files, Request, Shim, Sidecar, eventually, modern};

/// Notes that it begins, and waits for the word to go on, once there is something to wait for.
const SLOW: &str = r#"cd "$1"; shift; [ -e slow ] && echo begun >> begun && until [ -e on ]; do sleep 0.05; done; exec "$@""#;

fn call(capabilities: Value) -> Request {
    let mut message = modern::message(1, "tools/call", json!({"name": "era"}));
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    modern::of(&message.to_string())
}

/// Each time it would be begun anew, and ended with whoever does not wait for it.
#[test]
fn a_process_that_was_begun_for_a_client_that_went_is_there_for_the_next_call() {
    for (isolation, capabilities) in [
        // Calls may run beside others there; the last one has a session to itself.
        (Isolation::Principal, json!({})),
        (Isolation::Session, json!({})),
        (Isolation::Session, json!({"elicitation": {}})),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let command = ["sh", "-c", SLOW, "slow", path].map(str::to_owned);
        let mut config = stdio();
        config.limits.processes = Some(Processes { isolation, ..processes(4, 4) });
        let files = Files::new();
        files.write(&config);
        let shim = Shim::start(&files, &[&command[..], &server("2025-11-25", "", "error")].concat());
        let sidecar = Sidecar::with(files, &[]).loaded().ready();
        settled(&shim, &sidecar, &config);
        fs::write(folder.path().join("slow"), "").unwrap();
        let begun = || fs::read_to_string(folder.path().join("begun")).unwrap_or_default().lines().count();

        let mut impatient = connect(sidecar.mcp);
        call(capabilities.clone()).write(&mut impatient);
        impatient.flush().unwrap();
        eventually("a process begins", || (begun() == 1).then_some(()));
        impatient.shutdown(Shutdown::Both).unwrap();
        eventually("nobody waits for it", || (sidecar.metric("longshore_calls") == 0.0).then_some(()));

        let again = std::thread::scope(|scope| {
            let again = scope.spawn(|| call(capabilities).send(sidecar.mcp));
            eventually("it is called again", || (sidecar.metric("longshore_calls") == 1.0).then_some(()));
            fs::write(folder.path().join("on"), "").unwrap();
            again.join().unwrap()
        });
        assert_eq!(text(&again.message()), "legacy");
        assert_eq!(begun(), 1, "{isolation:?}: it is the one that was begun before");
    }
}
