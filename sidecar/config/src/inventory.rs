//! What a sidecar knows of its server: the answer of `GET /v1/inventory` at the admin port.
//!
//! The request needs `Authorization: Bearer` with a ServiceAccount token of audience
//! [`crate::INVENTORY_AUDIENCE`]. The answer has an `ETag`; with `If-None-Match` and `Prefer: wait=<seconds>`
//! (RFC 7240) the sidecar holds the request until the inventory changes, and answers `304` if it does not.
//!
//! A reader may be older than the sidecar, so unknown fields are ignored here, and so are reasons that it does not know.
//! A state or a phase that it does not know is taken for the last one of those that it does.
//! Everything inside [`Inventory::server`], [`Inventory::tools`], [`Inventory::prompts`], [`Inventory::resources`] and
//! [`Inventory::resource_templates`] comes from the MCP server: untrusted text, bounded by the sidecar, to be
//! shown and never to be interpreted.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{Error, IgnoredAny, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The longest inventory, in bytes of JSON: a sidecar keeps no more of what its server lists, and nobody reads more.
pub const LONGEST: usize = 32 << 20;

/// What a sidecar knows of itself and its server at one moment. `Entry` is what each entry of a list is held as.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory<Entry = Value> {
    /// Which configuration the sidecar runs.
    pub config: ConfigState,
    /// Whether it serves.
    pub phase: Phase,
    /// Whether its MCP server answers.
    pub connection: Connection,
    /// What the server said of itself in the last handshake. It stays when the server is down.
    pub server: Option<ServerDescription>,
    /// The server's tools that the manifest's `tools.include` and `tools.exclude` leave, as the server gave them,
    /// in its order.
    pub tools: Vec<Entry>,
    /// How many tools `include` and `exclude` hide.
    pub hidden_tools: usize,
    /// `sha256:<64 hex digits>` over [`Inventory::tools`]; the same for the same definitions in any order.
    pub tools_digest: String,
    /// The server's prompts.
    pub prompts: Vec<Entry>,
    /// The server's resources.
    pub resources: Vec<Entry>,
    /// The server's resource templates.
    pub resource_templates: Vec<Entry>,
    /// The first line that a stdio server wrote to its stdout which is no message of MCP, bounded; `None` if there has
    /// been none since the handshake. Such lines are dropped.
    #[serde(default)]
    pub noise: Option<String>,
    /// What the sidecar has too little memory for.
    #[serde(default, skip_serializing_if = "Short::is_nothing")]
    pub short: Short,
    /// Listening sockets of the pod that are neither the sidecar's nor on loopback: where the network policy is not
    /// enforced, the server can be reached there around the sidecar.
    pub exposed: Vec<ExposedSocket>,
}

/// What a manifest permits more of than its sidecar has memory for, and how much that is at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Short {
    /// The largest request in bytes, where [`Limits::request_bytes`](crate::Limits::request_bytes) is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// How many sessions, where [`Sessions::total`](crate::Sessions::total) is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
}

impl Short {
    /// Whether there is enough for all of it.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Which configuration a sidecar runs, and whether a newer one was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigState {
    /// The digest of the configuration file that it runs.
    pub digest: String,
    /// That of [`Config::generation`](crate::Config::generation), which operators of earlier releases need.
    pub generation: i64,
    /// Why the newest file on disk was refused. One whose keys have yet to come is not.
    pub error: Option<String>,
    /// Whether it lets anybody in: somebody has a key, or nobody needs one. `None`: a sidecar of an earlier release does not
    /// say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<bool>,
}

/// Whether a sidecar serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The first handshake with the server is still to come.
    Starting,
    /// It serves.
    Serving,
    /// It ends: calls in flight are finished, the pod goes. Or it does what only later releases know.
    #[serde(other)]
    Draining,
}

/// Whether the MCP server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// Whether it does.
    pub state: ConnectionState,
    /// Since when, RFC 3339 in UTC with seconds.
    pub since: String,
    /// Why it does not, or did not until a moment ago: a server that was lost soon after its handshake has to stay
    /// connected for some seconds first. `None` for one that has, and for a reason that only later releases know; the
    /// message says it.
    #[serde(default, deserialize_with = "if_known")]
    pub reason: Option<ConnectionReason>,
    /// The reason as a sentence for people. Empty where there is none.
    pub message: String,
}

impl Connection {
    /// Whether clients are sent there: it answers, and not only since a moment ago after it died soon.
    pub fn is_steady(&self) -> bool {
        self.state == ConnectionState::Connected && self.reason.is_none()
    }
}

/// The states of a connection to an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectionState {
    /// No handshake has succeeded yet, and none has failed for good.
    Connecting,
    /// The server completed a handshake, listed its tools and answers.
    Connected,
    /// It does not answer, or answers what cannot be used. The sidecar keeps trying. Or it is in a state that only later
    /// releases know; the message says which.
    #[serde(other)]
    Failed,
}

