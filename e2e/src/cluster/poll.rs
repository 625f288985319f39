//! Waiting for what cannot be watched.

use std::time::Duration;

/// Returns when `check` first holds.
pub(crate) async fn until(pause: Duration, mut check: impl AsyncFnMut() -> bool) {
    while !check().await {
        tokio::time::sleep(pause).await;
    }
}
