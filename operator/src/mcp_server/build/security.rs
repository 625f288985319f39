//! Who the containers run as and what they may do: the *restricted* Pod Security Standard, for every container.

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};
use longshore_crds::names::{SIDECAR_CONTAINER, SIDECAR_USER};

/// The server's user and group where the manifest gives none. A number, since an image's user may be a name, which
/// Kubernetes cannot tell from root.
const SERVER_USER: i64 = 65532;

/// The pod's context: Longshore's default under what the manifest says.
pub(super) fn pod(manifest: &PodSecurityContext) -> PodSecurityContext {
    let mut context = PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(SERVER_USER),
        run_as_group: Some(SERVER_USER),
        // Both containers belong to this group, which is how they share the sockets' volume.
        fs_group: Some(SERVER_USER),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    };
    context.merge_from(manifest.clone());
    context
}

/// Puts the server's context under what each container says of itself, but for the sidecar: a container that an
/// override adds comes without one, and Kubernetes' own defaults are not the restricted standard.
pub(super) fn harden(pod: &mut PodSpec) {
    let others = pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten());
    for container in others.filter(|container| container.name != SIDECAR_CONTAINER) {
        let mut context = server();
        if let Some(own) = container.security_context.take() {
            context.merge_from(own);
        }
        container.security_context = Some(context);
    }
    // A profile of a node's that is made for the server ends the sidecar. Where there is one, there is AppArmor.
    let profile = pod.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    if profile.is_some_and(|profile| profile.type_ == "Localhost") {
        for sidecar in pod.containers.iter_mut().filter(|container| container.name == SIDECAR_CONTAINER) {
            let context = sidecar.security_context.get_or_insert_default();
            context.app_armor_profile =
                Some(AppArmorProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None });
        }
    }
}

/// The server's context; its user is the pod's.
pub(super) fn server() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        ..SecurityContext::default()
    }
}

/// The sidecar's context: a user of its own, whatever the manifest says of the pod.
pub(super) fn sidecar() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(SIDECAR_USER),
        run_as_group: Some(SIDECAR_USER),
        run_as_non_root: Some(true),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..server()
    }
}
