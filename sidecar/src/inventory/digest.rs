//! The digest of tool definitions: the same for the same definitions, in whatever order the tools or their members
//! come.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::configuration::digest;

/// The digest of a list of tools.
pub(super) fn of_tools(tools: &[Value]) -> String {
    let mut texts: Vec<String> = tools.iter().map(canonical).collect();
    texts.sort_unstable();
    digest(texts.join("\n").as_bytes())
}

/// JSON with the members of every object in order, and no white space.
fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<_, _> = members.iter().collect();
            text.push('{');
            for (at, (name, value)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(value, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string())
        }
    }
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
        assert!(digest.starts_with("sha256:"));
        assert_eq!(digest.len(), 71);
        let reordered = json!({"name": "a", "x": [{"p": 1, "q": 2}, 1]});
        assert_ne!(digest, of_tools(&[reordered, b]));
    }
}
