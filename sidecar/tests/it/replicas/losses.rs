//! Replicas that die, and what becomes of their sessions.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::client::echo;
use crate::harness::config::{ALICE, callers, keys, on_loss};
use crate::harness::http::{Reply, connect};
use crate::harness::replicas::{Network, knows, with_peers};
use crate::harness::scripted::Greeting;
use crate::harness::{
    Client, Events, Files, Gate, GoServer, Request, Scripted, Sidecar, config, eventually, scripted,
};

#[test]
fn sessions_of_a_dead_pod_go_on_where_they_can() {
    for (flags, what, goes_on) in [
        (&["-stateless"][..], OnOwnerLoss::NotFound, true),
        (&[][..], OnOwnerLoss::Reinitialize, true),
        (&[][..], OnOwnerLoss::NotFound, false),
    ] {
        let mut servers = [(); 3].map(|()| GoServer::start(flags));
        let network = Network::new();
        let replicas = network.in_front_of(&on_loss(config(0), what), &servers);
        let lost = Client::open(&replicas[0], ALICE);
        let kept = Client::open(&replicas[1], ALICE);
        echo(&lost.through(&replicas[1]));
        // All processes of the pod at once, and DNS hears of it.
        replicas[0].signal(Signal::KILL);
        servers[0].kill();
        network.list(&[2, 3]);
        if goes_on {
            for round in 0..4 {
                echo(&lost.through(&replicas[1 + round % 2]));
            }
            let holders = [1, 2].map(|number| replicas[number].metric("longshore_sessions"));
            assert_eq!(holders.iter().sum::<f64>(), 2.0, "one replica holds it: {holders:?}");
        } else {
            for replica in &replicas[1..] {
                assert_eq!(lost.through(replica).send("ping", json!({})).status, 404);
            }
        }
        for replica in &replicas[1..] {
            echo(&kept.through(replica));
        }
    }
}

/// It was nowhere but at the pod that has left, so its client need not wait for a third one, which may be off for long.
#[test]
fn a_session_that_ends_with_its_pod_is_lost_also_while_another_pod_is_silent() {
    let servers = [(); 3].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::NotFound), &servers);
    let lost = Client::open(&replicas[0], ALICE);
    let kept = Client::open(&replicas[1], ALICE);
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    drop(hook);
    replicas[2].signal(Signal::STOP);
    network.list(&[2, 3]);
    // It is listed still.
    knows(&replicas[1], 0);
    assert_eq!(lost.through(&replicas[1]).send("ping", json!({})).status, 404);
    echo(&kept);
}

/// Its client begins anew, and finds a pod that has room.
#[test]
fn a_session_that_is_lost_is_lost_also_where_there_is_no_room() {
    let mut servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let mut config = on_loss(config(0), OnOwnerLoss::NotFound);
    config.sessions.per_principal = 1;
    let replicas = network.in_front_of(&config, &servers);
    let [lost, kept] = [0, 1].map(|number| Client::open(&replicas[number], ALICE));
    replicas[0].signal(Signal::KILL);
    servers[0].kill();
    network.list(&[2]);
    assert_eq!(lost.through(&replicas[1]).send("ping", json!({})).status, 404);
    echo(&kept);
}

