//! What is said of objects that the API server does not take, from one look at a server to the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use kube::runtime::controller::Action;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::mcp_server::apply::tests::{context, with_pods_of};
use crate::mcp_server::context::{Context, Mirrors};
use crate::mcp_server::{error_policy, is_trouble, reconcile};
use crate::metrics::Pending;
use crate::mirror::ServerKey;
use crate::reading::MaybeUnreadable;

/// An API server, which does not take objects of some kinds.
#[derive(Default)]
struct Api {
    fails: Mutex<HashMap<&'static str, StatusCode>>,
    versions: AtomicUsize,
    /// The last status that was written.
    status: Mutex<Value>,
}

impl Api {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Response {
        if *method == Method::GET
            && let Some((_, name)) = path.split_once("/secrets/")
        {
            let metadata = json!({"name": name, "namespace": "tools"});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
            return axum::Json(secret).into_response();
        }
        if *method == Method::GET {
            let metadata = json!({"resourceVersion": "1"});
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": []});
            return axum::Json(list).into_response();
        }
        let (of, name) = path.trim_end_matches("/status").rsplit_once('/').unwrap();
        let kind = of.rsplit('/').next().unwrap();
        if let Some(code) = self.fails.lock().get(kind) {
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "code": code.as_u16(),
            });
            return (*code, axum::Json(status)).into_response();
        }
        if path.ends_with("/status") {
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

/// A server that is looked at time and again.
struct Looks {
    api: Arc<Api>,
    context: Arc<Context>,
    /// The `auth` of its manifest.
    auth: Value,
}

impl Looks {
    fn new() -> Self {
        Self::beside(Mirrors::default(), json!({"none": {}}))
    }

    /// One of which this is there.
    fn beside(mirrors: Mirrors, auth: Value) -> Self {
        let api = Arc::<Api>::default();
        let answers = api.clone();
        let answer = move |method: Method, uri: Uri, body: Bytes| {
            let answers = answers.clone();
            async move { answers.answer(&method, uri.path(), &body) }
        };
        let client = kube::Client::new(Router::new().fallback(answer), "tools");
        Self { api, context: Arc::new(Context { mirrors, ..context(client) }), auth }
    }

    /// Looks at this generation, where these kinds fail so. Gives what is said of the manifest then.
    async fn look(&self, generation: i64, fails: &[(&'static str, StatusCode)]) -> String {
        // Whether it is to be tried again is not what is asked.
        let _ = self.try_once(generation, fails).await;
        let status = self.api.status.lock();
        assert_eq!(status["observedGeneration"], generation);
        let accepted = &status["conditions"][0];
        format!("{}: {}", accepted["reason"].as_str().unwrap(), accepted["message"].as_str().unwrap())
    }

    /// The same, and waits as the controller does where it failed. Says then whether that is worth a word.
    async fn try_once(&self, generation: i64, fails: &[(&'static str, StatusCode)]) -> Result<Action, bool> {
        *self.api.fails.lock() = fails.iter().copied().collect();
        let server = json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "demo", "namespace": "tools", "uid": "7b1c", "resourceVersion": "1", "generation": generation},
            "spec": {
                "source": {"image": "example/demo:1"}, "transport": {"streamableHttp": {"port": 3000}},
                "auth": self.auth, "tools": {"include": [format!("of-{generation}")]},
            },
        });
        let server: Arc<MaybeUnreadable> = Arc::new(serde_json::from_value(server).unwrap());
        let result = reconcile(server.clone(), self.context.clone()).await;
        result.map_err(|failed| {
            let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
            let memory = self.context.memory.of(&key, "7b1c");
            let is_told = is_trouble(&failed.error, &memory.lock().failures);
            error_policy(server, &failed, self.context.clone());
            is_told
        })
    }

    /// Somebody deletes an object, whose UID is its name.
    fn delete(&self, kind: &'static str, name: &str) {
        let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        self.context.memory.forget_object(&key, kind, name, name);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_and_is_taken_is_not_said_where_another_object_fails() {
    let server = Looks::new();
    let said = server.look(1, &[("networkpolicies", StatusCode::FORBIDDEN)]).await;
    assert_eq!(said, "Rejected: the API server refuses NetworkPolicy tools/demo-longshore: no");
    server.delete("Service", "demo");
    let said = server.look(1, &[("services", StatusCode::INTERNAL_SERVER_ERROR)]).await;
    assert!(said.starts_with("Accepted: "), "{said}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_said_where_another_part_of_the_manifest_changes() {
    let server = Looks::new();
    let refused = server.look(1, &[("networkpolicies", StatusCode::FORBIDDEN)]).await;
    let said = server.look(2, &[("networkpolicies", StatusCode::INTERNAL_SERVER_ERROR)]).await;
    assert_eq!(said, refused, "it cannot be tried now");
    let said = server.look(2, &[]).await;
    assert!(said.starts_with("Accepted: "), "{said}");
}

/// Revoked keys go on there.
#[tokio::test(start_paused = true)]
async fn of_several_objects_that_are_refused_the_secret_is_said() {
    let server = Looks::new();
    let forbidden =
        ["configmaps", "networkpolicies", "secrets", "services"].map(|it| (it, StatusCode::FORBIDDEN));
    let secret = "Rejected: the API server refuses Secret tools/demo-longshore-keys: no";
    assert_eq!(server.look(1, &forbidden).await, secret);
    let said = server.look(1, &forbidden[..2]).await;
    assert!(said.starts_with("Rejected: the API server refuses ConfigMap tools/"), "{said}");
    server.delete("Service", "demo");
    let said = server.look(1, &[forbidden[1], forbidden[3]]).await;
    assert_eq!(said, "Rejected: the API server refuses Service tools/demo: no");
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_not_said_of_the_configuration_that_the_secret_keeps_from_being_tried() {
    let server = Looks::new();
    let refused = server.look(1, &[("configmaps", StatusCode::FORBIDDEN)]).await;
    server.delete("Secret", "demo-longshore-keys");
    // Its keys are others now.
    let said = server.look(2, &[("secrets", StatusCode::INTERNAL_SERVER_ERROR)]).await;
    assert!(refused.starts_with("Rejected: ") && said.starts_with("Accepted: "), "{said}");
}

/// An object goes while it is applied, say.
#[tokio::test(start_paused = true)]
async fn whoever_was_faster_is_no_trouble_unless_that_goes_on() {
    let server = Looks::new();
    for (what, fails, expected) in [
        ("somebody was faster", Some(("secrets", StatusCode::CONFLICT)), Err(false)),
        ("and again", Some(("secrets", StatusCode::CONFLICT)), Err(true)),
        ("all is well", None, Ok(())),
        ("a failure", Some(("secrets", StatusCode::INTERNAL_SERVER_ERROR)), Err(true)),
        ("all is well", None, Ok(())),
        ("somebody was faster with the server", Some(("mcpservers", StatusCode::CONFLICT)), Err(false)),
    ] {
        server.delete("Secret", "demo-longshore-keys");
        // So that there is something to say of it.
        let generation = if what.ends_with("server") { 2 } else { 1 };
        let tried = server.try_once(generation, fails.as_slice()).await;
        assert_eq!(tried.map(drop), expected, "{what}");
    }
}

/// It may be looked at once a minute by then, and nobody would be told until it is.
#[tokio::test(start_paused = true)]
async fn what_is_refused_is_tried_again_in_its_time_once_that_is_said() {
    let server = Looks::new();
    let refused = ("services", StatusCode::FORBIDDEN);
    let unsaid = ("mcpservers", StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(server.try_once(1, &[refused, unsaid]).await.map(drop), Err(true));
    assert_eq!(server.try_once(1, &[refused]).await.map(drop), Ok(()));
    // What fails is tried again anyway, and its words are of more use than those of the status.
    let server = Looks::new();
    let fails = ("services", StatusCode::INTERNAL_SERVER_ERROR);
    let unsaid = ("mcpservers", StatusCode::CONFLICT);
    assert_eq!(server.try_once(1, &[fails, unsaid]).await.map(drop), Err(true));
}

/// Whatever of it is refused, and whoever has a key. What fails for a moment is no refusal, and keeps its turn.
#[tokio::test(start_paused = true)]
async fn an_upgrade_counts_as_refused_and_is_the_next_ones_turn_where_it_was_said_so() {
    for auth in [json!({"none": {}}), json!({"apiKeys": {"secretRef": {"name": "nobody"}}})] {
        for kind in ["deployments", "services"] {
            for (status, pending) in
                [(StatusCode::FORBIDDEN, Some(Pending::Refused)), (StatusCode::INTERNAL_SERVER_ERROR, None)]
            {
                let server = Looks::beside(with_pods_of("7b1c").await, auth.clone());
                let _ = server.try_once(1, &[(kind, status)]).await;
                let key = |name: &str| ServerKey { namespace: "tools".to_owned(), name: name.to_owned() };
                let memory = server.context.memory.of(&key("demo"), "7b1c");
                let (what, found) = (format!("{auth}: {status} of {kind}"), memory.lock().pending);
                assert_eq!(found, pending, "{what}");
                assert_eq!(server.context.upgrades.ask(&key("other")), pending.is_some(), "{what}");
                if pending.is_some() {
                    let _ = server.try_once(1, &[(kind, status)]).await;
                    assert_eq!(memory.lock().pending, pending, "{what}, while the other has its turn");
                }
            }
        }
    }
}
