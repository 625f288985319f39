//! Resources that a server refuses to tell of, and with them all else that it is asked for.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    AS_AN_EVENT, Says, Streams, acknowledge, asks_for, break_off, breaks_off, last_wanted,
    subscribes_at_once, tell, telling_as, telling_so, telling_unless, wanted,
};
use crate::harness::scripted::{self, message};
use crate::harness::{Events, Request, Sessionless, eventually, within};
use crate::modern_as_legacy::{able, everything, sidecar, tools};

/// What `refuses` these, and takes its time for that.
fn slowly(time: Duration, refuses: impl Fn(&Value) -> bool) -> impl Fn(&Value) -> bool {
    move |wanted| {
        let is_refused = refuses(wanted);
        if is_refused {
            std::thread::sleep(time);
        }
        is_refused
    }
}

/// It may not know it any more, and refuse all that it is asked for with it, or fail at it.
#[test]
fn r073_one_resource_that_a_server_refuses_keeps_nobody_from_hearing_of_its_lists() {
    std::thread::scope(|scope| {
        for status in [400, 500, AS_AN_EVENT] {
            scope.spawn(move || is_heard_of_its_lists(status));
        }
    });
}

fn is_heard_of_its_lists(status: u16) {
    let rest = json!({"toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["test://a"]});
    let knows = Arc::<AtomicBool>::default();
    let knows_it = knows.clone();
    let (server, streams) = telling_as(move |wanted| {
        let is_refused = !knows_it.load(Ordering::SeqCst) && asks_for(wanted, "test://gone");
        if is_refused { Says::No(status) } else { Says::Tells(wanted.clone()) }
    });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for uri in ["test://a", "test://gone"] {
        client.ask("resources/subscribe", json!({"uri": uri}));
    }
    let mut events = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(events.status, 200);
    eventually("it is asked for the rest", || (wanted(&streams).pop()? == rest).then_some(()));
    // It may have changed before it was.
    while events.next().unwrap().message()["params"]["uri"] != "test://gone" {}
    tell(&streams, "notifications/tools/list_changed", json!({}));
    assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
    eventually("it is said", || {
        let written = sidecar.written();
        let mut lines = written.lines().filter(|line| line.contains("refuses to tell"));
        lines.next().filter(|line| line.contains("\"resources\":2")).map(drop)
    });
    break_off(&streams);
    eventually("it is heard again", || (wanted(&streams).pop()? == rest).then_some(()));
    let mut heard = || events.next().unwrap().message();
    tell(&streams, "notifications/tools/list_changed", json!({}));
    assert_eq!(heard()["method"], "notifications/tools/list_changed");
    knows.store(true, Ordering::SeqCst);
    eventually("it is asked for all of it again", || {
        let wanted = wanted(&streams).pop()?;
        (wanted["resourceSubscriptions"] == json!(["test://a", "test://gone"])).then_some(())
    });
    tell(&streams, "notifications/resources/updated", json!({"uri": "test://a/part"}));
    while heard()["params"]["uri"] != "test://a/part" {}
    let said = sidecar.written().matches("refuses to tell").count();
    assert_eq!(said, 1, "once");
}

/// However much it says of its lists meanwhile.
#[test]
fn a_server_that_refuses_to_tell_of_resources_is_asked_less_and_less_often_for_them() {
    let refuses = |wanted: &Value| wanted.get("resourceSubscriptions").is_some();
    let (server, streams) = telling_unless(refuses);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    client.ask("resources/subscribe", json!({"uri": "test://gone"}));
    let mut events = Events::open(&client.get(), sidecar.mcp);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        tell(&streams, "notifications/tools/list_changed", json!({}));
        assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
        std::thread::sleep(Duration::from_millis(100));
    }
    let asked = server.seen("subscriptions/listen");
    let whole = asked.iter().filter(|it| refuses(&message(it)["params"]["notifications"])).count();
    // At once, and once more with its lists heard, one second later, and two; each time but the first also by itself.
    assert!(whole <= 7, "{whole}");
}

/// The resources that were each asked for by itself.
pub(super) fn alone(asked: &[Request]) -> Vec<Value> {
    let asked =
        asked.iter().map(|it| message(it)["params"]["notifications"]["resourceSubscriptions"].clone());
    asked
        .filter(|uris| uris.as_array().is_some_and(|uris| uris.len() == 1))
        .map(|uris| uris[0].clone())
        .collect()
}

/// A server that refuses whatever has a resource in it that it does not know, and only `says` so what else it takes.
fn knowing_no_gone(says: bool) -> (Sessionless, Streams) {
    telling_so(asks_for_gone, says)
}

pub(super) fn asks_for_gone(wanted: &Value) -> bool {
    let uris = wanted["resourceSubscriptions"].as_array();
    uris.is_some_and(|uris| uris.iter().any(|uri| uri.as_str().unwrap().contains("gone")))
}

/// Nobody waits for what the server has refused.
#[test]
fn a_subscription_that_a_server_refuses_with_all_others_is_an_error_at_once() {
    for says in [true, false] {
        let (server, streams) = knowing_no_gone(says);
        let sidecar = sidecar(&server);
        let client = able(&sidecar, "2025-11-25");
        let _events = Events::open(&client.get(), sidecar.mcp);
        for (uri, is_taken) in [("test://a", true), ("test://gone", false), ("test://b", true)] {
            subscribes_at_once(&client, uri, is_taken);
        }
        let last = wanted(&streams).pop().unwrap()["resourceSubscriptions"].clone();
        assert_eq!(last, json!(["test://a", "test://b"]), "{says}");
    }
}

/// What it is asked for besides is a resource that it knows.
#[test]
fn one_resource_that_a_server_refuses_keeps_nobody_from_subscribing_to_others() {
    for says in [true, false] {
        let (server, streams) = knowing_no_gone(says);
        let sidecar = sidecar(&server);
        let client = able(&sidecar, "2025-11-25");
        for uri in ["test://gone/1", "test://before"] {
            client.ask("resources/subscribe", json!({"uri": uri}));
        }
        let mut events = Events::open(&client.get(), sidecar.mcp);
        for (uri, is_taken) in [
            ("test://a", true),
            ("test://gone/2", false),
            ("test://b", true),
            ("test://a", true),
            ("test://before", true),
            ("test://gone/1", false),
        ] {
            subscribes_at_once(&client, uri, is_taken);
        }
        let all = || {
            let is_all = last_wanted(&streams)? == json!(["test://a", "test://b", "test://before"]);
            is_all.then_some(())
        };
        assert_eq!(all(), Some(()), "{says}: {:?}", wanted(&streams));
        let tells = |uri: &str| tell(&streams, "notifications/resources/updated", json!({"uri": uri}));
        tells("test://b");
        while events.next().unwrap().message()["params"]["uri"] != "test://b" {}
        break_off(&streams);
        eventually("it is asked for as much again", all);
        // Another stream knows that too.
        drop(events);
        break_off(&streams);
        let before = server.seen("subscriptions/listen").len();
        let _events = Events::open(&client.get(), sidecar.mcp);
        eventually("it is asked for as much in another one", all);
        let asked = alone(&server.seen("subscriptions/listen")[before..]);
        assert!(
            asked.iter().all(|uri| uri == "test://gone/1"),
            "{says}: nobody looks for others again: {asked:?}"
        );
        client.ask("resources/unsubscribe", json!({"uri": "test://gone/1"}));
        subscribes_at_once(&client, "test://before", true);
    }
}

/// Which those are it need not say, and another one may be one of them at any time.
#[test]
fn resources_that_a_server_refuses_are_told_from_those_that_it_takes() {
    let gone = Arc::new(Mutex::new(vec!["test://2", "test://9"]));
    let unknown = gone.clone();
    let (server, streams) = telling_so(
        move |wanted| {
            let uris = wanted["resourceSubscriptions"].as_array();
            let unknown = unknown.lock().unwrap();
            uris.is_some_and(|uris| uris.iter().any(|uri| unknown.contains(&uri.as_str().unwrap())))
        },
        false,
    );
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for number in 0..10 {
        client.ask("resources/subscribe", json!({"uri": format!("test://{number}")}));
    }
    let mut events = Events::open(&client.get(), sidecar.mcp);
    let are_wanted = |numbers: &[u8]| {
        let uris: Vec<_> = numbers.iter().map(|number| format!("test://{number}")).collect();
        (last_wanted(&streams)? == json!(uris)).then_some(())
    };
    eventually("it is asked for those that it takes", || are_wanted(&[0, 1, 3, 4, 5, 6, 7, 8]));
    tell(&streams, "notifications/resources/updated", json!({"uri": "test://8"}));
    while events.next().unwrap().message()["params"]["uri"] != "test://8" {}
    gone.lock().unwrap().push("test://5");
    break_off(&streams);
    eventually("it is asked for the others", || are_wanted(&[0, 1, 3, 4, 6, 7, 8]));
    gone.lock().unwrap().retain(|uri| *uri != "test://2");
    subscribes_at_once(&client, "test://2", true);
    // For each by itself, twice, and for those that are gone now and then.
    let asked = server.seen("subscriptions/listen").len();
    assert!(asked < 40, "{asked}");
}

/// However long it takes to refuse each, its client hears what else there is meanwhile.
#[test]
fn nobody_waits_to_hear_of_lists_for_what_a_server_is_slow_to_refuse() {
    let (server, streams) = telling_so(slowly(Duration::from_secs(2), asks_for_gone), false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for uri in ["a", "b", "c", "d", "x", "y", "z"] {
        client.ask("resources/subscribe", json!({"uri": format!("test://{uri}")}));
    }
    for number in 0..24 {
        client.ask("resources/subscribe", json!({"uri": format!("test://gone/{number}")}));
    }
    let began = Instant::now();
    let mut events = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(events.status, 200);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    tell(&streams, "notifications/tools/list_changed", json!({}));
    assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    // Nor for that where the stream ends meanwhile.
    eventually("it is asked for each", || alone(&server.seen("subscriptions/listen")).len() > 3);
    break_off(&streams);
    let hears = || wanted(&streams).iter().any(|wanted| wanted.get("resourceSubscriptions").is_none());
    within(Duration::from_secs(9), "its lists are heard again", hears);
    within(Duration::from_secs(60), "it is asked for those that it takes", || {
        (last_wanted(&streams)?.as_array()?.len() == 7).then_some(())
    });
    tell(&streams, "notifications/resources/updated", json!({"uri": "test://z"}));
    while events.next().unwrap().message()["params"]["uri"] != "test://z" {}
    // Nor to subscribe to something else, while it is asked again.
    let asked = server.seen("subscriptions/listen").len();
    eventually("it is asked again", || server.seen("subscriptions/listen").len() > asked);
    subscribes_at_once(&client, "test://new", true);
}

/// Whether it refuses another one or not.
#[test]
fn a_resource_for_which_a_server_has_no_answer_keeps_nobody_from_hearing_of_others() {
    let hears = |uris: &[&str]| {
        let (server, streams) = telling_so(|wanted| asks_for(wanted, "test://z"), false);
        let sidecar = sidecar(&server);
        let client = able(&sidecar, "2025-11-25");
        for uri in uris {
            client.ask("resources/subscribe", json!({"uri": uri}));
        }
        let _events = Events::open(&client.get(), sidecar.mcp);
        let are_wanted = || (last_wanted(&streams)? == json!(["test://a", "test://y"])).then_some(());
        within(Duration::from_secs(30), "it is asked for what is left", are_wanted);
        break_off(&streams);
        within(Duration::from_secs(20), "it is asked for as much again", are_wanted);
    };
    // Nor who subscribes to one after the other from the beginning.
    let subscribes = || {
        let (server, _streams) = telling_so(|_| false, false);
        let sidecar = sidecar(&server);
        let client = able(&sidecar, "2025-11-25");
        for uri in ["test://a", "test://mute", "test://y"] {
            client.ask("resources/subscribe", json!({"uri": uri}));
        }
        let _events = Events::open(&client.get(), sidecar.mcp);
        let taken = (0..3).filter(|number| {
            let answer = client.ask("resources/subscribe", json!({"uri": format!("test://new/{number}")}));
            answer.get("result").is_some()
        });
        assert!(taken.count() > 0);
        subscribes_at_once(&client, "test://last", true);
    };
    std::thread::scope(|scope| {
        scope.spawn(subscribes);
        scope.spawn(has_become_mute);
        scope.spawn(|| hears(&["test://a", "test://mute", "test://y", "test://z"]));
        scope.spawn(|| hears(&["test://a", "test://mute", "test://y"]));
    });
}

/// One of those that it tells of.
fn has_become_mute() {
    let is_mute = Arc::<AtomicBool>::default();
    let mute = is_mute.clone();
    let waits = move |wanted: &Value| mute.load(Ordering::SeqCst) && asks_for(wanted, "test://a");
    let (server, streams) = telling_so(slowly(Duration::from_secs(8), waits), false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let _events = Events::open(&client.get(), sidecar.mcp);
    for uri in ["test://a", "test://b", "test://c"] {
        subscribes_at_once(&client, uri, true);
    }
    is_mute.store(true, Ordering::SeqCst);
    let first = client.ask("resources/subscribe", json!({"uri": "test://new/1"}));
    assert_eq!(first["error"]["code"], -32603, "{first}");
    within(Duration::from_secs(20), "it is asked for what is left", || {
        (last_wanted(&streams)? == json!(["test://b", "test://c"])).then_some(())
    });
    subscribes_at_once(&client, "test://new/2", true);
}

/// Each that it has answered for is found, however many it leaves for later.
#[test]
fn a_server_that_bounds_its_streams_is_asked_for_what_is_left() {
    let streams = Streams::default();
    let open = streams.clone();
    let server =
        Sessionless::start(everything(), tools(), move |request: &Request, stream: &mut TcpStream| {
            let asked = message(request);
            let (id, wanted) = (asked["id"].clone(), asked["params"]["notifications"].clone());
            let name = &asked["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"];
            let is_own = name == "longshore-sidecar";
            let mut all = open.lock().unwrap();
            if !is_own && all.len() > 2 {
                return scripted::json_with(stream, 429, "", "{}");
            }
            if asks_for_gone(&wanted) {
                let error = json!({"code": -32602, "message": "not known"});
                let refusal = json!({"jsonrpc": "2.0", "id": id, "error": error});
                return scripted::json_with(stream, 400, "", &refusal.to_string());
            }
            scripted::begin_events(stream);
            if !is_own {
                all.push((id.clone(), wanted.clone(), stream.try_clone().unwrap()));
            }
            drop(all);
            std::thread::sleep(Duration::from_millis(100));
            acknowledge(stream, &id, &wanted);
            scripted::until_closed(stream);
            open.lock().unwrap().retain(|(other, ..)| *other != id);
        });
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let uris: Vec<_> = (0..8).map(|number| format!("test://{number}")).collect();
    for uri in uris.iter().map(String::as_str).chain(["test://gone"]) {
        client.ask("resources/subscribe", json!({"uri": uri}));
    }
    let _events = Events::open(&client.get(), sidecar.mcp);
    within(Duration::from_secs(20), "it is asked for all that it takes", || {
        (last_wanted(&streams)? == json!(uris)).then_some(())
    });
}

/// One after the other they may take longer than who subscribes waits.
#[test]
fn a_server_that_is_slow_to_take_resources_is_asked_for_a_new_one_with_the_others_at_once() {
    let is_slow = Arc::<AtomicBool>::default();
    let slow = is_slow.clone();
    let refuses = move |wanted: &Value| {
        let is_gone = asks_for(wanted, "test://gone");
        if slow.load(Ordering::SeqCst) && !is_gone {
            std::thread::sleep(Duration::from_millis(2_200));
        }
        is_gone
    };
    let (server, _streams) = telling_so(refuses, false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    for uri in ["test://a", "test://gone"] {
        client.ask("resources/subscribe", json!({"uri": uri}));
    }
    let _events = Events::open(&client.get(), sidecar.mcp);
    subscribes_at_once(&client, "test://b", true);
    is_slow.store(true, Ordering::SeqCst);
    subscribes_at_once(&client, "test://new", true);
}

/// It may have refused them for a moment only. However many others it refuses still, its client hears of those, and that they
/// may have changed meanwhile.
#[test]
fn resources_that_a_server_has_refused_are_looked_at_again_while_it_refuses_others() {
    let has_none = Arc::new(AtomicBool::new(true));
    let none = has_none.clone();
    let refuses = move |wanted: &Value| {
        wanted.get("resourceSubscriptions").is_some()
            && (none.load(Ordering::SeqCst) || asks_for_gone(wanted))
    };
    let (server, streams) = telling_so(refuses, false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let uris = |name: &str, count: u8| {
        (0..count).map(|number| format!("test://{name}/{number}")).collect::<Vec<_>>()
    };
    let (gone, there) = (uris("gone", 16), uris("there", 8));
    for uri in gone.iter().chain(&there) {
        client.ask("resources/subscribe", json!({"uri": uri}));
    }
    let mut events = Events::open(&client.get(), sidecar.mcp);
    let asked = || server.seen("subscriptions/listen");
    let count = gone.len() + there.len();
    eventually("each is refused", || alone(&asked()).len() >= count);
    // All of them together more often than each by itself.
    eventually("they are asked for again", || asked().len() - alone(&asked()).len() > 5);
    assert!(alone(&asked()).len() < 2 * count, "{}", alone(&asked()).len());
    has_none.store(false, Ordering::SeqCst);
    within(Duration::from_secs(60), "those that it takes by now are heard of", || {
        (last_wanted(&streams)? == json!(there)).then_some(())
    });
    while events.next().unwrap().message()["params"]["uri"] != "test://there/7" {}
}

/// What its client has subscribed to before is not in doubt for that.
#[test]
fn who_subscribes_again_while_another_resource_is_refused_is_not_refused_with_it() {
    let refuses = |wanted: &Value| asks_for(wanted, "test://gone");
    let (server, streams) = telling_so(slowly(Duration::from_secs(1), refuses), false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let _events = Events::open(&client.get(), sidecar.mcp);
    subscribes_at_once(&client, "test://a", true);
    let asked = server.seen("subscriptions/listen").len();
    std::thread::scope(|scope| {
        let other = client.through(&sidecar);
        scope.spawn(move || subscribes_at_once(&other, "test://gone", false));
        eventually("it is asked for it", || server.seen("subscriptions/listen").len() > asked);
        subscribes_at_once(&client, "test://a", true);
    });
    assert!(last_wanted(&streams).is_some());
}

/// That it refuses something is not why they end.
#[test]
fn a_server_that_refuses_a_resource_is_heard_again_soon_after_each_end_of_a_stream_that_was_of_use() {
    let (server, streams) = knowing_no_gone(true);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    client.ask("resources/subscribe", json!({"uri": "test://gone"}));
    let mut events = Events::open(&client.get(), sidecar.mcp);
    for round in 0..6 {
        tell(&streams, "notifications/tools/list_changed", json!({}));
        while events.next().unwrap().message()["method"] != "notifications/tools/list_changed" {}
        let ended = Instant::now();
        breaks_off(&streams);
        eventually("it is heard again", || wanted(&streams).len() == 1);
        assert!(ended.elapsed() < Duration::from_secs(3), "{round}: {:?}", ended.elapsed());
    }
}

/// It has been asked for its lists alone by then, whatever it says of them.
#[test]
fn what_a_server_was_not_asked_for_is_not_taken_for_granted() {
    let refuses = |wanted: &Value| asks_for(wanted, "test://gone");
    let (server, streams) = telling_so(refuses, false);
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    client.ask("resources/subscribe", json!({"uri": "test://gone"}));
    let events = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(events.status, 200);
    breaks_off(&streams);
    let refused = client.ask("resources/subscribe", json!({"uri": "test://gone"}));
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
}
