//! What cannot cross from one revision to another, and the rule that forbids it. The operator's tests have this file too.

use super::suite::{self, Results};

const ASKING: &str = "Servers ask users (elicitation) since 2025-06-18.";

/// A scenario, the first revision whose servers can pass it, and why older ones cannot. The first that fits counts.
const SINCE: [(&str, &str, &str); 14] = [
    ("tools-call-audio", "2025-03-26", "Sound is a kind of content since 2025-03-26."),
    ("tools-call-elicitation", "2025-06-18", ASKING),
    ("input-required-result-basic-elicitation", "2025-06-18", ASKING),
    ("input-required-result-request-state", "2025-06-18", ASKING),
    ("input-required-result-multiple-input-requests", "2025-06-18", ASKING),
    ("input-required-result-multi-round", "2025-06-18", ASKING),
    ("input-required-result-non-tool-request", "2025-06-18", ASKING),
    ("input-required-result-result-type", "2025-06-18", ASKING),
    ("input-required-result-tampered-state", "2025-06-18", ASKING),
    ("input-required-result-capability-check", "2025-06-18", ASKING),
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
    (
        "server-stateless",
        "2026-07-28",
        "With some servers its checks of -32021 fail: older revisions have no error of their own for a client that \
         lacks a capability, and what a server says instead passes as it is. Over stdio another one gives a process \
         0.6 seconds to start and to answer. It counts as failed with all of them.",
    ),
];

/// Why a scenario cannot pass in front of a server of this revision, if that is so.
pub(super) fn forbids(server: &str, scenario: &str) -> Option<&'static str> {
    let found = SINCE.iter().find(|(name, since, _)| *name == scenario && server < *since);
    found.map(|(.., rule)| *rule)
}

/// What the suite says of what is served at this URL, behind which is a server of this revision. What only a rule keeps from
/// passing counts as that, also where a server or the clock was kind.
pub(super) fn judged(url: &str, suite: &str, server: &str) -> Results {
    let is_forbidden = |scenario: &str| forbids(server, scenario).is_some();
    let again = |failed: &[String]| suite::run_each(url, suite, failed);
    let mut results = suite::patiently(suite::run(url, suite), |scenario| !is_forbidden(scenario), again);
    for (scenario, failures) in &mut results {
        if failures.is_empty() && is_forbidden(scenario) {
            failures.push("not always".to_owned());
        }
    }
    results
}
