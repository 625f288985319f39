//! What there is to read at the example server: a resource, a template of resources, a prompt.

use rmcp::ErrorData;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate, Role,
};
use serde_json::json;

const WELCOME: &str = "example://welcome";
const WELCOME_TEXT: &str =
    "This is Longshore's example server. If you can read this, your client has come through.\n";
const GREETING: &str = "example://greeting/";
const GREET: &str = "greet";
/// The longest name that is greeted.
const MAX_NAME: usize = 256;

pub(super) fn resources() -> Vec<Resource> {
    vec![
        Resource::new(WELCOME, "welcome")
            .with_title("Welcome")
            .with_description("A text to read")
            .with_mime_type("text/plain"),
    ]
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{GREETING}{{name}}"), "greeting")
            .with_title("Greeting")
            .with_description("A greeting for somebody")
            .with_mime_type("text/plain"),
    ]
}

pub(super) fn prompts() -> Vec<Prompt> {
    let name = PromptArgument::new("name").with_description("Whom to greet").with_required(true);
    vec![Prompt::new(GREET, Some("Asks for a greeting"), Some(vec![name])).with_title("Greet somebody")]
}

pub(super) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let text = match uri.strip_prefix(GREETING) {
        Some(name) if !name.is_empty() && name.len() <= MAX_NAME && !name.contains('/') => {
            format!("Hello, {name}!\n")
        }
        None if uri == WELCOME => WELCOME_TEXT.to_owned(),
        Some(_) | None => {
            let message = format!("there is no such resource: read {WELCOME} or {GREETING}NAME");
            return Err(ErrorData::resource_not_found(message, Some(json!({"uri": uri}))));
        }
    };
    let contents = ResourceContents::text(text, uri).with_mime_type("text/plain");
    Ok(ReadResourceResult::new(vec![contents]))
}

pub(super) fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResult, ErrorData> {
    let wrong = |message: &str| ErrorData::invalid_params(message.to_owned(), None);
    if request.name != GREET {
        return Err(wrong("there is no such prompt: get `greet`"));
    }
    let name = request.arguments.as_ref().and_then(|arguments| arguments.get("name"));
    match name.and_then(|name| name.as_str()) {
        Some(name) if !name.is_empty() && name.len() <= MAX_NAME => {
            let message = PromptMessage::new_text(Role::User, format!("Write a short greeting for {name}."));
            Ok(GetPromptResult::new(vec![message]).with_description("Asks for a greeting"))
        }
        _ => Err(wrong("`greet` needs the argument `name`, of at most 256 bytes")),
    }
}
