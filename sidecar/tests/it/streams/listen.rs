//! What the server says that belongs to no call.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_sidecar_config::OnOwnerLoss;
use serde_json::json;

use super::{answer, event, note, said};
use crate::harness::config::{idle, keys, rule};
use crate::harness::http::connect;
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{
    Client, Event, Events, Files, Gate, GoServer, Request, Scripted, Sessionless, Sidecar, config,
    eventually, scripted, within,
};

const CHANGED: &str = "notifications/tools/list_changed";

/// A server whose stream says what it is told; nothing ends it.
fn told() -> (Scripted, Sender<Option<String>>) {
    let (tell, told) = channel();
    let told: Arc<Mutex<Receiver<Option<String>>>> = Arc::new(Mutex::new(told));
    let server = Scripted::listening(move |request, stream| {
        if request.method == "POST" {
            scripted::json(stream, &answer(request));
            return;
        }
        scripted::begin_events(stream);
        while let Ok(Some(text)) = told.lock().unwrap().recv() {
            scripted::chunk(stream, &text);
        }
        scripted::write(stream, "0\r\n\r\n");
    });
    (server, tell)
}

/// The first that a server of 2026-07-28 says in its stream.
fn acknowledge(request: &Request, stream: &mut TcpStream) {
    let asked = scripted::message(request);
    let params = json!({
        "notifications": asked["params"]["notifications"],
        "_meta": {"io.modelcontextprotocol/subscriptionId": asked["id"]},
    });
    let method = "notifications/subscriptions/acknowledged";
    let taken = json!({"jsonrpc": "2.0", "method": method, "params": params});
    scripted::chunk(stream, &format!("data: {taken}\n\n"));
}

fn open(client: &Client<'_>) -> Events {
    let events = Events::open(&client.get(), client.sidecar.mcp);
    assert_eq!(events.status, 200);
    events
}

#[test]
fn r054_it_goes_to_the_clients_own_stream() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let (server, tell) = told();
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::of(&sidecar, None, revision);
        let mut stream = open(&client);
        for (header, value) in [("content-type", "text/event-stream"), ("x-accel-buffering", "no")] {
            assert!(stream.headers.contains(&(header.to_owned(), value.to_owned())), "{header}");
        }
        let asked = server.seen("GET").pop().unwrap();
        let session = ("mcp-session-id".to_owned(), scripted::UPSTREAM_SESSION.to_owned());
        assert!(asked.headers.contains(&session), "in the client's session");
        assert!(asked.headers.contains(&("accept".to_owned(), "text/event-stream".to_owned())));
        if revision == "2025-11-25" {
            assert_eq!(stream.any().unwrap().data, "", "something to come back with");
        }
        let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
        // The answer to another call would not be looked into here.
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#;
        for text in [&note(1), answer, "nonsense", question] {
            // An empty type is that of a message.
            tell.send(Some(format!("id: s1\nevent:\n{}", event(text)))).unwrap();
        }
        assert_eq!(said(&stream.next().unwrap()), "1");
        assert_eq!(stream.next().unwrap().data, question);
        let answer = r#"{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}"#;
        assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
        assert!(server.seen("POST").iter().any(|request| request.body == answer.as_bytes()));
        let line = sidecar.audit(|line| line["method"] == "GET");
        assert_eq!((&line["decision"], &line["status"]), (&json!("permit"), &json!(200)));

        // One at a time, until its client has gone.
        let second = client.get().send(sidecar.mcp);
        assert_eq!((second.status, &second.message()["error"]["code"]), (409, &json!(-32600)));
        drop(stream);
        tell.send(Some(event(&note(2)))).unwrap();
        // Sooner than by what keeps it alive, which is sent after fifteen seconds.
        let mut again = within(Duration::from_secs(12), "it is noticed that the client has gone", || {
            Some(Events::open(&client.get(), sidecar.mcp)).filter(|events| events.status == 200)
        });
        assert_eq!(said(&again.next().unwrap()), "2", "nobody has heard this yet");

        // Or another connection takes its place.
        let mut resumed = Events::open(&client.rest(&again.last), sidecar.mcp);
        assert!(again.next().is_none());
        tell.send(Some(event(&note(3)))).unwrap();
        assert_eq!(said(&resumed.next().unwrap()), "3");
        assert_eq!(server.seen("GET").len(), 1, "the server has noticed nothing of all this");

        // The session's end is its end.
        assert_eq!(Request::new("DELETE", "/mcp").session(&client.session).send(sidecar.mcp).status, 204);
        assert!(resumed.next().is_none());
        eventually("nothing is left", || (sidecar.metric("longshore_streams") == 0.0).then_some(()));
    }
}

