//! The pod, from what is kept as it is written.

use k8s_openapi::api::core::v1::{PodTemplateSpec, Volume};
use longshore_crds::Written;
use longshore_crds::mcp_server as manifest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ServerPod, restrictions, typed};
use crate::mcp_server::condition::Problem;

pub(super) fn pod(pod: &manifest::Pod, problems: &mut Vec<Problem>) -> ServerPod {
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
    restrictions::volumes::volumes("spec.pod.volumes", &volumes, problems);
    let affinity = whole("spec.pod.affinity", pod.affinity.as_ref(), problems);
    let mut overrides: Option<PodTemplateSpec> =
        whole("spec.pod.overrides", pod.overrides.as_ref(), problems);
    if let Some(template) = &mut overrides {
        restrictions::overrides("spec.pod.overrides", template, problems);
        // They are refused, and the largest of all types: three bytes of text would be a thousand.
        if let Some(spec) = &mut template.spec {
            spec.ephemeral_containers = None;
        }
    }
    if let Some(context) = &pod.security_context {
        restrictions::security::pod("spec.pod.securityContext", context, problems);
    }
    restrictions::labels("spec.pod.metadata.labels", pod.metadata.labels.keys(), problems);
    restrictions::annotations("spec.pod.metadata.annotations", pod.metadata.annotations.keys(), problems);
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
