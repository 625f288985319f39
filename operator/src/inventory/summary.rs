//! What the operator keeps of an inventory: names, counts and digests. Definitions and schemas stay with the sidecar.

use std::fmt;

use longshore_sidecar_config::inventory::{ConfigState, Connection, ExposedSocket, Phase};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// How many tool names a status holds.
const NAMES: usize = 64;
/// Longer names, versions and capabilities are cut: they are a stranger's words on their way into etcd.
const LONGEST_TEXT: usize = 128;

/// What the operator keeps of a sidecar's inventory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Which configuration the sidecar runs.
    pub config: ConfigState,
    /// Whether it serves.
    pub phase: Phase,
    /// Whether its server answers.
    pub connection: Connection,
    /// What the server said of itself.
    pub server: Option<ServerSummary>,
    /// The server's tools.
    pub tools: ToolsSummary,
    /// SHA-256 over their definitions.
    pub tools_digest: String,
    /// A line that a stdio server wrote to its stdout and that is no message.
    #[serde(default, deserialize_with = "maybe_short")]
    pub noise: Option<String>,
    /// Where the pod can be reached around the sidecar.
    #[serde(default)]
    pub exposed: Vec<ExposedSocket>,
}

/// What a server said of itself, cut to size.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerSummary {
    /// Its name and version.
    pub info: ServerInfo,
    /// The revision that it speaks with its sidecar.
    pub protocol_version: String,
    /// All that it is known to speak. Older sidecars say nothing of these.
    #[serde(default)]
    pub protocol_versions: Vec<String>,
    /// The names of its capabilities.
    #[serde(deserialize_with = "field_names")]
    pub capabilities: Vec<String>,
}

#[cfg(test)]
impl Summary {
    /// Of a sidecar that serves with this configuration, and whose server answers and offers nothing.
    pub(crate) fn of_config(digest: &str) -> Self {
        use longshore_sidecar_config::inventory::ConnectionState;
        Self {
            config: ConfigState { digest: digest.to_owned(), generation: 1, error: None },
            phase: Phase::Serving,
            connection: Connection {
                state: ConnectionState::Connected,
                since: String::new(),
                reason: None,
                message: String::new(),
            },
            server: None,
            tools: ToolsSummary::default(),
            tools_digest: String::new(),
            noise: None,
            exposed: vec![],
        }
    }
}

impl ServerSummary {
    /// Every revision that it is known to speak, the newest first.
    pub fn revisions(&self) -> &[String] {
        if self.protocol_versions.is_empty() {
            std::slice::from_ref(&self.protocol_version)
        } else {
            &self.protocol_versions
        }
    }
}

/// A server's name and version, cut to size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ServerInfo {
    /// Its name.
    #[serde(default, deserialize_with = "short")]
    pub name: String,
    /// Its version.
    #[serde(default, deserialize_with = "short")]
    pub version: String,
}

/// How many tools there are, and what the first are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolsSummary {
    /// How many.
    pub count: u32,
    /// The names of the first 64.
    pub names: Vec<String>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(default, deserialize_with = "short")]
    name: String,
}

impl<'de> Deserialize<'de> for ToolsSummary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tools;
        impl<'de> Visitor<'de> for Tools {
            type Value = ToolsSummary;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of tools")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut tools: A) -> Result<ToolsSummary, A::Error> {
                let mut summary = ToolsSummary::default();
                while summary.names.len() < NAMES {
                    let Some(tool) = tools.next_element::<Tool>()? else { return Ok(summary) };
                    summary.names.push(tool.name);
                    summary.count += 1;
                }
                while tools.next_element::<IgnoredAny>()?.is_some() {
                    summary.count = summary.count.saturating_add(1);
                }
                Ok(summary)
            }
        }
        deserializer.deserialize_seq(Tools)
    }
}

fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let mut text = String::deserialize(deserializer)?;
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
    Ok(text)
}

fn maybe_short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let mut text = Option::<String>::deserialize(deserializer)?;
    if let Some(text) = &mut text {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
    }
    Ok(text)
}

fn field_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Names;
    impl<'de> Visitor<'de> for Names {
        type Value = Vec<String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object of capabilities")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Vec<String>, A::Error> {
            let mut names = Vec::new();
            while let Some((mut name, IgnoredAny)) = fields.next_entry::<String, IgnoredAny>()? {
                if names.len() < NAMES {
                    name.truncate(name.floor_char_boundary(LONGEST_TEXT));
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        }
    }
    deserializer.deserialize_map(Names)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn inventory(tools: Vec<Value>) -> Value {
        json!({
            "config": {"digest": "sha256:c", "generation": 3, "error": null},
            "phase": "Serving",
            "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
            "server": {
                "info": {"name": "n".repeat(500), "version": "1", "title": "ignored"},
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": true}, "logging": {}},
                "instructions": null
            },
            "tools": tools, "hiddenTools": 0, "toolsDigest": "sha256:t",
            "prompts": [], "resources": [], "resourceTemplates": [], "exposed": [],
            "fromANewerSidecar": true
        })
    }

    #[test]
    fn keeps_names_and_counts_only_and_cuts_them() {
        let tools = (0..100)
            .map(|n| json!({"name": format!("tool-{n}"), "inputSchema": {"type": "object"}}))
            .collect();
        let summary: Summary = serde_json::from_value(inventory(tools)).unwrap();
        assert_eq!((summary.tools.count, summary.tools.names.len()), (100, NAMES));
        assert_eq!(summary.tools.names[63], "tool-63");
        let server = summary.server.unwrap();
        assert_eq!(server.info.name.len(), LONGEST_TEXT);
        assert_eq!(server.capabilities, ["logging", "tools"]);
        assert_eq!(server.revisions(), ["2025-11-25"], "what an older sidecar says");
    }

    #[test]
    fn reads_what_the_contract_writes() {
        use longshore_sidecar_config::inventory::Inventory;
        let value = inventory(vec![json!({"name": "echo"})]);
        let contract: Inventory = serde_json::from_value(value).unwrap();
        let summary: Summary = serde_json::from_slice(&serde_json::to_vec(&contract).unwrap()).unwrap();
        assert_eq!(summary.tools, ToolsSummary { count: 1, names: vec!["echo".to_owned()] });
        assert_eq!(summary.config, contract.config);
    }
}
