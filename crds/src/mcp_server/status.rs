//! `status`: how a server is. Written by the operator alone, by server-side apply.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::schema::kubernetes;

/// How a server is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// Until the operator has looked, so that whoever waits for a new server waits for that (without a generation kstatus takes it
// for one that is as it should be), and whoever looks at it reads why nothing happens.
#[schemars(extend("default" = {"observedGeneration": UNSEEN, "conditions": [{
    "type": "Ready", "status": "Unknown", "reason": PENDING, "lastTransitionTime": "1970-01-01T00:00:00Z",
    "message": "no operator of Longshore has looked at it yet: does one run, and look after this namespace?",
}]}))]
pub struct McpServerStatus {
    /// The `metadata.generation` that this status speaks of; -1 before the first.
    #[serde(default, deserialize_with = "seen", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub observed_generation: Option<i64>,
    /// How many pods there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many of them serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// A label selector of the pods, for a HorizontalPodAutoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Where MCP clients inside of the cluster connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where MCP clients outside of the cluster connect to, if `spec.expose.host` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// What the server calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_info: Option<ServerInfo>,
    /// The revisions of MCP that server and sidecar speak.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocol_versions: Vec<String>,
    /// The names of the server's capabilities, such as `tools` and `resources`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// The server's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolsStatus>,
    /// What is true of it: `Accepted`, `Available`, `Connected`, `Isolated`, `Published` and, of all, `Ready`; for tools `Reconciling` or `Stalled`.
    #[serde(default, deserialize_with = "written", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "kubernetes::<Vec<Condition>>", extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The generation that the API server writes into a status that nobody has written.
const UNSEEN: i64 = -1;

/// The reason of the condition that the API server writes there. No operator gives it.
const PENDING: &str = "Pending";

fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let mut conditions = Vec::<Condition>::deserialize(deserializer)?;
    conditions.retain(|condition| condition.reason != PENDING);
    Ok(conditions)
}

fn seen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(Option::deserialize(deserializer)?.filter(|generation| *generation != UNSEEN))
}

/// What a server calls itself. Its own words: never rely on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A server's tools. Their definitions are in the catalog, never here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolsStatus {
    /// How many clients can see, if the access rules let them.
    pub count: u32,
    /// SHA-256 over the definitions, and so another when one changes.
    pub digest: String,
    /// The names of the first 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}
