//! Streams when the sidecar ends.

use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_sidecar_config::Config;
use rustix::process::Signal;
use serde_json::json;

use super::{answer, event, note, said};
use crate::harness::config::ALICE;
use crate::harness::replicas::Network;
use crate::harness::{Client, Events, Gate, GoServer, Scripted, Sidecar, config, eventually, scripted};

/// Sooner than a sidecar that waits for calls in vain, which it does for more than twenty seconds.
const SOON: Duration = Duration::from_secs(18);
/// How long a client is away: a sidecar that does not wait for it has ended by then.
const AWAY: Duration = Duration::from_millis(100);

/// A server whose calls say one thing and are answered when they are told.
fn told() -> (Scripted, Sender<()>) {
    let (tell, told) = channel();
    let told: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(told));
    let server = Scripted::listening(move |request, stream| {
        scripted::begin_events(stream);
        scripted::chunk(stream, &event(&note(1)));
        if request.method == "GET" {
            return scripted::until_closed(stream);
        }
        let _ = told.lock().unwrap().recv_timeout(Duration::from_secs(20));
        scripted::chunk(stream, &event(&answer(request)));
        scripted::write(stream, "0\r\n\r\n");
    });
    (server, tell)
}

/// The first of two replicas in front of a server, and what is to be there meanwhile.
fn replica(config: &Config, server: &Scripted) -> (Sidecar, (Sidecar, Network)) {
    let network = Network::new();
    let mut replicas = network.replicas(config, &[server.port; 2]);
    let (second, first) = (replicas.pop().unwrap(), replicas.pop().unwrap());
    (first, (second, network))
}

fn sidecar(server: &Scripted) -> Sidecar {
    Sidecar::flagged(&config(server.port), &["--drain-minimum-ms", "300"])
}

#[test]
fn r086_streams_close_as_their_revision_wants() {
    for (revision, polls) in [("2025-11-25", true), ("2025-06-18", false)] {
        let (server, tell) = told();
        let (sidecar, _others) = replica(&config(0), &server);
        let client = Client::of(&sidecar, ALICE, revision);
        let mut own = Events::open(&client.get(), sidecar.mcp);
        let mut call = client.stream("t", json!({}));
        for stream in [&mut own, &mut call] {
            assert_eq!(said(&stream.next().unwrap()), "1");
        }
        sidecar.signal(Signal::TERM);
        if polls {
            assert_eq!(own.any().unwrap().retry, Some(1000));
            assert!(own.any().is_none());
            assert_eq!(call.any().unwrap().retry, Some(1000));
            assert!(call.any().is_none());
            // It comes back for the answer, which is waited for; also for one that comes while it is away.
            tell.send(()).unwrap();
            eventually("the call has ended", || {
                let text = sidecar.get("/metrics");
                text.text().contains("longshore_calls 0\n")
            });
            std::thread::sleep(AWAY);
            call = Events::open(&client.rest(&call.last), sidecar.mcp);
        } else {
            // Nothing else brings all of these clients back.
            assert_eq!(own.try_any().unwrap_err().kind(), ErrorKind::UnexpectedEof);
            tell.send(()).unwrap();
        }
        assert_eq!(said(&call.next().unwrap()), "answer", "{revision}");
        assert!(call.next().is_none());
        assert!(sidecar.wait(SOON).success());
    }
}

/// Where no other replica serves, who is sent away might find nobody: streams stay until there is nothing more to hear.
#[test]
fn nobody_is_sent_away_where_there_is_nobody_else() {
    let (server, tell) = told();
    stays_to_the_end(&sidecar(&server), None, &tell);
}

/// Nor where nobody is led to the other one, since its server died soon after its handshake.
#[test]
fn nobody_is_sent_away_to_where_a_server_does_not_stay() {
    let is_shown = || {
        let began = Instant::now();
        let (server, tell) = told();
        let mut other = GoServer::start(&["-stateless"]);
        let network = Network::new();
        let replicas = network.replicas(&config(0), &[server.port, other.port]);
        other.kill();
        eventually("it is seen", || replicas[1].metric("longshore_server_connected") == 0.0);
        if began.elapsed() > Duration::from_secs(9) {
            // A server that was there for so long is believed soon.
            return false;
        }
        assert_eq!(replicas[1].get("/readyz").status, 503);
        // It says so at once, or with its next heartbeat.
        std::thread::sleep(Duration::from_secs(2));
        stays_to_the_end(&replicas[0], ALICE, &tell);
        true
    };
    assert!((0..5).any(|_| is_shown()), "the machine is too slow each time");
}

