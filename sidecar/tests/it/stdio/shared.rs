//! Processes that several sessions share.

mod asking;
mod leaving;
mod levels;
mod places;

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longshore_sidecar_config::{Config, Isolation};
use serde_json::{Value, json};

use super::{config, error, pid, said, text};
use crate::harness::config::keys;
use crate::harness::http::{Reply, connect, read_chunk};
use crate::harness::shim::{server, settled};
use crate::harness::{Client, Files, Request, Shim, Sidecar, client, eventually};

const KEYS: [(&str, &str); 3] = [("a", "key-a"), ("b", "key-b"), ("c", "key-c")];

/// A sidecar that three principals may use.
fn shared(config: &Config, flags: &[&str], options: &[&str]) -> (Shim, Sidecar) {
    shared_by(config, &server(flags), options)
}

/// The same in front of this one.
fn shared_by(config: &Config, server: &[String], options: &[&str]) -> (Shim, Sidecar) {
    let files = Files::new();
    files.write_with_keys(config, &keys(&KEYS));
    let shim = Shim::start(&files, server);
    let sidecar = Sidecar::with(files, options).loaded().ready();
    settled(&shim, &sidecar, config);
    (shim, sidecar)
}

fn open(sidecar: &Sidecar, principal: usize) -> Client<'_> {
    Client::open(sidecar, Some(KEYS[principal].1))
}

/// A call that is answered when somebody says so ([`release`]), and hears what else comes.
fn listen(client: &Client<'_>) -> TcpStream {
    let mut stream = connect(client.sidecar.mcp);
    client.request(client.message("tools/call", &json!({"name": "wait"}))).write(&mut stream);
    stream
}

fn release(client: &Client<'_>) {
    assert_eq!(said(client, "release", json!({})), "released");
}

fn events(stream: TcpStream) -> Vec<Value> {
    let reply = Reply::read(&mut BufReader::new(stream)).unwrap();
    let mut events: Vec<Value> =
        reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    events.retain(|event| event.get("method").is_some());
    events
}

fn under_way(sidecar: &Sidecar, calls: f64) {
    eventually("the calls are under way", || (sidecar.metric("longshore_calls") == calls).then_some(()));
    // They have reached the sidecar; an answer behind them shows that they have reached the server.
}

fn state(client: &Client<'_>) -> Value {
    serde_json::from_str(&said(client, "state", json!({}))).unwrap()
}

fn say(client: &Client<'_>, method: &str, params: Value) {
    assert_eq!(said(client, "say", json!({"method": method, "params": params})), "said");
}

fn delete(client: &Client<'_>) {
    let request = Request::new("DELETE", "/mcp").session(&client.session).key(client.key.as_deref().unwrap());
    assert_eq!(request.send(client.sidecar.mcp).status, 204);
}

#[test]
fn sessions_share_a_process_as_far_as_they_may() {
    for (isolation, same_principal, all) in [
        (Isolation::Session, false, false),
        (Isolation::Principal, true, false),
        (Isolation::Shared, true, true),
    ] {
        let total = if isolation == Isolation::Shared { 1 } else { 8 };
        let (_shim, sidecar) = shared(&config(isolation, total), &[], &[]);
        let (first, second, other) = (open(&sidecar, 0), open(&sidecar, 0), open(&sidecar, 1));
        assert_eq!(pid(&first) == pid(&second), same_principal, "{isolation:?}");
        assert_eq!(pid(&first) == pid(&other), all, "{isolation:?}");
        if isolation == Isolation::Session {
            continue;
        }
        // The process has heard one handshake, in which nothing can be asked of a client.
        let heard = &state(&first)["heard"];
        assert_eq!(heard.as_array().unwrap().len(), 2, "{heard}");
        assert_eq!(
            (&heard[0]["capabilities"], &heard[0]["clientInfo"]["name"]),
            (&json!({}), &json!("longshore-sidecar"))
        );
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
        assert_eq!(first.request(changed.to_string()).send(sidecar.mcp).status, 202);
        assert_eq!(state(&first)["heard"].as_array().unwrap().len(), 2);
        // It lives for as long as one of them, and a little longer.
        let before = pid(&first);
        delete(&first);
        assert_eq!(pid(&second), before);
        assert_eq!(first.send("ping", json!({})).status, 404);
    }
}

