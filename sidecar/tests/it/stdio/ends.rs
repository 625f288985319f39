//! Processes that end, by themselves or not.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longshore_sidecar_config::{Isolation, Processes};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use super::{eras, error, pid, said, text};
use crate::harness::config::{idle, processes};
use crate::harness::http::Reply;
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{
    Client, Files, GoServer, Over, Request, Shim, Sidecar, client, config, eventually, modern, within,
};

fn process(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

fn gone(pid: u32) {
    eventually("the process ends", || test_kill_process(process(pid)).is_err());
}

/// 64: a call under way fails with -32603, and the next one has another process.
#[test]
fn r064_an_end_in_a_call_is_an_error_with_a_reason() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let (client, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    let others = pid(&other);
    for (tool, arguments, words, stderr) in [
        ("exit", json!({"status": 3}), "exit status 3", json!("first words\nlast words")),
        ("exit", json!({"status": 0}), "exit status 0", json!("first words\nlast words")),
        ("kill", json!({}), "killed by signal 9 (the kernel does this where memory runs out)", Value::Null),
    ] {
        let first = pid(&client);
        // Another call that is under way hears of it too.
        let stream = client.begin(&json!({"name": "hang"}));
        let asked = Instant::now();
        let message = client.call(tool, arguments);
        // Otherwise it would end at its time out, after twenty.
        assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
        assert!(error(&message).contains(words), "{message}");
        assert_eq!(
            (&message["error"]["code"], &message["error"]["data"]["stderr"]),
            (&json!(-32603), &stderr)
        );
        let reply = Reply::on(stream);
        assert!(error(&reply.message()).contains(words), "{}", reply.text());
        // The next call begins anew, in the same session.
        assert_eq!(said(&client, "count", json!({})), "1");
        assert_ne!(pid(&client), first);
        assert_eq!(pid(&other), others);
    }
    assert_eq!(sidecar.audit(|line| line["code"] == -32603)["reason"], "server's process exited");
    assert!(!sidecar.written().contains("last words"), "what servers write is in no log");
}

#[test]
fn calls_outlive_the_age_of_their_session() {
    let mut config = stdio();
    let (shim, sidecar) = serving(&config, &server(&[]), &[]);
    let others = shim.processes().len();
    let client = Client::of(&sidecar, None, "2025-06-18");
    // Long enough to be under way together on a busy machine.
    let arguments = json!({"seconds": 12, "steps": 1});
    // One of them says something first.
    let calls = ["later", "progress"].map(|tool| {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": tool}});
        client.begin(&params)
    });
    eventually("they are under way", || sidecar.metric("longshore_calls") == 2.0);
    config.sessions.max_age_ms = 2_000;
    sidecar.runs(&sidecar.files.write(&config));
    eventually("it is too old", || client.send("ping", json!({})).status == 404);
    for (stream, words) in calls.into_iter().zip(["later", "done"]) {
        let reply = Reply::on(stream);
        assert_eq!(reply.status, 200, "{words}: {}", reply.text());
        assert_eq!(text(&reply.message()), words);
    }
    eventually("its process ends then", || shim.processes().len() <= others);
}

#[test]
fn a_process_that_died_unused_is_replaced_without_a_word() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    for wait in [false, false, false, true] {
        let before = pid(&client);
        kill_process(process(before), Signal::KILL).unwrap();
        gone(before);
        // Otherwise the call is often there before the news.
        if wait {
            eventually("the news", || sidecar.metric("longshore_processes") == 1.0);
        }
        assert_ne!(pid(&client), before);
    }
}

#[test]
fn r064_one_that_keeps_dying_is_not_started_for_ever() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let (client, other) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    let others = pid(&other);
    let mut deaths = 0;
    let message = loop {
        let message = client.call("exit", json!({"status": 1}));
        if !error(&message).contains("exit status 1") {
            break message;
        }
        deaths += 1;
        assert_eq!(pid(&other), others, "another session does not notice");
        assert!(deaths < 20, "started for ever");
    };
    assert_eq!(deaths, 6);
    assert!(error(&message).contains("died too often"), "{message}");
    // Others are not held up by that.
    assert_eq!(pid(&other), others);
    pid(&Client::open(&sidecar, None));
}

