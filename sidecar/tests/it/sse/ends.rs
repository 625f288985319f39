//! The ends of sessions with a server over HTTP+SSE: its stream is the session.

use std::sync::atomic::{AtomicBool, Ordering};

use longshore_sidecar_config::OnOwnerLoss;
use serde_json::{Value, json};

use super::{hear, said};
use crate::harness::config::on_loss;
use crate::harness::http::connect;
use crate::harness::scripted::message;
use crate::harness::sse_server::Say;
use crate::harness::{
    Client, Event, Events, Gate, Reply, Request, Sidecar, SseServer, client, eventually, modern,
};

/// The tools that break the stream off: between two events, and in one.
const WAYS: [&str; 3] = ["end", "cut", "unended"];

#[test]
fn a_session_ends_with_its_stream() {
    let server = SseServer::start(hear);
    let sidecar = Sidecar::start(&server.config()).ready();
    let other = Client::open(&sidecar, None);
    for way in WAYS {
        let client = Client::open(&sidecar, None);
        let listening = Events::open(&client.get(), sidecar.mcp);
        let mut silent = connect(sidecar.mcp);
        let call = json!({"name": "silent", "arguments": {"text": way}});
        client.request(client.message("tools/call", &call)).write(&mut silent);
        eventually("it is under way", || {
            let seen = server.seen("tools/call");
            seen.iter().any(|call| message(call)["params"]["arguments"]["text"] == way)
        });
        // The calls that are under way may have been begun.
        let reply = client.send("tools/call", json!({"name": way, "arguments": {}}));
        for reply in [reply, Reply::on(silent)] {
            let error = reply.message()["error"]["message"].take();
            assert!(error.as_str().is_some_and(|error| error.contains("went away")), "{way}: {error}");
            assert!(reply.events().len() <= 1, "{way}: {}", reply.text());
        }
        assert!(listening.all().is_empty(), "{way}");
        let echo = json!({"name": "echo", "arguments": {"text": "x"}});
        assert_eq!(client.send("tools/call", echo).status, 404, "{way}");
        assert_eq!(other.call("echo", json!({"text": "y"}))["result"], said("y"), "no other session notices");
        // A request that stands alone has a session for itself.
        let call = |name: &str| {
            let params = json!({"name": name, "arguments": {"text": "z"}});
            modern::request(1, "tools/call", params).send(sidecar.mcp).message()
        };
        let failed = call(way);
        assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(1), &json!(-32603)), "{way}: {failed}");
        assert_eq!(call("echo")["result"]["content"], said("z")["content"], "{way}");
    }
}

