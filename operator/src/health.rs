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
use longshore_catalog::http::Port;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// The port cannot be served.
#[derive(Debug, Error)]
pub enum Error {
    /// Another program has the address, or it is not this machine's.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Whether this process can do its part: lead, or take over. Set once its caches are filled or it stands for election.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// From now on `/readyz` says yes.
    pub fn ready(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The bound port, not yet served.
pub struct Health(Port);

impl Health {
    /// Binds the port, so that a conflict ends the start and nothing later.
    pub async fn bind(address: SocketAddr, readiness: Readiness, metrics: Metrics) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })?;
        let router = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/readyz", get(readyz).with_state(readiness))
            .route("/metrics", get(export).with_state(metrics));
        Ok(Self(Port::for_everybody(listener, router)))
    }

    /// The address that was bound, whose port was chosen by the system if it was asked for port 0.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.0.address()
    }

    /// Serves until `stop`, as [`Port::serve`] does.
    pub async fn serve(self, stop: CancellationToken) {
        self.0.serve(stop).await;
    }
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
