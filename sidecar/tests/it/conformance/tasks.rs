//! The suite's scenarios for tasks of 2026-07-28. They are an extension, so no revision requires them, and not every SDK
//! has them: they are tried with the project's own server.

use std::fmt::Write as _;

use super::server::{Maker, Server, Transport};
use super::suite::{self, Results};

/// The revision with the extension.
const REVISION: &str = "2026-07-28";

/// What came of them: with the server alone, and with a sidecar in front of it.
pub(super) struct Tasks {
    alone: Results,
    http: Results,
    stdio: Results,
}

/// Runs all of them.
pub(super) fn run() -> Tasks {
    let scenarios = suite::of_tasks();
    let server = |transport| Server { revision: REVISION, maker: Maker::Longshore, transport };
    let through = |transport| {
        let served = server(transport).behind_a_sidecar(REVISION);
        let judge = |scenarios: &[String]| suite::run_each(&served.url(), REVISION, scenarios);
        suite::patiently(judge(&scenarios), |_, _| true, judge)
    };
    let alone = |scenarios: &[String]| server(Transport::Http).alone_in(REVISION, scenarios);
    std::thread::scope(|scope| {
        let http = scope.spawn(|| through(Transport::Http));
        let stdio = scope.spawn(|| through(Transport::Stdio));
        Tasks {
            alone: suite::patiently(alone(&scenarios), |_, _| true, alone),
            http: http.join().expect("its results"),
            stdio: stdio.join().expect("its results"),
        }
    })
}

impl Tasks {
    /// The part of the page.
    pub(super) fn table(&self) -> String {
        let mut text =
            "\n## Tasks of 2026-07-28\n\nThey are an extension, which no revision requires. The server is \
                        Longshore's own.\n\n| scenario | alone | HTTP | stdio |\n|---|---|---|---|\n"
                .to_owned();
        for scenario in suite::of_tasks() {
            let [alone, http, stdio] =
                [&self.alone, &self.http, &self.stdio].map(|results| cell(&results[&scenario]));
            let _ = writeln!(text, "| `{scenario}` | {alone} | {http} | {stdio} |");
        }
        text
    }

    /// What the suite did not like, in its words.
    pub(super) fn failures(&self) -> String {
        let mut text = String::new();
        for (where_, results) in [("alone", &self.alone), ("HTTP", &self.http), ("stdio", &self.stdio)] {
            for (scenario, failures) in results.iter().filter(|(_, failures)| !failures.is_empty()) {
                let _ = writeln!(text, "tasks, {where_}, {scenario}: {failures:?}");
            }
        }
        text
    }
}

fn cell(failures: &[String]) -> &'static str {
    match failures {
        [] => "passes",
        [only] if only == suite::SKIPPED => "tries nothing yet",
        _ => "not yet",
    }
}
