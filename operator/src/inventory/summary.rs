//! What the operator keeps of an inventory: names, counts and digests. Definitions and schemas stay with the sidecar.

use std::fmt;

use longshore_sidecar_config::inventory::{ConfigState, Connection, ExposedSocket, Phase, Short};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::cut::{First, Text, cut};

/// How many tool names a status holds.
const NAMES: usize = 64;
/// Longer names, versions and capabilities are cut, and of tools left out: they are a stranger's words on their way into etcd.
const LONGEST_TEXT: usize = 128;
/// A digest is shorter.
const LONGEST_DIGEST: usize = 80;
/// A time is shorter.
const LONGEST_TIME: usize = 40;
/// A sidecar's sentences on what is wrong are cut here. A status holds less.
const LONGEST_MESSAGE: usize = 2048;
/// There are fewer revisions of MCP.
const REVISIONS: usize = 16;
/// Of so many sockets a pod is known to listen at.
const SOCKETS: usize = 64;
/// An address is shorter.
const LONGEST_ADDRESS: usize = 64;

/// What the operator keeps of a sidecar's inventory. Whatever answers at a pod's address may have written it, so all of it
/// is cut to size.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// Which configuration the sidecar runs.
    #[serde(deserialize_with = "config")]
    pub config: ConfigState,
    /// Whether it serves.
    pub phase: Phase,
    /// Whether its server answers.
    #[serde(deserialize_with = "connection")]
    pub connection: Connection,
    /// What the server said of itself.
    pub server: Option<ServerSummary>,
    /// The server's tools.
    pub tools: ToolsSummary,
    /// How many more the manifest hides.
    #[serde(default)]
    pub hidden_tools: usize,
    /// SHA-256 over their definitions.
    #[serde(deserialize_with = "digest")]
    pub tools_digest: String,
    /// A line that a stdio server wrote to its stdout and that is no message.
    #[serde(default, deserialize_with = "maybe_short")]
    pub noise: Option<String>,
    /// What the sidecar has too little memory for.
    #[serde(default)]
    pub short: Short,
    /// Where the pod can be reached around the sidecar.
    #[serde(default, deserialize_with = "sockets")]
    pub exposed: Vec<ExposedSocket>,
}

/// What a server said of itself, cut to size.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerSummary {
    /// Its name and version.
    pub info: ServerInfo,
    /// The revision that it speaks with its sidecar.
    #[serde(deserialize_with = "short")]
    pub protocol_version: String,
    /// All that it is known to speak. Older sidecars say nothing of these.
    #[serde(default, deserialize_with = "revisions")]
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
            config: ConfigState { digest: digest.to_owned(), generation: 1, error: None, callers: None },
            phase: Phase::Serving,
            connection: Connection {
                state: ConnectionState::Connected,
                since: String::new(),
                reason: None,
                message: String::new(),
            },
            server: None,
            tools: ToolsSummary::default(),
            hidden_tools: 0,
            tools_digest: String::new(),
            noise: None,
            short: Short::default(),
            exposed: vec![],
        }
    }
}

impl ServerSummary {
    /// Every revision that it is known to speak, the newest first.
    pub(crate) fn revisions(&self) -> &[String] {
        if self.protocol_versions.is_empty() {
            std::slice::from_ref(&self.protocol_version)
        } else {
            &self.protocol_versions
        }
    }
}

/// A server's name and version, cut to size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ServerInfo {
    /// Its name.
    #[serde(default, deserialize_with = "short")]
    pub name: String,
    /// Its version.
    #[serde(default, deserialize_with = "short")]
    pub version: String,
}

/// How many tools there are, and what the first are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolsSummary {
    /// How many.
    pub count: u32,
    /// The names of the first 64, but for those that are too long: no tool has a name that was cut.
    pub names: Vec<String>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(default, deserialize_with = "whole")]
    name: Option<String>,
}

impl<'de> Deserialize<'de> for ToolsSummary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tools = First::<Tool, NAMES>::deserialize(deserializer)?;
        Ok(Self { count: tools.count, names: tools.kept.into_iter().filter_map(|tool| tool.name).collect() })
    }
}

fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Text::<LONGEST_TEXT>::deserialize(deserializer)?.0)
}

/// What is not worth cutting.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(String::deserialize(deserializer)?).filter(|text| text.len() <= LONGEST_TEXT))
}

fn maybe_short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Text<LONGEST_TEXT>>::deserialize(deserializer)?.map(|text| text.0))
}

fn digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Text::<LONGEST_DIGEST>::deserialize(deserializer)?.0)
}

fn revisions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let first = First::<Text<LONGEST_TEXT>, REVISIONS>::deserialize(deserializer)?;
    Ok(first.kept.into_iter().map(|text| text.0).collect())
}

fn sockets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ExposedSocket>, D::Error> {
    let mut sockets = First::<ExposedSocket, SOCKETS>::deserialize(deserializer)?.kept;
    sockets.iter_mut().for_each(|socket| cut(&mut socket.address, LONGEST_ADDRESS));
    Ok(sockets)
}

fn config<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ConfigState, D::Error> {
    let mut config = ConfigState::deserialize(deserializer)?;
    cut(&mut config.digest, LONGEST_DIGEST);
    if let Some(error) = &mut config.error {
        cut(error, LONGEST_MESSAGE);
    }
    Ok(config)
}

fn connection<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Connection, D::Error> {
    let mut connection = Connection::deserialize(deserializer)?;
    cut(&mut connection.since, LONGEST_TIME);
    cut(&mut connection.message, LONGEST_MESSAGE);
    Ok(connection)
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
                    cut(&mut name, LONGEST_TEXT);
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
    use longshore_sidecar_config::inventory::Inventory;
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
        let value = inventory(vec![json!({"name": "echo"})]);
        let contract: Inventory = serde_json::from_value(value).unwrap();
        let summary: Summary = serde_json::from_slice(&serde_json::to_vec(&contract).unwrap()).unwrap();
        assert_eq!(summary.tools, ToolsSummary { count: 1, names: vec!["echo".to_owned()] });
        assert_eq!(summary.config, contract.config);
    }

    /// Whatever answers at the address of a pod may say as much as an answer holds, and go on saying it.
    #[test]
    fn keeps_little_of_whatever_is_said() {
        // Cut in the middle of its second half, were it not cut between characters.
        let long = format!("x{}", "\u{e9}".repeat(50_000));
        let mut value = inventory(vec![json!({"name": long})]);
        value["config"] = json!({"digest": long, "generation": 3, "error": long});
        value["connection"] = json!({"state": "Failed", "since": long, "reason": null, "message": long});
        value["toolsDigest"] = json!(long);
        value["noise"] = json!(long);
        value["exposed"] = json!(vec![json!({"address": long, "port": 1}); 100]);
        value["server"]["protocolVersion"] = json!(long);
        value["server"]["protocolVersions"] = json!(vec![&long; 100]);
        value["server"]["capabilities"] = json!({&long: {}});
        let read: Summary = serde_json::from_slice(&serde_json::to_vec(&value).unwrap()).unwrap();
        let server = read.server.unwrap();
        assert_eq!((server.protocol_versions.len(), read.exposed.len()), (REVISIONS, SOCKETS));
        assert_eq!(read.tools, ToolsSummary { count: 1, names: vec![] });
        for (what, text, longest) in [
            ("digest", &read.config.digest, LONGEST_DIGEST),
            ("error", &read.config.error.unwrap(), LONGEST_MESSAGE),
            ("since", &read.connection.since, LONGEST_TIME),
            ("message", &read.connection.message, LONGEST_MESSAGE),
            ("tools' digest", &read.tools_digest, LONGEST_DIGEST),
            ("noise", &read.noise.unwrap(), LONGEST_TEXT),
            ("address", &read.exposed[0].address, LONGEST_ADDRESS),
            ("revision", &server.protocol_version, LONGEST_TEXT),
            ("revisions", &server.protocol_versions[0], LONGEST_TEXT),
            ("capability", &server.capabilities[0], LONGEST_TEXT),
        ] {
            assert_eq!(text.len(), longest - 1, "{what}");
            assert!(text.capacity() <= 2 * longest, "{what} holds {} bytes", text.capacity());
        }
    }
}
