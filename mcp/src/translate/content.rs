//! Content: what tools return and prompts are made of.
//!
//! The kinds of content are a closed list in each revision, so a kind that the reader does not know would make the
//! whole message unreadable.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/server/tools>

use std::borrow::Cow;

use serde_json::json;

use super::{Untranslatable, Way};
use crate::object::{Object, edit_elements, string};

/// What audio is called where it has to be a resource. A resource needs some URI.
const AUDIO_URI: &str = "mcp:audio";

/// Whether each kind of content is one that its reader knows, so that nobody needs to look.
pub(crate) fn all_pass(way: Way) -> bool {
    let knows = way.to.features();
    knows.audio && knows.resource_links
}

/// A list of blocks, which is JSON.
pub fn blocks(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if all_pass(way) {
        return Ok(Cow::Borrowed(json));
    }
    edit_elements(json, |_| way.unreadable("content"), |element| Ok(vec![block(way, element)?]))
}

/// One block.
pub fn block(way: Way, json: &str) -> Result<Cow<'_, str>, Untranslatable> {
    let knows = way.to.features();
    let content = way.object("a block of content", json)?;
    match content.string("type").as_deref() {
        Some("audio") if !knows.audio => as_resource(way, &content).map(Cow::Owned),
        Some("resource_link") if !knows.resource_links => as_text(way, &content).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(json)),
    }
}

/// Audio as an embedded resource, which every revision has: all of it is still there to be heard.
fn as_resource(way: Way, audio: &Object<'_>) -> Result<String, Untranslatable> {
    let (Some(data), Some(kind)) = (audio.get("data"), audio.get("mimeType")) else {
        return Err(way.unreadable("a block of audio"));
    };
    let rest = rest(audio);
    Ok(format!(
        r#"{{"type":"resource","resource":{{"uri":"{AUDIO_URI}","mimeType":{kind},"blob":{data}}}{rest}}}"#
    ))
}

/// A link as words, for the model to read. A resource would claim to hold what is only linked to.
fn as_text(way: Way, link: &Object<'_>) -> Result<String, Untranslatable> {
    let member = |name: &str| link.get(name).and_then(string);
    let uri = member("uri").ok_or_else(|| way.unreadable("a resource link"))?;
    let mut text = match member("title").or_else(|| member("name")) {
        Some(name) => format!("{name}: {uri}"),
        None => uri.into_owned(),
    };
    if let Some(kind) = member("mimeType") {
        text.push_str(&format!(" ({kind})"));
    }
    if let Some(description) = member("description") {
        text.push('\n');
        text.push_str(&description);
    }
    let (text, rest) = (json!(text), rest(link));
    Ok(format!(r#"{{"type":"text","text":{text}{rest}}}"#))
}

/// What a block of any kind may have, as members that follow others.
fn rest(block: &Object<'_>) -> String {
    let member = |name| block.present(name).map(|json| format!(",\"{name}\":{json}"));
    ["annotations", "_meta"].into_iter().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision;

    #[test]
    fn kinds_that_are_not_known_become_others() {
        let all = r#"[ {"type":"text","text":"a"}, {"type":"audio","mimeType":"audio/wav","data":"AA==","annotations":{"priority":1},"_meta":null},{"type":"resource_link","uri":"a://b","annotations":null,"_meta":{ "x":1},"name":"n","mimeType":"text/plain","description":"d"}]"#;
        let resource = r#"{"type":"resource","resource":{"uri":"mcp:audio","mimeType":"audio/wav","blob":"AA=="},"annotations":{"priority":1}}"#;
        let text = r#"{"type":"text","text":"n: a://b (text/plain)\nd","_meta":{ "x":1}}"#;
        for to in Revision::ALL {
            let way = Way { from: Revision::V2026_07_28, to };
            let written = blocks(way, all).unwrap();
            match to {
                Revision::V2024_11_05 => {
                    assert_eq!(written, format!(r#"[{{"type":"text","text":"a"}},{resource},{text}]"#));
                }
                Revision::V2025_03_26 => {
                    assert!(written.contains("audio/wav\",\"data") && written.contains(text))
                }
                _ => assert!(matches!(written, Cow::Borrowed(same) if same == all)),
            }
        }
        let way = Way { from: Revision::V2025_03_26, to: Revision::V2024_11_05 };
        assert_eq!(
            block(way, r#"{"type":"audio"}"#).unwrap_err().to_string(),
            "a block of audio is not usable in revision 2025-03-26, and was to be passed on to revision 2024-11-05 of \
             MCP"
        );
    }
}
