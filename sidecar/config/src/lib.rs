//! The contract between Longshore's control plane and its sidecar, both ways:
//!
//! * [`Config`]: what the operator writes and the sidecar reads, as two mounted files;
//! * [`Keys`]: the API keys, as hashes, and the keys that session ids are sealed with, in a file of their own because a
//!   Secret holds it;
//! * [`inventory`]: what the sidecar's admin port answers to the operator and the catalog;
//! * [`ports`] and [`paths`]: where the two meet inside a pod.
//!
//! Both sides may be of different releases for a while (an upgrade rolls pods slowly), so the contract has a
//! version of its own, [`CONTRACT_VERSION`], and the ConfigMap's name carries it. Unknown fields are refused: a
//! sidecar that does not understand a restriction must not serve without it.
//!
//! Plain data only: no I/O, no hashing, no defaults that hide a decision of the operator.

pub mod glob;
pub mod inventory;
pub mod paths;
pub mod ports;

use serde::{Deserialize, Serialize};

/// The version of this contract. It changes when an older sidecar could not read, or would misread, what a newer
/// operator writes.
///
/// The ConfigMap of the version before stays as it is while a pod mounts it, but there is one Secret: its file is that of
/// the newest configuration. So an operator that raises the version has to go on writing the ConfigMap of the version
/// before for as long as pods are left that mount it, or else those see no key revoked until they are replaced.
pub const CONTRACT_VERSION: u32 = 2;

/// The audience of the ServiceAccount tokens that the sidecar's inventory accepts.
pub const INVENTORY_AUDIENCE: &str = "longshore-sidecar";

/// Everything that the sidecar needs to serve one `McpServer`: the file [`paths::CONFIG_FILE`].
///
/// It is swapped whole or refused whole. Its identity is the SHA-256 of the file's bytes, written
/// `sha256:<64 hex digits>`; since it names the digest of [`Keys`], that one digest stands for both files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// [`CONTRACT_VERSION`] of the operator that wrote it.
    pub version: u32,
    /// Whose sidecar this is.
    pub server: ServerIdentity,
    /// Nobody goes by it, and operators write 0: it would change where nothing else does. Earlier ones wrote the generation
    /// of the manifest. It goes with this version of the contract.
    pub generation: i64,
    /// How the sidecar reaches the MCP server.
    pub upstream: Upstream,
    /// The one revision of MCP that the server is spoken to in: a date such as `2025-06-18`. `None`: the sidecar finds
    /// out what it speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// `sha256:<64 hex digits>` of the bytes of [`paths::KEYS_FILE`] that belongs to this configuration. Until the
    /// mounted file has this digest the configuration is not complete and is not used.
    pub keys_digest: String,
    /// Who may call at all.
    pub auth: Auth,
    /// What those may call. Empty means that nothing may be called.
    pub access: Vec<AccessRule>,
    /// Which of the server's tools exist for clients.
    pub tools: ToolFilter,
    /// Bounds of a request.
    pub limits: Limits,
    /// How long sessions live, how many there may be, and what becomes of them when their replica is gone.
    pub sessions: Sessions,
    /// Where the other replicas are found. `None` where there are none: outside of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<Peers>,
    /// The names (without port, lower case) by which clients may address the server in `Host`. Loopback names and
    /// addresses are always accepted.
    pub hosts: Vec<String>,
    /// The origins (`scheme://host[:port]`, lower case) that browsers may call from. Requests without `Origin` pass.
    pub allowed_origins: Vec<String>,
    /// Who may read the inventory at the admin port.
    pub inventory: InventoryAccess,
    /// What the sidecar writes to its log.
    pub log_level: LogLevel,
}

/// Names the `McpServer` that a sidecar belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, which tells it from one of the same name that was deleted.
    pub uid: String,
}

/// How the sidecar reaches the MCP server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Upstream {
    /// Streamable HTTP on the pod's loopback interface.
    StreamableHttp {
        /// The TCP port.
        port: u16,
        /// The path of the MCP endpoint, beginning with `/`.
        path: String,
    },
    /// HTTP+SSE, the transport of 2024-11-05, on the pod's loopback interface.
    Sse {
        /// The TCP port.
        port: u16,
        /// The path of the stream, beginning with `/`. Where messages are posted to the server says there.
        path: String,
    },
    /// The stdin and stdout of processes that the shim starts, at [`paths::STDIO_SOCKET`]. How many may run is in
    /// [`Limits::processes`], so that a change of it is no other way to reach the server.
    Stdio {},
}

/// How callers prove who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Auth {
    /// Everybody may call, as the principal `anonymous`.
    None,
    /// `Authorization: Bearer KEY` or `X-API-Key: KEY`, checked against [`Keys`].
    ApiKeys {},
}

