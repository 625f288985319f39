//! What a server asks as soon as it is greeted, when no call is under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{again, asked, call, request, roots, text};
use crate::harness::config::idle;
use crate::harness::replicas::Network;
use crate::harness::shim::{server, serving, stdio};
use crate::harness::sse_server::Say;
use crate::harness::{
    Events, Files, Reply, Request, Scripted, Sidecar, SseServer, config, eventually, scripted,
};

/// A server that asks for roots as soon as the stream of a session is there.
fn greeted() -> Scripted {
    forgetting(false)
}

/// The same, which may not know the session of its first call.
fn forgetting(forgets: bool) -> Scripted {
    let forgets = AtomicBool::new(forgets);
    Scripted::offering(json!({"tools": {}}), move |request, stream| {
        if request.method == "GET" {
            scripted::begin_events(stream);
            scripted::ask_for_roots(stream);
            return scripted::until_closed(stream);
        }
        if scripted::method_of(request) == "tools/call" && forgets.swap(false, Ordering::SeqCst) {
            return scripted::json_with(stream, 404, "", "{}");
        }
        let result = json!({"tools": [], "content": [{"type": "text", "text": "done"}]});
        scripted::reply(stream, request, &result);
    })
}

/// Begins a session as hosts do, before they call anything. None of that waits for what the server has asked.
fn begin(sidecar: &Sidecar, has_asked: impl Fn() -> bool) {
    let ask = |method: &str| request(1, method, json!({}), &roots()).key("key-a").send(sidecar.mcp);
    let complete = |reply: Reply| {
        assert_eq!(reply.message()["result"]["resultType"], "complete", "{}", reply.text());
    };
    complete(ask("server/discover"));
    eventually("it has asked", has_asked);
    complete(ask("tools/list"));
}

/// A call of a client that has a root.
fn calling(tool: &str, arguments: &Value) -> Request {
    call(tool, arguments.clone(), &roots()).key("key-a")
}

/// The same call with the root, which is all that was asked for.
fn answering(tool: &str, arguments: &Value, reply: &Reply) -> Request {
    let (questions, state) = asked(reply);
    let [(key, question)] = &questions[..] else { panic!("{questions:?}") };
    assert_eq!(question["method"], "roots/list");
    let responses = json!({key.clone(): {"roots": [{"uri": "file:///a"}]}});
    again(tool, arguments.clone(), &roots(), &state, responses).key("key-a")
}

/// What the server was answered, and which calls have reached it.
fn told(server: &Scripted) -> Vec<Value> {
    let said = server.seen_all().into_iter().map(|request| scripted::message(&request));
    said.filter(|message| message["id"] == "q" || message["method"] == "tools/call").collect()
}

/// 71: the first call begins with the question, and the server has the answer when it hears of the call, on whichever
/// replica that comes.
#[test]
fn r071_roots_that_a_server_asks_for_when_it_is_greeted_are_asked_for_in_the_first_call() {
    let servers = [greeted(), greeted()];
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    begin(&replicas[0], || !servers[0].seen("GET").is_empty());
    let nothing = json!({});
    let reply = calling("t", &nothing).send(replicas[0].mcp);
    let again = answering("t", &nothing, &reply);
    assert!(told(&servers[0]).is_empty(), "neither an answer nor a call");
    assert_eq!(text(&again.send(replicas[1].mcp)), "done");
    let heard = told(&servers[0]);
    assert_eq!(heard[0]["result"]["roots"][0]["uri"], "file:///a", "{heard:?}");
    assert_eq!((&heard[1]["method"], heard.len()), (&json!("tools/call"), 2), "{heard:?}");
    assert_eq!(text(&calling("t", &nothing).send(replicas[0].mcp)), "done", "it is asked once");
    assert!(told(&servers[1]).is_empty());
}

/// 71: calls that come at once all wait for the answer, each in a session of its own.
#[test]
fn r071_roots_are_asked_for_in_each_of_the_first_calls_that_come_at_once() {
    let server = greeted();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    begin(&sidecar, || !server.seen("GET").is_empty());
    let nothing = json!({});
    // Another client, which has no session yet.
    let can = json!({"roots": {"listChanged": true}});
    let ask = || call("t", nothing.clone(), &can).key("key-a").send(sidecar.mcp);
    let replies = thread::scope(|scope| {
        let replies = [(); 3].map(|()| scope.spawn(ask));
        replies.map(|reply| reply.join().unwrap())
    });
    let again = replies.each_ref().map(|reply| answering("t", &nothing, reply));
    assert!(server.seen("tools/call").is_empty());
    for again in again {
        assert_eq!(text(&again.send(sidecar.mcp)), "done");
    }
}

/// The call is made in another session then, in which the server asks as well.
#[test]
fn a_session_that_is_forgotten_before_its_first_call_is_followed_by_one_that_begins_with_roots_too() {
    let server = forgetting(true);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    begin(&sidecar, || !server.seen("GET").is_empty());
    let nothing = json!({});
    let mut reply = calling("t", &nothing).send(sidecar.mcp);
    for _ in ["in the first", "in the second"] {
        reply = answering("t", &nothing, &reply).send(sidecar.mcp);
    }
    assert_eq!(text(&reply), "done");
    assert_eq!((server.seen("initialize").len(), server.seen("tools/call").len()), (2, 2));
}

