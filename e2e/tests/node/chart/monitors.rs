//! What Prometheus finds by the chart's monitors: the rules are those of the Prometheus operator, the pods are those that
//! run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use longshore_e2e::cluster::Cluster;
use longshore_e2e::longshore::NAMESPACE;
use longshore_e2e::mcp_client::Endpoint;
use serde_json::Value;

use super::kubectl;

/// The kinds themselves, which come with the Prometheus operator.
pub(super) const KIND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/monitoring.yaml");

/// What a pod of each component has a figure of, and no other.
const FIGURES: [(&str, &str); 3] = [
    ("operator", "longshore_leader "),
    ("catalog", "longshore_catalog_tools "),
    ("mcp-server", "longshore_sessions_opened_total "),
];
const DEADLINE: Duration = Duration::from_secs(30);

/// Every pod of Longshore's and every server's pod is found once, and has the figures that it should where it is found.
pub(super) fn find_every_pod_once(cluster: &Cluster) {
    let monitors = objects(cluster, &["podmonitors", "--namespace", NAMESPACE]);
    let targets: Vec<_> = monitors.iter().flat_map(|monitor| targets(cluster, monitor)).collect();
    let mut found: Vec<_> = targets.iter().map(|(pod, _)| pod.clone()).collect();
    found.sort();
    let longshore = objects(cluster, &["pods", "--namespace", NAMESPACE]);
    let servers = objects(cluster, &["pods", "--all-namespaces", "--selector=longshore.dev/server"]);
    let mut there: Vec<_> = longshore.iter().chain(&servers).filter(|pod| runs(pod)).map(name).collect();
    there.sort();
    assert_eq!(found, there, "{monitors:#?}");

    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    let mut pages = String::new();
    for ((component, pod), address) in targets {
        let (_, figure) = FIGURES.iter().find(|(name, _)| *name == component).expect("a known component");
        let page = page(cluster, address);
        assert!(page.lines().any(|line| line.starts_with(figure)), "{component} {pod}: {page}");
        pages.push_str(&page);
        *counts.entry(component).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(component, count)| (component.as_str(), *count)).collect();
    assert_eq!(counts, [("catalog", 2), ("mcp-server", 1), ("operator", 2)]);
    are_figures_of_somebody(&alerts(cluster), &pages);
}

/// The expressions of the chart's alerts.
fn alerts(cluster: &Cluster) -> Vec<String> {
    let rules = objects(cluster, &["prometheusrules", "--namespace", NAMESPACE]);
    let groups = rules.iter().filter_map(|rule| rule["spec"]["groups"].as_array()).flatten();
    let rules = groups.filter_map(|group| group["rules"].as_array()).flatten();
    rules.map(|rule| text(&rule["expr"]).to_owned()).collect()
}

/// An alert on a figure that nobody has never comes.
fn are_figures_of_somebody(alerts: &[String], pages: &str) {
    assert!(!alerts.is_empty());
    for alert in alerts {
        let words = alert.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        // The label of a server's name looks like a figure, too.
        for figure in
            words.filter(|word| word.starts_with("longshore_") && !word.starts_with("longshore_dev_"))
        {
            let is_there = pages.lines().any(|line| line.split(['{', ' ']).next() == Some(figure));
            assert!(is_there, "nobody has {figure}: {alert}");
        }
    }
}

/// The pods that a monitor selects, and where each has a port of the name that the monitor says.
fn targets(cluster: &Cluster, monitor: &Value) -> Vec<((String, String), SocketAddr)> {
    let spec = &monitor["spec"];
    let own = || vec![monitor["metadata"]["namespace"].as_str().expect("it is in a namespace")];
    let names = || spec["namespaceSelector"]["matchNames"].as_array();
    let namespaces = match (spec["namespaceSelector"]["any"].as_bool(), names()) {
        (Some(true), _) => None,
        (_, Some(names)) => Some(names.iter().filter_map(Value::as_str).collect()),
        (_, None) => Some(own()),
    };
    let labels = spec["selector"]["matchLabels"].as_object().expect("it selects by labels");
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={}", text(value))).collect();
    let selector = format!("--selector={}", pairs.join(","));
    let pods = objects(cluster, &["pods", "--all-namespaces", &selector]);
    let mut targets = Vec::new();
    for pod in pods.iter().filter(|pod| runs(pod)) {
        let namespace = text(&pod["metadata"]["namespace"]);
        if namespaces.as_ref().is_some_and(|namespaces| !namespaces.contains(&namespace)) {
            continue;
        }
        for endpoint in spec["podMetricsEndpoints"].as_array().into_iter().flatten() {
            // What is said of neither is the default: `/metrics`.
            assert_eq!((&endpoint["path"], &endpoint["scheme"]), (&Value::Null, &Value::Null));
            for port in ports(pod).filter(|port| port["name"] == endpoint["port"]) {
                let address = format!("{}:{}", text(&pod["status"]["podIP"]), port["containerPort"]);
                targets.push((name(pod), address.parse().expect("an address")));
            }
        }
    }
    targets
}

/// The ports of all containers, those included that start before the others and stay.
fn ports(pod: &Value) -> impl Iterator<Item = &Value> {
    let containers = ["initContainers", "containers"].map(|kind| pod["spec"][kind].as_array());
    let containers = containers.into_iter().flatten().flatten();
    containers.filter_map(|container| container["ports"].as_array()).flatten()
}

fn page(cluster: &Cluster, address: SocketAddr) -> String {
    let endpoint = Endpoint { address, host: address.to_string(), path: "/metrics".to_owned() };
    let asked = cluster.block_on(async || endpoint.send(Method::GET, &[], "", DEADLINE).await);
    let answer = asked.expect("the network can be entered").expect("an answer");
    assert_eq!(answer.status, 200, "{address}: {}", answer.body);
    answer.body
}

/// Whether it is one to be asked: one that ends may be gone by then.
fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

/// The component that it is of, and its name.
fn name(pod: &Value) -> (String, String) {
    let metadata = &pod["metadata"];
    let component = text(&metadata["labels"]["app.kubernetes.io/component"]);
    (component.to_owned(), text(&metadata["name"]).to_owned())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn objects(cluster: &Cluster, what: &[&str]) -> Vec<Value> {
    let said = kubectl(cluster, &[&["get"], what, &["-o", "json"]].concat());
    let list: Value = serde_json::from_str(&said).expect("JSON");
    list["items"].as_array().cloned().unwrap_or_default()
}
