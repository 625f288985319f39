//! The admin port: probes, metrics, inventory.

mod connections;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Duration, timeout};

use crate::authenticate::bearer;
use crate::inventory::Published;
use crate::inventory::readers::NotReader;
use crate::shared::Shared;
pub(crate) use connections::serve;

/// How long a readiness probe is held while the server is starting: the kubelet probes once a second, and so hears
/// that it is ready the moment it is.
const READINESS_HOLD: Duration = Duration::from_millis(900);
/// How many probes are held at once; others are answered as it is just then. Anybody may probe, and who is held has a
/// connection that makes no room for the kubelet's.
const HELD: usize = 8;
/// The longest wait for another inventory.
const MAX_WAIT: u64 = 60;

#[derive(Clone)]
struct Admin {
    shared: Arc<Shared>,
    published: watch::Receiver<Option<Arc<Published>>>,
    /// Places for probes that are held.
    holds: Arc<Semaphore>,
}

/// The port's routes.
pub(crate) fn router(shared: Arc<Shared>, published: watch::Receiver<Option<Arc<Published>>>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/startupz", get(started))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/inventory", get(inventory))
        .with_state(Admin { shared, published, holds: Arc::new(Semaphore::new(HELD)) })
}

impl Admin {
    /// Waits for what a probe asks about. None: that is not so, and there is no time or no place to wait for it.
    async fn hold<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        let place = self.holds.try_acquire();
        // Without a wait this looks once.
        let wait = if place.is_ok() { READINESS_HOLD } else { Duration::ZERO };
        timeout(wait, what).await.ok()
    }
}

/// Whether the configuration is loaded; that the ports are bound is shown by the answer. Held for a moment, so that
/// whoever waits for it hears at once.
async fn started(State(admin): State<Admin>) -> Response {
    let mut config = admin.shared.config_changed.subscribe();
    let loaded = async {
        while admin.shared.config().is_none() {
            if config.changed().await.is_err() {
                return;
            }
        }
    };
    if admin.hold(loaded).await.is_some() {
        return "ok\n".into_response();
    }
    let why = admin.shared.config_error.borrow().clone();
    unavailable(why.unwrap_or_else(|| "the configuration has not been read yet".to_owned()))
}

/// Whether clients should be sent here: from the first handshake with the server until the drain. A server that dies
/// later is an error that clients are told, not an endpoint that vanishes, unless it dies within seconds of its
/// handshake: such a one has to stay once first.
async fn ready(State(admin): State<Admin>) -> Response {
    let mut view = admin.shared.view.subscribe();
    let mut draining = admin.shared.draining.subscribe();
    let connected = async {
        tokio::select! {
            connected = view.wait_for(|view| view.is_ready) => connected.is_ok(),
            _ = draining.wait_for(|draining| *draining) => false,
        }
    };
    let mut greeted = admin.shared.peers.greeted();
    let connected = async { greeted.wait_for(|greeted| *greeted).await.is_ok() && connected.await };
    let connected = admin.hold(connected).await.unwrap_or(false);
    if admin.shared.is_draining() {
        return unavailable("draining".to_owned());
    }
    if connected {
        return "ok\n".into_response();
    }
    if !*greeted.borrow() {
        return unavailable("not all other replicas have been greeted yet".to_owned());
    }
    // Why is for those who may read the inventory, since a server's own words are in it.
    let why = if admin.shared.view.borrow().ever_connected {
        "the MCP server was lost soon after its handshake, and has not stayed since"
    } else {
        "the MCP server has not been connected yet"
    };
    unavailable(format!("{why}: the condition Connected of its McpServer says why"))
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let metrics = &admin.shared.metrics;
    let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    metrics.sessions.set(gauge(admin.shared.sessions.len()));
    metrics.endings.set(gauge(admin.shared.sessions.endings()));
    metrics.calls.set(gauge(admin.shared.calls.count()));
    metrics.replicas(&admin.shared.peers.alive());
    metrics.stream_bytes.set(gauge(admin.shared.streams.used()));
    metrics.warm.set(gauge(admin.shared.stdio.warm()));
    metrics.queued.set(gauge(admin.shared.stdio.queued()));
    metrics.unstarted.set(gauge(admin.shared.stdio.unstarted()));
    match metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot write the metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// What the sidecar knows. With `If-None-Match` and `Prefer: wait=N` it answers when it knows something else.
async fn inventory(State(mut admin): State<Admin>, headers: HeaderMap) -> Response {
    let refused = {
        let snapshot = admin.shared.config();
        let Some(snapshot) = snapshot.as_ref() else {
            return unavailable("the configuration has not been read yet".to_owned());
        };
        let token = headers.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        token.ok_or(NotReader::Invalid).and_then(|token| snapshot.readers.check(token)).err()
    };
    match refused {
        None => {}
        Some(refusal @ NotReader::Invalid) => {
            return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], format!("{refusal}\n"))
                .into_response();
        }
        Some(refusal @ NotReader::Subject) => {
            return (StatusCode::FORBIDDEN, format!("{refusal}\n")).into_response();
        }
    }
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let is_new = |published: &Option<Arc<Published>>| {
        published.as_ref().is_some_and(|published| known.as_deref() != Some(published.etag.as_str()))
    };
    // Without a wait this looks once.
    let wait = timeout(wait(&headers), admin.published.wait_for(is_new));
    let published = match wait.await {
        Ok(Ok(published)) => published.clone(),
        Ok(Err(_)) => return unavailable("shutting down".to_owned()),
        Err(_) => None,
    };
    match (published, known) {
        (Some(published), _) => {
            let headers = [(CONTENT_TYPE, "application/json".to_owned()), (ETAG, published.etag.clone())];
            (headers, published.body.clone()).into_response()
        }
        (None, Some(etag)) => (StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response(),
        (None, None) => unavailable("nothing is known yet".to_owned()),
    }
}

/// How long the reader wants to wait (RFC 7240).
fn wait(headers: &HeaderMap) -> Duration {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';'])).map(str::trim);
    let seconds = preferences.find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("wait")
            .then(|| value.trim().trim_matches('"').parse::<u64>().ok())?
    });
    Duration::from_secs(seconds.unwrap_or(0).min(MAX_WAIT))
}

fn unavailable(why: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}
