//! The extension of 2026-07-28: a call becomes a task because its client can wait for one. Questions are part of the
//! task, and are answered by an update.

use longshore_mcp::capabilities::Need;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Named, POLL, Status, TIME_TO_LIVE, Task, Tasks};
use crate::answer::read;
use crate::call::Call;
use crate::failure::Failure;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    task_id: String,
    input_responses: Map<String, Value>,
}

/// Begins a tool as a task, and says what its client is told.
pub(crate) fn begin(call: &Call, tool: &str, arguments: Map<String, Value>) -> Value {
    let mut result = Task::run(call, tool, arguments, TIME_TO_LIVE).written(call);
    result["resultType"] = "task".into();
    result
}

impl Tasks {
    /// `tasks/get`.
    pub(crate) fn get(&self, call: &Call, params: Value) -> Result<Value, Failure> {
        declared(call)?;
        Ok(self.named(&read::<Named>(params)?.task)?.written(call))
    }

    /// `tasks/update`.
    pub(crate) fn update(&self, call: &Call, params: Value) -> Result<Value, Failure> {
        declared(call)?;
        let Update { task_id, input_responses } = read(params)?;
        self.named(&task_id)?.take(input_responses)?;
        Ok(json!({}))
    }

    /// `tasks/cancel`.
    pub(crate) fn cancel(&self, call: &Call, params: Value) -> Result<Value, Failure> {
        declared(call)?;
        self.named(&read::<Named>(params)?.task)?.cancel();
        Ok(json!({}))
    }
}

/// Whether the client can wait for tasks. Each request says so again.
fn declared(call: &Call) -> Result<(), Failure> {
    if call.client.has(Need::Tasks) { Ok(()) } else { Err(Failure::capability(Need::Tasks)) }
}

impl Task {
    fn take(&self, mut answers: Map<String, Value>) -> Result<(), Failure> {
        let mut wrong = Ok(());
        self.change(|state| {
            for (question, taken) in &mut state.asked {
                let Some(answer) = answers.remove(question.key).filter(|_| taken.is_none()) else { continue };
                if let Err(why) = question.judge(&answer) {
                    let text = format!("the answer to {:?} is not usable: {why}", question.key);
                    wrong = Err(Failure::params(text));
                    break;
                }
                *taken = Some(Ok(answer));
            }
        });
        wrong
    }

    fn written(&self, call: &Call) -> Value {
        let state = self.state.lock();
        let mut task = json!({
            "taskId": self.name,
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": state.updated.to_string(),
            "ttlMs": self.live,
            "pollIntervalMs": POLL,
        });
        let open: Map<String, Value> = state
            .asked
            .iter()
            .filter(|(_, answer)| answer.is_none())
            .map(|(question, _)| (question.key.to_owned(), question.write()))
            .collect();
        let status = match &state.status {
            Status::Working if open.is_empty() => "working",
            Status::Working => {
                task["inputRequests"] = open.into();
                "input_required"
            }
            Status::Completed(result) => {
                task["result"] = result.clone();
                "completed"
            }
            Status::Failed(failure) => {
                let (text, _) = failure.clone().answer("0", call.revision());
                let error: Value = serde_json::from_str(&text).unwrap_or_default();
                task["error"] = error["error"].clone();
                "failed"
            }
            Status::Cancelled => "cancelled",
        };
        task["status"] = status.into();
        task
    }
}