#[test]
fn everybodys_sessions_are_spread() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 3), &[], &[]);
    let sessions: Vec<_> = (0..9).map(|number| open(&sidecar, number % 3)).collect();
    let mut pids: Vec<_> = sessions.iter().map(pid).collect();
    pids.sort_unstable();
    assert_eq!(
        pids.chunks(3).filter(|three| three.iter().all(|pid| *pid == three[0])).count(),
        3,
        "{pids:?}"
    );
    assert_eq!(sidecar.metric("longshore_processes"), 4.0);
}

#[test]
fn a_process_that_nobody_shares_any_more_ends() {
    let mut config = config(Isolation::Principal, 2);
    config.limits.processes.as_mut().unwrap().idle_ms = 300;
    let (shim, sidecar) = shared(&config, &[], &[]);
    delete(&open(&sidecar, 0));
    eventually("it has ended", || (shim.processes().len() == 1).then_some(()));
    // One that is needed elsewhere ends at once.
    config.limits.processes.as_mut().unwrap().idle_ms = 600_000;
    config.generation = 2;
    sidecar.runs(&sidecar.files.write_with_keys(&config, &keys(&KEYS)));
    let kept = open(&sidecar, 0);
    delete(&open(&sidecar, 1));
    let third = open(&sidecar, 2);
    assert_ne!(pid(&third), pid(&kept));
}

#[test]
fn a_process_that_nobody_calls_rests() {
    let mut config = config(Isolation::Principal, 1);
    config.limits.processes.as_mut().unwrap().idle_ms = 300;
    let (_shim, sidecar) = shared(&config, &[], &[]);
    // The process is gone before its place is free: the sidecar has to hear of its end.
    let rests = || (sidecar.metric("longshore_processes") == 1.0).then_some(());
    let (first, second) = (open(&sidecar, 0), open(&sidecar, 0));
    first.ask("logging/setLevel", json!({"level": "notice"}));
    let mut last = 0;
    // More often than one may die.
    for _ in 0..7 {
        let now = pid(&second);
        assert_ne!(now, last);
        assert_eq!(state(&first)["level"], "notice", "what was asked for is asked for again");
        last = now;
        eventually("it has ended", rests);
    }
    // Its place is another's meanwhile.
    let other = open(&sidecar, 1);
    other.ask("resources/subscribe", json!({"uri": "x:1"}));
    let refused = first.send("ping", json!({}));
    assert!(error(&refused.message()).contains("as many processes of this server run"), "{}", refused.text());
    // One that has to tell somebody something does not rest.
    let now = pid(&other);
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(pid(&other), now);
    delete(&other);
    eventually("there is room again", || first.send("ping", json!({})).message().get("result").map(drop));
    pid(&first);
}

#[test]
fn a_process_of_a_certain_age_takes_no_more_sessions_while_there_may_be_another() {
    for isolation in [Isolation::Shared, Isolation::Principal] {
        let mut config = config(isolation, 2);
        config.limits.processes.as_mut().unwrap().max_age_ms = Some(400);
        let (shim, sidecar) = shared(&config, &[], &[]);
        let grow_old = || std::thread::sleep(Duration::from_millis(500));
        let first = open(&sidecar, 0);
        let before = pid(&first);
        grow_old();
        let second = open(&sidecar, 0);
        assert_ne!(pid(&second), before);
        grow_old();
        let third = open(&sidecar, 0);
        assert_eq!(pid(&third), before, "{isolation:?}: better an old one than none");
        assert_eq!(pid(&first), before, "who has it keeps it");
        delete(&first);
        delete(&third);
        eventually("it ends with its last session", || (shim.processes().len() == 2).then_some(()));
        // The sidecar hears of its end later than the kernel.
        eventually("there may be another again", || {
            let fourth = open(&sidecar, 0);
            let is_another = pid(&fourth) != pid(&second);
            delete(&fourth);
            is_another.then_some(())
        });
    }
}

/// Also for processes that were started before.
#[test]
fn a_change_of_the_limits_counts_at_once() {
    let mut config = config(Isolation::Principal, 2);
    config.limits.processes.as_mut().unwrap().idle_ms = 600_000;
    let (_shim, sidecar) = shared(&config, &[], &[]);
    let change = |config: &Config| sidecar.runs(&sidecar.files.write_with_keys(config, &keys(&KEYS)));
    let first = open(&sidecar, 0);
    let before = pid(&first);
    config.limits.processes.as_mut().unwrap().max_age_ms = Some(1);
    config.generation += 1;
    change(&config);
    assert_ne!(pid(&open(&sidecar, 0)), before, "it is too old by now");
    assert_eq!(pid(&first), before, "who has it keeps it");
    config.limits.processes.as_mut().unwrap().idle_ms = 300;
    config.generation += 1;
    change(&config);
    eventually("both rest", || (sidecar.metric("longshore_processes") == 1.0).then_some(()));
}

