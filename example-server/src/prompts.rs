//! Prompts.

use std::sync::atomic::Ordering;

use longshore_mcp::revision::Elicitation;
use serde_json::{Map, Value, json};

use crate::answer::with_title;
use crate::call::Call;
use crate::failure::Failure;
use crate::question::Question;
use crate::server::Server;
use crate::tools::content::PNG;

/// Every prompt.
pub(crate) fn list(server: &Server) -> Vec<Value> {
    let prompt = |name: &str, description: &str, arguments: &[(&str, &str)]| {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|(name, description)| json!({"name": name, "description": description, "required": true}))
            .collect();
        let mut prompt = json!({"name": name, "description": description});
        if !arguments.is_empty() {
            prompt["arguments"] = arguments.into();
        }
        with_title(prompt, server.revision, description)
    };
    let mut all = vec![
        prompt("test_simple_prompt", "A prompt without arguments", &[]),
        prompt(
            "test_prompt_with_arguments",
            "A prompt with arguments",
            &[("arg1", "First test argument"), ("arg2", "Second test argument")],
        ),
        prompt(
            "test_prompt_with_embedded_resource",
            "A prompt with a resource in it",
            &[("resourceUri", "URI of the resource to embed")],
        ),
        prompt("test_prompt_with_image", "A prompt with an image in it", &[]),
    ];
    if server.revision.features().elicitation > Elicitation::None {
        all.push(prompt("test_input_required_result_prompt", "A prompt that asks for something first", &[]));
    }
    if server.extra_prompt.load(Ordering::Relaxed) {
        all.push(prompt("test_extra_prompt", "A prompt that comes and goes", &[]));
    }
    all
}

/// Gets one.
pub(crate) async fn get(call: &Call, name: &str, arguments: &Map<String, Value>) -> Result<Value, Failure> {
    let known = list(&call.server);
    let Some(prompt) = known.iter().find(|prompt| prompt["name"] == name) else {
        return Err(Failure::params(format!("there is no prompt {name:?}")));
    };
    for argument in prompt["arguments"].as_array().into_iter().flatten() {
        let argument = argument["name"].as_str().unwrap_or_default();
        if !arguments.contains_key(argument) {
            return Err(Failure::params(format!("{name} needs the argument {argument:?}")));
        }
    }
    if let Some((wrong, _)) = arguments.iter().find(|(_, value)| !value.is_string()) {
        return Err(Failure::params(format!("the argument {wrong:?} has to be a string")));
    }
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = |text: &str| user(json!({"type": "text", "text": text}));
    let messages = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => vec![text(&format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2")
        ))],
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            vec![
                user(json!({"type": "resource", "resource": resource})),
                text("Please process the embedded resource above."),
            ]
        }
        "test_prompt_with_image" => vec![
            user(json!({"type": "image", "data": PNG, "mimeType": "image/png"})),
            text("Please analyze the image above."),
        ],
        "test_input_required_result_prompt" => {
            let question = Question::form(
                "user_context",
                "What context should the prompt use?",
                json!({"context": {"type": "string"}}),
                &["context"],
            );
            let answer = call.ask(question).await?;
            let context = answer["content"]["context"].as_str().unwrap_or("no context");
            vec![text(&format!("Use this context: {context}"))]
        }
        _ => vec![text("It is here now.")],
    };
    Ok(json!({"description": prompt["description"], "messages": messages}))
}

fn user(content: Value) -> Value {
    json!({"role": "user", "content": content})
}
