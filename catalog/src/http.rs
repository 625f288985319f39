//! The catalog over HTTP: the REST API at one port, probes and metrics at another.
//!
//! A request goes through [`measured`](answers::measured), [`bounded`](problem::bounded), [`login::required`],
//! [`answers::complete`], and then to its handler. Whatever goes wrong is answered as RFC 9457 has it.

mod answers;
mod login;
mod openapi;
mod places;
mod probes;
mod problem;
mod query;
mod serve;

use std::net::SocketAddr;

use axum::Router;
use axum::middleware;
use axum::routing::get;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Catalog, Login};

/// A port cannot be served.
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

/// A bound port, not yet served.
pub struct Port {
    listener: TcpListener,
    router: Router,
}

/// The REST API as a router, for whoever serves it beside something else.
pub fn api(catalog: Catalog, login: Login) -> Router {
    let document = openapi::document(&login);
    let guarded = Router::new()
        .route("/v1/servers", get(answers::servers))
        .route("/v1/servers/{namespace}/{name}", get(answers::server))
        .route("/v1/tools", get(answers::tools))
        .route("/v1/tools/{namespace}/{server}/{tool}", get(answers::tool))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .route_layer(middleware::from_fn_with_state(catalog.clone(), answers::complete))
        .route_layer(middleware::from_fn_with_state(login, login::required))
        .with_state(catalog.clone());
    Router::new()
        .route("/openapi.json", document)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .merge(guarded)
        .fallback(problem::not_found)
        .layer(middleware::from_fn(problem::bounded))
        .layer(middleware::from_fn_with_state(catalog.metrics().clone(), answers::measured))
}

impl Port {
    /// Binds the port of the REST API.
    pub async fn api(address: SocketAddr, catalog: Catalog, login: Login) -> Result<Self, Error> {
        Ok(Self { listener: bind(address).await?, router: api(catalog, login) })
    }

    /// Serves other routes at this listener, with the same bounds on connections.
    pub fn over(listener: TcpListener, router: Router) -> Self {
        Self { listener, router }
    }

    /// Binds a port for routes at which everybody is answered alike: nobody keeps a place by that.
    pub async fn for_everybody(address: SocketAddr, router: Router) -> Result<Self, Error> {
        let listener = bind(address).await?;
        Ok(Self::over(listener, router.layer(middleware::map_response(places::public))))
    }

    /// Binds the port for the kubelet and for Prometheus: `/livez`, `/readyz`, `/metrics`.
    pub async fn probes(address: SocketAddr, catalog: Catalog) -> Result<Self, Error> {
        Self::for_everybody(address, probes::router(catalog)).await
    }

    /// The address that was bound, whose port was chosen by the system if it was asked for port 0.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, and then until every request that has begun is answered, or five seconds have passed.
    pub async fn serve(self, stop: CancellationToken) {
        serve::serve(self.listener, self.router, stop).await;
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error::Bind { address, source })
}