#[test]
fn a_server_that_is_another_one_now_ends_the_session() {
    // Each of its processes tosses a coin for its revision.
    let (_shim, sidecar) = serving(&stdio(), &server(&["fickle"]), &[]);
    let open = || {
        let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
        reply.header("mcp-session-id").unwrap().to_owned()
    };
    let ask = |session: &str, tool: &str| {
        let params = json!({"name": tool, "arguments": {"status": 1}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        Request::post(body.to_string()).session(session).send(sidecar.mcp)
    };
    let other = open();
    let others = ask(&other, "pid").message()["result"].take();
    assert!(others.is_object());
    let lost = (0..20).find_map(|_| {
        let session = open();
        ask(&session, "exit");
        let reply = ask(&session, "pid");
        (reply.status == 404).then_some((reply, session))
    });
    let (reply, session) = lost.expect("heads after tails, or the other way round");
    assert!(error(&reply.message()).contains("begin with initialize"), "{}", reply.text());
    let again = Request::new("DELETE", "/mcp").session(&session).send(sidecar.mcp);
    assert_eq!(again.status, 404);
    assert_eq!(ask(&other, "pid").message()["result"], others, "another session does not notice");
}

#[test]
fn sessions_end_with_their_processes() {
    for flags in [&[][..], &["obstinate"]] {
        let (_shim, sidecar) = serving(&idle(stdio(), 5_000), &server(flags), &[]);
        // By the client's word, which a call under way hears too.
        let client = Client::open(&sidecar, None);
        let first = pid(&client);
        let stream = client.begin(&json!({"name": "hang"}));
        eventually("the call is under way", || sidecar.metric("longshore_calls") == 1.0);
        assert_eq!(Request::new("DELETE", "/mcp").session(&client.session).send(sidecar.mcp).status, 204);
        let reply = Reply::on(stream);
        assert!(error(&reply.message()).contains("the session was ended"), "{}", reply.text());
        gone(first);
        // By nobody's.
        gone(pid(&Client::open(&sidecar, None)));
        eventually("nothing but the sidecar's own is left", || sidecar.metric("longshore_processes") == 1.0);
        assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
    }
}

/// The sidecar that is told to end alone has a successor: `a_process_outlives_its_sidecar`.
#[test]
fn a_pod_that_ends_ends_all_processes() {
    // Those that end with their stdin, and those that wait for a signal.
    for flags in [&[][..], &["lingering"]] {
        let (shim, sidecar) = serving(&stdio(), &server(flags), &["--drain-minimum-ms", "0"]);
        let client = Client::open(&sidecar, None);
        pid(&client);
        assert_eq!(shim.processes().len(), 2);
        // What tells that the pod ends.
        let mut hook = sidecar.hook();
        sidecar.signal(Signal::TERM);
        // When it returns their container is told to end, and they would be at once.
        let _ = hook.read_to_end(&mut Vec::new());
        assert_eq!(shim.processes(), [0; 0]);
        assert!(sidecar.wait(Duration::from_secs(10)).success());
    }
}

#[test]
fn another_server_in_the_configuration_ends_all_processes() {
    let (shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    pid(&client);
    let other = GoServer::start(&[]);
    sidecar.runs(&sidecar.files.write(&config(other.port)));
    eventually("the processes end", || shim.processes().is_empty());
    assert_eq!(client.send("ping", json!({})).status, 404);
    let client = Client::open(&sidecar, None);
    assert_eq!(said(&client, "echo", json!({"text": "by HTTP"})), "by HTTP");
    // And back.
    let mut back = stdio();
    back.generation = 2;
    sidecar.runs(&sidecar.files.write(&back));
    // What begins in the moment of the change may still be taken for the other server's.
    eventually("the sidecar has a process of its own", || !shim.processes().is_empty());
    pid(&Client::open(&sidecar, None));
}

/// Who opens sessions all the time does not hold up what is to be known of the other server.
#[test]
fn another_server_is_greeted_while_clients_come() {
    let mut config = stdio();
    config.protocol = Some("2025-06-18".to_owned());
    config.limits.processes = Some(processes(4, 4));
    let files = Files::new();
    files.write(&config);
    let _shim = Shim::start(&files, &server(&[]));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let connected = || sidecar.written().matches("the MCP server is connected").count();
    let before = connected();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // While there are as many as may be, it is refused; what it opens, it keeps.
                Request::post(client::initialize("2025-06-18")).send(sidecar.mcp);
            }
        });
        eventually("there are as many as may be", || sidecar.metric("longshore_processes") == 5.0);
        config.protocol = Some("2025-11-25".to_owned());
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
        eventually("it is greeted", || connected() > before);
    });
}

