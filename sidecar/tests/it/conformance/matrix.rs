//! Clients of others in front of servers of others, crossed: docs/revisions.md has what works.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::server::{Maker, Served, Server, Transport};
use super::{at_once, page, rust, suite};
use crate::harness::own;

/// How many servers start at once.
const START_AT_ONCE: usize = 4;
/// How many clients run at once. Each is at work with all servers then.
const AT_ONCE: usize = 4;

/// What is tried, in the order of the page.
const FEATURES: [&str; 8] =
    ["connect", "tool", "resource", "prompt", "progress", "cancellation", "elicitation", "sampling"];

/// The clients: what `bin/client` calls them, or [`rust`] if they are on the Rust SDK, and what they are.
pub(super) const CLIENTS: [(&str, &str); 20] = [
    ("typescript-2-modern", "TypeScript 2.4.0, 2026-07-28"),
    ("typescript-2-legacy", "TypeScript 2.4.0, as it is by default"),
    ("typescript-2025-11-25", "TypeScript 1.32.2"),
    ("typescript-2025-06-18", "TypeScript 1.22.0"),
    ("typescript-2025-03-26", "TypeScript 1.12.3"),
    ("typescript-2024-11-05", "TypeScript 1.9.0, HTTP+SSE"),
    ("python-2-modern", "Python 2.3.0, 2026-07-28"),
    ("python-2-legacy", "Python 2.3.0, with a handshake"),
    ("python-2025-11-25", "Python 1.30.0"),
    ("python-2025-06-18", "Python 1.22.0"),
    ("python-2025-03-26", "Python 1.9.4"),
    ("python-2024-11-05", "Python 1.7.1, HTTP+SSE"),
    ("go-2026-07-28", "Go 1.8.0"),
    ("go-2025-11-25", "Go 1.6.1"),
    ("go-2025-06-18", "Go 1.1.0"),
    ("rust-modern", "Rust 3.9.0, 2026-07-28"),
    ("rust-legacy", "Rust 3.9.0, as it is by default"),
    ("rust-2025-11-25", "Rust 2.2.0"),
    ("rust-2025-06-18", "Rust 0.9.1"),
    ("rust-2024-11-05", "Rust 0.1.5, HTTP+SSE"),
];

/// The servers, and what they are.
pub(super) const SERVERS: [(Maker, &str, Transport, &str); 23] = [
    (Maker::TypeScript, "2026-07-28", Transport::Http, "TypeScript 2.4.0"),
    (Maker::TypeScript, "2026-07-28", Transport::Stdio, "TypeScript 2.4.0, stdio"),
    (Maker::TypeScript, "2025-11-25", Transport::Http, "TypeScript 1.32.2"),
    (Maker::TypeScript, "2025-06-18", Transport::Http, "TypeScript 1.22.0"),
    (Maker::TypeScript, "2025-03-26", Transport::Http, "TypeScript 1.12.3"),
    (Maker::TypeScript, "2024-11-05", Transport::Sse, "TypeScript 1.9.0, HTTP+SSE"),
    (Maker::Python, "2026-07-28", Transport::Http, "Python 2.3.0"),
    (Maker::Python, "2026-07-28", Transport::Stdio, "Python 2.3.0, stdio"),
    (Maker::Python, "2025-11-25", Transport::Http, "Python 1.30.0"),
    (Maker::Python, "2025-06-18", Transport::Http, "Python 1.22.0"),
    (Maker::Python, "2025-03-26", Transport::Sse, "Python 1.9.4, HTTP+SSE"),
    (Maker::Python, "2024-11-05", Transport::Sse, "Python 1.7.1, HTTP+SSE"),
    (Maker::Go, "2026-07-28", Transport::Http, "Go 1.8.0, without sessions"),
    (Maker::Go, "2025-11-25", Transport::Http, "Go 1.8.0, with sessions"),
    (Maker::Go, "2026-07-28", Transport::Stdio, "Go 1.8.0, stdio"),
    (Maker::OlderGo, "2025-11-25", Transport::Http, "Go 1.6.1"),
    (Maker::OlderGo, "2025-06-18", Transport::Http, "Go 1.1.0"),
    (Maker::Rust, "2026-07-28", Transport::Http, "Rust 3.9.0, 2026-07-28"),
    (Maker::Rust, "2025-11-25", Transport::Http, "Rust 3.9.0, with sessions"),
    (Maker::Rust, "2026-07-28", Transport::Stdio, "Rust 3.9.0, stdio"),
    (Maker::OlderRust, "2025-11-25", Transport::Http, "Rust 2.2.0"),
    (Maker::OlderRust, "2025-06-18", Transport::Http, "Rust 0.9.1"),
    (Maker::OlderRust, "2024-11-05", Transport::Sse, "Rust 0.1.5, HTTP+SSE"),
];

