//! What the documents say of the operator is true.

use std::collections::BTreeSet;

use longshore::mcp_server::condition::Reason;
use longshore::metrics::Metrics;

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

/// The page names every metric of the operator and the catalog.
#[test]
fn operating_names_every_metric() {
    let page = include_str!("../../../docs/operating.md");
    let metrics = Metrics::new().unwrap();
    let catalog = longshore_catalog::Metrics::new().unwrap();
    let text = metrics.text().unwrap() + &catalog.text().unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in names {
        assert!(page.contains(&format!("`{name}")), "{name} is not in docs/operating.md");
    }
}
