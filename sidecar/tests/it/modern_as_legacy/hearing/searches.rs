//! What a server takes of what it has refused for a while, and what becomes of the rest meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::refusals::{alone, asks_for_gone};
use super::{
    Says, Streams, asks_for, break_off, breaks_off, last_wanted, subscribes_at_once, tell, telling_as,
    telling_so, wanted, without,
};
use crate::harness::scripted::message;
use crate::harness::{Client, Events, Sessionless, eventually, within};
use crate::modern_as_legacy::{able, sidecar};

/// Subscribes before anybody listens.
fn wants(client: &Client<'_>, uris: &[&str]) {
    for uri in uris {
        let answer = client.ask("resources/subscribe", json!({"uri": uri}));
        assert_eq!(answer["result"], json!({}), "{uri}: {answer}");
    }
}

/// Reads on until this is said to have changed.
fn hears_of(events: &mut Events, uri: &str) {
    while events.next().unwrap().message()["params"]["uri"] != uri {}
}

/// All resources that the server was asked for, each time.
fn asked(server: &Sessionless) -> Vec<Value> {
    let asked = server.seen("subscriptions/listen");
    asked
        .iter()
        .map(|request| message(request)["params"]["notifications"]["resourceSubscriptions"].clone())
        .collect()
}

fn count(asked: &[Value], uris: &[&str]) -> usize {
    asked.iter().filter(|it| **it == json!(uris)).count()
}

/// To leave a resource out of what it acknowledges is how the protocol has a server refuse it.
#[test]
fn r073_a_resource_that_a_server_leaves_out_is_asked_for_again() {
    let knows = Arc::<AtomicBool>::default();
    let knows_it = knows.clone();
    let (server, _streams) = telling_as(move |wanted| {
        Says::Tells(if knows_it.load(Ordering::SeqCst) {
            wanted.clone()
        } else {
            without(wanted, "test://y")
        })
    });
    let sidecar = sidecar(&server);
    let clients = [(); 2].map(|()| able(&sidecar, "2025-11-25"));
    let mut events = clients.each_ref().map(|client| {
        wants(client, &["test://a", "test://y"]);
        Events::open(&client.get(), sidecar.mcp)
    });
    subscribes_at_once(&clients[0], "test://y", false);
    knows.store(true, Ordering::SeqCst);
    subscribes_at_once(&clients[0], "test://y", true);
    // Nor does anybody have to ask. It may have changed before it was heard of.
    for events in &mut events {
        events.patience(Duration::from_secs(40));
        hears_of(events, "test://y");
    }
}