/// What is not counted. On older releases on Python a session is lost when a call is cancelled: what comes of that is a
/// question of time. On the first ones on Rust a tool does not learn the progress token of its call, so there is no step
/// to give it up at.
const LEFT_OUT: [(Maker, &str, &[&str]); 3] = [
    (Maker::Python, "2025-03-26", &["cancellation"]),
    (Maker::Python, "2024-11-05", &["cancellation"]),
    (Maker::OlderRust, "2024-11-05", &["progress", "cancellation"]),
];

/// What the servers say that have a tool which asks, and ask nobody. Those on Go do so with requests of their own, which
/// they keep to themselves in 2026-07-28, since that has none, and where they have no session to ask in.
const ASKS_NOBODY: [(Maker, &str, Transport, &[&str]); 2] = [
    (
        Maker::Go,
        "2026-07-28",
        Transport::Http,
        &[ALONE, "client does not support elicitation", "stateless servers cannot make requests"],
    ),
    (Maker::Go, "2026-07-28", Transport::Stdio, &[ALONE]),
];
const ALONE: &str = "cannot be sent while serving a request on protocol version 2026-07-28";

/// Clients that wait no longer for a call that is given up, and tell nobody. If it is on still when one has looked at
/// everything, it ends with the session.
const SILENT: [&str; 4] =
    ["python-2025-11-25", "python-2025-06-18", "python-2025-03-26", "python-2024-11-05"];

/// How often a client that found something else than the page says looks again: the page says so.
const LOOKS: usize = 6;

/// How long after a client's end its calls may end at the sidecar.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// What came of each feature.
type Outcome = BTreeMap<String, String>;

#[test]
fn the_page_says_which_clients_work_with_which_servers() {
    let names = CLIENTS.map(|(client, _)| client);
    let servers = at_once(START_AT_ONCE, &SERVERS, |(maker, revision, transport, _)| {
        Server { revision, maker: *maker, transport: *transport }.behind_a_sidecar_of(&names)
    });
    let tried: Vec<_> = std::iter::zip(&servers, SERVERS)
        .map(|(served, (maker, revision, transport, _))| Tried {
            served,
            left_out: LEFT_OUT
                .iter()
                .find(|one| (one.0, one.1) == (maker, revision))
                .map_or(&[], |one| one.2),
            asks_nobody: ASKS_NOBODY
                .iter()
                .find(|one| (one.0, one.1, one.2) == (maker, revision, transport))
                .map_or(&[], |one| one.3),
        })
        .collect();
    // By client, and for each by server.
    let written = page::part("revisions.md", "matrix");
    let again = AtomicUsize::new(0);
    let outcomes = at_once(AT_ONCE, &CLIENTS, |(client, what)| {
        patiently(client, &column(&written, what), &tried, &again)
    });
    let pairs = CLIENTS.len() * SERVERS.len();
    eprintln!("{} of {pairs} pairs were looked at again", again.into_inner());
    cancellations_arrive(&tried);
    let mut said = String::new();
    for ((client, _), outcomes) in CLIENTS.iter().zip(&outcomes) {
        for (server, outcome) in SERVERS.iter().zip(outcomes) {
            for (feature, what) in outcome.iter().filter(|(_, what)| is_wrong(what)) {
                let _ = writeln!(said, "{client} with {server:?}: {feature}: {what}");
            }
        }
    }
    page::agrees("revisions.md", "matrix", &table(&outcomes), &said);
}

/// Fails if a client or a server knows nothing of calls that are given up: each of the pairs could say so then.
fn cancellations_arrive(servers: &[Tried<'_>]) {
    for (number, (client, _)) in
        CLIENTS.iter().enumerate().filter(|(_, (client, _))| !SILENT.contains(client))
    {
        let says_so = servers.iter().any(|server| server.served.is_told_by(number));
        assert!(says_so, "{client} has told nobody that it gives a call up");
    }
    let counted =
        std::iter::zip(servers, SERVERS).filter(|(tried, _)| !tried.left_out.contains(&"cancellation"));
    for (tried, server) in counted {
        assert!(tried.served.told_cancelled() > 0, "{server:?} was not told that any call is given up");
    }
}

/// A server that a client tries.
#[derive(Clone, Copy)]
struct Tried<'a> {
    served: &'a Served,
    /// What is not counted.
    left_out: &'static [&'static str],
    /// What it says instead of asking.
    asks_nobody: &'static [&'static str],
}

/// What the page says of a client, by server; nothing of those that it does not have.
fn column<'a>(written: &'a str, client: &str) -> Vec<&'a str> {
    let mut lines = written.lines().map(|line| line.split('|').map(str::trim));
    let at = lines.next().and_then(|mut clients| clients.position(|name| name == client));
    let rows: BTreeMap<_, _> =
        lines.filter_map(|mut cells| Some((cells.nth(1)?, cells.nth(at?.checked_sub(2)?)?))).collect();
    SERVERS.iter().map(|(.., server)| rows.get(server).copied().unwrap_or_default()).collect()
}

