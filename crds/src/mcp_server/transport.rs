//! `spec.transport`: how the sidecar reaches the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the sidecar reaches the server inside the pod: exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transport {
    /// Streamable HTTP. The server should listen on `127.0.0.1`: what listens on all addresses can be reached around
    /// the sidecar where network policies are not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamable_http: Option<StreamableHttp>,
}

/// Where a server listens for Streamable HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamableHttp {
    /// The TCP port that the server listens on. Not 15380, 15381 or 15382, which are the sidecar's.
    pub port: u16,
    /// The path of its MCP endpoint.
    #[serde(default = "default_path")]
    pub path: String,
}

fn default_path() -> String {
    "/mcp".to_owned()
}
