//! `longshore local` under test, and the clients that talk to its servers.

mod clients;
mod http;
mod local;

use std::time::{Duration, Instant};

pub(crate) use clients::{compare, inspector, peer, python, typescript};
pub(crate) use http::{get, post};
pub(crate) use local::{Folder, Local, Served, gone};

/// The program.
pub(crate) const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Looks again and again until there is something to see.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port that nobody listens at.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    listener.and_then(|listener| listener.local_addr()).expect("a port").port()
}