/// What is heard without a call is whole too.
#[test]
fn a_notification_that_broke_off_reaches_nobody() {
    let server = SseServer::start(|heard: &Value, say: &Say<'_>| {
        if heard["method"] == "tools/call" {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            say.say(&changed);
            say.raw(&format!("event: message\ndata: {changed}\n"));
            say.end();
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    let client = Client::open(&sidecar, None);
    let listening = Events::open(&client.get(), sidecar.mcp);
    client.send("tools/call", json!({"name": "t"}));
    let heard: Vec<_> = listening.all().iter().map(Event::message).collect();
    assert_eq!(heard.len(), 1, "{heard:?}");
}

#[test]
fn a_server_that_speaks_another_revision_after_a_restart_ends_sessions_and_serves_others() {
    let server = SseServer::start(hear);
    server.restarts_with("2024-11-05");
    let sidecar = Sidecar::start(&server.config()).ready();
    let mut before = Client::open(&sidecar, None);
    for (turn, revision) in ["2025-11-25", "2025-03-26", "2025-06-18"].into_iter().enumerate() {
        assert_eq!(before.call("echo", json!({"text": "x"}))["result"], said("x"), "{revision}");
        server.restarts_with(revision);
        let echo = json!({"name": "echo", "arguments": {"text": "x"}});
        eventually("the session is over", || {
            let reply = before.send("tools/call", echo.clone());
            assert!(reply.message().get("error").is_some(), "{revision}: {}", reply.text());
            reply.status == 404
        });
        sidecar.log(|line| line["message"] == "the MCP server is connected" && line["revision"] == revision);
        for client in
            ["2024-11-05", "2025-06-18", "2025-11-25"].map(|client| Client::of(&sidecar, None, client))
        {
            assert_eq!(client.call("echo", json!({"text": "y"}))["result"], said("y"), "{revision}");
        }
        let alone =
            modern::request(turn as u64, "tools/call", json!({"name": "echo", "arguments": {"text": "z"}}));
        assert_eq!(
            alone.send(sidecar.mcp).message()["result"]["content"],
            said("z")["content"],
            "{revision}"
        );
        before = Client::open(&sidecar, None);
    }
}

#[test]
fn a_session_is_begun_again_where_that_is_allowed() {
    let server = SseServer::start(hear);
    let sidecar = Sidecar::start(&on_loss(server.config(), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::open(&sidecar, None);
    for way in WAYS {
        client.send("tools/call", json!({"name": way, "arguments": {}}));
        assert_eq!(client.call("echo", json!({"text": way}))["result"], said(way));
    }
    assert_eq!(server.seen("initialize").len(), 1, "the client's own");
}

/// Only what it has not taken is sent again.
#[test]
fn a_call_that_the_server_has_taken_is_not_made_again_when_it_forgets_the_session() {
    let server = SseServer::start(hear);
    let sidecar = Sidecar::start(&on_loss(server.config(), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::open(&sidecar, None);
    let named = |tool| {
        let seen = server.seen_all();
        seen.iter().filter(|request| message(request)["params"]["name"] == tool).count()
    };
    std::thread::scope(|scope| {
        let (sidecar, session) = (&sidecar, &client.session);
        let taken = ["silent", "held"].map(|tool| {
            let call = scope.spawn(move || {
                let params = json!({"name": tool, "arguments": {}});
                Client::in_session(sidecar, session).send("tools/call", params)
            });
            eventually("the server has it", || named(tool) == 1);
            (tool, call)
        });
        server.streams().clear();
        assert_eq!(client.call("echo", json!({"text": "x"}))["result"], said("x"));
        assert_eq!(named("echo"), 2, "the first time nobody heard it");
        for (tool, call) in taken {
            let reply = call.join().unwrap();
            assert!(reply.text().contains("went away"), "{tool}: {} {}", reply.status, reply.text());
            assert_eq!(named(tool), 1, "{tool}");
        }
    });
}

#[test]
fn what_is_no_message_harms_nobody() {
    let server = SseServer::start(|heard: &Value, say: &Say<'_>| {
        if heard["method"] == "tools/call" {
            for noise in [
                ": keep-alive\n\n",
                "data: hello\n\n",
                "event: other\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n",
                "event: endpoint\ndata: http://192.0.2.1/\n\n",
                "data:\n\n",
                "id: 1\nretry: 5\n\n",
                "data: [1]\n\n",
            ] {
                say.raw(noise);
            }
            let answer = json!({"jsonrpc": "2.0", "id": heard["id"], "result": said("a")}).to_string();
            let (start, end) = answer.split_at(20);
            // In pieces, and with the line ends of another system.
            say.raw(&format!("data: {start}"));
            say.raw(&format!("{end}\r\n"));
            say.raw("\r\n");
        }
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    let client = Client::open(&sidecar, None);
    for _ in 0..3 {
        assert_eq!(client.call("any", json!({}))["result"], said("a"));
    }
}

#[test]
fn r069_a_cancelled_call_is_cancelled_there() {
    let server = SseServer::start(hear);
    let mut config = server.config();
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    config.limits.request_timeout_ms = 500;
    sidecar.runs(&sidecar.files.write(&config));
    let reply = client.send("tools/call", json!({"name": "silent", "arguments": {}}));
    assert!(reply.text().contains("within 0.5 seconds"), "{}", reply.text());
    let cancelled = eventually("the server is told", || server.seen("notifications/cancelled").pop());
    let call = server.seen("tools/call").pop().unwrap();
    let (cancelled, call) =
        (crate::harness::scripted::message(&cancelled), crate::harness::scripted::message(&call));
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
}

/// What had too little time says how much that was, and not how much the call would have had.
#[test]
fn a_stream_that_names_no_endpoint_is_not_waited_for_as_long_as_a_call() {
    let gate = Gate::default();
    let opened = gate.clone();
    let is_first = AtomicBool::new(true);
    let server = SseServer::naming(
        move |session| {
            // The sidecar's own.
            if !is_first.swap(false, Ordering::Relaxed) {
                gate.pass();
            }
            format!("/messages?session={session}")
        },
        hear,
    );
    let sidecar = Sidecar::start(&server.config()).ready();
    let refused = Request::post(client::initialize("2025-06-18")).send(sidecar.mcp);
    assert!(refused.text().contains("did not answer within 10 seconds"), "{}", refused.text());
    opened.open();
}

/// Nor does it wait for what is before it on the way there.
#[test]
fn a_cancelled_call_ends_soon_though_the_server_takes_nothing() {
    /// As many as can be on their way.
    const HELD: usize = 64;
    let server = SseServer::start(hear);
    let mut config = server.config();
    config.sessions.streams = 100;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    let begin = |tool: &str, number: usize| {
        client.begin(&json!({"name": tool, "arguments": {"text": number.to_string()}}))
    };
    let mut calls: Vec<_> = (1..=HELD).map(|number| begin("held", number)).collect();
    eventually("they are on their way", || server.seen("tools/call").len() == HELD);
    // One that the server has not heard of yet.
    calls.push(begin("echo", HELD + 1));
    eventually("it is too", || sidecar.metric("longshore_calls") == calls.len() as f64);
    let cancelled: Vec<_> = [1, HELD + 1]
        .map(|id| {
            let params = json!({"requestId": id});
            let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            let mut stream = connect(sidecar.mcp);
            client.request(body.to_string()).write(&mut stream);
            stream
        })
        .into();
    for call in [calls.remove(0), calls.remove(HELD - 1)] {
        let message = Reply::on(call).message();
        assert_eq!(message["error"]["message"], "the call was cancelled by its client");
    }
    // And the server hears of the one that it has, as soon as there is room.
    let posted = server.seen("tools/call");
    let first = posted.iter().find(|call| message(call)["params"]["arguments"]["text"] == "1").unwrap();
    eventually("the server is told", || {
        let told = server.seen("notifications/cancelled");
        told.iter().any(|told| message(told)["params"]["requestId"] == message(first)["id"])
    });
    let posted = server.seen("tools/call");
    assert!(posted.iter().all(|call| message(call)["params"]["name"] == "held"));
    drop((calls, cancelled));
}

#[test]
fn calls_that_are_over_leave_room_for_others() {
    let server = SseServer::start(hear);
    let mut config = server.config();
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    config.limits.request_timeout_ms = 500;
    sidecar.runs(&sidecar.files.write(&config));
    // As many as can be on their way, of a server that answers none, nor their cancellation.
    std::thread::scope(|scope| {
        for _ in 0..64 {
            let held =
                client.request(client.message("tools/call", &json!({"name": "held", "arguments": {}})));
            let to = sidecar.mcp;
            scope.spawn(move || held.send(to));
        }
    });
    eventually("the session goes on", || {
        let answer = client.call("echo", json!({"text": "x"}));
        answer["result"] == said("x")
    });
}
