//! `/openapi.json`: made from the types that are answered.

use axum::Extension;
use axum::response::IntoResponse as _;
use axum::routing::{MethodRouter, get};
use http::{HeaderMap, StatusCode};
use utoipa::openapi::header::Header;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Content, Ref, RefOr, Required};
use utoipa::{Modify, OpenApi};

use super::places::Public;
use super::{answers, login};
use crate::Login;
use crate::model::{Freshness, Problem};

#[derive(OpenApi)]
#[openapi(
    info(title = "Longshore catalog", description = "What the MCP servers of a cluster offer."),
    paths(answers::servers, answers::server, answers::tools, answers::tool),
    components(schemas(Problem)),
    modifiers(&Headers)
)]
struct Description;

/// What every answer has, and what there may be in the place of one.
struct Headers;

impl Modify for Headers {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        for (name, path) in &mut openapi.paths.paths {
            let known = ParameterBuilder::new()
                .name("If-None-Match")
                .parameter_in(ParameterIn::Header)
                .required(Required::False)
                .description(Some("The ETag of an answer: while it would be the same there is none, but 304"))
                .schema(Some(Object::with_type(Type::String)));
            path.parameters = Some(vec![RefOr::T(known.build())]);
            refuse(path);
            for (status, header, description) in [
                ("200", "ETag", "Changes with the answer"),
                (
                    "200",
                    "Longshore-Stale-Since",
                    "Only of an answer that may be out of date: since when, RFC 3339",
                ),
                ("304", "ETag", "That of the answer that there would be"),
                ("503", "Retry-After", "In so many seconds"),
            ] {
                describe(path, status, header, description);
            }
            if !name.ends_with('}') {
                let description = "Only of a page that another follows: where that is, as rel=\"next\"";
                describe(path, "200", "Link", description);
            }
        }
    }
}

/// What is said where there is no answer.
fn refuse(path: &mut PathItem) {
    let problem = |description: &str| {
        let content = Content::new(Some(Ref::from_schema_name("Problem")));
        ResponseBuilder::new().description(description).content("application/problem+json", content).build()
    };
    let Some(operation) = &mut path.get else { return };
    for (status, response) in [
        ("304", Response::new("It is as it was when it had the tag in If-None-Match")),
        ("4XX", problem("There is no such thing, or the request is not right: detail says what")),
        ("503", problem("The catalog starts: ask again after the seconds in Retry-After")),
    ] {
        operation.responses.responses.insert(status.to_owned(), RefOr::T(response));
    }
}

fn describe(path: &mut PathItem, status: &str, name: &str, description: &str) {
    let responses = path.get.as_mut().map(|operation| &mut operation.responses.responses);
    if let Some(RefOr::T(response)) = responses.and_then(|responses| responses.get_mut(status)) {
        let mut header = Header::new(Object::with_type(Type::String));
        header.description = Some(description.to_owned());
        response.headers.insert(name.to_owned(), RefOr::T(header));
    }
}

/// Whoever has to log in does so in one of two ways.
fn with_keys(openapi: &mut utoipa::openapi::OpenApi) {
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let plain = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new(login::API_KEY)));
    for (name, scheme) in [("bearer", bearer), ("apiKey", plain)] {
        openapi.components.get_or_insert_default().add_security_scheme(name, scheme);
        let requirement = SecurityRequirement::new(name, [] as [&str; 0]);
        openapi.security.get_or_insert_default().push(requirement);
    }
}

/// The document of a catalog with this login. It says nothing of any server, so nobody has to.
pub(super) fn document(login: &Login) -> MethodRouter {
    let mut openapi = Description::openapi();
    if matches!(login, Login::Keys(_)) {
        with_keys(&mut openapi);
    }
    let document = openapi.to_json().map_err(|error| error.to_string());
    get(async move |headers: HeaderMap| match document {
        Ok(document) => {
            let answer = answers::tagged(&headers, &Freshness::default(), document.into_bytes());
            (Extension(Public), answer).into_response()
        }
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    })
}