/// A client that finds something else than the page says looks again: on a busy machine some of them give up early, and
/// some lose what comes together with an answer.
fn patiently(client: &str, written: &[&str], servers: &[Tried<'_>], pairs: &AtomicUsize) -> Vec<Outcome> {
    let mut outcomes = explore(client, servers);
    for look in 0..LOOKS {
        // Where a call is often answered before it is given up, there is nothing to tell.
        let tells = SILENT.contains(&client)
            || servers.iter().any(|server| server.served.is_told_by(number_of(client)));
        let again: Vec<_> =
            (0..servers.len()).filter(|at| !tells || cell(&outcomes[*at]) != written[*at]).collect();
        let servers: Vec<_> = again.iter().map(|at| servers[*at]).collect();
        if servers.is_empty() {
            break;
        }
        if look == 0 {
            pairs.fetch_add(servers.len(), Ordering::Relaxed);
        }
        for (at, outcome) in again.into_iter().zip(explore(client, &servers)) {
            // What could not be tried the first time is known then.
            if outcomes[at].len() < outcome.len() {
                outcomes[at] = outcome;
                continue;
            }
            outcomes[at].extend(outcome.into_iter().filter(|(_, what)| !is_wrong(what)));
        }
    }
    outcomes
}

/// Which one a client is.
fn number_of(client: &str) -> usize {
    CLIENTS.iter().position(|(name, _)| *name == client).expect("a client")
}

/// Whether that is not what the feature should come to.
fn is_wrong(what: &str) -> bool {
    !["works", "-"].contains(&what)
}

/// What a client says of these servers.
fn explore(client: &str, servers: &[Tried<'_>]) -> Vec<Outcome> {
    // A client that waits for ever is of no use to anybody.
    let mut command = suite::patient("timeout");
    command.arg("180");
    let number = number_of(client);
    let urls: Vec<_> = servers.iter().map(|server| server.served.url_of(number)).collect();
    let words: Vec<_> = std::iter::once(client).chain(urls.iter().map(String::as_str)).collect();
    if client.starts_with("rust-") {
        command.args(own::command(rust::CLIENT, &words));
    } else {
        command.arg(suite::folder().join("bin/client")).args(words);
    }
    command.stdin(Stdio::null());
    let output = command.output().expect("the client");
    let end = Instant::now();
    let lines = String::from_utf8_lossy(&output.stdout);
    let said: BTreeMap<String, Outcome> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let words = || String::from_utf8_lossy(&output.stderr).into_owned();
    let outcome = |(server, url): (&Tried<'_>, &String)| {
        let mut outcome = said.get(url).cloned().unwrap_or_else(|| [("connect".to_owned(), words())].into());
        for what in outcome.values_mut() {
            if server.asks_nobody.iter().any(|words| what.contains(words)) {
                "-".clone_into(what);
            }
        }
        if let Some(what) = outcome.get_mut("cancellation").filter(|what| *what == "works")
            && !SILENT.contains(&client)
            && server.served.is_told_by(number)
            && !server.hears_cancelled(client, end)
        {
            "the sidecar did not hear of it".clone_into(what);
        }
        outcome.extend(server.left_out.iter().map(|feature| ((*feature).to_owned(), "-".to_owned())));
        outcome
    };
    std::iter::zip(servers, &urls).map(outcome).collect()
}

impl Tried<'_> {
    /// Whether the sidecar hears that a client gives a call up, by a while after the client's end: what ends writes its line
    /// then.
    fn hears_cancelled(&self, client: &str, end: Instant) -> bool {
        loop {
            let heard = self.served.heard_cancelled_by(client);
            if heard || end.elapsed() > AFTERWARDS {
                return heard;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn table(outcomes: &[Vec<Outcome>]) -> String {
    let mut text = "| server \\ client |".to_owned();
    for (_, client) in CLIENTS {
        let _ = write!(text, " {client} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(CLIENTS.len()));
    for (index, (.., server)) in SERVERS.iter().enumerate() {
        let _ = write!(text, "| {server} |");
        for of_client in outcomes {
            let _ = write!(text, " {} |", cell(&of_client[index]));
        }
        text.push('\n');
    }
    text
}

fn cell(outcome: &Outcome) -> String {
    let of = |wanted: fn(Option<&str>) -> bool| {
        let found = FEATURES.iter().filter(|feature| wanted(outcome.get(**feature).map(String::as_str)));
        found.copied().collect::<Vec<_>>().join(", ")
    };
    let absent = of(|what| what == Some("-"));
    let wrong = of(|what| !matches!(what, Some("works" | "-")));
    match (wrong.as_str(), absent.as_str()) {
        ("", "") => "everything".to_owned(),
        ("", absent) => format!("everything; no {absent}"),
        (wrong, _) if wrong.split(", ").count() == FEATURES.len() => "nothing yet".to_owned(),
        (wrong, _) => format!("not yet: {wrong}"),
    }
}
