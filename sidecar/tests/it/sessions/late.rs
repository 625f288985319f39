//! What clients have set at a server that has restarted, and has no time for it yet, or restarts once more.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::json;

use super::turns::{NAMED, beginning_again, restarting, take, told};
use crate::harness::config::callers;
use crate::harness::{Client, Events, Gate, Scripted, Sidecar, config, eventually, scripted, within};

/// Two resources that its client wants to hear of.
const WANTED: [&str; 2] = ["memo://a", "memo://b"];

/// A server whose first stream ends as soon as it is new, and that answers each subscription with a status then.
struct New {
    server: Scripted,
    is_new: Arc<AtomicBool>,
    cut: Gate,
}

impl New {
    fn answering(is_named: bool, status: impl Fn(&str) -> u16 + Send + Sync + 'static) -> Self {
        Self::answering_all(is_named, move |method, uri| match method {
            "resources/subscribe" => status(uri),
            _ => 200,
        })
    }

    /// The same of all that its clients set, by the method and the resource.
    fn answering_all(is_named: bool, status: impl Fn(&str, &str) -> u16 + Send + Sync + 'static) -> Self {
        let (cut, is_new) = <(Gate, Arc<AtomicBool>)>::default();
        let (gate, refuses, was_cut) = (cut.clone(), is_new.clone(), AtomicBool::new(false));
        let server = restarting(is_named, &is_new, move |request, stream| {
            if request.method == "GET" {
                scripted::begin_events(stream);
                if was_cut.swap(true, Ordering::SeqCst) {
                    scripted::until_closed(stream);
                } else {
                    scripted::chunk(stream, "retry: 50\n\n");
                    gate.pass();
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
                return;
            }
            let message = scripted::message(request);
            if refuses.load(Ordering::SeqCst)
                && let Some(uri) = message["params"]["uri"].as_str()
            {
                let status = status(&scripted::method_of(request), uri);
                if status != 200 {
                    let error = json!({"code": -32603, "message": "no"});
                    let refused = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
                    return scripted::json_with(stream, status, "", &refused.to_string());
                }
            }
            take(request, stream, false);
        });
        Self { server, is_new, cut }
    }

    /// A client that is subscribed and listens until it is new, and still does.
    fn heard_by<'a>(&self, sidecar: &'a Sidecar) -> (Client<'a>, Events) {
        self.heard_of(sidecar, &WANTED)
    }

    fn heard_of<'a>(&self, sidecar: &'a Sidecar, wanted: &[&str]) -> (Client<'a>, Events) {
        let client = Client::of(sidecar, None, NAMED);
        for uri in wanted {
            client.ask("resources/subscribe", json!({"uri": uri}));
        }
        let events = Events::open(&client.get(), sidecar.mcp);
        self.is_new.store(true, Ordering::SeqCst);
        self.cut.open();
        (client, events)
    }
}

fn hears_that_all_has_changed(events: &mut Events) {
    for uri in WANTED {
        let changed = events.next().unwrap().message();
        assert_eq!(changed["params"]["uri"], uri, "{changed}");
    }
}

/// It says so of each thing, and takes it a second later. Their client is told then.
#[test]
fn what_a_server_has_no_time_for_yet_is_set_again_once_it_has() {
    for (is_named, status) in [(false, 429), (true, 503)] {
        let refused = Mutex::<HashSet<String>>::default();
        let new = New::answering(is_named, move |uri| {
            if refused.lock().unwrap().insert(uri.to_owned()) { status } else { 200 }
        });
        let sidecar = beginning_again(&new.server);
        let (_client, mut events) = new.heard_by(&sidecar);
        hears_that_all_has_changed(&mut events);
        assert!(
            WANTED.iter().all(|uri| told(&new.server)[*uri] > 2),
            "{is_named}: the server knows it by then"
        );
    }
}

/// Some say so of whatever they do not have any more, however often they are asked.
#[test]
fn what_a_server_fails_at_is_said_to_it_once() {
    for is_named in [false, true] {
        let new = New::answering(is_named, |uri| if uri == WANTED[1] { 500 } else { 200 });
        let sidecar = beginning_again(&new.server);
        let (_client, mut events) = new.heard_by(&sidecar);
        events.patience(Duration::from_secs(3));
        hears_that_all_has_changed(&mut events);
        assert!(WANTED.iter().all(|uri| told(&new.server)[*uri] == 2), "{is_named}");
    }
}

