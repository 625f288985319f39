//! Listening to a server with sessions.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{SUBSCRIPTION, call, is_error, listen, text};
use crate::harness::peer::everything;
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Client, Events, Gate, Scripted, Sidecar, config, eventually, scripted};

/// 73: subscriptions of clients without sessions at a server with sessions: acknowledged, marked, and only what was
/// asked for.
#[test]
fn r073_listening_subscribes_and_hears() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let uri = "demo://resource/dynamic/text/1";
    let mut one = Events::open(&listen("one", json!({"resourceSubscriptions": [uri]})), sidecar.mcp);
    one.patience(Duration::from_secs(20));
    let acknowledged = one.next().unwrap().message();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": [uri]}));
    assert_eq!(acknowledged["params"]["_meta"][SUBSCRIPTION], "one");
    let mut other = Events::open(&listen("other", json!({"toolsListChanged": true})), sidecar.mcp);
    assert_eq!(other.next().unwrap().message()["params"]["notifications"], json!({"toolsListChanged": true}));

    text(&call("toggle-subscriber-updates", json!({}), &json!({})).send(sidecar.mcp));
    let updated = one.next().unwrap().message();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(
        (&updated["params"]["uri"], &updated["params"]["_meta"][SUBSCRIPTION]),
        (&json!(uri), &json!("one"))
    );

    // The end, in order. Who has asked for something else has heard nothing.
    sidecar.signal(Signal::TERM);
    for (mut events, id) in [(one, "one"), (other, "other")] {
        let end = std::iter::from_fn(|| events.next()).last().unwrap().message();
        assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(id), &json!("complete")), "{end}");
        assert_eq!(end["result"]["_meta"][SUBSCRIPTION], id);
    }
}

#[test]
fn a_server_is_subscribed_for_as_long_as_somebody_listens() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let open = |id: &str| {
        let mut events = Events::open(
            &listen(id, json!({"resourceSubscriptions": ["a:b"], "promptsListChanged": true})),
            sidecar.mcp,
        );
        let acknowledged = events.next().unwrap().message();
        // It says nothing of prompts.
        assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": ["a:b"]}));
        events
    };
    let subscriptions = || {
        let state = text(&call("state", json!({}), &json!({})).send(sidecar.mcp));
        serde_json::from_str::<Value>(&state).unwrap()["subscriptions"].clone()
    };
    let (one, mut two) = (open("1"), open("2"));
    assert_eq!(subscriptions(), json!(["a:b"]), "once for both");
    drop(one);
    let say = json!({"method": "notifications/resources/updated", "params": {"uri": "a:b"}});
    text(&call("say", say, &json!({})).send(sidecar.mcp));
    assert_eq!(two.next().unwrap().message()["params"]["_meta"][SUBSCRIPTION], "2");
    assert_eq!(subscriptions(), json!(["a:b"]));
    drop(two);
    crate::harness::eventually("nobody listens", || subscriptions() == json!([]));
}

/// 64: who is subscribed and only listens has no next call that would begin another process.
#[test]
fn r064_who_listens_has_a_new_process_when_one_dies() {
    let (shim, sidecar) = serving(&stdio(), &server(&["telling"]), &[]);
    let own = shim.processes();
    let client = Client::open(&sidecar, None);
    let mut old = Events::open(&client.get(), sidecar.mcp);
    client.ask("resources/subscribe", json!({"uri": "a:b"}));
    let mut new = Events::open(&listen("new", json!({"resourceSubscriptions": ["a:b"]})), sidecar.mcp);
    let acknowledged = new.next().unwrap().message();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    // Each process says so as soon as it is subscribed to.
    for dies in [true, true, false] {
        for events in [&mut old, &mut new] {
            events.patience(Duration::from_secs(20));
            // Who listened to one that died is told, too, that all may have changed.
            let is_of_it = |message: &Value| message["method"] != "notifications/tools/list_changed";
            let updated =
                std::iter::from_fn(|| events.next()).map(|event| event.message()).find(is_of_it).unwrap();
            assert_eq!(updated["method"], "notifications/resources/updated", "{updated}");
        }
        for process in shim.processes().into_iter().filter(|process| dies && !own.contains(process)) {
            kill_process(Pid::from_raw(process.cast_signed()).unwrap(), Signal::KILL).unwrap();
        }
    }
}

/// One that dies whenever it is subscribed to is not started for ever: who listens hears that it is over.
#[test]
fn r064_a_process_that_keeps_dying_ends_the_streams_of_those_who_listen() {
    let (_shim, sidecar) = serving(&stdio(), &server(&["fragile"]), &[]);
    let started = sidecar.metric("longshore_processes_started_total");
    let mut events = Events::open(&listen("it", json!({"resourceSubscriptions": ["a:b"]})), sidecar.mcp);
    events.patience(Duration::from_secs(60));
    let last = std::iter::from_fn(|| events.next()).last().unwrap().message();
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!("it"), &json!("complete")), "{last}");
    // The first, and as many as there may be in a minute.
    assert_eq!(sidecar.metric("longshore_processes_started_total") - started, 6.0);
}

