//! Everything that is not on the request path, and the supervision of what is.

use std::io;
use std::net::TcpListener as StdTcpListener;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use socket2::Socket;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, interval};

use super::RunError;
use super::supervised::Supervised;
use crate::audit::Writer;
use crate::drain::Hooks;
use crate::inventory::Published;
use crate::peers::Errands;
use crate::shared::Shared;
use crate::upstream::{Pool, stdio};
use crate::{admin, configuration, drain, inventory, monitor, peers, sessions, streams, worker};

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

    let pool = Rc::new(Pool::of(&shared));
    let router = admin::router(shared.clone(), publish.subscribe());
    let mut tasks = Supervised::default();
    tasks.start("the configuration's watch", configuration::watch(shared.clone()));
    let (workers, mut worker_ended) = start_workers(listeners, &shared, &stopped)?;
    tasks.start("the watch over other replicas", peers::watch(shared.clone(), errands));
    tasks.start("the admin port", admin::serve(admin, router));
    tasks.start("the inventory", inventory::publish(shared.clone(), publish));
    tasks.start("the processes that wait", stdio::keep_warm(shared.clone()));
    tasks.start("the processes of a sidecar before", stdio::keep_former(shared.clone()));
    tasks.start("the watch over the server", monitor::watch_server(shared.clone(), pool.clone()));
    tasks.start("the watch over sockets", monitor::watch_sockets(shared.clone()));
    tasks.start("the end of idle sessions", sessions::expire(shared.clone(), pool.clone()));
    tasks.start_infallible("the copies of what clients have set", sessions::keep_copies(shared.clone()));
    tasks.start("what clients have set, written down", sessions::keep_notes(shared.clone()));
    let set_in_turn = sessions::set_in_turn(shared.clone(), pool.clone());
    tasks.start_infallible("what clients have set, said again", set_in_turn);
    tasks.start_infallible("the end of the idle sessions of requests that stand alone", async move {
        pool.expire().await;
    });
    tasks.start_infallible("the watch over streams", streams::look_after(shared.clone()));
    if let Some(hook) = hook {
        tasks.start("the server's hook", drain::serve(hook, Hooks { shared: shared.clone(), released }));
    }

    let mut draining = false;
    let drain = async {
        let pod_ends = drain::drain(&shared).await;
        // Before the threads end that look after them. The next sidecar finds them where there is one, as after a crash.
        if pod_ends || successor == Successor::None {
            shared.stdio.close().await;
        }
        // Only now: its container is told to end then, and processes that have yet to see the end of their stdin would get
        // the signal with it.
        release.send_replace(true);
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
            error = tasks.ended() => return Err(error),
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
    let workers_end = async {
        for worker in workers {
            // The thread ends by itself now; that it panicked would have ended the process.
            while !worker.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::pin!(workers_end);
    tokio::select! {
        () = workers_end.as_mut() => outcome,
        () = told() => {
            shared.ending.cut();
            workers_end.await;
            Err(RunError::Aborted)
        }
    }
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
        // Where several sidecars run in one process, it says of which one a line of the log is.
        let span = tracing::Span::current();
        let thread = runtime.spawn(move || {
            let _span = span.enter();
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