#[test]
fn each_hears_what_it_has_asked_for() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    let ask = |client: &Client<'_>, method: &str, params: Value| {
        assert_eq!(client.ask(method, params.clone())["result"], json!({}), "{method} {params}");
    };
    for (client, uri) in [(&a, "x:1"), (&b, "x:1"), (&b, "x:2")] {
        ask(client, "resources/subscribe", json!({"uri": uri}));
    }
    assert_eq!(state(&c)["subscriptions"], json!(["x:1", "x:2"]), "each of them once");
    let long = a.ask("resources/subscribe", json!({"uri": "x".repeat(4_097)}));
    assert_eq!(long["error"]["code"], -32602, "{long}");
    assert!(error(&long).contains("URIs of 4096 bytes at most"), "{long}");
    let heard = |method: &str, params: Value, expected: [usize; 3]| {
        let streams = [&a, &b, &c].map(listen);
        under_way(&sidecar, 3.0);
        let speaker = open(&sidecar, 0);
        say(&speaker, method, params.clone());
        release(&speaker);
        assert_eq!(streams.map(|stream| events(stream).len()), expected, "{method} {params}");
        delete(&speaker);
    };
    let updated = "notifications/resources/updated";
    heard(updated, json!({"uri": "x:1"}), [1, 1, 0]);
    heard(updated, json!({"uri": "x:2"}), [0, 1, 0]);
    heard(updated, json!({"uri": "x:3"}), [0, 0, 0]);
    heard("notifications/tools/list_changed", json!({}), [1, 1, 1]);
    heard("notifications/unheard-of", json!({}), [0, 0, 0]);
    // What is said while calls of several are under way could be about any of them.
    heard("notifications/message", json!({"level": "error", "data": 1}), [0, 0, 0]);

    ask(&a, "resources/unsubscribe", json!({"uri": "x:1"}));
    assert_eq!(state(&c)["subscriptions"], json!(["x:1", "x:2"]), "the other one is still there");
    heard(updated, json!({"uri": "x:1"}), [0, 1, 0]);
    delete(&b);
    eventually("nobody is subscribed any more", || (state(&c)["subscriptions"] == json!([])).then_some(()));
}

#[test]
fn levels_are_each_sessions_own() {
    let (_shim, sidecar) = shared(&config(Isolation::Principal, 4), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 0), open(&sidecar, 0));
    let level = |client: &Client<'_>, level: &str| {
        assert_eq!(client.ask("logging/setLevel", json!({"level": level}))["result"], json!({}));
    };
    level(&a, "error");
    assert_eq!(state(&c)["level"], "error");
    level(&b, "info");
    assert_eq!(state(&c)["level"], "info", "the most talkative");
    level(&a, "warning");
    assert_eq!(state(&c)["level"], "info");
    let message = c.ask("logging/setLevel", json!({"level": "loud"}));
    assert_eq!(message["error"]["code"], -32602, "{message}");
    for (said, expected) in [("info", [0, 1, 0]), ("warning", [1, 1, 0]), ("debug", [0, 0, 0])] {
        let streams = [&a, &b, &c].map(listen);
        under_way(&sidecar, 3.0);
        let speaker = open(&sidecar, 0);
        say(&speaker, "notifications/message", json!({"level": said, "data": "d"}));
        release(&speaker);
        assert_eq!(streams.map(|stream| events(stream).len()), expected, "{said}");
        delete(&speaker);
    }
    delete(&b);
    eventually("the others want less", || (state(&c)["level"] == "warning").then_some(()));
}

#[test]
fn a_crash_costs_each_one_error_and_nothing_that_was_asked_for() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    a.ask("resources/subscribe", json!({"uri": "x:1"}));
    b.ask("logging/setLevel", json!({"level": "notice"}));
    let before = pid(&c);
    let stream = listen(&b);
    under_way(&sidecar, 1.0);
    assert!(error(&a.call("exit", json!({"status": 3}))).contains("exit status 3"));
    let reply = Reply::read(&mut BufReader::new(stream)).unwrap();
    assert!(error(&reply.message()).contains("exit status 3"), "{}", reply.text());
    assert_ne!(pid(&c), before, "the one that had no call under way notices nothing");
    for client in [&a, &b] {
        let state = state(client);
        assert_eq!((&state["level"], &state["subscriptions"]), (&json!("notice"), &json!(["x:1"])));
        assert_eq!(state["heard"].as_array().unwrap().len(), 2, "and shook hands: {state}");
    }
}

