//! What a manifest may not do to its pod: whoever may write a manifest may run a pod, and no more, and may not reach
//! into the sidecar. The schema refuses most of this already at `kubectl apply`; this is the whole of it.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, PodSecurityContext, PodSpec, PodTemplateSpec, SELinuxOptions,
    SeccompProfile, Sysctl, Volume, VolumeMount, WindowsSecurityContextOptions,
};
use longshore_crds::names::{DOMAIN, SERVER_CONTAINER, SIDECAR_CONTAINER, SIDECAR_USER, VOLUME_PREFIX};
use longshore_sidecar_config::ports;

use crate::mcp_server::condition::Problem;

/// Directories of the pod that are Longshore's.
const DIRECTORIES: [&str; 2] = ["/run/longshore", "/etc/longshore"];

/// SELinux types that the Pod Security Standard allows.
const SELINUX_TYPES: [&str; 4] = ["container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// Kernel parameters that the Pod Security Standard allows: they reach no further than the pod.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// What annotations that choose a container's AppArmor profile begin with. They came before the field of that name,
/// and Kubernetes still heeds them.
const APPARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

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
    shared(
        path,
        &Shared {
            user: context.run_as_user,
            group: context.run_as_group,
            non_root: context.run_as_non_root,
            seccomp: context.seccomp_profile.as_ref(),
            app_armor: context.app_armor_profile.as_ref(),
            selinux: context.se_linux_options.as_ref(),
            windows: context.windows_options.as_ref(),
        },
        problems,
    );
    // The sidecar's group may read its files, and each of these is a way into that group.
    for (index, number) in context.supplemental_groups.iter().flatten().enumerate() {
        group(&format!("{path}.supplementalGroups[{index}]"), Some(*number), problems);
    }
    group(&format!("{path}.fsGroup"), context.fs_group, problems);
    sysctls(&format!("{path}.sysctls"), context.sysctls.as_deref().unwrap_or_default(), problems);
}

/// What the contexts of a pod and of a container have in common.
struct Shared<'a> {
    user: Option<i64>,
    group: Option<i64>,
    non_root: Option<bool>,
    seccomp: Option<&'a SeccompProfile>,
    app_armor: Option<&'a AppArmorProfile>,
    selinux: Option<&'a SELinuxOptions>,
    windows: Option<&'a WindowsSecurityContextOptions>,
}

fn shared(path: &str, context: &Shared<'_>, problems: &mut Vec<Problem>) {
    user(path, context.user, context.non_root, problems);
    group(&format!("{path}.runAsGroup"), context.group, problems);
    let profiles = [
        ("seccompProfile", context.seccomp.map(|profile| profile.type_.as_str())),
        ("appArmorProfile", context.app_armor.map(|profile| profile.type_.as_str())),
    ];
    for (field, kind) in profiles {
        // What is neither is refused, whatever it may come to mean.
        if kind.is_some_and(|kind| !matches!(kind, "RuntimeDefault" | "Localhost")) {
            problems.push(Problem::invalid(
                &format!("{path}.{field}"),
                "a server may not run unconfined; use RuntimeDefault or Localhost",
            ));
        }
    }
    if let Some(options) = context.selinux {
        selinux(&format!("{path}.seLinuxOptions"), options, problems);
    }
    if context.windows.is_some_and(|options| options.host_process == Some(true)) {
        problems.push(Problem::invalid(
            &format!("{path}.windowsOptions.hostProcess"),
            "a server may not be a process of its node; leave it out",
        ));
    }
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

fn group(field: &str, number: Option<i64>, problems: &mut Vec<Problem>) {
    if number == Some(SIDECAR_USER) {
        problems.push(Problem::invalid(
            field,
            format_args!("{SIDECAR_USER} is the sidecar's group; choose another"),
        ));
    }
}

fn selinux(path: &str, options: &SELinuxOptions, problems: &mut Vec<Problem>) {
    let given = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
    for (field, value) in [("user", &options.user), ("role", &options.role)] {
        if given(value) {
            problems.push(Problem::invalid(
                &format!("{path}.{field}"),
                format_args!("a server may not choose its SELinux {field}; leave it out"),
            ));
        }
    }
    if given(&options.type_) && !options.type_.as_deref().is_some_and(|kind| SELINUX_TYPES.contains(&kind)) {
        problems.push(Problem::invalid(
            &format!("{path}.type"),
            format_args!("leave it out or use one of {}", SELINUX_TYPES.join(", ")),
        ));
    }
}

fn sysctls(path: &str, sysctls: &[Sysctl], problems: &mut Vec<Problem>) {
    for (index, sysctl) in sysctls.iter().enumerate() {
        if !SYSCTLS.contains(&sysctl.name.as_str()) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].name"),
                format_args!("{:?} is not safe in a pod; use one of {}", sysctl.name, SYSCTLS.join(", ")),
            ));
        }
    }
}

