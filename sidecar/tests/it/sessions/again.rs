//! Sessions that are begun again for their clients, since the server has forgotten them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use serde_json::json;

use super::set_again::{again, forgetful, set};
use crate::harness::config::on_loss;
use crate::harness::scripted::{Greeting, OWN_SESSION, UPSTREAM_SESSION};
use crate::harness::{Client, Gate, Reply, Request, Scripted, Sidecar, config, eventually, scripted, within};

/// Where `transport.protocol` says another revision by then, the server is spoken to in that one, and a client that was
/// promised what is in the other begins anew.
#[test]
fn a_session_is_begun_again_in_its_own_revision_or_not_at_all() {
    for (pin, status) in [("2025-06-18", 200), ("2025-11-25", 404), ("2026-07-28", 404)] {
        let forget = Arc::<AtomicBool>::default();
        let (server, heard) = forgetful(forget.clone());
        let mut config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
        let sidecar = Sidecar::start(&config).ready();
        let client = Client::of(&sidecar, None, "2025-06-18");
        assert_eq!(client.send("tools/call", json!({"name": "t"})).status, 200, "{pin}");
        config.protocol = Some(pin.to_owned());
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
        forget.store(true, Ordering::Relaxed);
        let reply = client.send("tools/call", json!({"name": "t"}));
        assert_eq!(reply.status, status, "{pin}: {}", reply.text());
        let calls = again(&heard).iter().filter(|method| *method == "tools/call").count();
        assert_eq!(calls, usize::from(status == 200), "{pin}");
    }
}

/// The head of an answer says what the server calls a session, and that it has begun, whatever becomes of the rest.
#[test]
fn a_session_that_is_begun_again_by_halves_is_ended_at_its_server() {
    let forget = Arc::<AtomicBool>::default();
    let forgets = forget.clone();
    let server = Scripted::breaking_off("2025-03-26", move |request, stream| {
        let is_first = request.value("mcp-session-id") == Some(UPSTREAM_SESSION);
        if is_first && forgets.load(Ordering::Relaxed) {
            return scripted::json_with(stream, 404, "", "{}");
        }
        scripted::reply(stream, request, &json!({}));
    });
    let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::of(&sidecar, None, "2025-03-26");
    forget.store(true, Ordering::Relaxed);
    let lost = client.call("t", json!({}));
    assert_eq!(lost["error"]["code"], -32603, "{lost}");
    let told = eventually("the server is told of the end", || {
        server.seen_all().into_iter().find(|request| request.method == "DELETE")
    });
    assert_eq!(told.value("mcp-session-id"), Some(OWN_SESSION));
}

/// A server that forgets and then does not greet: those who wait to begin a session again leave with their calls, and the
/// server is not asked for them one after the other.
#[test]
fn a_session_is_begun_again_for_those_who_wait_still() {
    let (forget, gate) = (Arc::<AtomicBool>::default(), Gate::default());
    let forgets = forget.clone();
    let server =
        Scripted::greeting_again("2025-03-26", Greeting::RefusalAt(gate.clone()), move |request, stream| {
            if forgets.load(Ordering::Relaxed) {
                return scripted::json_with(stream, 404, "", "{}");
            }
            scripted::reply(stream, request, &json!({}));
        });
    let mut config = on_loss(config(server.port), OnOwnerLoss::Reinitialize);
    config.limits.request_timeout_ms = 1_000;
    let sidecar = Sidecar::start(&config).ready();
    let client = Client::of(&sidecar, None, "2025-03-26");
    forget.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = Client::in_session(&sidecar, &client.session);
            client.revision = "2025-03-26";
            scope.spawn(move || {
                let late = client.call("t", json!({}));
                assert!(late["error"]["message"].as_str().unwrap().contains("within 1"), "{late}");
            });
        }
    });
    gate.open();
    let refused = client.call("t", json!({}));
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    let begins = |request: &Request| {
        let message = scripted::message(request);
        message["method"] == "initialize" && message["params"]["protocolVersion"] == "2025-03-26"
    };
    // That of the client, of the calls that found out together, and of the last one.
    assert_eq!(server.seen_all().iter().filter(|request| begins(request)).count(), 3);
}

