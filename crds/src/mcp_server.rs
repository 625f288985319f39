//! `McpServer`: one MCP server, as its owner wants it (`spec`) and as it is (`status`).

pub mod access;
pub mod catalog;
pub mod expose;
pub mod limits;
pub mod pod;
pub mod sessions;
pub mod sidecar;
pub mod source;
pub mod status;
pub mod strategy;
pub mod transport;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::schema::is_default;

pub use access::{Access, AccessRule, ApiKeys, Auth, NoAuth, SecretReference, Tools};
pub use catalog::{Catalog, Link};
pub use expose::Expose;
pub use limits::Limits;
pub use pod::{ObjectMetadata, Pod};
pub use sessions::{OnOwnerLoss, Resume, Sessions};
pub use sidecar::{LogLevel, Sidecar};
pub use source::Source;
pub use status::McpServerStatus;
pub use strategy::{Strategy, StrategyType};
pub use transport::{Isolation, Protocol, Stdio, StreamableHttp, Transport};

/// An MCP server that Longshore runs and serves.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "longshore.dev",
    version = "v1alpha1",
    kind = "McpServer",
    namespaced,
    shortname = "lmcp",
    category = "longshore",
    status = "McpServerStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    doc = "An MCP server that Longshore runs and serves.",
    printcolumn(
        name = "Ready", type_ = "string",
        description = "Whether clients can use the server",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reason", type_ = "string",
        description = "Why it is so",
        json_path = ".status.conditions[?(@.type=='Ready')].reason"
    ),
    printcolumn(
        name = "Tools", type_ = "integer",
        description = "How many tools the server has",
        json_path = ".status.tools.count"
    ),
    printcolumn(
        name = "URL", type_ = "string",
        description = "Where clients inside of the cluster connect to",
        json_path = ".status.url"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Public URL", type_ = "string", priority = 1,
        description = "Where clients outside of the cluster connect to",
        json_path = ".status.publicUrl"
    ),
    printcolumn(
        name = "Serving", type_ = "integer", priority = 1,
        description = "How many pods serve",
        json_path = ".status.readyReplicas"
    ),
    printcolumn(
        name = "Server", type_ = "string", priority = 1,
        description = "What the server calls itself",
        json_path = ".status.serverInfo.name"
    ),
    printcolumn(
        name = "Version", type_ = "string", priority = 1,
        description = "The version that the server gives",
        json_path = ".status.serverInfo.version"
    ),
    printcolumn(
        name = "Message", type_ = "string", priority = 1,
        description = "What is wrong, or that nothing is",
        json_path = ".status.conditions[?(@.type=='Ready')].message"
    ),
    validation = Rule::new(
        "self.metadata.name.size() <= 50 && self.metadata.name.matches(r'^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name is the name of the server's Service too: write at most 50 lower-case letters, digits and `-`, beginning with a letter")
)]
#[serde(rename_all = "camelCase")]
// `source`, `transport` and `auth` are required by rules and not by the schema, which could only say "Required value".
#[x_kube(validation = Rule::new("has(self.source)")
    .message("say what to run: write `source: {image: IMAGE}`")
    .reason(Reason::FieldValueRequired)
    .field_path(".source"))]
#[x_kube(validation = Rule::new("has(self.transport)")
    .message("say how the server is reached: write `transport: {streamableHttp: {port: 3000}}` with the port that it listens on, or `transport: {stdio: {}}` for a program that speaks over its stdin and stdout")
    .reason(Reason::FieldValueRequired)
    .field_path(".transport"))]
#[x_kube(validation = Rule::new("has(self.auth)")
    .message("say who may call: write `auth: {apiKeys: {secretRef: {name: SECRET}}}` for callers with a key, or `auth: {none: {}}` to let everybody in")
    .reason(Reason::FieldValueRequired)
    .field_path(".auth"))]
#[x_kube(validation = Rule::new(
    "!has(self.transport) || !has(self.transport.stdio) || !has(self.source) || (has(self.source.command) && size(self.source.command) > 0)")
    .message("name the program to start: `command: [PROGRAM]`, since a stdio server is started once a session and its image's entry point cannot be known from here")
    .reason(Reason::FieldValueRequired)
    .field_path(".source.command"))]
pub struct McpServerSpec {
    /// Required. What to run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub source: Source,
    /// Required. How the sidecar reaches the server inside the pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub transport: Transport,
    /// How callers prove who they are. Required: to let everybody in, say `none: {}`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub auth: Auth,
    /// Who may call what. What no rule names is denied; without rules nothing may be called.
    #[serde(default, skip_serializing_if = "is_default")]
    pub access: Access,
    /// Which of the server's tools exist for clients.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tools: Tools,
    /// How many pods run the server; each takes requests of every session. 0 stops it. `kubectl scale` and a
    /// HorizontalPodAutoscaler change this too.
    #[serde(default = "default_replicas")]
    #[schemars(range(max = 100))]
    pub replicas: u32,
    /// How a new version takes the place of the one before.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strategy: Strategy,
    /// Bounds of a request.
    #[serde(default)]
    pub limits: Limits,
    /// The sessions of clients. Every number is of one pod.
    #[serde(default)]
    pub sessions: Sessions,
    /// The names under which clients reach the server from outside of the cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub expose: Expose,
    /// What the catalog says about the server.
    #[serde(default)]
    pub catalog: Catalog,
    /// The pod that the server runs in.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod: Pod,
    /// The sidecar that Longshore puts in front of the server.
    #[serde(default)]
    pub sidecar: Sidecar,
}

fn default_replicas() -> u32 {
    1
}
