//! Sidecars that restart beside their living server, keys that change, and servers that restart alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_sidecar_config::{Keys, OnOwnerLoss};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::client::echo;
use crate::harness::config::{keys, on_loss, session_key};
use crate::harness::http::connect;
use crate::harness::replicas::{Network, knows};
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{
    Client, Files, Gate, GoServer, Over, Request, Scripted, Sidecar, config, eventually, scripted,
};

fn taken(sidecar: &Sidecar, how: &str) -> f64 {
    sidecar.metric(&format!("longshore_sessions_taken_total{{how=\"{how}\"}}"))
}

#[test]
fn a_sidecar_that_restarts_finds_its_sessions_again_but_not_those_that_ended() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::flagged(&config(server.port), &Sidecar::POD).ready();
    let (kept, ended) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    echo(&kept);
    assert_eq!(ended.end().status, 204);
    let (kept, ended) = (kept.session, ended.session);

    let sidecar = sidecar.again();
    let client = Client::open(&sidecar, None);
    assert_eq!(sidecar.metric("longshore_sessions"), 1.0);
    // Several at once: it is taken up once.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| echo(&Client::in_session(&sidecar, &kept)));
        }
    });
    assert_eq!(sidecar.metric("longshore_sessions"), 2.0);
    assert_eq!(taken(&sidecar, "restarted"), 1.0);
    assert_eq!(Client::in_session(&sidecar, &ended).send("ping", json!({})).status, 404);
    drop(client);

    // The end of one that nobody has taken up yet counts too.
    let sidecar = sidecar.again();
    assert_eq!(Client::in_session(&sidecar, &kept).end().status, 204);
    let sidecar = sidecar.again();
    assert_eq!(Client::in_session(&sidecar, &kept).send("ping", json!({})).status, 404);
    assert_eq!(taken(&sidecar, "restarted"), 0.0);
}

