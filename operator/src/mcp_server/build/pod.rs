//! The pod: the sidecar first, the server second, and the volumes between them.

mod volumes;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, EnvVar, EnvVarSource, ExecAction, HTTPGetAction, Lifecycle,
    LifecycleHandler, LocalObjectReference, ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity, PodSpec,
    PodTemplateSpec, Probe, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use longshore_crds::names::{SERVER_CONTAINER, SIDECAR_CONTAINER, SIDECAR_USER};
use longshore_sidecar_config::{Upstream, paths, ports};

use super::{own_pods, peers, resources, security, upstream_text};
use crate::mcp_server::validate::ValidatedServer;
use crate::names::{self, DEFAULT_CONTAINER_ANNOTATION, UPSTREAM_ANNOTATION};
use crate::settings::Settings;
use volumes::{
    CONFIG_VOLUME, PROGRAM_VOLUME, SOCKETS_VOLUME, TMP, TMP_VOLUME, TOKEN_VOLUME, has_sockets, mount,
    needs_tmp, read_only,
};

/// The sidecar's variable with the UID of its pod.
const POD_UID: &str = "LONGSHORE_POD_UID";
/// The variable with the address at which the other pods find it.
const POD_IP: &str = "LONGSHORE_POD_IP";
/// The variable that names the template that the pod was made of. The sidecar reads it from its environment alone: one of an
/// earlier release would refuse to be told in another way.
const POD_TEMPLATE: &str = "LONGSHORE_POD_TEMPLATE";
/// Where Kubernetes clients look for their token.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How much longer than the longest call a pod may take to end: calls are taken for five seconds, and for ten more while
/// clients come that have yet to hear that the pod goes, and the last of them may be the longest; then the processes of a
/// stdio server get eight to end in order, and connections five to deliver the last words. Sessions that move, and
/// whatever else, get the rest.
const DRAIN_SECONDS: u64 = 35;

/// How long a sidecar may take to end that its liveness probe has given up, in seconds, instead of what its pod may take.
/// One that lives and was slow ends in order in that time, but for calls that take long; one that hangs does nothing in it,
/// and its sessions wait for the next.
const GIVEN_UP_SECONDS: i64 = 20;

/// The label that tells versions apart: pods of the previous one are about to go, and are not in the way of new ones.
const VERSION: &str = "pod-template-hash";

/// Annotations that are lists which others read, with what separates their entries, and Longshore's own entry: the sidecar,
/// which faces the network, is to be given no credentials of a cloud, and its program, which is lost with the pod, is no
/// reason to keep a node.
const OF_OTHERS: [(&str, char, &str); 3] = [
    ("azure.workload.identity/skip-containers", ';', SIDECAR_CONTAINER),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", ',', PROGRAM_VOLUME),
    ("eks.amazonaws.com/skip-containers", ',', SIDECAR_CONTAINER),
];

pub(super) fn build(server: &ValidatedServer, settings: &Settings) -> PodTemplateSpec {
    let pod = &server.pod;
    let mut labels = pod.labels.clone();
    labels.extend(names::labels(&server.identity.name));
    let mut annotations = pod.annotations.clone();
    annotations.insert(DEFAULT_CONTAINER_ANNOTATION.to_owned(), SERVER_CONTAINER.to_owned());
    annotations.insert(UPSTREAM_ANNOTATION.to_owned(), upstream_text(&server.upstream));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            service_account_name: Some(
                pod.service_account.clone().unwrap_or_else(|| server.names.service_account()),
            ),
            // The sidecar faces the network and gets no token; a server's own is projected into its container.
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            image_pull_secrets: some_unless_empty(pull_secrets(server, settings)),
            security_context: Some(security::pod(&pod.security_context)),
            termination_grace_period_seconds: Some(grace_period(server)),
            // The order matters: the kubelet starts them so, and the sidecar's postStart holds a stdio server back.
            containers: vec![sidecar(server, settings), self::server(server)],
            volumes: Some(volumes::volumes(server)),
            node_selector: (!pod.node_selector.is_empty()).then(|| pod.node_selector.clone()),
            tolerations: some_unless_empty(pod.tolerations.clone()),
            affinity: Some(affinity(server)),
            topology_spread_constraints: Some(vec![spread(server)]),
            ..PodSpec::default()
        }),
    }
}

/// Both images are pulled with all of them. A name that is there twice would be refused.
fn pull_secrets(server: &ValidatedServer, settings: &Settings) -> Vec<LocalObjectReference> {
    let mut secrets = server.pod.image_pull_secrets.clone();
    for name in &settings.sidecar.image_pull_secrets {
        if !secrets.iter().any(|secret| secret.name == *name) {
            secrets.push(LocalObjectReference { name: name.clone() });
        }
    }
    secrets
}

