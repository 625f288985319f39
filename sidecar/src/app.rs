//! The composition root: binds, starts, supervises, ends.

mod control;
mod signals;
mod sockets;
mod supervised;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use longshore_sessions::{Peer, PodId};
use longshore_sidecar_config::paths;
use socket2::Socket;
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;

use crate::audit::{Audit, Writer};
use crate::calls::Calls;
use crate::drain::{self, Arrivals, Ending};
use crate::held::{self, Shares};
use crate::inventory::{Inventories, Published};
use crate::memory::Amounts;
use crate::metrics::Metrics;
use crate::monitor::{RelistRequests, View, user_listening};
use crate::options::{Options, Pod};
use crate::peers::{Errands, Peers};
use crate::server_doubt::Doubt;
use crate::sessions::Sessions;
use crate::shared::{Rooms, Shared};
use crate::stack::sse;
use crate::streams::Store;
use crate::tasks::Tasks;
use crate::upstream::sse::Sse;
use crate::upstream::stdio::Stdio;
use crate::upstream::{Absence, LegacyAsModern, ModernAsLegacy, Speaks};
use crate::worker::{Callers, Pace, Unfinished};
use control::{Sockets, Successor, control};
use signals::Signals;
pub(crate) use sockets::RECEIVED;
use sockets::{Share, bind, listen, local_address};

/// A sidecar whose sockets are open.
pub struct App {
    shared: Arc<Shared>,
    writer: Writer,
    mcp: Vec<StdTcpListener>,
    replicas: Vec<Socket>,
    errands: Errands,
    admin: StdTcpListener,
    hook: Option<StdUnixListener>,
    bound: Bound,
    published: watch::Sender<Option<Arc<Published>>>,
}

/// Where a sidecar listens.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Clients.
    pub mcp: SocketAddr,
    /// Probes, metrics, inventory.
    pub admin: SocketAddr,
    /// The other replicas.
    pub peers: SocketAddr,
}

