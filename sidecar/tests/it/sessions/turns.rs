//! What many sessions have set at a server that has restarted, and whose turn it is to be set again.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use serde_json::json;

use crate::harness::config::{callers, keys, on_loss};
use crate::harness::scripted::UPSTREAM_SESSION;
use crate::harness::{
    Client, Events, Gate, Request, Scripted, Sidecar, client, config, eventually, scripted, within,
};

/// The revision of a server that gives session ids.
pub(super) const NAMED: &str = "2025-06-18";

/// A server that gives session ids, in which it knows nobody any more as soon as it `forgets`, or none.
pub(super) fn restarting(
    is_named: bool,
    forgets: &Arc<AtomicBool>,
    answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
) -> Scripted {
    if !is_named {
        return Scripted::nameless_listening(move |request, stream| {
            // The sidecar's own is nobody's.
            if request.method == "GET" && request.value("mcp-protocol-version") != Some(NAMED) {
                return scripted::no_stream(stream);
            }
            answer(request, stream);
        });
    }
    let forgets = forgets.clone();
    Scripted::beginning_again(NAMED, move |request, stream| {
        let is_first = request.value("mcp-session-id") == Some(UPSTREAM_SESSION);
        if is_first && forgets.load(Ordering::SeqCst) {
            return scripted::json_with(stream, 404, "", "{}");
        }
        answer(request, stream);
    })
}

/// Takes what a client has set, or never answers if it is `mute` and has that in its name.
pub(super) fn take(request: &Request, stream: &mut TcpStream, is_mute: bool) {
    if is_mute && scripted::message(request)["params"]["uri"].to_string().contains("mute") {
        return scripted::until_closed(stream);
    }
    scripted::reply(stream, request, &json!({}));
}

/// A sidecar in front of it that begins sessions again.
pub(super) fn beginning_again(server: &Scripted) -> Sidecar {
    Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready()
}

