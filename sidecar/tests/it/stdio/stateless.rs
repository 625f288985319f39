//! Requests that stand alone, served by processes.

use std::time::Instant;

use longshore_sidecar_config::{Config, Isolation};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::eras::server;
use super::{config, error, text};
use crate::harness::config::keys;
use crate::harness::http::{Reply, connect};
use crate::harness::shim::{serving, serving_keyed};
use crate::harness::{Client, Events, Files, Request, Shim, Sidecar, client, eventually, modern};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// A sidecar that two principals may use, in front of a server of both eras.
fn both(config: &Config) -> (Shim, Sidecar) {
    both_in(config, "error")
}

/// The same in front of one that has this manner.
fn both_in(config: &Config, manner: &str) -> (Shim, Sidecar) {
    let keys = keys(&[("a", "key-a"), ("b", "key-b")]);
    serving_keyed(config, &keys, &server("2025-11-25", "2026-07-28", manner), &[])
}

fn request(key: &str, id: impl Into<Value>, tool: &str, arguments: Value) -> Request {
    modern::request(id, "tools/call", json!({"name": tool, "arguments": arguments})).key(key)
}

fn said(sidecar: &Sidecar, key: &str, tool: &str, arguments: Value) -> String {
    text(&request(key, 1, tool, arguments).send(sidecar.mcp).message())
}

#[test]
fn each_principal_has_a_process_unless_all_share_one() {
    for (isolation, same) in
        [(Isolation::Session, false), (Isolation::Principal, false), (Isolation::Shared, true)]
    {
        let (_shim, sidecar) = both(&config(isolation, if same { 1 } else { 4 }));
        let pid = |key| said(&sidecar, key, "pid", json!({}));
        assert_eq!(pid("key-a"), pid("key-a"), "{isolation:?}");
        assert_eq!(pid("key-a") == pid("key-b"), same, "{isolation:?}");
    }
}

/// It says nothing until it has started, and by then it was asked whether it is there.
#[test]
fn a_process_that_starts_slowly_is_not_taken_for_one_that_hangs() {
    let mut config = config(Isolation::Principal, 2);
    config.limits.request_timeout_ms = 1_000;
    let slow = ["sh", "-c", "sleep 3; exec \"$@\"", "slow"].map(str::to_owned);
    let command = [&slow[..], &server("2025-11-25", "2026-07-28", "error")].concat();
    let (_shim, sidecar) = serving(&config, &command, &["--hang-timeout-ms", "1000"]);
    let started = || sidecar.metric("longshore_processes_started_total");
    let before = started();
    let pid = || modern::request(1, "tools/call", json!({"name": "pid"})).send(sidecar.mcp).message();
    eventually("it has started", || pid()["result"].is_object());
    assert_eq!(started() - before, 1.0, "it was started once");
}

#[test]
fn a_process_is_of_the_era_of_those_who_use_it() {
    let (_shim, sidecar) = both(&config(Isolation::Shared, 2));
    let client = Client::open(&sidecar, Some("key-a"));
    assert_eq!(said(&sidecar, "key-a", "era", json!({})), "modern");
    assert_eq!(super::said(&client, "era", json!({})), "legacy");
    assert_eq!(said(&sidecar, "key-a", "era", json!({})), "modern");
    let unknown = modern::request("u", "resources/list", json!({})).key("key-a").send(sidecar.mcp);
    assert_eq!((unknown.status, &unknown.message()["id"]), (404, &json!("u")), "{}", unknown.text());
}

#[test]
fn calls_with_the_same_ids_and_tokens_are_never_confused() {
    let (_shim, sidecar) = both(&config(Isolation::Shared, 1));
    std::thread::scope(|scope| {
        for caller in 0..24 {
            let sidecar = &sidecar;
            scope.spawn(move || {
                let key = if caller % 2 == 0 { "key-a" } else { "key-b" };
                let who = format!("caller {caller}");
                let arguments = json!({"who": who, "steps": 3, "seconds": 0.01 * f64::from(caller % 5)});
                let params = json!({"name": "who", "arguments": arguments, "_meta": {"progressToken": "t"}});
                let request = modern::request("same", "tools/call", params).key(key);
                let messages: Vec<_> =
                    Events::open(&request, sidecar.mcp).all().iter().map(|event| event.message()).collect();
                let (answer, before) = messages.split_last().unwrap();
                assert_eq!((text(answer), &answer["id"]), (who.clone(), &json!("same")));
                assert_eq!(before.len(), 3);
                for note in before {
                    assert_eq!(
                        (&note["params"]["message"], &note["params"]["progressToken"]),
                        (&json!(who), &json!("t"))
                    );
                }
            });
        }
    });
}

