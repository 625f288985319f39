//! What a server says of itself.

use longshore_mcp::initialize::Handshake;
use longshore_sidecar_config::inventory::ServerDescription;
use serde_json::Value;

/// The most of what a server says of itself, each in bytes.
const MAX_TEXT: usize = 64 * 1024;

/// What a server said of itself, as far as it is what the protocol says it should be: readers of the inventory need
/// not be prepared for anything else.
pub(super) fn describe(handshake: Handshake) -> ServerDescription {
    let object = |value: Value| match value {
        Value::Object(members) if Value::Object(members.clone()).to_string().len() <= MAX_TEXT => members,
        _ => serde_json::Map::new(),
    };
    let mut info = object(handshake.server_info);
    info.retain(|name, value| !matches!(name.as_str(), "name" | "version") || value.is_string());
    let instructions = handshake.instructions.map(|mut text| {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text
    });
    ServerDescription {
        info: info.into(),
        protocol_versions: vec![handshake.protocol_version.clone()],
        protocol_version: handshake.protocol_version,
        capabilities: object(handshake.capabilities).into(),
        instructions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_description_is_what_the_protocol_says_or_nothing() {
        for (handshake, info, capabilities) in [
            (json!({"protocolVersion": "v"}), json!({}), json!({})),
            (
                json!({"protocolVersion": "v", "serverInfo": {"name": 7, "version": "1", "x": 1}, "capabilities": []}),
                json!({"version": "1", "x": 1}),
                json!({}),
            ),
            (
                json!({"protocolVersion": "v", "serverInfo": "s", "capabilities": {"tools": {"x".repeat(MAX_TEXT): 1}}}),
                json!({}),
                json!({}),
            ),
            (
                json!({"protocolVersion": "v", "serverInfo": {"name": "n"}, "capabilities": {"tools": {}}}),
                json!({"name": "n"}),
                json!({"tools": {}}),
            ),
        ] {
            let description = describe(serde_json::from_value(handshake).unwrap());
            assert_eq!((description.info, description.capabilities), (info, capabilities));
        }
        let long = json!({"protocolVersion": "v", "instructions": "é".repeat(MAX_TEXT)});
        let description = describe(serde_json::from_value(long).unwrap());
        assert!(description.instructions.unwrap().len() <= MAX_TEXT);
    }
}