/// Some servers say of a session that they do not know what others say of credentials. One that really wants some refuses
/// the next handshake too, and is not greeted over and over.
#[test]
fn r066_a_session_is_begun_again_whose_server_says_that_its_caller_is_a_stranger() {
    for (status, greeting, begun) in
        [(401, None, true), (403, None, true), (401, Some(Greeting::Refusal), false)]
    {
        let case = format!("{status}, {begun}");
        let forget = Arc::<AtomicBool>::default();
        let forgets = forget.clone();
        let answer = move |request: &Request, stream: &mut std::net::TcpStream| {
            let is_first = request.value("mcp-session-id") == Some(UPSTREAM_SESSION);
            if is_first && forgets.load(Ordering::Relaxed) {
                return scripted::json_with(stream, status, "", "{\"error\":\"Session not found\"}");
            }
            scripted::reply(stream, request, &json!({}));
        };
        let server = Scripted::pinged_greeting_again("2025-03-26", greeting, answer);
        let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
        let client = Client::of(&sidecar, None, "2025-03-26");
        assert_eq!(client.call("t", json!({}))["result"], json!({}), "{case}");
        forget.store(true, Ordering::Relaxed);
        let again = client.call("t", json!({}));
        assert_eq!(again["result"].is_object(), begun, "{case}: {again}");
        assert_eq!(again["error"]["code"].is_number(), !begun, "{case}: {again}");
        let begins = |request: &Request| {
            let message = scripted::message(request);
            message["method"] == "initialize" && message["params"]["protocolVersion"] == "2025-03-26"
        };
        assert_eq!(server.seen_all().iter().filter(|request| begins(request)).count(), 2, "{case}");
    }
}

/// The rest of a call is in the session that it was made in. In the one that is begun for it meanwhile a server may look for
/// it for ever.
#[test]
fn the_rest_of_a_call_is_not_asked_for_in_a_session_that_was_begun_since() {
    const REVISION: &str = "2025-06-18";
    let (forget, end) = (Arc::<AtomicBool>::default(), Gate::default());
    let (forgets, ends) = (forget.clone(), end.clone());
    let server = Scripted::beginning_again(REVISION, move |request, stream| {
        let is_first = request.value("mcp-session-id") == Some(UPSTREAM_SESSION);
        if is_first && forgets.load(Ordering::SeqCst) {
            return scripted::json_with(stream, 404, "", "{}");
        }
        if request.method == "POST" && !is_first {
            return scripted::reply(stream, request, &json!({}));
        }
        scripted::begin_events(stream);
        if request.method == "POST" {
            let params = json!({"level": "info", "data": "begun"});
            let begun = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
            scripted::chunk(stream, &format!("retry: 50\nid: e1\ndata: {begun}\n\n"));
            ends.pass();
        } else {
            scripted::until_closed(stream);
        }
        scripted::write(stream, "0\r\n\r\n");
    });
    let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::of(&sidecar, None, REVISION);
    let mut call = client.stream("t", json!({}));
    assert_eq!(call.next().unwrap().message()["params"]["data"], "begun");
    forget.store(true, Ordering::SeqCst);
    assert_eq!(client.call("t", json!({}))["result"], json!({}));
    end.open();
    let lost = call.next().unwrap().message();
    assert_eq!(lost["error"]["code"], -32603, "{lost}");
    let asked = server.seen("GET");
    assert!(asked.iter().all(|get| get.value("last-event-id").is_none()), "{asked:?}");
    assert_eq!(client.call("t", json!({}))["result"], json!({}), "the session goes on");
}

