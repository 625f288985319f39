//! Clients of revisions that do not know of streams which end early, where pods end: some of them come back only to a
//! stream that has broken off.

use std::io::ErrorKind;
use std::time::Duration;

use longshore_sidecar_config::{Config, OnOwnerLoss, Upstream};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::config::{ALICE, keys, on_loss};
use crate::harness::replicas::{Network, with_peers};
use crate::harness::{
    Client, Event, Events, Gate, GoServer, Scripted, Sidecar, config, eventually, scripted,
};

const OLD: &str = "2025-06-18";
const LOST: &str = "longshore_forwarded_requests_total{result=\"lost\"}";

/// A server without sessions that has a stream, in which it says nothing, and answers when the gate is open.
fn server(gate: &Gate) -> Scripted {
    let gate = gate.clone();
    Scripted::nameless_offering(json!({"tools": {"listChanged": true}}), move |request, stream| {
        match scripted::method_of(request).as_str() {
            "tools/call" => gate.pass(),
            "tools/list" => return scripted::reply(stream, request, &json!({"tools": []})),
            _ => return scripted::stays_open(stream),
        }
        scripted::reply(stream, request, &json!({"content": []}));
    })
}

fn listen(client: &Client<'_>, by: &Sidecar) -> Events {
    let events = Events::open(&client.get(), by.mcp);
    assert_eq!(events.status, 200);
    events
}

