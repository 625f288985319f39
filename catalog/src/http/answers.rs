//! The handlers, and what every answer has: a tag, and a word on whether it may be out of date.

use std::time::Instant;

use axum::extract::rejection::PathRejection;
use axum::extract::{MatchedPath, Path, RawQuery, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::query::{self, List, ListParameters, ToolListParameters};
use crate::model::{Freshness, Problem, ServerDetails, ServerList, Tool, ToolList};
use crate::view::Found;
use crate::{Catalog, Metrics, Page, ServerKey};

/// As many searches are made at once as the catalog has threads for everything else, such as telling that it is there: that
/// waits for none of them.
static TURNS: Semaphore = Semaphore::const_new(2);

/// The header that an answer has if it may be out of date: since when, RFC 3339.
const STALE_SINCE: HeaderName = HeaderName::from_static("longshore-stale-since");

/// Lists servers.
#[utoipa::path(
    get,
    path = "/v1/servers",
    params(ListParameters),
    responses((status = 200, description = "A page of servers", body = ServerList))
)]
pub(super) async fn servers(State(catalog): State<Catalog>, query: RawQuery, headers: HeaderMap) -> Response {
    list(List::Servers, catalog, query, headers, Catalog::list_servers, |found, next_cursor| ServerList {
        items: found.items,
        total: found.total,
        next_cursor,
        freshness: found.freshness,
    })
    .await
}

/// Lists tools.
#[utoipa::path(
    get,
    path = "/v1/tools",
    params(ListParameters, ToolListParameters),
    responses((status = 200, description = "A page of tools", body = ToolList))
)]
pub(super) async fn tools(State(catalog): State<Catalog>, query: RawQuery, headers: HeaderMap) -> Response {
    list(List::Tools, catalog, query, headers, Catalog::list_tools, |found, next_cursor| ToolList {
        items: found.items,
        total: found.total,
        next_cursor,
        freshness: found.freshness,
    })
    .await
}

/// Answers with the page of a list that is asked for.
async fn list<T: 'static, L: Serialize + 'static>(
    list: List,
    catalog: Catalog,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    find: fn(&Catalog, &Page) -> Found<T>,
    shown: fn(Found<T>, Option<String>) -> L,
) -> Response {
    let page = match query::page(list, query.as_deref()) {
        Ok(page) => page,
        Err(refusal) => return refusal.into_response(),
    };
    in_turn(move || {
        let found = find(&catalog, &page);
        let next_cursor = found.next.as_ref().and_then(|next| query::cursor(list, &page, next));
        let next = next_cursor.as_deref().and_then(|cursor| query::next_page(query.as_deref(), cursor));
        let freshness = found.freshness.clone();
        let mut answer = answer(&headers, &freshness, &shown(found, next_cursor));
        answer.headers_mut().extend(next.map(|next| (LINK, next)));
        answer
    })
    .await
}

/// Makes an answer that may take its time, in the turn of whoever asked.
async fn in_turn(make: impl FnOnce() -> Response + Send + 'static) -> Response {
    let Ok(turn) = TURNS.acquire().await else { return failed() };
    // Whoever asked may go: the turn lasts as long as the work.
    let work = move || {
        let _turn = turn;
        make()
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| failed())
}

fn failed() -> Response {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made").into_response()
}

/// Shows a server.
#[utoipa::path(
    get,
    path = "/v1/servers/{namespace}/{name}",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "The server", body = ServerDetails))
)]
pub(super) async fn server(
    State(catalog): State<Catalog>,
    path: Result<Path<(String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = query::none(query.as_deref()) {
        return refusal.into_response();
    }
    let Ok(Path((namespace, name))) = path else { return unreadable() };
    match catalog.server(&ServerKey { namespace, name }) {
        Some(server) => answer(&headers, &server.freshness, &server),
        None => Problem::new(StatusCode::NOT_FOUND, "no server of this name is published in this namespace")
            .into_response(),
    }
}

/// Shows a tool, with its schemas.
#[utoipa::path(
    get,
    path = "/v1/tools/{namespace}/{server}/{tool}",
    params(("namespace" = String, Path), ("server" = String, Path), ("tool" = String, Path)),
    responses((status = 200, description = "The tool, with its schemas", body = Tool))
)]
pub(super) async fn tool(
    State(catalog): State<Catalog>,
    path: Result<Path<(String, String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = query::none(query.as_deref()) {
        return refusal.into_response();
    }
    let Ok(Path((namespace, server, tool))) = path else { return unreadable() };
    let key = ServerKey { namespace, name: server };
    if let Some(tool) = catalog.tool(&key, &tool) {
        return answer(&headers, &tool.freshness, &tool);
    }
    let detail = match catalog.server(&key) {
        Some(ServerDetails { server, .. }) if server.reported.is_some() => {
            "this server has no tool of this name in the catalog"
        }
        Some(_) => "the catalog has not heard this server yet, and knows of no tool of this name",
        None => "no server of this name is published in this namespace",
    };
    Problem::new(StatusCode::NOT_FOUND, detail).into_response()
}

fn unreadable() -> Response {
    Problem::new(StatusCode::BAD_REQUEST, "the path is not UTF-8 text in percent-encoding").into_response()
}

/// The answer as JSON.
fn answer<T: Serialize>(asked: &HeaderMap, freshness: &Freshness, value: &T) -> Response {
    let Ok(mut body) = serde_json::to_vec(value) else {
        return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written")
            .into_response();
    };
    // It stays as long as its reader takes.
    body.shrink_to_fit();
    tagged(asked, freshness, body)
}

/// JSON with its tag, or the word that the asker has it already.
pub(super) fn tagged(asked: &HeaderMap, freshness: &Freshness, body: Vec<u8>) -> Response {
    let tag: String = Sha256::digest(&body).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{tag}\"");
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // It may be kept, for its own reader, and has to be asked for again each time.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(VARY, HeaderValue::from_static("Authorization, X-Api-Key"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    if let Some(since) = freshness.since.as_deref().and_then(|since| HeaderValue::from_str(since).ok()) {
        headers.insert(STALE_SINCE, since);
    }
    if is_known(asked, &tag) {
        headers.remove(CONTENT_TYPE);
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, body).into_response()
}

/// Whether `If-None-Match` names the tag. It compares weakly (RFC 9110).
fn is_known(asked: &HeaderMap, tag: &str) -> bool {
    let mut tags = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.any(|tags| {
        tags.split(',').any(|it| matches!(it.trim(), it if it == "*" || it.trim_start_matches("W/") == tag))
    })
}

/// A catalog that does not know yet what there is says so, rather than that it does not exist.
pub(super) async fn complete(State(catalog): State<Catalog>, request: Request, next: Next) -> Response {
    if catalog.is_complete() {
        return next.run(request).await;
    }
    let problem = Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the catalog starts: the servers, or what they offer, are still to be heard",
    );
    ([(RETRY_AFTER, "1")], problem).into_response()
}

/// Counts every request by its route.
pub(super) async fn measured(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let began = Instant::now();
    let response = next.run(request).await;
    metrics.answered(route.as_deref().unwrap_or("other"), response.status().as_u16(), began.elapsed());
    response
}