/// That a connection was lost is seen late where nobody says so. Its client need not wait for that.
#[test]
fn whoever_has_read_for_long_makes_room_for_a_newcomer() {
    let (server, tell) = told();
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let began = Instant::now();
    let mut first = open(&client);
    tell.send(Some(event(&note(1)))).unwrap();
    assert_eq!(said(&first.next().unwrap()), "1");
    let mut second = within(Duration::from_secs(40), "its turn is over", || {
        let events = Events::open(&client.get(), sidecar.mcp);
        let early = began.elapsed() < Duration::from_secs(10);
        assert!(events.status == 409 || events.status == 200 && !early, "{}", events.status);
        Some(events).filter(|events| events.status == 200)
    });
    let since = Instant::now();
    assert!(first.next().is_none(), "there is one at a time");
    // They do not take it from each other all the time: who has lost it comes back for the rest at once.
    let back = Events::open(&client.rest(&first.last), sidecar.mcp);
    assert!(back.status == 409 || since.elapsed() >= Duration::from_secs(10), "{}", back.status);
    tell.send(Some(event(&note(2)))).unwrap();
    assert_eq!(said(&second.next().unwrap()), "2");
    // The newcomer may lose its connection, too.
    let mut again = Events::open(&client.rest(&second.last), sidecar.mcp);
    assert!(second.next().is_none());
    tell.send(Some(event(&note(3)))).unwrap();
    assert_eq!(said(&again.next().unwrap()), "3");
    assert_eq!(server.seen("GET").len(), 1, "the server has noticed nothing of all this");
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
        eventually("it is asked again", || (server.seen("GET").len() >= again).then_some(()));
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
            let _ = std::io::Read::read(stream, &mut [0]);
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
        let mut config = config(server.port);
        config.sessions.on_owner_loss = OnOwnerLoss::Reinitialize;
        let sidecar = Sidecar::start(&config).ready();
        let clients = [(); 2].map(|()| Client::of(&sidecar, None, revision));
        let before = open(&clients[0]);
        server.kill();
        eventually("it is missed", || (sidecar.metric("longshore_server_connected") == 0.0).then_some(()));
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
            let _ = std::io::Read::read(stream, &mut [0]);
        })
    };
    let server = start(0);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    server.stop();
    eventually("it is missed", || (sidecar.metric("longshore_server_connected") == 0.0).then_some(()));
    let mut stream = open(&client);
    let server = start(server.port);
    stream.patience(Duration::from_secs(30));
    assert_eq!(stream.next().unwrap().message()["method"], CHANGED);
    assert_eq!(server.seen("subscriptions/listen").len(), 1);
}

