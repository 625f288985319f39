//! Capabilities: each side hears only of what the whole path can keep.

use std::borrow::Cow;

use super::{Untranslatable, Way};
use crate::capabilities::ClientCapabilities;
use crate::envelope::is_object;
use crate::object::Object;
use crate::revision::Elicitation;

/// The experimental tasks of 2025-11-25: they are not carried between revisions.
const TASKS: &str = "tasks";
/// What both sides have beside the protocol. Within an era that is their own business. Between eras each extension would have
/// to be translated by itself, but for [`SILENT`].
const EXTENSIONS: &str = "extensions";
/// Extensions that add no message between client and server, and nothing that only one era has: MCP Apps, whose tools name
/// their user interface in `_meta`, and whose hosts read that like any resource.
const SILENT: [&str; 1] = ["io.modelcontextprotocol/ui"];
/// What the protocol has, but for those two. What is not there some programs write as `null`, for which whoever goes by the
/// schema refuses the whole handshake.
const OF_PROTOCOL: [&str; 9] = [
    "roots",
    "sampling",
    "elicitation",
    "experimental",
    "logging",
    "completions",
    "prompts",
    "resources",
    "tools",
];

/// A client's capabilities, for its server.
pub fn client(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if way.is_same() {
        return Ok(Cow::Borrowed(json));
    }
    const WHAT: &str = "the client's capabilities";
    let mut capabilities = carried(way, WHAT, json)?;
    let (from, to) = (way.from.features(), way.to.features());
    let mut without = |capability: &str, member: &str| {
        capabilities.edit(capability, |json| {
            if !is_object(json) {
                return Ok(Cow::Borrowed(json));
            }
            let mut capability = way.object(WHAT, json)?;
            capability.remove(member);
            Ok(capability.into_text())
        })
    };
    if way.from.era() != way.to.era() {
        // A modern server cannot be told that the roots have changed, and a modern client does not say so.
        without("roots", "listChanged")?;
    }
    // What the client's own revision does not have it could not be asked for, whatever it declares.
    if !from.sampling_tools {
        without("sampling", "tools")?;
    }
    if from.elicitation < Elicitation::FormAndUrl {
        without("elicitation", "url")?;
    }
    // Without modes the capability means forms, so a client that only visits URLs must not seem to have it.
    let can = ClientCapabilities::read(json).map_err(|_| way.unreadable(WHAT))?;
    let has_modes = from.elicitation.min(to.elicitation) == Elicitation::FormAndUrl;
    if from.elicitation == Elicitation::None || !has_modes && !can.elicitation_form {
        capabilities.remove("elicitation");
    }
    Ok(capabilities.into_text())
}

/// A server's capabilities, for its client.
///
/// A server of 2024-11-05 may know `completion/complete` without saying so. It is not said for it either: a promise
/// that nobody has made might be broken.
pub fn server(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if way.is_same() {
        return Ok(Cow::Borrowed(json));
    }
    Ok(carried(way, "the server's capabilities", json)?.into_text())
}

/// Leaves out what is not carried between revisions, and what is not there.
fn carried<'a>(way: Way, what: &'static str, json: &'a str) -> Result<Object<'a>, Untranslatable> {
    let mut capabilities = way.object(what, json)?;
    capabilities.remove(TASKS);
    for name in OF_PROTOCOL {
        capabilities.remove_null(name);
    }
    extensions(way, what, &mut capabilities)?;
    Ok(capabilities)
}

/// Leaves those extensions that the other era can have too.
fn extensions(way: Way, what: &'static str, capabilities: &mut Object<'_>) -> Result<(), Untranslatable> {
    if way.from.era() == way.to.era() {
        capabilities.remove_null(EXTENSIONS);
        return Ok(());
    }
    let mut kept = Object::empty();
    if let Some(all) = capabilities.get(EXTENSIONS).filter(|json| is_object(json)) {
        let all = way.object(what, all)?;
        for name in SILENT {
            if let Some(extension) = all.get(name) {
                kept.set(name, extension.to_owned());
            }
        }
    }
    if kept.is_empty() {
        capabilities.remove(EXTENSIONS);
    } else {
        capabilities.set(EXTENSIONS, kept.write());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

    #[test]
    fn only_what_can_be_kept_is_offered() {
        let all = r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"url":{}},"tasks":{},"extensions":{"a/b":{},"io.modelcontextprotocol/ui":{"x":1}},"experimental":{"x":1}}"#;
        for (from, to, expected) in [
            (
                V2025_11_25,
                V2026_07_28,
                r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"url":{}},"extensions":{"io.modelcontextprotocol/ui":{"x":1}},"experimental":{"x":1}}"#,
            ),
            (
                V2026_07_28,
                V2025_11_25,
                r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"url":{}},"extensions":{"io.modelcontextprotocol/ui":{"x":1}},"experimental":{"x":1}}"#,
            ),
            // What their own revision does not have.
            (
                V2025_06_18,
                V2026_07_28,
                r#"{"roots":{},"sampling":{},"extensions":{"io.modelcontextprotocol/ui":{"x":1}},"experimental":{"x":1}}"#,
            ),
            (
                V2024_11_05,
                V2025_11_25,
                r#"{"roots":{"listChanged":true},"sampling":{},"extensions":{"a/b":{},"io.modelcontextprotocol/ui":{"x":1}},"experimental":{"x":1}}"#,
            ),
            (
                V2025_11_25,
                V2025_06_18,
                r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"extensions":{"a/b":{},"io.modelcontextprotocol/ui":{"x":1}},"experimental":{"x":1}}"#,
            ),
            (V2025_11_25, V2025_11_25, all),
        ] {
            assert_eq!(client(Way { from, to }, all).unwrap(), expected, "{from} {to}");
        }
        let forms = r#"{ "elicitation": {"form":{},"url":{}} }"#;
        let way = Way { from: V2025_11_25, to: V2025_03_26 };
        assert_eq!(client(way, forms).unwrap(), forms);
        for (from, expected) in [(V2025_06_18, r#"{"elicitation":{"form":{}}}"#), (V2025_03_26, "{}")] {
            let way = Way { from, to: V2026_07_28 };
            assert_eq!(client(way, forms).unwrap(), expected, "{from}");
        }
        // What is not there is left out, however it was written.
        let nothing = r#"{"sampling":null,"elicitation":null,"extensions":null,"x":null,"roots":{}}"#;
        for to in [V2025_06_18, V2026_07_28] {
            let way = Way { from: V2025_11_25, to };
            assert_eq!(client(way, nothing).unwrap(), r#"{"x":null,"roots":{}}"#, "{to}");
            assert_eq!(server(way, r#"{"logging":null,"tools":{}}"#).unwrap(), r#"{"tools":{}}"#, "{to}");
        }
        // A server with sessions may declare extensions too, as its own business with a client of its era.
        let all = r#"{"tools":{"listChanged":true},"tasks":{},"extensions":{"a/b":{}}}"#;
        for (from, to, expected) in [
            (V2026_07_28, V2025_11_25, r#"{"tools":{"listChanged":true}}"#),
            (V2025_11_25, V2026_07_28, r#"{"tools":{"listChanged":true}}"#),
            (V2025_11_25, V2025_06_18, r#"{"tools":{"listChanged":true},"extensions":{"a/b":{}}}"#),
        ] {
            assert_eq!(server(Way { from, to }, all).unwrap(), expected, "{from} {to}");
        }
    }
}
