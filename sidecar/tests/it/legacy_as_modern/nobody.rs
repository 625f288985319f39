//! What a server asks where nobody can be asked, or is asked any more.

use std::io::{BufReader, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;

use super::eras::in_session;
use super::{again, asked, call, is_error, request, roots, text};
use crate::harness::{Gate, Request, Scripted, Sidecar, config, eventually, scripted};

/// A server that asks for roots in its answer or aside of it, and may wait before it goes on.
fn asking(aside: bool, goes_on: Option<Gate>) -> Scripted {
    let asks = Gate::default();
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    let question = format!("data: {question}\n\n");
    Scripted::offering(json!({"tools": {"listChanged": true}}), move |request, stream| {
        let answer = scripted::reply_to(request, &json!({"tools": [], "content": []}));
        if request.headers.iter().all(|(_, value)| value != scripted::UPSTREAM_SESSION) {
            return scripted::json(stream, &answer);
        }
        scripted::begin_events(stream);
        if request.method == "GET" {
            asks.pass();
            scripted::chunk(stream, &question);
            return scripted::until_closed(stream);
        }
        if aside {
            asks.open();
        } else {
            scripted::chunk(stream, &question);
        }
        goes_on.iter().for_each(Gate::pass);
        scripted::say(stream, &answer);
        scripted::write(stream, "0\r\n\r\n");
    })
}

/// 71: many servers ask for roots as soon as they are greeted. That ends no request in which nobody may be asked, and a
/// call that does not wait for its question leaves none open: the server always has an answer.
#[test]
fn r071_what_nobody_can_be_asked_is_answered_all_the_same() {
    for (method, aside, waits, code) in [
        ("tools/list", false, false, -32601),
        ("tools/list", false, true, -32601),
        ("tools/list", true, true, -32601),
        ("tools/call", false, false, -32603),
    ] {
        let goes_on = Gate::default();
        let server = asking(aside, waits.then(|| goes_on.clone()));
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let asked = request(1, method, json!({"name": "t"}), &roots());
        let (reply, answer) = thread::scope(|scope| {
            let reply = scope.spawn(|| asked.send(sidecar.mcp));
            let answer = eventually("the server has an answer", || {
                let mut said = server.seen("").into_iter().map(|request| scripted::message(&request));
                said.find(|message: &Value| message["id"] == "q")
            });
            goes_on.open();
            (reply.join().unwrap(), answer)
        });
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.message()["result"]["resultType"], "complete", "{method}: {}", reply.text());
        assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
        if code == -32601 {
            let words = answer["error"]["message"].as_str().unwrap();
            assert!(words.contains("2025-11-25") && words.contains("2026-07-28"), "{words}");
        }
    }
}

/// 71: a server that cannot be given what it has asked for would wait for it until the end of the call's time.
#[test]
fn r071_an_answer_that_does_not_reach_the_server_ends_the_call() {
    let server = Scripted::nameless_answered(|request, stream| {
        let message = scripted::message(request);
        if message.get("method").is_none() {
            return scripted::json_with(stream, 503, "", "{}");
        }
        if message["method"] != "tools/call" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        scripted::begin_events(stream);
        scripted::ask_for_roots(stream);
        scripted::until_closed(stream);
    });
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 20_000;
    let sidecar = Sidecar::start(&config).ready();
    let (questions, state) = asked(&call("t", json!({}), &roots()).send(sidecar.mcp));
    let answers = json!({&questions[0].0: {"roots": []}});
    let again = again("t", json!({}), &roots(), &state, answers);
    // Or the sidecar answers itself, since nobody can be asked.
    let nobody = call("t", json!({}), &json!({}));
    for (request, ended) in [(again, 1), (nobody, 2)] {
        let reply = request.send(sidecar.mcp);
        assert!(is_error(&reply, 200, -32603).contains("503"), "{}", reply.text());
        eventually("the server need not go on", || server.seen("notifications/cancelled").len() == ended);
    }
}

