//! `spec.pod`: the pod that the server runs in.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    LocalObjectReference, PodSecurityContext, ResourceRequirements, Toleration, VolumeMount,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{
    annotations, is_default, kubernetes, labels, overrides, resources, security_context, unknown_object,
    volume_mounts, volumes,
};
use crate::written::Written;

/// The pod that the server runs in.
///
/// What would make the schema large (volumes, affinity, overrides) is kept as it is written, up to 128 KiB each, and
/// checked by the API server when the operator applies the Deployment; what it refuses is shown in the `Accepted`
/// condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Labels and annotations of the pod, beside Longshore's own. The Deployment and what else is made for it get the labels too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: ObjectMetadata,
    /// What the server's container requests and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "resources")]
    pub resources: Option<ResourceRequirements>,
    /// An existing ServiceAccount for a server that uses the Kubernetes API. Its token is mounted into the server's
    /// container alone. Left out, the pod has a ServiceAccount of its own without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new(crate::schema::OBJECT_NAME)
        .message("write the name of a ServiceAccount in the server's namespace: lower-case letters, digits, `-` and `.`"))]
    pub service_account_name: Option<String>,
    /// Secrets with credentials for the images' registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<LocalObjectReference>>", length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The pod's security context. What it leaves out keeps Longshore's default, which meets the *restricted* Pod
    /// Security Standard. `runAsUser` and `runAsGroup` are the server's; the sidecar keeps its own user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "security_context")]
    pub security_context: Option<PodSecurityContext>,
    /// Volumes for the server, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "volumes")]
    pub volumes: Option<Written>,
    /// Where the server's container mounts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "volume_mounts")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that the pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<Toleration>>", length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// The pod's scheduling constraints, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "unknown_object")]
    pub affinity: Option<Written>,
    /// A partial pod template, merged into the generated one; lists without names are replaced. The server's container
    /// is named `server`. The sidecar, Longshore's volumes and ports, host namespaces, `hostPath` and privileges may not
    /// be touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "overrides")]
    pub overrides: Option<Written>,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ObjectMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    #[x_kube(validation = Rule::new(
        "self.all(k, !k.matches(r'^([-.a-z0-9]+[.])?(longshore[.]dev|app[.]kubernetes[.]io)/'))")
        .message("labels of longshore.dev and app.kubernetes.io are Longshore's: use a prefix of your own"))]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "annotations")]
    #[x_kube(validation = Rule::new("self.all(k, !k.matches(r'^([-.a-z0-9]+[.])?longshore[.]dev/'))")
        .message("annotations of longshore.dev are Longshore's: use a prefix of your own"))]
    pub annotations: BTreeMap<String, String>,
}