/// What was kept is given, though the server has no stream now; how it goes on is heard after that.
#[test]
fn what_was_kept_is_given_while_the_server_has_no_stream() {
    let (asked, gate) = (AtomicUsize::new(0), Gate::default());
    let opened = gate.clone();
    let server = Scripted::listening(move |request, stream| {
        if request.method == "POST" {
            scripted::json(stream, &answer(request));
        } else if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            scripted::begin_events(stream);
            scripted::chunk(stream, &event(&note(1)));
            opened.pass();
            scripted::chunk(stream, &(event(&note(2)) + &event(&note(3))));
            scripted::write(stream, "0\r\n\r\n");
        } else {
            scripted::no_stream(stream);
        }
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    assert_eq!(said(&stream.next().unwrap()), "1");
    let last = stream.last.clone();
    drop(stream);
    gate.open();
    eventually("it has been asked again", || (server.seen("GET").len() > 1).then_some(()));
    let last = eventually("what was kept is there", || {
        let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
        // Until the answer to that has been heard its stream may end at any time.
        let [second, third] = [rest.next()?, rest.next()?];
        assert_eq!([said(&second), said(&third)], ["2", "3"]);
        Some(rest.last)
    });
    let reply = eventually("how it goes on is heard then", || {
        let reply = client.rest(&last).send(sidecar.mcp);
        (reply.status != 200).then_some(reply)
    });
    assert_eq!(reply.status, 405, "{}", reply.text());
}

/// Clients that come back only to a stream which breaks off do so once they have what was kept.
#[test]
fn what_was_kept_does_not_end_in_order_for_clients_that_would_not_come_back() {
    let (asked, gate) = (AtomicUsize::new(0), Gate::default());
    let opened = gate.clone();
    let server = Scripted::listening(move |request, stream| {
        if request.method == "POST" {
            return scripted::json(stream, &answer(request));
        }
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => {
                scripted::begin_events(stream);
                scripted::chunk(stream, &event(&note(1)));
                opened.pass();
                scripted::chunk(stream, &(event(&note(2)) + &event(&note(3))));
                scripted::write(stream, "0\r\n\r\n");
            }
            1 => scripted::no_stream(stream),
            _ => {
                scripted::begin_events(stream);
                scripted::chunk(stream, &event(&note(9)));
                let _ = std::io::Read::read(stream, &mut [0]);
            }
        }
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::of(&sidecar, None, "2025-06-18");
    let mut stream = open(&client);
    assert_eq!(said(&stream.next().unwrap()), "1");
    let last = stream.last.clone();
    drop(stream);
    gate.open();
    eventually("it has been asked again", || (server.seen("GET").len() > 1).then_some(()));
    let (end, last) = eventually("what was kept is there", || {
        let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
        let mut heard = Vec::new();
        let end = loop {
            match rest.try_any() {
                Ok(Some(event)) => heard.push(said(&event)),
                end => break end,
            }
        };
        (heard == ["2", "3"]).then_some((end, rest.last))
    });
    assert_eq!(end.expect_err("it breaks off").kind(), std::io::ErrorKind::UnexpectedEof);
    let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
    assert_eq!(said(&rest.next().unwrap()), "9");
}

/// Its client comes before it makes a call.
#[test]
fn a_session_that_only_listens_is_begun_again_with_its_server() {
    let mut server = GoServer::start(&[]);
    let mut config = config(server.port);
    config.sessions.on_owner_loss = OnOwnerLoss::Reinitialize;
    let sidecar = Sidecar::start(&config).ready();
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
                return scripted::json(stream, &scripted::reply_to(request, &json!({})));
            }
            scripted::begin_events(stream);
            if is_first {
                scripted::chunk(stream, &format!("retry: 50\nid: s7\n{}", event(&note(1))));
                ends.pass();
            } else if request.value("last-event-id").is_some() {
                let _ = std::io::Read::read(stream, &mut [0]);
            } else if !by_a_call && again.fetch_add(1, Ordering::SeqCst) == 0 {
                // It ends before there was an event in it.
                scripted::chunk(stream, ": none yet\n\n");
            } else {
                scripted::chunk(stream, &event(&note(2)));
                let _ = std::io::Read::read(stream, &mut [0]);
            }
            scripted::write(stream, "0\r\n\r\n");
        });
        let mut config = config(server.port);
        config.sessions.on_owner_loss = OnOwnerLoss::Reinitialize;
        let sidecar = Sidecar::start(&config).ready();
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

#[test]
fn a_go_server_tells_of_its_new_tools() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let clients = [Client::open(&sidecar, None), Client::open(&sidecar, None)];
    let mut streams = clients.each_ref().map(open);
    for stream in &mut streams {
        stream.any().unwrap();
    }
    clients[0].call("grow", json!({"name": "new"}));
    for stream in &mut streams {
        assert_eq!(stream.next().unwrap().message()["method"], "notifications/tools/list_changed");
    }
    // Whoever was away hears of it too.
    let last = streams[0].last.clone();
    drop(streams);
    clients[0].call("grow", json!({"name": "newer"}));
    let mut resumed = Events::open(&clients[0].rest(&last), sidecar.mcp);
    assert_eq!(resumed.next().unwrap().message()["method"], "notifications/tools/list_changed");
}

