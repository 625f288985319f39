//! A server that is of another revision after a restart, and clients of 2026-07-28 that go on calling it.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::{again, asked, call, is_error, roots, text};
use crate::harness::own::example_server;
use crate::harness::{Client, Gate, Reply, Request, Sidecar, config, eventually, scripted};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

fn echo(to: SocketAddr, word: &str) -> Reply {
    call("echo", json!({"message": word}), &json!({})).send(to)
}

/// Whether a call was answered. If not, it was told why, under its own id, and nothing else.
fn is_answered(reply: &Reply, word: &str) -> bool {
    let message = reply.message();
    assert_eq!(message["id"], 1, "{message}");
    let Some(error) = message.get("error") else {
        assert_eq!(text(reply), word);
        return true;
    };
    assert!(!error["message"].as_str().unwrap_or_default().is_empty(), "{message}");
    false
}

/// Before and after, whoever speaks something else is translated for. In between a call may fail, and the next one works.
#[test]
fn calls_go_on_with_a_server_that_changes_its_revision_at_a_restart() {
    for (before, after) in
        [(LEGACY, MODERN), (MODERN, LEGACY), (LEGACY, "2025-03-26"), ("2025-06-18", LEGACY)]
    {
        let case = format!("{before}, then {after}");
        let mut server = example_server(before, 0);
        let port = server.port;
        let sidecar = Sidecar::start(&config(port)).ready();
        assert!(is_answered(&echo(sidecar.mcp, "before"), "before"), "{case}");
        let session = Client::open(&sidecar, None);
        let said = |client: &Client<'_>| {
            let message = client.call("echo", json!({"message": "hi"}));
            assert_eq!(message["result"]["content"][0]["text"], "hi", "{case}: {message}");
        };
        said(&session);
        let mcp = sidecar.mcp;
        let under_way =
            std::thread::spawn(move || call("countdown", json!({"seconds": 30}), &json!({})).send(mcp));
        eventually("a call is under way", || sidecar.metric("longshore_calls") == 1.0);
        server.kill();
        let failed = under_way.join().unwrap();
        assert_eq!(failed.message()["error"]["code"], -32603, "{case}: {}", failed.text());
        // They wait for the server that comes, and each that it answers gets its own answer.
        let meanwhile: Vec<_> = (0..4)
            .map(|number| {
                let word = format!("meanwhile {number}");
                std::thread::spawn(move || is_answered(&echo(mcp, &word), &word))
            })
            .collect();
        let _server = example_server(after, port);
        for call in meanwhile {
            call.join().unwrap();
        }
        let answered: Vec<_> =
            (0..10).map(|turn| turn.to_string()).map(|turn| is_answered(&echo(mcp, &turn), &turn)).collect();
        let failures = answered.iter().filter(|answered| !**answered).count();
        assert!(failures <= 1, "{case}: {answered:?}");
        // What the server from before knew is over, and nothing else.
        assert_eq!(session.send("ping", json!({})).status, 404, "{case}");
        said(&Client::open(&sidecar, None));
    }
}

/// A server of one era or the other, as it is told. Nothing that it has open ends when it changes: it is one behind an
/// address that has moved. It answers calls with the era that it is of.
fn either(is_modern: &Arc<AtomicBool>) -> u16 {
    changing(is_modern, false)
}

/// The same, whose newer one may serve sessions too.
fn changing(is_modern: &Arc<AtomicBool>, keeps_sessions: bool) -> u16 {
    let is_modern = is_modern.clone();
    answering(move |request| {
        let stands_alone = !keeps_sessions || request.value("mcp-protocol-version") == Some(MODERN);
        if is_modern.load(Ordering::SeqCst) && stands_alone { alone(request) } else { in_session(request) }
    })
}

