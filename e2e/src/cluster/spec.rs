//! What one cluster is: its shape, and where everything of it lies.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::component::Component;
use super::policies::enforces_policies;
use super::programs::Programs;
use crate::images::Image;

/// The address of the only node, in the cluster's own network.
pub const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 10, 0, 1);
/// The name of the only node.
pub const NODE_NAME: &str = "node0";
/// The range of the Services' addresses.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The address of the Service `kubernetes`: the first of the range.
pub const API_SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The address of the Service `kube-dns`.
pub const DNS_SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The range of the pods' addresses.
pub const POD_RANGE: &str = "10.244.0.0/16";

/// How much of a cluster there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// etcd and kube-apiserver: objects are kept, and nothing happens to them. Needs no root.
    Api,
    /// Controllers too: Deployments get ReplicaSets, deleted namespaces go, owned objects are collected. Needs no root.
    ControlPlane,
    /// A whole node: pods run. Needs root.
    Node,
}

impl Shape {
    /// What runs in it, in the order in which it is started.
    pub(crate) fn components(self) -> &'static [Component] {
        use Component::{ApiServer, Containerd, Controllers, Dns, Etcd, Kubelet, Policies, Proxy, Scheduler};
        match self {
            Shape::Api => &[Etcd, ApiServer],
            Shape::ControlPlane => &[Etcd, ApiServer, Controllers],
            Shape::Node if enforces_policies() => {
                &[Etcd, ApiServer, Containerd, Controllers, Scheduler, Proxy, Policies, Kubelet, Dns]
            }
            Shape::Node => &[Etcd, ApiServer, Containerd, Controllers, Scheduler, Proxy, Kubelet, Dns],
        }
    }
}

/// What it takes to start a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Its name; one is made up where this is `None`.
    pub(crate) name: Option<String>,
    pub(crate) shape: Shape,
    pub(crate) programs: Programs,
    /// Only a node needs it.
    pub(crate) pause: Option<Image>,
}

/// A cluster that has a place: what everyone who deals with it has to know. It is kept in the cluster's own folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Its name, unique among those that run.
    pub name: String,
    /// How much of a cluster it is.
    pub shape: Shape,
    /// The address of etcd and kube-apiserver. Each cluster outside a network of its own has its own loopback
    /// address, so that all can use the same ports and nobody has to guess a free one.
    pub address: Ipv4Addr,
    /// The programs that it runs.
    pub programs: Programs,
    /// Its folder: everything that it writes, but for cgroups, is in here.
    pub folder: PathBuf,
    pub(crate) pause: Option<Image>,
}

impl Spec {
    /// The kubeconfig of an administrator. Valid where the cluster's network is; everything is inside of the file.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.config("admin.kubeconfig")
    }

    /// The address of kube-apiserver.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://{}:6443", self.address)
    }

    /// The folder of the components' logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// What Longshore's own programs asked of the API server: one JSON line for each request that has ended.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    /// A configuration file.
    pub(crate) fn config(&self, name: &str) -> PathBuf {
        self.folder.join("config").join(name)
    }

    /// A certificate or key.
    pub(crate) fn pki(&self, name: &str) -> PathBuf {
        self.folder.join("pki").join(name)
    }

    /// Where a component keeps its state.
    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.folder.join("state").join(name)
    }

    /// The cgroup that all pods are in. Two kubelets with one root would end each other's pods.
    pub(crate) fn cgroup(&self) -> String {
        format!("longshore-{}", self.name)
    }

    /// Exists when the logs are wanted after the cluster's end.
    pub(crate) fn keep_logs(&self) -> PathBuf {
        self.folder.join("keep-logs")
    }

    /// Holds the process id, as the machine sees it, of the first process in the cluster's namespaces.
    pub(crate) fn first_process_file(&self) -> PathBuf {
        self.folder.join("first-process")
    }

    /// The file that is locked as long as anything of the cluster lives.
    pub(crate) fn lock_file(folder: &Path) -> PathBuf {
        folder.join("lock")
    }

    /// This, as a file in the cluster's folder.
    pub(crate) fn file(folder: &Path) -> PathBuf {
        folder.join("cluster.json")
    }

    /// Reads what [`Spec::file`] holds.
    pub(crate) fn read(folder: &Path) -> std::io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(Self::file(folder))?)?)
    }
}
