//! A cluster of one server, whose sidecar takes its time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::{StreamExt as _, stream};
use kube::client::ClientBuilder;
use longshore_catalog::model::State;
use longshore_catalog::{Indexer, Metrics};
use longshore_sidecar_config::ports;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::*;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sidecar, until its end.
struct Sidecar {
    address: Ipv4Addr,
    asked: watch::Sender<bool>,
    answers: watch::Sender<bool>,
}

impl Sidecar {
    async fn start() -> Self {
        Self::with("Connected", json!([{"name": "known"}, {"name": "heard"}])).await
    }

    async fn with(connection: &'static str, tools: Value) -> Self {
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
            let (mut told, tools) = (told.clone(), tools.clone());
            async move {
                let _ = told.wait_for(|answers| *answers).await;
                axum::Json(json!({
                    "phase": "Serving",
                    "connection": {"state": connection, "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
                    "server": {"info": {"name": "demo"}, "protocolVersion": "1"},
                    "tools": tools,
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

/// What happens to the objects of a kind.
type Events = (UnboundedSender<String>, UnboundedReceiver<String>);

/// An API server.
struct Cluster {
    /// The oldest first.
    addresses: Vec<Ipv4Addr>,
    filter: Value,
    servers: Events,
    pods: Events,
}

impl Cluster {
    fn of(sidecar: &Sidecar) -> Self {
        let (servers, pods) = (unbounded_channel(), unbounded_channel());
        Self { addresses: vec![sidecar.address], filter: json!({}), servers, pods }
    }

    /// A catalog that is fed with it, and what has to run for it.
    fn feed(self) -> (Catalog, Indexer, Source, tempfile::NamedTempFile) {
        let (catalog, indexer) = Catalog::new(Metrics::new().unwrap());
        let token = tempfile::NamedTempFile::new().unwrap();
        let file = TokenFile::new(token.path().to_owned());
        let scopes = vec![Some("tools".to_owned())];
        (catalog.clone(), indexer, Source::new(self.client(), scopes, file, catalog), token)
    }

    fn client(self) -> Client {
        let events = HashMap::from([("mcpservers", self.servers.1), ("pods", self.pods.1)]);
        let (events, addresses, filter) = (Arc::new(Mutex::new(events)), self.addresses, self.filter);
        let answer = move |query: Query<HashMap<String, String>>, request: Request| async move {
            let kind = request.uri().path().rsplit('/').next().unwrap_or_default();
            if query.contains_key("watch") {
                let events = events.lock().remove(kind);
                let lines = stream::unfold(events, async |events| {
                    let mut events = events?;
                    let event = events.recv().await?;
                    Some((Ok::<_, Infallible>(Bytes::from(event)), Some(events)))
                });
                return Body::from_stream(lines.chain(stream::pending())).into_response();
            }
            let items: Vec<_> = match kind {
                "pods" => {
                    addresses.iter().enumerate().map(|(number, address)| pod(number, *address)).collect()
                }
                _ => vec![object(kind, &filter)],
            };
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
            Response::new(Body::from(list.to_string()))
        };
        ClientBuilder::new(Router::new().fallback(answer), "tools").build()
    }
}

/// What an API server lists.
fn object(kind: &str, filter: &Value) -> Value {
    match kind {
        "mcpservers" => json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "demo", "namespace": "tools", "uid": "server", "resourceVersion": "1"},
            "spec": {
                "source": {"image": "x"}, "transport": {"streamableHttp": {"port": 1}}, "auth": {"none": {}},
                "tools": filter,
            },
            "status": {"tools": {"count": 2, "digest": "d", "names": ["known"]}},
        }),
        "deployments" => json!({"metadata": metadata("deployment", "server")}),
        _ => json!({"metadata": metadata("replica-set", "deployment")}),
    }
}

fn pod(number: usize, address: Ipv4Addr) -> Value {
    json!({
        "metadata": metadata(&format!("pod-{number}"), "replica-set"),
        "spec": {"containers": []},
        "status": {"containerStatuses": [{
            "name": "longshore-sidecar", "state": {"running": {}}, "image": "x", "imageID": "x",
            "ready": true, "restartCount": 0,
        }], "podIP": address.to_string(), "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn metadata(name: &str, owner: &str) -> Value {
    json!({
        "name": name, "namespace": "tools", "uid": name, "resourceVersion": "1",
        "labels": {"longshore.dev/server": "demo"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "x", "name": owner, "uid": owner, "controller": true}],
    })
}

fn demo() -> Key {
    Key { namespace: "tools".to_owned(), name: "demo".to_owned() }
}

/// Looks again and again, and not for ever. Time that is paused goes by twenty times as fast: faster than that, the sidecars,
/// whose sockets are real, would seem to answer late.
async fn until(what: &str, comes: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !comes() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(20)).await;
        std::thread::sleep(Duration::from_millis(1));
    }
}

async fn completed(catalog: &Catalog) {
    until("the catalog is complete", || catalog.is_complete()).await;
}

#[tokio::test]
async fn a_catalog_is_complete_when_it_lists_what_it_heard() {
    let sidecar = Sidecar::start().await;
    let (catalog, indexer, source, _token) = Cluster::of(&sidecar).feed();
    let steps = async {
        sidecar.was_asked().await;
        assert!(
            timeout(Duration::from_millis(300), completed(&catalog)).await.is_err(),
            "its sidecar is silent"
        );
        sidecar.answers.send_replace(true);
        completed(&catalog).await;
        assert_eq!(catalog.server(&demo()).unwrap().server.health.state, State::Up);
        assert!(catalog.tool(&demo(), "heard").is_some(), "what it said is not listed yet");
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
    let (catalog, indexer, source, _token) = Cluster::of(&sidecar).feed();
    let began = Instant::now();
    tokio::select! {
        () = source.run() => panic!("a watch ended"),
        never = indexer.run() => panic!("{never:?}"),
        () = completed(&catalog) => {}
    }
    assert!(began.elapsed() <= ANSWER_WITHIN * 2, "{:?}", began.elapsed());
    assert!(catalog.tool(&demo(), "known").is_some());
}

#[tokio::test]
async fn tools_come_back_when_they_are_hidden_no_longer_while_no_pod_runs() {
    let sidecar = Sidecar::start().await;
    sidecar.answers.send_replace(true);
    let cluster = Cluster::of(&sidecar);
    let (servers, pods) = (cluster.servers.0.clone(), cluster.pods.0.clone());
    let (catalog, indexer, source, _token) = cluster.feed();
    let lists = |tool: &str| catalog.tool(&demo(), tool).is_some();
    // The type has to come first.
    let happens = |what: &str, object: Value| format!("{{\"type\":\"{what}\",\"object\":{object}}}\n");
    let hides = |filter: Value| happens("MODIFIED", object("mcpservers", &filter));
    let steps = async {
        until("it is listed", || lists("heard")).await;
        servers.send(hides(json!({"exclude": ["h*"]}))).unwrap();
        until("it is hidden", || !lists("heard")).await;
        pods.send(happens("DELETED", pod(0, sidecar.address))).unwrap();
        let is_up = || catalog.server(&demo()).is_some_and(|it| it.server.health.state == State::Up);
        until("no pod runs", || !is_up()).await;
        assert!(lists("known") && !lists("heard"));
        servers.send(hides(json!({}))).unwrap();
        until("it is hidden no longer", || lists("heard")).await;
    };
    tokio::select! {
        () = source.run() => panic!("a watch ended"),
        never = indexer.run() => panic!("{never:?}"),
        () = steps => {}
    }
}

#[tokio::test]
async fn a_server_is_up_while_any_pod_of_it_is_in_its_service() {
    let sidecars = [Sidecar::start().await, Sidecar::start().await];
    for sidecar in &sidecars {
        sidecar.answers.send_replace(true);
    }
    let mut cluster = Cluster::of(&sidecars[0]);
    cluster.addresses = sidecars.iter().map(|sidecar| sidecar.address).collect();
    let pods = cluster.pods.0.clone();
    let (catalog, indexer, source, _token) = cluster.feed();
    let becomes = |number: usize, ready: &str| {
        let mut pod = pod(number, sidecars[number].address);
        pod["status"]["conditions"][0]["status"] = json!(ready);
        // The type has to come first.
        pods.send(format!("{{\"type\":\"MODIFIED\",\"object\":{pod}}}\n")).unwrap();
    };
    let is_up = || catalog.server(&demo()).is_some_and(|it| it.server.health.state == State::Up);
    let steps = async {
        until("it is up", is_up).await;
        becomes(0, "False");
        becomes(1, "False");
        until("none is in its Service", || !is_up()).await;
        becomes(1, "True");
        until("one of them is again", is_up).await;
    };
    tokio::select! {
        () = source.run() => panic!("a watch ended"),
        never = indexer.run() => panic!("{never:?}"),
        () = steps => {}
    }
}

#[tokio::test(start_paused = true)]
async fn the_one_pod_whose_server_works_is_found_among_many() {
    let mut sidecars = vec![Sidecar::start().await];
    for _ in 0..OTHERS * 2 {
        sidecars.push(Sidecar::with("Failed", json!([])).await);
    }
    for sidecar in &sidecars {
        sidecar.answers.send_replace(true);
    }
    let mut cluster = Cluster::of(&sidecars[0]);
    cluster.addresses = sidecars.iter().map(|sidecar| sidecar.address).collect();
    let (catalog, indexer, source, _token) = cluster.feed();
    let is_up = || catalog.server(&demo()).is_some_and(|it| it.server.health.state == State::Up);
    tokio::select! {
        () = source.run() => panic!("a watch ended"),
        never = indexer.run() => panic!("{never:?}"),
        is_up = timeout(ROUND * 3, until("it is up", is_up)) => is_up.expect("it is not asked"),
    }
}

/// A matcher of one of these globs is in a state that it has never been in after each letter of these names.
#[tokio::test]
async fn nobody_waits_for_globs_that_take_long() {
    let mut random = 1_u64;
    let mut name = || -> String {
        let letters = (0..250).map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if random >> 63 == 0 { 'a' } else { 'b' }
        });
        letters.collect()
    };
    let tools: Vec<_> = (0..10_000).map(|_| json!({"name": name()})).collect();
    let sidecar = Sidecar::with("Connected", json!(tools)).await;
    sidecar.answers.send_replace(true);
    let globs: Vec<_> = (0..40).map(|number| format!("*a{}[cd]", "?".repeat(100 + number))).collect();
    let mut cluster = Cluster::of(&sidecar);
    cluster.filter = json!({"exclude": globs});
    let (catalog, indexer, source, _token) = cluster.feed();
    let began = Instant::now();
    let is_up = || catalog.server(&demo()).is_some_and(|it| it.server.health.state == State::Up);
    tokio::select! {
        () = source.run() => panic!("a watch ended"),
        never = indexer.run() => panic!("{never:?}"),
        () = until("it is up", is_up) => {}
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
