//! What a manifest may not do to its pod: whoever may write a manifest may run a pod, and no more, and may not reach
//! into the sidecar. The schema refuses most of this already at `kubectl apply`; this is the whole of it.

use k8s_openapi::api::core::v1::{
    Container, PodSecurityContext, PodSpec, PodTemplateSpec, Volume, VolumeMount,
};
use longshore_crds::names::{DOMAIN, SERVER_CONTAINER, SIDECAR_CONTAINER, SIDECAR_USER, VOLUME_PREFIX};
use longshore_sidecar_config::ports;

use crate::mcp_server::condition::Problem;

/// Directories of the pod that are Longshore's.
const DIRECTORIES: [&str; 2] = ["/run/longshore", "/etc/longshore"];

/// Checks volumes that a manifest adds.
pub(super) fn volumes(path: &str, volumes: &[Volume], problems: &mut Vec<Problem>) {
    for (index, volume) in volumes.iter().enumerate() {
        if volume.name.starts_with(VOLUME_PREFIX) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].name"),
                format_args!("names beginning with {VOLUME_PREFIX:?} are Longshore's; choose another"),
            ));
        }
        if volume.host_path.is_some() {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].hostPath"),
                "a server may not mount directories of its node; use a persistentVolumeClaim or an emptyDir",
            ));
        }
    }
}

/// Checks where a container mounts volumes.
pub(super) fn mounts(path: &str, mounts: &[VolumeMount], problems: &mut Vec<Problem>) {
    for (index, mount) in mounts.iter().enumerate() {
        if mount.name.starts_with(VOLUME_PREFIX) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].name"),
                format_args!("volumes whose names begin with {VOLUME_PREFIX:?} are Longshore's"),
            ));
        }
        if !plain(&mount.mount_path) {
            // Two such paths can name one directory, and their texts would not tell.
            problems.push(Problem::invalid(
                &format!("{path}[{index}].mountPath"),
                format_args!(
                    "{:?} is not a plain path; write it from the root, without empty parts, \".\" and \"..\", such as /data/cache",
                    mount.mount_path
                ),
            ));
        } else if hides_ours(&mount.mount_path) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].mountPath"),
                format_args!("{} hides a directory of Longshore's; mount it elsewhere", mount.mount_path),
            ));
        }
    }
}

/// Whether a path is absolute and has but one way to be written, save for a slash at its end.
fn plain(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        let rest_without_end = rest.strip_suffix('/').unwrap_or(rest);
        rest.is_empty() || rest_without_end.split('/').all(|part| !matches!(part, "" | "." | ".."))
    })
}

/// Whether a volume at this plain path hides a directory of Longshore's.
fn hides_ours(path: &str) -> bool {
    // In most images /var/run is a link to /run, and volumes are mounted where links lead.
    let linked = path.strip_prefix("/var").filter(|rest| {
        DIRECTORIES.iter().any(|directory| *rest == *directory || rest.starts_with(&format!("{directory}/")))
    });
    linked.is_some() || DIRECTORIES.iter().any(|directory| overlap(path, directory))
}

/// Whether one of two absolute paths lies in the other.
fn overlap(one: &str, other: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let one = if one == "/" { one } else { one.trim_end_matches('/') };
    inside(one, other) || inside(other, one)
}

/// Checks the pod's security context. Every container of the pod inherits it, but for the sidecar.
pub(super) fn pod_security(path: &str, context: &PodSecurityContext, problems: &mut Vec<Problem>) {
    user(path, context.run_as_user, context.run_as_non_root, problems);
    if context.run_as_group == Some(SIDECAR_USER) {
        problems.push(Problem::invalid(
            &format!("{path}.runAsGroup"),
            format_args!("{SIDECAR_USER} is the sidecar's group; choose another"),
        ));
    }
    if context.supplemental_groups.iter().flatten().any(|group| *group == SIDECAR_USER)
        || context.fs_group == Some(SIDECAR_USER)
    {
        problems.push(Problem::invalid(
            path,
            format_args!("{SIDECAR_USER} is the sidecar's group; choose another"),
        ));
    }
    seccomp(path, context.seccomp_profile.as_ref().map(|profile| profile.type_.as_str()), problems);
}