/// A server that has sessions goes on with a call whose sidecar has died, and its client may take it back.
#[test]
fn r059_a_call_of_before_a_restart_can_be_cancelled() {
    let gate = Gate::default();
    let waits = gate.clone();
    let server = Scripted::naming("a-name".to_owned(), move |request, stream| {
        waits.pass();
        scripted::json(stream, &scripted::reply_to(request, &json!({"content": []})));
    });
    let sidecar = Sidecar::flagged(&config(server.port), &Sidecar::POD).ready();
    let client = Client::open(&sidecar, None);
    let session = client.session.clone();
    let mut call = connect(sidecar.mcp);
    client
        .request(r#"{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"t"}}"#)
        .write(&mut call);
    eventually("it is under way", || server.seen("tools/call").pop());
    let sidecar = sidecar.again();
    let client = Client::in_session(&sidecar, &session);
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#;
    assert_eq!(client.request(cancelled).send(sidecar.mcp).status, 202);
    let heard = eventually("the server hears of it", || server.seen("notifications/cancelled").pop());
    assert_eq!(scripted::message(&heard)["params"]["requestId"], 77);
    gate.open();
}

/// What the server calls a session is in the session's id, if there is room, and is said to the server as it stands.
/// Otherwise nobody knows it any more after a restart.
#[test]
fn a_session_whose_server_has_a_long_name_for_it_lives_as_long_as_its_sidecar() {
    for (bytes, what, then, goes_on) in [
        (500, OnOwnerLoss::NotFound, 200, true),
        (1_000, OnOwnerLoss::NotFound, 404, false),
        (1_000, OnOwnerLoss::Reinitialize, 200, false),
    ] {
        let name = "n".repeat(bytes);
        let server = Scripted::naming(name.clone(), |request, stream| {
            scripted::json(stream, &scripted::reply_to(request, &json!({"content": []})));
        });
        let sidecar = Sidecar::flagged(&on_loss(config(server.port), what), &Sidecar::POD).ready();
        let client = Client::open(&sidecar, None);
        let session = client.session.clone();
        assert!(session.len() < 1_024, "{}", session.len());
        assert_eq!(client.send("tools/call", json!({"name": "t"})).status, 200);
        let sidecar = sidecar.again();
        let client = Client::in_session(&sidecar, &session);
        let reply = client.send("tools/call", json!({"name": "t"}));
        assert_eq!(reply.status, then, "{bytes} {what:?}: {}", reply.text());
        // A session that was begun again has another name.
        let calls = server.seen("tools/call");
        assert_eq!(calls.len(), 1 + usize::from(goes_on), "{bytes} {what:?}");
        for call in calls {
            assert!(call.headers.contains(&("mcp-session-id".to_owned(), name.clone())));
        }
    }
}

/// Nobody has used the session since the sidecar restarted, and the server keeps it still.
#[test]
fn the_server_hears_of_the_end_of_a_session_that_an_earlier_sidecar_opened() {
    let (server, _) = forgetful(Arc::default());
    let sidecar = Sidecar::flagged(&config(server.port), &Sidecar::POD).ready();
    let session = Client::open(&sidecar, None).session.clone();
    let sidecar = sidecar.again();
    // Nor is it ended by looking for it, if it is not to be.
    let other = Request::new("DELETE", "/mcp").session(&session).header("mcp-protocol-version", "2025-06-18");
    assert_eq!(other.send(sidecar.mcp).status, 400);
    assert_eq!(Client::in_session(&sidecar, &session).end().status, 204);
    let ended = server.seen("DELETE");
    let names = ended.iter().flat_map(|request| &request.headers);
    let names: Vec<_> = names.filter(|(name, _)| name == "mcp-session-id").map(|(_, id)| id).collect();
    assert_eq!(names, [scripted::UPSTREAM_SESSION]);
    assert_eq!(Client::in_session(&sidecar, &session).send("ping", json!({})).status, 404);
}

#[test]
fn a_server_that_restarts_alone_ends_its_sessions_or_begins_them_again() {
    for what in [OnOwnerLoss::NotFound, OnOwnerLoss::Reinitialize] {
        let mut server = GoServer::start(&[]);
        let sidecar = Sidecar::flagged(&on_loss(config(server.port), what), &Sidecar::POD).ready();
        let clients: Vec<_> = (0..4).map(|_| Client::open(&sidecar, None)).collect();
        server.kill();
        server.start_again();
        eventually("the server is there", || sidecar.metric("longshore_server_connected") == 1.0);
        for client in &clients {
            match what {
                OnOwnerLoss::NotFound => assert_eq!(client.send("ping", json!({})).status, 404),
                OnOwnerLoss::Reinitialize => std::thread::scope(|scope| {
                    let (sidecar, session) = (&sidecar, &client.session);
                    for _ in 0..3 {
                        scope.spawn(move || echo(&Client::in_session(sidecar, session)));
                    }
                }),
            }
        }
        let left = if what == OnOwnerLoss::NotFound { 0.0 } else { 4.0 };
        assert_eq!(sidecar.metric("longshore_sessions"), left);
    }
}

/// What a client says of itself is kept with its session, unless it is more than a session is worth. What is not kept
/// cannot be said again.
#[test]
fn a_session_whose_client_says_far_too_much_lives_as_long_as_its_server() {
    let mut server = GoServer::start(&[]);
    let config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    let sidecar = Sidecar::flagged(&config, &Sidecar::POD).ready();
    let clients = [(15 * 1024, 200), (17 * 1024, 404)].map(|(bytes, then)| {
        let can = json!({"roots": {}, "experimental": {"example.com/x": {"text": "x".repeat(bytes)}}});
        (Client::with_capabilities(&sidecar, None, "2025-11-25", &can), then)
    });
    clients.iter().for_each(|(client, _)| echo(client));
    server.kill();
    server.start_again();
    eventually("the server is there", || sidecar.metric("longshore_server_connected") == 1.0);
    for (client, then) in &clients {
        assert_eq!(client.send("ping", json!({})).status, *then);
    }
    assert_eq!(sidecar.metric("longshore_sessions"), 1.0);
}

/// The response of a call that waits for long begins before there is a server that could answer.
#[test]
fn a_call_whose_response_has_begun_goes_on_in_the_session_that_is_begun_again() {
    let mut server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::of(&sidecar, None, "2025-11-25");
    server.kill();
    let mut call = client.stream("echo", json!({"text": "a"}));
    assert!(call.any().is_some_and(|event| event.data.is_empty()), "it has begun");
    server.start_again();
    let message = call.next().expect("an answer").message();
    assert_eq!(message["result"]["content"][0]["text"], "a", "{message}");
}

/// Methods, and the sessions that they came in.
pub(super) type Heard = Mutex<Vec<(String, String)>>;

/// A server that tells which message came in which session, and that forgets the client's first one when it is told to.
pub(super) fn forgetful(forget: Arc<AtomicBool>) -> (Scripted, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let into = heard.clone();
    let server = Scripted::start(move |request, stream| {
        let session = request.value("mcp-session-id").unwrap_or_default().to_owned();
        if forget.load(Ordering::Relaxed) && session == scripted::UPSTREAM_SESSION {
            return scripted::json_with(stream, 404, "", "{}");
        }
        let message = scripted::message(request);
        into.lock().unwrap().push((message["method"].as_str().unwrap_or_default().to_owned(), session));
        scripted::json(stream, &scripted::reply_to(request, &json!({})));
    });
    (server, heard)
}

pub(super) fn set(client: &Client<'_>) {
    client.ask("logging/setLevel", json!({"level": "warning"}));
    for uri in ["file:///a", "file:///b"] {
        client.ask("resources/subscribe", json!({"uri": uri}));
    }
    client.ask("resources/unsubscribe", json!({"uri": "file:///a"}));
}

/// What the server heard in sessions but the first.
pub(super) fn again(heard: &Heard) -> Vec<String> {
    let heard = heard.lock().unwrap();
    let again = heard.iter().filter(|(_, session)| session != scripted::UPSTREAM_SESSION);
    again.map(|(method, _)| method.clone()).collect()
}

#[test]
fn what_a_client_has_set_is_set_again() {
    let forget = Arc::new(AtomicBool::new(false));
    let (server, heard) = forgetful(forget.clone());
    let config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    let sidecar = Sidecar::flagged(&config, &Sidecar::POD).ready();
    let client = Client::open(&sidecar, None);
    set(&client);
    forget.store(true, Ordering::Relaxed);
    client.call("t", json!({}));
    assert_eq!(again(&heard), ["logging/setLevel", "resources/subscribe", "tools/call"]);
}

/// What a session that is begun again costs at the server is given back where nobody could use it.
#[test]
fn what_is_begun_again_for_nobody_is_ended_at_its_server() {
    for (ends, status) in [(true, 404), (false, 200)] {
        let (forget, gate) = (Arc::new(AtomicBool::new(false)), Gate::default());
        let (server, heard) = slow_to_set(&forget, &gate, !ends);
        let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
        let client = Client::open(&sidecar, None);
        client.ask("logging/setLevel", json!({"level": "warning"}));
        forget.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let session = &client.session;
            let call = scope.spawn(|| Client::in_session(&sidecar, session).send("tools/list", json!({})));
            if ends {
                eventually("it is begun again", || {
                    again(&heard).last().filter(|it| *it == "logging/setLevel").map(drop)
                });
                assert_eq!(client.end().status, 204);
            }
            gate.open();
            assert_eq!(call.join().unwrap().status, status);
        });
        eventually("its server hears of the end", || {
            again(&heard).last().filter(|method| *method == "DELETE").map(drop)
        });
        assert_eq!(sidecar.metric("longshore_sessions"), if ends { 0.0 } else { 1.0 });
    }
}

