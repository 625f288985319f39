//! How a server is asked for its stream again.

mod kept;
mod nameless;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longshore_sidecar_config::OnOwnerLoss;
use serde_json::json;

use super::{CHANGED, answer, event, note, open, said, told};
use crate::harness::config::on_loss;
use crate::harness::http::connect;
use crate::harness::{
    Client, Event, Gate, GoServer, Request, Scripted, Sessionless, Sidecar, config, eventually, scripted,
};

/// The first that a server of 2026-07-28 says in its stream.
fn acknowledge(request: &Request, stream: &mut TcpStream) {
    let asked = scripted::message(request);
    let params = json!({
        "notifications": asked["params"]["notifications"],
        "_meta": {"io.modelcontextprotocol/subscriptionId": asked["id"]},
    });
    let method = "notifications/subscriptions/acknowledged";
    let taken = json!({"jsonrpc": "2.0", "method": method, "params": params});
    scripted::say(stream, &taken);
}

/// Whatever it says of when to ask again, for its own stream or for a call's.
#[test]
fn a_server_that_ends_its_stream_at_once_is_not_asked_without_end() {
    // The least that is waited: 50, 100, 200, 400 and 800 ms, and after that twice as long, but for a call a second.
    for (of_a_call, again, least) in [(false, 7, 3_150), (true, 6, 2_550)] {
        let server = Scripted::listening(move |request, stream| {
            if request.method == "POST" && !of_a_call {
                return scripted::json(stream, &answer(request));
            }
            scripted::events(stream, &["retry: 0\nid: 1\ndata: \n\n"]);
        });
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::open(&sidecar, None);
        let asked = if of_a_call {
            client.request(client.message("tools/call", &json!({"name": "t"})))
        } else {
            client.get()
        };
        let (mut connection, begun) = (connect(sidecar.mcp), Instant::now());
        asked.write(&mut connection);
        eventually("it is asked again", || server.seen("GET").len() >= again);
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(least), "of a call: {of_a_call}: {took:?}");
    }
}