/// 41: who goes takes the call back, and nobody else notices.
#[test]
fn r041_whoever_goes_cancels_the_call_in_the_process() {
    let (_shim, sidecar) = both(&config(Isolation::Session, 4));
    let pid = said(&sidecar, "key-a", "pid", json!({}));
    let unasked = || sidecar.metric("longshore_dropped_lines_total{kind=\"unasked\"}");
    let before = unasked();
    let mut stream = connect(sidecar.mcp);
    request("key-a", "x", "hang", json!({})).write(&mut stream);
    eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
    // What comes later is answered later.
    assert_eq!(said(&sidecar, "key-a", "pid", json!({})), pid);
    drop(stream);
    let heard = eventually("it is cancelled", || {
        let heard = said(&sidecar, "key-a", "heard", json!({}));
        heard.contains("notifications/cancelled").then_some(heard)
    });
    assert!(heard.contains("\"requestId\": 2"), "{heard}");
    assert_eq!(said(&sidecar, "key-a", "pid", json!({})), pid);
    // It was asked whether it is there, as its revision has it.
    let heard = said(&sidecar, "key-a", "heard", json!({}));
    assert!(!heard.contains("\"method\": \"ping\""), "{heard}");
    assert_eq!(unasked(), before, "its answer to that is none that comes too late");
}

/// 42, over stdio: subscriptions are told apart, and end in order. Their names are numbers, which some servers
/// write in another way.
#[test]
fn r042_subscriptions_of_a_process_are_told_apart() {
    for manner in ["error", "text", "floats"] {
        let (_shim, sidecar) = both_in(&config(Isolation::Shared, 1), manner);
        let listen = |key: &str, id: Value, wanted: Value| {
            let request =
                modern::request(id, "subscriptions/listen", json!({"notifications": wanted})).key(key);
            Events::open(&request, sidecar.mcp)
        };
        let mut open = [
            (listen("key-a", json!("l"), json!({"toolsListChanged": true})), json!("l")),
            (listen("key-b", json!("l"), json!({"toolsListChanged": true})), json!("l")),
            (listen("key-b", json!(7), json!({"promptsListChanged": true})), json!(7)),
        ];
        for (events, id) in &mut open {
            for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
                let message = events.next().unwrap().message();
                assert_eq!(
                    (&message["method"], &message["params"]["_meta"][SUBSCRIPTION]),
                    (&json!(method), &*id)
                );
            }
        }
        let [(first, _), _, (mut last, _)] = open;
        let end = last.next().unwrap().message();
        let info = json!({"name": "era", "version": "1"});
        assert_eq!(end["id"], 7, "{end}");
        assert_eq!(end["result"]["_meta"], json!({SUBSCRIPTION: 7, SERVER_INFO: info}), "{end}");
        assert!(last.next().is_none());
        drop(first);
        eventually("the process is told", || {
            said(&sidecar, "key-a", "heard", json!({})).contains("cancelled")
        });
    }
}

/// Who listens is acknowledged, and not answered for as long as the process is of use.
#[test]
fn a_process_that_somebody_listens_to_is_none_that_starts() {
    let (_shim, sidecar) = both_in(&config(Isolation::Shared, 9), "quiet");
    let started = || sidecar.metric("longshore_processes_started_total");
    let before = started();
    let listen = |id: u32| {
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let request = modern::request(id, "subscriptions/listen", wanted).key("key-a");
        let mut events = Events::open(&request, sidecar.mcp);
        let message = events.next().unwrap().message();
        assert_eq!(message["method"], "notifications/subscriptions/acknowledged", "{message}");
        events
    };
    // As many as may start at once, where that takes no time.
    let _open: Vec<_> = (0..8).map(listen).collect();
    let mut waited = 0;
    std::thread::scope(|scope| {
        let another = scope.spawn(|| listen(8));
        while !another.is_finished() {
            waited += u32::from(sidecar.metric("longshore_processes_unstarted") > 0.0);
        }
        another.join().unwrap();
    });
    // It may be seen before it is its turn, at once.
    assert!(waited < 3, "nobody starts but this one: {waited}");
    let started = started() - before;
    assert!(started >= 9.0, "each listens to another: {started}");
}