/// By then there is another one, which a ping would find in order.
#[test]
fn a_call_that_hears_late_that_its_session_is_unknown_is_made_again_too() {
    const REVISION: &str = "2025-03-26";
    let (forget, late) = (Arc::<AtomicBool>::default(), Gate::default());
    let (forgets, waits) = (forget.clone(), late.clone());
    let server = Scripted::beginning_again(REVISION, move |request, stream| {
        let is_first = request.value("mcp-session-id") == Some(UPSTREAM_SESSION);
        if is_first && scripted::message(request)["params"]["name"] == "late" {
            waits.pass();
        }
        if is_first && forgets.load(Ordering::SeqCst) {
            return scripted::json_with(stream, 400, "", "{}");
        }
        scripted::reply(stream, request, &json!({}));
    });
    let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::of(&sidecar, None, REVISION);
    let call = client.begin(&json!({"name": "late"}));
    eventually("the server has it", || server.seen("tools/call").len() == 1);
    forget.store(true, Ordering::SeqCst);
    assert_eq!(client.call("t", json!({}))["result"], json!({}));
    late.open();
    let answer = Reply::on(call).message();
    assert_eq!(answer["result"], json!({}), "{answer}");
}

/// A client that goes takes nothing with it but its own end of the call.
#[test]
fn a_session_is_begun_again_by_a_call_whose_client_has_gone() {
    let gate = Gate::default();
    let forgets = gate.clone();
    let server = Scripted::start(move |request, stream| {
        if request.value("mcp-session-id") == Some(UPSTREAM_SESSION) {
            forgets.pass();
            return scripted::json_with(stream, 404, "", "{}");
        }
        scripted::reply(stream, request, &json!({}));
    });
    let sidecar = Sidecar::start(&on_loss(config(server.port), OnOwnerLoss::Reinitialize)).ready();
    let client = Client::of(&sidecar, None, "2025-11-25");
    let call = client.begin(&json!({"name": "t"}));
    eventually("the server has it", || server.seen("tools/call").len() == 1);
    drop(call);
    // Longer than a response waits before it begins: by then it is known that nobody is there.
    std::thread::sleep(Duration::from_millis(1_500));
    gate.open();
    eventually("it is made again", || {
        let calls =
            server.seen_all().into_iter().filter(|it| scripted::message(it)["method"] == "tools/call");
        calls.count() == 2
    });
    assert_eq!(client.call("t", json!({}))["result"], json!({}), "the session goes on");
}