/// The server of its next pod may be of another image, and know nobody to whom it gave no name.
#[test]
fn a_session_without_a_name_is_begun_again_at_a_server_that_gives_names() {
    const REVISION: &str = "2025-06-18";
    let nameless = Scripted::nameless(|request, stream| {
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let naming = Scripted::beginning_again(REVISION, |request, stream| {
        if request.method == "GET" {
            return scripted::no_stream(stream);
        }
        if request.value("mcp-session-id").is_none() {
            let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
            let id = &scripted::message(request)["id"];
            let refusal = json!({"jsonrpc": "2.0", "id": id, "error": error});
            return scripted::json_with(stream, 400, "", &refusal.to_string());
        }
        scripted::reply(stream, request, &json!({"content": []}));
    });
    let network = Network::new();
    let replicas = network.replicas(&config(0), &[nameless.port, naming.port]);
    let client = Client::of(&replicas[0], ALICE, REVISION);
    assert!(client.call("t", json!({}))["result"].is_object());
    replicas[0].signal(Signal::KILL);
    network.list(&[2]);
    let client = client.through(&replicas[1]);
    for _ in 0..2 {
        let message = client.call("t", json!({}));
        assert!(message["result"].is_object(), "{message}");
    }
    let begins = |it: &&Request| scripted::message(it)["params"]["protocolVersion"] == REVISION;
    assert_eq!(naming.seen_all().iter().filter(begins).count(), 1, "it is begun once");
    assert_eq!(replicas[1].metric("longshore_sessions"), 1.0);
}

/// Whoever goes on with a session has one more, and asks its server for one more.
#[test]
fn a_session_that_is_begun_again_counts_like_a_new_one() {
    for (per_principal, total, holder, status) in [(1, 10, ALICE, 429), (1, 1, Some("key-b"), 503)] {
        let mut servers = [(); 2].map(|()| GoServer::start(&[]));
        let network = Network::new();
        let mut config = on_loss(config(0), OnOwnerLoss::Reinitialize);
        (config.sessions.per_principal, config.sessions.total) = (per_principal, total);
        let replicas = network.in_front_of(&config, &servers);
        let lost = Client::open(&replicas[0], ALICE);
        let other = Client::open(&replicas[1], holder);
        replicas[0].signal(Signal::KILL);
        servers[0].kill();
        network.list(&[2]);
        let lost = lost.through(&replicas[1]);
        for _ in 0..2 {
            let refused = lost.send("ping", json!({}));
            assert_eq!(refused.status, status, "{}", refused.text());
        }
        echo(&other);
        assert_eq!(replicas[1].metric("longshore_sessions"), 1.0);
        // It is not lost for that: there may be room later.
        assert_eq!(other.end().status, 204);
        echo(&lost);
        assert_eq!(replicas[1].metric("longshore_sessions"), 1.0);
    }
}

#[test]
fn another_pod_at_the_address_is_not_the_owner() {
    let servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    replicas[0].signal(Signal::KILL);
    let _ = replicas[0].wait(std::time::Duration::from_secs(5));
    let files = Files::new();
    files.write_with_keys(&with_peers(&config(servers[0].port)), &callers());
    let newcomer = network.start_again(1, "pod-9", files).ready();
    knows(&newcomer, 1);
    knows(&replicas[1], 1);
    for replica in [&replicas[1], &newcomer, &replicas[1]] {
        echo(&client.through(replica));
    }
    let holders = [&replicas[1], &newcomer].map(|replica| replica.metric("longshore_sessions"));
    assert_eq!(holders.iter().sum::<f64>(), 1.0, "{holders:?}");
}

/// What a client says of itself is in the id of its session, if there is room. What another pod does not know it cannot
/// tell its server.
#[test]
fn a_session_whose_client_says_too_much_lives_as_long_as_its_pod() {
    let large = json!({"experimental": {"example.com/x": {"text": "x".repeat(900)}}});
    for drains in [false, true] {
        let mut servers = [(); 3].map(|()| GoServer::start(&[]));
        let network = Network::new();
        let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
        let open = |can| Client::with_capabilities(&replicas[0], ALICE, "2025-11-25", &can);
        let (lost, kept) = (open(large.clone()), open(json!({"roots": {}})));
        for client in [&lost, &kept] {
            replicas.iter().for_each(|replica| echo(&client.through(replica)));
        }
        // Its server alone is no loss: this pod knows what the client said.
        servers[0].kill();
        servers[0].start_again();
        for client in [&lost, &kept] {
            let call = json!({"name": "echo", "arguments": {"text": "a"}});
            eventually("it goes on", || {
                let reply = client.send("tools/call", call.clone());
                assert_eq!(reply.status, 200, "{}", reply.text());
                reply.message()["result"].is_object()
            });
        }
        if drains {
            let hook = replicas[0].hook();
            replicas[0].signal(Signal::TERM);
            let handed = replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
            assert_eq!(handed["sessions"], 1, "the other one stays while its pod does");
            assert!(replicas[0].wait(std::time::Duration::from_secs(20)).success());
            drop(hook);
        } else {
            replicas[0].signal(Signal::KILL);
        }
        servers[0].kill();
        network.list(&[2, 3]);
        for replica in &replicas[1..] {
            assert_eq!(lost.through(replica).send("ping", json!({})).status, 404, "drains: {drains}");
            echo(&kept.through(replica));
        }
        let held: f64 = replicas[1..].iter().map(|replica| replica.metric("longshore_sessions")).sum();
        assert_eq!(held, 1.0, "drains: {drains}");
    }
}

/// To find it takes as long as its new server needs to greet it. Who has the key by then is somebody else, or nobody.
#[test]
fn a_session_that_is_found_late_is_only_its_own_principals() {
    const REVISION: &str = "2025-03-26";
    for (then, status) in [("alice", 200), ("bob", 404), ("carol", 401)] {
        let gate = Gate::default();
        let lost = GoServer::start(&[]);
        let greeting = Greeting::At(gate.clone());
        let next = Scripted::greeting_again(REVISION, greeting, |_, stream| scripted::no_stream(stream));
        let network = Network::new();
        let mut config = on_loss(config(next.port), OnOwnerLoss::Reinitialize);
        let replicas = network.replicas(&config, &[lost.port, next.port]);
        let client = Client::of(&replicas[0], ALICE, REVISION);
        replicas[0].signal(Signal::KILL);
        network.list(&[2]);
        let mut stream = connect(replicas[1].mcp);
        client.request(client.message("ping", &json!({}))).write(&mut stream);
        let begins = |it: &Request| scripted::message(it)["params"]["protocolVersion"] == REVISION;
        eventually("it is looked for", || next.seen_all().iter().any(begins));
        let key = if then == "carol" { "key-c" } else { "key-a" };
        // Another rule is another configuration, whoever has the key.
        config.limits.request_timeout_ms += 1;
        let digest = replicas[1].files.write_with_keys(&with_peers(&config), &keys(&[(then, key)]));
        replicas[1].runs(&digest);
        gate.open();
        let reply = Reply::on(stream);
        assert_eq!(reply.status, status, "{then}: {}", reply.text());
    }
}

/// The same where it is its own replica that is found, which looks at no key.
#[test]
fn a_session_that_is_found_late_at_another_replica_is_only_its_own_principals() {
    for (then, status) in [("alice", 200), ("bob", 404), ("carol", 401)] {
        let servers = [(); 2].map(|()| GoServer::start(&[]));
        let network = Network::new();
        let mut config = config(servers[1].port);
        let replicas = network.in_front_of(&config, &servers);
        let client = Client::open(&replicas[0], ALICE);
        let unreachable = || replicas[1].metric("longshore_forwarded_requests_total{result=\"unreachable\"}");
        // Where there was a connection to the stopped one, idle, a request waits there for its answer: each time there is one
        // more. And one that is known to be silent is asked for nothing.
        let mut number = 0;
        let streams = eventually("one is looked for", || {
            replicas[0].signal(Signal::CONT);
            knows(&replicas[1], 1);
            let before = unreachable();
            replicas[0].signal(Signal::STOP);
            number += 1;
            let mut streams: Vec<_> = (0..number).map(|_| connect(replicas[1].mcp)).collect();
            for stream in &mut streams {
                client.request(client.message("ping", &json!({}))).write(stream);
            }
            let is_looked_for = (0..60).any(|_| {
                std::thread::sleep(Duration::from_millis(100));
                unreachable() > before
            });
            is_looked_for.then_some(streams)
        });
        let key = if then == "carol" { "key-c" } else { "key-a" };
        // Another rule is another configuration, whoever has the key.
        config.limits.request_timeout_ms += 1;
        let digest = replicas[1].files.write_with_keys(&with_peers(&config), &keys(&[(then, key)]));
        replicas[1].runs(&digest);
        replicas[0].signal(Signal::CONT);
        let replies: Vec<_> = streams.iter().map(|stream| Reply::on(stream).status).collect();
        assert!(replies.contains(&status), "{then}: {replies:?}");
    }
}

/// Such a server may remember all the same what its clients have set, and the one in another pod was told nothing.
#[test]
fn what_was_set_is_set_again_also_where_servers_do_not_tell_clients_apart() {
    let servers = takers();
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::NotFound), &servers);
    let client = Client::open(&replicas[0], ALICE);
    client.ask("logging/setLevel", json!({"level": "warning"}));
    client.ask("resources/subscribe", json!({"uri": "file:///a"}));
    eventually("the other one keeps it", || replicas[0].copied(2) > 0);
    replicas[0].signal(Signal::KILL);
    network.list(&[2]);
    client.through(&replicas[1]).call("t", json!({}));
    let heard = servers[1].seen_all();
    let heard = heard.iter().map(|request| scripted::message(request)["method"].clone());
    let heard: Vec<_> = heard.filter(|method| method != "ping" && method != "initialize").collect();
    let last = &heard[heard.len() - 3..];
    assert_eq!(last, ["logging/setLevel", "resources/subscribe", "tools/call"]);
}

