//! docs/conformance.md, and a part of docs/revisions.md: their tables are written from what tests saw, and compared with
//! it ever after.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::rows::Row;
use super::tasks::Tasks;
use super::{client, rules, suite};

const END: &str = "<!-- end -->\n";

/// Held by whoever writes a page.
static WRITING: Mutex<()> = Mutex::new(());

fn path(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page)
}

/// Compares a part of the page with what came of a test, or writes it. `said` is what went wrong, for whoever reads a
/// failure.
pub(super) fn agrees(page: &str, part: &str, text: &str, said: &str) {
    let _writing = WRITING.lock();
    let [before, there, after] = split(page, part);
    if std::env::var_os("LONGSHORE_UPDATE_CONFORMANCE").is_some() {
        eprintln!("{text}{said}");
        // Some rows make no page.
        if std::env::var_os("LONGSHORE_CONFORMANCE").is_none() {
            std::fs::write(path(page), format!("{before}{text}{after}")).expect("the page");
        }
        return;
    }
    let changed = differences(&there, text);
    assert!(
        changed.is_empty(),
        "docs/{page} says something else (LONGSHORE_UPDATE_CONFORMANCE=1 cargo test -p longshore-sidecar --test it \
         conformance writes it):\n{changed}{said}"
    );
}

/// What a part of the page says.
pub(super) fn part(page: &str, part: &str) -> String {
    let _writing = WRITING.lock();
    let [_, there, _] = split(page, part);
    there
}

/// What a page says before a part, with the line that begins it; the part; and what follows, with the line that ends it.
fn split(page: &str, part: &str) -> [String; 3] {
    let begin = format!("<!-- begin: {part}, written by LONGSHORE_UPDATE_CONFORMANCE=1 -->\n");
    let text = std::fs::read_to_string(path(page)).expect("the page");
    let begins = text.find(&begin).expect("where the part begins") + begin.len();
    let ends = begins + text[begins..].find(END).expect("where the part ends");
    [&text[..begins], &text[begins..ends], &text[ends..]].map(str::to_owned)
}

/// Compares what the suite said.
pub(super) fn suite_agrees(rows: &[Row], tasks: Option<Tasks>, client: &[(&str, suite::Results)]) {
    let (table, failed) = tasks.map(|tasks| (tasks.table(), tasks.failures())).unwrap_or_default();
    let text = tables(rows) + &table + &asked(client);
    agrees("conformance.md", "suite", &text, &(failures(rows, client) + &failed));
}

fn differences(there: &str, text: &str) -> String {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (there.lines().collect(), text.lines().collect());
    let gone = old.difference(&new).map(|line| format!("- {line}\n"));
    gone.chain(new.difference(&old).map(|line| format!("+ {line}\n"))).collect()
}

/// What the suite did not like, in its words, where the page gives no reason for it.
fn failures(rows: &[Row], client: &[(&str, suite::Results)]) -> String {
    let mut text = String::new();
    for row in rows {
        let failed = row.through.iter().filter(|(_, failures)| !failures.is_empty());
        for (scenario, failures) in failed.filter(|(scenario, _)| reasons(row, scenario).is_empty()) {
            let _ = writeln!(text, "{} {:?} {scenario}: {failures:?}", row.suite, row.server);
        }
    }
    for (revision, results) in client {
        for (scenario, failures) in results.iter().filter(|(_, failures)| !failures.is_empty()) {
            let _ = writeln!(text, "{revision} as a client, {scenario}: {failures:?}");
        }
    }
    text
}

/// What the suite says of the sidecar as a client of servers.
fn asked(client: &[(&str, suite::Results)]) -> String {
    let mut text = "\n## The sidecar as a client\n\n| revision | scenario | |\n|---|---|---|\n".to_owned();
    for (revision, results) in client {
        for (scenario, failures) in results {
            let outcome = if failures.is_empty() { "passes" } else { "not yet" };
            let _ = writeln!(text, "| {revision} | `{scenario}` | {outcome} |");
        }
        let is_known = |name: &String| {
            results.contains_key(name) || client::LEFT_OUT.iter().any(|(begin, _)| name.starts_with(begin))
        };
        for scenario in suite::required(revision, "client").iter().filter(|name| !is_known(name)) {
            let _ = writeln!(text, "| {revision} | `{scenario}` | not tried yet |");
        }
    }
    text.push_str("\nOf what the revisions require of clients, some is left out:\n\n");
    for (begin, why) in client::LEFT_OUT {
        let _ = writeln!(text, "- `{begin}{}` {why}", if begin.ends_with('/') { "*" } else { "" });
    }
    text
}

