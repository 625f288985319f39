//! What the server can do.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Notifications, Reply, Session, error};

/// The most bytes that a notification carries in addition.
const MAX_PADDING: usize = 1 << 20;

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow)]
    progress_token: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Wait {
    milliseconds: u64,
}

#[derive(Deserialize)]
struct Notify {
    count: u64,
    #[serde(default)]
    milliseconds: u64,
    #[serde(default)]
    padding: usize,
    #[serde(default)]
    ask: bool,
}

#[derive(Deserialize)]
struct Remember<'a> {
    #[serde(borrow)]
    value: &'a RawValue,
}

#[derive(Deserialize)]
struct Exit {
    #[serde(default)]
    status: u8,
}

/// The result of `tools/list`.
pub(crate) fn list() -> String {
    let tool = |name: &str, description: &str, needed: &[&str]| -> Value {
        let properties: serde_json::Map<_, _> =
            needed.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        json!({
            "name": name,
            "description": description,
            "inputSchema": {"type": "object", "properties": properties, "required": needed},
        })
    };
    json!({"tools": [
        tool("echo", "Gives back its arguments", &[]),
        tool("wait", "The same after a time", &["milliseconds"]),
        tool("notify", "The same after numbered notifications, or questions", &["count"]),
        tool("announce", "The same before numbered notifications that belong to no call", &["count"]),
        tool("remember", "Keeps a value for this session", &["value"]),
        tool("recall", "Gives back what this session has kept", &[]),
        tool("sicken", "Has the probe fail from now on", &[]),
        tool("exit", "Ends the process", &[]),
    ]})
    .to_string()
}

/// Answers `tools/call`.
pub(crate) fn call(session: &mut Session, id: &str, params: &str) -> Reply {
    answer(session, id, params).unwrap_or_else(|wrong| Reply::Now(error(id, -32602, &wrong.to_string())))
}

fn answer(session: &mut Session, id: &str, params: &str) -> Result<Reply, serde_json::Error> {
    let call: Call<'_> = serde_json::from_str(params)?;
    let arguments = call.arguments.map_or("{}", RawValue::get);
    Ok(match &*call.name {
        "echo" => Reply::Now(session.tool_result(id, arguments, "")),
        "wait" => {
            let Wait { milliseconds } = serde_json::from_str(arguments)?;
            Reply::Later(Duration::from_millis(milliseconds), session.tool_result(id, arguments, ""))
        }
        name @ ("notify" | "announce") => {
            let Notify { count, milliseconds, padding, ask } = serde_json::from_str(arguments)?;
            let token = call.meta.and_then(|meta| meta.progress_token).map(|token| token.get().to_owned());
            // A token is one of the call.
            let token = token.filter(|_| name == "notify");
            let pause = Duration::from_millis(milliseconds);
            let padding = padding.min(MAX_PADDING);
            let notifications = Notifications { id: id.to_owned(), token, count, padding, pause, ask };
            let result = session.tool_result(id, arguments, "");
            match name {
                "notify" => Reply::Notified(notifications, result),
                _ => Reply::Announced(notifications, result),
            }
        }
        "remember" => {
            let Remember { value } = serde_json::from_str(arguments)?;
            value.get().clone_into(&mut session.value);
            Reply::Now(session.tool_result(id, arguments, ""))
        }
        "recall" => {
            let kept = format!(r#","value":{},"level":{}"#, session.value, session.level);
            Reply::Now(session.tool_result(id, arguments, &kept))
        }
        "sicken" => Reply::Sick(session.tool_result(id, arguments, "")),
        "exit" => {
            let Exit { status } = serde_json::from_str(arguments)?;
            Reply::Exit(status)
        }
        name => Reply::Now(error(id, -32602, &format!("there is no tool {name}"))),
    })
}