/// The first replica's next process in its pod, once both know each other.
fn comes_back(network: &Network, first: Sidecar, second: &Sidecar) -> Sidecar {
    let files = first.files.clone();
    drop(first);
    let first = network.start_again(1, "pod-1", files).ready();
    knows(&first, 1);
    knows(second, 1);
    first
}

/// Also where that was at another replica, and the session comes back to the one that has opened it.
#[test]
fn what_was_set_elsewhere_is_set_again_where_its_session_was_opened() {
    let servers = takers();
    let network = Network::new();
    let mut replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::NotFound), &servers);
    let (second, first) = (replicas.pop().unwrap(), replicas.pop().unwrap());
    let session = Client::open(&first, ALICE).session.clone();
    first.signal(Signal::KILL);
    network.list(&[2]);
    let client = Client::in_session(&second, &session).with_key("key-a");
    client.ask("resources/subscribe", json!({"uri": "file:///a"}));
    network.list(&[1, 2]);
    let first = comes_back(&network, first, &second);
    let _hook = second.hook();
    second.signal(Signal::TERM);
    second.log(|line| line["message"] == "sessions were handed to other replicas");
    client.through(&first).call("t", json!({}));
    let told = || servers[0].seen("resources/subscribe").len();
    eventually("it is told", || told() == 1);
}