#[test]
fn a_server_without_one_has_none() {
    // The session is known all the same where it says 404: this server answers a ping in it.
    for status in [405, 404, 400, 501] {
        let server = Scripted::listening(move |_, stream| {
            scripted::write(stream, &format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"));
        });
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::open(&sidecar, None);
        let reply = client.get().send(sidecar.mcp);
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST, DELETE, OPTIONS")), "{status}");
        sidecar.audit(|line| line["method"] == "GET" && line["reason"] == "server offers no GET stream");
        assert_eq!(client.send("ping", json!({})).status, 200, "the session goes on");
        assert_eq!(client.get().send(sidecar.mcp).status, 405, "and nobody has its place");
    }
}

/// It has one, and its client hears by that when it can, whether it could before or not.
#[test]
fn a_server_that_cannot_give_its_stream_now_is_asked_again() {
    const BREAKS_OFF: u16 = 0;
    for status in [409, 429, 500, 503, BREAKS_OFF] {
        let asked = AtomicUsize::new(0);
        let server = Scripted::listening(move |request, stream| {
            if request.method == "POST" {
                return scripted::json(stream, &answer(request));
            }
            let number = asked.fetch_add(1, Ordering::Relaxed);
            if number.is_multiple_of(2) && status == BREAKS_OFF {
                return stream.shutdown(std::net::Shutdown::Both).unwrap();
            }
            if number.is_multiple_of(2) {
                return scripted::json_with(stream, status, "", "data: no event");
            }
            scripted::events(stream, &["retry: 0\n", &event(&note(number))]);
        });
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::open(&sidecar, None);
        let mut stream = open(&client);
        assert_eq!([(); 2].map(|()| said(&stream.next().unwrap())), ["1", "3"], "{status}");
    }
}

/// The same of one without sessions, whose streams are asked for in another way. What it has not told meanwhile may have
/// been missed.
#[test]
fn a_server_without_sessions_that_cannot_give_its_stream_now_is_asked_again() {
    for status in [409, 429, 500, 503] {
        let refused = AtomicBool::new(false);
        let capabilities = json!({"tools": {"listChanged": true}});
        let server = Sessionless::start(capabilities, json!([]), move |request, stream| {
            let asked = scripted::message(request);
            let meta = &asked["params"]["_meta"];
            let is_own = meta["io.modelcontextprotocol/clientInfo"]["name"] == "longshore-sidecar";
            if !is_own && !refused.swap(true, Ordering::SeqCst) {
                return scripted::json_with(stream, status, "", "{}");
            }
            scripted::begin_events(stream);
            acknowledge(request, stream);
            scripted::until_closed(stream);
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let client = Client::open(&sidecar, None);
        let mut stream = open(&client);
        assert_eq!(stream.next().unwrap().message()["method"], CHANGED, "{status}");
    }
}

#[test]
fn a_stream_that_the_server_ends_is_opened_again() {
    let (server, tell) = told();
    let mut sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    tell.send(Some(format!("retry: 60\nid: s7\n{}", event(&note(1))))).unwrap();
    assert_eq!(said(&stream.next().unwrap()), "1");
    tell.send(None).unwrap();
    tell.send(Some(event(&note(2)))).unwrap();
    assert_eq!(said(&stream.next().unwrap()), "2");
    let asked = server.seen("GET").pop().unwrap();
    assert!(asked.headers.contains(&("last-event-id".to_owned(), "s7".to_owned())));
    drop(stream);

    // One that has gone and is back ends it, if it knows nothing of the session.
    let mut server = GoServer::start(&[]);
    sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    stream.any().unwrap();
    server.kill();
    server.start_again();
    assert!(stream.next().is_none());
    assert_eq!(client.rest(&stream.last).send(sidecar.mcp).status, 404);
}

/// Many clients give up their sessions, or never ask again, where their streams end or are refused.
#[test]
fn a_stream_stays_open_while_its_server_is_away() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut server = GoServer::start(&[]);
        let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
        let clients = [(); 2].map(|()| Client::of(&sidecar, None, revision));
        let before = open(&clients[0]);
        server.kill();
        eventually("it is missed", || sidecar.metric("longshore_server_connected") == 0.0);
        let mut streams = [before, open(&clients[1])];
        for stream in &mut streams {
            // As long as many servers take to come back.
            stream.patience(Duration::from_secs(2));
            let mut said = std::iter::from_fn(|| stream.try_any().transpose());
            let end = said.find(|event| !event.as_ref().is_ok_and(|event| event.data.is_empty()));
            assert!(matches!(end, Some(Err(_))), "{revision}: it goes on, and says nothing: {end:?}");
        }
        server.start_again();
        for (number, stream) in streams.iter_mut().enumerate() {
            // Nobody has heard what it said before it was asked.
            stream.patience(Duration::from_secs(30));
            assert_eq!(stream.next().unwrap().message()["method"], CHANGED, "{revision}");
            stream.patience(Duration::from_millis(200));
            eventually("it is heard", || {
                clients[0].call("grow", json!({"name": format!("new-{number}")}));
                stream.try_any().ok()?.filter(Event::has_messages)
            });
        }
        assert_eq!(sidecar.metric("longshore_ended_sessions"), 0.0);
    }
}

/// The same of a server without sessions that is not there when it is asked first.
#[test]
fn what_a_server_without_sessions_said_before_it_was_asked_may_have_been_missed() {
    let capabilities = json!({"tools": {"listChanged": true}});
    let start = |port| {
        Sessionless::at(port, capabilities.clone(), json!([]), |request, stream| {
            scripted::begin_events(stream);
            acknowledge(request, stream);
            scripted::until_closed(stream);
        })
    };
    let server = start(0);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    server.stop();
    eventually("it is missed", || sidecar.metric("longshore_server_connected") == 0.0);
    let mut stream = open(&client);
    let server = start(server.port);
    stream.patience(Duration::from_secs(30));
    assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
    assert_eq!(server.seen("subscriptions/listen").len(), 1);
}

/// What it says between two streams goes to nobody, however the first has ended. Many end theirs whenever they have lasted
/// for long, which is no reason to read everything anew each time.
#[test]
fn what_a_server_said_between_two_streams_may_have_been_missed() {
    let asked = AtomicUsize::new(0);
    let offers = json!({"tools": {"listChanged": true}});
    let server = Scripted::offering(offers, move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        let number = asked.fetch_add(1, Ordering::SeqCst);
        scripted::begin_events(stream);
        scripted::chunk(stream, &("retry: 50\n".to_owned() + &event(&note(number))));
        if number < 2 {
            return scripted::write(stream, "0\r\n\r\n");
        }
        scripted::until_closed(stream);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    assert_eq!(said(&stream.next().unwrap()), "0");
    assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
    assert_eq!([(); 2].map(|()| said(&stream.next().unwrap())), ["1", "2"]);
}

/// Its client comes before it makes a call.
#[test]
fn a_session_that_only_listens_is_begun_again_with_its_server() {
    let mut server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::open(&sidecar, None);
    server.kill();
    server.start_again();
    let mut stream = open(&client);
    stream.patience(Duration::from_secs(10));
    client.call("grow", json!({"name": "new"}));
    assert_eq!(stream.next().unwrap().message()["method"], "notifications/tools/list_changed");
    assert_eq!(sidecar.metric("longshore_ended_sessions"), 0.0);
}

/// An event of a session that the server has forgotten is none in the one that is begun for it, whoever begins that. Some
/// servers wait for what follows such an event, for ever.
#[test]
fn a_stream_begins_anew_in_a_session_that_is_begun_again() {
    const REVISION: &str = "2025-06-18";
    for by_a_call in [true, false] {
        let (forget, again) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let (forgets, ends) = (forget.clone(), Gate::default());
        let end = ends.clone();
        let server = Scripted::beginning_again(REVISION, move |request, stream| {
            let is_first = request.value("mcp-session-id") == Some(scripted::UPSTREAM_SESSION);
            if is_first && forgets.load(Ordering::SeqCst) {
                return scripted::json_with(stream, 404, "", "{}");
            }
            if request.method == "POST" {
                return scripted::reply(stream, request, &json!({}));
            }
            scripted::begin_events(stream);
            if is_first {
                scripted::chunk(stream, &format!("retry: 50\nid: s7\n{}", event(&note(1))));
                ends.pass();
            } else if request.value("last-event-id").is_some() {
                scripted::until_closed(stream);
            } else if !by_a_call && again.fetch_add(1, Ordering::SeqCst) == 0 {
                // It ends before there was an event in it.
                scripted::chunk(stream, ": none yet\n\n");
            } else {
                scripted::chunk(stream, &event(&note(2)));
                scripted::until_closed(stream);
            }
            scripted::write(stream, "0\r\n\r\n");
        });
        let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
        let client = Client::of(&sidecar, None, REVISION);
        let mut stream = open(&client);
        assert_eq!(said(&stream.next().unwrap()), "1");
        forget.store(true, Ordering::SeqCst);
        if by_a_call {
            assert_eq!(client.call("t", json!({}))["result"], json!({}));
        }
        end.open();
        assert_eq!(said(&stream.next().unwrap()), "2", "by a call: {by_a_call}");
        let within = |request: &&Request| request.value("mcp-session-id") == Some(scripted::AGAIN_SESSION);
        let asked = server.seen("GET");
        let asked: Vec<_> = asked.iter().filter(within).map(|get| get.value("last-event-id")).collect();
        assert_eq!(asked, vec![None; if by_a_call { 1 } else { 2 }]);
    }
}