/// And where nobody waits for it any more it is begun all the same, once.
#[test]
fn a_session_is_begun_again_once_however_long_that_takes() {
    let (forget, gate) = (Arc::new(AtomicBool::new(false)), Gate::default());
    let (server, heard) = slow_to_set(&forget, &gate, false);
    let mut config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    config.limits.request_timeout_ms = 1_000;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    client.ask("logging/setLevel", json!({"level": "warning"}));
    forget.store(true, Ordering::Relaxed);
    let late = client.call("t", json!({}));
    assert!(late["error"]["message"].as_str().is_some_and(|why| why.contains("within")), "{late}");
    gate.open();
    assert!(client.call("t", json!({}))["result"].is_object());
    let mut heard = again(&heard);
    // Of the call that was late, which says nothing to this one.
    heard.retain(|method| method != "notifications/cancelled");
    assert_eq!(heard, ["notifications/initialized", "logging/setLevel", "tools/call"]);
    assert_eq!(client.end().status, 204);
}

/// A server that can forget, and is in no hurry then to take what clients had set. It may refuse to begin.
fn slow_to_set(forget: &Arc<AtomicBool>, gate: &Gate, refuses: bool) -> (Scripted, Arc<Heard>) {
    let (forget, gate, heard) = (forget.clone(), gate.clone(), Arc::new(Heard::default()));
    let into = heard.clone();
    let server = Scripted::told(move |request, stream| {
        let message = scripted::message(request);
        let method = message["method"].as_str().unwrap_or(&request.method);
        let session = request.value("mcp-session-id").unwrap_or_default().to_owned();
        let forgets = forget.load(Ordering::Relaxed);
        if forgets && session == scripted::UPSTREAM_SESSION {
            return scripted::json_with(stream, 404, "", "{}");
        }
        if forgets {
            into.lock().unwrap().push((method.to_owned(), session));
        }
        match method {
            "notifications/initialized" if forgets && refuses => {
                scripted::json_with(stream, 503, "", "{}");
            }
            "logging/setLevel" if forgets => {
                gate.pass();
                scripted::json(stream, &scripted::reply_to(request, &json!({})));
            }
            _ if message.get("id").is_some() => {
                scripted::json(stream, &scripted::reply_to(request, &json!({})));
            }
            _ => scripted::accepted(stream),
        }
    });
    (server, heard)
}

