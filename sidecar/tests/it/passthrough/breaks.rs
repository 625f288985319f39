//! Streams of calls whose connection breaks, and what becomes of them when their server has gone or comes back.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use socket2::SockRef;

use crate::harness::scripted::Greeting;
use crate::harness::{
    Client, Events, Gate, Request, Scripted, Sidecar, config, eventually, modern, scripted,
};

/// A server is not asked for the rest of such a stream sooner than this.
const LATER: u64 = 1_000_000;

/// The way to a server, which can end with all that is on it.
struct Way {
    port: u16,
    listener: TcpListener,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(port: u16) -> Self {
        Self::at(0, port)
    }

    /// One that begins at this port, once that is free.
    fn at(from: u16, to: u16) -> Self {
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", from)).ok());
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (from, kept) = (listener.try_clone().unwrap(), streams.clone());
        std::thread::spawn(move || {
            for near in from.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                kept.lock().unwrap().push(near);
            }
        });
        Self { port: listener.local_addr().unwrap().port(), listener, streams }
    }

    fn end(self) {
        SockRef::from(&self.listener).shutdown(Shutdown::Both).unwrap();
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Begins an answer with this news of its progress, after which its stream can be taken up again.
fn begin(request: &Request, stream: &mut TcpStream, retry: u64) {
    let token = &scripted::message(request)["params"]["_meta"]["progressToken"];
    let params = json!({"progressToken": token, "progress": 1});
    let news = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
    scripted::begin_events(stream);
    scripted::chunk(stream, &format!("retry: {retry}\nid: e1\ndata: {news}\n\n"));
}

/// A call of a client of 2026-07-28, or of one with a session.
fn call(sidecar: &Sidecar, is_modern: bool) -> Events {
    let params = json!({"name": "t", "_meta": {"progressToken": "p"}});
    if is_modern {
        return Events::open(&modern::request(1, "tools/call", params), sidecar.mcp);
    }
    let client = Client::open(sidecar, None);
    Events::open(&client.request(client.message("tools/call", &params)), sidecar.mcp)
}

fn has_begun(events: &mut Events) {
    let news = events.next().unwrap().message();
    assert_eq!(news["params"]["progress"], 1, "{news}");
}

/// A server that is gone has nothing more to say, whenever it wanted to be asked.
#[test]
fn r066_a_stream_that_breaks_with_its_server_is_an_error_at_once() {
    for is_modern in [false, true] {
        let server = Scripted::start(|request, stream| {
            begin(request, stream, LATER);
            scripted::until_closed(stream);
        });
        let way = Way::to(server.port);
        let mut config = config(way.port);
        config.limits.request_timeout_ms = 40_000;
        let sidecar = Sidecar::start(&config).ready();
        let mut events = call(&sidecar, is_modern);
        has_begun(&mut events);
        way.end();
        let answer = events.next().unwrap().message();
        let words = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(words.contains("went away"), "{is_modern}: {answer}");
    }
}

/// It depends on the server that it came from, and not on the one before, which was missed: whoever watches the server may
/// not have greeted this one yet.
#[test]
fn r066_a_stream_goes_on_whose_server_came_after_one_that_has_gone() {
    for is_modern in [false, true] {
        let (gate, asked) = (Gate::default(), Mutex::new(None));
        let before = Scripted::start(|_, _| {});
        let server =
            Scripted::greeting_again("2025-11-25", Greeting::At(gate.clone()), move |request, stream| {
                let mut asked = asked.lock().unwrap();
                if request.method == "GET" {
                    let answer = scripted::reply_to(asked.as_ref().unwrap(), &json!({"content": []}));
                    return scripted::events(stream, &[&format!("data: {answer}\n\n")]);
                }
                *asked = Some(request.clone());
                begin(request, stream, 100);
                stream.shutdown(Shutdown::Both).unwrap();
            });
        let way = Way::to(before.port);
        let port = way.port;
        let sidecar = Sidecar::start(&config(port)).ready();
        way.end();
        let is_missed = || sidecar.metric("longshore_server_connected") == 0.0;
        eventually("the server is missed", is_missed);
        let _way = Way::at(port, server.port);
        let greets = || server.seen_all().iter().any(|it| scripted::method_of(it) == "initialize");
        eventually("the sidecar itself greets it", greets);
        let mut events = call(&sidecar, is_modern);
        has_begun(&mut events);
        let answer = events.next().unwrap().message();
        assert_eq!(answer["result"]["content"], json!([]), "{is_modern}: {answer}");
        assert!(is_missed(), "it is not known yet");
        gate.open();
    }
}

/// Not now is no answer: it may have too much to do, or not be done with the stream before.
#[test]
fn r066_a_server_that_cannot_give_the_rest_of_a_stream_at_once_is_asked_again() {
    for (is_modern, status) in [(false, 429), (false, 503), (true, 409), (true, 429)] {
        let (asked, times) = (Mutex::new(None), AtomicU32::new(0));
        let server = Scripted::start(move |request, stream| {
            let mut asked = asked.lock().unwrap();
            if request.method == "POST" {
                *asked = Some(request.clone());
                begin(request, stream, 50);
                return scripted::chunk(stream, "");
            }
            if times.fetch_add(1, Ordering::SeqCst) == 0 {
                return scripted::json_with(stream, status, "", "{}");
            }
            let answer = scripted::reply_to(asked.as_ref().unwrap(), &json!({"content": []}));
            scripted::events(stream, &[&format!("data: {answer}\n\n")]);
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let mut events = call(&sidecar, is_modern);
        has_begun(&mut events);
        let answer = events.next().unwrap().message();
        assert_eq!(answer["result"]["content"], json!([]), "{is_modern}, {status}: {answer}");
    }
}

/// What a server that does not know its clients apart would say to one that comes back may be anybody's.
#[test]
fn r066_a_stream_outside_of_a_session_does_not_go_on() {
    for (is_modern, is_in_order) in [(true, true), (true, false), (false, true), (false, false)] {
        let server = Scripted::nameless(move |request, stream| {
            begin(request, stream, LATER);
            if is_in_order {
                scripted::chunk(stream, "");
            }
            stream.shutdown(Shutdown::Both).unwrap();
        });
        let mut config = config(server.port);
        config.limits.request_timeout_ms = 40_000;
        let sidecar = Sidecar::start(&config).ready();
        let mut events = call(&sidecar, is_modern);
        has_begun(&mut events);
        let answer = events.next().unwrap().message();
        assert_eq!(answer["error"]["code"], -32603, "{is_modern} {is_in_order}: {answer}");
        let words = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(!words.contains("within"), "it is not waited for: {is_modern} {is_in_order}: {answer}");
        assert!(server.seen("GET").iter().all(|request| request.value("last-event-id").is_none()));
    }
}