/// And where its sidecar dies, whose server may have died with it.
#[test]
fn what_was_set_is_set_again_by_the_sidecar_that_comes_after_one() {
    let servers = takers();
    let network = Network::new();
    let mut replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::NotFound), &servers);
    let (second, first) = (replicas.pop().unwrap(), replicas.pop().unwrap());
    let client = Client::open(&first, ALICE);
    client.ask("resources/subscribe", json!({"uri": "file:///a"}));
    let session = client.session.clone();
    eventually("the other one keeps it", || first.copied(1) > 0);
    first.signal(Signal::KILL);
    let first = comes_back(&network, first, &second);
    Client::in_session(&first, &session).with_key("key-a").call("t", json!({}));
    let told = || servers[0].seen("resources/subscribe").len();
    eventually("it is told again", || told() == 2);
}

/// Servers that do not tell clients apart, and take whatever they are told.
fn takers() -> [Scripted; 2] {
    [(); 2].map(|()| {
        Scripted::nameless(|request, stream| scripted::reply(stream, request, &json!({"content": []})))
    })
}

/// Nobody else would tell it: it is there again, and nobody listens.
#[test]
fn what_was_set_is_set_once_more_where_the_server_was_gone_before_it_had_all() {
    let was_gone = AtomicBool::new(false);
    let servers = [
        Scripted::nameless(|request, stream| scripted::reply(stream, request, &json!({}))),
        Scripted::nameless(move |request, stream| {
            let is_set = scripted::method_of(request) == "resources/subscribe";
            if is_set && !was_gone.swap(true, Ordering::SeqCst) {
                let _ = stream.shutdown(Shutdown::Both);
            } else {
                scripted::reply(stream, request, &json!({}));
            }
        }),
    ];
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::NotFound), &servers);
    let client = Client::open(&replicas[0], ALICE);
    client.ask("resources/subscribe", json!({"uri": "file:///a"}));
    eventually("the other one keeps it", || replicas[0].copied(1) > 0);
    replicas[0].signal(Signal::KILL);
    network.list(&[2]);
    client.through(&replicas[1]).send("ping", json!({}));
    eventually("it is told again", || servers[1].seen("resources/subscribe").len() == 2);
}

/// Also those that have to wait for their turns, and whose clients listen meanwhile: it is not done once more for them.
#[test]
fn what_was_set_in_a_crowd_is_set_again_once_by_who_takes_its_sessions_over() {
    // More than are set at once.
    const CLIENTS: usize = 10;
    let servers = [0, 3].map(|seconds| {
        Scripted::nameless_listening(move |request, stream| {
            if request.method == "GET" {
                return scripted::stays_open(stream);
            }
            if scripted::method_of(request) == "resources/subscribe" {
                std::thread::sleep(Duration::from_secs(seconds));
            }
            scripted::reply(stream, request, &json!({}));
        })
    });
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::NotFound), &servers);
    let clients = [(); CLIENTS].map(|()| Client::open(&replicas[0], ALICE));
    for (number, client) in clients.iter().enumerate() {
        client.ask("resources/subscribe", json!({"uri": format!("file:///{number}")}));
    }
    eventually("the other one keeps it", || replicas[0].copied(1) >= CLIENTS);
    replicas[0].signal(Signal::KILL);
    network.list(&[2]);
    std::thread::scope(|scope| {
        for client in &clients {
            let (get, to) = (client.through(&replicas[1]).get(), replicas[1].mcp);
            scope.spawn(move || {
                let mut events = Events::open(&get, to);
                // Long enough for what would follow.
                events.patience(Duration::from_secs(5));
                while events.try_any().is_ok_and(|event| event.is_some()) {}
            });
        }
    });
    assert_eq!(servers[1].seen("resources/subscribe").len(), CLIENTS);
}
