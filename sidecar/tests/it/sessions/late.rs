//! What clients have set at a server that has restarted, and has no time for it yet, or restarts once more.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::turns::{NAMED, beginning_again, restarting, take, told};
use crate::harness::config::keys;
use crate::harness::{Client, Events, Files, Gate, Scripted, Sidecar, config, scripted, within};

/// It says so of each thing, and takes it a second later. Their client is told then.
#[test]
fn what_a_server_has_no_time_for_yet_is_set_again_once_it_has() {
    const WANTED: [&str; 2] = ["memo://a", "memo://b"];
    for (is_named, status) in [(false, 429), (true, 503)] {
        let (cut, is_new) = <(Gate, Arc<AtomicBool>)>::default();
        let (gate, refuses, was_cut) = (cut.clone(), is_new.clone(), AtomicBool::new(false));
        let refused = Mutex::<HashSet<String>>::default();
        let server = restarting(is_named, &is_new, move |request, stream| {
            if request.method == "GET" {
                scripted::begin_events(stream);
                if was_cut.swap(true, Ordering::SeqCst) {
                    let _ = std::io::Read::read(stream, &mut [0]);
                } else {
                    scripted::chunk(stream, "retry: 50\n\n");
                    gate.pass();
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
                return;
            }
            let uri = scripted::message(request)["params"]["uri"].to_string();
            let is_first =
                uri != "null" && refuses.load(Ordering::SeqCst) && refused.lock().unwrap().insert(uri);
            if is_first {
                return scripted::json_with(stream, status, "", "{}");
            }
            take(request, stream, false);
        });
        let sidecar = beginning_again(&server);
        let client = Client::of(&sidecar, None, NAMED);
        for uri in WANTED {
            client.ask("resources/subscribe", json!({"uri": uri}));
        }
        let mut events = Events::open(&client.get(), sidecar.mcp);
        is_new.store(true, Ordering::SeqCst);
        cut.open();
        for uri in WANTED {
            let changed = events.next().unwrap().message();
            assert_eq!(changed["params"]["uri"], uri, "{is_named}: {changed}");
            assert!(
                WANTED.iter().all(|uri| told(&server)[*uri] > 2),
                "{is_named}: the server knows it by then"
            );
        }
    }
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
    let files = Files::new();
    files.write_with_keys(&config(server.port), &keys(&[("alice", "key-a"), ("bob", "key-b")]));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
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
        within(Duration::from_secs(12), "it is told again", || {
            (told(&server)["memo://b"] == times).then_some(())
        });
    }
}
