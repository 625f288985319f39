//! Sessions whose clients have gone without a word, and those that come after them.

use std::time::Duration;

use longshore_sidecar_config::Config;
use serde_json::json;

use super::limits::open;
use super::{KEYS, pid, text};
use crate::harness::config::{keys, processes};
use crate::harness::http::connect;
use crate::harness::replicas::Network;
use crate::harness::shim::{server, serving_keyed, stdio};
use crate::harness::{Client, Pod, Reply, Request, Shim, Sidecar, client, eventually, modern, within};
use crate::streams;

const ABANDONED: &str = "longshore_sessions_ended_total{cause=\"abandoned\"}";

/// So many processes, so many of one principal, and clients that are waited for so long.
fn config(total: u32, per_principal: u32, ttl_ms: u64) -> Config {
    let mut config = stdio();
    config.limits.processes = Some(processes(total, per_principal));
    config.sessions.resume.ttl_ms = ttl_ms;
    config
}

fn serving(config: &Config) -> (Shim, Sidecar) {
    serving_keyed(config, &keys(&KEYS), &server(&[]), &[])
}

/// Opens one when there is room for it.
fn opens(sidecar: &Sidecar, key: &str) -> Reply {
    eventually("there is room", || Some(open(sidecar, key)).filter(|reply| reply.status == 200))
}

/// Waits until nothing is kept any more for those who have left.
fn forgotten(sidecar: &Sidecar) {
    eventually("nothing is kept", || sidecar.metric("longshore_streams") == 0.0);
}

fn is_over(client: &Client<'_>) -> bool {
    client.send("ping", json!({})).status == 404
}

/// Each is a program that ran once, as the Inspector on a command line.
#[test]
fn eight_clients_that_have_gone_are_not_in_the_way_of_the_ninth() {
    let (shim, sidecar) = serving(&config(32, 8, 500));
    let others = shim.processes().len();
    let clients = [(); 8].map(|()| {
        let client = Client::open(&sidecar, Some("key-a"));
        pid(&client);
        drop(streams::open(&client));
        client
    });
    forgotten(&sidecar);
    let reply = opens(&sidecar, "key-a");
    let ninth = Client::in_session(&sidecar, reply.header("mcp-session-id").unwrap()).with_key("key-a");
    pid(&ninth);
    assert_eq!(sidecar.metric(ABANDONED), 1.0);
    assert!(is_over(&clients[0]), "the one that was silent for longest");
    assert_eq!(shim.processes().len(), others + 8, "its process has ended, and no other");
    assert!(clients[1..].iter().all(|client| !is_over(client)));
}

/// For as long as it likes.
#[test]
fn a_session_that_is_in_use_is_never_taken() {
    let (_shim, sidecar) = serving(&config(4, 4, 500));
    let [listening, calling, gone, again] = [(); 4].map(|()| Client::open(&sidecar, Some("key-a")));
    let stream = streams::open(&listening);
    let _call = calling.begin(&json!({"name": "hang"}));
    drop((streams::open(&gone), streams::open(&again)));
    // The second one has come back.
    let back = streams::open(&again);
    opens(&sidecar, "key-a");
    assert!(is_over(&gone));
    // What was opened now says no more either.
    opens(&sidecar, "key-a");
    assert_eq!(sidecar.metric(ABANDONED), 2.0);
    assert!(!is_over(&listening) && !is_over(&calling) && !is_over(&again));
    drop((stream, back));
}

#[test]
fn a_client_that_never_says_a_second_word_is_in_nobodys_way() {
    // Everybody may have all, as where nobody says who they are.
    let (_shim, sidecar) = serving(&config(2, 2, 500));
    let known = Client::open(&sidecar, Some("key-a"));
    assert_eq!(open(&sidecar, "key-a").status, 200);
    for _ in 0..3 {
        opens(&sidecar, "key-a");
    }
    assert_eq!(sidecar.metric(ABANDONED), 3.0);
    assert!(!is_over(&known), "it has said nothing for a moment alone");
}

