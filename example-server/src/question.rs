//! What the server asks of its client, and what it takes for an answer.

use longshore_mcp::capabilities::Need;
use serde_json::{Map, Value, json};

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// What its answer is known by, in 2026-07-28.
    pub(crate) key: &'static str,
    /// The request's method.
    pub(crate) method: &'static str,
    /// Its parameters.
    pub(crate) params: Value,
    /// What the client has to be able to do.
    pub(crate) need: Need,
}

impl Question {
    /// A form.
    pub(crate) fn form(key: &'static str, message: &str, properties: Value, required: &[&str]) -> Self {
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties);
        if !required.is_empty() {
            schema.insert("required".into(), json!(required));
        }
        let params = json!({"message": message, "requestedSchema": schema});
        Self { key, method: "elicitation/create", params, need: Need::ElicitationForm }
    }

    /// A page to visit. `elicitation` is its id, in the revision where it has one.
    pub(crate) fn visit(key: &'static str, message: &str, url: &str, elicitation: Option<&str>) -> Self {
        let mut params = json!({"mode": "url", "message": message, "url": url});
        if let Some(id) = elicitation {
            params["elicitationId"] = id.into();
        }
        Self { key, method: "elicitation/create", params, need: Need::ElicitationUrl }
    }

    /// A text for a model to go on with.
    pub(crate) fn sample(key: &'static str, prompt: &str, max_tokens: u32) -> Self {
        let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
        let params = json!({"messages": [message], "maxTokens": max_tokens});
        Self { key, method: "sampling/createMessage", params, need: Need::Sampling }
    }

    /// What a model says next in a conversation, which may use these tools for it.
    pub(crate) fn sample_with_tools(key: &'static str, messages: &Value, tools: &Value) -> Self {
        let params = json!({
            "messages": messages, "maxTokens": 100, "tools": tools, "toolChoice": {"mode": "auto"},
        });
        Self { key, method: "sampling/createMessage", params, need: Need::SamplingTools }
    }

    /// The client's roots.
    pub(crate) fn roots(key: &'static str) -> Self {
        Self { key, method: "roots/list", params: json!({}), need: Need::Roots }
    }

    /// The question as part of a result.
    pub(crate) fn write(&self) -> Value {
        json!({"method": self.method, "params": self.params})
    }

    /// What is wrong with an answer, if something is.
    pub(crate) fn judge(&self, answer: &Value) -> Result<(), &'static str> {
        match self.method {
            "elicitation/create" => match answer["action"].as_str() {
                Some("accept") => self.judge_content(answer),
                Some("decline" | "cancel") => Ok(()),
                _ => Err("\"action\" has to be accept, decline or cancel"),
            },
            "sampling/createMessage" => {
                let is_block = answer["content"]["type"].is_string();
                let is_blocks = answer["content"]
                    .as_array()
                    .is_some_and(|blocks| blocks.iter().all(|block| block["type"].is_string()));
                let has_role = matches!(answer["role"].as_str(), Some("user" | "assistant"));
                if has_role && answer["model"].is_string() && (is_block || is_blocks) {
                    Ok(())
                } else {
                    Err("a message needs \"role\", \"content\" and \"model\"")
                }
            }
            _ => match answer["roots"].as_array() {
                Some(roots) if roots.iter().all(|root| root["uri"].is_string()) => Ok(()),
                _ => Err("\"roots\" has to be an array of objects with a \"uri\""),
            },
        }
    }

    fn judge_content(&self, answer: &Value) -> Result<(), &'static str> {
        if self.need == Need::ElicitationUrl {
            return if answer.get("content").is_none() { Ok(()) } else { Err("a visit has no \"content\"") };
        }
        let Some(content) = answer["content"].as_object() else {
            return Err("an accepted form needs \"content\"");
        };
        let schema = &self.params["requestedSchema"];
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in required {
            if !content.contains_key(name) {
                return Err("a field that the form requires is missing");
            }
        }
        for (name, value) in content {
            let fits = match schema["properties"][name]["type"].as_str() {
                Some("string") => value.is_string(),
                Some("boolean") => value.is_boolean(),
                Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
                Some("number") => value.is_number(),
                Some("array") => value.is_array(),
                _ => false,
            };
            if !fits {
                return Err("a field is not one of the form, or of another type");
            }
        }
        Ok(())
    }
}
