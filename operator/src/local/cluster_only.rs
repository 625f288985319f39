//! What a manifest asks for that only a cluster can give. It is said, and left out. Pure.

use longshore_crds::McpServer;
use longshore_crds::mcp_server::sidecar::LogLevel;
use longshore_crds::mcp_server::{ObjectMetadata, Strategy};

/// One sentence, if there is anything.
pub(super) fn sentence(manifest: &McpServer, env: &[String]) -> Option<String> {
    let spec = &manifest.spec;
    let pod = &spec.pod;
    let mut left_out: Vec<String> = Vec::new();
    for (there, field) in [
        (spec.source.image_pull_policy.is_some(), "source.imagePullPolicy"),
        (spec.expose.service != ObjectMetadata::default(), "expose.service"),
        (spec.replicas != 1, "replicas"),
        (spec.strategy != Strategy::default(), "strategy"),
        (pod.resources.is_some(), "pod.resources"),
        (pod.service_account_name.is_some(), "pod.serviceAccountName"),
        (!pod.image_pull_secrets.is_empty(), "pod.imagePullSecrets"),
        (pod.security_context.is_some(), "pod.securityContext"),
        (pod.volumes.is_some(), "pod.volumes"),
        (!pod.volume_mounts.is_empty(), "pod.volumeMounts"),
        (!pod.node_selector.is_empty(), "pod.nodeSelector"),
        (!pod.tolerations.is_empty(), "pod.tolerations"),
        (pod.affinity.is_some(), "pod.affinity"),
        (!pod.metadata.labels.is_empty() || !pod.metadata.annotations.is_empty(), "pod.metadata"),
        (pod.overrides.is_some(), "pod.overrides"),
        (spec.sidecar.resources.is_some(), "sidecar.resources"),
        // They all are in one process.
        (spec.sidecar.log_level != LogLevel::default(), "sidecar.logLevel (here: --log-level)"),
    ] {
        if there {
            left_out.push(format!("spec.{field}"));
        }
    }
    left_out.extend(env.iter().cloned());
    if left_out.is_empty() {
        return None;
    }
    Some(format!("left out, since it needs a cluster: {}", left_out.join(", ")))
}
