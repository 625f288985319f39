//! What a manifest is once it is checked: all that the next steps see.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, LocalObjectReference, PodSecurityContext, PodTemplateSpec,
    ResourceRequirements, Toleration, Volume, VolumeMount,
};
use longshore_crds::api_keys::ANONYMOUS;
use longshore_crds::mcp_server::{self as manifest, ObjectMetadata, StrategyType};
use longshore_sidecar_config as config;

use crate::mcp_server::condition::Problem;
use crate::mcp_server::session_keys::SessionKeys;
use crate::names::ObjectNames;

/// Everything that is needed to build a server's objects, checked and in the types of those who use it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidatedServer {
    /// Whose objects these are.
    pub identity: config::ServerIdentity,
    /// What the objects are called.
    pub names: ObjectNames,
    /// How many pods there are to be.
    pub replicas: u32,
    /// How a new version takes the place of the previous one.
    pub strategy: StrategyType,
    /// The manifest's labels and annotations of the Service, but for those that it may not have.
    pub service: ObjectMetadata,
    /// How the sidecar reaches the server.
    pub upstream: config::Upstream,
    /// The one revision that the server is spoken to in, if one is named.
    pub protocol: Option<manifest::Protocol>,
    /// How the sidecars of older versions reach it whose pods are still there: they need a configuration too, or a revoked
    /// key would go on working with them.
    pub older_upstreams: Vec<config::Upstream>,
    /// Who may call at all.
    pub auth: ValidatedAuth,
    /// What callers may call.
    pub access: Vec<config::AccessRule>,
    /// Which tools exist for clients.
    pub tools: config::ToolFilter,
    /// Bounds of a request; of processes too, whether or not the server is a stdio server now: it may have pods from when it
    /// was.
    pub limits: config::Limits,
    /// How long sessions live, and how many there may be.
    pub sessions: config::Sessions,
    /// What their ids are sealed with.
    pub session_keys: SessionKeys,
    /// The host name that clients outside of the cluster use.
    pub public_host: Option<String>,
    /// The origins that browsers may call from.
    pub allowed_origins: Vec<String>,
    /// Who may read the sidecar's inventory.
    pub inventory: config::InventoryAccess,
    /// The server's container.
    pub container: ServerContainer,
    /// The pod around it.
    pub pod: ServerPod,
    /// The sidecar.
    pub sidecar: ValidatedSidecar,
    /// Whether a pod may be made of this.
    pub readiness: Readiness,
}

/// How callers prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValidatedAuth {
    /// They need not: everybody may call.
    None,
    /// By one of these keys.
    ApiKeys(Vec<config::ApiKey>),
}

/// Whether everything that a pod needs exists, and the pod may be as the manifest has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// All is as it should be.
    Complete,
    /// A pod may be made, and something that is not vital is wrong.
    Flawed(Vec<Problem>),
    /// No pod may be made. Access rules and keys reach the pods that are there; the pods themselves stay what
    /// they are, as many as the manifest says by now, and none of another kind is made.
    Incomplete(Vec<Problem>),
}

impl Readiness {
    /// What is wrong, the gravest first.
    pub(crate) fn problems(&self) -> &[Problem] {
        match self {
            Self::Complete => &[],
            Self::Flawed(problems) | Self::Incomplete(problems) => problems,
        }
    }
}

/// The server's container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerContainer {
    /// Its image.
    pub image: String,
    /// When the kubelet pulls it.
    pub image_pull_policy: Option<String>,
    /// The program, instead of the image's.
    pub command: Vec<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables.
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps that become environment variables.
    pub env_from: Vec<EnvFromSource>,
    /// Whether one of the two gives it a `HOME`.
    pub has_home: bool,
    /// Requests and limits.
    pub resources: Option<ResourceRequirements>,
    /// The manifest's mounts.
    pub volume_mounts: Vec<VolumeMount>,
}

/// The pod around the server's container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ServerPod {
    /// The manifest's labels.
    pub labels: BTreeMap<String, String>,
    /// The manifest's annotations.
    pub annotations: BTreeMap<String, String>,
    /// An existing ServiceAccount whose token the server gets. `None`: one of its own, without a token.
    pub service_account: Option<String>,
    /// Credentials for the image's registry.
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// What the manifest says of it.
    pub security_context: PodSecurityContext,
    /// The manifest's volumes.
    pub volumes: Vec<Volume>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// Scheduling constraints.
    pub affinity: Option<Affinity>,
    /// What is merged into the generated template at last.
    pub overrides: Option<PodTemplateSpec>,
}

/// The sidecar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValidatedSidecar {
    /// Requests and limits, if the manifest has them.
    pub resources: Option<ResourceRequirements>,
    /// What it logs.
    pub log_level: config::LogLevel,
    /// How many threads serve.
    pub workers: u8,
}

// === impl ValidatedAuth ===

impl ValidatedAuth {
    /// Who callers can be.
    pub(crate) fn principals(&self) -> Vec<String> {
        match self {
            Self::None => vec![ANONYMOUS.to_owned()],
            Self::ApiKeys(keys) => {
                let all: BTreeSet<&str> = keys.iter().map(|key| key.principal.as_str()).collect();
                all.into_iter().map(str::to_owned).collect()
            }
        }
    }
}

// === impl ValidatedServer ===

impl ValidatedServer {
    /// Whether what is wrong keeps clients from using what the manifest says: there may be no pod of it, or nobody has a
    /// key.
    pub(crate) fn is_held_back(&self) -> bool {
        match &self.readiness {
            Readiness::Complete => false,
            Readiness::Flawed(_) => {
                matches!(&self.auth, ValidatedAuth::ApiKeys(keys) if keys.is_empty())
            }
            Readiness::Incomplete(_) => true,
        }
    }
}