fn user(path: &str, user: Option<i64>, non_root: Option<bool>, problems: &mut Vec<Problem>) {
    match user {
        Some(0) => problems.push(Problem::invalid(
            &format!("{path}.runAsUser"),
            "0 is root; give the number of any other user (Longshore's default is 65532)",
        )),
        Some(SIDECAR_USER) => problems.push(Problem::invalid(
            &format!("{path}.runAsUser"),
            format_args!("{SIDECAR_USER} is the sidecar's user; choose another"),
        )),
        Some(_) | None => {}
    }
    if non_root == Some(false) {
        problems.push(Problem::invalid(
            &format!("{path}.runAsNonRoot"),
            "a server may not run as root; leave it out",
        ));
    }
}

fn seccomp(path: &str, profile: Option<&str>, problems: &mut Vec<Problem>) {
    if profile == Some("Unconfined") {
        problems.push(Problem::invalid(
            &format!("{path}.seccompProfile"),
            "a server may not run unconfined; use RuntimeDefault or Localhost",
        ));
    }
}

/// Checks `spec.pod.overrides`.
pub(super) fn overrides(path: &str, template: &PodTemplateSpec, problems: &mut Vec<Problem>) {
    if let Some(metadata) = &template.metadata {
        metadata_keys(
            &format!("{path}.metadata"),
            metadata.labels.iter().flatten().map(|(key, _)| key),
            problems,
        );
        metadata_keys(
            &format!("{path}.metadata"),
            metadata.annotations.iter().flatten().map(|(key, _)| key),
            problems,
        );
    }
    if let Some(spec) = &template.spec {
        pod(&format!("{path}.spec"), spec, problems);
    }
}