#[test]
fn a_process_that_dies_fails_its_calls_and_no_others() {
    let (_shim, sidecar) = both(&config(Isolation::Session, 4));
    let (a, b) = (said(&sidecar, "key-a", "pid", json!({})), said(&sidecar, "key-b", "pid", json!({})));
    let message = kill(&sidecar);
    assert_eq!(message["id"], "d");
    assert!(error(&message).contains("exit status 3"), "{message}");
    assert_ne!(said(&sidecar, "key-a", "pid", json!({})), a);
    assert_eq!(said(&sidecar, "key-b", "pid", json!({})), b);
}

/// A client has the process end that serves it.
fn kill(sidecar: &Sidecar) -> Value {
    request("key-a", "d", "exit", json!({"status": 3})).send(sidecar.mcp).message()
}

fn kill_five(sidecar: &Sidecar) {
    for _ in 0..5 {
        let message = kill(sidecar);
        assert!(error(&message).contains("exit status 3"), "{message}");
    }
}

/// Each is refused at once where no other process may be started for a while, and so would be all that come after it.
#[test]
fn who_kills_each_process_that_there_is_locks_nobody_out_who_may_have_another() {
    let (_shim, sidecar) = both(&config(Isolation::Shared, 2));
    // Those of a minute, though nobody is there between two of them.
    kill_five(&sidecar);
    let other = said(&sidecar, "key-b", "pid", json!({}));
    assert_ne!(other, "");
    kill_five(&sidecar);
    let message = kill(&sidecar);
    assert!(error(&message).contains("died too often lately"), "there is no third: {message}");
}

#[test]
fn who_kills_each_process_has_no_more_of_them_than_who_stays() {
    let (_shim, sidecar) = both(&config(Isolation::Principal, 4));
    kill_five(&sidecar);
    let message = kill(&sidecar);
    assert!(error(&message).contains("died too often lately"), "{message}");
    assert_ne!(said(&sidecar, "key-b", "pid", json!({})), "", "it is the other's own");
}

/// 40: what a server may not ask is not asked.
#[test]
fn r040_a_server_that_asks_on_its_own_gets_an_error() {
    let (_shim, sidecar) = both(&config(Isolation::Session, 4));
    let reply = request("key-a", 1, "ask", json!({})).send(sidecar.mcp);
    assert_eq!(text(&reply.message()), "asked");
    let heard: Value = serde_json::from_str(&said(&sidecar, "key-a", "heard", json!({}))).unwrap();
    assert_eq!((&heard[0]["id"], &heard[0]["error"]["code"]), (&json!("q"), &json!(-32601)), "{heard}");
}

#[test]
fn what_nobody_asked_for_is_nobodys() {
    let (_shim, sidecar) = both(&config(Isolation::Session, 4));
    for _ in 0..3 {
        assert_eq!(said(&sidecar, "key-a", "twice", json!({})), "once");
    }
    eventually("they are counted", || {
        sidecar.metric("longshore_dropped_lines_total{kind=\"unasked\"}") == 6.0
    });
}

/// 39, over stdio: a message of the log goes to a call that wants it.
#[test]
fn r039_the_log_goes_to_who_wants_it() {
    let (_shim, sidecar) = both(&config(Isolation::Session, 4));
    let logs = |level| hears_log(&sidecar, "key-a", level);
    assert_eq!([logs(None), logs(Some("error")), logs(Some("info"))], [false, false, true]);
}

/// Whether a call hears what is logged in it.
fn hears_log(sidecar: &Sidecar, key: &str, level: Option<&str>) -> bool {
    let meta = level.map_or_else(|| json!({}), |level| json!({LEVEL: level}));
    let params = json!({"name": "log", "arguments": {"words": "w"}, "_meta": meta});
    let reply = modern::request(1, "tools/call", params).key(key).send(sidecar.mcp);
    reply.text().contains("notifications/message")
}

