//! Who may take the place of the connection that reads a stream.

use tokio::time::Duration;

use super::{Client, Stream};

/// For how long nobody takes it who does not come back for what follows an event. Somebody who has it for longer may have
/// lost their connection, which is seen late; and two who read take turns seldom enough.
const TENURE: Duration = Duration::from_secs(10);

impl Stream {
    /// Whether the connection that reads it has not done so for long.
    pub(in super::super) fn is_read_newly(&self) -> bool {
        self.state.lock().client.as_ref().is_some_and(|client| !client.over && client.is_new())
    }

    /// Whether somebody who comes back for what follows this event has had the place that a newcomer has now.
    pub(in super::super) fn is_kept_from(&self, after: u64) -> bool {
        let is_before = |client: &Client| client.new_at.is_some_and(|first| after < first);
        self.state
            .lock()
            .client
            .as_ref()
            .is_some_and(|client| !client.over && client.is_new() && is_before(client))
    }
}

impl Client {
    fn is_new(&self) -> bool {
        self.since.elapsed() < TENURE
    }
}