fn capabilities(path: &str, capabilities: &Capabilities, problems: &mut Vec<Problem>) {
    if capabilities.add.is_some() {
        problems.push(Problem::invalid(&format!("{path}.add"), "a server may not add capabilities"));
    }
    // A list that is given takes the place of Longshore's.
    if capabilities.drop.as_ref().is_some_and(|drop| !drop.iter().any(|name| name == "ALL")) {
        problems.push(Problem::invalid(
            &format!("{path}.drop"),
            "a server may keep no capability; leave it out, or write [ALL]",
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
        if key.starts_with(APPARMOR_ANNOTATION) {
            // Whatever its value: it may name the sidecar.
            problems.push(Problem::invalid(
                path,
                format_args!(
                    "{key:?} is of no use here; set appArmorProfile in the container's securityContext"
                ),
            ));
        }
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
    shared(
        &path,
        &Shared {
            user: context.run_as_user,
            group: context.run_as_group,
            non_root: context.run_as_non_root,
            seccomp: context.seccomp_profile.as_ref(),
            app_armor: context.app_armor_profile.as_ref(),
            selinux: context.se_linux_options.as_ref(),
            windows: context.windows_options.as_ref(),
        },
        problems,
    );
    if context.privileged == Some(true) {
        problems.push(Problem::invalid(&format!("{path}.privileged"), "a server may not be privileged"));
    }
    if context.allow_privilege_escalation == Some(true) {
        problems.push(Problem::invalid(
            &format!("{path}.allowPrivilegeEscalation"),
            "a server may not gain privileges",
        ));
    }
    if let Some(listed) = &context.capabilities {
        capabilities(&format!("{path}.capabilities"), listed, problems);
    }
    if context.proc_mount.as_deref().is_some_and(|mount| mount != "Default") {
        problems
            .push(Problem::invalid(&format!("{path}.procMount"), "only Default is allowed; leave it out"));
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
            (
                json!({"spec": {"securityContext": {"supplementalGroups": [7, 15380]}}}),
                "o.spec.securityContext.supplementalGroups[1]",
            ),
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
    fn refuses_what_the_restricted_standard_does_at_either_level() {
        let both: [(Value, Option<&str>); 25] = [
            (json!({"runAsUser": 0}), Some("runAsUser")),
            (json!({"runAsUser": 15380}), Some("runAsUser")),
            (json!({"runAsGroup": 15380}), Some("runAsGroup")),
            (json!({"runAsNonRoot": false}), Some("runAsNonRoot")),
            (json!({"seccompProfile": {"type": "Unconfined"}}), Some("seccompProfile")),
            (json!({"seccompProfile": {"type": ""}}), Some("seccompProfile")),
            (json!({"appArmorProfile": {"type": "Unconfined"}}), Some("appArmorProfile")),
            (json!({"seLinuxOptions": {"user": "system_u"}}), Some("seLinuxOptions.user")),
            (json!({"seLinuxOptions": {"role": "system_r"}}), Some("seLinuxOptions.role")),
            (json!({"seLinuxOptions": {"type": "spc_t"}}), Some("seLinuxOptions.type")),
            (json!({"windowsOptions": {"hostProcess": true}}), Some("windowsOptions.hostProcess")),
            (json!({"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true}), None),
            (json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}), None),
            (json!({"seccompProfile": {"type": "RuntimeDefault"}}), None),
            (json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}}), None),
            (json!({"appArmorProfile": {"type": "RuntimeDefault"}}), None),
            (json!({"seLinuxOptions": {"user": "", "role": "", "type": ""}}), None),
            (json!({"seLinuxOptions": {"level": "s0:c1,c2"}}), None),
            (json!({"seLinuxOptions": {"type": "container_t"}}), None),
            (json!({"seLinuxOptions": {"type": "container_init_t"}}), None),
            (json!({"seLinuxOptions": {"type": "container_kvm_t"}}), None),
            (json!({"seLinuxOptions": {"type": "container_engine_t"}}), None),
            (json!({"windowsOptions": {"hostProcess": false}}), None),
            (json!({"windowsOptions": {}}), None),
            (json!({}), None),
        ];
        let pod = [
            (json!({"fsGroup": 15380}), Some("fsGroup")),
            (json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}), Some("sysctls[0].name")),
            (json!({"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}), None),
        ];
        let container = [
            (json!({"capabilities": {"drop": []}}), Some("capabilities.drop")),
            (json!({"capabilities": {"drop": ["NET_RAW"]}}), Some("capabilities.drop")),
            (json!({"capabilities": {"drop": ["NET_RAW", "ALL"]}}), None),
            (json!({"capabilities": {}}), None),
            (json!({"procMount": "Unmasked"}), Some("procMount")),
            (json!({"procMount": "Default"}), None),
            (json!({"readOnlyRootFilesystem": false}), None),
        ];
        let check = |spec: Value, place: &str, field: Option<&str>| {
            let found = complaints(json!({"spec": spec}));
            match field {
                None => assert_eq!(found, Vec::<String>::new(), "{spec}"),
                Some(field) => assert!(
                    found.len() == 1
                        && found[0].starts_with(&format!("o.spec.{place}securityContext.{field}: ")),
                    "{spec} should be refused at {place}{field}, got {found:?}"
                ),
            }
        };
        for (context, field) in both.iter().chain(&pod) {
            check(json!({"containers": [], "securityContext": context}), "", *field);
        }
        for (context, field) in both.iter().chain(&container) {
            for (list, name) in
                [("containers", "server"), ("containers", "helper"), ("initContainers", "prepare")]
            {
                let mut spec = json!({"containers": []});
                spec[list] = json!([{"name": name, "securityContext": context}]);
                check(spec, &format!("{list}[0]."), *field);
            }
        }
    }

    #[test]
    fn refuses_apparmor_annotations_for_any_container() {
        for (container, profile) in
            [("server", "unconfined"), ("helper", "unconfined"), ("longshore-sidecar", "localhost/other")]
        {
            let key = format!("container.apparmor.security.beta.kubernetes.io/{container}");
            let mut annotations = serde_json::Map::new();
            annotations.insert(key, json!(profile));
            let found = complaints(json!({"metadata": {"annotations": annotations}}));
            assert!(found.len() == 1 && found[0].contains("appArmorProfile"), "{container}: {found:?}");
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