fn tables(rows: &[Row]) -> String {
    let mut text = scores(rows);
    let mut notes = Notes::default();
    let suites: BTreeSet<_> = rows.iter().map(|row| row.suite).collect();
    for suite in suites {
        let rows: Vec<_> = rows.iter().filter(|row| row.suite == suite).collect();
        let _ = write!(text, "\n## What {suite} requires\n\n{}", scenarios(suite, &rows, &mut notes));
    }
    if !notes.0.is_empty() {
        text.push_str("\n## Notes\n\n");
        for (number, note) in notes.0.iter().enumerate() {
            let _ = writeln!(text, "{}. {note}", number + 1);
        }
    }
    text
}

/// One line a row: how many scenarios pass.
fn scores(rows: &[Row]) -> String {
    let mut text =
        "| suite | server | made with | over | alone | through the sidecar |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let score = |results: &suite::Results| {
        let passed = results.values().filter(|failures| failures.is_empty()).count();
        format!("{passed}/{}", results.len())
    };
    for Row { suite, server, alone, through } in rows {
        let alone = alone.as_ref().map_or_else(|| "-".to_owned(), score);
        let rules::Behind { revision, maker, over } = server.behind();
        let through = score(through);
        let pin = if server.is_pinned(suite) { ", pinned" } else { "" };
        let _ = writeln!(text, "| {suite} | {revision}{pin} | {maker} | {over} | {alone} | {through} |");
    }
    text
}

/// One line a scenario, one column a revision of the servers: it passes with all of them, or notes say why not.
fn scenarios(suite: &str, rows: &[&Row], notes: &mut Notes) -> String {
    let mut columns: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        columns.entry(std::cmp::Reverse(row.server.revision)).or_default().push(row);
    }
    let mut text = "| scenario |".to_owned();
    for revision in columns.keys() {
        let _ = write!(text, " {} |", revision.0);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(columns.len()));
    for scenario in suite::required(suite, "server") {
        let _ = write!(text, "| `{scenario}` |");
        for rows in columns.values() {
            let cells: BTreeSet<_> = rows.iter().flat_map(|row| notes.of(row, &scenario)).collect();
            let cells: Vec<_> = cells.iter().map(ToString::to_string).collect();
            let cell = if cells.is_empty() { "passes".to_owned() } else { format!("[{}]", cells.join(", ")) };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

/// Why a scenario does not pass in a row, as far as there are reasons for all that went wrong.
fn reasons(row: &Row, scenario: &str) -> Vec<String> {
    let server = row.server.behind();
    let rules = rules::forbid(server, scenario);
    if row.through[scenario].iter().all(|failure| rules::is_explained(server, scenario, failure)) {
        return rules.into_iter().map(str::to_owned).collect();
    }
    let own = row.alone.as_ref().is_some_and(|alone| !alone[scenario].is_empty());
    let by_itself = own.then(|| format!("The server ({}) does not pass it alone either.", server.maker));
    by_itself.into_iter().collect()
}

/// Why scenarios do not pass, each reason once.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    /// The numbers of the reasons why a scenario does not pass in this row, if it does not.
    fn of(&mut self, row: &Row, scenario: &str) -> Vec<usize> {
        if row.through[scenario].is_empty() {
            return Vec::new();
        }
        let mut notes = reasons(row, scenario);
        if notes.is_empty() {
            notes.push("Not yet.".to_owned());
        }
        notes.into_iter().map(|note| self.number(note)).collect()
    }

    fn number(&mut self, note: String) -> usize {
        let found = self.0.iter().position(|known| *known == note);
        1 + found.unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        })
    }
}