#[test]
fn nobody_cancels_or_ends_what_is_anothers() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &["frank"], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    // Both calls have the same id.
    let reply = |stream| Reply::read(&mut BufReader::new(stream)).unwrap().message();
    let [first, second] = [listen(&a), listen(&b)];
    under_way(&sidecar, 2.0);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(a.request(cancel.to_string()).send(sidecar.mcp).status, 202);
    assert_eq!(error(&reply(first)), "the call was cancelled by its client");
    release(&c);
    let answered = reply(second);
    assert_eq!((text(&answered).as_str(), &answered["id"]), ("released", &json!(1)));
    let log = || std::fs::read_to_string(sidecar.files.path("sockets").join("log")).unwrap();
    assert_eq!(log().matches("cancelled ").count(), 1, "{}", log());
    // The end of a session is the end of its calls, for the server too.
    let [first, second] = [listen(&a), listen(&b)];
    under_way(&sidecar, 2.0);
    delete(&a);
    assert_eq!(error(&reply(first)), "the session was ended while the call was under way");
    release(&c);
    assert_eq!(text(&reply(second)), "released");
    eventually("the server heard of it", || (log().matches("cancelled ").count() == 2).then_some(()));
}

#[test]
fn a_call_that_nobody_reads_ends_where_others_share_the_process() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &["frank"], &[]);
    let (deaf, reader, other) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    let pour = |client: &Client<'_>| {
        let params = json!({"name": "pour", "_meta": {"progressToken": "t"}});
        let mut stream = connect(sidecar.mcp);
        client.request(client.message("tools/call", &params)).write(&mut stream);
        stream
    };
    let log = || std::fs::read_to_string(sidecar.files.path("sockets").join("log")).unwrap();
    let unread = pour(&deaf);
    eventually("the server is told", || (log().matches("cancelled ").count() == 1).then_some(()));
    // What it has not read waits for it, and why there is no more.
    let reply = Reply::read(&mut BufReader::new(unread)).unwrap();
    let events = reply.events();
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    assert!(events.len() > 10 && error(&last).contains("its client read nothing"), "{last}");
    sidecar.audit(|line| line["reason"] == "not read by its client");
    // Whoever reads is not ended, for longer than others were.
    let mut stream = BufReader::new(pour(&reader));
    let (mut head, began) = (String::new(), Instant::now());
    while head != "\r\n" {
        head.clear();
        stream.read_line(&mut head).unwrap();
    }
    while began.elapsed() < Duration::from_secs(3) {
        assert!(read_chunk(&mut stream).unwrap().is_some());
    }
    assert_eq!(log().matches("cancelled ").count(), 1, "{}", log());
    pid(&other);
}

#[test]
fn revisions_are_kept_apart_where_they_have_to_be() {
    for (flags, asked, processes) in [
        (&[][..], ["2025-11-25", "2025-06-18"], 3.0),
        // The second is translated for.
        (&[], ["2025-06-18", "2025-11-25"], 2.0),
        // A server that knows only one: another process would not know more.
        (&["proud"], ["2025-06-18", "2025-06-18"], 2.0),
    ] {
        let (_shim, sidecar) = shared(&config(Isolation::Principal, 4), flags, &[]);
        assert_eq!(asked.map(|asked| served_in(&sidecar, asked)), asked);
        assert_eq!(sidecar.metric("longshore_processes"), processes, "{asked:?}");
    }
}

/// The revision in which a client is served that asks for this one.
fn served_in(sidecar: &Sidecar, revision: &str) -> String {
    let reply = Request::post(client::initialize(revision)).key("key-a").send(sidecar.mcp);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.message()["result"]["protocolVersion"].as_str().unwrap().to_owned()
}

