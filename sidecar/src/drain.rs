//! The end of a process, and of the server beside it.
//!
//! The kubelet sends SIGTERM when the pod ends, and also when it restarts this container alone. It runs the server's
//! `preStop` hook (`shim drain`) when the pod ends, and also when it restarts the server's container alone. The hook
//! connects to the socket here and holds the server up until its connection is closed.

mod hook;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::shared::Shared;
pub(crate) use hook::{Hooks, bind, serve};

/// Ends the service in an orderly way: connections are accepted until the end, since the endpoints of a Service follow
/// with a lag; calls under way are answered; then the server may go.
pub(crate) async fn drain(shared: &Shared, released: &watch::Sender<bool>) {
    tracing::info!(calls = shared.calls.count(), "draining");
    shared.draining.send_replace(true);
    sleep(shared.options.drain_minimum).await;
    // Each call is bounded by the request's time-out, so this ends.
    shared.calls.all_ended().await;
    shared.streams.fetched().await;
    released.send_replace(true);
    tracing::info!("drained");
}
