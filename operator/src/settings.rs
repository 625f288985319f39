//! What the operator was told on its command line, checked and ready for the pure steps.

use std::collections::BTreeMap;
use std::time::Duration;

/// What is the same for every server of this installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The image of the sidecar, which holds the shim too.
    pub sidecar_image: String,
    /// When the kubelet pulls it. `None`: Kubernetes' default.
    pub sidecar_image_pull_policy: Option<String>,
    /// The DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
    /// The namespace that the control plane runs in. Its pods may reach the sidecars' admin port.
    pub control_plane_namespace: String,
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

/// Where servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In pods, of which a server may have several.
    Cluster,
    /// As processes of this machine: each server once.
    ThisMachine,
}
