//! The digest of tool definitions: the same for the same definitions, in whatever order the tools or their members
//! come.

use serde_json::Value;

use crate::configuration::digest;

/// The digest of a list of tools.
pub(super) fn of_tools(tools: &[Value]) -> String {
    let mut texts: Vec<String> = tools.iter().map(canonical).collect();
    texts.sort_unstable();
    digest(texts.join("\n").as_bytes())
}

/// JSON with the members of every object in order, and no white space.
fn canonical(tool: &Value) -> String {
    let mut tool = tool.clone();
    tool.sort_all_objects();
    tool.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_does_not_matter_and_content_does() {
        let (a, b) = (json!({"name": "a", "x": [1, {"p": 1, "q": 2}]}), json!({"name": "b"}));
        let same: Value = serde_json::from_str(r#"{"x":[1,{"q":2,"p":1}],"name":"a"}"#).unwrap();
        let digest = of_tools(&[a.clone(), b.clone()]);
        assert_eq!(digest, of_tools(&[b.clone(), same]));
        assert_ne!(digest, of_tools(&[a, json!({"name": "b", "description": ""})]));
        // Other releases say the same of the same tools.
        assert_eq!(digest, "sha256:61d3e5d71687bae157b982e47bf6c8ba08df3d4ae83b240515be54cb3fa53ca1");
        let reordered = json!({"name": "a", "x": [{"p": 1, "q": 2}, 1]});
        assert_ne!(digest, of_tools(&[reordered, b]));
    }
}