/// How often a server was told of each resource.
pub(super) fn told(server: &Scripted) -> HashMap<String, usize> {
    let mut told = HashMap::new();
    for request in server.seen("resources/subscribe") {
        *told
            .entry(scripted::message(&request)["params"]["uri"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    told
}

/// However many streams of it break at once: it may have only just started.
#[test]
fn what_clients_have_set_is_set_again_for_some_of_them_at_a_time() {
    const CLIENTS: usize = 30;
    const AT_ONCE: usize = 8 * 4;
    for is_named in [false, true] {
        let (cut, is_new) = <(Gate, Arc<AtomicBool>)>::default();
        let (asked, under_way, most) = <(AtomicUsize, AtomicUsize, Arc<AtomicUsize>)>::default();
        let (cuts, at_most, holds) = (cut.clone(), most.clone(), is_new.clone());
        let server = restarting(is_named, &is_new, move |request, stream| {
            if request.method != "GET" {
                at_most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if holds.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(200));
                }
                under_way.fetch_sub(1, Ordering::SeqCst);
                return scripted::reply(stream, request, &json!({}));
            }
            scripted::begin_events(stream);
            if asked.fetch_add(1, Ordering::SeqCst) < CLIENTS {
                scripted::chunk(stream, "retry: 50\n\n");
                cuts.pass();
                let _ = stream.shutdown(std::net::Shutdown::Both);
            } else {
                scripted::until_closed(stream);
            }
        });
        let sidecar = beginning_again(&server);
        let clients = [(); CLIENTS].map(|()| Client::of(&sidecar, None, NAMED));
        let _streams: Vec<_> = (clients.iter().enumerate())
            .map(|(client, it)| {
                for number in 0..4 {
                    it.ask("resources/subscribe", json!({"uri": format!("memo://{client}/{number}")}));
                }
                Events::open(&it.get(), sidecar.mcp)
            })
            .collect();
        eventually("all listen", || server.seen("GET").len() >= CLIENTS);
        is_new.store(true, Ordering::SeqCst);
        cut.open();
        within(Duration::from_secs(30), "all is set again", || {
            let told = told(&server);
            told.len() == CLIENTS * 4 && told.values().all(|times| *times > 1)
        });
        let most = most.load(Ordering::SeqCst);
        assert!(most <= AT_ONCE + 2, "{is_named}: {most} at once");
    }
}

/// However long others take: what changes before the server knows what a client wants, nobody hears of.
#[test]
fn a_client_that_waits_for_what_it_has_set_is_told_once_that_is_set_again() {
    // Each sort takes all there is for ten seconds.
    const SORT: usize = 8;
    for is_named in [false, true] {
        let (cuts, is_new) = ([(); 3].map(|()| Gate::default()), Arc::<AtomicBool>::default());
        let (gates, asked, holds) = (cuts.clone(), AtomicUsize::new(0), is_new.clone());
        let server = restarting(is_named, &is_new, move |request, stream| {
            if request.method != "GET" {
                return take(request, stream, holds.load(Ordering::SeqCst));
            }
            scripted::begin_events(stream);
            let Some(cut) = gates.get(asked.fetch_add(1, Ordering::SeqCst) / SORT) else {
                return scripted::until_closed(stream);
            };
            scripted::chunk(stream, "retry: 50\n\n");
            cut.pass();
            scripted::write(stream, "0\r\n\r\n");
        });
        let sidecar = beginning_again(&server);
        let listens = |name: String, resources: usize| {
            let client = Client::of(&sidecar, None, NAMED);
            for number in 0..resources {
                client.ask("resources/subscribe", json!({"uri": format!("memo://{name}/{number}")}));
            }
            Events::open(&client.get(), sidecar.mcp)
        };
        let _others: Vec<_> = (0..2 * SORT).map(|number| listens(format!("mute/{number}"), 8)).collect();
        let own: Vec<_> = (0..SORT).map(|number| listens(format!("own/{number}"), 1)).collect();
        is_new.store(true, Ordering::SeqCst);
        cuts[0].open();
        eventually("they have their turns", || {
            told(&server).values().filter(|times| **times > 1).count() >= SORT * 4
        });
        // Those that wait are to wait for longer than these take.
        std::thread::sleep(Duration::from_secs(3));
        cuts[1].open();
        eventually("others wait", || server.seen("GET").len() >= 5 * SORT);
        cuts[2].open();
        for (number, mut events) in own.into_iter().enumerate() {
            events.patience(Duration::from_secs(60));
            let (uri, changed) = (format!("memo://own/{number}/0"), events.next().unwrap().message());
            assert_eq!(changed["params"]["uri"], uri, "{is_named}: {changed}");
            assert!(told(&server)[&uri] > 1, "{is_named}: the server knows it by then");
        }
    }
}

/// However long those of one principal take: others have their turns beside them, and what ends while it waits is no session
/// any more.
#[test]
fn sessions_of_one_principal_that_wait_to_be_set_again_hold_up_nobody_else() {
    const OWN: usize = 16;
    let (cuts, is_new) = ([(); 2].map(|()| Gate::default()), Arc::<AtomicBool>::default());
    let (gates, asked, holds) = (cuts.clone(), AtomicUsize::new(0), is_new.clone());
    let server = restarting(true, &is_new, move |request, stream| {
        if request.method != "GET" {
            return take(request, stream, holds.load(Ordering::SeqCst));
        }
        scripted::begin_events(stream);
        let number = asked.fetch_add(1, Ordering::SeqCst);
        if let Some(cut) = gates.get(number / OWN).filter(|_| number <= OWN) {
            scripted::chunk(stream, "retry: 50\n\n");
            cut.pass();
            scripted::write(stream, "0\r\n\r\n");
        } else {
            scripted::until_closed(stream);
        }
    });
    let mut config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    config.sessions.per_principal = u32::try_from(OWN).unwrap();
    let sidecar = Sidecar::keyed(&config, &callers()).ready();
    let listens = |key: &str, name: String, resources: usize| {
        let client = Client::of(&sidecar, Some(key), NAMED);
        for number in 0..resources {
            client.ask("resources/subscribe", json!({"uri": format!("memo://{name}/{number}")}));
        }
        let events = Events::open(&client.get(), sidecar.mcp);
        (client, events)
    };
    let own: Vec<_> = (0..OWN).map(|number| listens("key-a", format!("mute/{number}"), 8)).collect();
    let (_other, mut events) = listens("key-b", "other".to_owned(), 1);
    is_new.store(true, Ordering::SeqCst);
    cuts[0].open();
    eventually("they have their turns", || told(&server).values().filter(|times| **times > 1).count() >= 16);
    // Those that have none wait for it by then.
    std::thread::sleep(Duration::from_secs(3));
    cuts[1].open();
    events.patience(Duration::from_secs(6));
    let changed = events.next().unwrap().message();
    assert_eq!(changed["params"]["uri"], "memo://other/0", "{changed}");
    assert!(told(&server)["memo://other/0"] > 1, "the server knows it by then");
    for (client, _) in &own {
        client.end();
    }
    let another = Request::post(client::initialize(NAMED)).key("key-a").send(sidecar.mcp);
    assert_eq!(another.status, 200, "{}", another.text());
}

/// Nor do those that end in their turns: whoever comes after them has their places.
#[test]
fn a_session_that_ends_while_it_is_set_again_takes_no_place_any_more() {
    const OWN: usize = 3;
    let is_new = Arc::<AtomicBool>::default();
    let holds = is_new.clone();
    let server = restarting(true, &is_new, move |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        take(request, stream, holds.load(Ordering::SeqCst));
    });
    let mut config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    config.sessions.per_principal = u32::try_from(OWN).unwrap();
    let sidecar = Sidecar::keyed(&config, &keys(&[("alice", "key-a")])).ready();
    let clients: Vec<_> = (0..OWN).map(|_| Client::of(&sidecar, Some("key-a"), NAMED)).collect();
    for (number, client) in clients.iter().enumerate() {
        for resource in 0..8 {
            client.ask("resources/subscribe", json!({"uri": format!("memo://mute/{number}/{resource}")}));
        }
    }
    is_new.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for client in &clients {
            let call = client.message("tools/call", &json!({"name": "t", "arguments": {}}));
            let (call, to) = (client.request(call), sidecar.mcp);
            scope.spawn(move || call.send(to));
        }
    });
    assert_eq!(told(&server).values().filter(|times| **times > 1).count(), OWN * 4, "they have their turns");
    for client in &clients {
        client.end();
    }
    within(Duration::from_secs(2), "there is room", || {
        let another = Request::post(client::initialize(NAMED)).key("key-a").send(sidecar.mcp);
        another.status == 200
    });
}

