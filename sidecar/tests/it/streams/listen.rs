//! What the server says that belongs to no call.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{CHANGED, event, note, open, said, told};
use crate::harness::config::{idle, rule};
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{
    Client, Events, GoServer, Request, Scripted, Sidecar, config, eventually, scripted, within,
};
use crate::passthrough::EVENTS;

#[test]
fn r054_it_goes_to_the_clients_own_stream() {
    for revision in ["2025-06-18", "2025-11-25"] {
        let (server, tell) = told();
        let sidecar = Sidecar::start(&config(server.port));
        let client = Client::of(&sidecar, None, revision);
        let mut stream = open(&client);
        for (header, value) in EVENTS {
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
        eventually("nothing is left", || sidecar.metric("longshore_streams") == 0.0);
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

/// Clients of earlier revisions have no id to come back with before they have received something.
#[test]
fn what_was_given_to_a_connection_that_is_lost_may_have_been_missed() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let server = Scripted::offering(json!({"tools": {"listChanged": true}}), move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        scripted::begin_events(stream);
        while told.lock().unwrap().recv().is_ok() {
            scripted::chunk(stream, &event(&note(1)));
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::of(&sidecar, None, "2025-06-18");
    let join = || {
        within(Duration::from_secs(40), "it takes the place", || {
            Some(Events::open(&client.get(), sidecar.mcp)).filter(|events| events.status == 200)
        })
    };
    let silent = join();
    let mut other = join();
    other.patience(Duration::from_millis(300));
    assert!(silent.headers.len() > 1 && other.try_any().is_err(), "nothing was given to anybody");
    tell.send(()).unwrap();
    let read = || sidecar.metric("longshore_stream_bytes") > 0.0;
    eventually("it is given to whoever reads", read);
    let mut back = join();
    assert_eq!(back.next().unwrap().message()["method"], CHANGED);
    // Who never says of an event that they have seen it is told so now and then.
    drop(back);
    let mut back = join();
    back.patience(Duration::from_millis(300));
    assert!(back.try_any().is_err());
    back.patience(Duration::from_secs(10));
    tell.send(()).unwrap();
    assert_eq!(back.next().unwrap().message()["method"], "notifications/message", "it is heard on");
    assert_eq!(server.seen("GET").len(), 1, "the server has noticed nothing of all this");
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
    eventually("it has the answer", || sidecar.server_log().contains("[\"here\"]"));
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

/// That a resource has changed is for those who may read it, now.
#[test]
fn news_of_a_resource_is_for_those_who_may_read_it() {
    let (server, tell) = told();
    let mut config = config(server.port);
    config.access = vec![rule("some", &["*"], &["*"], &["memo://*"])];
    let sidecar = Sidecar::start(&config).ready();
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

/// 54: what a client sees of the lists changes with the rules too, and no server tells of that.
#[test]
fn r054_a_client_hears_that_other_rules_leave_it_other_lists() {
    let capabilities = json!({"tools": {"listChanged": true}, "prompts": {}});
    let server = Scripted::offering(capabilities, |request, stream| {
        if request.method == "GET" {
            return scripted::stays_open(stream);
        }
        scripted::reply(stream, request, &json!({"tools": [], "prompts": []}));
    });
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    config.limits.request_timeout_ms += 1;
    sidecar.runs(&sidecar.files.write(&config));
    for (rules, exclude) in [(vec![], vec![]), (vec![], vec!["a*".to_owned()])] {
        (config.access, config.tools.exclude) = (rules, exclude);
        sidecar.runs(&sidecar.files.write(&config));
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        assert_eq!(stream.next().unwrap().message(), changed);
    }
    stream.patience(Duration::from_millis(300));
    assert!(stream.try_any().is_err(), "once each, and for nothing else");
}

#[test]
fn a_session_that_listens_is_not_idle() {
    let (server, tell) = told();
    let mut config = config(server.port);
    config.sessions.resume.ttl_ms = 500;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    sidecar.runs(&sidecar.files.write(&idle(config, 300)));
    std::thread::sleep(Duration::from_millis(1500));
    tell.send(Some(event(&note(1)))).unwrap();
    assert_eq!(said(&stream.next().unwrap()), "1");
    drop(stream);
    eventually("it ends then", || sidecar.metric("longshore_sessions") == 0.0);
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
                scripted::say(stream, &CHANGED);
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
