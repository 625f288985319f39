//! Longshore on a cluster, from this checkout: its images, and its chart installed with Helm.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkout::{self, ScriptError};
use crate::cluster::{Cluster, ClusterError, run};
use crate::images;

/// The namespace that Longshore itself is in.
pub const NAMESPACE: &str = "longshore-system";
/// The name of the Helm release.
pub const RELEASE: &str = "longshore";

/// Why Longshore was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Images could not be made.
    #[error("cannot make images: {0}")]
    Images(#[from] ScriptError),
    /// A program could not be started.
    #[error("cannot run Helm or kubectl: {0}")]
    Files(#[from] io::Error),
    /// The cluster refused, or was refused.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Helm did not see the operator become available.
    #[error("{helm}\n{operator}")]
    Helm {
        /// What Helm said.
        helm: ClusterError,
        /// What there is to see of the operator.
        operator: String,
    },
}

/// Installs Longshore, or upgrades it, and waits until the operator is available. Servers of others, which tests and
/// examples name, are brought in too.
pub fn install(cluster: &Cluster) -> Result<(), InstallError> {
    let longshore = images::longshore()?;
    let peers = images::peers()?;
    cluster.load([&longshore.operator, &longshore.sidecar, &peers.everything, &peers.go, &peers.python])?;
    let values = [
        format!("images.operator={}", longshore.operator.reference),
        format!("images.sidecar={}", longshore.sidecar.reference),
        "imagePullPolicy=IfNotPresent".to_owned(),
        "catalog.auth.none=true".to_owned(),
    ];
    let _turn = turn(cluster)?;
    helm_upgrade(cluster, &chart(), &values)
}

/// Waits until nobody else installs Longshore on this cluster, and removes Helm's record of an install or upgrade that was
/// killed: Helm would take it for one that is under way, for ever. On a cluster of somebody else's it may be.
fn turn(cluster: &Cluster) -> Result<Option<File>, InstallError> {
    let Some(spec) = cluster.spec() else { return Ok(None) };
    // The kernel takes it back from whoever dies.
    let turn = File::create(spec.folder.join("install"))?;
    turn.lock()?;
    let unfinished = format!("owner=helm,name={RELEASE},status in (pending-install,pending-upgrade)");
    let mut kubectl = cluster.command("kubectl")?;
    kubectl.args(["delete", "secrets", "--namespace", NAMESPACE, "--selector", &unfinished]);
    run(kubectl)?;
    Ok(Some(turn))
}

/// Runs `helm upgrade --install` for a chart, with `--set` for each of the values.
fn helm_upgrade(cluster: &Cluster, chart: &Path, values: &[String]) -> Result<(), InstallError> {
    let mut helm = helm(cluster)?;
    helm.args(["upgrade", RELEASE]).arg(chart);
    helm.args(["--install", "--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m"]);
    for value in values {
        helm.args(["--set", value]);
    }
    run(helm).map(drop).map_err(|helm| InstallError::Helm { helm, operator: describe_operator(cluster) })
}

/// The operator's pods and their last words. Helm itself only says that it waited in vain.
fn describe_operator(cluster: &Cluster) -> String {
    let questions: [&[&str]; 3] = [
        &["get", "pods", "-o", "wide"],
        &["get", "events"],
        &["logs", "--selector=app.kubernetes.io/name=longshore", "--prefix", "--tail=20"],
    ];
    let answers = questions.map(|question| {
        let mut kubectl = cluster.command("kubectl").map_err(ClusterError::from)?;
        kubectl.args(["--namespace", NAMESPACE]).args(question);
        run(kubectl)
    });
    answers.map(|answer| answer.unwrap_or_else(|error| error.to_string())).join("\n")
}

/// Helm, for this cluster. What it would keep in a home folder goes where the cluster's state goes.
pub fn helm(cluster: &Cluster) -> io::Result<std::process::Command> {
    let mut helm = cluster.command("helm")?;
    if let Some(spec) = cluster.spec() {
        for (variable, folder) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            helm.env(variable, spec.folder.join("helm").join(folder));
        }
    }
    Ok(helm)
}

/// Longshore's chart, as it is in this checkout.
#[must_use]
pub fn chart() -> PathBuf {
    checkout::root().join("charts/longshore")
}

/// The manifests in `examples/` that are for one's own machine, since in a cluster they would be a server for each
/// revision that nobody asked for, and for a cluster that reaches the registries of others.
const LEFT_OUT: [&str; 2] = ["conformance.yaml", "npx.yaml"];

/// Applies every manifest in `examples/` that is for such a cluster.
pub fn apply_examples(cluster: &Cluster) -> Result<(), InstallError> {
    let Ok(examples) = std::fs::read_dir(checkout::root().join("examples")) else { return Ok(()) };
    let mut kubectl = cluster.command("kubectl")?;
    kubectl.arg("apply");
    for path in examples.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|it| it == "yaml")
            && !LEFT_OUT.iter().any(|name| path.ends_with(name))
        {
            kubectl.arg("-f").arg(path);
        }
    }
    run(kubectl)?;
    Ok(())
}
