//! Who the containers run as and what they may do: what a manifest may change of it, under the *restricted* Pod
//! Security Standard.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SELinuxOptions, SecurityContext, Sysctl};
use longshore_crds::names::SIDECAR_USER;

use crate::mcp_server::condition::Problem;

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

/// Checks the pod's security context. Every container of the pod inherits it, but for the sidecar.
pub(in super::super) fn pod(path: &str, context: &PodSecurityContext, problems: &mut Vec<Problem>) {
    // What both kinds of context have, as a container has it.
    let common = SecurityContext {
        run_as_user: context.run_as_user,
        run_as_group: context.run_as_group,
        run_as_non_root: context.run_as_non_root,
        seccomp_profile: context.seccomp_profile.clone(),
        app_armor_profile: context.app_armor_profile.clone(),
        se_linux_options: context.se_linux_options.clone(),
        windows_options: context.windows_options.clone(),
        ..SecurityContext::default()
    };
    container(path, &common, problems);
    // The sidecar's group may read its files, and each of these is a way into that group.
    for (index, number) in context.supplemental_groups.iter().flatten().enumerate() {
        group(&format!("{path}.supplementalGroups[{index}]"), Some(*number), problems);
    }
    group(&format!("{path}.fsGroup"), context.fs_group, problems);
    sysctls(&format!("{path}.sysctls"), context.sysctls.as_deref().unwrap_or_default(), problems);
}

/// Checks a container's security context.
pub(super) fn container(path: &str, context: &SecurityContext, problems: &mut Vec<Problem>) {
    user(path, context.run_as_user, context.run_as_non_root, problems);
    group(&format!("{path}.runAsGroup"), context.run_as_group, problems);
    let profiles = [
        ("seccompProfile", context.seccomp_profile.as_ref().map(|profile| profile.type_.as_str())),
        ("appArmorProfile", context.app_armor_profile.as_ref().map(|profile| profile.type_.as_str())),
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
    if let Some(options) = &context.se_linux_options {
        selinux(&format!("{path}.seLinuxOptions"), options, problems);
    }
    if context.windows_options.as_ref().is_some_and(|options| options.host_process == Some(true)) {
        problems.push(Problem::invalid(
            &format!("{path}.windowsOptions.hostProcess"),
            "a server may not be a process of its node; leave it out",
        ));
    }
    if context.privileged == Some(true) {
        problems.push(Problem::invalid(
            &format!("{path}.privileged"),
            "a server may not be privileged; leave it out",
        ));
    }
    if context.allow_privilege_escalation == Some(true) {
        problems.push(Problem::invalid(
            &format!("{path}.allowPrivilegeEscalation"),
            "a server may not gain privileges; leave it out",
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
        problems.push(Problem::invalid(
            &format!("{path}.add"),
            "a server may not add capabilities; leave it out",
        ));
    }
    // A list that is given takes the place of Longshore's.
    if capabilities.drop.as_ref().is_some_and(|drop| !drop.iter().any(|name| name == "ALL")) {
        problems.push(Problem::invalid(
            &format!("{path}.drop"),
            "a server may keep no capability; leave it out, or write [ALL]",
        ));
    }
}
