//! The definitions in them.

use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use longshore_mcp::method::{List, Method, ServerNotification, ServerRequest};
use longshore_mcp::revision::Revision;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// What was compiled, which takes far longer than to use it. It stays for as long as the program.
static VALIDATORS: LazyLock<Mutex<HashMap<(Revision, String), &'static Validator>>> =
    LazyLock::new(Mutex::default);

static DOCUMENTS: LazyLock<[Value; 5]> = LazyLock::new(|| {
    [
        include_str!("../../tests/schemas/2024-11-05.json"),
        include_str!("../../tests/schemas/2025-03-26.json"),
        include_str!("../../tests/schemas/2025-06-18.json"),
        include_str!("../../tests/schemas/2025-11-25.json"),
        include_str!("../../tests/schemas/2026-07-28.json"),
    ]
    .map(|text| serde_json::from_str(text).unwrap())
});

fn document(revision: Revision) -> &'static Value {
    &DOCUMENTS[Revision::ALL.iter().position(|known| *known == revision).unwrap()]
}

/// The definitions of a revision, and the name of their folder.
fn definitions(revision: Revision) -> (&'static str, &'static Value) {
    let document = document(revision);
    let folder = if document.get("$defs").is_some() { "$defs" } else { "definitions" };
    (folder, &document[folder])
}

fn validator(revision: Revision, definition: &str) -> &'static Validator {
    let mut validators = VALIDATORS.lock();
    validators.entry((revision, definition.to_owned())).or_insert_with(|| {
        let (folder, definitions) = definitions(revision);
        assert!(definitions.get(definition).is_some(), "{revision} has no {definition}");
        let mut schema = document(revision).clone();
        schema["allOf"] = json!([{"$ref": format!("#/{folder}/{definition}")}]);
        Box::leak(Box::new(jsonschema::validator_for(&schema).unwrap()))
    })
}

/// What is wrong with a value, by a definition of a revision's schema.
#[must_use]
pub fn faults(revision: Revision, definition: &str, value: &Value) -> Vec<String> {
    let errors = validator(revision, definition).iter_errors(value);
    errors.map(|error| format!("{error} at {}", error.instance_path())).collect()
}

/// Fails if a text is no such thing.
#[track_caller]
pub fn check(revision: Revision, definition: &str, text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let faults = faults(revision, definition, &value);
    assert!(faults.is_empty(), "no {definition} of {revision}: {faults:?}\n{text}");
}

/// The definition of a method's request.
#[must_use]
pub fn request_of(method: Method) -> &'static str {
    match method {
        Method::Initialize => "InitializeRequest",
        Method::Ping => "PingRequest",
        Method::ToolsList => "ListToolsRequest",
        Method::ToolsCall => "CallToolRequest",
        Method::PromptsList => "ListPromptsRequest",
        Method::PromptsGet => "GetPromptRequest",
        Method::ResourcesList => "ListResourcesRequest",
        Method::ResourcesTemplatesList => "ListResourceTemplatesRequest",
        Method::ResourcesRead => "ReadResourceRequest",
        Method::ResourcesSubscribe => "SubscribeRequest",
        Method::ResourcesUnsubscribe => "UnsubscribeRequest",
        Method::CompletionComplete => "CompleteRequest",
        Method::LoggingSetLevel => "SetLevelRequest",
        Method::ServerDiscover => "DiscoverRequest",
        Method::SubscriptionsListen => "SubscriptionsListenRequest",
        // The extension is no part of the schema of 2026-07-28.
        Method::TasksUpdate => "JSONRPCRequest",
        Method::TasksGet => "GetTaskRequest",
        Method::TasksCancel => "CancelTaskRequest",
        Method::TasksResult => "GetTaskPayloadRequest",
        Method::TasksList => "ListTasksRequest",
    }
}

/// The definition of a method's result.
#[must_use]
pub fn result_of(method: Method) -> &'static str {
    match method {
        Method::Initialize => "InitializeResult",
        Method::ToolsCall => "CallToolResult",
        Method::PromptsGet => "GetPromptResult",
        Method::ResourcesRead => "ReadResourceResult",
        Method::CompletionComplete => "CompleteResult",
        Method::ServerDiscover => "DiscoverResult",
        Method::SubscriptionsListen => "SubscriptionsListenResult",
        Method::TasksGet => "GetTaskResult",
        Method::TasksCancel => "CancelTaskResult",
        Method::TasksList => "ListTasksResult",
        _ => match method.list() {
            Some(List::Tools) => "ListToolsResult",
            Some(List::Prompts) => "ListPromptsResult",
            Some(List::Resources) => "ListResourcesResult",
            Some(List::ResourceTemplates) => "ListResourceTemplatesResult",
            None => "Result",
        },
    }
}

/// The definition of an error response.
#[must_use]
pub fn error_of(revision: Revision) -> &'static str {
    if revision.features().errors_without_id { "JSONRPCErrorResponse" } else { "JSONRPCError" }
}

/// The definition of a server's request.
#[must_use]
pub fn question_of(request: ServerRequest) -> &'static str {
    match request {
        ServerRequest::Ping => "PingRequest",
        ServerRequest::SamplingCreateMessage => "CreateMessageRequest",
        ServerRequest::ElicitationCreate => "ElicitRequest",
        ServerRequest::RootsList => "ListRootsRequest",
    }
}

/// The definition of a client's answer to it.
#[must_use]
pub(crate) fn answer_of(request: ServerRequest) -> &'static str {
    match request {
        ServerRequest::Ping => "Result",
        ServerRequest::SamplingCreateMessage => "CreateMessageResult",
        ServerRequest::ElicitationCreate => "ElicitResult",
        ServerRequest::RootsList => "ListRootsResult",
    }
}

/// The definition of a server's notification.
#[must_use]
pub(crate) fn told_of(told: ServerNotification) -> &'static str {
    match told {
        ServerNotification::Cancelled => "CancelledNotification",
        ServerNotification::Progress => "ProgressNotification",
        ServerNotification::Message => "LoggingMessageNotification",
        ServerNotification::ResourcesUpdated => "ResourceUpdatedNotification",
        ServerNotification::ResourcesListChanged => "ResourceListChangedNotification",
        ServerNotification::ToolsListChanged => "ToolListChangedNotification",
        ServerNotification::PromptsListChanged => "PromptListChangedNotification",
        ServerNotification::ElicitationComplete => "ElicitationCompleteNotification",
        ServerNotification::SubscriptionsAcknowledged => "SubscriptionsAcknowledgedNotification",
    }
}

/// Whether a revision has a definition of this name.
#[must_use]
pub(crate) fn is_defined(revision: Revision, definition: &str) -> bool {
    definitions(revision).1.get(definition).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_are_those_of_the_revisions() {
        check(Revision::V2024_11_05, "ListToolsRequest", r#"{"method":"tools/list"}"#);
        let bare: Value = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        assert!(faults(Revision::V2025_11_25, "ListToolsRequest", &bare).is_empty());
        assert!(!faults(Revision::V2026_07_28, "ListToolsRequest", &bare).is_empty());
        let result = json!({"content": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]});
        assert!(!faults(Revision::V2024_11_05, "CallToolResult", &result).is_empty());
        assert!(faults(Revision::V2025_03_26, "CallToolResult", &result).is_empty());
    }
}
