//! What the suite is run against, and what it says.

use super::server::{Maker, Server, Transport};
use super::suite::{self, Results, patiently};
use super::{at_once, rules};

/// How many run at once. Most of a run is waiting.
const AT_ONCE: usize = 6;

const HTTP: Transport = Transport::Http;
const SSE: Transport = Transport::Sse;
const STDIO: Transport = Transport::Stdio;

/// The servers of each revision, and how they are spoken to. Over Streamable HTTP the release on Python of 2025-03-26 ends
/// with the first session that ends.
const SERVERS: [(&str, &[Maker], &[Transport]); 6] = [
    ("2026-07-28", &[Maker::Longshore, Maker::TypeScript, Maker::Python, Maker::Go], &[HTTP, STDIO]),
    ("2025-11-25", &[Maker::Longshore, Maker::TypeScript, Maker::Python, Maker::Go], &[HTTP, STDIO]),
    ("2025-06-18", &[Maker::Longshore, Maker::TypeScript, Maker::Python, Maker::OlderGo], &[HTTP, STDIO]),
    ("2025-03-26", &[Maker::Longshore, Maker::TypeScript, Maker::OlderGo], &[HTTP, STDIO]),
    ("2025-03-26", &[Maker::Python], &[SSE, STDIO]),
    ("2024-11-05", &[Maker::Longshore, Maker::TypeScript, Maker::Python, Maker::OlderGo], &[SSE, STDIO]),
];

/// One suite, one server, and what came of it.
pub(super) struct Row {
    pub(super) suite: &'static str,
    pub(super) server: Server,
    /// Nothing, if the suite cannot speak to the server itself.
    pub(super) alone: Option<Results>,
    pub(super) through: Results,
}

impl Row {
    /// What the server passes alone and not behind the sidecar, whatever the reason, and what went wrong.
    pub(super) fn lost(&self) -> impl Iterator<Item = (&String, &Vec<String>)> {
        let passes = |name: &String| self.alone.as_ref().is_some_and(|alone| alone[name].is_empty());
        self.through.iter().filter(move |(name, failures)| !failures.is_empty() && passes(name))
    }
}

/// Runs all of them.
pub(super) fn run() -> Vec<Row> {
    let mut rows = rows();
    // Those that take long begin first.
    rows.sort_by_key(|(_, server)| (server.maker != Maker::Python, server.transport != STDIO));
    let mut rows = at_once(AT_ONCE, &rows, |(suite, server)| Row {
        suite,
        server: *server,
        alone: alone(suite, *server),
        through: through(suite, *server),
    });
    rows.sort_by_key(|row| (row.suite, std::cmp::Reverse(row.server.revision), row.server));
    rows
}

/// What the suite says of a server, if it can speak to it.
fn alone(suite: &str, server: Server) -> Option<Results> {
    let is_its_own = |_: &str, _: &str| suite == server.revision;
    let results = server.alone(suite)?;
    Some(patiently(results, is_its_own, |failed| server.alone_in(suite, failed)))
}

/// What the suite says of a server behind the sidecar.
fn through(suite: &'static str, server: Server) -> Results {
    let served = server.behind_a_sidecar(suite);
    rules::judged(&served.url(), suite, server.behind())
}

/// What only some rows are chosen by.
pub(super) fn chosen() -> Option<String> {
    std::env::var("LONGSHORE_CONFORMANCE").ok()
}

/// Those that are chosen by `LONGSHORE_CONFORMANCE`, words that all have to be in a row's text, or all.
fn rows() -> Vec<(&'static str, Server)> {
    let mut rows = Vec::new();
    for suite in suite::REVISIONS {
        for (revision, makers, transports) in SERVERS {
            let servers = makers.iter().flat_map(|maker| transports.iter().map(move |over| (*maker, *over)));
            let servers = servers.map(|(maker, transport)| Server { revision, maker, transport });
            rows.extend(servers.map(|server| (suite, server)));
        }
    }
    let words = chosen().unwrap_or_default();
    rows.retain(|row| words.split_whitespace().all(|word| format!("suite {row:?}").contains(word)));
    rows
}
