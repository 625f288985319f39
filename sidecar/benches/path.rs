//! What a call costs that passes the sidecar, beside one that passes nginx as a plain reverse proxy, and one that goes
//! straight to the server: calls a second, and the proxy's processor time for each. Then what it costs more where the
//! client and the server are of different eras, and the memory of idle sessions.
//!
//! `cargo bench -p longshore-sidecar --bench path`. Client, proxy and server are on one processor (the first, or
//! `LONGSHORE_BENCH_CPU`), and take turns within one run, so that all of them see the same machine. The sidecar looks at
//! a key, decides by rules, bounds what it carries, and writes its audit log, to nowhere. It needs Debian's nginx, which
//! it installs if it may. Words after `--` choose what is measured: `calls`, of them only the `small` ones at 16 in flight, or
//! the `large` ones, those before a server that leaves its sessions `unnamed`, `eras`, `memory`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement speaks by printing, and by failing"
)]

#[path = "shared/harness.rs"]
mod harness;

#[path = "path/call.rs"]
mod call;
#[path = "path/echo.rs"]
mod echo;
#[path = "path/load.rs"]
mod load;
#[path = "shared/machine.rs"]
mod machine;
#[path = "path/proxies.rs"]
mod proxies;

use std::time::Duration;

use call::{ALONE, SESSIONS};
use echo::Kind;
use longshore_mcp::revision::Revision;
use machine::{median, memory, processor_time};
use proxies::{Nginx, Proxy, Sidecar};

/// How long each turn is.
const TURN: Duration = Duration::from_secs(1);
/// How often they take turns. Odd, so that there is one in the middle.
const ROUNDS: usize = 5;
const CONNECTIONS: [usize; 3] = [1, 16, 128];
const SIZES: [(&str, usize); 3] = [("200 B", 200), ("10 KB", 10 << 10), ("1 MB", 1 << 20)];
/// How many sessions are idle.
const IDLE: usize = 128;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(kind) = Kind::of(&arguments) {
        return echo::serve(kind);
    }
    let chosen: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let wants = |what: &str| chosen.is_empty() || chosen.iter().any(|word| *word == what);
    machine::pin();
    println!("| what | measured |\n|---|---|");
    let usual = Kind::usual(SESSIONS);
    if wants("calls") {
        calls(usual, &SIZES, &CONNECTIONS);
    } else if wants("small") {
        calls(usual, &SIZES[..1], &[16]);
    } else if wants("large") {
        calls(usual, &SIZES[2..], &[1, 16]);
    }
    if wants("unnamed") {
        println!("| where the server does not name its sessions: | |");
        calls(Kind { names_sessions: false, ..usual }, &SIZES, &[16]);
    }
    if wants("eras") {
        eras();
    }
    if wants("memory") {
        idle();
    }
}

/// Calls of the same era as the server's, by size and number of connections.
fn calls(kind: Kind, sizes: &[(&str, usize)], connections: &[usize]) {
    let server = echo::Echo::start(kind);
    let nginx = Nginx::start(server.address);
    let sidecar = Sidecar::start(server.address);
    for &(name, size) in sizes {
        for &connections in connections {
            // The server knows no keys and no sessions, and does not mind them.
            let prepared = call::prepare(sidecar.mcp, SESSIONS, connections, size);
            let rows = compare(&[
                Proxy::direct(server.address, &prepared),
                Proxy::new("nginx", nginx.address, nginx.process(), &prepared),
                Proxy::new("sidecar", sidecar.mcp, sidecar.process, &prepared),
            ]);
            let direct = rows[0].rate;
            println!("| {name}, {connections} in flight, direct | {direct:.0} a second |");
            for row in &rows[1..] {
                println!(
                    "| {name}, {connections} in flight, {} | {:.0} a second, {:.2} of direct, {:.1} \u{b5}s each |",
                    row.name,
                    row.rate,
                    row.rate / direct,
                    row.micros
                );
            }
        }
        // The goal is about small calls, which come first: what is held for larger ones comes on top.
        let held = memory(sidecar.process, "VmHWM");
        println!("| memory of the sidecar, at most until here | {:.1} MB |", held as f64 / 1e6);
    }
}

/// The same small call between all pairs of eras.
fn eras() {
    const REVISIONS: [Revision; 2] = [SESSIONS, ALONE];
    let pairs: Vec<_> =
        REVISIONS.iter().flat_map(|server| REVISIONS.map(|client| (client, *server))).collect();
    let places: Vec<_> = pairs
        .iter()
        .map(|(client, server)| {
            let server = echo::Echo::start(Kind::usual(*server));
            let sidecar = Sidecar::start(server.address);
            let prepared = call::prepare(sidecar.mcp, *client, 16, 200);
            (server, sidecar, prepared)
        })
        .collect();
    let all: Vec<_> = pairs
        .iter()
        .zip(&places)
        .map(|((client, server), (_, sidecar, prepared))| {
            let name = format!("client {}, server {}", client.as_str(), server.as_str());
            Proxy::new(&name, sidecar.mcp, sidecar.process, prepared)
        })
        .collect();
    for row in compare(&all) {
        println!("| {} | {:.0} a second, {:.1} \u{b5}s each |", row.name, row.rate, row.micros);
    }
}

/// What sessions take that nobody uses.
fn idle() {
    let server = echo::Echo::start(Kind::usual(SESSIONS));
    let sidecar = Sidecar::start(server.address);
    call::prepare(sidecar.mcp, SESSIONS, 1, 200);
    let before = memory(sidecar.process, "VmRSS");
    call::prepare(sidecar.mcp, SESSIONS, IDLE, 200);
    let after = memory(sidecar.process, "VmRSS");
    println!(
        "| {IDLE} idle sessions | {:.1} KB each, {:.1} MB in all |",
        (after.saturating_sub(before)) as f64 / 1e3 / IDLE as f64,
        after as f64 / 1e6
    );
}

/// What was measured of one way.
struct Row {
    name: String,
    /// Calls a second.
    rate: f64,
    /// Of the proxy's processor time, each.
    micros: f64,
}

/// Has all of them take turns.
fn compare(ways: &[Proxy<'_>]) -> Vec<Row> {
    let mut seen = vec![(Vec::new(), Vec::new()); ways.len()];
    for round in 0..=ROUNDS {
        for (way, (rates, micros)) in ways.iter().zip(&mut seen) {
            let spent = || way.process.map_or(Duration::ZERO, processor_time);
            let before = spent();
            let (count, took) = load::run(way.address, way.prepared, TURN);
            let used = spent() - before;
            // The first time connections, caches and allocators become what they are afterwards.
            if round > 0 {
                rates.push(count as f64 / took.as_secs_f64());
                micros.push(used.as_secs_f64() * 1e6 / count as f64);
            }
        }
    }
    let rows = ways.iter().zip(seen);
    rows.map(|(way, (rates, micros))| Row {
        name: way.name.clone(),
        rate: median(&rates),
        micros: median(&micros),
    })
    .collect()
}
