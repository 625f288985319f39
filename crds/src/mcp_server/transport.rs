//! `spec.transport`: how the sidecar reaches the server.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::SECOND_TO_MONTH;

/// How the sidecar reaches the server inside the pod: exactly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.streamableHttp) || has(self.sse) || has(self.stdio)")
    .message("say how the server is reached: write `streamableHttp: {port: 3000}` with the port that it listens on, `sse: {port: 3000}` if what it speaks there is HTTP+SSE, or `stdio: {}` for a program that speaks over its stdin and stdout")
    .reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new(
    "[has(self.streamableHttp), has(self.sse), has(self.stdio)].filter(x, x).size() < 2")
    .message("write one of `streamableHttp`, `sse` and `stdio`: the server is reached in one way"))]
#[x_kube(validation = Rule::new(
    "!has(self.sse) || !has(self.protocol) || self.protocol != '2026-07-28'")
    .message("leave `protocol` out: no server speaks 2026-07-28 over HTTP+SSE"))]
pub struct Transport {
    /// The one revision of MCP that the server is spoken to in. Default: those that it is found to speak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The server's stdin and stdout: for programs that listen at no port. Needs `source.command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// Streamable HTTP. The server should listen on `127.0.0.1`: what listens on all addresses can be reached around
    /// the sidecar where network policies are not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streamable_http: Option<StreamableHttp>,
    /// HTTP+SSE, the transport of 2024-11-05, for older servers. Where one should listen: see `streamableHttp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sse: Option<Sse>,
}

/// What a port has to be, as a rule and the sentence of those who break it.
const PORT: (&str, &str) = (
    "!(self in [15380, 15381, 15382])",
    "the ports 15380, 15381 and 15382 are the sidecar's: let the server listen on another, such as 3000",
);

/// What the HTTP of the sidecar takes for a path.
const PATH: &str = "self.matches(r'^/[!$-;=@-_a-~]*$')";
/// The sentence of those who write another for Streamable HTTP.
const PATH_OF_MCP: &str = "write the path alone, beginning with / and without a query, such as `/mcp`";
/// The same for HTTP+SSE.
const PATH_OF_SSE: &str = "write the path alone, beginning with / and without a query, such as `/sse`";

/// Where a server listens for Streamable HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StreamableHttp {
    /// The TCP port that the server listens on. Not 15380 to 15382, which are the sidecar's.
    #[schemars(range(min = 1, max = 65535))]
    #[x_kube(validation = Rule::new(PORT.0).message(PORT.1))]
    pub port: u16,
    /// The path of its MCP endpoint.
    #[serde(default = "default_path")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(PATH).message(PATH_OF_MCP))]
    pub path: String,
}

/// Where a server listens for HTTP+SSE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sse {
    /// The TCP port that the server listens on. Not 15380 to 15382.
    #[schemars(range(min = 1, max = 65535))]
    #[x_kube(validation = Rule::new(PORT.0).message(PORT.1))]
    pub port: u16,
    /// The path of its stream. Where messages are posted to the server says in it.
    #[serde(default = "default_stream")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(PATH).message(PATH_OF_SSE))]
    pub path: String,
}

/// A server that speaks over its stdin and stdout. Every number is of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(self.maxProcessesPerPrincipal) || self.maxProcessesPerPrincipal <= self.maxProcesses")
    .message("`maxProcessesPerPrincipal` may not be more than `maxProcesses`"))]
#[x_kube(validation = Rule::new("self.warm <= self.maxProcesses")
    .message("`warm` may not be more than `maxProcesses`, of which the warm ones are a part"))]
#[x_kube(validation = Rule::new("!has(self.maxProcessesPerPrincipal) || self.isolation != 'Shared'")
    .message("leave `maxProcessesPerPrincipal` out: with `isolation: Shared` a process is nobody's own"))]
pub struct Stdio {
    /// Who shares a process: nobody, the sessions of one principal, or everybody. A change counts for new sessions.
    #[serde(default)]
    pub isolation: Isolation,
    /// How many processes may run for clients at once. Up to two more run for the sidecar. A client that needs another
    /// waits for `queueTimeout`.
    #[serde(default = "default_max_processes")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_processes: u32,
    /// How many of those one principal may have. Default: a quarter of `maxProcesses`, at least one; with `auth.none`,
    /// where all callers are one principal, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_processes_per_principal: Option<u32>,
    /// How many processes wait for a session that needs one, so that it begins at once.
    #[serde(default)]
    #[schemars(range(max = 1024))]
    pub warm: u32,
    /// How long a new session waits for a place when all are taken: `0s` (not at all) to `5m`.
    #[serde(default = "default_queue_timeout")]
    #[schemars(length(max = 24))]
    #[x_kube(validation = Rule::new(
        "self.matches(r'^([0-9]{1,6}[smh])+$') && duration(self) <= duration('5m')")
        .message("write a time from 0s to 5m, such as `10s`"))]
    pub queue_timeout: String,
    /// After how long without a call a shared process ends: from `1s` to `720h`.
    #[serde(default = "default_idle_timeout")]
    #[schemars(length(max = 24))]
    #[x_kube(validation = Rule::new(SECOND_TO_MONTH.0).message(SECOND_TO_MONTH.1))]
    pub idle_timeout: String,
    /// After how long a process takes no more sessions, and ends with its last one: from `1s` to `720h`. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 24))]
    #[x_kube(validation = Rule::new(SECOND_TO_MONTH.0).message(SECOND_TO_MONTH.1))]
    pub max_age: Option<String>,
}

/// The one revision of MCP that the server is spoken to in. Default: those that it is found to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// The first.
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    /// The first with Streamable HTTP.
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    /// The first with elicitation.
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    /// The last with a handshake.
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    /// The first without one.
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

impl Protocol {
    /// Its name: the date of its release.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }
}

/// Who shares a process of a stdio server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Isolation {
    /// Nobody: each session has its own.
    #[default]
    Session,
    /// The sessions of one principal.
    Principal,
    /// Everybody.
    Shared,
}

impl Default for Stdio {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            max_processes: default_max_processes(),
            max_processes_per_principal: None,
            warm: 0,
            queue_timeout: default_queue_timeout(),
            idle_timeout: default_idle_timeout(),
            max_age: None,
        }
    }
}

fn default_max_processes() -> u32 {
    32
}

fn default_queue_timeout() -> String {
    "5s".to_owned()
}

fn default_idle_timeout() -> String {
    "5m".to_owned()
}

fn default_path() -> String {
    "/mcp".to_owned()
}

fn default_stream() -> String {
    "/sse".to_owned()
}
