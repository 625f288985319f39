//! Who is connected to the admin port. The kubelet is to get through whoever else is there: where all places are taken, the
//! oldest connection that waits for no answer makes room.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Duration, sleep};

/// How many connections there are at once: a few readers, the kubelet, a scraper.
const MAX_CONNECTIONS: usize = 128;
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
/// How large a head may be, in bytes.
const MAX_HEAD: usize = 32 * 1024;
/// How long accepting pauses when the process has no descriptors left, or everybody who has a place waits for an answer.
const BREATHER: Duration = Duration::from_millis(50);

/// A connection.
struct Open {
    task: AbortHandle,
    /// Whether a request of it waits for its answer.
    asks: Arc<AtomicBool>,
}

/// Serves the port. Ends only if it cannot be served at all.
pub(crate) async fn serve(listener: std::net::TcpListener, router: Router) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut tasks = JoinSet::new();
    // The oldest first.
    let mut open: VecDeque<Open> = VecDeque::new();
    loop {
        let is_full = open.len() >= MAX_CONNECTIONS;
        tokio::select! {
            Some(_) = tasks.join_next() => open.retain(|connection| !connection.task.is_finished()),
            accepted = listener.accept(), if !is_full || rests(&open).is_some() => match accepted {
                Ok((stream, _)) => {
                    let oldest = if is_full { rests(&open) } else { None };
                    if let Some(oldest) = oldest.and_then(|at| open.remove(at)) {
                        oldest.task.abort();
                    }
                    let asks = Arc::<AtomicBool>::default();
                    let task = tasks.spawn(connection(stream, router.clone(), asks.clone()));
                    open.push_back(Open { task, asks });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection at the admin port");
                    sleep(BREATHER).await;
                }
            },
            () = sleep(BREATHER), if is_full => {}
        }
    }
}

/// The oldest that waits for no answer.
fn rests(open: &VecDeque<Open>) -> Option<usize> {
    open.iter().position(|connection| !connection.asks.load(Ordering::Relaxed))
}

async fn connection(stream: TcpStream, router: Router, asks: Arc<AtomicBool>) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request| {
        asks.store(true, Ordering::Relaxed);
        let (answer, asks) = (router.call(request), &asks);
        async move {
            let answer = answer.await;
            asks.store(false, Ordering::Relaxed);
            answer
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection at the admin port ended");
    }
}
