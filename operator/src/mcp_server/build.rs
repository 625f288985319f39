//! Third step: from a [`ValidatedServer`] to the objects that it needs. Pure: no client, no clock, no chance.
//!
//! One file per object. The same input gives the same bytes, so a digest of them says whether anything changed.

mod config_map;
mod deployment;
mod disruption_budget;
mod network_policy;
mod peers;
mod pod;
mod resources;
mod secret;
mod security;
mod service;
mod service_account;

#[cfg(test)]
mod tests;

pub(crate) use config_map::name as config_map_name;
pub(crate) use deployment::MIN_READY_SECONDS;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_crds::mcp_server::StrategyType;
use longshore_sidecar_config::Upstream;

use crate::mcp_server::references::HOME;
use crate::mcp_server::validate::{Readiness, ValidatedServer, may_label};
use crate::names;
use crate::settings::Settings;
use crate::view::PodView;

/// Objects as they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prepared;
/// Objects as the API server has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Applied;

/// Every object of one server. Only applying the prepared ones gives applied ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resources<State> {
    /// An identity without rights, unless the manifest names one.
    pub service_account: Option<ServiceAccount>,
    /// The hashes of the API keys.
    pub secret: Secret,
    /// The sidecars' configuration: one for each way to reach the server that some pod uses.
    pub config_maps: Vec<ConfigMap>,
    /// The address of the server.
    pub service: Service,
    /// By which its pods find each other.
    pub peers: Service,
    /// Who may reach which of its ports.
    pub network_policy: NetworkPolicy,
    /// How many of several pods may be away for the sake of a node.
    pub disruption_budget: Option<PodDisruptionBudget>,
    /// The pods. `None` while something that they need is missing, or the manifest asks for pods that may not be.
    pub deployment: Option<Deployment>,
    /// Prepared or applied.
    pub state: PhantomData<State>,
}

/// What a pod of the newest version looks like, to tell it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desired {
    /// The digest of the pod template.
    pub template: String,
    /// The digest of each configuration, by the name of its ConfigMap: there is one for each way to reach the server.
    pub configs: BTreeMap<String, String>,
    /// How many pods there should be.
    pub replicas: u32,
    /// Whether a pod of it is made only when all pods of the previous version have ended.
    pub recreates: bool,
}

// === impl Desired ===

impl Desired {
    /// The digest of the configuration that a pod's sidecar should run. None is written any more for a pod of a release
    /// with another form of it.
    pub(crate) fn config_of(&self, pod: &PodView) -> Option<&str> {
        pod.config_maps.iter().find_map(|name| self.configs.get(name)).map(String::as_str)
    }
}

/// Builds every object of a server whose Deployment has pods of this template, by its digest.
///
/// What a Secret or ConfigMap has come to hold makes no new pods, of all servers at once that name it. So whether they are
/// given a home, which such an object may do instead, stays as it was where nothing else makes new ones.
pub(crate) fn build_beside(
    server: &mut ValidatedServer,
    settings: &Settings,
    live: Option<&str>,
) -> (Resources<Prepared>, Desired) {
    let built = build(server, settings);
    let container = &server.container;
    let may_come_from_outside =
        !container.env_from.is_empty() && container.env.iter().all(|variable| variable.name != HOME);
    if !may_come_from_outside || live.is_none_or(|live| live == built.1.template) {
        return built;
    }
    server.container.has_home = !server.container.has_home;
    let as_before = build(server, settings);
    if live == Some(&*as_before.1.template) {
        return as_before;
    }
    server.container.has_home = !server.container.has_home;
    built
}

/// Builds every object of a server.
pub(crate) fn build(server: &ValidatedServer, settings: &Settings) -> (Resources<Prepared>, Desired) {
    let (secret, keys_digest) = secret::build(server);
    let mut config_maps = Vec::new();
    let mut configs = BTreeMap::new();
    for upstream in std::iter::once(&server.upstream).chain(&server.older_upstreams) {
        let (config_map, digest) = config_map::build(server, settings, upstream, &keys_digest);
        configs.insert(config_map.name_any(), digest);
        config_maps.push(config_map);
    }
    let (deployment, template) = deployment::build(server, settings);
    let resources = Resources {
        service_account: service_account::build(server),
        secret,
        config_maps,
        service: service::build(server),
        peers: peers::build(server),
        network_policy: network_policy::build(server, settings),
        disruption_budget: disruption_budget::build(server),
        deployment: match server.readiness {
            Readiness::Complete | Readiness::Flawed(_) => Some(deployment),
            Readiness::Incomplete(_) => None,
        },
        state: PhantomData,
    };
    let recreates = server.strategy == StrategyType::Recreate;
    (resources, Desired { template, configs, replicas: server.replicas, recreates })
}

/// The metadata of what is made beside the pods and is there for their sake: with the labels of the manifest's pods too, as
/// policies of clusters may want them. What says who comes in goes without, which are the Secret, the ConfigMaps and the
/// NetworkPolicy: no label that the API server refuses keeps those from being in force. The Service has labels of its own.
fn labelled(server: &ValidatedServer, name: String) -> ObjectMeta {
    let own = metadata(server, name);
    let mut labels = server.pod.labels.clone();
    labels.retain(|key, _| may_label(key));
    // What is Longshore's comes last.
    labels.extend(own.labels.into_iter().flatten());
    ObjectMeta { labels: Some(labels), ..own }
}

/// The metadata that every owned object has in common.
fn metadata(server: &ValidatedServer, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(server.identity.namespace.clone()),
        labels: Some(names::labels(&server.identity.name)),
        owner_references: Some(vec![OwnerReference {
            api_version: McpServer::api_version(&()).into_owned(),
            kind: McpServer::kind(&()).into_owned(),
            name: server.identity.name.clone(),
            uid: server.identity.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

/// What selects a server's pods.
fn own_pods(server: &ValidatedServer) -> LabelSelector {
    LabelSelector {
        match_labels: Some(names::pod_selector(&server.identity.name)),
        ..LabelSelector::default()
    }
}

/// A way to reach a server, as the text that pods carry in an annotation.
pub fn upstream_text(upstream: &Upstream) -> String {
    to_json(upstream)
}

/// JSON of a type of ours, whose serialisation cannot fail: no maps with keys that are not text, no fallible code.
pub(super) fn to_json<T: serde::Serialize>(value: &T) -> String {
    #[expect(clippy::expect_used, reason = "plain structs with text keys always serialise")]
    serde_json::to_string(value).expect("plain data serialises")
}