#[test]
fn a_process_is_heard_too() {
    let (_shim, sidecar) = serving(&stdio(), &shim::server(&[]), &[]);
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    stream.any().unwrap();
    client.call("change", json!({}));
    assert_eq!(stream.next().unwrap().message()["method"], "notifications/tools/list_changed");
    // What it asks outside of a call is asked there.
    client.call("ask-later", json!({"method": "roots/list"}));
    let question = stream.next().unwrap().message();
    assert_eq!(question["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": ["here"]}}).to_string();
    assert_eq!(client.request(answer).send(sidecar.mcp).status, 202);
    eventually("it has the answer", || {
        let log = std::fs::read_to_string(sidecar.files.path("sockets").join("log")).unwrap();
        log.contains("[\"here\"]").then_some(())
    });
    // Many at once are all heard.
    client.call("echo", json!({"text": "another process"}));
    let many: String = (0..500).map(|number| note(number) + "\n").collect();
    let hex: String = many.bytes().map(|byte| format!("{byte:02x}")).collect();
    // In the call that they can only be about, though somebody listens.
    let mut heard = client.stream("write", json!({"hex": hex}));
    for number in 0..500 {
        assert_eq!(said(&heard.next().unwrap()), number.to_string());
    }
    assert!(heard.next().unwrap().message()["result"].is_object());
    assert_eq!(Request::new("DELETE", "/mcp").session(&client.session).send(sidecar.mcp).status, 204);
    assert!(stream.next().is_none());
}

#[test]
fn a_key_that_is_revoked_hears_nothing_more() {
    let (server, tell) = told();
    let files = Files::new();
    files.write_with_keys(&config(server.port), &keys(&[("alice", "key-a"), ("bob", "key-b")]));
    let sidecar = Sidecar::with(files, &[]).loaded();
    let clients = ["key-a", "key-b"].map(|key| Client::open(&sidecar, Some(key)));
    let mut streams = clients.each_ref().map(open);
    for stream in &mut streams {
        stream.any().unwrap();
    }
    let digest = sidecar.files.write_with_keys(&config(server.port), &keys(&[("bob", "key-b")]));
    sidecar.runs(&digest);
    let [alice, bob] = &mut streams;
    assert!(alice.next().is_none(), "it is closed");
    // The scripted server says each thing to one of its streams.
    bob.patience(Duration::from_millis(100));
    eventually("the other goes on", || {
        tell.send(Some(event(&note(1)))).unwrap();
        bob.try_any().ok()?
    });
}

/// Also where another key has opened the stream, which lives on.
#[test]
fn a_key_that_is_revoked_hears_nothing_more_of_what_another_has_opened() {
    for resumes in [false, true] {
        let (server, _tell) = told();
        let files = Files::new();
        let both = [("alice", "key-a"), ("alice", "key-b")];
        files.write_with_keys(&config(server.port), &keys(&both));
        let sidecar = Sidecar::with(files, &[]).loaded();
        let client = Client::open(&sidecar, Some("key-b"));
        let mut opened = open(&client);
        opened.any().unwrap();
        let last = opened.last.clone();
        drop(opened);
        let client = client.with_key("key-a");
        let request = if resumes { client.rest(&last) } else { client.get() };
        let joined = eventually("it takes the place", || {
            let events = Events::open(&request, sidecar.mcp);
            (events.status == 200).then_some(events)
        });
        assert_eq!(server.seen("GET").len(), 1, "the stream is the one from before");
        sidecar.runs(&sidecar.files.write_with_keys(&config(server.port), &keys(&both[1..])));
        assert!(joined.all().iter().all(|event| !event.has_messages()), "{resumes}");
        // The other goes on.
        let client = client.with_key("key-b");
        assert_eq!(client.send("ping", json!({})).status, 200);
    }
}

