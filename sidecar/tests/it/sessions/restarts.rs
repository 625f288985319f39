//! Sidecars that restart beside their living server, keys that change, and servers that restart alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_sidecar_config::{Keys, OnOwnerLoss};
use rustix::process::Signal;
use serde_json::json;

use super::set_again::forgetful;
use crate::harness::client::echo;
use crate::harness::config::{keys, on_loss, session_key};
use crate::harness::http::connect;
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{
    Client, Files, Gate, GoServer, Over, Request, Scripted, Sidecar, config, eventually, scripted,
};

pub(super) fn taken(sidecar: &Sidecar, how: &str) -> f64 {
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
        scripted::reply(stream, request, &json!({"content": []}));
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
    assert_eq!(client.cancel(77).status, 202);
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
            scripted::reply(stream, request, &json!({"content": []}));
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