/// It loads something first. Their client is told when that takes too long to wait for, and when it is over.
#[test]
fn what_a_server_has_no_time_for_in_its_turn_is_set_again_in_another_one() {
    const LOADS: Duration = Duration::from_secs(8);
    for is_named in [false, true] {
        let (began, taken) = <(OnceLock<Instant>, Arc<Mutex<HashSet<String>>>)>::default();
        let takes = taken.clone();
        let new = New::answering(is_named, move |uri| {
            if began.get_or_init(Instant::now).elapsed() < LOADS {
                return 503;
            }
            takes.lock().unwrap().insert(uri.to_owned());
            200
        });
        let sidecar = beginning_again(&new.server);
        let (_client, mut events) = new.heard_by(&sidecar);
        events.patience(Duration::from_secs(40));
        hears_that_all_has_changed(&mut events);
        assert!(taken.lock().unwrap().is_empty(), "{is_named}: nobody waits for that");
        hears_that_all_has_changed(&mut events);
        assert_eq!(taken.lock().unwrap().len(), WANTED.len(), "{is_named}: the server knows it by then");
    }
}

/// A client has the last word.
#[test]
fn what_a_client_leaves_while_that_is_set_again_it_has_left() {
    for is_named in [false, true] {
        let refused = Gate::default();
        let (gate, is_first) = (refused.clone(), AtomicBool::new(true));
        let new = New::answering(is_named, move |uri| {
            if uri == WANTED[0] && is_first.swap(false, Ordering::SeqCst) {
                gate.open();
                return 429;
            }
            200
        });
        let sidecar = beginning_again(&new.server);
        let (client, mut events) = new.heard_by(&sidecar);
        refused.pass();
        client.ask("resources/unsubscribe", json!({"uri": WANTED[0]}));
        let changed = events.next().unwrap().message();
        assert_eq!(changed["params"]["uri"], WANTED[1], "{is_named}: {changed}");
        let mut words = new.server.seen_all().into_iter().filter(|request| {
            request.method == "POST" && scripted::message(request)["params"]["uri"] == WANTED[0]
        });
        let last = words.next_back().unwrap();
        assert_eq!(scripted::method_of(&last), "resources/unsubscribe", "{is_named}");
    }
}

/// Also where the server has no time to hear of that, turn after turn.
#[test]
fn what_a_client_has_left_is_left_however_many_turns_that_takes() {
    let (refused, left) = <(Gate, Arc<AtomicUsize>)>::default();
    let (gate, leaves, is_first) = (refused.clone(), left.clone(), AtomicBool::new(true));
    let new = New::answering_all(false, move |method, uri| match method {
        "resources/subscribe" if uri == WANTED[0] && is_first.swap(false, Ordering::SeqCst) => {
            gate.open();
            429
        }
        // The client's own word is the first one.
        "resources/unsubscribe" => match leaves.fetch_add(1, Ordering::SeqCst) {
            1..=6 => 503,
            _ => 200,
        },
        _ => 200,
    });
    let sidecar = beginning_again(&new.server);
    let (client, _events) = new.heard_by(&sidecar);
    refused.pass();
    client.ask("resources/unsubscribe", json!({"uri": WANTED[0]}));
    within(Duration::from_secs(90), "the server hears of it", || left.load(Ordering::SeqCst) > 7);
    let mut words = new.server.seen_all().into_iter().filter(|request| {
        request.method == "POST" && scripted::message(request)["params"]["uri"] == WANTED[0]
    });
    assert_eq!(scripted::method_of(&words.next_back().unwrap()), "resources/unsubscribe");
}