/// However many others there are, of one principal or of many: they are said again by the way, and nobody waits for that.
#[test]
fn a_client_that_listens_does_not_wait_for_all_those_that_do_not() {
    const OTHERS: usize = 64;
    // So many sessions of each principal.
    for of_each in [None, Some(4)] {
        let (cuts, is_new) = ([(); 2].map(|()| Gate::default()), Arc::<AtomicBool>::default());
        let (gates, asked, holds) = (cuts.clone(), [(); 2].map(|()| AtomicUsize::new(0)), is_new.clone());
        let server = Scripted::nameless_listening(move |request, stream| {
            if request.method != "GET" {
                if holds.load(Ordering::SeqCst) && scripted::method_of(request) == "resources/subscribe" {
                    std::thread::sleep(Duration::from_secs(1));
                }
                return scripted::reply(stream, request, &json!({}));
            }
            // The sidecar's own is nobody's.
            let whose = usize::from(request.value("mcp-protocol-version") == Some(NAMED));
            scripted::begin_events(stream);
            if asked[whose].fetch_add(1, Ordering::SeqCst) == 0 {
                scripted::chunk(stream, "retry: 50\n\n");
                gates[whose].pass();
                let _ = stream.shutdown(std::net::Shutdown::Both);
            } else {
                scripted::until_closed(stream);
            }
        });
        let names: Vec<_> = (0..=OTHERS).map(|number| format!("key-{number}")).collect();
        let key = |number: usize| of_each.map(|of_each| &*names[number / of_each]);
        let config = config(server.port);
        let sidecar = match of_each {
            None => Sidecar::start(&config).ready(),
            Some(_) => {
                let all: Vec<_> = names.iter().map(|name| (&**name, &**name)).collect();
                Sidecar::keyed(&config, &keys(&all)).ready()
            }
        };
        let clients: Vec<_> = (0..=OTHERS).map(|number| Client::of(&sidecar, key(number), NAMED)).collect();
        for (number, client) in clients.iter().enumerate() {
            client.ask("resources/subscribe", json!({"uri": format!("memo://{number}")}));
        }
        let mut events = Events::open(&clients[OTHERS].get(), sidecar.mcp);
        is_new.store(true, Ordering::SeqCst);
        cuts[0].open();
        eventually("all turns are taken", || told(&server).values().filter(|times| **times > 1).count() >= 8);
        cuts[1].open();
        events.patience(Duration::from_secs(5));
        let (uri, changed) = (format!("memo://{OTHERS}"), events.next().unwrap().message());
        assert_eq!(changed["params"]["uri"], uri, "{of_each:?}: {changed}");
        assert!(told(&server)[&uri] > 1, "{of_each:?}: the server knows it by then");
    }
}
