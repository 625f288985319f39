//! The handshake: which revision is offered, and which capabilities are hidden because nobody could use them.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle>

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::Text;
use crate::envelope::is_object;
use crate::lossy_json;
use crate::object::{self, Object};
use crate::revision::{Revision, Tasks};
use crate::session;

/// The capability of the experimental tasks. Only 2025-11-25 has them, so neither side hears of it in another revision.
const TASKS: &str = "tasks";

/// Why a handshake's message cannot be used.
#[derive(Debug, Error)]
pub enum Unusable {
    /// A member is missing or is something else.
    #[error("{0} is missing or malformed")]
    Member(&'static str),
    /// It is no JSON object, or has a member twice.
    #[error("not a usable object")]
    Json(#[from] serde_json::Error),
}

/// What goes to the server instead of a client's `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The revision that the server is asked for.
    pub revision: Revision,
    /// The request; `None` if the client's own can go as it is.
    pub rewritten: Option<String>,
}

/// Prepares a client's `initialize` for the server: `body` is the whole message. The revision that the client asks
/// for is kept if it is one of `served` and has a handshake; otherwise the newest of those is asked for, and the client
/// hears what it can have.
pub fn offer(body: &str, served: &[Revision]) -> Result<Offer, Unusable> {
    let mut message = Object::read(body)?;
    let mut params = Object::read(message.original("params").ok_or(Unusable::Member("params"))?)?;
    let asked = params.get("protocolVersion").ok_or(Unusable::Member("params.protocolVersion"))?;
    let asked: Text<'_> =
        serde_json::from_str(asked).map_err(|_| Unusable::Member("params.protocolVersion"))?;
    let revision = session::negotiate(&asked, served).unwrap_or(Revision::NEWEST_WITH_INITIALIZE);

    let mut edited = false;
    if asked.as_str() != revision.as_str() {
        params.set("protocolVersion", format!("\"{revision}\""));
        edited = true;
    }
    if let Some(capabilities) = without_tasks(revision, params.original("capabilities"))? {
        params.set("capabilities", capabilities);
        edited = true;
    }
    let rewritten = edited.then(|| {
        message.set("params", params.write());
        message.write()
    });
    Ok(Offer { revision, rewritten })
}

/// What a server answered to `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The revision that the server chose, by name: it may be one that nobody knows.
    pub version: String,
    /// The whole message for the client; `None` if the server's own can go as it is.
    pub rewritten: Option<String>,
}

/// Reads a server's result of `initialize` for a client of this revision; `message` is the whole response.
pub fn accepted(message: &str, client: Revision) -> Result<Accepted, Unusable> {
    let mut response = Object::read(message)?;
    let mut result = Object::read(response.original("result").ok_or(Unusable::Member("result"))?)?;
    let version = result.get("protocolVersion").ok_or(Unusable::Member("result.protocolVersion"))?;
    let version: String =
        serde_json::from_str(version).map_err(|_| Unusable::Member("result.protocolVersion"))?;
    // Between two revisions all of it is judged by `translate`.
    let rewritten = without_tasks(client, result.original("capabilities"))?.map(|capabilities| {
        result.set("capabilities", capabilities);
        response.set("result", result.write());
        response.write()
    });
    Ok(Accepted { version, rewritten })
}

/// The revision that a server has chosen in this result of `initialize`, if it is one that there is.
pub fn chosen(result: &str) -> Option<Revision> {
    let version = object::at(result, &["protocolVersion"]).and_then(object::string)?;
    Revision::parse(&version)
}

/// Capabilities without tasks, if a revision does not have them; `None` if nothing is to be taken out.
fn without_tasks(revision: Revision, capabilities: Option<&str>) -> Result<Option<String>, Unusable> {
    let Some(capabilities) = capabilities.filter(|text| is_object(text)) else { return Ok(None) };
    let mut capabilities = Object::read(capabilities)?;
    let hides = revision.features().tasks != Tasks::Core && capabilities.remove(TASKS);
    Ok(hides.then(|| capabilities.write()))
}

/// What a server says of itself, for those who keep it. What of it cannot be kept is left out.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Written")]
pub struct Handshake {
    /// The revision that it chose.
    pub protocol_version: String,
    /// What it can do.
    pub capabilities: Value,
    /// Who it is.
    pub server_info: Value,
    /// What a model should know of it.
    pub instructions: Option<String>,
}