/// 71: who is slow to take an answer gets it all the same, and its call goes on.
#[test]
fn r071_an_answer_that_the_server_takes_late_is_not_withdrawn() {
    let taken = Gate::default();
    let takes = taken.clone();
    let server = Scripted::nameless_answered(move |request, stream| {
        let message = scripted::message(request);
        if message.get("method").is_none() {
            // Longer than whoever sends it waits.
            stream.set_read_timeout(Some(Duration::from_secs(7))).unwrap();
            let is_there = stream.read(&mut [0]).is_err();
            stream.set_read_timeout(None).unwrap();
            if is_there {
                scripted::accepted(stream);
                takes.open();
            }
            return;
        }
        if message["method"] != "tools/call" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        scripted::begin_events(stream);
        scripted::ask_for_roots(stream);
        taken.pass();
        let answer = scripted::reply_to(request, &json!({"content": [{"type": "text", "text": "done"}]}));
        scripted::say(stream, &answer);
        scripted::write(stream, "0\r\n\r\n");
    });
    let mut config = config(server.port);
    config.limits.request_timeout_ms = 20_000;
    let sidecar = Sidecar::start(&config).ready();
    let (questions, state) = asked(&call("t", json!({}), &roots()).send(sidecar.mcp));
    let answers = json!({&questions[0].0: {"roots": []}});
    let reply = again("t", json!({}), &roots(), &state, answers).send(sidecar.mcp);
    assert!(reply.text().contains("done"), "{}", reply.text());
}

/// A server that nobody can connect to any more once it is called, which it answers so: it is about to end, when it is done
/// with its calls. If it forgets, it does not know the session of a call before.
fn leaving(forgets: bool, last: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (last, forgets) = (Arc::new(last), Arc::new(AtomicBool::new(forgets)));
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (listener, last) = (listener.try_clone().unwrap(), last.clone());
            let forgets = forgets.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let Some(request) = scripted::read(&mut reader) else { return };
                if scripted::method_of(&request) != "tools/call" {
                    let (status, header, text) = match &*request.method {
                        "POST" => in_session(&request),
                        _ => (405, "", String::new()),
                    };
                    let head = format!("{header}connection: close\r\n");
                    return scripted::json_with(&mut stream, status, &head, &text);
                }
                if forgets.swap(false, Ordering::SeqCst) {
                    return scripted::json_with(&mut stream, 404, "connection: close\r\n", "{}");
                }
                SockRef::from(&listener).shutdown(Shutdown::Both).unwrap();
                last(&request, &mut stream);
            });
        }
    });
    port
}

/// 71: what is sent again there would find nobody who waits for it.
#[test]
fn r071_a_server_that_lets_nobody_in_any_more_has_lost_the_calls_that_it_asks_in() {
    for can in [roots(), json!({})] {
        let port = leaving(false, |_, stream| {
            scripted::begin_events(stream);
            scripted::ask_for_roots(stream);
            scripted::until_closed(stream);
        });
        let sidecar = Sidecar::start(&config(port)).ready();
        let mut reply = call("t", json!({}), &can).send(sidecar.mcp);
        if can == roots() {
            let (questions, state) = asked(&reply);
            let answers = json!({&questions[0].0: {"roots": []}});
            reply = again("t", json!({}), &can, &state, answers).send(sidecar.mcp);
        }
        let words = is_error(&reply, 200, -32603);
        assert!(words.contains("went away"), "{words}");
    }
}

/// 38: a server that restarts while its user is where it wanted is waited for, and called again then. It has forgotten the
/// session by then, and may have forgotten another one before.
#[test]
fn r038_a_server_that_restarts_during_a_visit_is_waited_for() {
    for forgot in [false, true] {
        let port = leaving(forgot, |request, stream| {
            let visit =
                json!({"mode": "url", "elicitationId": "e", "url": "https://example.com/a", "message": "m"});
            let error = json!({"code": -32042, "message": "m", "data": {"elicitations": [visit]}});
            let answer = json!({"jsonrpc": "2.0", "id": scripted::message(request)["id"], "error": error});
            scripted::json_with(stream, 200, "connection: close\r\n", &answer.to_string());
        });
        let sidecar = Sidecar::start(&config(port)).ready();
        let can = json!({"elicitation": {"url": {}}});
        let (questions, state) = asked(&call("t", json!({}), &can).send(sidecar.mcp));
        let visited = json!({&questions[0].0: {"action": "accept"}});
        let again = again("t", json!({}), &can, &state, visited);
        thread::scope(|scope| {
            let reply = scope.spawn(|| again.send(sidecar.mcp));
            eventually("nobody finds the server", || sidecar.metric("longshore_server_connected") == 0.0);
            let forgets = AtomicBool::new(true);
            let server = Scripted::at(port, json!({"tools": {}}), move |request, stream| {
                let is_call = scripted::method_of(request) == "tools/call";
                if request.method == "GET" {
                    scripted::no_stream(stream);
                } else if is_call && forgets.swap(false, Ordering::SeqCst) {
                    scripted::json_with(stream, 404, "", "{}");
                } else {
                    let result = json!({"tools": [], "content": [{"type": "text", "text": "done"}]});
                    scripted::reply(stream, request, &result);
                }
            });
            assert_eq!(text(&reply.join().unwrap()), "done", "{forgot}");
            assert_eq!(server.seen("tools/call").len(), 2);
        });
    }
}