/// Nor to one that ends at the same time, as where the server is deleted: nothing may lead to any of them by then.
#[test]
fn nobody_is_sent_away_to_one_that_ends_too() {
    let (server, tell) = told();
    let network = Network::ending_slowly();
    let replicas = network.replicas(&config(0), &[server.port; 2]);
    let client = Client::open(&replicas[0], ALICE);
    let mut call = client.stream("t", json!({}));
    assert_eq!(said(&call.next().unwrap()), "1");
    let _hooks: Vec<_> = replicas.iter().map(Sidecar::hook).collect();
    replicas.iter().for_each(|replica| replica.signal(Signal::TERM));
    let serving = "longshore_replicas{state=\"serving\"}";
    eventually("it hears that the other one ends", || replicas[0].metric(serving) == 0.0);
    tell.send(()).unwrap();
    assert_eq!(said(&call.next().unwrap()), "answer");
    assert!(call.next().is_none());
}

/// A client hears all that there is to hear of a sidecar that ends.
fn stays_to_the_end(sidecar: &Sidecar, caller: Option<&str>, tell: &Sender<()>) {
    let client = Client::open(sidecar, caller);
    let mut own = Events::open(&client.get(), sidecar.mcp);
    let mut call = client.stream("t", json!({}));
    for stream in [&mut own, &mut call] {
        assert_eq!(said(&stream.next().unwrap()), "1");
    }
    sidecar.signal(Signal::TERM);
    eventually("it ends", || sidecar.get("/readyz").status != 200);
    tell.send(()).unwrap();
    assert_eq!(said(&call.next().unwrap()), "answer");
    assert!(call.next().is_none());
    assert_eq!(own.any().unwrap().retry, Some(1000));
    assert!(own.any().is_none());
    assert!(sidecar.wait(SOON).success());
}

/// A client whose connection broke by itself, as where a balancer lets go of a pod that ends, comes back too.
#[test]
fn the_answer_of_a_client_that_was_cut_off_is_waited_for() {
    let (server, tell) = told();
    let sidecar = sidecar(&server);
    let client = Client::of(&sidecar, None, "2025-06-18");
    let mut call = client.stream("t", json!({}));
    assert_eq!(said(&call.next().unwrap()), "1");
    sidecar.signal(Signal::TERM);
    let last = call.last.clone();
    drop(call);
    tell.send(()).unwrap();
    eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
    std::thread::sleep(AWAY);
    let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
    assert_eq!(said(&rest.next().unwrap()), "answer");
    assert!(sidecar.wait(SOON).success());
}

/// What a client is sent away from, or cut off, is kept for it, however little is kept otherwise.
#[test]
fn an_answer_that_is_larger_than_what_is_kept_is_waited_for() {
    const LARGE: usize = 300_000;
    for (revision, polls) in [("2025-11-25", true), ("2025-06-18", false)] {
        let gate = Gate::default();
        let waiting = gate.clone();
        let server = Scripted::start(move |request, stream| {
            scripted::begin_events(stream);
            scripted::chunk(stream, &event(&note(1)));
            waiting.pass();
            let content = json!({"content": [{"type": "text", "text": "x".repeat(LARGE)}]});
            scripted::chunk(stream, &event(&scripted::reply_to(request, &content)));
            scripted::write(stream, "0\r\n\r\n");
        });
        let mut config = config(0);
        config.sessions.resume.max_bytes = 10_000;
        let (sidecar, _others) = replica(&config, &server);
        let client = Client::of(&sidecar, ALICE, revision);
        let mut call = client.stream("t", json!({}));
        assert_eq!(said(&call.next().unwrap()), "1");
        sidecar.signal(Signal::TERM);
        if polls {
            assert_eq!(call.any().unwrap().retry, Some(1000));
        } else {
            eventually("it ends", || sidecar.get("/readyz").status != 200);
        }
        let last = call.last.clone();
        drop(call);
        gate.open();
        eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
        let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
        assert_eq!(rest.status, 200, "{revision}");
        assert!(rest.next().unwrap().data.len() > LARGE, "{revision}");
        assert!(sidecar.wait(Duration::from_secs(30)).success());
    }
}

#[test]
fn nobody_is_waited_for_without_end() {
    let (server, tell) = told();
    let (sidecar, _others) = replica(&config(0), &server);
    let client = Client::open(&sidecar, ALICE);
    let mut call = client.stream("t", json!({}));
    call.next().unwrap();
    sidecar.signal(Signal::TERM);
    assert_eq!(call.any().unwrap().retry, Some(1000));
    // One that opens its stream again meanwhile is served, and is sent away at the end.
    let mut own = Events::open(&client.get(), sidecar.mcp);
    assert_eq!(said(&own.next().unwrap()), "1");
    tell.send(()).unwrap();
    let began = Instant::now();
    assert_eq!(own.any().unwrap().retry, Some(1000));
    assert!(own.any().is_none());
    assert!(sidecar.wait(Duration::from_secs(30)).success());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
