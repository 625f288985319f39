//! The protocol's conformance suite, through the sidecar: docs/conformance.md is what comes of it.

mod client;
mod matrix;
mod page;
mod rows;
mod rules;
pub(crate) mod rust;
mod server;
pub(crate) mod suite;
mod tasks;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn the_page_says_what_the_suite_says() {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let legs = if rows::chosen().is_some() { &[][..] } else { &client::SCENARIOS };
            at_once(2, legs, |(revision, scenarios)| (*revision, client::run(revision, scenarios)))
        });
        let tasks = scope.spawn(|| rows::chosen().is_none().then(tasks::run));
        let rows = rows::run();
        for row in &rows {
            let lost: Vec<_> = row.lost().collect();
            assert!(lost.is_empty(), "{} {:?} passes this alone: {lost:?}", row.suite, row.server);
        }
        page::suite_agrees(&rows, tasks.join().expect("its results"), &client.join().expect("its results"));
    });
}

/// What comes of each of these, of which so many are done at once.
fn at_once<T: Sync, R: Send>(number: usize, what: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..number.min(what.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = what.get(at) else { break };
                    let result = act(one);
                    done.lock().expect("no panic").insert(at, result);
                }
            });
        }
    });
    done.into_inner().expect("no panic").into_values().collect()
}
