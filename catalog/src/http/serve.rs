//! Connections: bounded in number, in how long a head may take, and in how long they outlive the end.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

/// Connections beyond wait to be accepted.
const CONNECTIONS: usize = 512;
/// How long a request's head may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(30);
/// The longest head.
const HEAD_BYTES: usize = 32 << 10;
/// How long a client may take none of an answer that waits for it.
const STALLED: Duration = Duration::from_secs(20);
/// How long answers may take once the port is to end.
const FINISH: Duration = Duration::from_secs(5);
/// After a failure to accept: the system is out of something.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        let (service, stop) = (TowerToHyperService::new(router.clone()), stop.clone());
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(STALLED));
        connections.spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(Box::pin(stream)), service);
            let mut connection = std::pin::pin!(connection);
            // What breaks a connection is its client's to know.
            tokio::select! {
                _ = connection.as_mut() => {}
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
            drop(place);
        });
    }
    let finished = async { while connections.join_next().await.is_some() {} };
    if timeout(FINISH, finished).await.is_err() {
        tracing::warn!("answers under way took too long and are given up");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, place))
}
