//! Who may read.

use std::sync::Arc;

use http::{Method, StatusCode};
use longshore_catalog::{About, Hosts, KeyRing, Login};
use longshore_sidecar_config::ApiKey;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::harness::{Stand, tool};

fn ring(keys: &[&str]) -> KeyRing {
    let hash = |key: &&str| Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
    let keys: Vec<_> =
        keys.iter().map(|key| ApiKey { principal: "ada".to_owned(), sha256: hash(key) }).collect();
    KeyRing::new(&keys)
}

#[tokio::test]
async fn a_key_is_needed_as_long_as_it_is_one() {
    let login = Login::with_keys(ring(&["key-of-ada"]));
    let Login::Keys(keys) = login.clone() else { panic!("keys were asked for") };
    let stand = Stand::with(login).await;
    stand.serve("a", "demo", About::default(), &[tool("echo", "x")]).await;
    for path in
        ["/v1/tools", "/v1/servers", "/v1/servers/a/demo", "/v1/servers/a/nobody", "/v1/tools/a/demo/echo"]
    {
        for headers in
            [&[][..], &[("authorization", "Bearer other")], &[("authorization", "Basic key-of-ada")]]
        {
            let answer = stand.ask(Method::GET, path, headers).await;
            answer.problem(401);
            assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"), "{path}");
        }
    }
    // It has one, so it is not told that it needs one.
    let both = [("authorization", "Bearer key-of-ada"), ("x-api-key", "key-of-ada")];
    let said = stand.ask(Method::GET, "/v1/tools", &both).await.problem(401);
    assert!(said.contains("in one header only"), "{said}");
    for headers in [[("authorization", "Bearer key-of-ada")], [("x-api-key", "key-of-ada")]] {
        assert_eq!(stand.ask(Method::GET, "/v1/tools", &headers).await.status, StatusCode::OK);
    }
    // What says nothing of any server needs none.
    let document = stand.json("/openapi.json").await;
    assert_eq!(document["security"], json!([{"bearer": []}, {"apiKey": []}]));
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(schemes["bearer"], json!({"type": "http", "scheme": "bearer"}));
    assert_eq!(schemes["apiKey"], json!({"type": "apiKey", "in": "header", "name": "x-api-key"}));
    stand.get("/nowhere").await.problem(404);

    keys.store(Arc::new(ring(&["another-key"])));
    let answer = stand.ask(Method::GET, "/v1/tools", &[("authorization", "Bearer key-of-ada")]).await;
    answer.problem(401);
    let answer = stand.ask(Method::GET, "/v1/tools", &[("authorization", "Bearer another-key")]).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn without_keys_nobody_may() {
    let stand = Stand::with(Login::with_keys(KeyRing::default())).await;
    for key in ["", "Bearer ", "Bearer x"] {
        let said = stand.ask(Method::GET, "/v1/tools", &[("authorization", key)]).await.problem(401);
        assert!(key != "Bearer x" || said.contains("the catalog has no API keys"), "{said}");
    }
}

/// A stranger's page whose name points at a port-forward reads nothing.
#[tokio::test]
async fn who_needs_no_key_asks_by_a_known_name() {
    let stand = Stand::with(Login::OpenBy(Hosts::new(["longshore-catalog".to_owned()]))).await;
    stand.serve("a", "demo", About::default(), &[tool("echo", "x")]).await;
    let document = stand.json("/openapi.json").await;
    assert!(document["security"].is_null() && document["components"]["securitySchemes"].is_null());
    for path in ["/v1/tools", "/v1/servers", "/v1/servers/a/demo", "/v1/tools/a/demo/echo"] {
        for host in ["longshore-catalog", "localhost:8080", "10.0.0.1"] {
            assert_eq!(stand.get_of(host, path).await.status, StatusCode::OK, "{host}{path}");
        }
        let said = stand.get_of("stranger.example", path).await.problem(403);
        assert!(said.contains("the chart's value catalog.hosts"), "{said}");
    }
    // Where there is no chart, nothing is said of one.
    let said = Stand::open().await.get_of("stranger.example", "/v1/tools").await.problem(403);
    assert!(said.ends_with("ask for localhost or an IP address"), "{said}");
}
