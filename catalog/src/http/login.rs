//! Lets in whoever may log in.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::Login;
use crate::model::Problem;

/// The other header that a key may come in.
pub(super) const API_KEY: &str = "x-api-key";

const MISSING: &str = "this needs an API key: send it as `Authorization: Bearer KEY`";
/// Whoever has one would look for a mistake in it.
const NO_KEYS: &str = "the catalog has no API keys, so nobody may read it: is there a Secret with some, of the name that the \
                       chart's value catalog.auth.apiKeysSecret says?";
const SEVERAL: &str =
    "an API key is sent in one header only, and once: as `Authorization: Bearer KEY` or as `X-API-Key: KEY`";

pub(super) async fn required(State(login): State<Login>, request: Request, next: Next) -> Response {
    let refusal = match &login {
        Login::OpenBy(hosts) if hosts.are_asked(request.uri(), request.headers()) => None,
        Login::OpenBy(hosts) => return Problem::new(StatusCode::FORBIDDEN, hosts.refusal()).into_response(),
        Login::Keys(ring) => {
            let ring = ring.load();
            match key(request.headers()) {
                Err(refusal) => Some(refusal),
                Ok(_) if ring.is_empty() => Some(NO_KEYS),
                Ok(key) if ring.principal(key).is_none() => {
                    Some("this API key is not, or no longer, one of those that the catalog knows")
                }
                Ok(_) => None,
            }
        }
    };
    let Some(detail) = refusal else { return next.run(request).await };
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, detail).into_response();
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"longshore catalog\""));
    response
}

/// The key that a request brings, or why it brings none. Of two, whose would it be?
fn key(headers: &HeaderMap) -> Result<&str, &'static str> {
    let mut bearer = headers.get_all(AUTHORIZATION).iter();
    let mut plain = headers.get_all(API_KEY).iter();
    match (bearer.next(), plain.next(), bearer.next(), plain.next()) {
        (Some(value), None, None, None) => {
            let parts = value.to_str().ok().and_then(|value| value.split_once(' '));
            let key = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            key.map(|(_, key)| key.trim()).ok_or(MISSING)
        }
        (None, Some(value), None, None) => value.to_str().map(str::trim).map_err(|_| MISSING),
        (None, None, ..) => Err(MISSING),
        _ => Err(SEVERAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_in_one_place() {
        for (headers, expected) in [
            (&[("authorization", "Bearer one")][..], Ok("one")),
            (&[("authorization", "bEARER  one ")], Ok("one")),
            (&[("x-api-key", "one")], Ok("one")),
            (&[], Err(MISSING)),
            (&[("authorization", "Basic one")], Err(MISSING)),
            (&[("authorization", "one")], Err(MISSING)),
            (&[("authorization", "Bearer one"), ("x-api-key", "one")], Err(SEVERAL)),
            (&[("authorization", "Bearer one"), ("authorization", "Bearer two")], Err(SEVERAL)),
            (&[("x-api-key", "one"), ("x-api-key", "one")], Err(SEVERAL)),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(key(&map), expected, "{headers:?}");
        }
    }
}
