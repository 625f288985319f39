//! `spec.sidecar`: the sidecar in front of the server.

use k8s_openapi::api::core::v1::ResourceRequirements;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::sidecar_resources;

/// The sidecar in front of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// What its container requests and may use. Default: the chart's `sidecar.resources`: requests of 10m CPU and 16Mi, a
    /// limit of 256Mi memory. A memory limit is 16Mi or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sidecar_resources")]
    pub resources: Option<ResourceRequirements>,
    /// What it logs, beside the audit lines. Changes without a restart.
    #[serde(default)]
    pub log_level: LogLevel,
    /// How many threads serve clients. Each can use one CPU.
    #[serde(default = "default_workers")]
    #[schemars(range(min = 1, max = 64))]
    pub workers: u8,
}

impl Default for Sidecar {
    fn default() -> Self {
        Self { resources: None, log_level: LogLevel::default(), workers: default_workers() }
    }
}

/// What a sidecar logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Only what needs somebody's attention.
    Error,
    /// And what may soon need it.
    Warn,
    /// And what happened to the process and its server.
    #[default]
    Info,
    /// And what happened to each request.
    Debug,
    /// And how it was decided.
    Trace,
}

fn default_workers() -> u8 {
    1
}
