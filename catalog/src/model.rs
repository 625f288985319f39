//! What the REST API answers. These types are what `/openapi.json` describes.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Whether a server works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum State {
    /// It answers, and clients come to it.
    Up,
    /// It does not.
    Down,
    /// Nobody can say now: it starts, or cannot be asked.
    Unknown,
}

/// How a server is, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Whether it works.
    pub state: State,
    /// Since when it is so, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub since: Option<String>,
    /// Why, in one word. Empty while it is up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, in a sentence. Empty while it is up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whether an answer may be out of date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Freshness {
    /// True while the catalog cannot hear what changes: this is what it last knew.
    pub stale: bool,
    /// Since when, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub since: Option<String>,
}

/// A link for people. Nobody has checked where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Link {
    /// What is there.
    pub title: String,
    /// Its address.
    pub url: String,
}

/// A server, as its owner and the server itself describe it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// Its namespace.
    pub namespace: String,
    /// Its name in there.
    pub name: String,
    /// A name for people.
    pub title: String,
    /// What it is good for, in plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Words that its owner wants it to be found by.
    pub tags: Vec<String>,
    /// Where there is more about it.
    pub links: Vec<Link>,
    /// Where MCP clients inside of the cluster connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where MCP clients outside of the cluster connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// What callers prove who they are with, such as `apiKeys`. Empty: nobody has to. What they may call is
    /// for the access rules of the server to say.
    pub auth: Vec<String>,
    /// How it is.
    pub health: Health,
    /// What it says of itself, once it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
    /// How many tools are listed.
    pub tools: usize,
    /// How many it has that are not listed: too many, too long, or with names that cannot be shown.
    pub tools_left_out: usize,
    /// How many of its words it is not found by: it has too many itself, its namespace has, or all servers together.
    pub words_left_out: usize,
    /// How many prompts it has.
    pub prompts: usize,
    /// How many resources and resource templates it has.
    pub resources: usize,
    /// SHA-256 over the tools' definitions: it changes when one of them does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_digest: Option<String>,
}

/// What a server says of itself: a stranger's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// Its name.
    pub name: String,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// The revision of MCP that it speaks with its sidecar.
    pub protocol_version: String,
    /// All revisions that it is known to speak, the newest first.
    pub protocol_versions: Vec<String>,
    /// Its hints on how to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// The server that a tool belongs to.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name in there.
    pub name: String,
    /// A name for people.
    pub title: String,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where MCP clients inside of the cluster connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where MCP clients outside of the cluster connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// What callers prove who they are with. Empty: nobody has to. What they may call is
    /// for the access rules of the server to say.
    pub auth: Vec<String>,
    /// How it is. A tool of a server that is down is listed as it was last seen.
    pub health: Health,
}

/// A tool in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSummary {
    /// Its name, which callers use.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, in its server's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The names of its parameters, the first 64. None are known of a server that has not been heard yet.
    pub parameters: Vec<String>,
    /// The server's hints about what the tool does. Nobody has checked them.
    pub annotations: Annotations,
    /// Whose tool it is.
    pub server: ServerReference,
    /// The JSON Schema of its arguments. In a list only where schemas are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Box<RawValue>>,
    /// The JSON Schema of its structured result. In a list only where schemas are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Box<RawValue>>,
    /// What the server gave, or may give, and the catalog does not show, with the reason. There where schemas would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<Vec<Omitted>>,
}

/// A tool with all that is known of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// The tool, with its schemas.
    #[serde(flatten)]
    pub tool: ToolSummary,
    /// Whether this may be out of date.
    pub freshness: Freshness,
}

/// A server with all that is known of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerDetails {
    /// The server.
    #[serde(flatten)]
    pub server: Server,
    /// Whether this may be out of date.
    pub freshness: Freshness,
}

/// A server's hints about a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Calling it twice is like calling it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It reaches beyond its server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// A part of a tool that is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Omitted {
    /// Which field, such as `inputSchema`.
    pub field: String,
    /// How long it is, in bytes. 0: that is not known.
    pub bytes: usize,
    /// Why it is not shown.
    pub reason: String,
}

/// A page of servers.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerList {
    /// The servers, by namespace and name; with `q` the best first.
    pub items: Vec<Server>,
    /// How many there are on all pages.
    pub total: usize,
    /// Give it as `cursor` to get the next page. Absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Whether this may be out of date.
    pub freshness: Freshness,
}

/// A page of tools.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolList {
    /// The tools, by namespace, server and name; with `q` the best first.
    pub items: Vec<ToolSummary>,
    /// How many there are on all pages.
    pub total: usize,
    /// Give it as `cursor` to get the next page. Absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Whether this may be out of date.
    pub freshness: Freshness,
}

/// An error, as RFC 9457 has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// Which kind of error it is: `about:blank`, so the status says it.
    #[serde(rename = "type")]
    pub type_: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what to do.
    pub detail: String,
}
