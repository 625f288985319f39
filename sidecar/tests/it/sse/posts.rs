//! What a client over HTTP+SSE posts while much of it waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use serde_json::{Value, json};

use super::caller::{Caller, call};
use crate::harness::client::initialize;
use crate::harness::config::keys;
use crate::harness::http::connect;
use crate::harness::replicas::{Network, with_peers};
use crate::harness::{Client, Files, Gate, Reply, Request, Scripted, Sidecar, config, eventually, scripted};

/// How many calls of one stream are under way at most.
const MOST: u32 = 64;

/// A server whose tool `hang` answers when the gate is open, and `ask` asks for roots before that.
fn server(gate: &Gate) -> Scripted {
    let gate = gate.clone();
    Scripted::start(move |request, stream| {
        let message = scripted::message(request);
        let answer = scripted::reply_to(request, &json!({"content": []}));
        if message["params"]["name"] != "ask" {
            gate.pass();
            return scripted::json(stream, &answer);
        }
        scripted::begin_events(stream);
        scripted::ask_for_roots(stream);
        gate.pass();
        scripted::say(stream, &answer);
        scripted::write(stream, "0\r\n\r\n");
    })
}

/// A client with as many calls under way as there may be, the first of which asks it something.
fn busy(sidecar: &Sidecar, server: &Scripted, key: Option<&'static str>) -> (Caller, Value) {
    let mut caller = Caller::open(sidecar, key);
    for id in 1..=MOST {
        let tool = if id == 1 { "ask" } else { "hang" };
        assert_eq!(caller.post(sidecar, &call(id, tool, &json!({}))).status, 202);
    }
    eventually("all are under way", || server.seen("tools/call").len() == MOST as usize);
    let question = caller.hear();
    assert_eq!(question["method"], "roots/list", "{question}");
    (caller, question)
}

/// Posts a message whose answer is waited for elsewhere.
fn posting(request: Request, mcp: SocketAddr) -> JoinHandle<Reply> {
    std::thread::spawn(move || {
        let mut stream = connect(mcp);
        // It waits for what the test does meanwhile.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        request.write(&mut stream);
        Reply::on(stream)
    })
}

fn cancelled(id: u32) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string()
}

/// 59: however many calls are under way, they can be cancelled, and what the server asks in them be answered.
#[test]
fn r059_what_ends_a_call_does_not_wait_for_one_to_end() {
    let gate = Gate::default();
    let server = server(&gate);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let (mut caller, question) = busy(&sidecar, &server, None);
    let one_more = posting(caller.message(&call(MOST + 1, "hang", &json!({}))), sidecar.mcp);
    assert_eq!(caller.post(&sidecar, &cancelled(2)).status, 202);
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
    assert_eq!(caller.post(&sidecar, &answer.to_string()).status, 202);
    assert_eq!(scripted::message(&server.seen("notifications/cancelled")[0])["params"]["requestId"], 2);
    let answered = server.seen("POST").into_iter().map(|request| scripted::message(&request));
    assert!(answered.filter(|message| message.get("result").is_some()).any(|message| message["id"] == "q"));
    // One that waits for its turn is withdrawn, and the server never hears of it. It may still be on its way here.
    eventually("it is taken", || {
        assert_eq!(caller.post(&sidecar, &cancelled(MOST + 1)).status, 202);
        one_more.is_finished()
    });
    assert_eq!(one_more.join().unwrap().status, 202);
    sidecar.audit(|line| line["reason"] == "cancelled by its client" && line["decision"] == "deny");
    let failed = r#"longshore_requests_total{method="notifications/cancelled",outcome="failed"}"#;
    assert_eq!(sidecar.metric(failed), 0.0, "what withdraws it has done what it was sent for");
    gate.open();
    let mut answered: Vec<_> = (1..=MOST).map(|_| caller.hear()["id"].as_u64().unwrap()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (1..=u64::from(MOST)).collect::<Vec<_>>());
    let called = server.seen("tools/call");
    assert!(called.iter().all(|request| scripted::message(request)["id"] != MOST + 1));
}

