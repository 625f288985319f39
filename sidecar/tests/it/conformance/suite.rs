//! The protocol's own suite, which plays a client and judges what it hears. The operator's tests have this file too.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use serde::Deserialize;

/// What came of every scenario: nothing, or what went wrong in it.
pub(super) type Results = BTreeMap<String, Vec<String>>;

/// The revisions that it knows requirements of.
pub(super) const REVISIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
/// What is wrong with a scenario whose checks are all left out.
pub(super) const SKIPPED: &str = "it tries nothing";
/// How often what failed is tried again: the page says so.
const LOOKS: u32 = 5;
/// How much longer the pause is before each of them.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct Check {
    id: String,
    status: String,
    #[serde(rename = "errorMessage")]
    error: Option<String>,
}

/// The folder of the suite and of the servers that it is run against: `e2e/conformance/install.sh` installs them.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/conformance/install.sh");
        let output = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().expect("bash");
        assert!(output.status.success(), "the suite could not be installed");
        PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
    })
}

/// The scenarios that a revision requires of a server (`server`) or of a client (`client`), in the suite's order.
pub(super) fn required(revision: &str, role: &str) -> Vec<String> {
    let file = format!("suite/node_modules/@modelcontextprotocol/conformance/requirements/{revision}.yaml");
    let text = std::fs::read_to_string(folder().join(file)).expect("the requirements");
    let list = text.lines().skip_while(|line| *line != format!("{role}:")).skip(1);
    let names = list.map_while(|line| line.strip_prefix("  - ").or(line.is_empty().then_some("")));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The scenarios for the extension for tasks, which no revision requires.
pub(super) fn of_tasks() -> Vec<String> {
    let file = "suite/node_modules/@modelcontextprotocol/conformance/requirements/2026-07-28.yaml";
    let text = std::fs::read_to_string(folder().join(file)).expect("the requirements");
    let names = text.lines().filter_map(|line| line.strip_prefix("  - scenario: "));
    names.filter(|name| name.starts_with("tasks-")).map(str::to_owned).collect()
}

/// Tries those again that failed and may pass, by their names and by what went wrong: the suite gives some things a fraction
/// of a second, which is too little on a busy machine.
pub(super) fn patiently(
    mut results: Results,
    may_pass: impl Fn(&str, &str) -> bool,
    again: impl Fn(&[String]) -> Results,
) -> Results {
    for look in 0..LOOKS {
        let failed = results.iter().filter(|(scenario, failures)| {
            failures.iter().any(|failure| failure != SKIPPED && may_pass(scenario, failure))
        });
        let failed: Vec<_> = failed.map(|(scenario, _)| scenario.clone()).collect();
        if failed.is_empty() {
            break;
        }
        for name in &failed {
            eprintln!("tried again: {name}: {:?}", results[name]);
        }
        // A machine is busy for more than a moment.
        sleep(PAUSE * look);
        results.extend(again(&failed));
    }
    results
}

/// Runs what a revision requires of servers against the one at this URL.
pub(super) fn run(url: &str, revision: &str) -> Results {
    let directory = tempfile::tempdir().expect("a directory");
    judge(&["server", "--url", url, "--requirements", revision], directory.path());
    let found = collect(directory.path(), "server-");
    required(revision, "server").into_iter().map(|name| result(&found, name)).collect()
}

/// Runs these scenarios, one by one.
pub(super) fn run_each(url: &str, revision: &str, scenarios: &[String]) -> Results {
    scenarios.iter().map(|name| (name.clone(), run_one(url, revision, name))).collect()
}

/// Runs one scenario, as it is run among all that the revision requires.
fn run_one(url: &str, revision: &str, scenario: &str) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let scenario_of = ["--scenario", scenario, "--spec-version", revision, "--force"];
    judge(&[&["server", "--url", url], &scenario_of[..]].concat(), directory.path());
    result(&collect(directory.path(), "server-"), scenario.to_owned()).1
}

fn result(found: &Results, name: String) -> (String, Vec<String>) {
    let nothing = || vec!["it did not come to an end".to_owned()];
    let failures = found.get(&name).cloned().unwrap_or_else(nothing);
    (name, failures)
}

/// A program that gives way to those of other tests: here everybody waits for as long as it takes, and tries again, while
/// these are at work all the time.
pub(crate) fn patient(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(program);
    command
}

/// A process of the suite, which runs one command after the other.
struct Judge {
    _process: Child,
    into: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Those that have nothing to do. They end with this process, which they read from.
static JUDGES: Mutex<Vec<Judge>> = Mutex::new(Vec::new());

impl Judge {
    fn start() -> Self {
        let mut process = patient(folder().join("bin/judge"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the suite");
        let into = process.stdin.take().expect("its input");
        let from = BufReader::new(process.stdout.take().expect("its output"));
        Self { _process: process, into, from }
    }

    /// Whether the suite came to an end with these words.
    fn run(&mut self, words: &[&str]) -> bool {
        let line = serde_json::to_string(words).expect("text") + "\n";
        let mut answer = String::new();
        self.into.write_all(line.as_bytes()).is_ok()
            && self.from.read_line(&mut answer).is_ok_and(|read| read > 0)
    }
}

/// Has the suite run a command that writes to a directory.
pub(super) fn judge(words: &[&str], directory: &Path) {
    let idle = JUDGES.lock().expect("no panic").pop();
    let mut judge = idle.unwrap_or_else(Judge::start);
    let words = [words, &["--output-dir", directory.to_str().expect("text")]].concat();
    if judge.run(&words) {
        JUDGES.lock().expect("no panic").push(judge);
    } else {
        eprintln!("the suite broke off: {words:?}");
    }
}

/// What the suite wrote: one folder a scenario, called by a prefix, the scenario and a time.
pub(super) fn collect(directory: &Path, prefix: &str) -> Results {
    let mut results = Results::new();
    for entry in std::fs::read_dir(directory).expect("the results") {
        let entry = entry.expect("a folder");
        let name = entry.file_name().into_string().expect("text");
        // A time is as long as `2026-07-28T00-00-00-000Z`.
        let Some(end) = name.len().checked_sub("-2026-07-28T00-00-00-000Z".len()) else { continue };
        let name = name[..end].strip_prefix(prefix).expect("the prefix").to_owned();
        // A scenario that the suite gave up has none.
        let Ok(text) = std::fs::read(entry.path().join("checks.json")) else { continue };
        let checks: Vec<Check> = serde_json::from_slice(&text).expect("checks");
        if checks.iter().all(|check| check.status == "SKIPPED") {
            results.insert(name, vec![SKIPPED.to_owned()]);
            continue;
        }
        let failed = checks.into_iter().filter(|check| check.status == "FAILURE");
        let say = |check: Check| format!("{}: {}", check.id, check.error.unwrap_or_default());
        results.insert(name, failed.map(say).collect());
    }
    results
}
