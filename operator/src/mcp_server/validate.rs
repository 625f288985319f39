//! Second step: from the manifest and what it names to a [`ValidatedServer`], once. Pure.
//!
//! Everything later works on the [`ValidatedServer`] alone; the manifest is not read again.

mod bounds;
mod guard;
mod named;
mod quantity;
mod rules;
#[cfg(test)]
mod tests;
mod typed;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, LocalObjectReference, PodSecurityContext, PodTemplateSpec,
    ResourceRequirements, Toleration, Volume, VolumeMount,
};
use longshore_crds::api_keys::ANONYMOUS;
use longshore_crds::mcp_server::{self as manifest, ObjectMetadata, StrategyType};
use longshore_crds::names::MAX_NAME_LENGTH;
use longshore_crds::{McpServer, Written};
use longshore_sidecar_config as config;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::dereference::Dereferenced;
use crate::mcp_server::references;
use crate::mcp_server::session_keys::SessionKeys;
use crate::names::ObjectNames;
pub use bounds::is_too_little_memory;
pub use named::unreadable;
pub use quantity::{amount, duration};
pub(crate) use rules::tool_filter;

/// So many problems of one manifest are told.
const MOST_PROBLEMS: usize = 16;

/// Everything that is needed to build a server's objects, checked and in the types of those who use it.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedServer {
    /// Whose objects these are.
    pub identity: config::ServerIdentity,
    /// `metadata.generation` of the manifest.
    pub generation: i64,
    /// What the objects are called.
    pub names: ObjectNames,
    /// How many pods there are to be.
    pub replicas: u32,
    /// How a new version takes the place of the one before.
    pub strategy: StrategyType,
    /// The manifest's labels and annotations of the Service, but for those that it may not have.
    pub service: ObjectMetadata,
    /// How the sidecar reaches the server.
    pub upstream: config::Upstream,
    /// The one revision that the server is spoken to in, if one is named.
    pub protocol: Option<manifest::Protocol>,
    /// The same of older versions whose pods are still there: their sidecars need a configuration too, or a key that
    /// was revoked would go on working with them.
    pub older_upstreams: Vec<config::Upstream>,
    /// Who may call at all.
    pub auth: ValidatedAuth,
    /// What those may call.
    pub access: Vec<config::AccessRule>,
    /// Which tools exist for clients.
    pub tools: config::ToolFilter,
    /// Bounds of a request; of processes too, whether or not the server is a stdio server now.
    pub limits: config::Limits,
    /// The life of sessions.
    pub sessions: config::Sessions,
    /// What they are sealed with.
    pub session_keys: SessionKeys,
    /// How the ConfigMaps that are there were made, by name.
    pub configured: BTreeMap<String, String>,
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
pub enum ValidatedAuth {
    /// Not at all.
    None,
    /// By one of these keys.
    ApiKeys(Vec<config::ApiKey>),
}

/// Whether everything that a pod needs exists, and the pod may be as the manifest has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It does.
    Complete,
    /// It does, and something that is not vital is wrong.
    Flawed(Vec<Problem>),
    /// It does not, or it may not. Access rules and keys reach the pods that are there; the pods themselves stay what
    /// they are, as many as the manifest says by now, and none of another kind is made.
    Incomplete(Vec<Problem>),
}

impl Readiness {
    /// What is wrong, the gravest first.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Complete => &[],
            Self::Flawed(problems) | Self::Incomplete(problems) => problems,
        }
    }
}

