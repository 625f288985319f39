//! How many sessions with the server there may be, and how many threads serve what shares them.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{LOG_LEVEL, again, asked, asking, call, is_error, request, roots, text};
use crate::harness::config::{callers, processes};
use crate::harness::http::connect;
use crate::harness::shim::{self, server, stdio};
use crate::harness::{
    Client, Events, Gate, Request, Scripted, Sidecar, config, eventually, modern, scripted,
};
use crate::modern_as_legacy::serving;

/// A session that is used is not given up for another; one that is not is.
#[test]
fn sessions_with_the_server_are_bounded() {
    let server = asking();
    for (total, per_principal, key, status) in [(10, 1, "key-a", 429), (1, 1, "key-b", 503)] {
        let mut limited = config(server.port);
        (limited.sessions.total, limited.sessions.per_principal) = (total, per_principal);
        let sidecar = Sidecar::keyed(&limited, &callers()).ready();
        let before = server.seen("tools/call").len();
        let mut stream = connect(sidecar.mcp);
        call("hang", json!({}), &json!({})).key("key-a").write(&mut stream);
        eventually("a call is under way", || server.seen("tools/call").len() > before);
        // What can share the session does; what cannot is refused.
        let other = || call("echo", json!({}), &roots()).key(key).send(sidecar.mcp);
        assert_eq!(text(&call("echo", json!({}), &json!({})).key("key-a").send(sidecar.mcp)), "echoed");
        let refused = other();
        assert!(is_error(&refused, status, -32603).contains("session"), "{}", refused.text());
        // A rule has permitted it, as in a session.
        let line = sidecar.audit(|line| line["status"] == status);
        assert_eq!((&line["decision"], &line["rule"]), (&json!("permit"), &json!("all")), "{line}");
        let ended = server.seen("DELETE").len();
        drop(stream);
        eventually("the session makes room", || other().status == 200);
        eventually("the server is told", || server.seen("DELETE").len() > ended);
    }
}

/// One that has ended counts until its server knows.
#[test]
fn a_session_that_ends_takes_its_place_with_the_server_until_that_knows() {
    let gate = Gate::default();
    let server = Scripted::ending_too(&gate, |request, stream| {
        scripted::reply(stream, request, &json!({"content": [{"type": "text", "text": "echoed"}]}));
    });
    let mut config = config(server.port);
    (config.sessions.total, config.sessions.idle_timeout_ms) = (1, 300);
    let sidecar = Sidecar::start(&config).ready();
    assert_eq!(text(&call("echo", json!({}), &json!({})).send(sidecar.mcp)), "echoed");
    eventually("nobody has used it for a while", || server.seen("DELETE").len() == 1);
    let other = || call("echo", json!({}), &roots()).send(sidecar.mcp);
    assert!(is_error(&other(), 503, -32603).contains("session"));
    gate.open();
    eventually("there is room", || other().status == 200);
}

/// What waits for a client that does not read is bounded by its size too, whichever of the two is of the newer kind.
#[test]
fn large_messages_wait_at_the_server() {
    const SIZE: usize = 1 << 20;
    let (said, over) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
    let flood = {
        let (said, over) = (said.clone(), over.clone());
        move |request: &Request, stream: &mut TcpStream| match scripted::message(request)["method"].as_str() {
            Some("tools/call") => {
                scripted::begin_events(stream);
                let params = json!({"level": "error", "data": "m".repeat(SIZE)});
                let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
                let event = format!("data: {note}\n\n");
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                while stream.write_all(chunk.as_bytes()).is_ok() {
                    said.fetch_add(1, Ordering::SeqCst);
                }
                over.store(true, Ordering::SeqCst);
            }
            None => scripted::no_stream(stream),
            Some(_) => scripted::reply(stream, request, &json!({})),
        }
    };
    let older = Scripted::offering(json!({"logging": {}}), flood.clone());
    let newer = serving(flood);
    for port in [older.port, newer.port] {
        said.store(0, Ordering::SeqCst);
        over.store(false, Ordering::SeqCst);
        let mut config = config(port);
        config.limits.request_timeout_ms = 6_000;
        let sidecar = Sidecar::start(&config).ready();
        let mut stream = connect(sidecar.mcp);
        if port == older.port {
            let mut message = modern::message(1, "tools/call", json!({"name": "t"}));
            message["params"]["_meta"][LOG_LEVEL] = json!("debug");
            modern::of(&message.to_string()).write(&mut stream);
        } else {
            let client = Client::open(&sidecar, None);
            client.request(client.message("tools/call", &json!({"name": "t"}))).write(&mut stream);
        }
        eventually("the call is over", || over.load(Ordering::SeqCst));
        // One or two at each step on their way, and some in the kernel.
        let said = said.load(Ordering::SeqCst);
        assert!((1..20).contains(&said), "{said}");
    }
}

