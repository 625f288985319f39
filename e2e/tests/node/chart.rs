//! The life of a release on a node: installed, tested, upgraded, rolled back, uninstalled and installed again, with a
//! server that serves throughout. On a cluster of its own, since the others' operator goes nowhere.

mod monitors;

use longshore_e2e::cluster::{Cluster, Shape, run};
use longshore_e2e::longshore::{self, NAMESPACE, RELEASE, helm};
use longshore_e2e::testing::{Kind, Room};

use crate::may_start_a_node;
use crate::server::go_server;

#[test]
fn a_release_comes_changes_and_goes_while_servers_serve() {
    if !may_start_a_node() {
        return;
    }
    let _room = Room::take_first(Kind::Pods);
    let cluster = Cluster::start(Shape::Node).expect("a node starts");
    longshore::install(&cluster).expect("the chart installs");

    let tested = release(&cluster, &["test", RELEASE, "--timeout", "5m"]);
    assert!(tested.contains("Succeeded"), "helm test says: {tested}");

    let manifest = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(manifest.path(), go_server("server", &[])).expect("a file can be written");
    let manifest = manifest.path().to_str().expect("a path is text");
    kubectl(&cluster, &["apply", "-f", manifest]);
    kubectl(&cluster, &["wait", "--for=condition=Ready", "lmcp/server", "--timeout=5m"]);
    let pod = serving_pod(&cluster);

    let chart = longshore::chart();
    let chart = chart.to_str().expect("a path is text");
    kubectl(&cluster, &["apply", "-f", monitors::KIND]);
    kubectl(&cluster, &["wait", "--for=condition=Established", "-f", monitors::KIND, "--timeout=5m"]);
    release(
        &cluster,
        &[
            "upgrade",
            RELEASE,
            chart,
            "--reset-then-reuse-values",
            "--set",
            "logLevel=debug,metrics.podMonitor.enabled=true,metrics.prometheusRule.enabled=true",
            "--wait",
            "--timeout",
            "5m",
        ],
    );
    assert!(operator_arguments(&cluster).contains("--log-level=debug"));
    monitors::find_every_pod_once(&cluster);
    release(&cluster, &["rollback", RELEASE, "1", "--wait", "--timeout", "5m"]);
    assert_eq!(
        kubectl(&cluster, &["get", "podmonitors,prometheusrules", "--all-namespaces", "-o", "name"]),
        ""
    );
    assert!(operator_arguments(&cluster).contains("--log-level=info"));
    release(&cluster, &["test", RELEASE, "--timeout", "5m"]);

    release(&cluster, &["uninstall", RELEASE, "--wait", "--timeout", "5m"]);
    // Helm waits for the Deployment to go; its pods take their time to end.
    kubectl(&cluster, &["wait", "--for=delete", "pods", "--all", "--namespace", NAMESPACE, "--timeout=5m"]);
    assert_eq!(kubectl(&cluster, &["get", "deployments,pods", "--namespace", NAMESPACE, "-o", "name"]), "");
    assert_eq!(serving_pod(&cluster), pod, "without an operator the server serves on");

    longshore::install(&cluster).expect("the chart installs again, over the CRD that it left");
    kubectl(
        &cluster,
        &[
            "patch",
            "lmcp",
            "server",
            "--type=merge",
            "-p",
            "{\"spec\":{\"limits\":{\"requestBytes\":\"1Mi\"}}}",
        ],
    );
    let new_generation = "--for=jsonpath={.status.observedGeneration}=2";
    kubectl(&cluster, &["wait", new_generation, "lmcp/server", "--timeout=5m"]);
    kubectl(&cluster, &["wait", "--for=condition=Ready", "lmcp/server", "--timeout=5m"]);
    assert_eq!(serving_pod(&cluster), pod, "the same release leaves the server's pod as it is");
}

/// The uid of the server's ready pod.
fn serving_pod(cluster: &Cluster) -> String {
    kubectl(
        cluster,
        &["wait", "--for=condition=Ready", "pod", "-l", "longshore.dev/server=server", "--timeout=5m"],
    );
    kubectl(
        cluster,
        &["get", "pod", "-l", "longshore.dev/server=server", "-o", "jsonpath={.items[*].metadata.uid}"],
    )
}

fn operator_arguments(cluster: &Cluster) -> String {
    let arguments = "jsonpath={.spec.template.spec.containers[0].args}";
    kubectl(cluster, &["get", "deployment", RELEASE, "--namespace", NAMESPACE, "-o", arguments])
}

fn release(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut helm = helm(cluster).expect("helm can be run");
    helm.args(arguments).args(["--namespace", NAMESPACE]);
    run(helm).unwrap_or_else(|error| panic!("{error}\n{}", report(cluster)))
}

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut kubectl = cluster.command("kubectl").expect("kubectl can be run");
    kubectl.args(arguments);
    run(kubectl).unwrap_or_else(|error| panic!("{error}\n{}", report(cluster)))
}

/// What there is to know when something fails.
fn report(cluster: &Cluster) -> String {
    let looks: [&[&str]; 4] = [
        &["get", "pods,lmcp", "--all-namespaces", "-o", "wide"],
        &["get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"],
        &["logs", "deployment/longshore", "--namespace", NAMESPACE, "--tail=30"],
        &["logs", "longshore-test", "--namespace", NAMESPACE],
    ];
    looks
        .map(|arguments| {
            let mut kubectl = cluster.command("kubectl").expect("kubectl can be run");
            kubectl.args(arguments);
            let said = run(kubectl).unwrap_or_else(|error| error.to_string());
            format!("---- kubectl {}\n{said}", arguments.join(" "))
        })
        .join("\n")
}
