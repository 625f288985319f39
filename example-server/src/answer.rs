//! What each method is answered with, whoever asks.

use longshore_mcp::meta::SERVER_INFO;
use longshore_mcp::method::{List, Method};
use longshore_mcp::revision::{Revision, Tasks};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::failure::Failure;
use crate::tasks::Wanted;
use crate::{completion, prompts, resources, tools};

/// How long a client may keep what it was told, in milliseconds. Lists change only when a tool is told to change them,
/// and who listens hears of it.
const TIME_TO_LIVE: u64 = 60_000;

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Called {
    name: String,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
    #[serde(default)]
    task: Option<Wanted>,
}

#[derive(Deserialize)]
struct At {
    uri: String,
}

#[derive(Default, Deserialize)]
struct Paged {
    #[serde(default, deserialize_with = "some")]
    cursor: Option<String>,
}

/// The result of a request.
pub(crate) async fn answer(call: &Call, method: Method, params: Value) -> Result<Value, Failure> {
    let tasks = call.revision().features().tasks;
    let result = match method {
        Method::ToolsCall => {
            let Called { name, arguments, task } = read(params)?;
            let task = task.filter(|_| tasks == Tasks::Core);
            tools::call(call, &name, arguments.unwrap_or_default(), task).await?
        }
        Method::PromptsGet => {
            let Named { name, arguments } = read(params)?;
            prompts::get(call, &name, &arguments.unwrap_or_default()).await?
        }
        Method::ResourcesRead => resources::read(call, &read::<At>(params)?.uri)?,
        Method::CompletionComplete => completion::complete(call, params)?,
        Method::ServerDiscover => json!({
            "supportedVersions": [call.revision().as_str()],
            "capabilities": call.server.capabilities(),
            "instructions": call.server.instructions(),
        }),
        Method::TasksGet if tasks == Tasks::Extension => call.server.tasks.get(call, params)?,
        Method::TasksGet => call.server.tasks.state(params)?,
        Method::TasksUpdate => call.server.tasks.update(call, params)?,
        Method::TasksCancel if tasks == Tasks::Extension => call.server.tasks.cancel(call, params)?,
        Method::TasksCancel => call.server.tasks.end(params)?,
        Method::TasksResult => call.server.tasks.result(call, params).await?,
        Method::TasksList => {
            page(call, "tasks", call.server.tasks.list(call), read::<Paged>(params)?.cursor.as_deref())?
        }
        other => match other.list() {
            Some(list) => {
                page(call, list.member(), entries(call, list), read::<Paged>(params)?.cursor.as_deref())?
            }
            None => return Err(Failure::params("this server does not serve it")),
        },
    };
    Ok(complete(call, method, result))
}

/// A result as its revision wants it.
fn complete(call: &Call, method: Method, mut result: Value) -> Value {
    if call.revision().features().result_type {
        if result.get("resultType").is_none() {
            result["resultType"] = "complete".into();
        }
        result["_meta"][SERVER_INFO] = call.server.info();
        if method.is_cacheable() {
            result["ttlMs"] = TIME_TO_LIVE.into();
            result["cacheScope"] = "public".into();
        }
    }
    result
}

fn entries(call: &Call, list: List) -> Vec<Value> {
    match list {
        List::Tools => tools::list(&call.server),
        List::Prompts => prompts::list(&call.server),
        List::Resources => resources::list(&call.server),
        List::ResourceTemplates => resources::templates(call.revision()),
    }
}

/// A page of a list, which is this member of the result.
fn page(call: &Call, member: &str, all: Vec<Value>, cursor: Option<&str>) -> Result<Value, Failure> {
    let from = match cursor {
        None => 0,
        Some(cursor) => cursor
            .strip_prefix("from-")
            .and_then(|from| from.parse().ok())
            .filter(|from| {
                call.server.page.is_some_and(|page| from % page == 0) && (1..all.len()).contains(from)
            })
            .ok_or_else(|| Failure::params("this cursor is none of this server's"))?,
    };
    let length = call.server.page.unwrap_or(all.len());
    let more = from + length < all.len();
    let entries: Vec<_> = all.into_iter().skip(from).take(length).collect();
    let mut result = json!({member: entries});
    if more {
        result["nextCursor"] = format!("from-{}", from + length).into();
    }
    Ok(result)
}

/// Reads parameters.
pub(crate) fn read<T: DeserializeOwned>(params: Value) -> Result<T, Failure> {
    serde_json::from_value(params).map_err(|wrong| Failure::params(format!("invalid params: {wrong}")))
}

/// A member that may be left out, but is not null.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

/// Names for people came with 2025-06-18.
pub(crate) fn with_title(mut entry: Value, revision: Revision, title: &str) -> Value {
    if revision >= Revision::V2025_06_18 {
        entry["title"] = title.into();
    }
    entry
}