/// And the one that comes after it, since whoever has it tells another one.
#[test]
fn what_a_client_has_set_outlives_its_replica() {
    let (server, heard) = forgetful(Arc::default());
    let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    let network = Network::new();
    let replicas = network.replicas(&config, &[server.port; 3]);
    let client = Client::open(&replicas[0], Some("key-a"));
    set(&client);
    let mut others: Vec<_> = replicas.iter().collect();
    let mut owner = others.remove(0);
    let mut expected = Vec::new();
    while let Some(other) = others.first() {
        eventually("it is told", || owner.copied(2) > 0);
        owner.signal(Signal::KILL);
        // One that is forwarded before it is known is lost with it.
        eventually("it goes on", || client.through(other).call("t", json!({})).get("result").map(drop));
        expected.extend(["logging/setLevel", "resources/subscribe", "tools/call"]);
        assert_eq!(again(&heard), expected);
        let at = others.iter().position(|replica| taken(replica, "adopted") == 1.0);
        owner = others.remove(at.expect("somebody has it"));
    }
}

/// Also where the one that was told ends in order before anybody asks for the session again.
#[test]
fn what_a_client_has_set_is_passed_on_by_a_replica_that_ends() {
    const SESSIONS: usize = 6;
    let (server, heard) = forgetful(Arc::default());
    let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    let network = Network::new();
    let mut replicas = network.replicas(&config, &[server.port; 3]);
    let (last, ending, owner) = (replicas.pop().unwrap(), replicas.pop().unwrap(), replicas.pop().unwrap());
    // Either of the others is told of some of them.
    let clients: Vec<_> = (0..SESSIONS).map(|_| Client::open(&owner, Some("key-a"))).collect();
    clients.iter().for_each(set);
    eventually("it is told", || owner.copied(2) >= SESSIONS);
    owner.signal(Signal::KILL);
    let hook = ending.hook();
    ending.signal(Signal::TERM);
    assert!(ending.wait(Duration::from_secs(60)).success());
    drop(hook);
    network.list(&[3]);
    for client in &clients {
        eventually("it goes on", || client.through(&last).call("t", json!({})).get("result").map(drop));
    }
    let expected = ["logging/setLevel", "resources/subscribe", "tools/call"].repeat(SESSIONS);
    assert_eq!(again(&heard), expected);
}

/// Also where the one that had it has lost it meanwhile.
#[test]
fn what_a_client_has_set_is_told_again_to_a_replica_that_restarts() {
    let (server, heard) = forgetful(Arc::default());
    let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    let network = Network::new();
    let mut replicas = network.replicas(&config, &[server.port; 2]);
    let (mut other, owner) = (replicas.pop().unwrap(), replicas.pop().unwrap());
    let client = Client::open(&owner, Some("key-a"));
    set(&client);
    let told = || owner.copied(2);
    eventually("it is told", || told() > 0);
    // Once a second it is looked at who serves.
    for is_seen_gone in [false, true] {
        let before = told();
        other.signal(Signal::KILL);
        if is_seen_gone {
            knows(&owner, 0);
            std::thread::sleep(Duration::from_secs(3));
        }
        let files = other.files.clone();
        drop(other);
        other = network.start_again(2, "pod-2", files).ready();
        eventually("it is told again", || told() > before);
    }
    owner.signal(Signal::KILL);
    eventually("it goes on", || client.through(&other).call("t", json!({})).get("result").map(drop));
    assert_eq!(again(&heard), ["logging/setLevel", "resources/subscribe", "tools/call"]);
}