/// A status, a line of the head, and a body.
type Answer = (u16, &'static str, String);

/// A server without streams that answers every POST so.
fn answering(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> u16 {
    serving(move |request, stream| {
        let (status, header, text) = answer(request);
        scripted::json_with(stream, status, header, &text);
    })
}

/// The same where `answer` writes what it answers.
fn serving(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> u16 {
    scripted::bare(move |request, stream| {
        if request.method == "POST" { answer(request, stream) } else { scripted::no_stream(stream) }
    })
}

fn refused(request: &Request, code: i64) -> Answer {
    let id = &scripted::message(request)["id"];
    let error = json!({"code": code, "message": "no", "data": {"supported": [MODERN], "requested": LEGACY}});
    (400, "", json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
}

fn alone(request: &Request) -> Answer {
    if request.value("mcp-protocol-version") != Some(MODERN) {
        return refused(request, -32022);
    }
    let mut result = match scripted::method_of(request).as_str() {
        "server/discover" => json!({
            "supportedVersions": [MODERN], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => json!({"tools": [], "ttlMs": 0, "cacheScope": "private"}),
        _ => json!({"content": [{"type": "text", "text": MODERN}]}),
    };
    result["resultType"] = json!("complete");
    (200, "", scripted::reply_to(request, &result))
}

/// What one with sessions answers.
pub(super) fn in_session(request: &Request) -> Answer {
    const SESSION: &str = "mcp-session-id: s\r\n";
    let (result, header) = match (scripted::method_of(request).as_str(), request.value("mcp-session-id")) {
        ("initialize", _) => (
            json!({
                "protocolVersion": LEGACY, "capabilities": {"tools": {}},
                "serverInfo": {"name": "either", "version": "1"},
            }),
            SESSION,
        ),
        (_, None) => return refused(request, -32600),
        (method, _) if method.starts_with("notifications/") => return (202, "", String::new()),
        ("tools/list", _) => (json!({"tools": []}), ""),
        ("ping", _) => (json!({}), ""),
        _ => (json!({"content": [{"type": "text", "text": LEGACY}]}), ""),
    };
    (200, header, scripted::reply_to(request, &result))
}

/// The first call finds it out, and the second is answered at the latest.
#[test]
fn a_server_that_changes_its_era_unseen_is_found_out_by_those_who_call_it() {
    let is_modern = Arc::new(AtomicBool::new(false));
    let sidecar = Sidecar::start(&config(either(&is_modern))).ready();
    let mut session = Client::open(&sidecar, None);
    for (turn, era) in [LEGACY, MODERN, LEGACY, MODERN].into_iter().enumerate() {
        is_modern.store(era == MODERN, Ordering::SeqCst);
        let answered = [(); 3].map(|()| is_answered(&echo(sidecar.mcp, ""), era));
        let failures = answered.iter().filter(|answered| !**answered).count();
        assert!(failures <= usize::from(turn > 0), "turn {turn}: {answered:?}");
        if turn > 0 {
            eventually("the session that was begun before is over", || {
                session.send("ping", json!({})).status == 404
            });
            session = Client::open(&sidecar, None);
        }
    }
}

/// Nor is it one without a stream: whoever has no session there any more is told so.
#[test]
fn a_server_that_changes_its_era_unseen_is_found_out_by_those_who_listen() {
    let is_modern = Arc::new(AtomicBool::new(true));
    let is_still = is_modern.clone();
    let sidecar = Sidecar::start(&config(answering(move |request| {
        if !is_still.load(Ordering::SeqCst) {
            return in_session(request);
        }
        if scripted::method_of(request) == "subscriptions/listen" {
            return refused(request, -32601);
        }
        let (status, header, text) = alone(request);
        (status, header, text.replace(r#""tools":{}"#, r#""tools":{"listChanged":true}"#))
    })))
    .ready();
    let client = Client::open(&sidecar, None);
    assert_eq!(client.get().send(sidecar.mcp).status, 405, "it gives none");
    is_modern.store(false, Ordering::SeqCst);
    assert_eq!(client.get().send(sidecar.mcp).status, 404);
}

/// 65: what a server over HTTP was found to be does not hold for ever. Nothing shows that another one has taken its place
/// which speaks more, but that it is asked again.
#[test]
fn r065_a_server_that_was_older_is_asked_again() {
    let is_modern = Arc::new(AtomicBool::new(false));
    let sidecar = Sidecar::flagged(&config(changing(&is_modern, true)), &["--older-again-ms", "300"]).ready();
    let session = Client::open(&sidecar, None);
    assert!(is_answered(&echo(sidecar.mcp, ""), LEGACY));
    is_modern.store(true, Ordering::SeqCst);
    eventually("a call is made in the newer era", || text(&echo(sidecar.mcp, "")) == MODERN);
    sidecar.log(|line| {
        line["message"] == "detected which revisions the MCP server speaks"
            && line.to_string().contains(MODERN)
    });
    // Whoever has a session keeps it.
    assert_eq!(session.call("echo", json!({}))["result"]["content"][0]["text"], LEGACY);
}

/// 71: what its client answers to a call is for that call, though others are made in the newer era by now. The server there
/// knows nothing of it.
#[test]
fn r071_a_call_that_waits_goes_on_though_its_server_is_found_to_be_newer() {
    let (is_modern, asked_in) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_newer, count, gate) = (is_modern.clone(), asked_in.clone(), Gate::default());
    let port = serving(move |request, stream| {
        let is_new = is_newer.load(Ordering::SeqCst) && request.value("mcp-protocol-version") == Some(MODERN);
        let message = scripted::message(request);
        if message["params"]["name"] == "ask" {
            count.fetch_add(1, Ordering::SeqCst);
        }
        if message.get("method").is_none() {
            gate.open();
            return scripted::accepted(stream);
        }
        if is_new || message["params"]["name"] != "ask" {
            let (status, header, text) = if is_new { alone(request) } else { in_session(request) };
            return scripted::json_with(stream, status, header, &text);
        }
        scripted::begin_events(stream);
        scripted::ask_for_roots(stream);
        gate.pass();
        let result = json!({"content": [{"type": "text", "text": "answered"}]});
        scripted::say(stream, &scripted::reply_to(request, &result));
        scripted::chunk(stream, "");
    });
    let sidecar = Sidecar::flagged(&config(port), &["--older-again-ms", "300"]).ready();
    let (questions, state) = asked(&call("ask", json!({}), &roots()).send(sidecar.mcp));
    is_modern.store(true, Ordering::SeqCst);
    eventually("a call is made in the newer era", || text(&echo(sidecar.mcp, "")) == MODERN);
    let answers = json!({&questions[0].0: {"roots": []}});
    assert_eq!(text(&again("ask", json!({}), &roots(), &state, answers).send(sidecar.mcp)), "answered");
    // Once it is over the server there does not hear of it either.
    let late = again("ask", json!({}), &roots(), &state, json!({&questions[0].0: {"roots": []}}));
    is_error(&late.send(sidecar.mcp), 200, -32602);
    assert_eq!(asked_in.load(Ordering::SeqCst), 1, "the call was made once");
}

/// That a server of both eras has no time when it is asked for the older one does not say that it has none.
#[test]
fn a_server_that_has_no_time_to_begin_a_session_has_sessions_all_the_same() {
    let is_asked = AtomicBool::new(false);
    let port = answering(move |request| {
        if request.value("mcp-protocol-version") == Some(MODERN) {
            return alone(request);
        }
        let is_first = scripted::method_of(request) == "initialize" && !is_asked.swap(true, Ordering::SeqCst);
        if is_first { (503, "", String::new()) } else { in_session(request) }
    });
    let sidecar = Sidecar::start(&config(port)).ready();
    assert!(is_answered(&echo(sidecar.mcp, ""), MODERN));
    let session = Client::open(&sidecar, None);
    assert_eq!(session.call("echo", json!({}))["result"]["content"][0]["text"], LEGACY);
}