/// 59: nobody takes a handshake back, while it is under way or when it is over. A call of the same id is another matter.
#[test]
fn r059_a_handshake_is_not_cancelled() {
    let (greets, answers) = (Gate::default(), Gate::default());
    let gate = answers.clone();
    let server = Scripted::greeting(&greets, move |request, stream| {
        gate.pass();
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut caller = Caller::begin(&sidecar, None);
    assert_eq!(caller.post(&sidecar, &initialize("2024-11-05")).status, 202);
    eventually("it is under way", || server.seen("initialize").pop());
    let during = posting(caller.message(&cancelled(0)), sidecar.mcp);
    greets.open();
    assert_eq!(during.join().unwrap().status, 202);
    assert_eq!(caller.hear()["id"], 0);
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for told in [initialized, &cancelled(0)] {
        assert_eq!(caller.post(&sidecar, told).status, 202);
    }
    let other = Client::open(&sidecar, None);
    assert_eq!(other.request(cancelled(0)).send(sidecar.mcp).status, 202);
    assert_eq!(server.seen("notifications/initialized").len(), 2);
    assert!(server.seen("notifications/cancelled").is_empty());
    sidecar.audit(|line| line["method"] == "notifications/cancelled" && line["reason"] == "no such call");
    assert_eq!(caller.post(&sidecar, &call(0, "t", &json!({}))).status, 202);
    eventually("the call is under way", || server.seen("tools/call").pop());
    assert_eq!(caller.post(&sidecar, &cancelled(0)).status, 202);
    assert_eq!(scripted::message(&server.seen("notifications/cancelled")[0])["params"]["requestId"], 0);
    answers.open();
}

/// What waits is bounded in bytes too, and leaves a line if its stream ends first.
#[test]
fn messages_that_wait_are_bounded_and_never_forgotten() {
    let gate = Gate::default();
    let server = server(&gate);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let (caller, _) = busy(&sidecar, &server, None);
    let large = "x".repeat(3 << 20);
    let message = |id: u32| caller.message(&call(id, "hang", &json!({"text": large})));
    let waiting: Vec<_> = (100..104).map(|id| posting(message(id), sidecar.mcp)).collect();
    // Two of them fit, and the others are told so.
    eventually("there is no room for more", || {
        waiting.iter().filter(|reply| reply.is_finished()).count() == 2
    });
    // What cancels has room of its own.
    assert_eq!(caller.post(&sidecar, &cancelled(2)).status, 202);
    drop(caller);
    let mut statuses: Vec<_> = waiting.into_iter().map(|reply| reply.join().unwrap().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [404, 404, 503, 503]);
    eventually("each of them has a line", || {
        let written = sidecar.written();
        let lines = written.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lost: Vec<_> =
            lines.filter(|line| line["method"] == "tools/call" && line["status"] == 404).collect();
        assert!(lost.iter().all(|line| line["reason"] == "unknown session"), "{lost:?}");
        lost.len() == 2
    });
    gate.open();
}

/// What waits while its key is taken away is refused for that, whether the stream goes on or was asked for with the key.
#[test]
fn a_message_that_waits_is_refused_with_its_key() {
    let both = [("alice", "key-a"), ("alice", "key-b")];
    for (revoked, left) in [("key-b", "key-a"), ("key-a", "key-b")] {
        let gate = Gate::default();
        let (server, files) = (server(&gate), Files::new());
        files.write_with_keys(&config(server.port), &keys(&both));
        let sidecar = Sidecar::with(files, &[]).loaded().ready();
        let (caller, _) = busy(&sidecar, &server, Some("key-a"));
        // One more than may wait: all the others do by the time that it is told so.
        let waiting: Vec<_> = (MOST + 1..=2 * MOST + 1)
            .map(|id| {
                let message = caller.message(&call(id, "hang", &json!({})));
                posting(message.with("authorization", &format!("Bearer {revoked}")), sidecar.mcp)
            })
            .collect();
        eventually("they wait", || waiting.iter().any(JoinHandle::is_finished));
        sidecar.runs(&sidecar.files.write_with_keys(&config(server.port), &keys(&[("alice", left)])));
        gate.open();
        let statuses = waiting.into_iter().map(|reply| reply.join().unwrap().status);
        assert_eq!(statuses.filter(|status| *status == 401).count(), MOST as usize, "{revoked}");
        let line = sidecar.audit(|line| line["status"] == 401);
        assert_eq!(
            (&line["reason"], &line["method"], &line["decision"]),
            (&json!("no live key"), &json!("tools/call"), &json!("deny")),
            "{line}"
        );
    }
}

/// Whichever replica takes what is posted.
#[test]
fn nothing_begins_anew_in_a_stream_whose_session_is_over() {
    for entry in [0, 1] {
        let gate = Gate::default();
        let server = server(&gate);
        let network = Network::new();
        let mut config = config(server.port);
        let replicas = network.replicas(&config, &[server.port; 2]);
        let (caller, _) = busy(&replicas[0], &server, Some("key-a"));
        caller.stream.patience(Duration::from_secs(60));
        // It waits for one of the calls, and comes of age with its session.
        let begins = posting(caller.message(&initialize("2024-11-05")), replicas[entry].mcp);
        sleep(Duration::from_millis(500));
        config.sessions.max_age_ms = 1_000;
        for replica in &replicas {
            let keys = keys(&[("alice", "key-a")]);
            replica.runs(&replica.files.write_with_keys(&with_peers(&config), &keys));
        }
        // What is asked before it is too old would wait for one of the calls, too.
        sleep(Duration::from_secs(1));
        eventually("it is too old", || {
            let ping = caller.post(&replicas[0], r#"{"jsonrpc":"2.0","id":100,"method":"ping"}"#);
            ping.status == 404
        });
        gate.open();
        assert_eq!(begins.join().unwrap().status, 202);
        let heard = caller.stream.all();
        assert!(heard.iter().all(|event| !event.data.contains("protocolVersion")), "by way of {entry}");
        assert_eq!(server.seen("initialize").len(), 1, "by way of {entry}");
    }
}

/// What belongs to no call is heard all the same: its client has no other way to ask for it.
#[test]
fn a_server_that_has_no_time_for_the_end_of_the_handshake_is_listened_to() {
    let is_told = AtomicBool::new(false);
    let server = Scripted::told(move |request, stream| {
        let is_its_own = request.value("mcp-session-id") == Some(scripted::OWN_SESSION);
        let is_greeted = scripted::method_of(request) == "notifications/initialized" && !is_its_own;
        let status = if is_greeted && !is_told.swap(true, Ordering::SeqCst) { 503 } else { 202 };
        scripted::json_with(stream, status, "", "{}");
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut caller = Caller::begin(&sidecar, None);
    assert_eq!(caller.post(&sidecar, &initialize("2024-11-05")).status, 202);
    caller.hear();
    let told = caller.post(&sidecar, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(told.status, 502, "{}", told.text());
    eventually("the server is asked for its stream", || server.seen("GET").pop());
}
