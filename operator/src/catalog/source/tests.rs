//! A cluster of one server, whose sidecar takes its time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::stream;
use kube::client::ClientBuilder;
use longshore_catalog::model::State;
use longshore_catalog::{Indexer, Metrics};
use longshore_sidecar_config::ports;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::*;

/// The sidecar, until its end.
struct Sidecar {
    address: Ipv4Addr,
    asked: watch::Sender<bool>,
    answers: watch::Sender<bool>,
}

impl Sidecar {
    async fn start() -> Self {
        let (asked, answers) = (watch::Sender::new(false), watch::Sender::new(false));
        // Its port is always the same one, so each has an address of its own.
        let mut addresses = (1..255).map(|last| Ipv4Addr::new(127, 78, 0, last));
        let (listener, address) = loop {
            let address = addresses.next().unwrap();
            if let Ok(listener) = TcpListener::bind((address, ports::ADMIN)).await {
                break (listener, address);
            }
        };
        let (tell, told) = (asked.clone(), answers.subscribe());
        let answer = move || {
            tell.send_replace(true);
            let mut told = told.clone();
            async move {
                let _ = told.wait_for(|answers| *answers).await;
                axum::Json(json!({
                    "phase": "Serving",
                    "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
                    "server": {"info": {"name": "demo"}, "protocolVersion": "1"},
                    "tools": [{"name": "known"}, {"name": "heard"}],
                }))
            }
        };
        let router = Router::new().route("/v1/inventory", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, asked, answers }
    }

    async fn was_asked(&self) {
        self.asked.subscribe().wait_for(|asked| *asked).await.unwrap();
    }
}

/// What an API server lists.
fn objects(kind: &str, pod: Ipv4Addr) -> Value {
    let metadata = |name: &str, owner: &str| {
        json!({
            "name": name, "namespace": "tools", "uid": name, "resourceVersion": "1",
            "labels": {"longshore.dev/server": "demo"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "x", "name": owner, "uid": owner, "controller": true}],
        })
    };
    match kind {
        "mcpservers" => json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "demo", "namespace": "tools", "uid": "server", "resourceVersion": "1"},
            "spec": {"source": {"image": "x"}, "transport": {"streamableHttp": {"port": 1}}, "auth": {"none": {}}},
            "status": {"tools": {"count": 2, "digest": "d", "names": ["known"]}},
        }),
        "deployments" => json!({"metadata": metadata("deployment", "server")}),
        "replicasets" => json!({"metadata": metadata("replica-set", "deployment")}),
        _ => json!({
            "metadata": metadata("pod", "replica-set"),
            "spec": {"containers": []},
            "status": {"containerStatuses": [{
                "name": "longshore-sidecar", "state": {"running": {}}, "image": "x", "imageID": "x",
                "ready": true, "restartCount": 0,
            }], "podIP": pod.to_string(), "conditions": [{"type": "Ready", "status": "True"}]},
        }),
    }
}

fn api_server(pod: Ipv4Addr) -> Client {
    let answer = move |query: Query<HashMap<String, String>>, request: Request| async move {
        if query.contains_key("watch") {
            // Nothing happens.
            return Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()).into_response();
        }
        let kind = request.uri().path().rsplit('/').next().unwrap_or_default();
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [objects(kind, pod)]});
        Response::new(Body::from(list.to_string()))
    };
    ClientBuilder::new(Router::new().fallback(answer), "tools").build()
}

/// A catalog that is fed with it, and what has to run for it.
fn fed(sidecar: &Sidecar) -> (Catalog, Indexer, Source, tempfile::NamedTempFile) {
    let (catalog, indexer) = Catalog::new(Metrics::new().unwrap());
    let token = tempfile::NamedTempFile::new().unwrap();
    let file = TokenFile::new(token.path().to_owned());
    let scopes = vec![Some("tools".to_owned())];
    (catalog.clone(), indexer, Source::new(api_server(sidecar.address), scopes, file, catalog), token)
}

async fn completed(catalog: &Catalog) {
    while !catalog.is_complete() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_catalog_is_complete_when_it_lists_what_it_heard() {
    let sidecar = Sidecar::start().await;
    let (catalog, indexer, source, _token) = fed(&sidecar);
    let steps = async {
        sidecar.was_asked().await;
        assert!(
            timeout(Duration::from_millis(300), completed(&catalog)).await.is_err(),
            "its sidecar is silent"
        );
        sidecar.answers.send_replace(true);
        completed(&catalog).await;
        let key = Key { namespace: "tools".to_owned(), name: "demo".to_owned() };
        assert_eq!(catalog.server(&key).unwrap().server.health.state, State::Up);
        assert!(catalog.tool(&key, "heard").is_some(), "what it said is not listed yet");
    };
    tokio::select! {
        () = source.run() => panic!("a watch ended"),
        never = indexer.run() => panic!("{never:?}"),
        () = steps => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_that_is_silent_is_not_waited_for_for_ever() {
    let sidecar = Sidecar::start().await;
    let (catalog, indexer, source, _token) = fed(&sidecar);
    let began = Instant::now();
    tokio::select! {
        () = source.run() => panic!("a watch ended"),
        never = indexer.run() => panic!("{never:?}"),
        () = completed(&catalog) => {}
    }
    assert!(began.elapsed() <= ANSWER_WITHIN * 2, "{:?}", began.elapsed());
    let key = Key { namespace: "tools".to_owned(), name: "demo".to_owned() };
    assert!(catalog.tool(&key, "known").is_some());
}
