//! Calls that outlive their request. 2025-11-25 has them in its core (`core`), 2026-07-28 as the extension
//! `io.modelcontextprotocol/tasks` (`extension`): they are asked for, and spelled, each in its own way.
//!
//! A tool that may take long is begun, and its client is told by which name it can ask for it. The name is a secret:
//! whoever knows it may ask.

mod core;
mod extension;

pub(crate) use self::core::{Wanted, begin as begin_in_session};
pub(crate) use extension::begin;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::call::{Call, Side};
use crate::failure::Failure;
use crate::question::Question;
use crate::session::Session;

/// The most tasks that are remembered. When there are as many, the oldest is forgotten, and ends if it still runs.
pub(crate) const MAX_TASKS: usize = 1024;
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
    live: u64,
    /// Who hears of it, where there are sessions.
    session: Option<Weak<Session>>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    running: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    status: Status,
    updated: Timestamp,
    /// What the task waits for, and what has come of it.
    asked: Vec<(Question, Option<Answer>)>,
    /// Whether somebody is asking it for the task, in a session.
    is_asking: bool,
}

/// What a client answered, or why it did not.
type Answer = Result<Value, Failure>;

#[derive(Debug)]
enum Status {
    Working,
    Completed(Value),
    Failed(Failure),
    Cancelled,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "taskId")]
    task: String,
}

impl Tasks {
    fn keep(&self, task: &Arc<Task>) {
        let mut held = self.0.lock();
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

    fn find(&self, name: &str) -> Option<Arc<Task>> {
        self.0.lock().all.get(name).map(|(_, task)| task.clone())
    }

    fn named(&self, name: &str) -> Result<Arc<Task>, Failure> {
        self.find(name).ok_or_else(|| Failure::params("there is no such task"))
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for (_, task) in self.0.lock().all.values() {
            task.abort();
        }
    }
}

impl Task {
    /// Begins a tool as a task.
    fn run(call: &Call, tool: &str, arguments: Map<String, Value>, live: u64) -> Arc<Self> {
        let now = Timestamp::now();
        let status = Status::Working;
        let session = match &call.side {
            Side::Session(session) => Some(Arc::downgrade(session)),
            Side::Alone(_) | Side::Task(_) => None,
        };
        let task = Arc::new(Self {
            name: crate::random::name(),
            created: now,
            live,
            session,
            state: Mutex::new(State { status, updated: now, asked: Vec::new(), is_asking: false }),
            changed: watch::Sender::new(()),
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
                task.end(result.map_or_else(Status::Failed, Status::Completed));
            }
        };
        *task.running.lock() = Some(tokio::spawn(run));
        call.server.tasks.keep(&task);
        task
    }

    /// Asks the client, whenever it comes to ask how far the task is.
    pub(crate) async fn ask(&self, questions: Vec<Question>) -> Result<Vec<Value>, Failure> {
        let mut changed = self.changed.subscribe();
        self.change(|state| state.asked = questions.into_iter().map(|question| (question, None)).collect());
        loop {
            changed.mark_unchanged();
            {
                let mut state = self.state.lock();
                if state.asked.iter().all(|(_, answer)| answer.is_some()) {
                    let asked = std::mem::take(&mut state.asked);
                    return asked.into_iter().filter_map(|(_, answer)| answer).collect();
                }
            }
            if changed.changed().await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    fn cancel(&self) {
        self.end(Status::Cancelled);
        self.abort();
    }

    /// The first end is the one that counts.
    fn end(&self, status: Status) {
        self.change(|state| {
            if matches!(state.status, Status::Working) {
                state.status = status;
                state.asked.clear();
            }
        });
    }

    fn has_ended(&self) -> bool {
        !matches!(self.state.lock().status, Status::Working)
    }

    /// Changes it, and tells whoever waits for that.
    fn change(&self, how: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        how(&mut state);
        state.updated = Timestamp::now();
        drop(state);
        self.changed.send_replace(());
        self.tell();
    }

    fn abort(&self) {
        if let Some(running) = self.running.lock().take() {
            running.abort();
        }
    }
}

impl State {
    fn waits(&self) -> bool {
        self.asked.iter().any(|(_, answer)| answer.is_none())
    }
}
