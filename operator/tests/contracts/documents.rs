//! What the documents say of the operator is true.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore::Reason;
use longshore::{Metrics, Outcome, Write};
use longshore_sidecar_config::ports;

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

/// Argo CD goes on waiting for what troubleshooting says to wait for, and for nothing else.
#[test]
fn argo_waits_for_what_passes() {
    let page = include_str!("../../../docs/operating.md");
    let (_, script) = page.split_once("    local waiting = {").unwrap();
    let (waiting, script) = script.split_once('}').unwrap();
    let waiting: BTreeSet<&str> =
        waiting.split(',').map(|entry| entry.trim().strip_suffix(" = true").unwrap()).collect();
    let table = include_str!("../../../docs/troubleshooting.md");
    let (_, table) = table.split_once("## Reasons").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let passes = |row: &&str| row.rsplit(" | ").next().is_some_and(|cell| cell.starts_with("wait"));
    let rows = table.lines().filter(passes).filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
    let told: BTreeSet<&str> = rows.flat_map(|(reasons, _)| reasons.split("`, `")).collect();
    let may_pass = [
        Reason::SecretNotFound,
        Reason::ConfigMapNotFound,
        Reason::ServiceAccountNotFound,
        Reason::Unschedulable,
        Reason::NodeNotReady,
        Reason::ConnectionRefused,
        Reason::InitializeTimeout,
        Reason::SidecarUnreachable,
    ];
    assert_eq!(waiting, told.into_iter().chain(may_pass.iter().map(|reason| reason.name())).collect());

    let (script, _) = script.split_once("    return ").unwrap();
    let named: BTreeSet<&str> =
        script.split(".reason == \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let known = [Reason::ScaledToZero, Reason::RolloutFailing, Reason::Ready, Reason::ConfigurationRefused];
    assert_eq!(named, known.iter().map(|reason| reason.name()).collect());
}

/// What the page says it is tested with is what the tests install, and what it says does not work the chart refuses.
#[test]
fn operating_names_the_versions_of_the_tests() {
    let page = include_str!("../../../docs/operating.md");
    let programs = include_str!("../../../e2e/cluster/programs/go.mod");
    for (what, module) in [
        ("Kubernetes", "k8s.io/kubernetes v"),
        ("Helm", "helm.sh/helm/v4 v"),
        ("network policies, as kube-router enforces them", "cloudnativelabs/kube-router/v2 v"),
    ] {
        let (_, version) = programs.split_once(module).unwrap();
        let version = version.split_whitespace().next().unwrap();
        assert!(page.contains(&format!("\n| {what} | {version} | ")), "{what} {version}");
    }
    let chart = include_str!("../../../charts/longshore/Chart.yaml");
    let (_, oldest) = chart.split_once("kubeVersion: \">=").unwrap();
    let oldest = oldest.split(".0-0").next().unwrap();
    assert!(page.contains(&format!("| older than {oldest}: the chart is not installed |")), "{oldest}");
}

/// Whoever denies by default allows what stands there.
#[test]
fn operating_names_every_port() {
    let page = include_str!("../../../docs/operating.md");
    let (_, table) = page.split_once("| port | from | to | for |\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let first = table.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    let told: BTreeSet<u16> = first.filter_map(|cell| cell.parse().ok()).filter(|port| *port != 53).collect();
    let templates = [
        include_str!("../../../charts/longshore/templates/deployment.yaml"),
        include_str!("../../../charts/longshore/templates/catalog/deployment.yaml"),
    ];
    let listening = templates.iter().flat_map(|template| template.split("containerPort: ").skip(1));
    let listening = listening.map(|rest| rest.split('}').next().unwrap().parse::<u16>().unwrap());
    let open: BTreeSet<u16> = listening.chain([ports::MCP, ports::ADMIN, ports::PEERS]).collect();
    assert_eq!(told, open);
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

/// Whoever opens one of these files learns of all that is beside it.
#[test]
fn every_module_is_on_its_map() {
    for (file, source) in [
        ("operator", include_str!("../../src/lib.rs")),
        ("operator: local", include_str!("../../src/local.rs")),
        ("operator: mcp_server", include_str!("../../src/mcp_server.rs")),
        ("sidecar", include_str!("../../../sidecar/src/lib.rs")),
        ("sidecar: exchange", include_str!("../../../sidecar/src/exchange.rs")),
        ("sidecar: sessions", include_str!("../../../sidecar/src/sessions.rs")),
        ("sidecar: stack", include_str!("../../../sidecar/src/stack.rs")),
        ("sidecar: upstream", include_str!("../../../sidecar/src/upstream.rs")),
    ] {
        let map: String = source.lines().filter(|line| line.starts_with("//!")).collect();
        let modules = source.lines().filter_map(|line| line.strip_suffix(';')?.rsplit_once("mod "));
        for (_, module) in modules.filter(|(before, _)| before.is_empty() || before.starts_with("pub")) {
            let is_there = map.contains(&format!("`{module}`")) || map.contains(&format!("`mod@{module}`"));
            assert!(is_there, "{file}: {module}");
        }
    }
}
