//! Large lines of many processes.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::harness::Client;
use crate::harness::shim::{server, serving, stdio};

/// How many processes, and how large a line each of them begins.
const PROCESSES: u64 = 16;
const LINE: u64 = 7 << 20;

/// Nobody knows when they end, and together they may be larger than the sidecar.
#[test]
fn lines_that_many_processes_have_begun_are_held_within_a_bound() {
    let mut config = stdio();
    // A busy machine takes long to make so much.
    config.limits.request_timeout_ms = 60_000;
    let (_shim, sidecar) = serving(&config, &server(&[]), &["--max-held-bytes", "12000000"]);
    let clients: Vec<_> = (0..PROCESSES).map(|_| Client::open(&sidecar, None)).collect();
    let before = sidecar.memory();
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3);
    let peak = thread::scope(|scope| {
        let call = json!({"text": "x", "times": LINE, "until": until.as_secs_f64()});
        let mut calls = Vec::new();
        for client in clients {
            let call = call.clone();
            calls.push(scope.spawn(move || client.call("pause", call)));
        }
        let mut peak = 0;
        while !calls.iter().all(|call| call.is_finished()) {
            peak = peak.max(sidecar.memory());
            thread::sleep(Duration::from_millis(20));
        }
        for call in calls {
            let message = call.join().unwrap();
            let length = message["result"]["content"][0]["text"].as_str().map(str::len);
            assert_eq!(length, Some(LINE as usize), "{:.200}", message.to_string());
        }
        peak
    });
    let more = peak.saturating_sub(before);
    assert!(more < PROCESSES / 2 * LINE, "{more} bytes more than the {before} before");
}