/// Has the lists of others name what is Longshore's, whoever else they name.
pub(super) fn list(template: &mut PodTemplateSpec) {
    let containers = template.spec.iter().flat_map(|spec| &spec.containers);
    let names = containers.map(|container| container.name.as_str());
    let others = names.filter(|name| *name != SIDECAR_CONTAINER).collect::<Vec<_>>().join(",");
    let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    for (name, separator, own) in OF_OTHERS {
        add(annotations.entry(name.to_owned()).or_default(), separator, own);
    }
    // Who comes into pods that ask for it comes into the first container, which is the sidecar, or into all of them, where
    // nothing says into which.
    for (prefix, list, containers) in [
        ("instrumentation.opentelemetry.io/", "container-names", SERVER_CONTAINER),
        ("vault.hashicorp.com/", "agent-inject-containers", others.as_str()),
    ] {
        let is_there = |end: &str| {
            annotations.keys().any(|name| name.strip_prefix(prefix).is_some_and(|name| name.ends_with(end)))
        };
        if is_there("") && !is_there(list) {
            annotations.insert(format!("{prefix}{list}"), containers.to_owned());
        }
    }
}

/// Adds an entry to a list, unless it is there.
fn add(list: &mut String, separator: char, entry: &str) {
    if list.split(separator).any(|there| there.trim() == entry) {
        return;
    }
    if !list.trim().is_empty() {
        list.push(separator);
    }
    list.push_str(entry);
}

/// One node after the other, where there are several. Of a server that has but one pod too: another constraint would be
/// another template, and a scale-up is no reason to replace the pod that is there.
fn spread(server: &ValidatedServer) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(own_pods(server)),
        match_label_keys: Some(vec![VERSION.to_owned()]),
        ..TopologySpreadConstraint::default()
    }
}

/// What the manifest says, and beside it one zone after the other, where there are several: Kubernetes spreads over zones by
/// itself only what has no constraint, such as that of [`spread`]. A second constraint would have nodes without a zone
/// count for nothing.
fn affinity(server: &ValidatedServer) -> Affinity {
    let mut affinity = server.pod.affinity.clone().unwrap_or_default();
    affinity.pod_anti_affinity.get_or_insert_with(|| PodAntiAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
            weight: 50,
            pod_affinity_term: PodAffinityTerm {
                topology_key: "topology.kubernetes.io/zone".to_owned(),
                label_selector: Some(own_pods(server)),
                match_label_keys: Some(vec![VERSION.to_owned()]),
                ..PodAffinityTerm::default()
            },
        }]),
        ..PodAntiAffinity::default()
    });
    affinity
}

fn grace_period(server: &ValidatedServer) -> i64 {
    i64::try_from(longest_call(server) + DRAIN_SECONDS).unwrap_or(i64::MAX)
}

/// The longest that a call may take, in seconds. The pod keeps it to its end: when it changes there are other pods.
fn longest_call(server: &ValidatedServer) -> u64 {
    server.limits.request_timeout_ms.div_ceil(1000)
}

