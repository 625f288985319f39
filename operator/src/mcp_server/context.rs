//! What every reconciliation works with.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::events::{Event, Recorder};
use longshore_crds::McpServer;
use longshore_sidecar_config::InventoryAccess;

use crate::api;
use crate::inventory::{Inventories, PodUid};
use crate::mcp_server::dereference::cache::ReferenceCache;
use crate::mcp_server::memory::Memory;
use crate::mcp_server::slots::Slots;
use crate::mcp_server::upgrades::Upgrades;
use crate::metrics::Metrics;
use crate::mirror::{Mirror, ServerKey};
use crate::settings::Settings;
use crate::view::{DeploymentView, Owned, PodView, ReplicaSetView};
use crate::watching::Audience;

/// What every reconciliation works with.
pub(crate) struct Context {
    /// Speaks to the API server.
    pub client: kube::Client,
    /// Speaks to it for watches and events, and tries again by itself.
    pub watch_client: kube::Client,
    /// What the operator was told on its command line.
    pub settings: Settings,
    /// Who may read the sidecars' inventories: the cluster's keys change now and then.
    pub inventory_access: ArcSwap<InventoryAccess>,
    /// What the cluster looks like.
    pub mirrors: Mirrors,
    /// What is known of the objects that manifests name.
    pub references: ReferenceCache,
    /// What the sidecars say.
    pub inventories: Inventories,
    /// What was done for each server.
    pub memory: Memory,
    /// Who gets new pods for Longshore's sake.
    pub upgrades: Upgrades,
    /// Who is reconciled now, and who is next.
    pub slots: Slots,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// Writes events.
    pub recorder: Recorder,
}

/// One mirror for each kind of owned object.
#[derive(Default)]
pub(crate) struct Mirrors {
    /// Deployments.
    pub deployments: Arc<Mirror<DeploymentView>>,
    /// Their ReplicaSets.
    pub replica_sets: Arc<Mirror<ReplicaSetView>>,
    /// Their pods.
    pub pods: Arc<Mirror<PodView>>,
    /// Services.
    pub services: Arc<Mirror<Owned<Service>>>,
    /// ConfigMaps.
    pub config_maps: Arc<Mirror<Owned<ConfigMap>>>,
    /// Secrets.
    pub secrets: Arc<Mirror<Owned<Secret>>>,
    /// PodDisruptionBudgets.
    pub disruption_budgets: Arc<Mirror<Owned<PodDisruptionBudget>>>,
    /// NetworkPolicies.
    pub network_policies: Arc<Mirror<Owned<NetworkPolicy>>>,
    /// ServiceAccounts.
    pub service_accounts: Arc<Mirror<Owned<ServiceAccount>>>,
}

// === impl Context ===

impl Context {
    /// Forgets a server that was deleted. Its objects go with it: Kubernetes collects what has no owner.
    pub(crate) fn forget(&self, server: &ServerKey) {
        self.memory.forget(server);
        self.upgrades.done(server);
        self.slots.forget(server);
        self.references.uses(&server.namespace, &server.name, BTreeMap::new());
        self.inventories.track(object_ref(server), BTreeMap::<PodUid, IpAddr>::new());
        self.count_servers();
    }

    /// Writes an event about a server, and says whether that concerns anybody: none does in a namespace that is being deleted.
    /// Events are a courtesy: one that cannot be written changes nothing.
    pub(crate) async fn tell(&self, server: &ServerKey, uid: &str, event: &Event) -> bool {
        let mut reference = ObjectReference::from(object_ref(server));
        reference.uid = Some(uid.to_owned());
        match api::call(self.recorder.publish(event, &reference)).await {
            Ok(()) => true,
            Err(error) if error.is_namespace_ending() => false,
            Err(error) => {
                tracing::warn!(%error, "an event could not be written");
                true
            }
        }
    }

    /// Brings the gauges of servers up to date.
    pub(crate) fn count_servers(&self) {
        self.metrics.servers(|| self.memory.counts());
    }
}

impl Audience for Context {
    fn set_stale(&self, stale: bool) {
        self.metrics.stale(stale);
    }

    fn knows(&self, namespace: &str) -> bool {
        self.memory.servers().iter().any(|server| server.namespace == namespace)
    }
}

/// A server, in the words of the kube library.
pub(crate) fn object_ref(server: &ServerKey) -> kube::runtime::reflector::ObjectRef<McpServer> {
    kube::runtime::reflector::ObjectRef::new(&server.name).within(&server.namespace)
}
