//! What a client says without asking.

use longshore_mcp::Raw;
use longshore_mcp::method::NotificationMethod;

use super::{Phase, Session, members};

impl Session {
    /// Takes a notification. One that means nothing here is no mistake: nobody would hear of it.
    pub(super) fn notified(&self, method: &str, params: Option<Raw<'_>>) {
        match NotificationMethod::parse(method) {
            Some(NotificationMethod::Initialized) => {
                let mut state = self.state.lock();
                if state.phase == Phase::Initialized {
                    state.phase = Phase::Ready;
                }
            }
            Some(NotificationMethod::Cancelled) => {
                let Some(id) = members(params).remove("requestId") else { return };
                let handle = self.state.lock().running.get(&id.to_string()).cloned();
                if let Some(handle) = handle {
                    handle.abort();
                }
            }
            Some(
                NotificationMethod::Progress
                | NotificationMethod::RootsListChanged
                | NotificationMethod::TasksStatus,
            )
            | None => {}
        }
    }
}
