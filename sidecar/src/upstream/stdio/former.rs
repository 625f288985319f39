//! The processes that a sidecar before this one has left in its pod. The shim keeps them for a while, in which the
//! sessions that they belong to are used again; but no client is sent to a pod whose server has not shaken hands, and that
//! takes as long as the server takes to start.

use std::future::pending;
use std::io;
use std::sync::Arc;

use longshore_shim::protocol::ADOPTION;
use longshore_sidecar_config::Upstream;
use tokio::time::{sleep, timeout};

use super::process;
use crate::shared::Shared;
use crate::upstream::starts;

/// Has them kept until this sidecar has a server, for as long as it may take to start.
pub(crate) async fn keep_former(shared: Arc<Shared>) -> io::Result<()> {
    let mut view = shared.view.subscribe();
    let keeping = async {
        loop {
            let is_stdio = shared
                .config()
                .as_ref()
                .is_some_and(|snapshot| matches!(snapshot.config.upstream, Upstream::Stdio {}));
            if is_stdio {
                // Where there is no shim yet there is nothing to be kept.
                let _ = process::keep(&shared.stdio.socket).await;
            }
            sleep(ADOPTION / 4).await;
        }
    };
    tokio::select! {
        _ = view.wait_for(|view| view.ever_connected) => {}
        _ = timeout(starts::AT_MOST, keeping) => {}
    }
    // Whoever comes for them has the shim's own time from here on.
    pending().await
}