/// What is not promised is not kept either.
#[test]
fn a_subscription_that_is_taken_late_is_taken_back() {
    let server = Scripted::offering(json!({"resources": {"subscribe": true}}), |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        let message = scripted::message(request);
        if message["method"] == "resources/subscribe" && message["params"]["uri"] == "a:late" {
            std::thread::sleep(Duration::from_secs(6));
        }
        scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = json!({"resourceSubscriptions": ["a:late", "a:soon"]});
    let mut events = Events::open(&listen("l", wanted), sidecar.mcp);
    let acknowledged = events.next().unwrap().message();
    assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": ["a:soon"]}));
    eventually("it is taken back", || {
        let unwanted = server.seen("resources/unsubscribe");
        unwanted.iter().any(|it| scripted::message(it)["params"]["uri"] == "a:late")
    });
}

/// What the server answers to somebody else is no answer to what it is asked to tell of.
#[test]
fn an_answer_to_somebody_else_refuses_no_subscription() {
    let server = Scripted::offering(json!({"resources": {"subscribe": true}}), |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        let result = json!({"resources": [], "resourceTemplates": []});
        let answer = scripted::reply_to(request, &result);
        if scripted::method_of(request) != "resources/subscribe" {
            return scripted::json(stream, &answer);
        }
        let error = json!({"code": -32000, "message": "no"});
        let other = json!({"jsonrpc": "2.0", "id": "nobody's", "error": error});
        scripted::events(stream, &[&format!("data: {other}\n\n"), &format!("data: {answer}\n\n")]);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = json!({"resourceSubscriptions": ["a:b"]});
    let mut events = Events::open(&listen("l", wanted.clone()), sidecar.mcp);
    assert_eq!(events.next().unwrap().message()["params"]["notifications"], wanted);
}

/// However many resources the server says nothing of, who listens has those that it has taken, and it is asked for no
/// more than there is time for.
#[test]
fn what_the_server_takes_is_heard_of_beside_what_it_does_not_answer() {
    let server = Scripted::offering(json!({"resources": {"subscribe": true}}), |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        let uri = scripted::message(request)["params"]["uri"].as_str().unwrap_or_default().to_owned();
        if uri.contains("mute") {
            return scripted::until_closed(stream);
        }
        scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = ["a:taken", "b:mute", "c:mute", "d:mute", "e:mute"];
    let mut events = Events::open(&listen("l", json!({"resourceSubscriptions": wanted})), sidecar.mcp);
    events.patience(Duration::from_secs(60));
    let acknowledged = events.next().unwrap().message();
    assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": ["a:taken"]}));
    let asked: Vec<_> = server
        .seen("resources/subscribe")
        .iter()
        .map(|it| scripted::message(it)["params"]["uri"].as_str().unwrap().to_owned())
        .collect();
    // On a machine that stands still for a while the second one's time may be over before it is asked for.
    let times = "each five seconds, and ten for all";
    assert!((2..=3).contains(&asked.len()) && asked == wanted[..asked.len()], "{times}: {asked:?}");
    assert!(server.seen("resources/unsubscribe").is_empty());
    drop(events);
    eventually("nobody wants it any more", || {
        let unwanted = server.seen("resources/unsubscribe");
        unwanted.iter().any(|it| scripted::message(it)["params"]["uri"] == "a:taken")
    });
}

/// What a server says in one breath is heard by all who read. One that does not is not waited for any longer, and its stream
/// ends.
#[test]
fn a_burst_ends_no_stream_but_that_of_who_does_not_read() {
    const NEWS: usize = 1000;
    // More than there is room for on the way.
    const LARGE: usize = 1 << 20;
    let gate = Gate::default();
    let opens = gate.clone();
    let server = Scripted::offering(json!({"resources": {"subscribe": true}}), move |request, stream| {
        if request.method != "GET" {
            return scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
        }
        let updated = |uri: String, more: usize| {
            let params = json!({"uri": uri, "_meta": {"more": "m".repeat(more)}});
            let note =
                json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params});
            format!("data: {note}\n\n")
        };
        scripted::begin_events(stream);
        opens.pass();
        (0..24).for_each(|_| scripted::chunk(stream, &updated("b:large".to_owned(), LARGE)));
        let burst: String = (0..NEWS).map(|number| updated(format!("a:b/{number}"), 0)).collect();
        scripted::chunk(stream, &burst);
        scripted::until_closed(stream);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let open = |id: &str, uri: &str| {
        let mut events = Events::open(&listen(id, json!({"resourceSubscriptions": [uri]})), sidecar.mcp);
        assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
        // A busy machine takes its time for as much as that.
        events.patience(Duration::from_secs(90));
        events
    };
    let (mut readers, unread) = ([open("1", "a:b"), open("2", "a:b")], open("3", "b:large"));
    gate.open();
    std::thread::scope(|scope| {
        for events in &mut readers {
            scope.spawn(move || {
                for number in 0..NEWS {
                    let message = events.next().unwrap().message();
                    assert_eq!(message["params"]["uri"], format!("a:b/{number}"), "{message}");
                }
            });
        }
    });
    let heard = unread.all();
    let end = heard.last().unwrap().message();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("3"), &json!("complete")), "{end}");
    assert!(heard.len() < 24, "{}", heard.len());
}

/// A bound on what they share is no fault of what this one asks for.
#[test]
fn more_listeners_than_a_session_may_have_may_try_again() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = json!({"toolsListChanged": true});
    let mut listening: Vec<_> =
        (0..256).map(|_| Events::open(&listen("l", wanted.clone()), sidecar.mcp)).collect();
    for events in &mut listening {
        assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    }
    let words = is_error(&listen("l", wanted.clone()).send(sidecar.mcp), 503, -32603);
    assert!(words.contains("too many subscriptions"), "{words}");
    drop(listening.pop());
    eventually("there is room", || {
        let mut events = Events::open(&listen("l", wanted.clone()), sidecar.mcp);
        (events.status == 200 && events.next()?.message().get("error").is_none()).then_some(())
    });
}

