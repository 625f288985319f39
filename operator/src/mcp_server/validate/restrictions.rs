//! What a manifest may not do to its pod and its Service: whoever may write a manifest may run a pod and have a Service in
//! front of it, and no more, and may not reach into the sidecar. The schema refuses most of this already at `kubectl apply`;
//! this is the whole of it.

mod amounts;
pub(super) mod security;
#[cfg(test)]
mod tests;
pub(super) mod volumes;

use k8s_openapi::api::core::v1::{
    Container, HTTPGetAction, LifecycleHandler, PodSpec, PodTemplateSpec, Probe, TCPSocketAction,
};
use longshore_crds::mcp_server::ObjectMetadata;
use longshore_crds::names::{DOMAIN, SERVER_CONTAINER, SIDECAR_CONTAINER};
use longshore_sidecar_config::ports;

use crate::mcp_server::condition::Problem;
use crate::names::DEFAULT_CONTAINER_ANNOTATION;

/// What annotations that choose a container's AppArmor profile begin with. They came before the field of that name,
/// and Kubernetes still heeds them.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks `spec.pod.overrides`.
pub(super) fn overrides(path: &str, template: &PodTemplateSpec, problems: &mut Vec<Problem>) {
    if let Some(metadata) = &template.metadata {
        let path = format!("{path}.metadata");
        labels(&path, metadata.labels.iter().flatten().map(|(key, _)| key), problems);
        annotations(&path, metadata.annotations.iter().flatten().map(|(key, _)| key), problems);
    }
    if let Some(spec) = &template.spec {
        pod(&format!("{path}.spec"), spec, problems);
    }
}

/// Checks keys of labels that a manifest adds to its pod.
pub(super) fn labels<'a>(path: &str, keys: impl Iterator<Item = &'a String>, problems: &mut Vec<Problem>) {
    problems.extend(keys.filter(|key| is_label_of_ours(key)).map(|key| is_ours(path, key)));
}

/// Checks `spec.expose.service`, and takes out what is refused: unlike a pod, the Service of a server that is there
/// follows a manifest that is not all right.
pub(super) fn service(path: &str, metadata: &mut ObjectMetadata, problems: &mut Vec<Problem>) {
    let path_of = |field: &str| format!("{path}.{field}");
    labels(&path_of("labels"), metadata.labels.keys(), problems);
    problems.extend(metadata.labels.keys().filter(|key| is_of_kubernetes(key)).map(|key| {
        Problem::invalid(
            &path_of("labels"),
            format_args!("{key:?} tells Kubernetes who takes connections to the Service: leave it out"),
        )
    }));
    let ours = metadata.annotations.keys().filter(|key| is_of(key, DOMAIN));
    problems.extend(ours.map(|key| is_ours(&path_of("annotations"), key)));
    metadata.labels.retain(|key, _| !is_label_of_ours(key) && !is_of_kubernetes(key));
    metadata.annotations.retain(|key, _| !is_of(key, DOMAIN));
}

/// Checks keys of annotations that a manifest adds to its pod.
pub(super) fn annotations<'a>(
    path: &str,
    keys: impl Iterator<Item = &'a String>,
    problems: &mut Vec<Problem>,
) {
    for key in keys {
        if key.starts_with(APPARMOR_ANNOTATION) {
            // Whatever its value: it may name the sidecar.
            problems.push(Problem::invalid(
                path,
                format_args!(
                    "{key:?} is of no use here; set appArmorProfile in the container's securityContext"
                ),
            ));
        }
        if is_of(key, DOMAIN) || key == DEFAULT_CONTAINER_ANNOTATION {
            problems.push(is_ours(path, key));
        }
    }
}

/// Whether Longshore alone sets labels of this key.
fn is_label_of_ours(key: &str) -> bool {
    is_of(key, DOMAIN) || key.starts_with("app.kubernetes.io/")
}

/// Whether a label of this key tells Kubernetes something of a Service: with some nobody on the nodes answers for it any more.
fn is_of_kubernetes(key: &str) -> bool {
    key.starts_with("service.kubernetes.io/")
}

/// Whether a label of this key, which is meant for pods, may be on other objects too. A mesh's tells other things there.
pub(crate) fn may_label(key: &str) -> bool {
    !is_label_of_ours(key) && !is_of_kubernetes(key) && !is_of(key, "istio.io")
}

/// Whether a key is under a domain.
fn is_of(key: &str, domain: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return false };
    prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn is_ours(path: &str, key: &str) -> Problem {
    Problem::invalid(path, format_args!("{key:?} is Longshore's; choose another key"))
}