/// Why a sidecar cannot start.
#[derive(Debug, Error)]
pub enum BindError {
    /// A port is taken, or may not be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Somebody else listens at a port. In a pod that is a program beside the sidecar, which has waited for its end.
    #[error(
        "cannot listen on {address}: a program of user {user} does, and hears what comes there meanwhile, \
         keys and tokens too"
    )]
    Taken {
        /// The address.
        address: SocketAddr,
        /// Who.
        user: u32,
    },
    /// The socket for the server's hook.
    #[error("cannot listen for the server's preStop hook")]
    Hook(#[source] io::Error),
    /// There are no random bits.
    #[error("cannot make up a name for this replica")]
    Random(#[source] getrandom::Error),
    /// The name that it was to have is none.
    #[error("cannot name this replica")]
    Unnamed,
    /// The metrics contradict each other.
    #[error("cannot register the metrics")]
    Metrics(#[from] prometheus::Error),
    /// The audit log's thread.
    #[error("cannot start the audit log")]
    Audit(#[source] io::Error),
}

/// Why a sidecar ended although nobody asked it to, or before it was done.
#[derive(Debug, Error)]
pub enum RunError {
    /// A runtime or a thread could not be made.
    #[error("cannot start {what}")]
    Start {
        /// Which.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Something that runs for as long as the process does has ended.
    #[error("{task} ended unexpectedly")]
    Ended {
        /// Which.
        task: &'static str,
        /// Why, if it said so.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A second signal came during the drain.
    #[error("a second signal ended the drain early")]
    Aborted,
}

impl BindError {
    fn at(address: SocketAddr, source: io::Error) -> Self {
        let is_taken = source.kind() == io::ErrorKind::AddrInUse;
        match is_taken.then(|| user_listening(address.port())).flatten() {
            Some(user) => Self::Taken { address, user },
            None => Self::Listen { address, source },
        }
    }
}

impl App {
    /// Opens every socket. Nothing is served yet.
    pub fn bind(mut options: Options) -> Result<Self, BindError> {
        // Only where listeners are to share an address: otherwise a port that is taken has to be an error.
        let share = if options.workers > 1 { Share::Workers } else { Share::Nobody };
        if share == Share::Workers {
            // Those of another process would share it too.
            bind(options.mcp, Share::Nobody).map_err(|error| BindError::at(options.mcp, error))?;
        }
        let first = listen(options.mcp, share)?;
        let address = |listener: &StdTcpListener, wanted| {
            listener.local_addr().map_err(|error| BindError::at(wanted, error))
        };
        let admin = listen(options.admin, Share::Nobody)?;
        // Nobody listens there before there is a configuration with other replicas in it.
        let replicas = bind(options.peers, share).map_err(|error| BindError::at(options.peers, error))?;
        let peers = local_address(&replicas).map_err(|error| BindError::at(options.peers, error))?;
        let bound =
            Bound { mcp: address(&first, options.mcp)?, admin: address(&admin, options.admin)?, peers };
        // The kernel spreads connections over listeners of one address.
        let (mut mcp, mut replicas) = (vec![first], vec![replicas]);
        for _ in 1..options.workers.max(1) {
            mcp.push(listen(bound.mcp, share)?);
            replicas.push(bind(peers, share).map_err(|error| BindError::at(peers, error))?);
        }
        let hook = drain::bind(&options.sockets_dir).map_err(BindError::Hook)?;
        options.own_ports.extend([bound.mcp.port(), bound.admin.port(), bound.peers.port()]);

        if hook.is_none() {
            tracing::info!(
                "there is no directory for sockets: the server cannot be held until its calls have ended"
            );
        }
        raise_descriptors();

        let metrics = Arc::new(Metrics::new()?);
        let (audit, writer) = Audit::start(options.audit, metrics.clone()).map_err(BindError::Audit)?;
        let me = me(&options, peers.ip())?;
        // Without a pod of its own it has no other replicas.
        let is_alone = options.pod.is_none();
        let amounts = Amounts::within(options.bounds.memory);
        let subscriptions = Shares::new(amounts.subscriptions);
        let held = Shares::new(held::Bounds { total: options.bounds.held_bytes, ..amounts.held });
        let streams = Store::new(options.bounds.stream_bytes, held.clone(), metrics.clone());
        let legacy_as_modern =
            Arc::new(LegacyAsModern::new(me.clone(), options.bounds.answers, streams.sent_away()));
        let parked = Shares::new(amounts.parked);
        let modern_as_legacy =
            Arc::new(ModernAsLegacy::new(options.bounds.answers, parked, subscriptions.clone()));
        let tasks = Arc::new(Tasks::new(me.clone()));
        let template = options.pod.as_ref().and_then(|pod| pod.template.clone());
        let sessions = Sessions::new(
            me,
            is_alone,
            options.program_dir.as_deref(),
            metrics.clone(),
            subscriptions,
            amounts.copied,
        );
        let sessions = Arc::new(sessions.in_a_pod_of(template));
        let (peers, errands) = Peers::new(sessions.clone(), peers.port());
        let shared = Arc::new(Shared {
            peers,
            streams,
            stdio: Arc::new(Stdio::new(
                options.sockets_dir.join(paths::STDIO_SOCKET),
                options.bounds.hang,
                metrics.clone(),
                sessions.clone(),
                held.clone(),
            )),
            sessions,
            sse: Arc::new(Sse::new(metrics.clone())),
            held,
            told: Shares::new(amounts.told),
            callers_streams: Arc::new(sse::Open::new(amounts.letters)),
            callers: Callers::new(options.bounds.connections),
            pace: Pace::of(metrics.connections.clone(), options.bounds.connections),
            options,
            snapshot: ArcSwapOption::empty(),
            audit,
            metrics,
            calls: Arc::new(Calls::default()),
            openings: Arc::new(Calls::default()),
            rooms: Rooms::default(),
            unfinished: Unfinished::new(amounts.heads),
            listeners: Arc::default(),
            forwards: Arc::new(Calls::default()),
            config_changed: watch::Sender::new(0),
            config_error: watch::Sender::new(None),
            view: watch::Sender::new(View::new()),
            exposed: watch::Sender::new(Vec::new()),
            speaks: Arc::new(Speaks::new()),
            modern_as_legacy,
            legacy_as_modern,
            tasks,
            absence: Absence::new(),
            doubt: Arc::new(Doubt::new()),
            relist: RelistRequests::new(),
            hooks: watch::Sender::new(0),
            draining: watch::Sender::new(false),
            ending: Ending::default(),
            arrivals: Arrivals::default(),
        });
        let published = watch::Sender::new(None);
        Ok(Self { shared, writer, mcp, replicas, errands, admin, hook, bound, published })
    }

    /// Where it listens.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// What it knows of its server, for a reader in the same process. Others ask at the admin port, with a token.
    pub fn inventories(&self) -> Inventories {
        Inventories::new(self.published.subscribe())
    }

    /// Serves until SIGTERM or SIGINT, then drains.
    pub fn run(self) -> Result<(), RunError> {
        runtime("the control runtime")?.block_on(async {
            let mut signals = Signals::new()?;
            self.serve(Successor::MayCome, async || signals.next().await).await
        })
    }

    /// Serves until `stop` is done, then drains. The process's signals are left to those who own the process. When `stop`
    /// is done once more, the drain ends early, and nothing that the sidecar had opened is open afterwards.
    pub fn run_until(self, stop: impl AsyncFnMut()) -> Result<(), RunError> {
        runtime("the control runtime")?.block_on(self.serve(Successor::None, stop))
    }

    /// The first time that `stop` is done begins the drain, the second one ends it early.
    async fn serve(self, successor: Successor, stop: impl AsyncFnMut()) -> Result<(), RunError> {
        let Self { shared, writer, mcp, replicas, errands, admin, hook, published, .. } = self;
        // Without the volume nobody finds the server's processes again.
        let successor = if hook.is_some() { successor } else { Successor::None };
        let sockets = Sockets { workers: mcp.into_iter().zip(replicas).collect(), admin, hook };
        let result = control(shared, &writer, sockets, errands, published, successor, stop).await;
        writer.close();
        result
    }
}

/// Takes as many descriptors as the process may have. Many runtimes start processes with far fewer than they are to have
/// connections.
pub fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "cannot raise the limit of descriptors");
    }
}

/// Who this replica is. One that was not told is nobody's peer, and still somebody.
fn me(options: &Options, bound: IpAddr) -> Result<Peer, BindError> {
    if let Some(Pod { uid, address, .. }) = &options.pod {
        return Ok(Peer { pod: uid.clone(), address: *address });
    }
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(BindError::Random)?;
    let pod = PodId::new(&format!("{:032x}", u128::from_be_bytes(bits))).map_err(|_| BindError::Unnamed)?;
    Ok(Peer { pod, address: bound })
}

fn runtime(what: &'static str) -> Result<LocalRuntime, RunError> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|source| RunError::Start { what, source })
}
