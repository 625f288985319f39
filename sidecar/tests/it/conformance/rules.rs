//! What cannot cross from one revision to another, and the rule that forbids it. The operator's tests have this file too.

use super::suite::{self, Results};

/// The server behind a sidecar, in the page's words.
#[derive(Clone, Copy)]
pub(super) struct Behind<'a> {
    pub(super) revision: &'a str,
    pub(super) maker: &'a str,
    pub(super) over: &'a str,
}

const ASKING: &str = "Servers ask users (elicitation) since 2025-06-18.";

/// A scenario, the first revision whose servers can pass it, and why older ones cannot. The first that fits counts.
const SINCE: [(&str, &str, &str); 11] = [
    ("tools-call-audio", "2025-03-26", "Sound is a kind of content since 2025-03-26."),
    ("tools-call-elicitation", "2025-06-18", ASKING),
    ("input-required-result-basic-elicitation", "2025-06-18", ASKING),
    ("input-required-result-request-state", "2025-06-18", ASKING),
    ("input-required-result-multiple-input-requests", "2025-06-18", ASKING),
    ("input-required-result-multi-round", "2025-06-18", ASKING),
    ("input-required-result-non-tool-request", "2025-06-18", ASKING),
    ("input-required-result-result-type", "2025-06-18", ASKING),
    ("elicitation-sep1034-defaults", "2025-11-25", "What servers ask for has defaults since 2025-11-25."),
    (
        "elicitation-sep1330-enums",
        "2025-11-25",
        "Users may pick several choices, with titles, since 2025-11-25.",
    ),
    (
        "input-required-result-basic-elicitation",
        "2026-07-28",
        "What an older server asks has no name. Longshore gives it one, and the scenario insists on `user_name`.",
    ),
];

/// Why checks of `server-stateless` fail in front of some servers of an older revision.
struct Stateless {
    checks: &'static [&'static str],
    before: fn(Behind<'_>) -> bool,
    rule: &'static str,
}

const STATELESS: [Stateless; 2] = [
    Stateless {
        checks: &["sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"],
        before: |server| server.maker == "Longshore",
        rule: "Older revisions have no error of their own for a client that lacks a capability, which \
         `sep-2575-server-rejects-undeclared-capability` and `sep-2575-missing-capability-http-400` want to be -32021. \
         Longshore's own server does not ask such a client, as they demand, and what it says instead passes as it is. \
         Servers on SDKs ask all the same, and Longshore says -32021.",
    },
    Stateless {
        checks: &[ON_STREAM],
        before: |server| server.revision < "2025-06-18",
        rule: "`sep-2575-http-server-no-independent-requests-on-stream` wants a server to ask users, as they do since \
         2025-06-18.",
    },
];
const ON_STREAM: &str = "sep-2575-http-server-no-independent-requests-on-stream";

/// The rules that keep a scenario from passing in front of this server.
pub(super) fn forbid(server: Behind<'_>, scenario: &str) -> Vec<&'static str> {
    if scenario == "server-stateless" {
        return stateless(server).map(|found| found.rule).collect();
    }
    let found = SINCE.iter().find(|(name, since, _)| *name == scenario && server.revision < *since);
    found.map(|(.., rule)| *rule).into_iter().collect()
}

/// Whether one of them is why this went wrong.
pub(super) fn is_explained(server: Behind<'_>, scenario: &str, failure: &str) -> bool {
    if scenario == "server-stateless" && failure != KIND {
        let check = failure.split(':').next().unwrap_or_default();
        return stateless(server).any(|found| found.checks.contains(&check));
    }
    !forbid(server, scenario).is_empty()
}

fn stateless(server: Behind<'_>) -> impl Iterator<Item = &'static Stateless> {
    STATELESS.iter().filter(move |found| server.revision < "2026-07-28" && (found.before)(server))
}

/// What went wrong where nothing did, but only because a server or the clock was kind.
const KIND: &str = "not always";

/// What the suite says of what is served at this URL, in front of this server. What only a rule keeps from passing counts as
/// that, also where it passed.
pub(super) fn judged(url: &str, suite: &str, server: Behind<'_>) -> Results {
    let may_pass = |scenario: &str, failure: &str| !is_explained(server, scenario, failure);
    let again = |failed: &[String]| suite::run_each(url, suite, failed);
    let mut results = suite::patiently(suite::run(url, suite), may_pass, again);
    for (scenario, failures) in &mut results {
        if failures.is_empty() && !forbid(server, scenario).is_empty() {
            failures.push(KIND.to_owned());
        }
    }
    results
}
