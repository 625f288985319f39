//! The core of 2025-11-25: a call becomes a task because its client asks for one. What the task asks goes to whoever
//! waits for its result.

use std::sync::Arc;

use longshore_mcp::tasks::RELATED;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Named, POLL, Status, TIME_TO_LIVE, Task, Tasks};
use crate::answer::read;
use crate::call::{Call, Side};
use crate::failure::Failure;
use crate::message;
use crate::question::Question;
use crate::session::Session;

/// How a client wants its call to be a task.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    /// For how many milliseconds it wants to ask for it.
    #[serde(default)]
    ttl: Option<u64>,
}

/// Begins a tool as a task, and says what its client is told.
pub(crate) fn begin(call: &Call, tool: &str, arguments: Map<String, Value>, wanted: &Wanted) -> Value {
    let live = wanted.ttl.unwrap_or(TIME_TO_LIVE).min(TIME_TO_LIVE);
    let task = Task::run(call, tool, arguments, live);
    if let Side::Session(session) = &call.side {
        session.add_task(&task.name);
    }
    json!({"task": task.spelled()})
}

impl Tasks {
    /// `tasks/get`.
    pub(crate) fn state(&self, params: Value) -> Result<Value, Failure> {
        Ok(self.named(&read::<Named>(params)?.task)?.spelled())
    }

    /// `tasks/list`: those that the session has begun.
    pub(crate) fn list(&self, call: &Call) -> Vec<Value> {
        let Side::Session(session) = &call.side else { return Vec::new() };
        session.tasks().iter().filter_map(|name| self.find(name)).map(|task| task.spelled()).collect()
    }

    /// `tasks/cancel`.
    pub(crate) fn end(&self, params: Value) -> Result<Value, Failure> {
        let task = self.named(&read::<Named>(params)?.task)?;
        if task.has_ended() {
            return Err(Failure::params("this task has ended already"));
        }
        task.cancel();
        Ok(task.spelled())
    }

    /// `tasks/result`: what the call would have been answered with.
    pub(crate) async fn result(&self, call: &Call, params: Value) -> Result<Value, Failure> {
        let task = self.named(&read::<Named>(params)?.task)?;
        let mut changed = task.changed.subscribe();
        while !task.has_ended() {
            changed.mark_unchanged();
            if let (Some(asking), Side::Session(session)) = (Asking::begin(&task), &call.side) {
                tokio::select! {
                    () = asking.ask(session, call) => {}
                    () = task.ended() => {}
                }
            } else if !task.has_ended() && changed.changed().await.is_err() {
                break;
            }
        }
        let state = task.state.lock();
        match &state.status {
            Status::Completed(result) => {
                let mut result = result.clone();
                result["_meta"][RELATED] = json!({"taskId": task.name});
                Ok(result)
            }
            Status::Failed(failure) => Err(failure.clone()),
            Status::Cancelled | Status::Working => {
                Err(Failure::params("this task was cancelled, and has no result"))
            }
        }
    }
}

impl Task {
    pub(super) fn spelled(&self) -> Value {
        let state = self.state.lock();
        let status = match &state.status {
            Status::Working if state.waits() => "input_required",
            Status::Working => "working",
            // What says that it failed has failed, though there is a result that says so.
            Status::Completed(result) if result["isError"] == true => "failed",
            Status::Completed(_) => "completed",
            Status::Failed(_) => "failed",
            Status::Cancelled => "cancelled",
        };
        json!({
            "taskId": self.name,
            "status": status,
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": state.updated.to_string(),
            "ttl": self.live,
            "pollInterval": POLL,
        })
    }

    /// Tells the session that began it, if there is one and it is still there.
    pub(super) fn tell(&self) {
        if let Some(session) = self.session.as_ref().and_then(std::sync::Weak::upgrade) {
            let told = message::notification("notifications/tasks/status", &self.spelled());
            session.unrelated().send(told);
        }
    }

    async fn ended(&self) {
        let mut changed = self.changed.subscribe();
        while !self.has_ended() && changed.changed().await.is_ok() {}
    }
}

/// Somebody who waits for the result of a task, and asks for it what it wants to know. One at a time: if that one goes
/// before it is answered, the next asks again.
struct Asking {
    task: Arc<Task>,
    questions: Vec<Question>,
}

impl Asking {
    /// `None` if nothing is to be asked, or somebody asks already.
    fn begin(task: &Arc<Task>) -> Option<Self> {
        let mut state = task.state.lock();
        if state.is_asking || !state.waits() {
            return None;
        }
        state.is_asking = true;
        let questions = state.asked.iter().map(|(question, _)| question.related(&task.name)).collect();
        Some(Self { task: task.clone(), questions })
    }

    async fn ask(mut self, session: &Arc<Session>, call: &Call) {
        let questions = std::mem::take(&mut self.questions);
        let asked = questions.into_iter().map(|question| session.ask(question, &call.stream));
        let answers = futures::future::join_all(asked).await;
        self.task.change(|state| {
            for ((_, taken), answer) in state.asked.iter_mut().zip(answers) {
                *taken = Some(answer);
            }
        });
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.state.lock().is_asking = false;
        self.task.changed.send_replace(());
    }
}

impl Question {
    /// The question as one of a task.
    fn related(&self, task: &str) -> Self {
        let mut question = self.clone();
        question.params["_meta"][RELATED] = json!({"taskId": task});
        question
    }
}