/// Nothing else tells that such a server was restarted: it refuses no message of a session.
#[test]
fn what_a_client_has_set_is_set_again_also_where_the_server_gives_no_session_ids() {
    let pings = Arc::<Mutex<VecDeque<_>>>::default();
    let server = Scripted::nameless_pinging(json!({}), pings.clone(), |request, stream| {
        scripted::reply(stream, request, &json!({}));
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    set(&client);
    let heard = || {
        let heard = server.seen_all().into_iter().map(|request| scripted::method_of(&request));
        heard.filter(|method| method == "logging/setLevel" || method.starts_with("resources/")).collect()
    };
    let before: Vec<String> = heard();
    // The sidecar's own session is the only one that it had.
    pings.lock().unwrap().push_back((404, "{}"));
    let again = ["logging/setLevel", "resources/subscribe"];
    eventually("it is told again", || heard()[before.len()..] == again);
}

/// It may know less than the one before: a resource is gone, or it keeps no log.
#[test]
fn what_a_server_does_not_take_any_more_keeps_nothing_else_from_being_set_again() {
    for refuses in ["logging/setLevel", "a:gone"] {
        let (pings, is_new) = <(Arc<Mutex<VecDeque<_>>>, Arc<AtomicBool>)>::default();
        let refuse = is_new.clone();
        let server = Scripted::nameless_pinging(json!({}), pings.clone(), move |request, stream| {
            let message = scripted::message(request);
            let is_refused = message["method"] == refuses || message["params"]["uri"] == refuses;
            if !is_refused || !refuse.load(Ordering::SeqCst) {
                return scripted::reply(stream, request, &json!({}));
            }
            let error = json!({"code": -32602, "message": "no"});
            scripted::json(
                stream,
                &json!({"jsonrpc": "2.0", "id": message["id"], "error": error}).to_string(),
            );
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let client = Client::open(&sidecar, None);
        client.ask("logging/setLevel", json!({"level": "warning"}));
        let wanted = ["a:gone", "b:x", "c:x", "d:x", "e:x", "f:x"];
        for uri in wanted {
            client.ask("resources/subscribe", json!({"uri": uri}));
        }
        is_new.store(true, Ordering::SeqCst);
        pings.lock().unwrap().push_back((404, "{}"));
        eventually("all else is set again", || {
            let heard = server.seen_all().into_iter();
            let heard =
                heard.filter(|it| scripted::method_of(it) == "resources/subscribe").skip(wanted.len());
            let mut again: Vec<_> = heard.map(|it| scripted::message(&it)["params"]["uri"].clone()).collect();
            again.sort_by_key(ToString::to_string);
            again == wanted
        });
    }
}

/// Where such a server was restarted between two questions whether it is there, only a stream that breaks tells.
#[test]
fn what_a_client_has_set_is_set_again_where_a_stream_of_such_a_server_breaks() {
    let (end, has_ended) = (Gate::default(), AtomicBool::new(false));
    let ends = end.clone();
    let server = Scripted::nameless_listening(move |request, stream| {
        if request.method != "GET" {
            return scripted::reply(stream, request, &json!({}));
        }
        scripted::begin_events(stream);
        if has_ended.swap(true, Ordering::SeqCst) {
            scripted::until_closed(stream);
        } else {
            ends.pass();
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    set(&client);
    let heard = |method: &str| {
        let heard = server.seen_all().into_iter().map(|request| scripted::method_of(&request));
        heard.filter(|heard| heard.starts_with(method)).collect::<Vec<_>>()
    };
    let before = [heard("logging/"), heard("resources/")];
    let pings = heard("ping").len();
    eventually("it was asked whether it is there", || heard("ping").len() > pings);
    let pings = heard("ping").len();
    end.open();
    // Sooner than its turn would come.
    let asked = || heard("ping").len() > pings;
    within(Duration::from_secs(3), "it is asked whether it is there", asked);
    eventually("it is told again", || {
        let told = [heard("logging/"), heard("resources/")];
        let again = |which: usize| &told[which][before[which].len()..];
        again(0) == ["logging/setLevel"] && again(1) == ["resources/subscribe"]
    });
}

/// Many servers cut off whatever takes long, and are none the newer for it. All clients are told again, and once.
#[test]
fn what_clients_have_set_is_not_set_again_and_again_where_a_server_cuts_its_streams() {
    const CLIENTS: usize = 20;
    let (cut, subscriptions) = (Gate::default(), AtomicUsize::new(0));
    let cuts = cut.clone();
    let server = Scripted::nameless_listening(move |request, stream| {
        if request.method != "GET" {
            let sets = scripted::method_of(request) == "resources/subscribe";
            if sets && subscriptions.fetch_add(1, Ordering::SeqCst) >= CLIENTS {
                std::thread::sleep(Duration::from_millis(1_500));
            }
            return scripted::reply(stream, request, &json!({}));
        }
        scripted::begin_events(stream);
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
        scripted::say(stream, &note);
        cuts.pass();
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let clients = [(); CLIENTS].map(|()| Client::open(&sidecar, None));
    for (number, client) in clients.iter().enumerate() {
        client.ask("resources/subscribe", json!({"uri": format!("memo://{number}")}));
    }
    cut.open();
    let count = |method: &str| {
        let heard = server.seen_all().into_iter();
        heard.filter(|it| it.method == method || scripted::method_of(it) == method).count()
    };
    let told = || {
        let heard =
            server.seen_all().into_iter().filter(|it| scripted::method_of(it) == "resources/subscribe");
        let mut uris: Vec<_> =
            heard.skip(CLIENTS).map(|it| scripted::message(&it)["params"]["uri"].to_string()).collect();
        uris.sort();
        uris.dedup();
        uris.len()
    };
    // However often its streams break off meanwhile.
    within(Duration::from_secs(30), "all are told", || told() == CLIENTS);
    let (streams, before) = (count("GET"), count("resources/subscribe"));
    eventually("it has cut off some more", || count("GET") >= streams + 5);
    assert_eq!(count("resources/subscribe"), before, "they are not told again with each of them");
}
