//! The port for the kubelet and for Prometheus. Nothing here says what servers offer, so nobody has to log in.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::Catalog;

pub(super) fn router(catalog: Catalog) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(export))
        .with_state(catalog)
}

/// A catalog that does not know yet which servers there are, and what they offer, would say of some of it that it does
/// not exist.
async fn readyz(State(catalog): State<Catalog>) -> (StatusCode, &'static str) {
    if catalog.is_complete() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting: the servers, or what they offer, are still to be heard")
    }
}

async fn export(State(catalog): State<Catalog>) -> Response {
    match catalog.export() {
        Ok(text) => ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