/// The server's container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerContainer {
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
pub struct ServerPod {
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
pub struct ValidatedSidecar {
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
    pub fn principals(&self) -> Vec<String> {
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
    pub fn is_held_back(&self) -> bool {
        match &self.readiness {
            Readiness::Complete => false,
            Readiness::Flawed(_) => {
                matches!(&self.auth, ValidatedAuth::ApiKeys(keys) if keys.is_empty())
            }
            Readiness::Incomplete(_) => true,
        }
    }
}

/// Checks a manifest against the rules and against what it names.
///
/// An error means that not even a sidecar's configuration can be made of it: not a single object is touched, and a key
/// that is revoked meanwhile goes on working with the pods that are there. So only what `kubectl apply` refuses is such
/// an error, and a Secret of keys that cannot be read. What else is wrong costs the pods of the new version, and gives
/// nobody more than the manifest says.
pub fn validate(server: &McpServer, found: &Dereferenced) -> Result<ValidatedServer, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut unfit = Vec::new();
    let spec = &server.spec;
    let name = server.metadata.name.clone().unwrap_or_default();
    check_name(&name, &mut problems);
    if spec.source.image.trim().is_empty() {
        unfit.push(Problem::invalid("spec.source.image", "name the image to run"));
    }
    let upstream = upstream(&spec.transport, &mut problems);
    let protocol = protocol(&spec.transport, &mut unfit);
    if spec.transport.stdio.is_some() && spec.source.command.is_empty() {
        unfit.push(Problem::invalid(
            "spec.source.command",
            "name the program to start, since a stdio server's image cannot be asked for its own",
        ));
    }
    let limits = bounds::limits(spec, &mut problems);
    let sessions = bounds::sessions(spec, found.session_keys.seal_with(), &mut problems);
    let access = spec
        .access
        .rules
        .iter()
        .enumerate()
        .map(|(index, rule)| rules::access_rule(index, rule, &mut problems, &mut unfit));
    let access: Vec<_> = access.collect();
    let tools = rules::tool_filter(&spec.tools, &mut unfit);
    let pod = pod(&spec.pod, &mut unfit);
    let mut service = spec.expose.service.clone();
    guard::service("spec.expose.service", &mut service, &mut unfit);
    bounds::sidecar(spec.sidecar.resources.as_ref(), &mut unfit);
    guard::volumes::mounts("spec.pod.volumeMounts", &spec.pod.volume_mounts, &mut unfit);
    let mut missing = Vec::new();
    let mut references = references::of(spec);
    if let Some(beyond) = references::beyond(&references) {
        unfit.push(Problem::invalid(
            &beyond.field,
            format_args!(
                "the manifest names more than {} Secrets, ConfigMaps and ServiceAccounts, so none is looked at: name fewer",
                references::MOST
            ),
        ));
        references.clear();
    }
    for reference in references {
        if let Some(problem) = named::check_reference(server, &reference, found) {
            if matches!(problem.reason, Reason::SecretReserved | Reason::ConfigMapReserved) {
                unfit.push(problem);
            } else {
                missing.push(problem);
            }
        }
    }
    let mut flaws = Vec::new();
    let auth = named::auth(server, found, &mut problems, &mut missing, &mut flaws);
    let (Some(upstream), Some(limits), Some(sessions), Some(auth), true) =
        (upstream, limits, sessions, auth, problems.is_empty())
    else {
        problems.append(&mut unfit);
        return Err(told(problems));
    };
    let readiness = match (unfit.is_empty() && missing.is_empty(), flaws.is_empty()) {
        (true, true) => Readiness::Complete,
        (true, false) => Readiness::Flawed(told(flaws)),
        (false, _) => Readiness::Incomplete(told(unfit.into_iter().chain(missing).chain(flaws).collect())),
    };
    let source = &spec.source;
    Ok(ValidatedServer {
        identity: config::ServerIdentity {
            namespace: server.metadata.namespace.clone().unwrap_or_default(),
            uid: server.metadata.uid.clone().unwrap_or_default(),
            name: name.clone(),
        },
        generation: server.metadata.generation.unwrap_or_default(),
        names: ObjectNames::of(&name),
        replicas: spec.replicas,
        strategy: spec.strategy.type_,
        service,
        older_upstreams: found
            .mounted_upstreams
            .iter()
            .filter(|older| **older != upstream)
            .cloned()
            .collect(),
        upstream,
        protocol,
        auth,
        access,
        tools,
        limits,
        sessions,
        session_keys: found.session_keys.clone(),
        configured: found.configured.clone(),
        public_host: spec.expose.host.as_ref().map(|host| host.to_ascii_lowercase()),
        allowed_origins: spec
            .expose
            .allowed_origins
            .iter()
            .map(|origin| origin.to_ascii_lowercase())
            .collect(),
        inventory: found.inventory.clone(),
        container: ServerContainer {
            image: source.image.clone(),
            image_pull_policy: source.image_pull_policy.clone(),
            command: source.command.clone(),
            args: source.args.clone(),
            env: source.env.clone(),
            env_from: source.env_from.clone(),
            has_home: named::has_home(source, found),
            resources: spec.pod.resources.clone(),
            volume_mounts: spec.pod.volume_mounts.clone(),
        },
        pod,
        sidecar: ValidatedSidecar {
            resources: spec.sidecar.resources.clone(),
            log_level: log_level(spec.sidecar.log_level),
            workers: spec.sidecar.workers.max(1),
        },
        readiness,
    })
}

/// The first of them and how many more there are: a manifest has room for a hundred thousand mistakes, and nobody reads so
/// many.
fn told(mut problems: Vec<Problem>) -> Vec<Problem> {
    if let Some(next) = problems.get(MOST_PROBLEMS) {
        let more = Problem::new(next.reason, format!("{} more like these", problems.len() - MOST_PROBLEMS));
        problems.truncate(MOST_PROBLEMS);
        problems.push(more);
        problems.shrink_to_fit();
    }
    problems
}

/// The Service has the server's name, and a Service's name is the strictest of all.
fn check_name(name: &str, problems: &mut Vec<Problem>) {
    let letters = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let ends = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
    if !letters || !ends || name.len() > MAX_NAME_LENGTH {
        problems.push(Problem::invalid(
            "metadata.name",
            format_args!(
                "the server's Service gets this name, so it has at most {MAX_NAME_LENGTH} lower-case letters, digits \
                 and `-`, begins with a letter and does not end with `-`"
            ),
        ));
    }
}

fn upstream(transport: &manifest::Transport, problems: &mut Vec<Problem>) -> Option<config::Upstream> {
    let manifest::Transport { stdio, streamable_http, sse, protocol: _ } = transport;
    let (kind, port, path) = match (stdio, streamable_http, sse) {
        (Some(_), None, None) => return Some(config::Upstream::Stdio {}),
        (None, Some(http), None) => ("streamableHttp", http.port, &http.path),
        (None, None, Some(sse)) => ("sse", sse.port, &sse.path),
        _ => {
            problems.push(Problem::invalid(
                "spec.transport",
                "say in exactly one way how the server is reached: `streamableHttp: {port: ...}`, `sse: {port: ...}` \
                 or `stdio: {}`",
            ));
            return None;
        }
    };
    if port == 0 || config::ports::RESERVED.contains(&port) {
        problems.push(Problem::invalid(
            &format!("spec.transport.{kind}.port"),
            "give the port that the server listens on; 15380, 15381 and 15382 are the sidecar's",
        ));
        return None;
    }
    // The sidecar could not use another one, and would have no configuration at all.
    let is_of_path = |byte: u8| matches!(byte, b'!' | b'$'..=b';' | b'=' | b'@'..=b'_' | b'a'..=b'~');
    if !path.starts_with('/') || !path.bytes().all(is_of_path) {
        let such = if sse.is_some() { "/sse" } else { "/mcp" };
        problems.push(Problem::invalid(
            &format!("spec.transport.{kind}.path"),
            format_args!(
                "write a path that begins with `/`, without a query, spaces and quotes, such as `{such}`"
            ),
        ));
        return None;
    }
    let path = path.clone();
    Some(match sse {
        Some(_) => config::Upstream::Sse { port, path },
        None => config::Upstream::StreamableHttp { port, path },
    })
}

/// The one revision that the server is spoken to in, if one is named that it can be spoken to in.
fn protocol(transport: &manifest::Transport, unfit: &mut Vec<Problem>) -> Option<manifest::Protocol> {
    if transport.sse.is_some() && transport.protocol == Some(manifest::Protocol::V2026_07_28) {
        unfit.push(Problem::invalid(
            "spec.transport.protocol",
            "no server speaks 2026-07-28 over HTTP+SSE: name an older revision, or leave it out",
        ));
        return None;
    }
    transport.protocol
}

fn pod(pod: &manifest::Pod, problems: &mut Vec<Problem>) -> ServerPod {
    let mut volumes = Vec::new();
    match pod.volumes.as_ref().map(|written| typed::read("spec.pod.volumes", written)).transpose() {
        Ok(values) => {
            let values = values.as_ref().and_then(Value::as_array);
            for (index, value) in values.into_iter().flatten().enumerate() {
                match typed::typed::<Volume>(&format!("spec.pod.volumes[{index}]"), value) {
                    Ok(volume) => volumes.push(volume),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        Err(problem) => problems.push(problem),
    }
    guard::volumes::volumes("spec.pod.volumes", &volumes, problems);
    let affinity = whole("spec.pod.affinity", pod.affinity.as_ref(), problems);
    let mut overrides: Option<PodTemplateSpec> =
        whole("spec.pod.overrides", pod.overrides.as_ref(), problems);
    if let Some(template) = &mut overrides {
        guard::overrides("spec.pod.overrides", template, problems);
        // They are refused, and the largest of all types: three bytes of text would be a thousand.
        if let Some(spec) = &mut template.spec {
            spec.ephemeral_containers = None;
        }
    }
    if let Some(context) = &pod.security_context {
        guard::security::pod("spec.pod.securityContext", context, problems);
    }
    guard::labels("spec.pod.metadata.labels", pod.metadata.labels.keys(), problems);
    guard::annotations("spec.pod.metadata.annotations", pod.metadata.annotations.keys(), problems);
    ServerPod {
        labels: pod.metadata.labels.clone(),
        annotations: pod.metadata.annotations.clone(),
        service_account: pod.service_account_name.clone(),
        image_pull_secrets: pod.image_pull_secrets.clone(),
        security_context: pod.security_context.clone().unwrap_or_default(),
        volumes,
        node_selector: pod.node_selector.clone(),
        tolerations: pod.tolerations.clone(),
        affinity,
        overrides,
    }
}

/// What is kept as it is written, as a Kubernetes type.
fn whole<T: Serialize + DeserializeOwned>(
    field: &str,
    written: Option<&Written>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let read = |written| typed::typed(field, &typed::read(field, written)?);
    written.map(read).transpose().unwrap_or_else(|problem| {
        problems.push(problem);
        None
    })
}

fn log_level(level: manifest::LogLevel) -> config::LogLevel {
    match level {
        manifest::LogLevel::Error => config::LogLevel::Error,
        manifest::LogLevel::Warn => config::LogLevel::Warn,
        manifest::LogLevel::Info => config::LogLevel::Info,
        manifest::LogLevel::Debug => config::LogLevel::Debug,
        manifest::LogLevel::Trace => config::LogLevel::Trace,
    }
}
