//! What becomes of a server that goes, and of many whose upgrades are refused.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Query;
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::inventory::{TokenFile, inventories};
use crate::mcp_server::apply::tests::context;
use crate::names::{SERVER_LABEL, TEMPLATE_ANNOTATION};

#[tokio::test]
async fn what_a_reconciliation_leaves_of_a_server_that_went_meanwhile_is_forgotten() {
    let key = |name: &str| ServerKey { namespace: "tools".to_owned(), name: name.to_owned() };
    for is_there_again in [false, true] {
        let context = context(kube::Client::new(axum::Router::new(), "tools"));
        let (there, mut writer) = reflector::store::<MaybeUnreadable>();
        if is_there_again {
            let server = serde_json::from_value(serde_json::json!({
                "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
                "metadata": {"name": "demo", "namespace": "tools"}, "spec": {},
            }));
            writer.apply_watcher_event(&Event::Apply(server.unwrap()));
        }
        context.forget(&key("demo"));
        // It was under way, and goes on.
        let secret = (Kind::Secret, "token".to_owned());
        context.references.uses("tools", "demo", BTreeMap::from([(secret, BTreeSet::new())]));
        assert!(context.upgrades.ask(&key("demo")));
        // Then the server is due.
        let demo = ObjectRef::<MaybeUnreadable>::new("demo").within("tools").erase();
        let error = controller::Error::<Infallible, Infallible>::ObjectNotFound(Box::new(demo));
        forget_gone(&context, &there, Err::<(), _>(error));

        let users = context.references.gone(Kind::Secret, "tools", "token");
        assert_eq!(users.is_empty(), !is_there_again, "{users:?}");
        assert_eq!(context.upgrades.ask(&key("other")), !is_there_again);
    }
}

const SERVERS: usize = 20;

/// An API server with servers of a release before, which serve, and with a policy that refuses every Deployment.
#[derive(Default)]
struct Refusing {
    versions: AtomicUsize,
    refused: AtomicUsize,
    statuses: AtomicUsize,
    /// The last status that was written.
    status: Mutex<Value>,
}

impl Refusing {
    async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &HashMap<String, String>,
        body: &[u8],
    ) -> Response {
        let (of, name) = path.trim_end_matches("/status").rsplit_once('/').unwrap();
        let refuse = |code: StatusCode, reason: &str, message: &str| {
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "reason": reason,
                "code": code.as_u16(),
            });
            (code, axum::Json(status)).into_response()
        };
        if *method == Method::GET && query.contains_key("watch") {
            std::future::pending().await
        }
        if *method == Method::GET && of.ends_with("/namespaces/tools/secrets") {
            return refuse(StatusCode::NOT_FOUND, "NotFound", "there is none");
        }
        if *method == Method::GET {
            let one = query.get("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name="));
            let servers = (0..SERVERS).map(|number| format!("s{number}"));
            let servers = servers.filter(|server| one.is_none_or(|one| one == server));
            let items: Vec<_> = servers.filter_map(|server| object(name, &server)).collect();
            let metadata = json!({"resourceVersion": "1"});
            return axum::Json(
                json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}),
            )
            .into_response();
        }
        if *method == Method::PATCH && of.ends_with("/deployments") {
            // Long enough that some have to wait for their turns.
            sleep(Duration::from_secs(1)).await;
            self.refused.fetch_add(1, Ordering::Relaxed);
            return refuse(StatusCode::FORBIDDEN, "Forbidden", "the image is not permitted");
        }
        if path.ends_with("/status") {
            self.statuses.fetch_add(1, Ordering::Relaxed);
            *self.status.lock() = serde_json::from_slice::<Value>(body).unwrap()["status"].take();
        }
        let version = 2 + self.versions.fetch_add(1, Ordering::Relaxed);
        axum::Json(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "namespace": "tools", "uid": name, "resourceVersion": version.to_string()},
        }))
        .into_response()
    }
}

/// The object of such a kind that a server is or has.
fn object(kind: &str, server: &str) -> Option<Value> {
    let metadata = |uid: &str, owner: &str| {
        json!({
            "name": server, "namespace": "tools", "uid": format!("{uid}-{server}"), "resourceVersion": "1", "generation": 1,
            "labels": {SERVER_LABEL: server}, "annotations": {TEMPLATE_ANNOTATION: "of before"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Owner", "name": server, "uid": format!("{owner}-{server}"), "controller": true,
            }],
        })
    };
    let since = "2026-01-01T00:00:00Z";
    Some(match kind {
        "mcpservers" => json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer", "metadata": metadata("server", "nobody"),
            "spec": {
                "source": {"image": "example/demo:1"}, "transport": {"streamableHttp": {"port": 3000}},
                "auth": {"none": {}},
            },
            "status": {"observedGeneration": 1, "conditions": [{
                "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": since,
            }]},
        }),
        "deployments" => json!({
            "metadata": metadata("deployment", "server"),
            "spec": {"replicas": 1, "template": {"metadata": metadata("pod", "set")}},
        }),
        "replicasets" => json!({"metadata": metadata("set", "deployment")}),
        "pods" => json!({
            "metadata": metadata("pod", "set"),
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
            },
        }),
        _ => return None,
    })
}

#[tokio::test(start_paused = true)]
async fn upgrades_that_are_refused_are_tried_ever_more_seldom_and_their_status_stands_still() {
    let server = Arc::<Refusing>::default();
    let api = server.clone();
    let answer = move |method: Method, uri: Uri, query: Query<HashMap<String, String>>, body: Bytes| {
        let api = api.clone();
        async move { api.answer(&method, uri.path(), &query, &body).await }
    };
    let client = kube::Client::new(Router::new().fallback(answer), "tools");
    let (inventories, changes, _poller) = inventories(TokenFile::new("/nowhere".into()));
    let context = Arc::new(Context { inventories, ..context(client) });
    let scopes = [None];
    let (triggers, queues) = triggers(&scopes);
    let watching = Watching::new(context.clone());
    let watches = watch(&context, &watching, &scopes, &triggers);
    let controllers = control(&context, &watching, &scopes, queues, &triggers, CancellationToken::new());
    let relay = relay(changes, &context, &triggers);
    let minute = Duration::from_secs(60);
    let fifth = async {
        sleep(minute * 4).await;
        let counts = || [&server.refused, &server.statuses].map(|count| count.load(Ordering::Relaxed));
        let before = counts();
        sleep(minute).await;
        [0, 1].map(|count| counts()[count] - before[count])
    };
    let [refused, statuses] = tokio::select! {
        counts = fifth => counts,
        () = watches => panic!("a watch ended"),
        () = controllers => panic!("the controller ended"),
        () = relay => panic!("the relay ended"),
    };
    assert!((SERVERS / 2..2 * SERVERS).contains(&refused), "{refused} are refused in a minute");
    assert_eq!(statuses, 0, "are written in a minute");
    let status = server.status.lock().take();
    let reason = |type_: &str| {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|it| it["type"] == type_).map(|it| it["reason"].clone())
    };
    assert_eq!(reason("Accepted").unwrap(), "Rejected");
    assert_ne!(reason("Ready").unwrap(), "Rejected", "that keeps no server from being used: {status}");
}
