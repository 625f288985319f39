//! What clients have set at a server that has restarted, and has no time for it yet.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::turns::{NAMED, beginning_again, restarting, take, told};
use crate::harness::{Client, Events, Gate, scripted};

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
