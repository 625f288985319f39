//! The example server over Streamable HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Example;

/// Why the server over HTTP ended.
#[derive(Debug, Error)]
pub(crate) enum HttpError {
    /// The port is taken, or may not be used.
    #[error("cannot listen on {address}: choose another with --port and --host")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The listener broke.
    #[error("cannot go on listening")]
    Serve(#[source] io::Error),
}

pub(super) async fn serve(
    address: SocketAddr,
    started: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    let refused = |source| HttpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    let sessions = CancellationToken::new();
    // The SDK's own checks of Host and Origin: a web page of somebody else must not reach what listens on loopback.
    let mut config = StreamableHttpServerConfig::default()
        .enforce_origin_validation()
        .with_cancellation_token(sessions.clone());
    if !bound.ip().is_loopback() {
        // Whoever lets it listen elsewhere has names for that place which are not known here.
        config = config.disable_allowed_hosts();
    }
    let service =
        StreamableHttpService::new(|| Ok(Example), Arc::new(LocalSessionManager::default()), config);
    let router = Router::new().route_service("/mcp", service);
    started(bound);
    let stop = async move {
        stop.await;
        // Streams would keep their connections open for ever.
        sessions.cancel();
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await.map_err(HttpError::Serve)
}