/// Checks keys of labels or annotations that a manifest adds to its pod.
pub(super) fn metadata_keys<'a>(
    path: &str,
    keys: impl Iterator<Item = &'a String>,
    problems: &mut Vec<Problem>,
) {
    for key in keys {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let ours =
            domain == DOMAIN || domain.ends_with(&format!(".{DOMAIN}")) || domain == "app.kubernetes.io";
        if ours || key == crate::names::DEFAULT_CONTAINER_ANNOTATION {
            problems.push(Problem::invalid(path, format_args!("{key:?} is Longshore's; choose another key")));
        }
    }
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
                "a server may not share its node's namespaces",
            ));
        }
    }
    let unchangeable = [
        (
            "shareProcessNamespace",
            spec.share_process_namespace == Some(true),
            "the sidecar's process would be in the server's reach",
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
            "the pods of a Deployment are always restarted",
        ),
        (
            "ephemeralContainers",
            spec.ephemeral_containers.is_some(),
            "they can only be added to a running pod (kubectl debug)",
        ),
    ];
    for (field, set, because) in unchangeable {
        if set {
            problems.push(Problem::invalid(&format!("{path}.{field}"), because));
        }
    }
    if let Some(context) = &spec.security_context {
        pod_security(&format!("{path}.securityContext"), context, problems);
    }
    volumes(&format!("{path}.volumes"), spec.volumes.as_deref().unwrap_or_default(), problems);
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
    mounts(&format!("{path}.volumeMounts"), container.volume_mounts.as_deref().unwrap_or_default(), problems);
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let field = format!("{path}.ports[{index}]");
        if u16::try_from(port.container_port).is_ok_and(|port| ports::RESERVED.contains(&port)) {
            problems.push(Problem::invalid(
                &field,
                format_args!("port {} is the sidecar's", port.container_port),
            ));
        }
        if port.host_port.is_some() {
            problems.push(Problem::invalid(&field, "a server may not take a port of its node"));
        }
    }
    if container.name == SERVER_CONTAINER
        && container.lifecycle.as_ref().is_some_and(|hooks| hooks.pre_stop.is_some())
    {
        problems.push(Problem::invalid(
            &format!("{path}.lifecycle.preStop"),
            "the server's preStop hook is Longshore's: it keeps the server until its calls are done",
        ));
    }
    let Some(context) = &container.security_context else { return };
    let path = format!("{path}.securityContext");
    user(&path, context.run_as_user, context.run_as_non_root, problems);
    seccomp(&path, context.seccomp_profile.as_ref().map(|profile| profile.type_.as_str()), problems);
    if context.privileged == Some(true) {
        problems.push(Problem::invalid(&format!("{path}.privileged"), "a server may not be privileged"));
    }
    if context.allow_privilege_escalation == Some(true) {
        problems.push(Problem::invalid(
            &format!("{path}.allowPrivilegeEscalation"),
            "a server may not gain privileges",
        ));
    }
    if context.capabilities.as_ref().is_some_and(|capabilities| capabilities.add.is_some()) {
        problems
            .push(Problem::invalid(&format!("{path}.capabilities.add"), "a server may not add capabilities"));
    }
    if context.proc_mount.as_deref().is_some_and(|mount| mount != "Default") {
        problems.push(Problem::invalid(&format!("{path}.procMount"), "only Default is allowed"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn complaints(value: Value) -> Vec<String> {
        let mut problems = Vec::new();
        overrides("o", &serde_json::from_value(value).unwrap(), &mut problems);
        problems.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn refuses_each_way_to_more_than_a_pod() {
        let server = |fields: Value| {
            let mut container = json!({"name": "server"});
            container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({"spec": {"containers": [container]}})
        };
        for (value, field) in [
            (json!({"spec": {"hostNetwork": true}}), "o.spec.hostNetwork"),
            (json!({"spec": {"hostPID": true}}), "o.spec.hostPID"),
            (json!({"spec": {"hostIPC": true}}), "o.spec.hostIPC"),
            (json!({"spec": {"shareProcessNamespace": true}}), "o.spec.shareProcessNamespace"),
            (json!({"spec": {"serviceAccountName": "admin"}}), "o.spec.serviceAccountName"),
            (json!({"spec": {"automountServiceAccountToken": true}}), "o.spec.automountServiceAccountToken"),
            (json!({"spec": {"restartPolicy": "Never"}}), "o.spec.restartPolicy"),
            (json!({"spec": {"securityContext": {"runAsUser": 0}}}), "o.spec.securityContext.runAsUser"),
            (json!({"spec": {"securityContext": {"runAsUser": 15380}}}), "o.spec.securityContext.runAsUser"),
            (
                json!({"spec": {"securityContext": {"runAsNonRoot": false}}}),
                "o.spec.securityContext.runAsNonRoot",
            ),
            (json!({"spec": {"securityContext": {"supplementalGroups": [15380]}}}), "o.spec.securityContext"),
            (
                json!({"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}}),
                "o.spec.volumes[0].hostPath",
            ),
            (
                json!({"spec": {"volumes": [{"name": "longshore-keys", "emptyDir": {}}]}}),
                "o.spec.volumes[0].name",
            ),
            (
                json!({"spec": {"containers": [{"name": "longshore-sidecar", "image": "x"}]}}),
                "o.spec.containers[0]",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "longshore-sidecar"}]}}),
                "o.spec.initContainers[0]",
            ),
            (json!({"spec": {"initContainers": [{"name": "server"}]}}), "o.spec.initContainers[0]"),
            (server(json!({"ports": [{"containerPort": 15381}]})), "o.spec.containers[0].ports[0]"),
            (
                server(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
                "o.spec.containers[0].ports[0]",
            ),
            (
                server(json!({"volumeMounts": [{"name": "longshore-keys", "mountPath": "/keys"}]})),
                "o.spec.containers[0].volumeMounts[0].name",
            ),
            (
                server(json!({"volumeMounts": [{"name": "a", "mountPath": "/run"}]})),
                "o.spec.containers[0].volumeMounts[0].mountPath",
            ),
            (
                server(json!({"volumeMounts": [{"name": "a", "mountPath": "/run/longshore/program/"}]})),
                "o.spec.containers[0].volumeMounts[0].mountPath",
            ),
            (
                server(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}})),
                "o.spec.containers[0].lifecycle.preStop",
            ),
            (
                server(json!({"securityContext": {"privileged": true}})),
                "o.spec.containers[0].securityContext.privileged",
            ),
            (
                server(json!({"securityContext": {"allowPrivilegeEscalation": true}})),
                "o.spec.containers[0].securityContext.allowPrivilegeEscalation",
            ),
            (
                server(json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})),
                "o.spec.containers[0].securityContext.capabilities.add",
            ),
            (
                server(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
                "o.spec.containers[0].securityContext.seccompProfile",
            ),
            (
                server(json!({"securityContext": {"runAsUser": 15380}})),
                "o.spec.containers[0].securityContext.runAsUser",
            ),
            (json!({"metadata": {"labels": {"longshore.dev/server": "x"}}}), "o.metadata"),
            (
                json!({"metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "x"}}}),
                "o.metadata",
            ),
        ] {
            let found = complaints(value.clone());
            assert!(
                found.len() == 1 && found[0].starts_with(&format!("{field}: ")),
                "{value} should be refused at {field}, got {found:?}"
            );
        }
    }

    #[test]
    fn refuses_mounts_that_hide_longshores_directories_however_they_are_written() {
        for (path, complaint) in [
            ("/run//longshore/program", Some("is not a plain path")),
            ("//run/longshore", Some("is not a plain path")),
            ("//", Some("is not a plain path")),
            ("/run/longshore//", Some("is not a plain path")),
            ("/x/../run/longshore", Some("is not a plain path")),
            ("/run/./longshore", Some("is not a plain path")),
            ("/data/..", Some("is not a plain path")),
            ("run/longshore/program", Some("is not a plain path")),
            ("../run/longshore", Some("is not a plain path")),
            ("", Some("is not a plain path")),
            ("/", Some("hides a directory")),
            ("/run/", Some("hides a directory")),
            ("/etc/longshore/keys", Some("hides a directory")),
            ("/var/run/longshore/program", Some("hides a directory")),
            ("/var/run/longshore", Some("hides a directory")),
            ("/var/run/longshoreman", None),
            ("/var/run", None),
            ("/var", None),
            ("/run/longshoreman", None),
            ("/data/", None),
            ("/data/.cache/..a/b..", None),
        ] {
            let mounts = json!([{"name": "a", "mountPath": path}]);
            for (list, container) in
                [("containers", "server"), ("containers", "helper"), ("initContainers", "prepare")]
            {
                let mut spec = json!({"containers": []});
                spec[list] = json!([{"name": container, "volumeMounts": mounts}]);
                let found = complaints(json!({"spec": spec}));
                let field = format!("o.spec.{list}[0].volumeMounts[0].mountPath: ");
                match complaint {
                    None => assert_eq!(found, Vec::<String>::new(), "{path}"),
                    Some(complaint) => assert!(
                        found.len() == 1 && found[0].starts_with(&field) && found[0].contains(complaint),
                        "{path} should be refused: {found:?}"
                    ),
                }
            }
        }
    }

    #[test]
    fn leaves_the_rest_to_the_manifest() {
        let allowed = json!({
            "metadata": {"labels": {"team": "tools"}, "annotations": {"example.com/scrape": "yes"}},
            "spec": {
                "priorityClassName": "high",
                "dnsPolicy": "ClusterFirst",
                "hostNetwork": false,
                "securityContext": {"runAsUser": 1000, "runAsNonRoot": true},
                "volumes": [{"name": "data", "emptyDir": {}}],
                "containers": [
                    {"name": "server", "volumeMounts": [{"name": "data", "mountPath": "/runtime"}], "livenessProbe": {"tcpSocket": {"port": 3000}}},
                    {"name": "helper", "image": "x", "ports": [{"containerPort": 9000}]},
                ],
            },
        });
        assert_eq!(complaints(allowed), Vec::<String>::new());
    }
}
