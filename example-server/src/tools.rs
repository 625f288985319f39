//! What the server can do. `table` lists the tools; the other modules have one kind of them each.

mod asking;
pub(crate) mod content;
mod table;
mod tasks;
pub(crate) mod work;

use std::sync::atomic::Ordering;

use longshore_mcp::revision::{Revision, Structured, Tasks};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::answer::with_title;
use crate::call::Call;
use crate::failure::Failure;
use crate::server::{Change, Server};
use crate::tasks::Wanted;
use content::{audio, failed, image, resource, said, text};
use table::{EXTRA, TOOLS, Tool};

/// What a tool that could not be called says, or why there is nothing to be said.
type Outcome = Result<Value, Failure>;

/// Every tool of this server's revision.
pub(crate) fn list(server: &Server) -> Vec<Value> {
    present(server).map(|tool| entry(server, tool)).collect()
}

/// The input schema of a tool.
pub(crate) fn input_schema(server: &Server, name: &str) -> Option<Value> {
    present(server).find(|tool| tool.name == name).map(|tool| (tool.input)())
}

fn present(server: &Server) -> impl Iterator<Item = &'static Tool> + use<'_> {
    let extra = server.extra_tool.load(Ordering::Relaxed).then_some(&EXTRA);
    // Nobody could come back to a stream where streams have no ids.
    let is_there = |tool: &&Tool| {
        tool.since <= server.revision
            && (tool.name != "test_reconnection" || server.revision.features().priming)
    };
    TOOLS.iter().filter(is_there).chain(extra)
}

fn entry(server: &Server, tool: &Tool) -> Value {
    let mut entry =
        json!({"name": tool.name, "description": tool.description, "inputSchema": (tool.input)()});
    if server.revision >= Revision::V2025_03_26 && tool.name == "echo" {
        entry["annotations"] = json!({"title": "Echo", "readOnlyHint": true, "openWorldHint": false});
    }
    if server.revision.features().tasks == Tasks::Core
        && let Some(support) = tasks::support(tool.name)
    {
        entry["execution"] = json!({"taskSupport": support});
    }
    if let Some(schema) = output_schema(server.revision, tool.name) {
        entry["outputSchema"] = schema;
    }
    with_title(entry, server.revision, tool.description)
}

fn output_schema(revision: Revision, name: &str) -> Option<Value> {
    let structured = revision.features().structured;
    let object = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
    match name {
        "add" if structured >= Structured::Object => {
            Some(object(json!({"sum": {"type": "number"}}), &["sum"]))
        }
        "test_structured_content" => Some(object(json!({"number": {"type": "integer"}}), &["number"])),
        "test_structured_array" => Some(json!({"type": "array", "items": {"type": "integer"}})),
        _ => None,
    }
}

/// Calls one, as a task if that is wanted.
pub(crate) async fn call(
    call: &Call,
    name: &str,
    arguments: Map<String, Value>,
    task: Option<Wanted>,
) -> Outcome {
    if !present(&call.server).any(|tool| tool.name == name) {
        return Err(Failure::params(format!("Unknown tool: {name}")));
    }
    if call.revision().features().tasks == Tasks::Core {
        match (tasks::support(name), task) {
            (None, Some(_)) => return Err(Failure::method("this tool cannot be called as a task")),
            (Some("required"), None) => {
                return Err(Failure::method("this tool can be called as a task only"));
            }
            (Some(_), Some(wanted)) => {
                return Ok(crate::tasks::begin_in_session(call, name, arguments, &wanted));
            }
            (_, None) => {}
        }
    }
    match run(call, name, arguments).await {
        Err(Failure::Tool(why)) => Ok(failed(why)),
        other => other,
    }
}

/// Runs one as a task, whose failures are its own.
pub(crate) async fn run_task(call: &Call, name: &str, arguments: Map<String, Value>) -> Outcome {
    // What a call says when it has failed, its task says too.
    let mut result = match tasks::work(call, name, arguments).await {
        Err(Failure::Tool(why)) => failed(why),
        other => other?,
    };
    if call.revision().features().result_type {
        result["resultType"] = "complete".into();
    }
    Ok(result)
}

async fn run(call: &Call, name: &str, arguments: Map<String, Value>) -> Outcome {
    let server = &call.server;
    Ok(match name {
        "test_simple_text" => said("This is a simple text response for testing."),
        "test_image_content" => json!({"content": [image()]}),
        "test_audio_content" => json!({"content": [audio()]}),
        "test_embedded_resource" => json!({"content": [resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]}),
        "test_resource_link" => json!({"content": [{
            "type": "resource_link", "uri": "test://static-text", "name": "static-text", "mimeType": "text/plain",
        }]}),
        "test_multiple_content_types" => json!({"content": [
            text("Multiple content types test:"),
            image(),
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]}),
        "test_structured_content" => {
            json!({"content": [text(r#"{"number":7}"#)], "structuredContent": {"number": 7}})
        }
        "test_structured_array" => json!({"content": [text("[1,2,3]")], "structuredContent": [1, 2, 3]}),
        "test_error_handling" => failed("This tool intentionally returns an error for testing"),
        "test_custom_headers" => said(Value::Object(arguments).to_string()),
        "json_schema_2020_12_tool" => said(format!("called with {}", Value::Object(arguments))),
        "test_extra_tool" => said("It is here now."),
        "test_trigger_tool_change" => changed(server.toggle(&server.extra_tool, Change::Tools)),
        "test_trigger_prompt_change" => changed(server.toggle(&server.extra_prompt, Change::Prompts)),
        "test_trigger_resource_change" => changed(server.toggle(&server.extra_resource, Change::Resources)),
        "test_trigger_resource_update" => {
            let work::Update { uri } = read(call, arguments)?;
            if !crate::resources::exists(server, &uri) {
                return Err(Failure::Tool(format!("there is no resource {uri}")));
            }
            server.tell(Change::Resource(uri));
            said("said so")
        }
        "echo"
        | "add"
        | "countdown"
        | "now"
        | "test_tool_with_logging"
        | "test_logging_tool"
        | "test_tool_with_progress"
        | "test_reconnection" => return work::run(call, name, arguments).await,
        "greet"
        | "slow_compute"
        | "failing_job"
        | "protocol_error_job"
        | "confirm_delete"
        | "multi_input"
        | "test_tool_with_task" => return tasks::run(call, name, arguments).await,
        _ => return asking::run(call, name, arguments).await,
    })
}

fn changed(added: bool) -> Value {
    said(if added { "added" } else { "removed" })
}

/// Reads a tool's arguments. Until 2025-06-18 wrong ones are an error of the protocol; since then they are for the
/// model to read, and to do better.
fn read<T: DeserializeOwned>(call: &Call, arguments: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|wrong| {
        let text = format!("wrong arguments: {wrong}");
        if call.revision() >= Revision::V2025_11_25 { Failure::Tool(text) } else { Failure::params(text) }
    })
}
