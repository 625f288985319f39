//! Sessions move to other replicas when their pod ends, and copies of what clients have set in sessions of others.
//!
//! SIGTERM alone does not say that it ends: the kubelet may be restarting the sidecar, and its server goes on with the
//! sessions. The pod ends if the server is told to end too, which its hook says, or has ended already.

use std::sync::atomic::Ordering;

use futures::future::join_all;
use longshore_sessions::Question;
use longshore_sessions::membership::State;
use tokio::time::{Duration, timeout};

use super::is_gone;
use crate::shared::Shared;

/// How many sessions move at once: each is a message, and the successors answer from memory.
const AT_ONCE: usize = 64;
/// How often is looked whether sessions that were in use are idle now, if nobody says so, and whether a replica serves by
/// now that takes them.
const LOOK: Duration = Duration::from_millis(20);

/// Hands over all sessions that can move: idle ones at once, others when they become idle. Returns when none is left, and
/// none can come any more.
pub(super) async fn hand_over(shared: &Shared) {
    // Finds out whether it still answers.
    shared.doubt.raise();
    pod_ends(shared).await;
    // Nobody may think any more that this replica takes sessions when it gives its own away.
    shared.peers.announce(State::Draining).await;
    shared.sessions.pass_on(&shared.peers).await;
    let mut moved = 0_usize;
    loop {
        let given_up = shared.peers.give_up(AT_ONCE);
        if given_up.is_empty() {
            // Counted first: a handshake that is under way opens its session before it ends.
            let openings = shared.openings.count();
            if openings == 0 && !shared.peers.has_movable() {
                break;
            }
            // Who makes one call after the other leaves little time in between.
            let _ = timeout(LOOK, shared.sessions.one_is_free()).await;
            continue;
        }
        moved += given_up.len();
        // Whether they have heard it or not: they will find out by the next request at the latest.
        join_all(
            given_up
                .into_iter()
                .map(|(successor, session)| shared.peers.ask(successor.address, Question::HandOver(session))),
        )
        .await;
    }
    if moved > 0 {
        tracing::info!(sessions = moved, "sessions were handed to other replicas");
    }
}

/// Whether it is certain, in a drain, that the pod ends. Where the server was to end too it remains so, whatever becomes of
/// its hook, which goes with a server that dies.
pub(super) fn is_certain(shared: &Shared) -> bool {
    let both_end = &shared.ending.both_end;
    both_end.fetch_or(*shared.hooks.borrow() > 0, Ordering::Relaxed);
    both_end.load(Ordering::Relaxed) || is_gone(&shared.view.borrow().connection)
}

/// Waits until it is certain that the pod ends.
async fn pod_ends(shared: &Shared) {
    let (mut hooks, mut view) = (shared.hooks.subscribe(), shared.view.subscribe());
    tokio::select! {
        _ = hooks.wait_for(|hooks| *hooks > 0) => shared.ending.both_end.store(true, Ordering::Relaxed),
        _ = view.wait_for(|view| is_gone(&view.connection)) => {}
    }
}
