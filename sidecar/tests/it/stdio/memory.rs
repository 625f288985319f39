//! How much memory processes have, as it is told to who looks at figures, and the sidecar that reads what they write.

use serde_json::json;

use super::{pid, said};
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Client, eventually};

const BYTES: u32 = 64 << 20;
/// How many sessions have had a large answer, and how large those were.
const SESSIONS: u64 = 16;
const ANSWER: u64 = 4 << 20;

#[test]
fn a_process_that_grows_is_seen_in_the_figures_until_it_ends() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let figures = ["longshore_processes_resident_bytes", "longshore_process_resident_bytes_max"];
    let [large, small] = [(); 2].map(|()| Client::open(&sidecar, None));
    assert_eq!(said(&large, "grow", json!({"bytes": BYTES})), BYTES.to_string());
    let told = || figures.map(|name| sidecar.metric(name));
    let is_large = |bytes: f64| (f64::from(BYTES)..2.0 * f64::from(BYTES)).contains(&bytes);
    // It is measured every few seconds.
    let [all, largest] = eventually("it is told", || {
        let [all, largest] = told();
        // Of the small ones, too.
        (is_large(largest) && all > largest).then_some([all, largest])
    });
    assert!(all < 2.0 * largest, "{all} bytes, of which one has {largest}");
    assert_eq!(large.end().status, 204);
    eventually("its process is gone", || {
        let [all, largest] = told();
        0.0 < largest && largest <= all && all < f64::from(BYTES)
    });
    said(&small, "pid", json!({}));
}

/// Also where a call goes on, so that the process is never silent.
#[test]
fn an_answer_that_was_large_holds_nothing_when_it_has_gone() {
    let mut config = stdio();
    config.limits.request_timeout_ms = 600_000;
    let (_shim, sidecar) = serving(&config, &server(&[]), &[]);
    let clients: Vec<_> = (0..SESSIONS).map(|_| Client::open(&sidecar, None)).collect();
    let under_way: Vec<_> = clients.iter().map(|client| client.begin(&json!({"name": "hang"}))).collect();
    eventually("the calls are under way", || sidecar.metric("longshore_calls") == under_way.len() as f64);
    let before = sidecar.memory();
    for client in &clients {
        let text = said(client, "echo", json!({"text": "x", "times": ANSWER}));
        assert_eq!(text.len() as u64, ANSWER);
    }
    eventually("it holds no more than half of that", || {
        // What is given back goes to the kernel a little later, and only when something happens.
        for client in &clients {
            pid(client);
        }
        sidecar.memory() < before + SESSIONS * ANSWER / 2
    });
    assert_eq!(sidecar.metric("longshore_calls"), under_way.len() as f64, "they go on");
}
