//! Connections: bounded in number, in how long they may do without asking anything, and in how long they outlive the end.
//! Nobody keeps others out: where all [places](super::places) are taken, somebody makes room; and where all of those ask
//! one thing after the other, the next that is answered does.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use http::HeaderValue;
use http::header::CONNECTION;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::places::{Place, Places, Watched};

/// How many connections there are at once.
const CONNECTIONS: usize = 512;
/// How long a request's head may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(30);
/// The longest head.
const HEAD_BYTES: usize = 32 << 10;
/// How long answers may take once the port is to end.
const FINISH: Duration = Duration::from_secs(5);
/// After a failure to accept: the system is out of something. Or everybody who has a place waits for an answer.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    let mut places = Places::default();
    // Who has come, and waits where nobody can make room yet.
    let mut waits = None;
    // Whether there is somebody who waits, for whom nobody was told to go yet. Who was told, and has not gone, is no
    // reason to wait for longer than a pause.
    let crowded = Arc::new(AtomicBool::new(false));
    loop {
        let is_full = places.len() >= CONNECTIONS;
        if let Some(stream) = waits.take_if(|_| !is_full || places.make_room()) {
            let place = Place::new();
            let task =
                tasks.spawn(connection(stream, router.clone(), place.clone(), crowded.clone(), stop.clone()));
            places.take(task, place);
            continue;
        }
        crowded.store(waits.is_some(), Ordering::Relaxed);
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = tasks.join_next_with_id() => {
                places.free(ended.map_or_else(|error| error.id(), |(task, ())| task));
            }
            accepted = listener.accept(), if waits.is_none() => match accepted {
                Ok((stream, _)) => waits = Some(stream),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(PAUSE).await;
                }
            },
            () = sleep(PAUSE), if waits.is_some() => {}
        }
    }
    let finished = async { while tasks.join_next().await.is_some() {} };
    if timeout(FINISH, finished).await.is_err() {
        tracing::warn!("answers under way took too long and are given up");
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    place: Arc<Place>,
    crowded: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended before it began");
        return;
    }
    let stream = Watched::new(stream, place.clone());
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request| {
        let (busy, answer) = (place.begin(), router.call(request));
        let crowded = crowded.clone();
        async move {
            let mut answer = answer.await?;
            if crowded.swap(false, Ordering::Relaxed) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(busy.until_sent(answer))
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
        () = place.until_idle_too_long() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