/// Why an MCP server is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectionReason {
    /// Nothing listens at its port.
    ConnectionRefused,
    /// It took a connection and did not answer `initialize` in time.
    InitializeTimeout,
    /// It answered `initialize` with an HTTP or JSON-RPC error.
    InitializeRefused,
    /// It answered something that is not MCP (another path, another program).
    NotMcp,
    /// It speaks only revisions that this sidecar does not.
    UnsupportedRevision,
    /// The handshake succeeded, listing tools, prompts or resources did not.
    ListFailed,
    /// It answered before and no longer does.
    ConnectionLost,
    /// The shim of a stdio server does not listen: the server's container does not run.
    ShimUnavailable,
    /// The server's image has no program of that name.
    CommandNotFound,
    /// The program of a stdio server may not be executed.
    CommandNotExecutable,
    /// The process of a stdio server ended before it completed the handshake.
    ProcessExited,
}

/// What a server said of itself in `initialize`, or in what took its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerDescription {
    /// `serverInfo`, as given.
    pub info: Value,
    /// The revision of MCP that the sidecar and the server speak with each other.
    pub protocol_version: String,
    /// All revisions that the server is known to speak and the sidecar speaks too, the newest first. A server may speak
    /// older ones that nobody has asked it for.
    #[serde(default)]
    pub protocol_versions: Vec<String>,
    /// `capabilities`, as given.
    pub capabilities: Value,
    /// `instructions`, if there are any.
    pub instructions: Option<String>,
}

/// A socket at which the pod can be reached around the sidecar.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExposedSocket {
    /// The address that it is bound to, such as `0.0.0.0` or `::`.
    pub address: String,
    /// The TCP port.
    pub port: u16,
    /// The user whose it is, as the pod sees users. `None`: a sidecar of an earlier release does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

/// Of anything else than a name nothing is kept, however much it is: whatever answers at a sidecar's address may have said it.
fn if_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ConnectionReason>, D::Error> {
    struct Name;
    impl<'de> Visitor<'de> for Name {
        type Value = Option<ConnectionReason>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a reason")
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
            let name: StrDeserializer<'_, E> = name.into_deserializer();
            Ok(ConnectionReason::deserialize(name).ok())
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
            IgnoredAny.visit_seq(items).map(|_| None)
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
            IgnoredAny.visit_map(fields).map(|_| None)
        }
    }
    deserializer.deserialize_any(Name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// It says neither less nor more to a reader that knows no better.
    #[test]
    fn what_an_earlier_release_does_not_say_is_not_known() {
        let text = json!({"digest": "sha256:c", "generation": 3, "error": null});
        let config = ConfigState::deserialize(&text).unwrap();
        assert_eq!(config.callers, None);
        assert_eq!(serde_json::to_value(&config).unwrap(), text);
        let config = ConfigState { callers: Some(false), ..config };
        assert_eq!(serde_json::to_value(&config).unwrap()["callers"], false);
    }

    #[test]
    fn what_a_later_release_adds_is_passed_over() {
        let lost = Connection {
            state: ConnectionState::Failed,
            since: "2026-01-01T00:00:00Z".to_owned(),
            reason: Some(ConnectionReason::ConnectionLost),
            message: "the server has gone to bed".to_owned(),
        };
        let mut text = serde_json::to_value(&lost).unwrap();
        assert_eq!(Connection::deserialize(&text).unwrap(), lost);
        let reasons = [json!({"Asleep": {"until": 7}}), json!(["Asleep", [{}]]), json!(null), json!(true)];
        for reason in reasons.into_iter().chain([json!("Asleep"), json!(-7), json!(7), json!(0.5)]) {
            text["later"] = json!(1);
            text["reason"] = reason;
            let expected = Connection { reason: None, ..lost.clone() };
            assert_eq!(Connection::deserialize(&text).unwrap(), expected);
            assert_eq!(serde_json::from_str::<Connection>(&text.to_string()).unwrap(), expected);
        }
        // No tree is made of it: that would be too deep.
        text["reason"] = json!("Asleep");
        let deep = "[".repeat(200) + &"]".repeat(200);
        let text = text.to_string().replace("\"Asleep\"", &deep);
        assert_eq!(serde_json::from_str::<Connection>(&text).unwrap(), Connection { reason: None, ..lost });
    }

    /// Or all that the sidecar says would be lost on an operator of before, and the server would be unreachable to it.
    #[test]
    fn a_state_or_a_phase_of_a_later_release_is_one_of_those_that_are_known() {
        for state in [ConnectionState::Connecting, ConnectionState::Connected, ConnectionState::Failed] {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<ConnectionState>(&text).unwrap(), state);
        }
        for phase in [Phase::Starting, Phase::Serving, Phase::Draining] {
            let text = serde_json::to_string(&phase).unwrap();
            assert_eq!(serde_json::from_str::<Phase>(&text).unwrap(), phase);
        }
        assert_eq!(serde_json::from_str::<ConnectionState>("\"Asleep\"").unwrap(), ConnectionState::Failed);
        assert_eq!(serde_json::from_str::<Phase>("\"Asleep\"").unwrap(), Phase::Draining);
    }
}