/// What it says between two streams goes to nobody, however the first has ended, and whatever it calls an event that no header
/// can name.
#[test]
fn what_a_server_said_between_two_streams_may_have_been_missed_by_those_who_listen() {
    for first in [": nothing\n\n", "id: \u{1}\nretry: 50\ndata: \n\n"] {
        let (end, asked) = (Gate::default(), AtomicUsize::new(0));
        let ends = end.clone();
        let offers = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}});
        let server = Scripted::offering(offers, move |request, stream| {
            if request.method != "GET" {
                let result = json!({"tools": [], "resources": [], "resourceTemplates": []});
                return scripted::reply(stream, request, &result);
            }
            if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                return scripted::stays_open(stream);
            }
            scripted::begin_events(stream);
            scripted::chunk(stream, first);
            ends.pass();
            scripted::write(stream, "0\r\n\r\n");
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let open = |id: &str, wanted: Value| {
            let mut events = Events::open(&listen(id, wanted), sidecar.mcp);
            let acknowledged = events.next().unwrap().message();
            assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
            events
        };
        let mut tools = open("t", json!({"toolsListChanged": true}));
        let mut resources = open("r", json!({"resourceSubscriptions": ["a:b"]}));
        end.open();
        for (events, id, method) in [
            (&mut tools, "t", "notifications/tools/list_changed"),
            (&mut resources, "r", "notifications/resources/updated"),
        ] {
            let told = events.next().unwrap().message();
            let of = &told["params"]["_meta"][SUBSCRIPTION];
            assert_eq!((&told["method"], of), (&json!(method), &json!(id)), "{first:?}");
        }
        // Another one is known from the one before, and remembers.
        assert_eq!(server.seen("resources/subscribe").len(), 1);
    }
}

