//! What the threads of a process share.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use longshore_sidecar_config::inventory::ExposedSocket;
use longshore_sidecar_config::{Auth, Config};
use tokio::sync::watch;
use tokio::time::Duration;

use crate::audit::Audit;
use crate::calls::Calls;
use crate::configuration::Snapshot;
use crate::drain::{Arrivals, Ending};
use crate::held::Shares;
use crate::metrics::Metrics;
use crate::monitor::{RelistRequests, View};
use crate::options::Options;
use crate::peers::Peers;
use crate::refusal::Refusal;
use crate::server_doubt::Doubt;
use crate::sessions::{Full, Place, Places, Sessions};
use crate::stack::sse;
use crate::streams::Store;
use crate::tasks::Tasks;
use crate::upstream::sse::Sse;
use crate::upstream::stdio::Stdio;
use crate::upstream::{Absence, LegacyAsModern, ModernAsLegacy, Speaks};
use crate::worker::{Callers, Pace, Unfinished};

/// One of these per process.
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// The configuration that runs. None means that nothing is served.
    pub(crate) snapshot: ArcSwapOption<Snapshot>,
    pub(crate) sessions: Arc<Sessions>,
    /// What is kept of the events that clients read.
    pub(crate) streams: Arc<Store>,
    /// Where the server speaks over stdio: its processes.
    pub(crate) stdio: Arc<Stdio>,
    /// Where it speaks HTTP+SSE: the sessions with it.
    pub(crate) sse: Arc<Sse>,
    /// The messages that are held whole for clients.
    pub(crate) held: Arc<Shares>,
    /// Those of clients that are no calls, where those have taken up all room.
    pub(crate) told: Arc<Shares>,
    /// The streams of clients that speak HTTP+SSE.
    pub(crate) callers_streams: Arc<sse::Open>,
    /// The other replicas.
    pub(crate) peers: Peers,
    pub(crate) audit: Audit,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) calls: Arc<Calls>,
    /// Those of them that open sessions.
    pub(crate) openings: Arc<Calls>,
    pub(crate) rooms: Rooms,
    /// Whose connections are busy.
    pub(crate) callers: Arc<Callers>,
    /// How much is read of connections at once.
    pub(crate) pace: Arc<Pace>,
    /// What requests hold of which nothing is known yet.
    pub(crate) unfinished: Unfinished,
    /// Who listens without a session.
    pub(crate) listeners: Arc<Places>,
    /// The calls that were taken to other replicas.
    pub(crate) forwards: Arc<Calls>,
    /// Counts the configurations, so that those who follow from one are told.
    pub(crate) config_changed: watch::Sender<u64>,
    /// Why the files on disk are not the configuration that runs.
    pub(crate) config_error: watch::Sender<Option<String>>,
    /// What the monitor knows of the server.
    pub(crate) view: watch::Sender<View>,
    /// The sockets that can be reached around the sidecar.
    pub(crate) exposed: watch::Sender<Vec<ExposedSocket>>,
    /// What the server speaks.
    pub(crate) speaks: Arc<Speaks>,
    /// The sessions of clients with a server that has none.
    pub(crate) modern_as_legacy: Arc<ModernAsLegacy>,
    /// What a server with sessions is asked by requests that stand alone.
    pub(crate) legacy_as_modern: Arc<LegacyAsModern>,
    /// How clients call the tasks of the server.
    pub(crate) tasks: Arc<Tasks>,
    /// Since when calls have not found the server.
    pub(crate) absence: Absence,
    /// A request found the server failing: the monitor should look at once.
    pub(crate) doubt: Arc<Doubt>,
    /// A request does not fit what the server has listed: the monitor should read that again.
    pub(crate) relist: RelistRequests,
    /// How many hooks of the server are open.
    pub(crate) hooks: watch::Sender<usize>,
    /// The process ends.
    pub(crate) draining: watch::Sender<bool>,
    /// How far the end is.
    pub(crate) ending: Ending,
    /// When clients have connected.
    pub(crate) arrivals: Arrivals,
}

/// How much is under way, in all and of each principal, so that none of them takes up the room of the others.
#[derive(Default)]
pub(crate) struct Rooms {
    /// The calls to the server.
    pub(crate) calls: Arc<Places>,
    /// What it is told: answers to its questions, and notifications, with which a client takes a call back. Calls leave
    /// them room.
    pub(crate) words: Arc<Places>,
    /// What is taken to other replicas.
    pub(crate) forwards: Arc<Places>,
    /// And the streams of which that is so that clients listen to, for as long as they like; those too whose sessions are
    /// still to be begun again.
    pub(crate) listening: Arc<Places>,
    /// The streams of sessions here that their clients listen to by way of other replicas.
    pub(crate) heard: Arc<Places>,
}

impl Shared {
    /// Room for one more of a principal.
    pub(crate) fn room(
        &self,
        places: &Arc<Places>,
        principal: &Arc<str>,
        config: &Config,
    ) -> Result<Place, Refusal> {
        let total = u32::try_from(self.options.bounds.calls).unwrap_or(u32::MAX);
        // Nobody is told from others.
        let own = if config.auth == Auth::None { total } else { total.div_ceil(2) };
        places.take_of(principal, total, own).map_err(|full| match full {
            Full::Total => Refusal::TooManyCalls,
            Full::Principal(limit) => Refusal::TooManyOwnCalls { limit },
        })
    }

    /// How many connections each thread may have, of clients and of other replicas each.
    pub(crate) fn connections_of_a_thread(&self) -> usize {
        self.options.bounds.connections.div_ceil(self.options.workers.max(1))
    }

    /// Whether all places of sessions, or of their processes, are taken.
    pub(crate) fn has_no_room(&self) -> bool {
        self.sessions.are_full() || self.stdio.is_full()
    }

    /// Puts a configuration into force.
    pub(crate) fn swap(&self, snapshot: Arc<Snapshot>) {
        self.sessions.configure(snapshot.clone());
        self.legacy_as_modern.configure(snapshot.clone());
        self.modern_as_legacy.configure(&snapshot.config.limits);
        self.stdio.configure(&snapshot.config);
        self.snapshot.store(Some(snapshot));
        self.set_config_error(None);
        self.config_changed.send_modify(|count| *count += 1);
    }

    /// Notes why the files are not used.
    pub(crate) fn set_config_error(&self, error: Option<String>) {
        self.config_error.send_if_modified(|current| {
            let changed = *current != error;
            *current = error;
            changed
        });
    }

    /// The configuration that runs, for a look.
    pub(crate) fn config(&self) -> Guard<Option<Arc<Snapshot>>> {
        self.snapshot.load()
    }

    /// The longest that a call under way may take, whatever configuration it began under.
    pub(crate) fn longest_call(&self) -> Duration {
        let configured =
            || self.config().as_ref().map_or(0, |snapshot| snapshot.config.limits.request_timeout_ms);
        Duration::from_millis(self.options.longest_call_ms.unwrap_or_else(configured))
    }

    /// Whether the process ends.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}
