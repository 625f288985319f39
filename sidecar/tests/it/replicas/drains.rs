//! Pods that end in an orderly way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longshore_sidecar_config::OnOwnerLoss;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::config::{ALICE, keys, on_loss};
use crate::harness::http::{Reply, connect};
use crate::harness::replicas::{Network, with_peers};
use crate::harness::scripted::Greeting;
use crate::harness::{
    Client, Events, Gate, GoServer, Over, Request, Scripted, Sidecar, client, config, eventually, modern,
    scripted,
};

#[test]
fn a_pod_that_ends_hands_its_sessions_over_and_loses_no_call() {
    for (flags, what) in [(&["-stateless"][..], OnOwnerLoss::NotFound), (&[][..], OnOwnerLoss::Reinitialize)]
    {
        let mut servers = [(); 3].map(|()| GoServer::start(flags));
        let network = Network::new();
        let replicas = network.in_front_of(&on_loss(config(0), what), &servers);
        let (done, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        let sessions: Vec<_> = (0..12).map(|_| Client::open(&replicas[0], ALICE).session).collect();
        std::thread::scope(|scope| {
            let _over = Over(&done);
            for (number, session) in sessions.iter().enumerate() {
                let (replicas, done, calls) = (&replicas, &done, &calls);
                scope.spawn(move || {
                    let mut client = Client::open(&replicas[1 + number % 2], ALICE);
                    client.session.clone_from(session);
                    for round in 0.. {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        // Some calls are under way when it happens.
                        let tool = json!({"name": "slow", "arguments": {"milliseconds": 10 * (number % 4)}});
                        let reply = client.send("tools/call", tool);
                        let message = reply.message();
                        assert_eq!(reply.status, 200, "{number} in round {round}: {message}");
                        assert!(message["result"].is_object(), "{number} in round {round}: {message}");
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let more = |calls: &AtomicUsize| {
                let until = calls.load(Ordering::Relaxed) + 24;
                eventually("they call", || calls.load(Ordering::Relaxed) >= until);
            };
            more(&calls);
            let hook = replicas[0].hook();
            replicas[0].signal(Signal::TERM);
            // New sessions begin where they can stay.
            eventually("a session is begun elsewhere", || {
                let begin = Request::post(client::initialize("2025-11-25")).key("key-a");
                begin.send(replicas[0].mcp).status == 200
            });
            replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
            assert!(replicas[0].wait(Duration::from_secs(20)).success());
            drop(hook);
            servers[0].kill();
            network.list(&[2, 3]);
            more(&calls);
        });
        let held = [1, 2].map(|number| replicas[number].metric("longshore_sessions"));
        // Theirs, those that each thread opened, and the one that began in the drain.
        assert_eq!(held.iter().sum::<f64>(), 12.0 + 12.0 + 1.0, "{held:?}");
    }
}

/// A rollout that hangs: the server of the new pod dies soon after each start, and the good one before it ends all the same.
#[test]
fn a_pod_whose_server_dies_soon_is_given_nothing_where_another_serves() {
    let is_shown = || {
        let began = Instant::now();
        let mut servers = [(); 3].map(|()| GoServer::start(&["-stateless"]));
        let network = Network::new();
        let replicas = network.in_front_of(&config(0), &servers);
        servers[1].kill();
        eventually("it is seen", || replicas[1].metric("longshore_server_connected") == 0.0);
        if began.elapsed() > Duration::from_secs(9) {
            // A server that was there for so long is believed soon.
            return false;
        }
        assert_eq!(replicas[1].get("/readyz").status, 503, "clients are not sent there");
        servers[1].start_again();
        let sessions: Vec<_> = (0..12).map(|_| Client::open(&replicas[0], ALICE).session).collect();
        let hook = replicas[0].hook();
        replicas[0].signal(Signal::TERM);
        let moved = |replica: &Sidecar| replica.metric("longshore_sessions");
        eventually("they have moved", || moved(&replicas[0]) == 0.0);
        for _ in 0..4 {
            let begin = Request::post(client::initialize("2025-11-25")).key("key-a");
            assert_eq!(begin.send(replicas[0].mcp).status, 200);
        }
        for session in sessions {
            Client::in_session(&replicas[2], &session).with_key("key-a").call("echo", json!({"text": "e"}));
        }
        assert_eq!([moved(&replicas[1]), moved(&replicas[2])], [0.0, 16.0]);
        drop(hook);
        true
    };
    assert!((0..5).any(|_| is_shown()), "the machine is too slow each time");
}

/// What one principal may have of a pod is taken at another one.
#[test]
fn sessions_move_where_there_is_room() {
    const OWN: u32 = 8;
    let servers = [(); 3].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let mut config = config(0);
    config.sessions.per_principal = OWN;
    let replicas = network.in_front_of(&config, &servers);
    let [leaves, full, free] = &replicas[..] else { panic!("three replicas") };
    let open = |replica| (0..OWN).map(|_| Client::open(replica, ALICE).session).collect::<Vec<_>>();
    let (sessions, _) = (open(leaves), open(full));
    let hook = leaves.hook();
    leaves.signal(Signal::TERM);
    let has = |replica: &Sidecar| replica.metric("longshore_sessions");
    eventually("they have moved", || has(free) == f64::from(OWN));
    for session in sessions {
        Client::in_session(full, &session).with_key("key-a").call("echo", json!({"text": "e"}));
    }
    assert_eq!([full, free].map(has), [f64::from(OWN); 2]);
    drop(hook);
}

/// As with a single replica whose pod is deleted: the next one is there a little later.
#[test]
fn sessions_wait_for_somebody_who_takes_them() {
    let gate = Gate::default();
    let servers = [(); 2].map(|()| {
        let gate = gate.clone();
        Scripted::start(move |request, stream| {
            gate.pass();
            scripted::reply(stream, request, &json!({"content": []}));
        })
    });
    let network = Network::new();
    let mut config = on_loss(config(0), OnOwnerLoss::Reinitialize);
    config.limits.request_timeout_ms = 60_000;
    let replicas = network.replicas(&config, &[servers[0].port]);
    let (idle, busy) = (Client::open(&replicas[0], ALICE), Client::open(&replicas[0], ALICE));
    std::thread::scope(|scope| {
        let (entry, session) = (&replicas[0], &busy.session);
        let call = scope.spawn(move || {
            let client = Client::in_session(entry, session).with_key("key-a");
            client.call("t", json!({}))
        });
        eventually("the call is under way", || replicas[0].metric("longshore_calls") == 1.0);
        let hook = replicas[0].hook();
        replicas[0].signal(Signal::TERM);
        replicas[0].log(|line| line["message"] == "draining");
        if let longshore_sidecar_config::Upstream::StreamableHttp { port, .. } = &mut config.upstream {
            *port = servers[1].port;
        }
        network.list(&[1, 2]);
        let next = network.start(2, &config).ready();
        eventually("it has the idle one", || next.metric("longshore_sessions") == 1.0);
        gate.open();
        eventually("it has both", || next.metric("longshore_sessions") == 2.0);
        assert_eq!(idle.through(&next).send("ping", json!({})).status, 200);
        assert!(call.join().unwrap()["result"].is_object());
        assert!(replicas[0].wait(Duration::from_secs(10)).success());
        drop(hook);
    });
    replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
}

/// When nothing else is to move, what is about to begin is waited for.
#[test]
fn a_session_whose_handshake_is_under_way_moves_too() {
    let gate = Gate::default();
    let servers = [
        Scripted::greeting(&gate, |_, stream| scripted::no_stream(stream)),
        Scripted::start(|_, stream| scripted::no_stream(stream)),
    ];
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
    let mut stream = connect(replicas[0].mcp);
    Request::post(client::initialize("2025-11-25")).key("key-a").write(&mut stream);
    eventually("the server has it", || servers[0].seen("initialize").len() == 1);
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    let drains = "longshore_replicas{state=\"draining\"}";
    eventually("it moves what it has", || replicas[1].metric(drains) == 1.0);
    // It has looked by then whether there is anything.
    std::thread::sleep(Duration::from_millis(500));
    gate.open();
    let reply = Reply::on(stream);
    assert_eq!(reply.status, 200, "{}", reply.text());
    eventually("it has moved", || replicas[1].metric("longshore_sessions") == 1.0);
    let session = reply.header("mcp-session-id").unwrap();
    let client = Client::in_session(&replicas[1], session).with_key("key-a");
    assert_eq!(client.send("ping", json!({})).status, 200);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    drop(hook);
}

/// It was handed to a pod that ends too before it has begun it with its server.
#[test]
fn a_session_that_is_being_taken_over_moves_on() {
    const REVISION: &str = "2025-03-26";
    let gates = [(); 3].map(|()| Gate::default());
    let servers = gates.each_ref().map(|gate| {
        let greeting = Greeting::At(gate.clone());
        Scripted::greeting_again(REVISION, greeting, |_, stream| scripted::no_stream(stream))
    });
    let network = Network::ending_slowly();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
    let client = Client::of(&replicas[0], ALICE, REVISION);
    let ends = |number: usize| {
        let hook = replicas[number].hook();
        replicas[number].signal(Signal::TERM);
        hook
    };
    let _first = ends(0);
    let begins = |server: &Scripted| {
        let begins = |it: &Request| scripted::message(it)["params"]["protocolVersion"] == REVISION;
        server.seen_all().iter().any(begins)
    };
    let takes = eventually("somebody takes it", || (1..3).find(|number| begins(&servers[*number])));
    let other = 3 - takes;
    gates[other].open();
    let _second = ends(takes);
    let drains = "longshore_replicas{state=\"draining\"}";
    eventually("it moves what it has", || replicas[other].metric(drains) == 2.0);
    // It has looked by then whether there is anything.
    std::thread::sleep(Duration::from_millis(500));
    gates[takes].open();
    eventually("it has moved", || replicas[other].metric("longshore_sessions") == 1.0);
    assert_eq!(client.through(&replicas[other]).send("ping", json!({})).status, 200);
}

/// A client comes back to its stream at another pod, hears that what was said meanwhile may have been this, and goes on there.
#[test]
fn the_stream_of_a_session_that_moves_goes_on_elsewhere() {
    let hears = |stream: &mut Events| {
        let changed = "notifications/tools/list_changed";
        while stream.next().unwrap().message()["method"] != changed {}
    };
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::new();
    let replicas = network.in_front_of(&on_loss(config(0), OnOwnerLoss::Reinitialize), &servers);
    let clients = [(); 2].map(|()| Client::open(&replicas[0], ALICE));
    let mut streams = clients.each_ref().map(|client| Events::open(&client.get(), replicas[0].mcp));
    clients[0].call("grow", json!({"name": "new"}));
    streams.iter_mut().for_each(hears);
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    for stream in &mut streams {
        assert_eq!(stream.any().unwrap().retry, Some(1000));
        assert!(stream.any().is_none());
    }
    replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
    eventually("they are there", || replicas[1].metric("longshore_sessions") == 2.0);
    let [first, second] = &clients;
    let mut again = Events::open(&first.rest(&streams[0].last), replicas[1].mcp);
    assert_eq!(again.status, 200);
    hears(&mut again);
    first.through(&replicas[1]).call("grow", json!({"name": "newer"}));
    hears(&mut again);
    // Whichever event of the former pod it was.
    let (prefix, number) = streams[1].last.rsplit_once('-').unwrap();
    let before = format!("{prefix}-{}", number.parse::<u64>().unwrap() - 1);
    for (client, last) in [(second, &before), (first, &streams[0].last)] {
        let mut anew = Events::open(&client.rest(last), replicas[1].mcp);
        assert_eq!(anew.status, 200);
        hears(&mut anew);
    }
    drop(again);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    drop(hook);
}

/// It needs no place of a session, so those that have none left serve it too.
#[test]
fn what_stands_alone_is_taken_to_all_others_in_a_drain() {
    let servers = [(); 3].map(|()| {
        Scripted::of_both(json!({}), |request, stream| {
            scripted::reply(stream, request, &json!({"resultType": "complete", "content": []}));
        })
    });
    let network = Network::new();
    let mut config = config(0);
    config.sessions.total = 1;
    let replicas = network.in_front_of(&config, &servers);
    let _full = Client::open(&replicas[1], ALICE);
    // By then it has said that it is full.
    std::thread::sleep(Duration::from_secs(2));
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "draining");
    for _ in 0..4 {
        let call = modern::request(1, "tools/call", json!({"name": "t"})).key("key-a");
        assert_eq!(call.send(replicas[0].mcp).status, 200);
    }
    assert_eq!(servers.each_ref().map(|server| server.seen("tools/call").len()), [0, 2, 2]);
    drop(hook);
}

/// What stands alone is served by a replica that goes on, and a drain does not wait for who only listens.
#[test]
fn what_stands_alone_is_taken_elsewhere_in_a_drain() {
    let gone = Arc::new(AtomicBool::new(false));
    let servers = [(); 2].map(|()| {
        let gone = gone.clone();
        Scripted::of_both(json!({}), move |request, stream| {
            let message = scripted::message(request);
            if message["method"] == "subscriptions/listen" {
                let told = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"});
                scripted::begin_events(stream);
                scripted::say(stream, &told);
                scripted::until_closed(stream);
            } else if message["params"]["name"] == "hang" {
                scripted::until_closed(stream);
                gone.store(true, Ordering::SeqCst);
            } else {
                scripted::reply(stream, request, &json!({"resultType": "complete"}));
            }
        })
    });
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let call = || modern::request(1, "tools/call", json!({"name": "t"})).key("key-a").send(replicas[0].mcp);
    let listen = || {
        let params = json!({"notifications": {"toolsListChanged": true}});
        Events::open(&modern::request("l", "subscriptions/listen", params).key("key-a"), replicas[0].mcp)
    };
    assert_eq!(call().status, 200);
    let mut before = listen();
    before.next().unwrap();
    let seen = || servers.each_ref().map(|server| server.seen("tools/call").len());
    assert_eq!(seen(), [1, 0]);

    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    assert_eq!(before.next().unwrap().message()["result"]["resultType"], "complete");
    assert!(before.next().is_none(), "it ends in order");
    assert_eq!(call().status, 200);
    assert_eq!(seen(), [1, 1]);
    // Whoever goes takes a call back, also by way of another replica.
    let mut given_up = connect(replicas[0].mcp);
    modern::request(1, "tools/call", json!({"name": "hang"})).key("key-a").write(&mut given_up);
    eventually("the server has it", || seen() == [1, 2]);
    drop(given_up);
    eventually("the server hears of it", || gone.load(Ordering::SeqCst));
    let mut during = listen();
    assert_eq!(during.next().unwrap().message()["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(servers[1].seen("subscriptions/listen").len(), 1);
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    let end = during.next().unwrap().message();
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!("l"), &json!("complete")), "{end}");
    assert!(during.next().is_none(), "it ends in order");
    // The replica that had the call has its line, and no other.
    let line = replicas[1].audit(|line| line["target"] == "hang");
    assert_eq!((&line["decision"], &line["status"]), (&json!("permit"), &Value::Null), "{line}");
    assert!(!replicas[0].is_audited(|line| line["status"].is_null()), "{}", replicas[0].written());
    drop(hook);
}

/// The hook of a server that is crash-looping never runs.
#[test]
fn a_pod_whose_server_is_gone_hands_its_sessions_over_too() {
    let mut servers = [(); 2].map(|()| GoServer::start(&["-stateless"]));
    let network = Network::new();
    let replicas = network.in_front_of(&config(0), &servers);
    let client = Client::open(&replicas[0], ALICE);
    servers[0].kill();
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "sessions were handed to other replicas");
    assert_eq!(client.send("ping", json!({})).status, 200, "the client's own connection leads there still");
    assert!(replicas[0].wait(Duration::from_secs(20)).success());
    assert_eq!(client.through(&replicas[1]).send("ping", json!({})).status, 200);
    assert_eq!(replicas[1].metric("longshore_sessions"), 1.0);
}

/// Nobody brings new keys to a pod that ends, so its word for who calls is worth less than that of one that serves.
#[test]
fn a_key_that_was_revoked_opens_nothing_by_way_of_a_replica_that_ends() {
    let servers = [(); 2].map(|()| GoServer::start(&[]));
    let network = Network::ending_slowly();
    let replicas = network.in_front_of(&config(0), &servers);
    let [alice, bob] = ["key-a", "key-b"].map(|key| Client::open(&replicas[1], Some(key)));
    let left = with_peers(&config(servers[1].port));
    let digest = replicas[1].files.write_with_keys(&left, &keys(&[("bob", "key-b")]));
    replicas[1].runs(&digest);
    let status = |client: &Client<'_>| client.through(&replicas[0]).send("ping", json!({})).status;
    assert_eq!((status(&alice), status(&bob)), (401, 200), "hers was seen to go");
    // One that this one has never seen may be yet to come here.
    let more = [("alice", "key-a"), ("bob", "key-b"), ("carol", "key-c")];
    let digest = replicas[0].files.write_with_keys(&with_peers(&config(servers[0].port)), &keys(&more));
    replicas[0].runs(&digest);
    let _hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    eventually("it ends", || replicas[0].get("/readyz").text() == "draining\n");
    assert_eq!((status(&alice), status(&bob)), (401, 200));
    // It takes new sessions to the other one, which knows better by now.
    let begins = |key: &str| Request::post(client::initialize("2025-11-25")).key(key).send(replicas[0].mcp);
    assert_eq!((begins("key-c").status, begins("key-b").status), (401, 200));
    replicas[1].audit(|line| line["reason"] == "no live key" && line["status"] == 401);
}
