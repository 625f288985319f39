//! Starts the program, and talks to it.

pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod http;
pub(crate) mod peer;
pub(crate) mod process;
pub(crate) mod scripted;

pub(crate) use client::Client;
pub(crate) use config::{Files, config};
pub(crate) use http::{Reply, Request};
pub(crate) use peer::GoServer;
pub(crate) use process::Sidecar;
pub(crate) use scripted::Scripted;

use std::time::{Duration, Instant};

/// Looks again and again until there is something to see.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    within(Duration::from_secs(20), what, &mut look)
}

/// The same, with a deadline that matters.
pub(crate) fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
