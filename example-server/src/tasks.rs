//! Calls that outlive their request: the extension `io.modelcontextprotocol/tasks` of 2026-07-28.
//!
//! A tool that may take long is begun, and its client is told by which name it can ask for it. The name is a secret:
//! whoever knows it may ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use longshore_mcp::capabilities::Need;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::answer::read;
use crate::call::{Call, Side};
use crate::failure::Failure;
use crate::question::Question;

/// The most tasks that are remembered. When there are as many, the oldest is forgotten, and ends if it still runs.
const MAX_TASKS: usize = 1024;
/// How long a task is to be asked for: for ever, as far as memory goes. In milliseconds, as all of these.
const TIME_TO_LIVE: u64 = 3_600_000;
/// How often it is worth asking.
const POLL: u64 = 100;

/// All tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// By their names, with the order in which they began.
    all: HashMap<String, (u64, Arc<Task>)>,
    begun: u64,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Task {
    name: String,
    created: Timestamp,
    state: Mutex<State>,
    answered: Notify,
    running: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    status: Status,
    updated: Timestamp,
    /// What the task waits for, and what has come of it.
    asked: Vec<(Question, Option<Value>)>,
}

#[derive(Debug)]
enum Status {
    Working,
    Completed(Value),
    Failed(Value),
    Cancelled,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "taskId")]
    task: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    task_id: String,
    input_responses: Map<String, Value>,
}

/// Begins a tool as a task, and says what its client is told.
pub(crate) fn begin(call: &Call, tool: &str, arguments: Map<String, Value>) -> Value {
    let now = Timestamp::now();
    let task = Arc::new(Task {
        name: crate::random::name(),
        created: now,
        state: Mutex::new(State { status: Status::Working, updated: now, asked: Vec::new() }),
        answered: Notify::new(),
        running: Mutex::new(None),
    });
    let own = Call {
        server: call.server.clone(),
        client: call.client.clone(),
        stream: call.stream.clone(),
        // Who asks for a task hears how far it is; nothing is reported.
        token: None,
        side: Side::Task(task.clone()),
    };
    let tool = tool.to_owned();
    let run = async move {
        let result = crate::tools::run_task(&own, &tool, arguments).await;
        if let Side::Task(task) = &own.side {
            task.done(result, own.revision());
        }
    };
    *lock(&task.running) = Some(tokio::spawn(run));
    call.server.tasks.keep(&task);
    let mut result = task.write();
    result["resultType"] = "task".into();
    result
}

impl Tasks {
    fn keep(&self, task: &Arc<Task>) {
        let mut held = lock(&self.0);
        if held.all.len() >= MAX_TASKS {
            let oldest = held.all.iter().min_by_key(|(_, (begun, _))| *begun).map(|(name, _)| name.clone());
            if let Some((_, task)) = oldest.and_then(|name| held.all.remove(&name)) {
                task.abort();
            }
        }
        held.begun += 1;
        let begun = held.begun;
        held.all.insert(task.name.clone(), (begun, task.clone()));
    }

    fn find(&self, call: &Call, name: &str) -> Result<Arc<Task>, Failure> {
        if !call.client.has(Need::Tasks) {
            return Err(Failure::capability(Need::Tasks));
        }
        let found = lock(&self.0).all.get(name).map(|(_, task)| task.clone());
        found.ok_or_else(|| Failure::params("there is no such task"))
    }

    /// `tasks/get`.
    pub(crate) fn get(&self, call: &Call, params: Value) -> Result<Value, Failure> {
        Ok(self.find(call, &read::<Named>(params)?.task)?.write())
    }

    /// `tasks/update`.
    pub(crate) fn update(&self, call: &Call, params: Value) -> Result<Value, Failure> {
        let Update { task_id, input_responses } = read(params)?;
        self.find(call, &task_id)?.take(input_responses)?;
        Ok(json!({}))
    }

    /// `tasks/cancel`.
    pub(crate) fn cancel(&self, call: &Call, params: Value) -> Result<Value, Failure> {
        self.find(call, &read::<Named>(params)?.task)?.cancel();
        Ok(json!({}))
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for (_, task) in lock(&self.0).all.values() {
            task.abort();
        }
    }
}

impl Task {
    /// Asks the client, whenever it comes to ask how far the task is.
    pub(crate) async fn ask(&self, questions: Vec<Question>) -> Vec<Value> {
        {
            let mut state = lock(&self.state);
            state.updated = Timestamp::now();
            state.asked = questions.into_iter().map(|question| (question, None)).collect();
        }
        loop {
            {
                let mut state = lock(&self.state);
                if state.asked.iter().all(|(_, answer)| answer.is_some()) {
                    return std::mem::take(&mut state.asked)
                        .into_iter()
                        .filter_map(|(_, answer)| answer)
                        .collect();
                }
            }
            self.answered.notified().await;
        }
    }

    fn take(&self, mut answers: Map<String, Value>) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        for (question, taken) in &mut state.asked {
            let Some(answer) = answers.remove(question.key).filter(|_| taken.is_none()) else { continue };
            question.judge(&answer).map_err(|wrong| {
                Failure::params(format!("the answer to {:?} is not usable: {wrong}", question.key))
            })?;
            *taken = Some(answer);
        }
        state.updated = Timestamp::now();
        drop(state);
        self.answered.notify_one();
        Ok(())
    }

    fn done(&self, result: Result<Value, Failure>, revision: longshore_mcp::revision::Revision) {
        let status = match result {
            Ok(result) => Status::Completed(result),
            Err(failure) => {
                let (text, _) = failure.answer("0", revision);
                let error: Value = serde_json::from_str(&text).unwrap_or_default();
                Status::Failed(error["error"].clone())
            }
        };
        self.end(status);
    }

    fn cancel(&self) {
        self.end(Status::Cancelled);
        self.abort();
    }

    /// The first end is the one that counts.
    fn end(&self, status: Status) {
        let mut state = lock(&self.state);
        if matches!(state.status, Status::Working) {
            state.status = status;
            state.updated = Timestamp::now();
            state.asked.clear();
        }
    }

    fn abort(&self) {
        if let Some(running) = lock(&self.running).take() {
            running.abort();
        }
    }

    fn write(&self) -> Value {
        let state = lock(&self.state);
        let mut task = json!({
            "taskId": self.name,
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": state.updated.to_string(),
            "ttlMs": TIME_TO_LIVE,
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
            Status::Failed(error) => {
                task["error"] = error.clone();
                "failed"
            }
            Status::Cancelled => "cancelled",
        };
        task["status"] = status.into();
        task
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
