//! `longshore local` under test, and the clients that talk to its servers.

mod clients;
mod http;
mod local;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) use clients::{compare, inspector, peer, python, typescript};
pub(crate) use http::{get, post};
pub(crate) use local::{Folder, Local, Served, gone, session};

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

/// More ports than a run takes for its servers and its catalog: those from the one that it is told.
pub(crate) const PORTS_OF_A_RUN: u32 = 8;

/// A port that nobody listens at, and that nobody is given who asks the system for any. Another run of these tests takes
/// others.
pub(crate) fn free_port() -> u16 {
    free_ports(1)
}

/// So many of them, one after the other: the first.
pub(crate) fn free_ports(count: u32) -> u16 {
    const FIRST: u32 = 10_000;
    const RUNS: u32 = 20;
    const EACH: u32 = 500;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = FIRST + std::process::id() % RUNS * EACH;
    let is_free = |port| u16::try_from(port).is_ok_and(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    eventually("free ports", || {
        let first = TAKEN.fetch_add(count, Ordering::Relaxed) % EACH;
        let mut ports = begin + first..begin + first + count;
        let are_free = first + count <= EACH && ports.all(is_free);
        u16::try_from(begin + first).ok().filter(|_| are_free)
    })
}
