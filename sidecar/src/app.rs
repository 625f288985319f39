//! The composition root: binds, starts, supervises, ends.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use arc_swap::ArcSwapOption;
use futures::StreamExt;
use longshore_sessions::{Peer, PodId};
use longshore_sidecar_config::paths;
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, interval, sleep};

use crate::audit::{Audit, Writer};
use crate::drain::{Arrivals, Ending, Hooks};
use crate::inventory::{Inventories, Published};
use crate::metrics::Metrics;
use crate::monitor::View;
use crate::options::{Options, Pod};
use crate::peers::{Errands, Peers};
use crate::sessions::Sessions;
use crate::shared::{Calls, Shared};
use crate::shares::{self, Shares};
use crate::stack::sse;
use crate::streams::{self, Store};
use crate::tasks::Tasks;
use crate::upstream::sse::Sse;
use crate::upstream::stdio::{self, Stdio};
use crate::upstream::{Absence, EDITABLE, Lifted, Lowered, Pool, Speaks};
use crate::{admin, configuration, drain, exchange, inventory, monitor, peers, sessions, worker};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// To how many sessions' ends the server is told side by side.
const FAREWELLS: usize = 16;

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

/// Whether another sidecar may come after this one, beside the same server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Successor {
    MayCome,
    None,
}

/// What a sidecar listens at.
struct Sockets {
    /// For each worker: that of clients, and that of other replicas.
    workers: Vec<(StdTcpListener, Socket)>,
    admin: StdTcpListener,
    hook: Option<StdUnixListener>,
}

type TaskResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl App {
    /// Opens every socket. Nothing is served yet.
    pub fn bind(mut options: Options) -> Result<Self, BindError> {
        // Only where listeners are to share an address: otherwise a port that is taken has to be an error.
        let share = if options.workers > 1 { Share::Workers } else { Share::Nobody };
        if share == Share::Workers {
            // Those of another process would share it too.
            bind(options.mcp, Share::Nobody)
                .map_err(|source| BindError::Listen { address: options.mcp, source })?;
        }
        let first = listen(options.mcp, share)?;
        let address = |listener: &StdTcpListener, wanted| {
            listener.local_addr().map_err(|source| BindError::Listen { address: wanted, source })
        };
        let admin = listen(options.admin, Share::Nobody)?;
        // Nobody listens there before there is a configuration with other replicas in it.
        let replicas = bind(options.peers, share)
            .map_err(|source| BindError::Listen { address: options.peers, source })?;
        let peers = local_address(&replicas)
            .map_err(|source| BindError::Listen { address: options.peers, source })?;
        let bound =
            Bound { mcp: address(&first, options.mcp)?, admin: address(&admin, options.admin)?, peers };
        // The kernel spreads connections over listeners of one address.
        let (mut mcp, mut replicas) = (vec![first], vec![replicas]);
        for _ in 1..options.workers.max(1) {
            mcp.push(listen(bound.mcp, share)?);
            replicas.push(bind(peers, share).map_err(|source| BindError::Listen { address: peers, source })?);
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
        let draining = watch::Sender::new(false);
        let lifted = Arc::new(Lifted::new(me.clone(), options.bounds.answers, draining.subscribe()));
        let lowered = Arc::new(Lowered::new(options.bounds.answers));
        let tasks = Arc::new(Tasks::new(me.clone()));
        let subscriptions = Shares::new(shares::SUBSCRIPTIONS);
        let sessions = Arc::new(Sessions::new(
            me,
            is_alone,
            options.program_dir.as_deref(),
            metrics.clone(),
            subscriptions.clone(),
        ));
        let (peers, errands) = Peers::new(sessions.clone(), peers.port());
        let shared = Arc::new(Shared {
            peers,
            sessions,
            streams: Store::new(options.bounds.stream_bytes, metrics.clone()),
            stdio: Arc::new(Stdio::new(
                options.sockets_dir.join(paths::STDIO_SOCKET),
                options.bounds.hang,
                metrics.clone(),
                subscriptions,
            )),
            sse: Arc::new(Sse::new(metrics.clone())),
            held: Shares::new(shares::Bounds {
                total: options.bounds.held_bytes,
                // Never less than one message needs.
                per_principal: EDITABLE,
            }),
            callers_streams: Arc::new(sse::Open::new()),
            options,
            snapshot: ArcSwapOption::empty(),
            audit,
            metrics,
            calls: Arc::new(Calls::default()),
            listeners: Arc::default(),
            forwards: Arc::new(Calls::default()),
            config_changed: watch::Sender::new(0),
            config_error: watch::Sender::new(None),
            view: watch::Sender::new(View::new()),
            exposed: watch::Sender::new(Vec::new()),
            speaks: Arc::new(Speaks::new()),
            lowered,
            lifted,
            tasks,
            absence: Absence::new(),
            doubt: Notify::new(),
            hooks: watch::Sender::new(0),
            draining,
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

/// Takes as many descriptors as the process may have. Many runtimes start processes with far fewer than connections
/// are allowed here.
fn raise_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "cannot raise the limit of descriptors");
    }
}

/// Who may listen at the same address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Nobody,
    Workers,
}

fn listen(address: SocketAddr, share: Share) -> Result<StdTcpListener, BindError> {
    let open = || {
        let socket = bind(address, share)?;
        socket.listen(BACKLOG)?;
        Ok(StdTcpListener::from(socket))
    };
    open().map_err(|source| BindError::Listen { address, source })
}

/// A socket at which nobody listens yet.
fn bind(address: SocketAddr, share: Share) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The unspecified address stands for those of IPv4 too.
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for connections of the process before.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share == Share::Workers)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Who this replica is. One that was not told is nobody's peer, and still somebody.
fn me(options: &Options, bound: IpAddr) -> Result<Peer, BindError> {
    if let Some(Pod { uid, address }) = &options.pod {
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

/// Everything that is not on the request path, and the supervision of what is.
async fn control(
    shared: Arc<Shared>,
    writer: &Writer,
    sockets: Sockets,
    errands: Errands,
    publish: watch::Sender<Option<Arc<Published>>>,
    successor: Successor,
    mut told: impl AsyncFnMut(),
) -> Result<(), RunError> {
    let Sockets { workers: listeners, admin, hook } = sockets;
    let (stop, stopped) = watch::channel(false);
    let (release, released) = watch::channel(false);

    let mut tasks = JoinSet::new();
    {
        let shared = shared.clone();
        tasks.spawn_local(async move {
            ("the configuration's watch", configuration::watch(shared).await.map_err(Into::into))
        });
    }
    let (workers, mut worker_ended) = start_workers(listeners, &shared, &stopped)?;
    tasks.spawn_local({
        let shared = shared.clone();
        async move { ("the watch over other replicas", peers::watch(shared, errands).await.map_err(Into::into)) }
    });
    let router = admin::router(shared.clone(), publish.subscribe());
    tasks.spawn_local(
        async move { ("the admin port", admin::serve(admin, router).await.map_err(Into::into)) },
    );
    tasks.spawn_local({
        let shared = shared.clone();
        async move { ("the inventory", inventory::publish(shared, publish).await.map_err(Into::into)) }
    });
    tasks.spawn_local({
        let shared = shared.clone();
        async move { ("the processes that wait", stdio::keep_warm(shared).await.map_err(Into::into)) }
    });
    let pool = Rc::new(Pool::of(&shared));
    tasks.spawn_local({
        let (shared, pool) = (shared.clone(), pool.clone());
        async move { ("the watch over the server", monitor::watch_server(shared, pool).await.map_err(Into::into)) }
    });
    tasks.spawn_local({
        let shared = shared.clone();
        async move { ("the watch over sockets", monitor::watch_sockets(shared).await.map_err(Into::into)) }
    });
    tasks.spawn_local({
        let shared = shared.clone();
        let pool = pool.clone();
        async move { ("the end of idle sessions", expire(shared, pool).await) }
    });
    tasks.spawn_local({
        let shared = shared.clone();
        async move {
            sessions::keep_copies(shared).await;
            ("the copies of what clients have set", Ok(()))
        }
    });
    tasks.spawn_local({
        let pool = pool.clone();
        async move {
            pool.expire().await;
            ("the end of the idle sessions of requests that stand alone", Ok(()))
        }
    });
    tasks.spawn_local({
        let shared = shared.clone();
        async move {
            streams::look_after(shared).await;
            ("the watch over streams", Ok(()))
        }
    });
    if let Some(hook) = hook {
        let hooks = Hooks { shared: shared.clone(), released };
        tasks.spawn_local(async move {
            ("the server's hook", drain::serve(hook, hooks).await.map_err(Into::into))
        });
    }

    let mut draining = false;
    let drain = async {
        let pod_ends = drain::drain(&shared, &release).await;
        // Before the threads end that look after them. The next sidecar finds them where there is one, as after a crash.
        if pod_ends || successor == Successor::None {
            shared.stdio.close().await;
        }
    };
    tokio::pin!(drain);
    let mut check = interval(Duration::from_secs(5));
    let outcome = loop {
        tokio::select! {
            () = drain.as_mut(), if draining => break Ok(()),
            () = told() => {
                if draining {
                    shared.ending.cut();
                    break Err(RunError::Aborted);
                }
                draining = true;
            }
            Some(ended) = tasks.join_next() => return Err(unexpected(ended)),
            Some(result) = worker_ended.recv() => {
                return Err(RunError::Ended { task: "a worker", source: result.err().map(Into::into) });
            }
            _ = check.tick() => {
                if writer.is_finished() {
                    return Err(RunError::Ended { task: "the audit log", source: None });
                }
            }
        }
    };
    stop.send_replace(true);
    for worker in workers {
        // The thread ends by itself now; that it panicked would have ended the process.
        while !worker.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    outcome
}

type Workers = (Vec<JoinHandle<()>>, mpsc::UnboundedReceiver<io::Result<()>>);

fn start_workers(
    listeners: Vec<(StdTcpListener, Socket)>,
    shared: &Arc<Shared>,
    stopped: &watch::Receiver<bool>,
) -> Result<Workers, RunError> {
    let (ended, receiver) = mpsc::unbounded_channel();
    let errands = shared.sessions.queue();
    let mut threads = Vec::new();
    for (number, (listener, replicas)) in listeners.into_iter().enumerate() {
        let runtime = std::thread::Builder::new().name(format!("worker-{number}"));
        let (shared, stopped, ended) = (shared.clone(), stopped.clone(), ended.clone());
        let errands = errands.clone();
        let thread = runtime.spawn(move || {
            let result = match self::runtime("a worker's runtime") {
                Ok(runtime) => {
                    runtime.block_on(worker::serve(listener, replicas, errands, shared, stopped.clone()))
                }
                Err(error) => Err(io::Error::other(error)),
            };
            if !*stopped.borrow() {
                // Nobody is left to hear it only if the process is ending anyway.
                let _ = ended.send(result);
            }
        });
        threads.push(thread.map_err(|source| RunError::Start { what: "a worker", source })?);
    }
    Ok((threads, receiver))
}

fn unexpected(ended: Result<(&'static str, TaskResult), tokio::task::JoinError>) -> RunError {
    match ended {
        Ok((task, result)) => RunError::Ended { task, source: result.err() },
        Err(error) => RunError::Ended { task: "a task", source: Some(Box::new(error)) },
    }
}

/// Ends sessions that nobody uses, and tells the server so.
async fn expire(shared: Arc<Shared>, pool: Rc<Pool>) -> TaskResult {
    let mut changed = shared.config_changed.subscribe();
    loop {
        tokio::select! {
            () = sleep(shared.sessions.tick()) => {}
            result = changed.changed() => result?,
        }
        let Some(snapshot) = shared.snapshot.load_full() else { continue };
        // Side by side: a server that hangs must not keep expired sessions in the way of new ones.
        futures::stream::iter(shared.sessions.expire())
            .for_each_concurrent(FAREWELLS, async |session| {
                exchange::end_upstream(&pool, &snapshot, &session).await;
            })
            .await;
    }
}

/// The signals that end a process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, RunError> {
        let open = |kind| signal(kind).map_err(|source| RunError::Start { what: "the signals", source });
        Ok(Self { terminate: open(SignalKind::terminate())?, interrupt: open(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