/// The secrets of one server: the file [`paths::KEYS_FILE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Keys {
    /// Every live API key. A principal may have several.
    pub keys: Vec<ApiKey>,
    /// What session ids and the connections between replicas are sealed with. One of them, named by
    /// [`Sessions::seal_with`], is used for what is new; all of them are accepted. At least one.
    pub sessions: Vec<SessionKey>,
}

/// A secret from which the keys of sessions are derived.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionKey {
    /// Its number, by which a session id names it. Not used again for another secret while ids of this one may live.
    pub id: u8,
    /// 32 random bytes, as 64 lower-case hexadecimal digits.
    pub secret: String,
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// One API key, known by its hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiKey {
    /// Who the key's bearer is.
    pub principal: String,
    /// SHA-256 of the key, as 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// One rule that permits calls. What no rule permits is denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessRule {
    /// Its name, which the audit log gives as the reason of a permit.
    pub name: String,
    /// Globs over principals. `None`: every authenticated caller (and `anonymous` where `auth` is none).
    pub principals: Option<Vec<String>>,
    /// Globs over tool names.
    pub tools: Vec<String>,
    /// Globs over prompt names.
    pub prompts: Vec<String>,
    /// Globs over resource URIs and resource templates. `*` crosses `/` here.
    pub resources: Vec<String>,
}

/// Which tools exist for clients: those that `include` matches (all, if it is empty) and `exclude` does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolFilter {
    /// Globs over tool names; empty means all.
    pub include: Vec<String>,
    /// Globs over tool names; wins over `include`.
    pub exclude: Vec<String>,
}

/// Bounds of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// The largest request body, in bytes.
    pub request_bytes: u64,
    /// How long a call may take until its last answer, in milliseconds.
    pub request_timeout_ms: u64,
    /// How many processes of a stdio server may run for clients. `None` for servers that are no stdio servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Processes>,
}

/// The processes of a stdio server in one pod. The sidecar's own, by which it lists what the server offers, is not
/// counted in any of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Processes {
    /// Who shares a process. A change counts for sessions that are opened after it.
    pub isolation: Isolation,
    /// How many run at once for clients; at least one.
    pub total: u32,
    /// How many of them one principal may have; at least one and at most [`Processes::total`]. With
    /// [`Isolation::Shared`] a process is nobody's, and this does not count.
    pub per_principal: u32,
    /// How many are started before a session needs them, within [`Processes::total`].
    pub warm: u32,
    /// How long a new session waits for a place when all are taken, in milliseconds. 0: it is refused at once.
    pub queue_ms: u64,
    /// After how long without a call a process ends that holds no session of its own, in milliseconds.
    pub idle_ms: u64,
    /// After how long a process takes no more sessions, and ends with its last one, in milliseconds. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
}

/// Who shares a process of a stdio server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// Nobody: each session has its own.
    #[default]
    Session,
    /// The sessions of one principal.
    Principal,
    /// Everybody.
    Shared,
}

/// The life of sessions. All numbers are of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sessions {
    /// After how long without a request or an open stream one ends, in milliseconds.
    pub idle_timeout_ms: u64,
    /// After how long one ends in any case, in milliseconds.
    pub max_age_ms: u64,
    /// How many there may be.
    pub total: u32,
    /// How many one principal may have; at most [`Sessions::total`].
    pub per_principal: u32,
    /// How many streams of events one session may have open.
    pub streams: u32,
    /// What becomes of them when their replica is gone and their server had a session id of its own.
    pub on_owner_loss: OnOwnerLoss,
    /// What is kept for clients that come back.
    pub resume: Resume,
    /// The [`SessionKey::id`] of the key that new ids are sealed with.
    pub seal_with: u8,
}

/// What becomes of a session whose replica is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnOwnerLoss {
    /// It is gone too: the client is told so, and begins another.
    #[default]
    NotFound,
    /// Another replica begins it again with its own server, and the client does not notice. What the server knew in
    /// the session is forgotten.
    Reinitialize,
}

/// What is kept of a stream for a client that comes back for the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resume {
    /// How many bytes of its events. 0: nothing.
    pub max_bytes: u64,
    /// For how long after it has ended, or its client has gone, in milliseconds.
    pub ttl_ms: u64,
}

/// The replicas of one server among themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Peers {
    /// The DNS name of the headless Service that lists every pod, also those that are not ready or about to end.
    pub service: String,
}

/// Who may read the inventory: bearers of a ServiceAccount token of audience [`INVENTORY_AUDIENCE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InventoryAccess {
    /// The cluster's token issuer (`iss`).
    pub issuer: String,
    /// The subjects (`system:serviceaccount:<namespace>:<name>`) that may read.
    pub subjects: Vec<String>,
    /// The cluster's signing keys: a JSON Web Key Set (RFC 7517), as the API server publishes it.
    pub jwks: serde_json::Value,
}

/// What the sidecar writes to its log. Audit lines are written at every level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