/// The same as it was written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    protocol_version: String,
    capabilities: Option<Box<RawValue>>,
    server_info: Option<Box<RawValue>>,
    instructions: Option<Box<RawValue>>,
}

impl From<Written> for Handshake {
    fn from(written: Written) -> Self {
        let value = |json: Option<Box<RawValue>>| json.and_then(|json| lossy_json::value(json.get()));
        Self {
            protocol_version: written.protocol_version,
            capabilities: value(written.capabilities).unwrap_or_default(),
            server_info: value(written.server_info).unwrap_or_default(),
            instructions: written.instructions.and_then(|json| lossy_json::text(json.get())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SERVED: [Revision; 3] = [Revision::V2025_06_18, Revision::V2025_11_25, Revision::V2026_07_28];

    #[test]
    fn the_offer_keeps_what_it_can() {
        let body = |version: &str, capabilities: &str| {
            format!(
                r#"{{"id":1, "params":{{"capabilities":{capabilities},"protocolVersion":"{version}"}},"method":"initialize","jsonrpc":"2.0"}}"#
            )
        };
        for (version, capabilities, revision, rewritten) in [
            ("2025-06-18", "{}", Revision::V2025_06_18, None),
            ("2025-11-25", "{ \"roots\":{} }", Revision::V2025_11_25, None),
            ("2024-11-05", "{ }", Revision::V2025_11_25, Some(body("2025-11-25", "{ }"))),
            ("2026-07-28", "{}", Revision::V2025_11_25, Some(body("2025-11-25", "{}"))),
            (
                "2025-06-18",
                r#"{"tasks":{},"roots":{ }}"#,
                Revision::V2025_06_18,
                Some(body("2025-06-18", r#"{"roots":{ }}"#)),
            ),
            ("2025-11-25", r#"{"tasks":{},"roots":{ }}"#, Revision::V2025_11_25, None),
        ] {
            let offer = offer(&body(version, capabilities), &SERVED).unwrap();
            assert_eq!(offer.revision, revision, "{version}");
            let expected = rewritten.map(|text| text.replace("1, ", "1,"));
            assert_eq!(offer.rewritten, expected, "{version}");
        }
    }

    #[test]
    fn a_handshake_without_version_is_refused() {
        for body in [
            r#"{"method":"initialize"}"#,
            r#"{"params":[]}"#,
            r#"{"params":{}}"#,
            r#"{"params":{"protocolVersion":7}}"#,
            r#"{"params":{"protocolVersion":"a","protocolVersion":"b"}}"#,
        ] {
            assert!(offer(body, &SERVED).is_err(), "{body}");
        }
    }

    #[test]
    fn what_can_be_kept_of_a_handshake_is() {
        for (rest, info, instructions) in [
            ("", Value::Null, None),
            (r#","serverInfo":null,"instructions":null"#, Value::Null, None),
            (
                r#","serverInfo":{"name":"\ud83d"},"instructions":"a\ud83d""#,
                json!({"name": "\u{fffd}"}),
                Some("a\u{fffd}"),
            ),
            (r#","serverInfo":{"x":1e400},"instructions":7"#, Value::Null, None),
        ] {
            let result = format!(r#"{{"protocolVersion":"v","capabilities":{{"tools":{{}}}}{rest}}}"#);
            let read: Handshake = serde_json::from_str(&result).unwrap();
            assert_eq!(
                (read.protocol_version.as_str(), read.capabilities),
                ("v", json!({"tools": {}})),
                "{rest}"
            );
            assert_eq!((read.server_info, read.instructions.as_deref()), (info, instructions), "{rest}");
        }
    }

    #[test]
    fn the_answer_loses_only_tasks_and_only_where_nobody_has_them() {
        let message = r#"{"result":{"protocolVersion":"2025-11-25","capabilities":{"tasks":{"list":{}},"tools":{}},"x":1},"id":1}"#;
        let heard = accepted(message, Revision::V2025_06_18).unwrap();
        assert_eq!(heard.version, "2025-11-25");
        assert_eq!(
            heard.rewritten.unwrap(),
            r#"{"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"x":1},"id":1}"#
        );
        assert_eq!(accepted(message, Revision::V2025_11_25).unwrap().rewritten, None);
    }
}
