//! Connections: bounded in number, in how long they may do without asking anything, and in how long they outlive the end.
//! Nobody keeps others out: where all places are taken, the connection that has waited for no answer for the longest time
//! makes room.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How many connections there are at once.
const CONNECTIONS: usize = 512;
/// How long a request's head may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(30);
/// How long a connection may wait for no answer: until all of the last one is taken, and the next request is there.
const REST: Duration = Duration::from_secs(60);
/// The longest head.
const HEAD_BYTES: usize = 32 << 10;
/// How long answers may take once the port is to end.
const FINISH: Duration = Duration::from_secs(5);
/// After a failure to accept: the system is out of something. Or everybody who has a place waits for an answer.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection.
struct Open {
    task: AbortHandle,
    rest: Arc<Rest>,
}

/// Since when a connection waits for no answer, if it does not.
struct Rest(Mutex<Option<Instant>>);

pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    let mut open: Vec<Open> = Vec::new();
    loop {
        let is_full = open.len() >= CONNECTIONS;
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = tasks.join_next() => open.retain(|connection| !connection.task.is_finished()),
            accepted = listener.accept(), if !is_full || longest(&open).is_some() => match accepted {
                Ok((stream, _)) => {
                    if let Some(longest) = longest(&open).filter(|_| is_full) {
                        open.swap_remove(longest).task.abort();
                    }
                    let rest = Arc::new(Rest::from_now());
                    let task = tasks.spawn(connection(stream, router.clone(), rest.clone(), stop.clone()));
                    open.push(Open { task, rest });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(PAUSE).await;
                }
            },
            () = sleep(PAUSE), if is_full => {}
        }
    }
    let finished = async { while tasks.join_next().await.is_some() {} };
    if timeout(FINISH, finished).await.is_err() {
        tracing::warn!("answers under way took too long and are given up");
    }
}

/// The one that has waited for no answer for the longest time.
fn longest(open: &[Open]) -> Option<usize> {
    let resting = open.iter().enumerate().filter_map(|(at, connection)| Some((connection.rest.since()?, at)));
    resting.min().map(|(_, at)| at)
}

async fn connection(stream: TcpStream, router: Router, rest: Arc<Rest>, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended before it began");
        return;
    }
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request| {
        rest.ends();
        let (answer, rest) = (router.call(request), &rest);
        async move {
            let answer = answer.await;
            rest.begins();
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // What breaks a connection is its client's to know.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = rest.is_too_long() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

// === impl Rest ===

impl Rest {
    fn from_now() -> Self {
        Self(Mutex::new(Some(Instant::now())))
    }

    fn begins(&self) {
        self.set(Some(Instant::now()));
    }

    fn ends(&self) {
        self.set(None);
    }

    async fn is_too_long(&self) {
        loop {
            let end = self.since().unwrap_or_else(Instant::now) + REST;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_too_long_when_nothing_was_asked_meanwhile() {
        let (rest, began) = (Rest::from_now(), Instant::now());
        let asks = async {
            sleep(REST / 2).await;
            rest.ends();
            sleep(REST * 2).await;
            rest.begins();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = rest.is_too_long() => {}
            () = asks => {}
        }
        assert_eq!(began.elapsed().as_secs(), (REST / 2 + REST * 3).as_secs());
    }
}
