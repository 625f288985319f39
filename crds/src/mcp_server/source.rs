//! `spec.source`: what to run.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to run: a container image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The container image, such as `registry.example/team/server:1.4.0`.
    pub image: String,
    /// When the kubelet pulls the image: `Always`, `IfNotPresent` or `Never`. Default: as for any pod, `Always` for
    /// the tag `latest` and `IfNotPresent` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// The program to start, instead of the image's entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its arguments, instead of the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps whose entries become environment variables, as in a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<EnvFromSource>,
}
