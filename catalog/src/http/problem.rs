//! Errors, as RFC 9457 has them.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode, Uri};

use crate::model::Problem;

/// The longest path and query that are read.
pub(super) const LONGEST_URI: usize = 4096;

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            type_: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("application/problem+json")),
            (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        match serde_json::to_string(&self) {
            Ok(body) => (status, headers, body).into_response(),
            Err(_) => status.into_response(),
        }
    }
}

/// Refuses addresses that are longer than any that means something.
pub(super) async fn bounded(request: Request, next: Next) -> Response {
    let length = length(request.uri());
    if length > LONGEST_URI {
        let detail = format!(
            "the path and the query have {length} bytes, and at most {LONGEST_URI} are read: ask with fewer words"
        );
        return Problem::new(StatusCode::URI_TOO_LONG, detail).into_response();
    }
    next.run(request).await
}

fn length(uri: &Uri) -> usize {
    uri.path_and_query().map_or(0, |text| text.as_str().len())
}

pub(super) async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is no such path; /openapi.json describes those that there are")
}

pub(super) async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the catalog is only read: use GET or HEAD")
}
