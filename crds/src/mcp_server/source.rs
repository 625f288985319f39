//! `spec.source`: what to run.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{environment, kubernetes};

/// What to run: a container image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.image) && self.image.matches(r'^[^[:space:]]+$')")
    .message("name the container image to run, without spaces, such as `registry.example/team/server:1.4.0`")
    .reason(Reason::FieldValueRequired)
    .field_path(".image"))]
pub struct Source {
    /// Required. The container image, such as `registry.example/team/server:1.4.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub image: String,
    /// When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`. Default: as for any pod, `Always` for
    /// the tag `latest` and `IfNotPresent` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Always", "IfNotPresent", "Never"]))]
    pub image_pull_policy: Option<String>,
    /// The program to start, instead of the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 32768)))]
    pub command: Vec<String>,
    /// Its arguments, instead of the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 32768)))]
    pub args: Vec<String>,
    /// Environment variables, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "environment", length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps whose entries become environment variables, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<EnvFromSource>>", length(max = 64))]
    pub env_from: Vec<EnvFromSource>,
}