fn pod(path: &str, spec: &PodSpec, problems: &mut Vec<Problem>) {
    let forbidden = [
        ("hostNetwork", spec.host_network == Some(true)),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
    ];
    for (field, set) in forbidden {
        if set {
            problems.push(Problem::invalid(
                &format!("{path}.{field}"),
                "a server may not share its node's namespaces; leave it out",
            ));
        }
    }
    let unchangeable = [
        (
            "shareProcessNamespace",
            spec.share_process_namespace == Some(true),
            "the sidecar's process would be in the server's reach; leave it out",
        ),
        (
            "serviceAccountName",
            spec.service_account_name.is_some() || spec.service_account.is_some(),
            "set spec.pod.serviceAccountName instead, which gives its token to the server's container alone",
        ),
        (
            "automountServiceAccountToken",
            spec.automount_service_account_token == Some(true),
            "set spec.pod.serviceAccountName instead, which gives its token to the server's container alone",
        ),
        (
            "restartPolicy",
            spec.restart_policy.as_deref().is_some_and(|policy| policy != "Always"),
            "the pods of a Deployment are always restarted; leave it out",
        ),
        (
            "terminationGracePeriodSeconds",
            spec.termination_grace_period_seconds.is_some(),
            "it follows spec.limits.requestTimeout; set that",
        ),
        (
            "ephemeralContainers",
            spec.ephemeral_containers.is_some(),
            "they can only be added to a running pod (kubectl debug); leave it out",
        ),
    ];
    for (field, set, because) in unchangeable {
        if set {
            problems.push(Problem::invalid(&format!("{path}.{field}"), because));
        }
    }
    if let Some(context) = &spec.security_context {
        security::pod(&format!("{path}.securityContext"), context, problems);
    }
    amounts::resources(&format!("{path}.resources"), spec.resources.as_ref(), problems);
    volumes::volumes(&format!("{path}.volumes"), spec.volumes.as_deref().unwrap_or_default(), problems);
    for (index, container) in spec.containers.iter().enumerate() {
        self::container(&format!("{path}.containers[{index}]"), container, problems);
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("{path}.initContainers[{index}]");
        if container.name == SERVER_CONTAINER {
            problems.push(Problem::invalid(
                &path,
                format_args!("{SERVER_CONTAINER:?} is the server's container; choose another name"),
            ));
        }
        if container.restart_policy.as_deref() == Some("Always") {
            problems.push(Problem::invalid(
                &format!("{path}.restartPolicy"),
                "a container that goes on would start before the sidecar and could take its ports; put it under containers",
            ));
        }
        self::container(&path, container, problems);
    }
}

fn container(path: &str, container: &Container, problems: &mut Vec<Problem>) {
    if container.name == SIDECAR_CONTAINER {
        problems.push(Problem::invalid(
            path,
            "the sidecar cannot be overridden; spec.sidecar has what can be set",
        ));
        return;
    }
    amounts::resources(&format!("{path}.resources"), container.resources.as_ref(), problems);
    volumes::mounts(
        &format!("{path}.volumeMounts"),
        container.volume_mounts.as_deref().unwrap_or_default(),
        problems,
    );
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let field = format!("{path}.ports[{index}]");
        if u16::try_from(port.container_port).is_ok_and(|port| ports::RESERVED.contains(&port)) {
            problems.push(Problem::invalid(
                &field,
                format_args!("port {} is the sidecar's; choose another", port.container_port),
            ));
        }
        if port.host_port.is_some() {
            problems.push(Problem::invalid(
                &format!("{field}.hostPort"),
                "a server may not take a port of its node; leave it out",
            ));
        }
    }
    for (field, handler) in handlers(container) {
        if reaches_out(handler) {
            problems.push(Problem::invalid(
                &format!("{path}.{field}.host"),
                "the kubelet would send requests from the node to wherever it says; leave it out",
            ));
        }
    }
    if container.name == SERVER_CONTAINER && container.command.is_some() {
        problems.push(Problem::invalid(
            &format!("{path}.command"),
            "set spec.source.command instead: Longshore has to know how the server is started",
        ));
    }
    if container.name == SERVER_CONTAINER
        && container.lifecycle.as_ref().is_some_and(|hooks| hooks.pre_stop.is_some())
    {
        problems.push(Problem::invalid(
            &format!("{path}.lifecycle.preStop"),
            "the server's preStop hook is Longshore's: it keeps the server until its calls are done; leave it out",
        ));
    }
    if let Some(context) = &container.security_context {
        security::container(&format!("{path}.securityContext"), context, problems);
    }
}

/// What the kubelet asks of a container from outside: its HTTP requests and its connections.
type Handler<'a> = (Option<&'a HTTPGetAction>, Option<&'a TCPSocketAction>);

fn handlers(container: &Container) -> impl Iterator<Item = (&'static str, Handler<'_>)> {
    fn probe(probe: &Probe) -> Handler<'_> {
        (probe.http_get.as_ref(), probe.tcp_socket.as_ref())
    }
    fn hook(hook: &LifecycleHandler) -> Handler<'_> {
        (hook.http_get.as_ref(), hook.tcp_socket.as_ref())
    }
    let hooks = container.lifecycle.as_ref();
    [
        ("livenessProbe", container.liveness_probe.as_ref().map(probe)),
        ("readinessProbe", container.readiness_probe.as_ref().map(probe)),
        ("startupProbe", container.startup_probe.as_ref().map(probe)),
        ("lifecycle.postStart", hooks.and_then(|hooks| hooks.post_start.as_ref()).map(hook)),
        ("lifecycle.preStop", hooks.and_then(|hooks| hooks.pre_stop.as_ref()).map(hook)),
    ]
    .into_iter()
    .filter_map(|(field, handler)| Some((field, handler?)))
}

/// Whether it names another host than the pod.
fn reaches_out((http, tcp): Handler<'_>) -> bool {
    let given = |host: &Option<String>| host.as_ref().is_some_and(|host| !host.is_empty());
    http.is_some_and(|http| given(&http.host)) || tcp.is_some_and(|tcp| given(&tcp.host))
}
