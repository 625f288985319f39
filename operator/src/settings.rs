//! What the operator was told on its command line, checked and ready for the pure steps.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What is the same for every server of this installation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// The sidecars.
    pub sidecar: Sidecar,
    /// The DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
    /// The namespace that the control plane runs in. Its pods there may reach the sidecars' admin port.
    pub control_plane_namespace: String,
    /// Labels of the namespaces whose pods may call servers. Empty: whoever reaches them.
    pub callers_from: Vec<BTreeMap<String, String>>,
    /// Labels of further namespaces whose pods may reach the admin port, to scrape metrics.
    pub metrics_from: Vec<BTreeMap<String, String>>,
    /// The subjects whose tokens the sidecars' inventory accepts.
    pub inventory_subjects: Vec<String>,
    /// Whether there is a catalog that lists published servers.
    pub catalog: bool,
    /// How old a session key becomes before another follows it. `None`: as old as its server.
    pub rotate_session_keys_after: Option<Duration>,
    /// Where the servers run.
    pub place: Place,
}

/// What all sidecars have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sidecar {
    /// The image, which holds the shim too.
    pub image: String,
    /// When the kubelet pulls it. `None`: Kubernetes' default.
    pub image_pull_policy: Option<String>,
    /// Names of Secrets with credentials for its registry, beside those that a manifest names.
    pub image_pull_secrets: Vec<String>,
    /// What its container requests where a manifest does not say.
    pub requests: BTreeMap<String, Quantity>,
    /// What its container may use where a manifest does not say.
    pub limits: BTreeMap<String, Quantity>,
}

/// Where servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In pods, of which a server may have several.
    Cluster,
    /// As processes of this machine: each server once.
    ThisMachine,
}

// === impl Settings ===

#[cfg(test)]
impl Settings {
    /// Those of a cluster in which nothing is said that need not be.
    pub(crate) fn of_tests() -> Self {
        Self {
            sidecar: Sidecar::of("example/sidecar:1".to_owned()),
            cluster_domain: "cluster.local".to_owned(),
            control_plane_namespace: "longshore-system".to_owned(),
            callers_from: vec![],
            metrics_from: vec![],
            inventory_subjects: vec![],
            catalog: false,
            rotate_session_keys_after: None,
            place: Place::Cluster,
        }
    }
}

// === impl Sidecar ===

impl Sidecar {
    /// Sidecars of this image, with what they request and may use where nobody says otherwise.
    pub(crate) fn of(image: String) -> Self {
        let amount = |(name, amount): (&str, &str)| (name.to_owned(), Quantity(amount.to_owned()));
        Self {
            image,
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            requests: [("cpu", "10m"), ("memory", "16Mi")].map(amount).into(),
            // What a sidecar holds of messages and streams is made for this.
            limits: [("memory", "256Mi")].map(amount).into(),
        }
    }
}
