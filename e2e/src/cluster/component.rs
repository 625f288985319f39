//! The programs of a cluster, as its supervisor sees them: how each is started, and when it is ready.

use std::process::Command;

use serde::{Deserialize, Serialize};

use super::spec::Spec;
use super::{api_server, containerd, controllers, dns, etcd, kubelet, policies, proxy, scheduler};

/// A program of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Component {
    /// etcd, which keeps the objects.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    Controllers,
    /// kube-scheduler.
    Scheduler,
    /// kube-proxy, which turns Service addresses into those of pods.
    Proxy,
    /// kube-router, which enforces NetworkPolicies.
    Policies,
    /// containerd, which runs containers.
    Containerd,
    /// kubelet, which runs pods.
    Kubelet,
    /// CoreDNS.
    Dns,
}

impl Component {
    /// The name of the program, and of its log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Component::Etcd => "etcd",
            Component::ApiServer => "kube-apiserver",
            Component::Controllers => "kube-controller-manager",
            Component::Scheduler => "kube-scheduler",
            Component::Proxy => "kube-proxy",
            Component::Policies => "kube-router",
            Component::Containerd => "containerd",
            Component::Kubelet => "kubelet",
            Component::Dns => "coredns",
        }
    }

    /// The file name of its log.
    #[must_use]
    pub fn log(self) -> String {
        format!("{}.log", self.name())
    }

    /// Whether the others fail without it.
    pub(crate) fn is_foundation(self) -> bool {
        matches!(self, Component::Etcd | Component::ApiServer | Component::Containerd)
    }

    /// The command that starts it. Configuration files are written on the way.
    pub(crate) fn command(self, spec: &Spec) -> std::io::Result<Command> {
        match self {
            Component::Etcd => Ok(etcd::command(spec)),
            Component::ApiServer => api_server::command(spec),
            Component::Controllers => Ok(controllers::command(spec)),
            Component::Scheduler => Ok(scheduler::command(spec)),
            Component::Proxy => Ok(proxy::command(spec)),
            Component::Policies => Ok(policies::command(spec)),
            Component::Containerd => containerd::command(spec),
            Component::Kubelet => kubelet::command(spec),
            Component::Dns => dns::command(spec),
        }
    }

    /// Returns when it does its work, which may be never.
    pub(crate) async fn ready(self, spec: &Spec, client: &kube::Client) {
        match self {
            // kube-apiserver is ready only with its etcd, and the others fail loudly where they fail at all.
            Component::Etcd | Component::Scheduler | Component::Proxy | Component::Policies => {}
            Component::ApiServer => api_server::ready(client).await,
            Component::Controllers => controllers::ready(client).await,
            Component::Containerd => containerd::ready(spec).await,
            Component::Kubelet => kubelet::ready(client).await,
            Component::Dns => dns::ready(client).await,
        }
    }
}