/// A client that does not read is waited for once, however much the server has to say to others in between.
#[test]
fn a_client_that_does_not_read_holds_others_up_once() {
    const PAIRS: usize = 150;
    /// Where the server says what belongs to no call, and the token of the call whose client does not read.
    type Said = Arc<Mutex<(Option<TcpStream>, Option<Value>)>>;
    let (said, gate) = (Said::default(), Gate::default());
    let heard = gate.clone();
    let server = Scripted::offering(json!({"tools": {}}), move |request, stream| {
        let report = |stream: &mut TcpStream, token: &Value, size: usize| {
            let params = json!({"progressToken": token, "progress": 1, "message": "m".repeat(size)});
            let note = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            scripted::say(stream, &note);
        };
        let message = scripted::message(request);
        let token = message["params"]["_meta"]["progressToken"].clone();
        match message["params"]["name"].as_str() {
            _ if request.method == "GET" => {
                scripted::begin_events(stream);
                if request.value("mcp-session-id") == Some(scripted::UPSTREAM_SESSION) {
                    said.lock().unwrap().0 = Some(stream.try_clone().unwrap());
                }
            }
            Some("unread") => {
                scripted::begin_events(stream);
                said.lock().unwrap().1 = Some(token);
            }
            Some(_) => {
                let mut out = eventually("its stream is there", || said.lock().unwrap().0.take());
                let unread = eventually("the other call is there", || said.lock().unwrap().1.take());
                // More than there is room for on the way.
                (0..24).for_each(|_| report(&mut out, &unread, 1 << 20));
                for _ in 0..PAIRS {
                    report(&mut out, &unread, 1);
                    report(&mut out, &token, 1);
                }
                heard.pass();
                return scripted::reply(stream, request, &json!({"content": []}));
            }
            None => return scripted::reply(stream, request, &json!({"tools": []})),
        }
        scripted::until_closed(stream);
    });
    let mut config = config(server.port);
    // A second for each pair of them would be more than that.
    config.limits.request_timeout_ms = 120_000;
    let sidecar = Sidecar::start(&config).ready();
    let begin = |name: &str| {
        let params = json!({"name": name, "arguments": {}, "_meta": {"progressToken": name}});
        request(1, "tools/call", params, &roots())
    };
    let mut unread = connect(sidecar.mcp);
    begin("unread").write(&mut unread);
    eventually("the first is there", || server.seen("tools/call").len() == 1);
    let mut read = Events::open(&begin("read"), sidecar.mcp);
    for _ in 0..PAIRS {
        assert_eq!(read.next().unwrap().message()["params"]["progressToken"], "read");
    }
    gate.open();
    assert!(read.next().unwrap().message()["result"].is_object());
}

