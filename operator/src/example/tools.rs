//! What the example server can do.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, ProgressNotificationParam, Tool,
    ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

/// How long a countdown may be.
const MAX_SECONDS: f64 = 3600.0;
/// How often a countdown says how far it is.
const STEPS_A_SECOND: f64 = 4.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Echo {
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Countdown {
    seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Every tool.
pub(super) fn all() -> Vec<Tool> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "number", "description": description});
    vec![
        tool("echo", "Echo", "Says back what it is told", json!({"message": text("What to say back")})),
        tool(
            "add",
            "Add",
            "Adds two numbers",
            json!({"a": number("The first number"), "b": number("The second number")}),
        )
        .with_raw_output_schema(schema(json!({"sum": number("The sum")})).into()),
        tool(
            "countdown",
            "Count down",
            "Takes as many seconds as it is told, says four times a second how far it is, and can be cancelled",
            json!({"seconds": {
                "type": "number", "minimum": 0, "maximum": MAX_SECONDS, "description": "How long to take"
            }}),
        ),
        tool("now", "Time", "Tells the time of the machine that the server runs on, in UTC", json!({})),
    ]
}

/// Calls one of them.
pub(super) async fn call(
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let arguments = request.arguments.unwrap_or_default();
    let outcome = match &*request.name {
        "echo" => read(arguments).map(|Echo { message }| text(message)),
        "add" => read(arguments).and_then(|Add { a, b }| add(a, b)),
        "countdown" => match read(arguments) {
            Ok(Countdown { seconds }) => countdown(seconds, context).await,
            Err(wrong) => Err(wrong),
        },
        "now" => read(arguments).map(|Nothing {}| text(Timestamp::now().to_string())),
        name => return Err(ErrorData::invalid_params(format!("there is no tool {name:?}"), None)),
    };
    // What is wrong with the arguments is for the model to read and to do better.
    Ok(outcome.unwrap_or_else(|wrong| CallToolResult::error(vec![ContentBlock::text(wrong)])))
}

fn add(a: f64, b: f64) -> Result<CallToolResult, String> {
    let sum = a + b;
    if !sum.is_finite() {
        return Err("the sum is too large".to_owned());
    }
    let mut result = text(sum.to_string());
    result.structured_content = Some(json!({"sum": sum}));
    Ok(result)
}

async fn countdown(seconds: f64, context: &RequestContext<RoleServer>) -> Result<CallToolResult, String> {
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(format!("`seconds` is from 0 to {MAX_SECONDS}"));
    }
    let began = Instant::now();
    let steps = (seconds * STEPS_A_SECOND).floor();
    let mut step = 1.0;
    let end = began + Duration::from_secs_f64(seconds);
    loop {
        let next = began + Duration::from_secs_f64(step / STEPS_A_SECOND);
        tokio::select! {
            () = sleep_until(next.min(end)) => {}
            () = context.ct.cancelled() => return Err("cancelled".to_owned()),
        }
        if step > steps {
            return Ok(text(format!("counted down {seconds} seconds")));
        }
        if let Some(token) = context.meta.get_progress_token() {
            let done = step / STEPS_A_SECOND;
            let progress = ProgressNotificationParam::new(token, done)
                .with_total(seconds)
                .with_message(format!("{} seconds left", seconds - done));
            // Whoever asked may have gone; then nobody waits for the rest either.
            if context.peer.notify_progress(progress).await.is_err() {
                return Err("the client has gone".to_owned());
            }
        }
        step += 1.0;
    }
}

fn tool(name: &'static str, title: &str, description: &'static str, properties: Value) -> Tool {
    Tool::new(name, description, schema(properties))
        .with_title(title)
        .with_annotations(ToolAnnotations::new().read_only(true).idempotent(name != "now").open_world(false))
}

/// The schema of an object that has all of these.
fn schema(properties: Value) -> JsonObject {
    let required: Vec<_> =
        properties.as_object().into_iter().flat_map(|object| object.keys()).cloned().collect();
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("wrong arguments: {error}"))
}

fn text(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}
