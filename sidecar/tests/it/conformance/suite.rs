//! The protocol's own suite, which plays a client and judges what it hears.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;

/// What came of every scenario: nothing, or what went wrong in it.
pub(super) type Results = BTreeMap<String, Vec<String>>;

#[derive(Deserialize)]
struct Check {
    id: String,
    status: String,
    #[serde(rename = "errorMessage")]
    error: Option<String>,
}

/// The folder of the suite and of the servers that it is run against: `e2e/conformance/install.sh` installs them.
pub(super) fn folder() -> &'static Path {
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

/// Runs what a revision requires of servers against the one at this URL.
pub(super) fn run(url: &str, revision: &str) -> Results {
    let directory = tempfile::tempdir().expect("a directory");
    let status = Command::new(folder().join("bin/conformance"))
        .args(["server", "--url", url, "--requirements", revision, "--output-dir"])
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("the suite");
    let found = collect(directory.path(), "server-");
    let result = |name: String| {
        let failures =
            found.get(&name).cloned().unwrap_or_else(|| vec!["it did not come to an end".to_owned()]);
        (name, failures)
    };
    required(revision, "server").into_iter().map(result).collect()
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
        let failed = checks.into_iter().filter(|check| check.status == "FAILURE");
        let say = |check: Check| format!("{}: {}", check.id, check.error.unwrap_or_default());
        results.insert(name, failed.map(say).collect());
    }
    results
}
