//! The signals that end a process.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::RunError;

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> Result<Self, RunError> {
        let open = |kind| signal(kind).map_err(|source| RunError::Start { what: "the signals", source });
        Ok(Self { terminate: open(SignalKind::terminate())?, interrupt: open(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
