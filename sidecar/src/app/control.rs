//! Everything that is not on the request path, and the supervision of what is.

use std::io;
use std::net::TcpListener as StdTcpListener;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures::StreamExt;
use longshore_sessions::Question;
use longshore_sessions::bounds::MAX_TOMBSTONES_A_PAGE;
use socket2::Socket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, interval, sleep};

use super::RunError;
use crate::audit::Writer;
use crate::drain::Hooks;
use crate::inventory::Published;
use crate::peers::Errands;
use crate::shared::Shared;
use crate::upstream::{Pool, stdio};
use crate::{admin, configuration, drain, exchange, inventory, monitor, peers, sessions, streams, worker};

/// To how many sessions' ends the server is told side by side.
const FAREWELLS: usize = 16;

/// Whether another sidecar may come after this one, beside the same server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Successor {
    MayCome,
    None,
}

/// What a sidecar listens at.
pub(super) struct Sockets {
    /// For each worker: that of clients, and that of other replicas.
    pub(super) workers: Vec<(StdTcpListener, Socket)>,
    pub(super) admin: StdTcpListener,
    pub(super) hook: Option<StdUnixListener>,
}

type TaskResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Starts everything, and ends it in order once `told` is done.
pub(super) async fn control(
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
            let result = match super::runtime("a worker's runtime") {
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

/// Ends sessions that nobody uses, and tells the server and the other replicas so.
async fn expire(shared: Arc<Shared>, pool: Rc<Pool>) -> TaskResult {
    let mut changed = shared.config_changed.subscribe();
    loop {
        tokio::select! {
            () = sleep(shared.sessions.tick()) => {}
            result = changed.changed() => result?,
        }
        let Some(snapshot) = shared.snapshot.load_full() else { continue };
        let (over, ended) = shared.sessions.expire();
        // Side by side: a server that hangs must not keep expired sessions in the way of new ones.
        let farewells = futures::stream::iter(over).for_each_concurrent(FAREWELLS, async |session| {
            exchange::end_upstream(&pool, &snapshot, &session).await;
        });
        // Who does not hear it now finds out that it knows less.
        let told = async {
            for some in ended.chunks(MAX_TOMBSTONES_A_PAGE) {
                shared.peers.tell_all(&Question::Ended(some.to_vec())).await;
            }
        };
        tokio::join!(farewells, told);
    }
}