/// Where there can be no process of their own: neither now nor, where it rests, when its sessions come back.
#[test]
fn clients_of_another_revision_are_translated_for_where_there_is_one_process() {
    for isolation in [Isolation::Principal, Isolation::Shared] {
        for rests in [false, true] {
            let mut config = config(isolation, 1);
            if rests {
                config.limits.processes.as_mut().unwrap().idle_ms = 300;
            }
            let (_shim, sidecar) = shared(&config, &[], &[]);
            let mut clients = Vec::new();
            for revision in ["2025-11-25", "2025-06-18", "2025-03-26"] {
                assert_eq!(served_in(&sidecar, revision), revision);
                clients.push(Client::of(&sidecar, Some("key-a"), revision));
                if rests {
                    let rests = || (sidecar.metric("longshore_processes") == 1.0).then_some(());
                    eventually("its process has ended", rests);
                }
            }
            let asked: Vec<_> = clients.iter().map(|client| state(client)["heard"][0].clone()).collect();
            let of_the_first = |heard: &Value| heard["protocolVersion"] == "2025-11-25";
            assert!(asked.iter().all(of_the_first), "{isolation:?} {rests}: {asked:?}");
        }
    }
}

/// Numbers that look random and can be had again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn no_answer_goes_to_another_session() {
    let seed =
        u64::from(std::process::id()) ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    for isolation in [Isolation::Session, Isolation::Principal, Isolation::Shared] {
        let total = if isolation == Isolation::Session { 12 } else { 3 };
        let (_shim, sidecar) = shared(&config(isolation, total), &[], &["--workers", "2"]);
        std::thread::scope(|scope| {
            for number in 0..12_u64 {
                let sidecar = &sidecar;
                scope.spawn(move || {
                    session(sidecar, number, Dice(seed ^ number), &format!("{isolation:?} seed {seed}"));
                });
            }
        });
        assert_eq!(sidecar.metric("longshore_calls"), 0.0);
    }
}

/// A session that does what its dice say; all use the same ids and tokens.
fn session(sidecar: &Sidecar, number: u64, mut dice: Dice, case: &str) {
    let client = open(sidecar, usize::try_from(number % 3).unwrap());
    for round in 0..25 {
        let calls = 1 + dice.roll(4);
        let streams: Vec<_> = (0..calls)
            .map(|call| {
                let who = format!("{number}/{round}/{call}");
                let (steps, seconds) = (dice.roll(4), dice.roll(30));
                let id = if dice.roll(2) == 0 { json!(call) } else { json!(call.to_string()) };
                let arguments = json!({"who": who, "steps": steps, "seconds": seconds as f64 / 1000.0});
                let params = json!({"name": "who", "arguments": arguments, "_meta": {"progressToken": id}});
                let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
                let mut stream = connect(sidecar.mcp);
                client.request(body.to_string()).write(&mut stream);
                (who, id, steps, stream)
            })
            .collect();
        let cancelled = (dice.roll(3) == 0).then(|| json!(dice.roll(calls)));
        if let Some(id) = &cancelled {
            let cancel =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
            // This server does not stop at a word; its answer may come or not.
            assert_eq!(client.request(cancel.to_string()).send(sidecar.mcp).status, 202);
        }
        for (who, id, steps, stream) in streams {
            let reply = Reply::read(&mut BufReader::new(stream)).unwrap();
            let message = reply.message();
            assert_eq!(message["id"], id, "{case}: {}", reply.text());
            if message.get("error").is_some() {
                assert_eq!(error(&message), "the call was cancelled by its client", "{case}");
                continue;
            }
            assert_eq!(text(&message), who, "{case}");
            let progress: Vec<Value> =
                reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
            let progress: Vec<_> = progress.iter().filter(|event| event.get("method").is_some()).collect();
            for event in &progress {
                let params = &event["params"];
                assert_eq!((&params["progressToken"], &params["message"]), (&id, &json!(who)), "{case}");
            }
            // What was cancelled is not heard of any more, though it may still be answered.
            let all = progress.len() as u64 == steps || cancelled.as_ref() == Some(&id);
            assert!(all, "{case}: {}", reply.text());
        }
    }
    delete(&client);
}

/// It could be about anybody's call.
#[test]
fn what_a_process_wrote_last_is_told_to_its_callers_where_they_are_of_one_principal() {
    for (isolation, stderr) in
        [(Isolation::Principal, json!("first words\nlast words")), (Isolation::Shared, Value::Null)]
    {
        let (_shim, sidecar) = shared(&config(isolation, 2), &[], &[]);
        let message = open(&sidecar, 0).call("exit", json!({"status": 3}));
        assert!(error(&message).contains("exit status 3"), "{message}");
        assert_eq!(message["error"]["data"]["stderr"], stderr, "{isolation:?}");
    }
}
