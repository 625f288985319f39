//! The schemas of the revisions.

use std::cell::RefCell;
use std::collections::HashMap;

use jsonschema::Validator;
use longshore_mcp::revision::Revision;
use serde_json::{Value, json};

thread_local! {
    static VALIDATORS: RefCell<HashMap<(Revision, String), Validator>> = RefCell::default();
}

/// Fails if a value is no such thing in this revision.
#[track_caller]
pub(crate) fn check(revision: Revision, definition: &str, value: &Value) {
    let faults = VALIDATORS.with_borrow_mut(|validators| -> Vec<String> {
        let validator = validators.entry((revision, definition.to_owned())).or_insert_with(|| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../mcp/tests/schemas");
            let text = std::fs::read_to_string(format!("{folder}/{revision}.json")).unwrap();
            let mut schema: Value = serde_json::from_str(&text).unwrap();
            let folder = if schema.get("$defs").is_some() { "$defs" } else { "definitions" };
            assert!(schema[folder].get(definition).is_some(), "{revision} has no {definition}");
            schema["allOf"] = json!([{"$ref": format!("#/{folder}/{definition}")}]);
            jsonschema::validator_for(&schema).unwrap()
        });
        validator.iter_errors(value).map(|error| format!("{error} at {}", error.instance_path())).collect()
    });
    assert!(faults.is_empty(), "no {definition} of {revision}: {faults:?}\n{value:#}");
}

/// Fails if a message that the server sent is none of this revision.
#[track_caller]
pub(crate) fn check_message(revision: Revision, message: &Value) {
    check(revision, "JSONRPCMessage", message);
    if let Some(method) = message["method"].as_str() {
        let definition = if message.get("id").is_some() { "ServerRequest" } else { "ServerNotification" };
        assert!(method.starts_with("notifications/") || definition == "ServerRequest", "{message}");
        check(revision, definition, message);
    }
    if let Some(result) = message.get("result") {
        check(revision, "Result", result);
    }
}
