//! Large messages of which servers have sent all but the end.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::harness::shim::{server, serving, stdio};
use crate::harness::sse_server::SseServer;
use crate::harness::{Client, Files, Sidecar};

/// In how many sessions, and how large.
const SESSIONS: u64 = 16;
const LARGE: u64 = 7 << 20;
/// There is room for one of them.
const FLAGS: [&str; 2] = ["--max-held-bytes", "12000000"];

#[test]
fn lines_that_many_processes_have_begun_are_held_within_a_bound() {
    let mut config = stdio();
    // A busy machine takes long to make so much.
    config.limits.request_timeout_ms = 300_000;
    let (_shim, sidecar) = serving(&config, &server(&[]), &FLAGS);
    begin_all(&sidecar);
}

#[test]
fn events_that_have_begun_in_many_streams_are_held_within_a_bound() {
    let server = SseServer::start(|heard, say| {
        let arguments = &heard["params"]["arguments"];
        let Some(until) = arguments["until"].as_f64() else { return };
        let text = "x".repeat(usize::try_from(LARGE).unwrap());
        let result = json!({"content": [{"type": "text", "text": text}]});
        let answer = json!({"jsonrpc": "2.0", "id": heard["id"], "result": result}).to_string();
        let (start, end) = answer.split_at(answer.len() - 2);
        say.raw(&format!("data: {start}"));
        let until = UNIX_EPOCH + Duration::from_secs_f64(until);
        thread::sleep(until.duration_since(SystemTime::now()).unwrap_or_default());
        say.raw(&format!("{end}\n\n"));
    });
    let mut config = server.config();
    config.limits.request_timeout_ms = 300_000;
    let files = Files::new();
    files.write(&config);
    begin_all(&Sidecar::with(files, &FLAGS).loaded());
}

/// Calls in many sessions at once. Nobody knows when their answers end, and together they may be larger than the sidecar.
fn begin_all(sidecar: &Sidecar) {
    let clients: Vec<_> = (0..SESSIONS).map(|_| Client::open(sidecar, None)).collect();
    let before = sidecar.memory();
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3);
    let peak = thread::scope(|scope| {
        let call = json!({"text": "x", "times": LARGE, "until": until.as_secs_f64()});
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
            assert_eq!(length, Some(usize::try_from(LARGE).unwrap()), "{:.200}", message.to_string());
        }
        peak
    });
    let more = peak.saturating_sub(before);
    // On its way a message is held several times over, and all of them together once would be this much.
    assert!(more < SESSIONS * LARGE, "{more} bytes more than the {before} before");
}
