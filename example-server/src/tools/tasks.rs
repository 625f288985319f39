//! Tools that may take long. A client that can wait for tasks gets one; for any other the call takes as long as it
//! takes, if the tool allows that.

use std::time::Duration;

use longshore_mcp::capabilities::Need;
use longshore_mcp::revision::Tasks;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::content::{failed, said};
use super::{Outcome, read};
use crate::call::{Call, Carry, Side};
use crate::failure::Failure;
use crate::question::Question;
use crate::tasks;

#[derive(Deserialize)]
struct Greet {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct Slow {
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    label: Option<String>,
}

#[derive(Deserialize)]
struct Delete {
    #[serde(default)]
    filename: Option<String>,
}

/// How a tool says in 2025-11-25 that it can be called as a task, if it can.
pub(super) fn support(name: &str) -> Option<&'static str> {
    match name {
        "slow_compute" | "confirm_delete" | "multi_input" => Some("optional"),
        "failing_job" | "protocol_error_job" => Some("required"),
        _ => None,
    }
}

pub(super) async fn run(call: &Call, name: &str, mut arguments: Map<String, Value>) -> Outcome {
    if name == "greet" {
        let Greet { name } = read(call, arguments)?;
        return Ok(said(format!("Hello, {}!", name.as_deref().unwrap_or("World"))));
    }
    if matches!(call.side, Side::Task(_)) {
        return work(call, name, arguments).await;
    }
    if name == "test_tool_with_task" {
        // What has to be asked first is asked in the call itself.
        let form = json!({"name": {"type": "string"}});
        let answer = call.ask(Question::form("user_name", "What is your name?", form, &["name"])).await?;
        arguments.insert("name".to_owned(), answer["content"]["name"].clone());
    }
    let is_extension = call.revision().features().tasks == Tasks::Extension;
    if is_extension && call.client.has(Need::Tasks) {
        return Ok(tasks::begin(call, name, arguments));
    }
    if is_extension && matches!(name, "failing_job" | "protocol_error_job") {
        return Err(Failure::capability(Need::Tasks));
    }
    work(call, name, arguments).await
}

pub(super) async fn work(call: &Call, name: &str, arguments: Map<String, Value>) -> Outcome {
    match name {
        "slow_compute" => {
            let Slow { seconds, label } = read(call, arguments)?;
            if !(0.0..=super::work::MAX_SECONDS).contains(&seconds) {
                return Err(Failure::Tool("`seconds` is too long".to_owned()));
            }
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            Ok(said(format!("computed {} for {seconds} seconds", label.as_deref().unwrap_or("something"))))
        }
        "failing_job" => Ok(failed("This job intentionally fails")),
        "protocol_error_job" => {
            Err(Failure::params("This job intentionally ends with an error of the protocol"))
        }
        "confirm_delete" => {
            let Delete { filename } = read(call, arguments)?;
            let filename = filename.as_deref().unwrap_or("the file");
            let fields = json!({"confirm": {"type": "boolean"}});
            let question = Question::form("confirm", &format!("Delete {filename}?"), fields, &[]);
            let answer = call.ask(question).await?;
            let deleted = answer["action"] == "accept" && answer["content"]["confirm"] != false;
            Ok(said(format!("{filename} was {}", if deleted { "deleted" } else { "kept" })))
        }
        "multi_input" => {
            let fields = json!({"name": {"type": "string"}, "confirm": {"type": "boolean"}});
            let ask = |key, message: &str| Question::form(key, message, fields.clone(), &[]);
            let questions = vec![ask("first", "The first name?"), ask("second", "The second name?")];
            call.ask_all(questions, Carry::IfNeeded).await?;
            Ok(said("both were answered"))
        }
        _ => {
            let Greet { name } = read(call, arguments)?;
            Ok(said(format!("the task of {} is done", name.as_deref().unwrap_or("nobody"))))
        }
    }
}