/// A server that asks for nothing holds up who has roots in its first sessions alone.
#[test]
fn a_server_that_asks_nothing_when_it_is_greeted_is_not_waited_for_in_each_session() {
    let server = Scripted::offering(json!({"tools": {}}), |request, stream| {
        if request.method == "GET" {
            return scripted::stays_open(stream);
        }
        scripted::reply(stream, request, &json!({"tools": [], "content": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let mut sessions = 0_usize;
    eventually("a session whose first call does not wait", || {
        sessions += 1;
        // Clients that can do different things share no session.
        let can = json!({"roots": {}, "experimental": {sessions.to_string(): {}}});
        let began = Instant::now();
        let reply = call("t", json!({}), &can).send(sidecar.mcp);
        assert_eq!(reply.status, 200, "{}", reply.text());
        began.elapsed() < Duration::from_millis(100)
    });
    assert_eq!(server.seen("initialize").len(), sessions);
}

/// 71: each process is greeted by itself.
#[test]
fn r071_roots_that_a_process_asks_for_when_it_is_greeted_are_asked_for_in_its_first_call() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["curious"]), &[]);
    begin(&sidecar, || sidecar.server_log().contains("asked for roots"));
    let arguments = json!({"text": "t"});
    let echo = || calling("echo", &arguments).send(sidecar.mcp);
    let again = answering("echo", &arguments, &echo());
    assert!(!sidecar.server_log().contains("was answered"));
    assert_eq!(text(&again.send(sidecar.mcp)), "t");
    eventually("it has the answer", || sidecar.server_log().contains("file:///a"));
    assert_eq!(text(&echo()), "t", "it asks once");
    // That one is in use from now on, so the next call has another one.
    asked(&calling("ask", &json!({"method": "roots/list"})).send(sidecar.mcp));
    let again = answering("echo", &arguments, &echo());
    assert_eq!(text(&again.send(sidecar.mcp)), "t");
}

/// 71: where all that it says has one stream, and the question is there as soon as it was greeted.
#[test]
fn r071_roots_that_are_asked_for_over_http_and_sse_are_asked_for_in_the_first_call() {
    let server = SseServer::start(|heard: &Value, say: &Say<'_>| match heard["method"].as_str() {
        Some("notifications/initialized") => {
            say.say(&json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}));
        }
        Some("tools/list") => say.answer(heard, &json!({"tools": []})),
        Some("tools/call") => {
            say.answer(heard, &json!({"content": [{"type": "text", "text": "done"}]}));
        }
        _ => {}
    });
    let sidecar = Sidecar::start(&server.config()).ready();
    begin(&sidecar, || true);
    let nothing = json!({});
    let again = answering("t", &nothing, &calling("t", &nothing).send(sidecar.mcp));
    assert!(server.seen("tools/call").is_empty());
    assert_eq!(text(&again.send(sidecar.mcp)), "done");
    let said = server.seen_all().into_iter().map(|request| scripted::message(&request));
    let answers: Vec<_> = said.filter(|message| message["result"]["roots"].is_array()).collect();
    assert_eq!((&answers[0]["id"], answers.len()), (&json!("q"), 1), "{answers:?}");
}

/// Nobody is asked what the server does not want to know any more.
#[test]
fn what_a_process_takes_back_before_the_first_call_is_not_asked() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["curious", "inconstant"]), &[]);
    begin(&sidecar, || sidecar.server_log().contains("asked for roots"));
    assert_eq!(text(&calling("echo", &json!({"text": "t"})).send(sidecar.mcp)), "t");
    assert!(!sidecar.server_log().contains("was answered"), "nobody answers it either");
}

/// 71: a client that can be asked may never call anything, whether it listens or goes away.
#[test]
fn r071_what_a_server_asks_when_it_is_greeted_is_refused_where_no_call_comes() {
    for listens in [true, false] {
        let server = greeted();
        let files = Files::new();
        files.write(&idle(config(server.port), 400));
        let sidecar = Sidecar::with(files, &["--answer-timeout-ms", "700"]).loaded().ready();
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let listen = request("l", "subscriptions/listen", wanted, &roots());
        let mut events = listens.then(|| Events::open(&listen, sidecar.mcp));
        let acknowledged = events.as_mut().map(|events| events.next().unwrap().message());
        let discover = request(1, "server/discover", json!({}), &roots());
        assert_eq!(discover.send(sidecar.mcp).status, 200, "{acknowledged:?}");
        let answer = eventually("the server has an answer", || told(&server).pop());
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        if listens {
            assert!(server.seen("DELETE").is_empty());
            assert_eq!(text(&call("t", json!({}), &roots()).send(sidecar.mcp)), "done");
        }
    }
}