/// The process may go on with a call that it has answered, and log that.
#[test]
fn nobody_hears_a_log_that_could_be_of_anothers_call_that_is_over() {
    let (_shim, sidecar) = both(&config(Isolation::Shared, 1));
    let hears = ["key-a", "key-a", "key-b"].map(|key| hears_log(&sidecar, key, Some("info")));
    assert_eq!(hears, [true, true, false]);
}

/// Whoever listens hears what names it, and leaves nothing behind that the process could go on with.
#[test]
fn who_listens_and_goes_silences_no_log() {
    let (_shim, sidecar) = both(&config(Isolation::Shared, 1));
    let mut listens = listens(&sidecar, "key-b");
    assert!(listens.next().is_some());
    assert!(hears_log(&sidecar, "key-a", Some("info")), "beside who listens");
    drop(listens);
    eventually("the process is told", || said(&sidecar, "key-a", "heard", json!({})).contains("cancelled"));
    assert!(hears_log(&sidecar, "key-a", Some("info")), "after who listened");
}

/// A call that takes long is no sign that a process hangs, and neither is it that nobody listens any more.
#[test]
fn who_listens_and_goes_ends_no_process_that_is_busy() {
    let files = Files::new();
    files.write_with_keys(&config(Isolation::Session, 4), &keys(&[("a", "key-a")]));
    let _shim = Shim::start(&files, &server("", "2026-07-28", "error"));
    let sidecar = Sidecar::with(files, &["--hang-timeout-ms", "1500"]).loaded().ready();
    let mut listens = listens(&sidecar, "key-a");
    assert!(listens.next().is_some());
    let before = sidecar.metric("longshore_calls");
    let mut busy = connect(sidecar.mcp);
    request("key-a", "b", "busy", json!({"seconds": 4})).write(&mut busy);
    eventually("it is under way", || sidecar.metric("longshore_calls") > before);
    drop(listens);
    let reply = Reply::on(busy);
    assert_eq!(text(&reply.message()), "done", "{}", reply.text());
}

fn listens(sidecar: &Sidecar, key: &str) -> Events {
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    Events::open(&modern::request("l", "subscriptions/listen", wanted).key(key), sidecar.mcp)
}

