//! Clients of others in front of servers of others, crossed: docs/revisions.md has what works.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use super::server::{Maker, Server, Transport};
use super::{page, suite};

/// What is tried, in the order of the page.
const FEATURES: [&str; 8] =
    ["connect", "tool", "resource", "prompt", "progress", "cancellation", "elicitation", "sampling"];

/// The clients: what `bin/client` calls them, and what they are.
const CLIENTS: [(&str, &str); 9] = [
    ("typescript-2-modern", "TypeScript 2.4.0, 2026-07-28"),
    ("typescript-2-legacy", "TypeScript 2.4.0, as it is by default"),
    ("typescript-2025-11-25", "TypeScript 1.32.2"),
    ("typescript-2025-06-18", "TypeScript 1.22.0"),
    ("typescript-2025-03-26", "TypeScript 1.12.3"),
    ("typescript-2024-11-05", "TypeScript 1.9.0, HTTP+SSE"),
    ("python-2-modern", "Python 2.3.0, 2026-07-28"),
    ("python-2-legacy", "Python 2.3.0, with a handshake"),
    ("python-1", "Python 1.30.0"),
];

/// The servers, and what they are.
const SERVERS: [(Maker, &str, Transport, &str); 9] = [
    (Maker::TypeScript, "2026-07-28", Transport::Http, "TypeScript 2.4.0"),
    (Maker::TypeScript, "2025-11-25", Transport::Http, "TypeScript 1.32.2"),
    (Maker::TypeScript, "2025-06-18", Transport::Http, "TypeScript 1.22.0"),
    (Maker::TypeScript, "2025-03-26", Transport::Http, "TypeScript 1.12.3"),
    (Maker::TypeScript, "2024-11-05", Transport::Sse, "TypeScript 1.9.0, HTTP+SSE"),
    (Maker::Python, "2026-07-28", Transport::Http, "Python 2.3.0"),
    (Maker::Python, "2025-11-25", Transport::Http, "Python 1.30.0"),
    (Maker::Go, "2026-07-28", Transport::Http, "Go 1.8.0, without sessions"),
    (Maker::Go, "2025-11-25", Transport::Http, "Go 1.8.0, with sessions"),
];

/// What came of each feature.
type Outcome = BTreeMap<String, String>;

#[test]
fn the_page_says_which_clients_work_with_which_servers() {
    let todo = Mutex::new((0..SERVERS.len()).collect::<Vec<_>>());
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(index) = todo.lock().expect("no panic").pop() else { break };
                    let (maker, revision, transport, _) = SERVERS[index];
                    let outcomes = Server { revision, maker, transport }
                        .behind_a_sidecar_with(revision, |url| {
                            CLIENTS.map(|(client, _)| patiently(client, url))
                        });
                    done.lock().expect("no panic").insert(index, outcomes);
                }
            });
        }
    });
    let done = done.into_inner().expect("no panic");
    let mut said = String::new();
    for (index, outcomes) in &done {
        for ((client, _), outcome) in CLIENTS.iter().zip(outcomes) {
            let wrong = outcome.iter().filter(|(_, what)| is_wrong(what));
            for (feature, what) in wrong {
                let _ = writeln!(said, "{client} with {:?}: {feature}: {what}", SERVERS[*index]);
            }
        }
    }
    page::agrees("revisions.md", "matrix", &table(&done), &said);
}

/// A client that finds something wrong looks once more: on a busy machine some of them give up early.
fn patiently(client: &str, url: &str) -> Outcome {
    let wrong = |outcome: &Outcome| outcome.values().filter(|what| is_wrong(what)).count();
    let outcome = explore(client, url);
    if wrong(&outcome) == 0 {
        return outcome;
    }
    let again = explore(client, url);
    if wrong(&again) < wrong(&outcome) { again } else { outcome }
}

/// Whether that is not what the feature should come to.
fn is_wrong(what: &str) -> bool {
    !["works", "-"].contains(&what)
}

fn explore(client: &str, url: &str) -> Outcome {
    // A client that waits for ever is of no use to anybody.
    let program = suite::folder().join("bin/client");
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args([client, url]).stdin(Stdio::null());
    let output = command.output().expect("the client");
    let text = String::from_utf8_lossy(&output.stdout);
    let words = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_str(text.trim()).unwrap_or_else(|_| [("connect".to_owned(), words())].into())
}

fn table(done: &BTreeMap<usize, [Outcome; CLIENTS.len()]>) -> String {
    let mut text = "| server \\ client |".to_owned();
    for (_, client) in CLIENTS {
        let _ = write!(text, " {client} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(CLIENTS.len()));
    for (index, outcomes) in done {
        let _ = write!(text, "| {} |", SERVERS[*index].3);
        for outcome in outcomes {
            let _ = write!(text, " {} |", cell(outcome));
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
