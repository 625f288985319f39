//! `spec.transport`: how the sidecar reaches the server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How the sidecar reaches the server inside the pod: exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.streamableHttp)")
    .message("say how the server is reached: write `streamableHttp: {port: 3000}` with the port that it listens on")
    .reason(Reason::FieldValueRequired))]
pub struct Transport {
    /// Streamable HTTP. The server should listen on `127.0.0.1`: what listens on all addresses can be reached around
    /// the sidecar where network policies are not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamable_http: Option<StreamableHttp>,
}

/// Where a server listens for Streamable HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamableHttp {
    /// The TCP port that the server listens on. Not 15380, 15381 or 15382, which are the sidecar's.
    #[schemars(range(min = 1, max = 65535))]
    #[x_kube(validation = Rule::new("!(self in [15380, 15381, 15382])")
        .message("the ports 15380, 15381 and 15382 are the sidecar's: let the server listen on another, such as 3000"))]
    pub port: u16,
    /// The path of its MCP endpoint.
    #[serde(default = "default_path")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("self.matches(r'^/[!-~]*$') && !self.contains('?') && !self.contains('#')")
        .message("write the path alone, beginning with / and without a query, such as `/mcp`"))]
    pub path: String,
}

fn default_path() -> String {
    "/mcp".to_owned()
}