/// A server that has answered without waiting for what it had asked has done with the call: its answer is kept, as far as
/// there is room for it, and its process is anybody's.
#[test]
fn an_answer_that_comes_before_its_client_does() {
    let mut config = stdio();
    config.limits.processes = Some(processes(1, 1));
    let (_shim, sidecar) = shim::serving(&config, &server(&[]), &["--max-held-bytes", "1500000"]);
    for (times, fits) in [(1, true), (1_000_000, true), (1_600_000, false)] {
        let arguments = json!({"method": "roots/list", "seconds": 0.5, "text": "t", "times": times});
        let (questions, state) = asked(&call("ask-and-go", arguments.clone(), &roots()).send(sidecar.mcp));
        eventually("there is room for another call", || {
            let reply = call("echo", json!({"text": "e"}), &json!({})).send(sidecar.mcp);
            (reply.status == 200).then(|| assert_eq!(text(&reply), "e"))
        });
        let responses = json!({questions[0].0.clone(): {"roots": []}});
        let reply = again("ask-and-go", arguments, &roots(), &state, responses).send(sidecar.mcp);
        if fits {
            assert_eq!(text(&reply), "t".repeat(times));
        } else {
            assert!(is_error(&reply, 200, -32603).contains("its answer is lost"), "{}", reply.text());
        }
    }
}

/// Each would have it begun and ended once more, and it would be there for none of them.
#[test]
fn a_process_that_starts_for_longer_than_a_request_may_take_is_the_next_requests() {
    // Those who can be asked something have theirs alone.
    for can in [json!({}), roots()] {
        let mut config = stdio();
        config.limits.request_timeout_ms = 2_000;
        let (_shim, sidecar) = shim::serving(&config, &server(&["sluggish"]), &[]);
        let started = || sidecar.metric("longshore_processes_started_total");
        let before = started();
        let echo = || call("echo", json!({"text": "t"}), &can).send(sidecar.mcp);
        let late = echo();
        assert!(late.text().contains("within 2 seconds"), "{}", late.text());
        let reply = eventually("the next one has it", || {
            Some(echo()).filter(|reply| reply.message()["result"].is_object())
        });
        assert_eq!(text(&reply), "t");
        assert_eq!(started() - before, 1.0, "{can}: it was started once");
    }
}

/// A client's next request may come to another thread than the one that its call waits on.
#[test]
fn calls_and_listeners_are_those_of_all_threads() {
    let (_shim, sidecar) = shim::serving(&stdio(), &server(&[]), &["--workers", "3"]);
    let ask = json!({"method": "roots/list"});
    // Each connection is another one, and the kernel spreads them.
    let waiting: Vec<_> =
        (0..8).map(|_| asked(&call("ask", ask.clone(), &roots()).send(sidecar.mcp))).collect();
    for (at, (questions, state)) in waiting.iter().enumerate().rev() {
        let uri = format!("file:///{at}");
        let responses = json!({questions[0].0.clone(): {"roots": [{"uri": uri}]}});
        let reply = again("ask", ask.clone(), &roots(), state, responses).send(sidecar.mcp);
        assert!(text(&reply).contains(&uri), "{}", reply.text());
    }
    let wanted = json!({"notifications": {"resourceSubscriptions": ["a:b"]}});
    let mut listening: Vec<_> = (0..6)
        .map(|id| {
            let listen = request(id, "subscriptions/listen", wanted.clone(), &json!({}));
            let mut events = Events::open(&listen, sidecar.mcp);
            assert_eq!(events.next().unwrap().message()["params"]["notifications"], wanted["notifications"]);
            events
        })
        .collect();
    let say = json!({"method": "notifications/resources/updated", "params": {"uri": "a:b"}});
    text(&call("say", say, &json!({})).send(sidecar.mcp));
    for events in &mut listening {
        assert_eq!(events.next().unwrap().message()["params"]["uri"], "a:b");
    }
    let state = text(&call("state", json!({}), &json!({})).send(sidecar.mcp));
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["subscriptions"], json!(["a:b"]), "one session serves all of them");
}
