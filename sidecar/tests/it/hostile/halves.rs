//! Large messages of which servers have sent all but the end.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::harness::shim::{server, serving, stdio};
use crate::harness::sse_server::SseServer;
use crate::harness::{Client, Events, Scripted, Sidecar, config, eventually, scripted};

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
    begin_all(&Sidecar::flagged(&config, &FLAGS));
}

/// Half a message for which there is no room otherwise keeps others waiting, but not for as long as nothing follows.
#[test]
fn a_process_that_stops_in_a_line_is_ended() {
    let mut config = stdio();
    config.limits.request_timeout_ms = 300_000;
    let (_shim, sidecar) = serving(&config, &server(&[]), &FLAGS);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let pause = |until: f64| json!({"text": "x", "times": LARGE, "until": until});
    let [stops, goes_on] = [(); 2].map(|()| Client::open(&sidecar, None));
    let failed = stops.call("pause", pause(now + 200.0));
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("half of a large message"), "{message}");
    let answer = goes_on.call("pause", pause(now));
    assert!(answer.get("result").is_some(), "{:.200}", answer.to_string());
}

/// The same where a server leaves it at half a message that belongs to no call: nobody has a deadline for that.
#[test]
fn a_stream_that_stops_in_an_event_leaves_room_to_others() {
    const LENGTH: usize = 20_000;
    let server = Scripted::listening(|request, stream| {
        let text = "x".repeat(LENGTH);
        let result = json!({"content": [{"type": "text", "text": text}]});
        let (start, end) = (format!("data: {}", scripted::reply_to(request, &result)), "\n\n");
        let (half, rest) = start.split_at(LENGTH / 4 * 3);
        scripted::begin_events(stream);
        scripted::chunk(stream, half);
        if request.method == "GET" {
            return scripted::until_closed(stream);
        }
        // It comes in two parts.
        thread::sleep(Duration::from_millis(300));
        scripted::chunk(stream, &format!("{rest}{end}"));
        scripted::write(stream, "0\r\n\r\n");
    });
    let sidecar = Sidecar::flagged(&config(server.port), &["--max-held-bytes", "40000"]);
    let [listens, calls] = [(); 2].map(|()| Client::open(&sidecar, None));
    assert!(calls.call("t", json!({})).get("result").is_some(), "there is room for one");
    let _listening = Events::open(&listens.get(), sidecar.mcp);
    let refused = eventually("the turn is taken", || {
        let answer = calls.call("t", json!({}));
        answer.get("error").map(|error| error["message"].to_string())
    });
    assert!(refused.contains("large answers to other calls are held"), "{refused}");
    eventually("it is given back", || calls.call("t", json!({})).get("result").map(drop));
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