#[test]
fn where_a_server_is_full_who_has_most_makes_room() {
    let (_shim, sidecar) = serving(&config(3, 2, 500));
    let [few, first, second] = ["key-b", "key-a", "key-a"].map(|key| Client::open(&sidecar, Some(key)));
    [&few, &first, &second].iter().for_each(|client| drop(streams::open(client)));
    forgotten(&sidecar);
    // Not of the one whose client has been silent for longest.
    let reply = opens(&sidecar, "key-c");
    let left: Vec<_> = [&first, &second].into_iter().filter(|client| !is_over(client)).collect();
    assert!(left.len() == 1 && !is_over(&few), "{}", left.len());
    let third = Client::in_session(&sidecar, reply.header("mcp-session-id").unwrap()).with_key("key-c");
    let listening = [&few, left[0], &third].map(streams::open);
    // Each has one, and uses it.
    assert_eq!(open(&sidecar, "key-a").status, 503);
    drop(listening);
}

/// A client whose requests stand alone needs a process too.
#[test]
fn a_call_that_stands_alone_finds_room_too() {
    let (_shim, sidecar) = serving(&config(2, 2, 500));
    let clients = [(); 2].map(|()| Client::open(&sidecar, Some("key-a")));
    clients.iter().for_each(|client| drop(streams::open(client)));
    forgotten(&sidecar);
    let params = json!({"name": "count", "arguments": {}});
    eventually("there is room", || {
        let reply = modern::request(1, "tools/call", params.clone()).key("key-a").send(sidecar.mcp);
        (reply.status == 200).then(|| assert_eq!(text(&reply.message()), "1", "{}", reply.text()))
    });
    assert!(is_over(&clients[0]) != is_over(&clients[1]));
}

/// Who waits need not ask again for that.
#[test]
fn a_client_that_goes_while_another_waits_makes_room_for_it() {
    let mut config = config(1, 1, 500);
    config.limits.processes.as_mut().unwrap().queue_ms = 5_000;
    let (_shim, sidecar) = serving(&config);
    let client = Client::open(&sidecar, Some("key-a"));
    let stream = streams::open(&client);
    let mut waits = connect(sidecar.mcp);
    Request::post(client::initialize("2025-11-25")).key("key-a").write(&mut waits);
    eventually("it waits", || sidecar.metric("longshore_processes_queued") == 1.0);
    drop(stream);
    let reply = Reply::on(waits);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(is_over(&client));
}

#[test]
fn who_is_refused_is_told_what_to_do() {
    let (_shim, sidecar) = serving(&config(4, 2, 5 * 60 * 1000));
    let clients = [(); 2].map(|()| Client::open(&sidecar, Some("key-a")));
    let refused = |least: u64, most: u64, words: &[&str]| {
        let reply = open(&sidecar, "key-a");
        let message = reply.message()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(reply.status, 429, "{message}");
        let after: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((least..=most).contains(&after), "{after}: {message}");
        for words in words {
            assert!(message.contains(words), "{message}");
        }
        after
    };
    let fields = ["spec.sessions.idleTimeout", "spec.transport.stdio.maxProcesses"];
    let after = refused(200, 301, &fields);
    within(Duration::from_secs(30), "it comes nearer", || refused(170, 301, &fields) < after);
    let streams = clients.each_ref().map(streams::open);
    refused(30, 30, &["all of them are in use"]);
    drop(streams);
    // What a client may come back to is kept for it.
    eventually("they have left", || {
        let reply = open(&sidecar, "key-a");
        let after: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        after > 200
    });
}

#[test]
fn other_replicas_hear_that_it_has_ended() {
    let network = Network::new();
    let pods = Pod::start(&network, &config(1, 1, 500), &server(&[]), 2);
    let [here, there] = &pods[..] else { panic!("two pods") };
    let client = Client::open(&here.sidecar, Some("key-a"));
    drop(streams::open(&client));
    opens(&here.sidecar, "key-a");
    for pod in [here, there] {
        eventually("it knows", || pod.sidecar.metric("longshore_ended_sessions") == 1.0);
        assert!(is_over(&client.through(&pod.sidecar)));
    }
}