/// It takes some things a second, or begins to only when the first turn is over, and the next turns go on from there.
#[test]
fn what_a_server_takes_little_by_little_is_all_set_again() {
    for (loads, at_once, every) in [(0, 1, 500), (8, 10, 1_000)] {
        let names: Vec<_> = (0..if loads == 0 { 40 } else { 20 }).map(|it| format!("memo://{it}")).collect();
        let (began, times) = <(OnceLock<Instant>, Mutex<VecDeque<Instant>>)>::default();
        let taken = Arc::<Mutex<HashSet<String>>>::default();
        let takes = taken.clone();
        let new = New::answering(false, move |uri| {
            if began.get_or_init(Instant::now).elapsed() < Duration::from_secs(loads) {
                return 503;
            }
            let mut times = times.lock().unwrap();
            times.retain(|at| at.elapsed() < Duration::from_millis(every));
            if times.len() >= at_once {
                return 429;
            }
            times.push_back(Instant::now());
            takes.lock().unwrap().insert(uri.to_owned());
            200
        });
        let sidecar = beginning_again(&new.server);
        let wanted: Vec<_> = names.iter().map(String::as_str).collect();
        let _client = new.heard_of(&sidecar, &wanted);
        within(Duration::from_secs(120), "it knows all", || taken.lock().unwrap().len() == names.len());
    }
}

/// However often that is asked for: it is no reason to say the rest again.
#[test]
fn what_a_server_has_taken_is_said_once_whatever_it_never_has_time_for() {
    let new = New::answering(false, |uri| if uri == WANTED[1] { 503 } else { 200 });
    let sidecar = beginning_again(&new.server);
    let _client = new.heard_by(&sidecar);
    // That of its client, those of the first turn, and one of each turn after it.
    within(Duration::from_secs(60), "there are turns", || told(&new.server)[WANTED[1]] > 7);
    std::thread::sleep(Duration::from_secs(1));
    let told = told(&new.server);
    assert_eq!(told[WANTED[0]], 2);
    assert!(told[WANTED[1]] < 10, "{told:?}");
}

/// Nobody needs it, so it takes no room.
#[test]
fn what_a_server_says_to_what_is_set_again_is_not_read_to_its_end() {
    const LONG: usize = 15 * 1024 * 1024;
    let (is_new, read) = <(Arc<AtomicBool>, Arc<Mutex<Vec<bool>>>)>::default();
    let (writes, notes) = (is_new.clone(), read.clone());
    let server = restarting(true, &is_new, move |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        if !writes.load(Ordering::SeqCst) || scripted::method_of(request) != "resources/subscribe" {
            return take(request, stream, false);
        }
        let text = json!({"_meta": {"example.com/text": "x".repeat(LONG)}});
        let text = scripted::reply_to(request, &text);
        let head = "HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length:";
        let whole = format!("{head} {}\r\n\r\n{text}", text.len());
        notes.lock().unwrap().push(std::io::Write::write_all(stream, whole.as_bytes()).is_ok());
    });
    let sidecar = beginning_again(&server);
    let client = Client::of(&sidecar, None, NAMED);
    client.ask("resources/subscribe", json!({"uri": WANTED[0]}));
    is_new.store(true, Ordering::SeqCst);
    client.call("t", json!({}));
    eventually("it has answered", || !read.lock().unwrap().is_empty());
    assert_eq!(*read.lock().unwrap(), [false]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(told(&server)[WANTED[0]], 2, "that is its answer");
}

/// However long that takes for others: nobody waits until they are through.
#[test]
fn what_clients_have_set_is_set_again_at_a_server_that_restarts_while_that_goes_on() {
    const MUTE: usize = 24;
    let (pings, is_new) = <(Arc<Mutex<VecDeque<_>>>, Arc<AtomicBool>)>::default();
    let holds = is_new.clone();
    let server = Scripted::nameless_pinging(json!({}), pings.clone(), move |request, stream| {
        take(request, stream, holds.load(Ordering::SeqCst));
    });
    let sidecar = Sidecar::keyed(&config(server.port), &callers()).ready();
    let sets = |key: &str, name: String| {
        let client = Client::of(&sidecar, Some(key), NAMED);
        client.ask("resources/subscribe", json!({"uri": format!("memo://{name}")}));
        client
    };
    let _others: Vec<_> = (0..MUTE).map(|number| sets("key-a", format!("mute/{number}"))).collect();
    let _client = sets("key-b", "b".to_owned());
    is_new.store(true, Ordering::SeqCst);
    for times in 2..4 {
        // The sidecar's own session is the only one that it had.
        pings.lock().unwrap().push_back((404, "{}"));
        // A ping is due every five seconds.
        within(Duration::from_secs(12), "it is told again", || told(&server)["memo://b"] == times);
    }
}