#[test]
fn a_container_that_ends_is_an_error_until_it_is_back() {
    let (mut shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    pid(&client);
    let stream = client.begin(&json!({"name": "hang"}));
    eventually("the call is under way", || sidecar.metric("longshore_calls") == 1.0);
    shim.kill();
    let reply = Reply::on(stream);
    assert!(error(&reply.message()).contains("the server's container ended"), "{}", reply.text());
    let message = client.call("pid", json!({}));
    assert!(error(&message).contains("the server's container does not run"), "{message}");
    sidecar.log(|line| line["reason"] == "ConnectionLost");

    let _shim = Shim::start(&sidecar.files, &server(&[]));
    eventually("the monitor is back", || sidecar.metric("longshore_server_connected") == 1.0);
    pid(&client);
}

/// With its container everything ends that was known of it. What comes is served to all, whichever era it is of.
#[test]
fn a_container_that_is_back_with_another_era_ends_sessions_and_serves_others() {
    let of = |era: &str| match era {
        "legacy" => eras::server("2025-06-18", "", "error"),
        _ => eras::server("", "2026-07-28", "error"),
    };
    let (mut shim, sidecar) = serving(&stdio(), &of("legacy"), &[]);
    let mut client = Client::open(&sidecar, None);
    let alone = || modern::request("x", "tools/call", json!({"name": "era"})).send(sidecar.mcp).message();
    assert_eq!((said(&client, "era", json!({})), text(&alone())), ("legacy".to_owned(), "legacy".to_owned()));
    for era in ["modern", "legacy", "modern"] {
        shim.kill();
        eventually("it is noticed", || sidecar.metric("longshore_server_connected") == 0.0);
        shim = Shim::start(&sidecar.files, &of(era));
        eventually("the monitor is back", || sidecar.metric("longshore_server_connected") == 1.0);
        // What the server from before knew is over, and a call in it is never answered by the other one.
        eventually("the session is over", || {
            let reply = client.send("tools/call", json!({"name": "era"}));
            assert!(reply.message().get("error").is_some(), "{era}: {}", reply.text());
            reply.status == 404
        });
        for revision in ["2025-03-26", "2025-11-25"] {
            assert_eq!(said(&Client::of(&sidecar, None, revision), "era", json!({})), era);
        }
        assert_eq!(text(&alone()), era);
        client = Client::open(&sidecar, None);
    }
}

#[test]
fn a_sidecar_that_is_killed_leaves_no_orphans() {
    let (shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    pid(&client);
    assert_eq!(shim.processes().len(), 2);
    sidecar.signal(Signal::KILL);
    within(Duration::from_secs(25), "the shim reaps them", || shim.processes().is_empty());
}

/// They would be there for ten seconds beside as many new ones.
#[test]
fn processes_that_sessions_share_end_when_the_next_sidecar_is_there() {
    let mut config = stdio();
    config.limits.processes = Some(Processes { isolation: Isolation::Principal, ..processes(2, 2) });
    let (shim, sidecar) = serving(&config, &server(&[]), &Sidecar::POD);
    pid(&Client::open(&sidecar, None));
    let before = shim.processes();
    assert_eq!(before.len(), 2);
    let sidecar = sidecar.again();
    within(Duration::from_secs(5), "those from before end", || {
        shim.processes().iter().all(|process| !before.contains(process))
    });
    pid(&Client::open(&sidecar, None));
}

/// Nobody can come for what serves requests that stand alone, nor for the sidecar's own, before either kind of server.
#[test]
fn processes_of_no_session_end_when_the_next_sidecar_is_there() {
    for command in [eras::server("2025-11-25", "2026-07-28", "error"), server(&[])] {
        let (shim, sidecar) = serving(&stdio(), &command, &Sidecar::POD);
        let mut nobodys = shim.processes();
        let session = Client::open(&sidecar, None).session.clone();
        let kept = shim.processes().into_iter().find(|process| !nobodys.contains(process)).unwrap();
        let alone = modern::request("x", "tools/call", json!({"name": "pid"})).send(sidecar.mcp).message();
        nobodys.push(text(&alone).parse().unwrap());
        assert!(nobodys.len() == 2 && !nobodys.contains(&kept), "{nobodys:?} {kept}");
        let sidecar = sidecar.again();
        within(Duration::from_secs(5), "those of no session end", || {
            shim.processes().iter().all(|process| !nobodys.contains(process))
        });
        assert_eq!(Client::in_session(&sidecar, &session).send("ping", json!({})).status, 200);
        assert!(shim.processes().contains(&kept), "the session goes on with its process");
    }
}

#[test]
fn each_way_not_to_start_has_a_reason_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let plain = plain.to_str().unwrap();
    for (command, reason, words) in [
        (vec!["/no/such/program".to_owned()], "CommandNotFound", "the server's command does not exist"),
        (vec!["no-such-program".to_owned()], "CommandNotFound", "the server's command does not exist"),
        (vec![plain.to_owned()], "CommandNotExecutable", "the server's command cannot be executed"),
        (vec!["/".to_owned()], "CommandNotExecutable", "the server's command cannot be executed"),
        (server(&["exit"]), "ProcessExited", "ended with exit status 2"),
        (vec!["true".to_owned()], "ProcessExited", "ended with exit status 0"),
    ] {
        let files = Files::new();
        files.write(&stdio());
        let _shim = Shim::start(&files, &command);
        let sidecar = Sidecar::with(files, &[]).loaded();
        let line = sidecar.log(|line| line["message"] == "the MCP server is not connected");
        assert_eq!(line["reason"], reason, "{line}");
        let detail = line["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
        let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
        assert_eq!(reply.status, 200);
        let message = reply.message();
        assert!(error(&message).contains(words), "{message}");
        assert_eq!(message["error"]["code"], -32603);
        if command.last().is_some_and(|word| word == "exit") {
            assert!(detail.contains("usage: a flag is missing"), "{detail}");
            assert_eq!(message["error"]["data"]["stderr"], "usage: a flag is missing");
        }
        assert_eq!(sidecar.metric("longshore_sessions"), 0.0);
    }
}

/// A process that was started when nobody waited for it any more is ended, and another one comes after it.
#[test]
fn a_start_that_came_too_late_is_no_hindrance() {
    let (shim, sidecar) = serving(&stdio(), &server(&["obstinate"]), &[]);
    let client = Client::open(&sidecar, None);
    kill_process(process(pid(&client)), Signal::KILL).unwrap();
    eventually("the news", || sidecar.metric("longshore_processes") == 1.0);
    shim.signal(Signal::STOP);
    let message = client.call("pid", json!({}));
    shim.signal(Signal::CONT);
    assert!(error(&message).contains("within 10 seconds"), "{message}");
    pid(&client);
}

#[test]
fn the_shim_may_come_late() {
    let sidecar = Sidecar::start(&stdio());
    let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
    assert!(error(&reply.message()).contains("does not run"), "{}", reply.text());
    let _shim = Shim::start(&sidecar.files, &server(&[]));
    let sidecar = sidecar.ready();
    pid(&Client::open(&sidecar, None));
}

/// A process that takes nothing and says nothing any more is replaced, and one that is only slow is not.
#[test]
fn a_process_that_hangs_is_replaced() {
    for isolation in [Isolation::Session, Isolation::Shared] {
        let mut config = stdio();
        config.limits.processes = Some(Processes { isolation, ..processes(2, 2) });
        let flags = ["--hang-timeout-ms", "2500"];
        let (_shim, sidecar) = serving(&config, &server(&[]), &flags);
        let client = Client::open(&sidecar, None);
        let first = pid(&client);
        let late = |tool: &str| {
            let message = client.call(tool, json!({}));
            assert!(error(&message).contains("within 1.5 seconds"), "{message}");
        };
        // What is to be answered has all of its time.
        let usual = config.limits.request_timeout_ms;
        let mut allow = |milliseconds| {
            config.limits.request_timeout_ms = milliseconds;
            config.generation += 1;
            sidecar.runs(&sidecar.files.write(&config));
        };
        // It answers pings, for longer than it might say nothing.
        allow(1_500);
        (0..2).for_each(|_| late("hang"));
        allow(usual);
        assert_eq!(pid(&client), first);
        // From now on it does not read.
        assert_eq!(said(&client, "deaf", json!({})), "from now on");
        allow(1_500);
        late("pid");
        let other = eventually("another one takes its place", || {
            let message = client.call("pid", json!({}));
            let words = message["error"]["message"].as_str().unwrap_or_default();
            assert!(
                words.is_empty() || words.contains("1.5 seconds") || words.contains("did not say anything"),
                "{message}"
            );
            message["result"]["content"][0]["text"].as_str().map(str::to_owned)
        });
        assert_ne!(other, first.to_string());
        gone(first);
        assert_eq!(sidecar.metric("longshore_processes_ended_total{cause=\"mute\"}"), 1.0);
    }
}

/// Who calls after it has stopped to read is as those who call a moment later: no word of it was written.
#[test]
fn calls_that_a_process_never_saw_do_not_fail_with_it_when_it_hangs() {
    let mut config = stdio();
    config.limits.processes = Some(Processes { isolation: Isolation::Shared, ..processes(1, 1) });
    let (_shim, sidecar) = serving(&config, &server(&[]), &["--hang-timeout-ms", "8000"]);
    let (first, second) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    let before = pid(&first);
    assert_eq!(said(&first, "deaf", json!({})), "from now on");
    let usual = config.limits.request_timeout_ms;
    let mut allow = |milliseconds| {
        config.limits.request_timeout_ms = milliseconds;
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
    };
    // More than the pipe takes: what comes behind it waits. It is given up, and from then on the process is watched.
    allow(1_000);
    let message = first.call("echo", json!({"text": "x".repeat(200 * 1024)}));
    assert!(error(&message).contains("within 1 seconds"), "{message}");
    allow(usual);
    let other = pid(&second);
    assert_ne!(other, before, "it had the next process");
    assert_eq!(sidecar.metric("longshore_processes_ended_total{cause=\"mute\"}"), 1.0);
}