/// Such a server refuses nothing when it was restarted: what it was told it is told again, before those who listen read what
/// may have changed. What the one before has numbered is nothing to it.
#[test]
fn a_server_without_session_ids_hears_again_what_those_who_listen_want() {
    for takes in [true, false] {
        let (end, asked, told) = (Gate::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let ends = end.clone();
        let offers = json!({"resources": {"subscribe": true}});
        let server = Scripted::nameless_offering(offers, move |request, stream| {
            if scripted::method_of(request) == "resources/subscribe"
                && told.fetch_add(1, Ordering::SeqCst) == 1
                && !takes
            {
                let (id, error) =
                    (&scripted::message(request)["id"], json!({"code": -32602, "message": "no"}));
                let refusal = json!({"jsonrpc": "2.0", "id": id, "error": error});
                return scripted::json(stream, &refusal.to_string());
            }
            if request.method != "GET" {
                return scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
            }
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    scripted::begin_events(stream);
                    scripted::chunk(stream, "id: 17\nretry: 50\ndata: \n\n");
                    ends.pass();
                }
                1 => {}
                _ => return scripted::stays_open(stream),
            }
            let _ = stream.shutdown(Shutdown::Both);
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let wanted = listen("l", json!({"resourceSubscriptions": ["a:b"]}));
        let mut events = Events::open(&wanted, sidecar.mcp);
        assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
        end.open();
        let heard = events.next().unwrap().message();
        assert_eq!(server.seen("resources/subscribe").len(), 2, "{heard}");
        let polls = server.seen("GET");
        let last: Vec<_> = polls.iter().map(|get| get.value("last-event-id")).collect();
        assert_eq!(last, [None, Some("17"), None]);
        if takes {
            assert_eq!(heard["params"]["uri"], "a:b", "{heard}");
        } else {
            // It is promised no more.
            assert_eq!((&heard["id"], &heard["result"]["resultType"]), (&json!("l"), &json!("complete")));
        }
    }
}

/// Where it was restarted between two streams nothing says that it was away. What it says that it does not take is not
/// promised any more.
#[test]
fn what_a_server_without_session_ids_refuses_once_its_stream_has_ended_is_promised_no_more() {
    let (end, asked, told) = (Gate::default(), AtomicUsize::new(0), AtomicUsize::new(0));
    let ends = end.clone();
    let offers = json!({"resources": {"subscribe": true}});
    let server = Scripted::nameless_offering(offers, move |request, stream| {
        if request.method != "GET" {
            let sets = scripted::method_of(request) == "resources/subscribe";
            if sets && told.fetch_add(1, Ordering::SeqCst) == 1 {
                let (id, error) =
                    (&scripted::message(request)["id"], json!({"code": -32602, "message": "no"}));
                let refusal = json!({"jsonrpc": "2.0", "id": id, "error": error});
                return scripted::json(stream, &refusal.to_string());
            }
            return scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
        }
        if asked.fetch_add(1, Ordering::SeqCst) > 0 {
            return scripted::stays_open(stream);
        }
        scripted::begin_events(stream);
        ends.pass();
        scripted::write(stream, "0\r\n\r\n");
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = listen("l", json!({"resourceSubscriptions": ["a:b"]}));
    let mut events = Events::open(&wanted, sidecar.mcp);
    assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    end.open();
    let heard = events.next().unwrap().message();
    assert_eq!((&heard["id"], &heard["result"]["resultType"]), (&json!("l"), &json!("complete")), "{heard}");
}

/// One that does not give its stream for now was there, and knows still what it was told: it may refuse just because it is
/// asked for too much. Whether it takes all of it once more is no reason to end anybody's stream then.
#[test]
fn a_server_that_refuses_its_stream_for_now_is_not_told_each_time_what_those_who_listen_want() {
    let too_much = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"too many requests"}}"#;
    for refusal in [None, Some("{}"), Some(too_much)] {
        let (cut, asked, told) = (Gate::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let cuts = cut.clone();
        let offers = json!({"resources": {"subscribe": true}});
        let server = Scripted::nameless_offering(offers, move |request, stream| {
            if request.method != "GET" {
                let sets = scripted::method_of(request) == "resources/subscribe";
                if let Some(refusal) = refusal.filter(|_| sets && told.fetch_add(1, Ordering::SeqCst) == 1) {
                    return scripted::json_with(stream, 429, "", refusal);
                }
                return scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
            }
            let number = asked.fetch_add(1, Ordering::SeqCst);
            if !number.is_multiple_of(2) {
                return scripted::json_with(stream, 409, "", "{}");
            }
            if number >= 6 {
                return scripted::stays_open(stream);
            }
            scripted::begin_events(stream);
            cuts.pass();
            scripted::write(stream, "0\r\n\r\n");
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let wanted = listen("l", json!({"resourceSubscriptions": ["a:b"]}));
        let mut events = Events::open(&wanted, sidecar.mcp);
        assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
        cut.open();
        for round in 0..3 {
            let heard = events.next().unwrap().message();
            assert_eq!(heard["params"]["uri"], "a:b", "{refusal:?}, {round}: {heard}");
        }
        assert_eq!(
            server.seen("resources/subscribe").len(),
            2,
            "{refusal:?}: when its first stream had ended"
        );
    }
}

/// One that has no stream either says nothing of its restart to anybody but who looks after it.
#[test]
fn who_listens_to_a_server_without_session_ids_or_a_stream_hears_that_it_was_restarted() {
    let pings = Arc::<Mutex<VecDeque<_>>>::default();
    let offers = json!({"resources": {"subscribe": true}});
    let server = Scripted::nameless_pinging(offers, pings.clone(), |request, stream| {
        scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let wanted = listen("l", json!({"resourceSubscriptions": ["a:b"]}));
    for again in [false, true] {
        let mut events = Events::open(&wanted, sidecar.mcp);
        assert_eq!(events.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(server.seen("resources/subscribe").len(), 1 + usize::from(again));
        if !again {
            pings.lock().unwrap().push_back((404, "{}"));
            events.patience(Duration::from_secs(60));
            let end = events.next().unwrap().message();
            assert_eq!(
                (&end["id"], &end["result"]["resultType"]),
                (&json!("l"), &json!("complete")),
                "{end}"
            );
        }
    }
}