/// Also where nobody else is told: the one replica writes it down for the sidecar that comes after it, or after that one.
#[test]
fn what_a_client_has_set_outlives_the_sidecar_of_the_only_replica() {
    let (server, heard) = forgetful(Arc::default());
    let sidecar = Sidecar::flagged(&config(server.port), &Sidecar::POD).ready();
    let (kept, ended) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    ended.ask("logging/setLevel", json!({"level": "error"}));
    set(&kept);
    for changes in [1, 4] {
        sidecar.log(|line| {
            line["message"] == "what a client has set is written down" && line["changes"] == changes
        });
    }
    assert_eq!(ended.end().status, 204);
    let (kept, ended) = (kept.session.clone(), ended.session.clone());
    let written = std::fs::read_to_string(sidecar.files.path("program").join("set-in-sessions")).unwrap();
    assert!(!written.contains("file:///"), "{written}");
    let sidecar = sidecar.again().again();
    let before = heard.lock().unwrap().len();
    assert_eq!(Client::in_session(&sidecar, &ended).send("ping", json!({})).status, 404);
    Client::in_session(&sidecar, &kept).call("t", json!({}));
    let mut heard = heard.lock().unwrap().split_off(before);
    heard.retain(|(_, session)| session == scripted::UPSTREAM_SESSION);
    let methods: Vec<_> = heard.iter().map(|(method, _)| method).collect();
    assert_eq!(methods, ["logging/setLevel", "resources/subscribe", "tools/call"]);
}

#[test]
fn keys_change_and_no_call_is_lost() {
    let server = GoServer::start(&[]);
    let with = |numbers: &[u8], seal_with: u8| {
        let mut config = config(server.port);
        config.sessions.seal_with = seal_with;
        let sessions = numbers.iter().map(|number| session_key(*number)).collect();
        (config, Keys { sessions, ..keys(&[("alice", "key-a")]) })
    };
    let files = Files::new();
    let (config, keys) = with(&[1], 1);
    files.write_with_keys(&config, &keys);
    let sidecar = Sidecar::with(files, &Sidecar::POD).loaded().ready();
    let old = Client::open(&sidecar, Some("key-a"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&done);
        for _ in 0..4 {
            scope.spawn(|| {
                let client = Client::open(&sidecar, Some("key-a"));
                while !done.load(Ordering::Relaxed) {
                    echo(&client);
                    let short = Client::open(&sidecar, Some("key-a"));
                    echo(&short);
                    assert_eq!(short.end().status, 204);
                }
            });
        }
        for (numbers, seal_with) in [(&[1, 2][..], 1), (&[1, 2], 2), (&[1, 2, 3], 2), (&[1, 2, 3], 3)] {
            let (config, keys) = with(numbers, seal_with);
            let digest = sidecar.files.write_with_keys(&config, &keys);
            sidecar.runs(&digest);
            echo(&old);
        }
    });
    // The one that it was sealed with is gone.
    let (config, keys) = with(&[2, 3], 3);
    sidecar.files.write_with_keys(&config, &keys);
    eventually("its id is worth nothing", || old.send("ping", json!({})).status == 404);
}

/// Whether it dies, or is told to end while its pod goes on.
#[test]
fn a_process_outlives_its_sidecar() {
    let flags = [&Sidecar::POD[..], &["--drain-minimum-ms", "0"]].concat();
    let (shim, sidecar) = serving(&stdio(), &server(&[]), &flags);
    let client = Client::open(&sidecar, None);
    let pid = |client: &Client<'_>| client.call("pid", json!({}))["result"]["content"][0]["text"].clone();
    let (before, session) = (pid(&client), client.session.clone());
    sidecar.signal(Signal::TERM);
    assert!(sidecar.wait(Duration::from_secs(10)).success());
    let files = sidecar.files.clone();
    drop(sidecar);
    let sidecar = Sidecar::with(files, &Sidecar::POD).loaded().ready();
    assert_eq!(pid(&Client::in_session(&sidecar, &session)), before);
    let sidecar = sidecar.again();
    assert_eq!(pid(&Client::in_session(&sidecar, &session)), before);
    // The end of its session is its own, though nobody has called it since.
    let sidecar = sidecar.again();
    sidecar.log(|line| line["message"] == "detected which revisions the MCP server speaks");
    let taken = || sidecar.metric("longshore_processes_started_total");
    let others = taken();
    assert_eq!(Client::in_session(&sidecar, &session).end().status, 204);
    assert_eq!(taken(), others + 1.0, "it is taken up to be told");
    let before = before.to_string().trim_matches('"').parse().expect("a number");
    eventually("the process has ended", || !shim.processes().contains(&before));
}
