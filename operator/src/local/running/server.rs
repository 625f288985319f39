//! One server that runs: its sidecar, its process, and what was said of it.

use longshore_sidecar_config::inventory::{ConnectionReason, ConnectionState, Inventory};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::local::Error;
use crate::local::files::Place;
use crate::local::plan::Plan;
use crate::local::process::{Launch, Process};
use crate::local::sidecar::Sidecar;
use crate::mcp_server::condition::Reason;

/// A server that runs.
pub(super) struct Running {
    pub(super) plan: Plan,
    pub(super) place: Place,
    pub(super) sidecar: Sidecar,
    pub(super) process: Process,
    /// Tells what is heard of this sidecar and its process from what was said of those before.
    pub(super) run: u64,
    pub(super) began: Instant,
    pub(super) feed: JoinHandle<()>,
    pub(super) inventory: Option<Box<Inventory>>,
    pub(super) shown: Shown,
    /// Whether the sidecar has its configuration. Where the server is to listen at a port, it has none before the
    /// server was started: whatever else listens there would be served under this server's rules. Nor does it go on once
    /// something else has the port: another takes its place.
    pub(super) introduced: bool,
    /// How its process ended last, so that one that ends again and again is told of once.
    pub(super) ended: Option<String>,
    /// Why nobody may call any of its tools, if that has been said.
    pub(super) uncallable: Option<String>,
    /// Whether it has been said that its stdout holds more than messages.
    pub(super) noisy: bool,
}

/// What was said last of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    Ready { tools: usize },
    NotReady { reason: Option<ConnectionReason> },
}

// === impl Running ===

impl Running {
    /// Becomes what this plan says, with the same sidecar.
    pub(super) fn change(&mut self, plan: Plan) -> Result<(), Error> {
        self.process.change(launch(&plan, &self.place));
        if self.introduced && self.plan.files != plan.files {
            self.place.write(&plan.files).map_err(Error::Files)?;
        }
        self.plan = plan;
        self.ended = None;
        Ok(())
    }

    /// Has the sidecar end its sessions, then ends the process, so that calls under way are answered, and then the sidecar.
    pub(super) async fn end(self) {
        let Self { sidecar, process, feed, place, .. } = self;
        process.hush();
        sidecar.drain().await;
        feed.abort();
        process.end().await;
        sidecar.end().await;
        if let Err(error) = place.remove() {
            tracing::debug!(%error, "cannot remove a server's files");
        }
    }

    /// What is worth a line in an inventory.
    pub(super) fn news(&mut self, inventory: &Inventory) -> Option<String> {
        let id = &self.plan.id;
        let connection = &inventory.connection;
        let tools = inventory.tools.len();
        let now = match connection.state {
            ConnectionState::Connected => Shown::Ready { tools },
            ConnectionState::Connecting => return None,
            // It has been said why nothing was started.
            ConnectionState::Failed if self.plan.program.is_err() => return None,
            ConnectionState::Failed => Shown::NotReady { reason: connection.reason },
        };
        let before = std::mem::replace(&mut self.shown, now.clone());
        if now != before && matches!(now, Shown::Ready { .. }) {
            self.ended = None;
        }
        let many = if tools == 1 { "1 tool".to_owned() } else { format!("{tools} tools") };
        match (&before, &now) {
            _ if before == now => None,
            (Shown::Nothing, Shown::Ready { .. }) => {
                Some(format!("{id} is ready: {many} (after {} ms)", self.began.elapsed().as_millis()))
            }
            (Shown::Ready { .. }, Shown::Ready { .. }) => Some(format!("{id} has {many} now")),
            (Shown::NotReady { .. }, Shown::Ready { .. }) => Some(format!("{id} is ready: {many}")),
            (_, Shown::NotReady { reason }) => {
                let reason = Reason::of_connection(*reason).name();
                Some(format!("{id} is not ready ({reason}): {}", connection.message))
            }
            (_, Shown::Nothing) => None,
        }
    }
}

/// What is to run for a plan, if anything can.
pub(super) fn launch(plan: &Plan, place: &Place) -> Option<Launch> {
    let program = plan.program.clone().ok()?;
    Some(Launch::new(program, &plan.upstream, place.socket()))
}