/// What a stream before has told does not do for what was in none.
#[test]
fn what_is_in_a_stream_again_may_have_changed_while_it_was_in_none() {
    let is_gone = Arc::<AtomicBool>::default();
    let gone = is_gone.clone();
    let refuses = move |wanted: &Value| {
        let is_refused = asks_for(wanted, "test://gone");
        if gone.load(Ordering::SeqCst) && !is_refused && asks_for(wanted, "test://z") {
            std::thread::sleep(Duration::from_secs(2));
        }
        gone.load(Ordering::SeqCst) && is_refused
    };
    let (server, streams) = telling_so(refuses, false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    wants(&client, &["test://gone", "test://z"]);
    let mut events = Events::open(&client.get(), sidecar.mcp);
    breaks_off(&streams);
    // From now on it is not said for a while that a stream broke off.
    hears_of(&mut events, "test://z");
    is_gone.store(true, Ordering::SeqCst);
    breaks_off(&streams);
    eventually("it is asked for each", || alone(&server.seen("subscriptions/listen")).len() == 2);
    // Again before it is known what it takes.
    break_off(&streams);
    events.patience(Duration::from_secs(20));
    hears_of(&mut events, "test://z");
}

/// It tells of so many at most.
#[test]
fn what_a_server_takes_alone_and_not_with_the_others_costs_nobody_the_others() {
    let is_gone = Arc::new(AtomicBool::new(true));
    let gone = is_gone.clone();
    let refuses = move |wanted: &Value| {
        let are_many = wanted["resourceSubscriptions"].as_array().is_some_and(|uris| uris.len() > 3);
        are_many || gone.load(Ordering::SeqCst) && asks_for(wanted, "test://z")
    };
    let (server, streams) = telling_so(refuses, false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    wants(&client, &["test://a", "test://b", "test://c", "test://z"]);
    let _events = Events::open(&client.get(), sidecar.mcp);
    let are_heard = || (last_wanted(&streams)? == json!(["test://a", "test://b", "test://c"])).then_some(());
    eventually("it is asked for the others", are_heard);
    is_gone.store(false, Ordering::SeqCst);
    within(Duration::from_secs(60), "it is asked for each once more", || {
        alone(&server.seen("subscriptions/listen")).len() == 8 && wanted(&streams).len() == 1
    });
    break_off(&streams);
    within(Duration::from_secs(10), "it is asked for the others again", are_heard);
}

/// Also where nobody has asked it for more before its stream broke off.
#[test]
fn what_a_server_has_taken_together_it_is_asked_for_whatever_is_wanted_since() {
    let is_busy = Arc::<AtomicBool>::default();
    let busy = is_busy.clone();
    let (server, streams) = telling_as(move |wanted| {
        let uris = wanted["resourceSubscriptions"].as_array().map_or(0, Vec::len);
        match (busy.load(Ordering::SeqCst), uris) {
            (true, _) => Says::No(503),
            (false, 0..=3) => Says::Tells(Value::Null),
            (false, _) => Says::No(400),
        }
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let rest = ["test://a", "test://b", "test://c"];
    wants(&client, &rest);
    let _events = Events::open(&client.get(), sidecar.mcp);
    let are_heard = || (last_wanted(&streams)? == json!(rest)).then_some(());
    eventually("it is asked for them", are_heard);
    is_busy.store(true, Ordering::SeqCst);
    break_off(&streams);
    // When it is asked for the second time it is known that there is no stream.
    eventually("it gives none", || count(&asked(&server), &rest) >= 3);
    wants(&client, &["test://z"]);
    is_busy.store(false, Ordering::SeqCst);
    within(Duration::from_secs(60), "it is asked for those again", are_heard);
}

#[test]
fn what_a_server_has_refused_is_asked_for_again_when_something_else_is_known() {
    let is_gone = Arc::<AtomicBool>::default();
    let gone = is_gone.clone();
    let refuses = move |wanted: &Value| {
        asks_for_gone(wanted) || gone.load(Ordering::SeqCst) && asks_for(wanted, "test://b")
    };
    let (server, streams) = telling_so(refuses, false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    wants(&client, &["test://a", "test://b", "test://gone"]);
    let _events = Events::open(&client.get(), sidecar.mcp);
    let rest = ["test://a", "test://b"];
    eventually("it is asked for the rest", || (last_wanted(&streams)? == json!(rest)).then_some(()));
    let before = asked(&server);
    let until = before.iter().position(|it| *it == json!(rest)).unwrap();
    assert_eq!(count(&before[..until], &["test://a", "test://b", "test://gone"]), 1, "{before:?}");
    // It is known that it takes those.
    subscribes_at_once(&client, "test://b", true);
    is_gone.store(true, Ordering::SeqCst);
    subscribes_at_once(&client, "test://x", true);
    assert_eq!(last_wanted(&streams), Some(json!(["test://a", "test://x"])));
    let all = asked(&server);
    assert_eq!(count(&all, &["test://a", "test://b", "test://x"]), 1, "{all:?}");
}

/// And takes its time for that.
#[test]
fn a_server_that_ends_its_stream_for_another_is_waited_for_whoever_wants_that() {
    let is_gone = Arc::new(AtomicBool::new(true));
    let open = Arc::<Mutex<Streams>>::default();
    let (gone, all) = (is_gone.clone(), open.clone());
    let refuses = move |wanted: &Value| {
        if !asks_for(wanted, "test://z") || gone.load(Ordering::SeqCst) {
            return asks_for(wanted, "test://z");
        }
        break_off(&all.lock().unwrap());
        std::thread::sleep(Duration::from_millis(700));
        false
    };
    let (server, streams) = telling_so(refuses, false);
    *open.lock().unwrap() = streams.clone();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    wants(&client, &["test://y", "test://z"]);
    let mut events = Events::open(&client.get(), sidecar.mcp);
    eventually("it is asked for the other", || (last_wanted(&streams)? == json!(["test://y"])).then_some(()));
    is_gone.store(false, Ordering::SeqCst);
    eventually("it is asked for both", || {
        (last_wanted(&streams)? == json!(["test://y", "test://z"])).then_some(())
    });
    tell(&streams, "notifications/resources/updated", json!({"uri": "test://z/part"}));
    hears_of(&mut events, "test://z/part");
}

/// What it has taken by itself need not be found again.
#[test]
fn a_server_that_bounds_how_often_it_is_asked_is_asked_for_all_that_it_takes() {
    let times = Mutex::<Vec<Instant>>::default();
    let (server, streams) = telling_as(move |wanted| {
        let mut times = times.lock().unwrap();
        times.retain(|time| time.elapsed() < Duration::from_secs(3));
        if times.len() >= 6 {
            return Says::No(429);
        }
        times.push(Instant::now());
        if asks_for_gone(wanted) { Says::No(400) } else { Says::Tells(wanted.clone()) }
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let uris: Vec<_> = (0..11).map(|number| format!("test://{number:02}")).collect();
    for uri in &uris {
        wants(&client, &[uri]);
    }
    wants(&client, &["test://gone"]);
    let _events = Events::open(&client.get(), sidecar.mcp);
    within(Duration::from_secs(30), "it is asked for all that it takes", || {
        (last_wanted(&streams)? == json!(uris)).then_some(())
    });
}

/// Whatever else it is asked for in between.
#[test]
fn what_a_server_takes_again_is_heard_of_while_it_has_no_answer_for_another() {
    let is_back = Arc::<AtomicBool>::default();
    let taken = Arc::<Mutex<Option<Instant>>>::default();
    let (back, taken_at) = (is_back.clone(), taken.clone());
    let refuses = move |wanted: &Value| {
        let is_mute = asks_for(wanted, "test://m");
        match back.load(Ordering::SeqCst) {
            true if is_mute => std::thread::sleep(Duration::from_secs(8)),
            true if asks_for(wanted, "test://z") => *taken_at.lock().unwrap() = Some(Instant::now()),
            true => {}
            false => return is_mute || asks_for(wanted, "test://z"),
        }
        is_mute
    };
    let (server, streams) = telling_so(refuses, false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    wants(&client, &["test://a", "test://m", "test://z"]);
    let _events = Events::open(&client.get(), sidecar.mcp);
    // Half a second later, one, two and four; each by itself only after eight more.
    within(Duration::from_secs(30), "it is asked seldom", || {
        count(&asked(&server), &["test://a", "test://m", "test://z"]) == 5
    });
    is_back.store(true, Ordering::SeqCst);
    // Long ago for whoever has asked for it, and not so long that the other has been given up.
    within(Duration::from_secs(40), "it takes the one", || {
        let taken = *taken.lock().unwrap();
        (taken?.elapsed() > Duration::from_millis(300)).then_some(())
    });
    subscribes_at_once(&client, "test://x", true);
    assert_eq!(last_wanted(&streams), Some(json!(["test://a", "test://x", "test://z"])));
}