fn breaks_off(mut events: Events) {
    assert_eq!(events.try_any().expect_err("it breaks off").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn who_listens_is_broken_off_where_a_session_moves_and_not_where_it_ends_for_its_client() {
    let gate = Gate::default();
    let servers = [(); 2].map(|()| server(&gate));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::of(&replicas[0], ALICE, OLD);
    std::thread::scope(|scope| {
        let message = client.message("tools/call", &json!({"name": "t"}));
        let (call, owner) = (client.request(message), replicas[0].mcp);
        let call = scope.spawn(move || call.send(owner).status);
        eventually("it is under way", || servers[0].seen("tools/call").pop());
        let far = listen(&client, &replicas[1]);
        let hook = replicas[0].hook();
        replicas[0].signal(Signal::TERM);
        breaks_off(far);
        // Until the call has ended the session is where it was.
        let near = listen(&client, &replicas[0]);
        gate.open();
        assert_eq!(call.join().unwrap(), 200);
        breaks_off(near);
        eventually("it has moved", || replicas[1].metric("longshore_sessions") == 1.0);
        drop(hook);
    });
    assert_eq!(replicas[1].metric(LOST), 0.0, "nothing of it is lost");
    assert!(!replicas[1].is_audited(|line| line["reason"] == "replica broke off"));
    let mut last = listen(&client, &replicas[1]);
    // Nobody has heard what the server said meanwhile, and the client knows of no id to come back with.
    assert_eq!(last.next().unwrap().message()["method"], "notifications/tools/list_changed");
    let without: Config = with_peers(&config(servers[1].port));
    let digest = replicas[1].files.write_with_keys(&without, &keys(&[("bob", "key-b")]));
    replicas[1].runs(&digest);
    assert!(last.next().is_none(), "whoever may not listen any more need not come back");
}

#[test]
fn who_listens_by_way_of_a_pod_that_ends_comes_back_by_another() {
    for (revision, breaks) in [(OLD, true), ("2025-11-25", false)] {
        let servers = [(); 2].map(|()| server(&Gate::default()));
        let network = Network::new();
        let replicas = network.in_front_of(&config(0), &servers);
        let client = Client::of(&replicas[1], ALICE, revision);
        let mut far = listen(&client, &replicas[0]);
        let hook = replicas[0].hook();
        replicas[0].signal(Signal::TERM);
        if breaks {
            breaks_off(far);
        } else {
            while far.any().is_some() {}
        }
        drop(hook);
    }
}

/// Nothing was done there that could be done twice.
#[test]
fn who_asks_for_a_stream_of_a_pod_that_dies_gets_it_from_another() {
    let silent = Gate::default();
    let waits = silent.clone();
    let offers = || json!({"tools": {"listChanged": true}});
    let opens_late = Scripted::nameless_offering(offers(), move |request, stream| {
        if request.method == "GET" {
            return waits.pass();
        }
        scripted::reply(stream, request, &json!({"tools": []}));
    });
    let other = server(&Gate::default());
    let network = Network::new();
    let replicas = network.replicas(&config(0), &[opens_late.port, other.port]);
    let client = Client::of(&replicas[0], ALICE, OLD);
    let (get, mcp) = (client.get(), replicas[1].mcp);
    let far = std::thread::spawn(move || Events::open(&get, mcp));
    eventually("the server is asked", || opens_late.seen("GET").pop());
    replicas[0].signal(Signal::KILL);
    network.list(&[2]);
    assert_eq!(far.join().unwrap().status, 200);
    assert_eq!(replicas[1].metric(LOST), 0.0);
    assert!(!replicas[1].is_audited(|line| line["reason"] == "replica broke off"));
    silent.open();
}

/// The pod that is asked waits for the server, however short calls are.
#[test]
fn who_asks_for_a_stream_that_opens_late_gets_it_by_way_of_another_pod() {
    let offers = || json!({"tools": {"listChanged": true}});
    let servers = [(); 2].map(|()| {
        Scripted::nameless_offering(offers(), |request, stream| {
            if request.method == "POST" {
                return scripted::reply(stream, request, &json!({"tools": []}));
            }
            std::thread::sleep(Duration::from_secs(7));
            scripted::stays_open(stream);
        })
    });
    let network = Network::new();
    let mut config = config(0);
    config.limits.request_timeout_ms = 500;
    let replicas = network.in_front_of(&config, &servers);
    let client = Client::of(&replicas[0], ALICE, OLD);
    listen(&client, &replicas[1]);
    assert_eq!(replicas[1].metric(LOST), 0.0);
}

/// As where it goes once they listen: many clients give up where they are answered with anything else.
#[test]
fn who_listens_waits_for_a_server_that_is_still_to_begin_the_session_again() {
    for (revision, is_revoked) in [(OLD, false), ("2025-11-25", false), (OLD, true)] {
        let mut servers = [(); 2].map(|()| GoServer::start(&[]));
        let network = Network::new();
        let config = on_loss(config(0), OnOwnerLoss::Reinitialize);
        let replicas = network.in_front_of(&config, &servers);
        let client = Client::of(&replicas[0], ALICE, revision);
        replicas[0].signal(Signal::KILL);
        servers.iter_mut().for_each(GoServer::kill);
        network.list(&[2]);
        eventually("it is missed", || replicas[1].metric("longshore_server_connected") == 0.0);
        let mut stream = listen(&client, &replicas[1]);
        let line = replicas[1].audit(|line| line["method"] == "GET");
        assert_eq!((&line["decision"], &line["status"]), (&json!("permit"), &json!(200)));
        assert_eq!(replicas[1].metric("longshore_sessions"), 0.0, "it is still to be begun");
        if is_revoked {
            let upstream = Upstream::StreamableHttp { port: servers[1].port, path: "/mcp".to_owned() };
            let without = with_peers(&Config { upstream, ..config });
            replicas[1].files.write_with_keys(&without, &keys(&[("bob", "key-b")]));
            assert!(stream.next().is_none(), "whoever may not listen any more need not come back");
            continue;
        }
        servers[1].start_again();
        stream.patience(Duration::from_secs(30));
        let told = stream.next().expect("it goes on").message();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{revision}");
        assert_eq!(replicas[1].metric("longshore_sessions"), 1.0);
        stream.patience(Duration::from_millis(200));
        eventually("it is heard", || {
            client.through(&replicas[1]).call("grow", json!({"name": "new"}));
            stream.try_any().ok()?.filter(Event::has_messages)
        });
    }
}