/// What nobody knows is about the only call that there is, if it is certain that there is no other.
#[test]
fn what_nobody_knows_passes_in_the_only_call() {
    let (_shim, sidecar) = both(&config(Isolation::Shared, 1));
    let hears = |key| {
        let reply = request(key, 1, "done", json!({})).send(sidecar.mcp);
        reply.text().contains(r#""method": "com.example/done", "params": {"a": 1}"#)
    };
    assert_eq!(["key-a", "key-a", "key-b"].map(hears), [true, true, false]);

    let files = Files::new();
    files.write(&config(Isolation::Session, 4));
    let _shim = Shim::start(&files, &server("", "2026-07-28", "error"));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let older = Client::open(&sidecar, None);
    let reply = older.send("tools/call", json!({"name": "done", "arguments": {}}));
    assert!(reply.text().contains("com.example/done"), "{}", reply.text());

    let (_shim, sidecar) = both(&config(Isolation::Session, 4));
    let mut stream = connect(sidecar.mcp);
    request("key-a", "x", "hang", json!({})).write(&mut stream);
    eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
    let reply = request("key-a", 1, "done", json!({})).send(sidecar.mcp);
    assert!(!reply.text().contains("com.example/done"), "{}", reply.text());
}

/// Limits are those of the configuration of now, also for sessions that were begun under others.
#[test]
fn sessions_from_before_do_not_bring_their_limits_back() {
    let files = std::sync::Arc::new(Files::new());
    let both = keys(&[("a", "key-a"), ("b", "key-b")]);
    let limited = |total| {
        let mut config = config(Isolation::Session, total);
        config.limits.processes.iter_mut().for_each(|processes| processes.idle_ms = 300);
        config
    };
    files.write_with_keys(&limited(2), &both);
    let shim = Shim::start(&files, &server("", "2026-07-28", "error"));
    let sidecar = Sidecar::with(files.clone(), &[]).loaded().ready();
    let clients = ["key-a", "key-b"].map(|key| Client::open(&sidecar, Some(key)));
    eventually("their processes are gone", || shim.processes().len() == 1);
    sidecar.runs(&files.write_with_keys(&limited(1), &both));
    let mut stream = connect(sidecar.mcp);
    clients[0]
        .request(clients[0].message("tools/call", &json!({"name": "hang", "arguments": {}})))
        .write(&mut stream);
    eventually("it has a process", || shim.processes().len() == 2);
    let refused = clients[1].send("tools/call", json!({"name": "pid", "arguments": {}}));
    assert!(refused.text().contains("as may (1)"), "{}", refused.text());
    sidecar.runs(&files.write_with_keys(&limited(3), &both));
    assert_ne!(super::said(&clients[1], "pid", json!({})), "");
}

/// A process that nobody calls gives way to who has a session also where both are of one principal, whose part is full.
#[test]
fn the_process_of_ones_own_calls_makes_room_for_a_session() {
    let mut config = config(Isolation::Session, 4);
    config.limits.processes.iter_mut().for_each(|processes| processes.per_principal = 1);
    let (_shim, sidecar) = both(&config);
    let others = said(&sidecar, "key-b", "pid", json!({}));
    assert_eq!(said(&sidecar, "key-a", "era", json!({})), "modern");
    let initialize = Request::post(client::initialize("2025-11-25")).key("key-a");
    // The call's end may be heard of a moment after its answer.
    let reply =
        eventually("there is room", || Some(initialize.send(sidecar.mcp)).filter(|it| it.status == 200));
    // A session that somebody has does not give way.
    let refused = request("key-a", 1, "era", json!({})).send(sidecar.mcp);
    assert_eq!(refused.status, 429, "{}", refused.text());
    let end = Request::new("DELETE", "/mcp").session(reply.header("mcp-session-id").unwrap()).key("key-a");
    assert_eq!(end.send(sidecar.mcp).status, 204);
    assert_eq!(said(&sidecar, "key-a", "era", json!({})), "modern");
    assert_eq!(said(&sidecar, "key-b", "pid", json!({})), others, "what is another's stays");
}

/// Calls whose process waits for a place wait beside each other, and not one after the other.
#[test]
fn calls_that_wait_in_vain_are_told_so_together() {
    let mut config = config(Isolation::Session, 1);
    config.limits.processes.iter_mut().for_each(|processes| processes.queue_ms = 500);
    let (_shim, sidecar) = both(&config);
    let mut holds = connect(sidecar.mcp);
    request("key-a", 1, "hang", json!({})).write(&mut holds);
    eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
    let began = Instant::now();
    // More than a conversation holds.
    std::thread::scope(|scope| {
        for id in 0..24 {
            let request = request("key-b", id, "pid", json!({}));
            let sidecar = &sidecar;
            scope.spawn(move || {
                let reply = request.send(sidecar.mcp);
                assert_eq!(
                    (reply.status, reply.header("retry-after")),
                    (503, Some("30")),
                    "{}",
                    reply.text()
                );
            });
        }
    });
    let waited = began.elapsed();
    // One after the other it would be twelve seconds.
    assert!((500..10_000).contains(&waited.as_millis()), "{waited:?}");
}

/// The same where no process can be started, which it takes seconds to find out.
#[test]
fn calls_without_a_process_are_told_so_together() {
    let (shim, sidecar) = both(&config(Isolation::Session, 4));
    shim.signal(Signal::STOP);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for id in 0..3 {
            let request = request("key-a", id, "pid", json!({}));
            let sidecar = &sidecar;
            scope.spawn(move || {
                let reply = request.send(sidecar.mcp);
                let told = error(&reply.message()).to_owned();
                assert!(told.contains("did not start a process within 10 seconds"), "{told}");
            });
        }
    });
    let waited = began.elapsed();
    assert!(waited.as_secs() < 18, "{waited:?}");
    shim.signal(Signal::CONT);
    said(&sidecar, "key-a", "pid", json!({}));
}

/// Nothing cuts off what a process says, as proxies do: where it ends, another process goes on.
#[test]
fn who_listens_is_told_each_time_that_a_process_died() {
    let files = Files::new();
    files.write(&config(Isolation::Session, 4));
    let _shim = Shim::start(&files, &server("", "2026-07-28", "quiet"));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let client = Client::open(&sidecar, None);
    let mut events = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(events.status, 200);
    for _ in 0..2 {
        assert!(client.call("exit", json!({"status": 3})).get("error").is_some());
        assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
    }
}
