//! The end of a process, and of the server beside it.
//!
//! The kubelet sends SIGTERM when the pod ends, and also when it restarts this container alone. It runs the server's
//! `preStop` hook (`shim drain`) when the pod ends, and also when it restarts the server's container alone. The hook
//! connects to the socket here and holds the server up until its connection is closed.

mod handover;
mod hook;

use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use longshore_sidecar_config::inventory::{Connection, ConnectionReason, ConnectionState};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::shared::Shared;
pub(crate) use hook::{Hooks, bind, serve};

/// How much longer than the longest call calls are waited for. Those that began while connections were still accepted
/// end within that, unless something hangs, and a pod's grace period waits for nobody. It has room for: the minimum, the
/// longest call, this, the last sessions to move, the farewell to other replicas, the end of a server's processes, and
/// the last words to clients.
const LONGER: Duration = Duration::from_secs(1);
/// Whoever sends clients here may hear late of the end where a machine is busy. So it is waited until nobody has come for
/// this part of the minimum, and for so many times the minimum longer.
const QUIET: u32 = 5;
const LATE: u32 = 2;
/// How long the sessions that were in use to the end may take to move.
const LAST_MOVES: Duration = Duration::from_secs(1);
/// For how long calls that other replicas bring are left to the next process, where this one ends alone. By then the
/// kubelet kills one that its liveness probe has given up, and those who wait give up too; and one that is still there
/// waits for calls that take long, which may wait for others.
const LEFT_TO_THE_NEXT: Duration = Duration::from_secs(15);

/// Ends the service in an orderly way: connections are accepted until the end, since the endpoints of a Service follow
/// with a lag; sessions move to other replicas; calls under way are answered. Says whether the pod ends, as far as is known;
/// otherwise the next sidecar goes on beside the same server.
pub(crate) async fn drain(shared: &Shared) -> bool {
    tracing::info!(calls = shared.calls.count(), forwarded = shared.forwards.count(), "draining");
    let longest = shared.longest_call() + LONGER;
    let latest = Instant::now() + shared.options.drain_minimum * (1 + LATE) + longest;
    // There is one drain in the life of a process.
    let _ = shared.ending.latest.set(latest);
    shared.draining.send_replace(true);
    let ending = async {
        until_nobody_comes(shared).await;
        // This too is set once.
        let _ = shared.ending.quiet.set(Instant::now());
        if timeout(longest, all_ended(shared)).await.is_err() {
            tracing::warn!(calls = shared.calls.count(), "calls did not end in time");
        }
    };
    // Sessions move as soon as it is certain that the pod ends, and that may be later, or never.
    let mut moving = pin!(handover::hand_over(shared).fuse());
    let mut ending = pin!(ending);
    let moved = tokio::select! {
        () = ending.as_mut() => false,
        () = moving.as_mut() => {
            ending.await;
            true
        }
    };
    let may_move = !moved && handover::is_certain(shared) && shared.peers.may_serve();
    if may_move && timeout(LAST_MOVES, moving).await.is_err() {
        tracing::warn!("not all sessions could be moved in time");
    }
    // Once it is certain it remains so, also where a server that was gone answers again.
    let certain = AtomicBool::new(false);
    let pod_ends = || {
        let now = handover::is_certain(shared);
        certain.fetch_or(now, Ordering::Relaxed) || now
    };
    // Nothing may be on its way here when the connections close.
    shared.peers.farewell(|| under_way(shared), pod_ends, latest).await;
    let pod_ends = pod_ends();
    tracing::info!("drained");
    pod_ends
}

/// Waits until nothing is under way any more, all at the same moment: one thing may begin while another ends.
async fn all_ended(shared: &Shared) {
    while {
        shared.calls.all_ended().await;
        shared.forwards.all_ended().await;
        shared.legacy_as_modern.waiting().all_ended().await;
        shared.streams.fetched().await;
        under_way(shared) + shared.legacy_as_modern.waiting().count() > 0
    } {}
}

/// How many calls are under way, here or at another replica.
pub(crate) fn under_way(shared: &Shared) -> usize {
    shared.calls.count() + shared.forwards.count()
}

/// Whether sessions here take no more calls, if they can be made elsewhere: the pod ends, and the longest of those under
/// way may take as long as this one is there. A later one would be cut off.
pub(crate) fn takes_no_calls(shared: &Shared) -> bool {
    shared.ending.quiet.get().is_some() && handover::is_certain(shared)
}

/// Whether a call that another replica brings is left to the next process, as far as is known by now: this one would wait
/// for it, and for the next one that begins meanwhile, until it is killed.
pub(crate) fn leaves_calls(shared: &Shared) -> bool {
    let lately = shared.ending.quiet.get().is_some_and(|since| since.elapsed() < LEFT_TO_THE_NEXT);
    lately && !handover::is_certain(shared)
}

/// Whether nobody answers at the server's place. One that answers, however it does, may answer its calls too.
fn is_gone(connection: &Connection) -> bool {
    use ConnectionReason::{ConnectionLost, ConnectionRefused, InitializeTimeout, ShimUnavailable};
    let nobody_answers = matches!(
        connection.reason,
        Some(ConnectionLost | ConnectionRefused | InitializeTimeout | ShimUnavailable)
    );
    connection.state == ConnectionState::Failed && nobody_answers
}

/// Waits for the minimum, and for clients that come still.
async fn until_nobody_comes(shared: &Shared) {
    let minimum = shared.options.drain_minimum;
    sleep(minimum).await;
    let latest = Instant::now() + minimum * LATE;
    while let Some(last) = shared.arrivals.last() {
        let until = latest.min(last + minimum / QUIET);
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}

/// How far the end of the process is.
#[derive(Default)]
pub(crate) struct Ending {
    /// Since when the minimum is over, and nobody comes any more.
    quiet: OnceLock<Instant>,
    /// Until then calls may be waited for.
    latest: OnceLock<Instant>,
    /// The server was to end too, at some moment since the drain began.
    both_end: AtomicBool,
    /// Nothing is waited for any longer.
    cut: watch::Sender<bool>,
}

impl Ending {
    /// Until when calls may be waited for. None: nothing has been said of an end.
    pub(crate) fn latest(&self) -> Option<Instant> {
        self.latest.get().copied()
    }

    /// Nothing is waited for any longer, whatever is under way.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Waits until nothing is waited for any longer.
    pub(crate) async fn until_cut(&self) {
        // The sender is here.
        let _ = self.cut.subscribe().wait_for(|cut| *cut).await;
    }
}

/// When a client connected last.
#[derive(Default)]
pub(crate) struct Arrivals(Mutex<Option<Instant>>);

impl Arrivals {
    /// One has.
    pub(crate) fn note(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    fn last(&self) -> Option<Instant> {
        *self.0.lock()
    }
}