/// Also one that is revoked while the server takes its time to open its stream.
#[test]
fn a_key_that_was_revoked_has_nothing_opened() {
    let gate = Gate::default();
    let opens = gate.clone();
    let server = Scripted::listening(move |request, stream| {
        if request.method == "POST" {
            scripted::json(stream, &answer(request));
            return;
        }
        opens.pass();
        scripted::begin_events(stream);
        scripted::chunk(stream, &event(&note(1)));
        let _ = std::io::Read::read(stream, &mut [0]);
    });
    let files = Files::new();
    files.write_with_keys(&config(server.port), &keys(&[("alice", "key-a"), ("bob", "key-b")]));
    let sidecar = Sidecar::with(files, &[]).loaded();
    let client = Client::open(&sidecar, Some("key-a"));
    let (get, mcp) = (client.get(), sidecar.mcp);
    let opened = std::thread::spawn(move || Events::open(&get, mcp));
    eventually("the server is asked", || (!server.seen("GET").is_empty()).then_some(()));
    let digest = sidecar.files.write_with_keys(&config(server.port), &keys(&[("bob", "key-b")]));
    sidecar.runs(&digest);
    gate.open();
    assert_eq!(opened.join().unwrap().next(), None);
}

/// That a resource has changed is for those who may read it, now.
#[test]
fn news_of_a_resource_is_for_those_who_may_read_it() {
    let (server, tell) = told();
    let mut config = config(server.port);
    config.access = vec![rule("some", &["*"], &["*"], &["memo://*"])];
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    let updated = |uri: &str| json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
    let says = |texts: &[String]| texts.iter().for_each(|text| tell.send(Some(event(text))).unwrap());
    says(&[updated("file:///a").to_string(), updated("memo://a").to_string()]);
    assert_eq!(stream.next().unwrap().message(), updated("memo://a"));
    config.access = vec![rule("some", &["*"], &["*"], &[])];
    sidecar.runs(&sidecar.files.write(&config));
    let spelled = updated("memo://a").to_string().replace("updated", "upd\\u0061ted").replace('/', "\\/");
    says(&[updated("memo://a").to_string(), spelled, note(1)]);
    assert_eq!(said(&stream.next().unwrap()), "1", "the stream goes on");
}

#[test]
fn a_session_that_listens_is_not_idle() {
    let (server, tell) = told();
    let mut config = config(server.port);
    config.sessions.resume.ttl_ms = 500;
    let files = Files::new();
    files.write(&config);
    let sidecar = Sidecar::with(files, &[]).loaded();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    sidecar.runs(&sidecar.files.write(&idle(config, 300)));
    std::thread::sleep(Duration::from_millis(1500));
    tell.send(Some(event(&note(1)))).unwrap();
    assert_eq!(said(&stream.next().unwrap()), "1");
    drop(stream);
    eventually("it ends then", || (sidecar.metric("longshore_sessions") == 0.0).then_some(()));
}

/// 55: what belongs to a call comes with it, everything else on the client's own stream, and nothing twice.
#[test]
fn r055_each_message_of_a_server_is_on_exactly_one_stream() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let server = Scripted::listening(move |request, stream| {
        if request.method == "GET" {
            scripted::begin_events(stream);
            while told.lock().unwrap().recv().is_ok() {
                scripted::chunk(stream, &format!("data: {CHANGED}\n\n"));
            }
            return;
        }
        let token = &scripted::message(request)["params"]["_meta"]["progressToken"];
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
        let answer = scripted::reply_to(request, &json!({"content": []}));
        scripted::events(stream, &[&format!("data: {progress}\n\n"), &format!("data: {answer}\n\n")]);
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    for round in 0..3 {
        let reply = client.send("tools/call", json!({"name": "t", "_meta": {"progressToken": round}}));
        let events = reply.events();
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events[0].contains("notifications/progress") && events[1].contains("content"), "{events:?}");
    }
    // Nothing of the calls came before it.
    tell.send(()).unwrap();
    assert_eq!(stream.next().unwrap().data, CHANGED);
}
