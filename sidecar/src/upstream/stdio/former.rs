//! The processes that a sidecar before this one has left in its pod. The shim keeps them for a while, in which the
//! sessions that they belong to are used again; but no client is sent to a pod whose server has not shaken hands, and that
//! takes as long as the server takes to start.
//!
//! Where no session goes on with what it had, they would only take up memory beside as many new ones. So would those that
//! are of no session: what serves requests that stand alone, and the sidecar's own.

use std::future::pending;
use std::io;
use std::sync::Arc;

use longshore_shim::protocol::{ADOPTION, Left};
use longshore_sidecar_config::{Isolation, Processes};
use tokio::time::timeout;

use super::{process, warm};
use crate::shared::Shared;
use crate::upstream::starts;

/// Has them kept until this sidecar has a server, for as long as it may take to start; or ended, where nobody comes for
/// them.
pub(crate) async fn keep_former(shared: Arc<Shared>) -> io::Result<()> {
    let mut config = shared.config_changed.subscribe();
    let keeping = async {
        loop {
            keep_or_leave(&shared).await;
            // Sooner, where only then it is known what is to become of them.
            let _ = timeout(ADOPTION / 4, config.changed()).await;
        }
    };
    tokio::select! {
        () = kept(&shared) => {}
        () = keeping => {}
    }
    // Whoever comes for them has the shim's own time from here on: all of it.
    keep_or_leave(&shared).await;
    pending().await
}

/// Has those kept for the shim's own time that a session may come for, and the others ended.
async fn keep_or_leave(shared: &Shared) {
    let limits = shared.config().as_ref().and_then(|snapshot| warm::limits_of(&snapshot.config));
    // Where there is no shim yet there is nothing of either.
    let _ = match limits {
        Some(limits) if are_kept(limits) => {
            let _ = process::leave(&shared.stdio.socket, Left::OfNobody).await;
            process::keep(&shared.stdio.socket).await
        }
        Some(_) => process::leave(&shared.stdio.socket, Left::All).await,
        None => Ok(()),
    };
}

/// Whether a session may go on with what is kept: none does that has a process with others.
fn are_kept(limits: Processes) -> bool {
    limits.isolation == Isolation::Session
}

/// Returns when no more is kept than the shim does by itself.
async fn kept(shared: &Shared) {
    let mut view = shared.view.subscribe();
    let _ = timeout(starts::AT_MOST, view.wait_for(|view| view.ever_connected)).await;
}