fn sidecar(server: &ValidatedServer, settings: &Settings) -> Container {
    let mut args = vec![
        "serve".to_owned(),
        "--shim=/shim".to_owned(),
        format!("--workers={}", server.sidecar.workers),
        // Kubernetes puts the values of the environment into the arguments.
        format!("--pod-uid=$({POD_UID})"),
        format!("--pod-ip=$({POD_IP})"),
        format!("--peers-entry={}", peers::entry(server, settings)),
        format!("--keys-dir={}", paths::CONFIG_DIR),
        // The configuration reaches the pods from before its change too, and they have their grace period still.
        format!("--longest-call-ms={}", longest_call(server) * 1000),
    ];
    let mut mounts =
        vec![read_only(mount(CONFIG_VOLUME, paths::CONFIG_DIR)), mount(PROGRAM_VOLUME, paths::PROGRAM_DIR)];
    if has_sockets(server) {
        mounts.push(mount(SOCKETS_VOLUME, paths::SOCKETS_DIR));
    } else {
        args.push(format!("--sockets-dir={}", paths::PROGRAM_DIR));
    }
    Container {
        name: SIDECAR_CONTAINER.to_owned(),
        image: Some(settings.sidecar.image.clone()),
        image_pull_policy: settings.sidecar.image_pull_policy.clone(),
        command: Some(vec!["/longshore-sidecar".to_owned()]),
        args: Some(args),
        ports: Some(vec![
            container_port("mcp", ports::MCP),
            container_port("admin", ports::ADMIN),
            container_port("peers", ports::PEERS),
        ]),
        // Which of a server's pods it is, for the session ids that it gives and for the other pods.
        env: Some(vec![
            field(POD_UID, "metadata.uid"),
            field(POD_IP, "status.podIP"),
            field(POD_TEMPLATE, &format!("metadata.labels['{VERSION}']")),
        ]),
        resources: Some(resources::of_sidecar(server.sidecar.resources.as_ref(), &settings.sidecar)),
        volume_mounts: Some(mounts),
        lifecycle: post_start(server),
        // The sidecar holds the first probe until it has an answer, so that no second is lost between two probes. What
        // it has to say it says at once; one that says nothing hangs, or waits for a processor, as on a node that has
        // too much to do. There it is no help to send its clients away, and less to start it again.
        readiness_probe: Some(Probe {
            period_seconds: Some(1),
            timeout_seconds: Some(3),
            failure_threshold: Some(3),
            ..get("/readyz")
        }),
        // At first the readiness probe alone asks: a node on which many start has enough to do.
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(10),
            period_seconds: Some(10),
            timeout_seconds: Some(10),
            failure_threshold: Some(3),
            termination_grace_period_seconds: Some(GIVEN_UP_SECONDS),
            ..get("/healthz")
        }),
        security_context: Some(security::sidecar()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn server(server: &ValidatedServer) -> Container {
    let container = &server.container;
    let mut env = Vec::new();
    if !container.has_home {
        // Many programs (npx, uvx) want a home that they can write to, and the root file system is read-only. (It would
        // come before one out of `envFrom`.) It comes first, so that the manifest's variables can say `$(HOME)`.
        env.push(variable("HOME", TMP));
    }
    env.extend(container.env.iter().cloned());
    let mut mounts = vec![read_only(mount(PROGRAM_VOLUME, paths::PROGRAM_DIR))];
    if has_sockets(server) {
        mounts.push(mount(SOCKETS_VOLUME, paths::SOCKETS_DIR));
    }
    if needs_tmp(server) {
        mounts.push(mount(TMP_VOLUME, TMP));
    }
    if server.pod.service_account.is_some() {
        mounts.push(read_only(mount(TOKEN_VOLUME, TOKEN_DIR)));
    }
    mounts.extend(container.volume_mounts.iter().cloned());
    let shim = format!("{}/{}", paths::PROGRAM_DIR, paths::SHIM);
    let socket = format!("{}/{}", paths::PROGRAM_DIR, paths::DRAIN_SOCKET);
    let mut drain = vec![shim.as_str(), "drain"];
    if !has_sockets(server) {
        drain.push(&socket);
    }
    let (command, args) = match server.upstream {
        Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => {
            (container.command.clone(), container.args.clone())
        }
        Upstream::Stdio {} => (stdio_command(&shim, server), container.args.clone()),
    };
    Container {
        name: SERVER_CONTAINER.to_owned(),
        image: Some(container.image.clone()),
        image_pull_policy: container.image_pull_policy.clone(),
        command: some_unless_empty(command),
        args: some_unless_empty(args),
        env: Some(env),
        env_from: some_unless_empty(container.env_from.clone()),
        resources: container.resources.clone(),
        volume_mounts: Some(mounts),
        // Keeps the server until the sidecar has drained; without it the server would end first, and its calls too.
        lifecycle: Some(Lifecycle { pre_stop: Some(exec(&drain)), ..Lifecycle::default() }),
        security_context: Some(security::server()),
        // The last lines of a server that fails are then part of the pod's status, and no right to read logs is needed.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// The hook that holds the server's container back until the sidecar has put the shim in its place. A server that the
/// shim does not start need not wait: its own hook is the only one to use the shim, and comes at its end.
fn post_start(server: &ValidatedServer) -> Option<Lifecycle> {
    matches!(server.upstream, Upstream::Stdio {}).then(|| Lifecycle {
        post_start: Some(exec(&["/longshore-sidecar", "await"])),
        ..Lifecycle::default()
    })
}

/// The shim is the container's first process, and starts the manifest's command as often as the sidecar asks for it.
fn stdio_command(shim: &str, server: &ValidatedServer) -> Vec<String> {
    let words = [shim, "--peer-uid", &SIDECAR_USER.to_string(), "--"].map(str::to_owned);
    words.into_iter().chain(server.container.command.iter().cloned()).collect()
}

fn container_port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn get(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(ports::ADMIN)),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

fn exec(command: &[&str]) -> LifecycleHandler {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    LifecycleHandler { exec: Some(ExecAction { command: Some(command) }), ..LifecycleHandler::default() }
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

fn field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: path.to_owned(), api_version: Some("v1".to_owned()) };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

fn some_unless_empty<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}
