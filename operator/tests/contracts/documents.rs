//! What the documents say of the operator is true.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore::Reason;
use longshore::{Metrics, Outcome, Write};

/// Whoever looks a reason up finds it, and finds none that is no longer given.
#[test]
fn troubleshooting_explains_every_reason() {
    let page = include_str!("../../../docs/troubleshooting.md");
    let (_, tables) = page.split_once("## Reasons").unwrap();
    let (tables, _) = tables.split_once("\n## ").unwrap();
    let explained: BTreeSet<&str> = tables
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" | "))
        .flat_map(|(reasons, _)| reasons.trim_end_matches('`').split("`, `"))
        .collect();
    let given: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(explained, given);
}

/// The page names every metric of the operator. Those of the catalog and of the sidecar are compared beside them.
#[test]
fn operating_names_every_metric_and_no_other() {
    let page = include_str!("../../../docs/operating.md");
    let (_, table) = page.split_once("| operator | |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let cells = table.lines().filter_map(|row| row.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`')).filter(|word| word.starts_with("longshore_"));
    let told: BTreeSet<_> = names.filter_map(|name| name.split('{').next()).collect();
    let metrics = Metrics::new().unwrap();
    // Without a series a family is not in the text.
    metrics.reconciled(Outcome::Done, Duration::ZERO);
    metrics.wrote(Write::Apply);
    let text = metrics.text().unwrap();
    let names: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(told, names);
}
