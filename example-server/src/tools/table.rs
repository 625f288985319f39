//! The tools, and which revisions have them.

use longshore_mcp::revision::Revision;
use serde_json::{Map, Value, json};

use Revision::{V2024_11_05 as ALL, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

/// A tool.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// The first revision with what it shows.
    pub(crate) since: Revision,
    /// Its input schema.
    pub(crate) input: fn() -> Value,
}

const fn tool(name: &'static str, description: &'static str, since: Revision, input: fn() -> Value) -> Tool {
    Tool { name, description, since, input }
}

/// Every tool, in the order in which it is listed.
pub(crate) const TOOLS: &[Tool] = &[
    tool("echo", "Says back what it is told", ALL, || object(json!({"message": text("What to say back")}))),
    tool("add", "Adds two numbers", ALL, || {
        object(json!({"a": number("The first number"), "b": number("The second number")}))
    }),
    tool("countdown", "Takes as many seconds as it is told, and says how far it is", ALL, || {
        object(json!({"seconds": {"type": "number", "minimum": 0, "maximum": super::work::MAX_SECONDS}}))
    }),
    tool("now", "Tells the time of its machine, in UTC", ALL, nothing),
    tool("test_simple_text", "Returns a text", ALL, nothing),
    tool("test_image_content", "Returns an image", ALL, nothing),
    tool("test_audio_content", "Returns a sound", V2025_03_26, nothing),
    tool("test_embedded_resource", "Returns a resource", ALL, nothing),
    tool("test_resource_link", "Returns links to resources", V2025_06_18, nothing),
    tool("test_multiple_content_types", "Returns a text, an image and a resource", ALL, nothing),
    tool("test_structured_content", "Returns an object beside its content", V2025_06_18, nothing),
    tool("test_structured_array", "Returns an array beside its content", V2026_07_28, nothing),
    tool("test_error_handling", "Fails", ALL, nothing),
    tool("test_tool_with_logging", "Logs three times", ALL, nothing),
    tool("test_logging_tool", "Logs once at each level", ALL, nothing),
    tool("test_tool_with_progress", "Reports progress three times", ALL, nothing),
    tool("test_reconnection", "Hangs up on its client before it has answered", V2025_11_25, nothing),
    tool("test_sampling", "Asks for the answer of a model", ALL, || {
        object(json!({"prompt": text("The prompt to send to the model")}))
    }),
    tool(
        "test_sampling_with_tools",
        "Offers tools to a model, and does what it wants done",
        V2025_11_25,
        || object(json!({"prompt": text("The prompt to send to the model")})),
    ),
    tool("test_missing_capability", "Needs a client with sampling, and does not use it", ALL, nothing),
    tool("test_elicitation", "Asks the user", V2025_06_18, || {
        object(json!({"message": text("The message to show the user")}))
    }),
    tool("test_elicitation_sep1034_defaults", "Asks with defaults", V2025_11_25, nothing),
    tool("test_elicitation_sep1330_enums", "Asks with every kind of choice", V2025_11_25, nothing),
    tool("test_elicitation_url", "Asks the user to visit a page", V2025_11_25, nothing),
    tool("test_elicitation_url_required", "Refuses until the user has visited a page", V2025_11_25, nothing),
    tool("test_streaming_elicitation", "Begins a stream, then asks the user", V2025_06_18, nothing),
    tool("test_input_required_result_elicitation", "Asks for a name", V2025_06_18, nothing),
    tool("test_input_required_result_sampling", "Asks for a capital", ALL, nothing),
    tool("test_input_required_result_list_roots", "Asks for the client's roots", ALL, nothing),
    tool("test_input_required_result_request_state", "Asks, and remembers that it did", V2025_06_18, nothing),
    tool("test_input_required_result_multiple_inputs", "Asks three things at once", V2025_06_18, nothing),
    tool("test_input_required_result_multi_round", "Asks twice", V2025_06_18, nothing),
    tool("test_input_required_result_tampered_state", "Asks, and looks at what comes back", ALL, nothing),
    tool("test_input_required_result_capabilities", "Asks what its client can be asked", ALL, nothing),
    tool("test_trigger_tool_change", "Adds a tool, or removes it again", ALL, nothing),
    tool("test_trigger_prompt_change", "Adds a prompt, or removes it again", ALL, nothing),
    tool("test_trigger_resource_change", "Adds a resource, or removes it again", ALL, nothing),
    tool("test_trigger_resource_update", "Says that a resource has changed", ALL, || {
        object(json!({"uri": text("Which")}))
    }),
    tool("json_schema_2020_12_tool", "Has a schema with much in it", V2025_11_25, rich),
    tool("test_custom_headers", "Takes arguments that are repeated as headers", V2026_07_28, || {
        json!({
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region", "description": "Any text"},
                "priority": {"type": "integer", "x-mcp-header": "Priority", "description": "Any number"},
                "dryRun": {"type": "boolean", "x-mcp-header": "Dry-Run", "description": "Yes or no"},
            },
        })
    }),
    tool("greet", "Greets somebody", V2025_11_25, || optional(json!({"name": text("Whom")}))),
    tool(
        "slow_compute",
        "Takes as many seconds as it is told, as a task if its client has tasks",
        V2025_11_25,
        || optional(json!({"seconds": number("How many"), "label": text("What it is called")})),
    ),
    tool("failing_job", "Fails, as a task", V2025_11_25, nothing),
    tool("protocol_error_job", "Ends with an error of the protocol, as a task", V2025_11_25, nothing),
    tool("confirm_delete", "Asks before it does anything, as a task", V2025_11_25, || {
        optional(json!({"filename": text("What would be deleted")}))
    }),
    tool("multi_input", "Asks two things at once, as a task", V2025_11_25, nothing),
    tool("test_tool_with_task", "Asks for a name, then goes on as a task", V2026_07_28, nothing),
];

/// The tool that comes and goes.
pub(crate) const EXTRA: Tool = tool("test_extra_tool", "Comes and goes", ALL, nothing);

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "number", "description": description})
}

/// The schema of an object that has all of these.
fn object(properties: Value) -> Value {
    let required: Vec<_> =
        properties.as_object().map(Map::keys).into_iter().flatten().map(String::as_str).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// The schema of an object that may have any of these.
fn optional(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn nothing() -> Value {
    json!({"type": "object", "properties": {}})
}

fn rich() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}
