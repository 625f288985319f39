//! The schemas of the revisions.

use std::cell::RefCell;
use std::collections::HashMap;

use jsonschema::Validator;
use longshore_mcp::method::{List, Method};
use longshore_mcp::revision::Revision;
use serde_json::{Value, json};

thread_local! {
    static VALIDATORS: RefCell<HashMap<(Revision, String), Validator>> = RefCell::default();
}

fn document(revision: Revision) -> Value {
    let text = match revision {
        Revision::V2024_11_05 => include_str!("../schemas/2024-11-05.json"),
        Revision::V2025_03_26 => include_str!("../schemas/2025-03-26.json"),
        Revision::V2025_06_18 => include_str!("../schemas/2025-06-18.json"),
        Revision::V2025_11_25 => include_str!("../schemas/2025-11-25.json"),
        Revision::V2026_07_28 => include_str!("../schemas/2026-07-28.json"),
    };
    serde_json::from_str(text).unwrap()
}

/// What is wrong with a value, by a definition of a revision's schema.
pub(crate) fn faults(revision: Revision, definition: &str, value: &Value) -> Vec<String> {
    VALIDATORS.with_borrow_mut(|validators| {
        let validator = validators.entry((revision, definition.to_owned())).or_insert_with(|| {
            let mut schema = document(revision);
            let folder = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
            assert!(schema[folder].get(definition).is_some(), "{revision} has no {definition}");
            schema["allOf"] = json!([{"$ref": format!("#/{folder}/{definition}")}]);
            jsonschema::validator_for(&schema).unwrap()
        });
        validator.iter_errors(value).map(|error| format!("{error} at {}", error.instance_path())).collect()
    })
}

/// Fails if a text is no such thing.
#[track_caller]
pub(crate) fn check(revision: Revision, definition: &str, text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let faults = faults(revision, definition, &value);
    assert!(faults.is_empty(), "no {definition} of {revision}: {faults:?}\n{text}");
}

/// The definition of a method's request.
pub(crate) fn request_of(method: Method) -> &'static str {
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
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => "JSONRPCRequest",
    }
}

/// The definition of a method's result.
pub(crate) fn result_of(method: Method) -> &'static str {
    match method {
        Method::Initialize => "InitializeResult",
        Method::ToolsCall => "CallToolResult",
        Method::PromptsGet => "GetPromptResult",
        Method::ResourcesRead => "ReadResourceResult",
        Method::CompletionComplete => "CompleteResult",
        Method::ServerDiscover => "DiscoverResult",
        Method::SubscriptionsListen => "SubscriptionsListenResult",
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
pub(crate) fn error_of(revision: Revision) -> &'static str {
    if revision.features().errors_without_id { "JSONRPCErrorResponse" } else { "JSONRPCError" }
}

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
