//! What all clients of one server share: its revision, and what of it changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_mcp::revision::{Era, Revision};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::seal::Seal;
use crate::tasks::Tasks;

/// What the server calls itself.
pub const NAME: &str = "longshore-example-server";

/// The most changes that wait for a listener.
const MAX_CHANGES: usize = 256;

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The one revision that it speaks.
    pub revision: Revision,
    /// The secret that `requestState` is sealed with: processes that have the same one can stand in for each other.
    /// Without it each draws its own.
    pub state_key: Option<String>,
    /// How many entries a page of a list has; `None`: all of them.
    pub page: Option<usize>,
}

/// What happened to what a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resources,
    Resource(String),
    /// The server ends.
    End,
}

/// The server.
#[derive(Debug)]
pub struct Server {
    pub(crate) revision: Revision,
    pub(crate) page: Option<usize>,
    pub(crate) seal: Seal,
    pub(crate) tasks: Tasks,
    pub(crate) extra_tool: AtomicBool,
    pub(crate) extra_prompt: AtomicBool,
    pub(crate) extra_resource: AtomicBool,
    changes: broadcast::Sender<Change>,
}

impl Settings {
    /// A server of this revision with nothing special about it.
    pub fn of(revision: Revision) -> Self {
        Self { revision, state_key: None, page: None }
    }
}

impl Server {
    /// A server that nobody has called yet.
    pub fn new(settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            revision: settings.revision,
            page: settings.page,
            tasks: Tasks::default(),
            seal: Seal::new(settings.state_key.as_deref()),
            extra_tool: AtomicBool::new(false),
            extra_prompt: AtomicBool::new(false),
            extra_resource: AtomicBool::new(false),
            changes: broadcast::Sender::new(MAX_CHANGES),
        })
    }

    /// The revision that it speaks.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }

    /// What happens from now on.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Tells everybody. Nobody may be there.
    pub(crate) fn tell(&self, change: Change) {
        let _ = self.changes.send(change);
    }

    /// Adds what was not there, or removes it again, and tells everybody.
    pub(crate) fn toggle(&self, extra: &AtomicBool, change: Change) -> bool {
        let was = extra.fetch_xor(true, Ordering::Relaxed);
        self.tell(change);
        !was
    }

    pub(crate) fn info(&self) -> Value {
        let mut info = json!({"name": NAME, "version": env!("CARGO_PKG_VERSION")});
        if self.revision >= Revision::V2025_06_18 {
            info["title"] = "Longshore's example server".into();
        }
        if self.revision >= Revision::V2025_11_25 {
            info["description"] = "Speaks one revision of MCP, all of it".into();
        }
        info
    }

    pub(crate) fn capabilities(&self) -> Value {
        let mut capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
            "logging": {},
        });
        if self.revision.features().completions_capability {
            capabilities["completions"] = json!({});
        }
        match self.revision.features().tasks {
            longshore_mcp::revision::Tasks::None => {}
            longshore_mcp::revision::Tasks::Core => {
                capabilities["tasks"] =
                    json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
            }
            longshore_mcp::revision::Tasks::Extension => {
                capabilities["extensions"] = json!({longshore_mcp::capabilities::TASKS_EXTENSION: {}});
            }
        }
        capabilities
    }

    pub(crate) fn instructions(&self) -> String {
        format!(
            "A server of revision {} to try things on. Call `echo` to see that everything works.",
            self.revision
        )
    }
}
