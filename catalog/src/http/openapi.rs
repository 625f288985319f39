//! `/openapi.json`: made from the types that are answered.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::answers;
use crate::model::Problem;

#[derive(OpenApi)]
#[openapi(
    info(title = "Longshore catalog", description = "What the MCP servers of a cluster offer."),
    paths(answers::servers, answers::server, answers::tools, answers::tool),
    components(schemas(Problem)),
    modifiers(&ApiKeys),
    security(("apiKey" = []))
)]
struct Description;

/// How callers log in, where they have to.
struct ApiKeys;

impl Modify for ApiKeys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        if let Some(components) = &mut openapi.components {
            components.add_security_scheme("apiKey", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        }
    }
}

static DOCUMENT: LazyLock<Result<String, String>> =
    LazyLock::new(|| Description::openapi().to_json().map_err(|error| error.to_string()));

/// The document. It says nothing of any server, so nobody has to log in.
pub(super) async fn document() -> Response {
    match &*DOCUMENT {
        Ok(document) => ([(CONTENT_TYPE, "application/json")], document.as_str()).into_response(),
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.as_str()).into_response(),
    }
}
