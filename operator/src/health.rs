//! The operator's port for the kubelet and for Prometheus: `/healthz`, `/readyz`, `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use longshore_catalog::http::{self, Port};

use crate::metrics::Metrics;

/// Whether this process can do its part: lead, or take over. Set once it waits to be elected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on `/readyz` says yes.
    pub(crate) fn ready(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Binds the port, so that a conflict ends the start and nothing later.
pub(crate) async fn bind(
    address: SocketAddr,
    readiness: Readiness,
    metrics: Metrics,
) -> Result<Port, http::Error> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(export).with_state(metrics));
    Port::for_everybody(address, router).await
}

async fn readyz(State(readiness): State<Readiness>) -> (StatusCode, &'static str) {
    if readiness.0.load(Ordering::Relaxed) {
        (StatusCode::OK, "ok")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "starting: waits for what it needs of the API server; its log says for what",
        )
    }
}

async fn export(State(metrics): State<Metrics>) -> Response {
    match metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
