//! `McpServer`: one MCP server, as its owner wants it (`spec`) and as it is (`status`).

pub mod access;
pub mod expose;
pub mod limits;
pub mod pod;
pub mod sidecar;
pub mod source;
pub mod status;
pub mod transport;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{Access, AccessRule, ApiKeys, Auth, NoAuth, SecretReference, Tools};
pub use expose::Expose;
pub use limits::Limits;
pub use pod::{ObjectMetadata, Pod};
pub use sidecar::{LogLevel, Sidecar};
pub use source::Source;
pub use status::McpServerStatus;
pub use transport::{StreamableHttp, Transport};

/// An MCP server that Longshore runs and serves.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "longshore.dev",
    version = "v1alpha1",
    kind = "McpServer",
    namespaced,
    shortname = "lmcp",
    category = "longshore",
    status = "McpServerStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct McpServerSpec {
    /// What to run.
    pub source: Source,
    /// How the sidecar reaches the server inside the pod.
    pub transport: Transport,
    /// How callers prove who they are. Required: to let everybody in, say `none: {}`.
    pub auth: Auth,
    /// Who may call what. What no rule names is denied; without rules nothing may be called.
    #[serde(default)]
    pub access: Access,
    /// Which of the server's tools exist for clients.
    #[serde(default)]
    pub tools: Tools,
    /// Bounds of a request.
    #[serde(default)]
    pub limits: Limits,
    /// The names under which clients reach the server from outside of the cluster.
    #[serde(default)]
    pub expose: Expose,
    /// The pod that the server runs in.
    #[serde(default)]
    pub pod: Pod,
    /// The sidecar that Longshore puts in front of the server.
    #[serde(default)]
    pub sidecar: Sidecar,
}
