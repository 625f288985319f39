//! The processes that a sidecar before this one has left in its pod. The shim keeps them for a while, in which the
//! sessions that they belong to are used again; but no client is sent to a pod whose server has not shaken hands, and that
//! takes as long as the server takes to start.

use std::future::pending;
use std::io;
use std::sync::Arc;

use longshore_shim::protocol::ADOPTION;
use longshore_sidecar_config::{Isolation, Processes};
use tokio::time::{sleep, timeout};

use super::{process, warm};
use crate::shared::Shared;
use crate::upstream::starts;

/// Has them kept until this sidecar has a server, for as long as it may take to start.
pub(crate) async fn keep_former(shared: Arc<Shared>) -> io::Result<()> {
    let keeping = async {
        loop {
            keep(&shared).await;
            sleep(ADOPTION / 4).await;
        }
    };
    tokio::select! {
        () = kept(&shared) => {}
        () = keeping => {}
    }
    // Whoever comes for them has the shim's own time from here on: all of it.
    keep(&shared).await;
    pending().await
}

/// Has them kept for the shim's own time.
async fn keep(shared: &Shared) {
    let config = shared.config();
    if config.as_ref().and_then(|snapshot| warm::limits_of(&snapshot.config)).is_some_and(are_kept) {
        // Where there is no shim yet there is nothing to be kept.
        let _ = process::keep(&shared.stdio.socket).await;
    }
}

/// Whether a session may go on with what is kept: none does that has a process with others.
pub(super) fn are_kept(limits: Processes) -> bool {
    limits.isolation == Isolation::Session
}

/// Returns when no more is kept than the shim does by itself.
pub(super) async fn kept(shared: &Shared) {
    let mut view = shared.view.subscribe();
    let _ = timeout(starts::AT_MOST, view.wait_for(|view| view.ever_connected)).await;
}
