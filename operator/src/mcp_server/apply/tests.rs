//! What is applied whatever else is refused, and whose an object is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use kube::runtime::events::Recorder;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;

use super::*;
use crate::inventory::{TokenFile, inventories};
use crate::mcp_server::build;
use crate::mcp_server::context::Mirrors;
use crate::mcp_server::dereference::Dereferenced;
use crate::mcp_server::status::Address;
use crate::mcp_server::upgrades::Upgrades;
use crate::mcp_server::validate::validate;
use crate::metrics::Metrics;
use crate::names::TEMPLATE_ANNOTATION;
use crate::settings::Settings;

/// What every reconciliation works with, of an operator that has just started.
pub(crate) fn context(client: kube::Client) -> Context {
    Context {
        recorder: Recorder::new(client.clone(), "longshore".into()),
        watch_client: client.clone(),
        client,
        settings: Settings::of_tests(),
        inventory_access: ArcSwap::from_pointee(Dereferenced::of_tests().inventory),
        mirrors: Mirrors::default(),
        references: Default::default(),
        inventories: inventories(TokenFile::new("/nowhere".into())).0,
        memory: Default::default(),
        upgrades: Upgrades::new(1),
        slots: Default::default(),
        metrics: Metrics::new().unwrap(),
    }
}

fn prepared(settings: &Settings) -> Resources<Prepared> {
    let server = serde_json::from_value(json!({
        "apiVersion": "longshore.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"name": "demo", "namespace": "tools", "uid": "7b1c", "generation": 1},
        "spec": {
            "source": {"image": "example/demo:1"},
            "transport": {"streamableHttp": {"port": 3000}},
            "auth": {"none": {}},
            "replicas": 2,
        },
    }))
    .unwrap();
    let found = Dereferenced {
        mounted_upstreams: vec![longshore_sidecar_config::Upstream::StreamableHttp {
            port: 2000,
            path: "/old".to_owned(),
        }],
        ..Dereferenced::of_tests()
    };
    build::build(&validate(&server, &found).unwrap(), settings).0
}

fn desired(replicas: u32) -> Desired {
    Desired { template: "t".to_owned(), configs: Default::default(), replicas, recreates: false }
}

/// Applies a server's objects to an API server that takes its time for everything but its refusal of what has
/// this in its path. Returns the paths that it took.
async fn taken_despite(refused: &str) -> (Result<(), Error>, Vec<String>) {
    taken_beside(Mirrors::default(), refused, StatusCode::FORBIDDEN).await
}

/// The same where these objects are known of, and the API server refuses with this.
async fn taken_beside(mirrors: Mirrors, refused: &str, with: StatusCode) -> (Result<(), Error>, Vec<String>) {
    let (outcome, applied, _) = reached_beside(mirrors, refused, with).await;
    (outcome, applied)
}

/// What applies the objects of this server.
fn applier<'a>(context: &'a Context, server: &'a ServerKey, memory: &'a Mutex<ServerMemory>) -> Applier<'a> {
    Applier { context, server, uid: "7b1c", memory, keys_from: None, patient: true }
}

/// And whether it has a Service then.
async fn reached_beside(
    mirrors: Mirrors,
    refused: &str,
    with: StatusCode,
) -> (Result<(), Error>, Vec<String>, bool) {
    let applied = Arc::new(Mutex::new(Vec::new()));
    let (log, refused) = (applied.clone(), refused.to_owned());
    let answer = move |method: Method, uri: Uri| {
        let (log, refused) = (log.clone(), refused.clone());
        async move { respond(&method, uri.path(), (&refused, with), &log).await }
    };
    let client = kube::Client::new(Router::new().fallback(answer), "tools");
    let context = Context { mirrors, ..context(client) };
    let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
    let memory = context.memory.of(&key, "7b1c");
    let applier = applier(&context, &key, &memory);
    let outcome = applier.apply(prepared(&context.settings), &desired(2)).await;
    let outcome = outcome.map(drop).map_err(|it| it.error);
    let mut applied = applied.lock().clone();
    applied.sort();
    (outcome, applied, applier.has_service())
}

async fn respond(
    method: &Method,
    path: &str,
    (refused, with): (&str, StatusCode),
    log: &Mutex<Vec<String>>,
) -> Response {
    let status = |code: StatusCode, reason: &str| {
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "reason": reason,
            "code": code.as_u16(),
        });
        (code, axum::Json(status)).into_response()
    };
    if path.contains(refused) {
        return status(with, "");
    }
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    if *method == Method::GET {
        let kind = "PartialObjectMetadataList";
        let nothing = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {}, "items": []});
        return axum::Json(nothing).into_response();
    }
    let name = path.rsplit('/').next().unwrap();
    log.lock().push(path.split('/').rev().take(2).collect::<Vec<_>>().join(" of "));
    axum::Json(json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": name, "namespace": "tools", "uid": "1", "resourceVersion": "1"},
    }))
    .into_response()
}

#[test]
fn whose_an_object_is_and_what_to_do_is_said() {
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
    for (owners, words) in [
        (owner("McpServer", "x"), "still belongs to an McpServer that was deleted"),
        (
            owner("McpServer", "x-longshore"),
            "belongs to the McpServer x-longshore, and the McpServer x needs one of the same name: rename one of \
             the two",
        ),
        (owner("Gateway", "x"), "belongs to Gateway x: rename the McpServer, or that object"),
        (json!([]), "exists already and is not Longshore's"),
    ] {
        let found = serde_json::from_value(json!({"ownerReferences": owners})).unwrap();
        let problem = taken("x", "Service tools/x-longshore", &found);
        assert_eq!(problem.reason, Reason::NameTaken);
        let message = problem.message.strip_prefix("Service tools/x-longshore ").unwrap();
        assert!(message.starts_with(words), "{owners}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_keeps_neither_keys_nor_rules_from_the_sidecars() {
    let (outcome, all) = taken_despite("nothing").await;
    outcome.unwrap();
    assert_eq!(all.len(), 9, "{all:?}");
    for refused in ["/services/", "/networkpolicies/", "/serviceaccounts/", "/poddisruptionbudgets/"] {
        let (outcome, applied) = taken_despite(refused).await;
        outcome.unwrap_err();
        let kind = refused.trim_matches('/');
        let expected: Vec<_> = all
            .iter()
            .filter(|object| !object.ends_with(kind) && !object.ends_with("deployments"))
            .cloned()
            .collect();
        assert_eq!(applied, expected, "without {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_refused_configuration_keeps_no_other_back() {
    let maps = prepared(&Settings::of_tests()).config_maps;
    let [newest, older] = [0, 1].map(|index| maps[index].name_any());
    let (outcome, applied) = taken_despite(&newest).await;
    outcome.unwrap_err();
    assert!(applied.iter().any(|object| object.starts_with(&older)), "{applied:?}");
    assert!(!applied.iter().any(|object| object.ends_with("deployments")), "{applied:?}");
}

/// A Deployment of three pods is there, of the server with this UID, and of an earlier release.
pub(crate) async fn with_pods_of(server: &str) -> Mirrors {
    let owner =
        json!({"apiVersion": "v1", "kind": "McpServer", "name": "demo", "uid": server, "controller": true});
    let labels = json!({"longshore.dev/server": "demo"});
    let template = json!({TEMPLATE_ANNOTATION: "of before"});
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "demo", "namespace": "tools", "labels": labels, "ownerReferences": [owner]},
        "spec": {"replicas": 3, "selector": {}, "template": {"metadata": {"annotations": template}}},
    }));
    let mirrors = Mirrors::default();
    let events = futures::stream::iter([Event::Apply(deployment.unwrap())]);
    mirrors.deployments.follow(events, &None, &mut |_, _, _, _| {}).await;
    mirrors
}

/// Of an operator that has just started, to which everything is to be applied anew.
#[tokio::test(start_paused = true)]
async fn what_does_not_answer_keeps_nobody_from_scaling_the_pods_that_are_there() {
    for (owner, refused, with, scaled) in [
        ("7b1c", "/services/", StatusCode::INTERNAL_SERVER_ERROR, true),
        ("7b1c", "/services/", StatusCode::FORBIDDEN, true),
        ("7b1c", "/secrets/", StatusCode::INTERNAL_SERVER_ERROR, true),
        ("other", "/services/", StatusCode::INTERNAL_SERVER_ERROR, false),
    ] {
        let (outcome, applied) = taken_beside(with_pods_of(owner).await, refused, with).await;
        outcome.unwrap_err();
        let has_scaled = applied.iter().any(|object| object == "demo of deployments");
        assert_eq!(has_scaled, scaled, "{owner}, {with} of {refused}: {applied:?}");
    }
}

/// As once what was missing is there, and they are applied as a whole. Anything else that fails then would have it said again.
#[tokio::test(start_paused = true)]
async fn that_a_number_of_pods_is_refused_is_not_said_any_more_once_they_are_taken() {
    let refuses = Arc::new(AtomicBool::new(true));
    let is_refusing = refuses.clone();
    let answer = move |method: Method, uri: Uri| {
        let refused = if is_refusing.load(Ordering::Relaxed) { "/deployments/" } else { "nothing" };
        async move { respond(&method, uri.path(), (refused, StatusCode::FORBIDDEN), &Mutex::default()).await }
    };
    let client = kube::Client::new(Router::new().fallback(answer), "tools");
    let context = Context { mirrors: with_pods_of("7b1c").await, ..context(client) };
    let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
    let memory = context.memory.of(&key, "7b1c");
    let applier = applier(&context, &key, &memory);
    let held_back = Resources { deployment: None, ..prepared(&context.settings) };
    applier.apply(held_back, &desired(2)).await.unwrap_err();
    assert!(memory.lock().refused("t").is_some(), "it is to be said");
    refuses.store(false, Ordering::Relaxed);
    applier.apply(prepared(&context.settings), &desired(2)).await.map_err(|it| it.error).unwrap();
    assert!(memory.lock().refused("t").is_none());
}

/// Whatever came of the last request for it.
#[tokio::test(start_paused = true)]
async fn a_server_has_a_service_where_there_is_one_of_its_own() {
    let service = |owner| async move {
        let owner = json!({"apiVersion": "v1", "kind": "McpServer", "name": "demo", "uid": owner, "controller": true});
        let labels = json!({"longshore.dev/server": "demo"});
        let service = serde_json::from_value(json!({
            "metadata": {"name": "demo", "namespace": "tools", "labels": labels, "ownerReferences": [owner]},
        }));
        let mirrors = Mirrors::default();
        let events = futures::stream::iter([Event::Apply(service.unwrap())]);
        mirrors.services.follow(events, &None, &mut |_, _, _, _| {}).await;
        mirrors
    };
    for with in [StatusCode::FORBIDDEN, StatusCode::INTERNAL_SERVER_ERROR] {
        for (mirrors, refused, expected) in [
            (Mirrors::default(), "/services/demo", false),
            (service("other").await, "/services/demo", false),
            (service("7b1c").await, "/services/demo", true),
            (Mirrors::default(), "/networkpolicies/", true),
        ] {
            assert_eq!(reached_beside(mirrors, refused, with).await.2, expected, "{with} of {refused}");
        }
    }
}

/// Other looks at the server come after it.
#[tokio::test(start_paused = true)]
async fn leftovers_that_cannot_be_deleted_take_no_longer_than_one_of_them() {
    let owner =
        json!({"apiVersion": "v1", "kind": "McpServer", "name": "demo", "uid": "7b1c", "controller": true});
    let leftover = |name| {
        let labels = json!({"longshore.dev/server": "demo"});
        let config_map = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "tools", "uid": name, "labels": labels, "ownerReferences": [owner]},
        }));
        Event::Apply(config_map.unwrap())
    };
    let mirrors = Mirrors::default();
    let events = futures::stream::iter(["a", "b", "c"].map(leftover));
    mirrors.config_maps.follow(events, &None, &mut |_, _, _, _| {}).await;
    let tried = Arc::new(Mutex::new(Vec::new()));
    let log = tried.clone();
    let answer = move |method: Method, uri: Uri| {
        let log = log.clone();
        async move {
            if method == Method::DELETE {
                log.lock().push(uri.path().rsplit('/').next().unwrap().to_owned());
                std::future::pending::<()>().await;
            }
            respond(&method, uri.path(), ("nothing", StatusCode::FORBIDDEN), &Mutex::default()).await
        }
    };
    let context = Context { mirrors, ..context(kube::Client::new(Router::new().fallback(answer), "tools")) };
    let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
    let memory = context.memory.of(&key, "7b1c");
    let applier = applier(&context, &key, &memory);
    let applied =
        applier.apply(prepared(&context.settings), &desired(2)).await.map_err(|it| it.error).unwrap();
    let started = Instant::now();
    assert!(!applier.prune(&applied, &desired(0)).await);
    // As long as a call may take.
    assert_eq!(started.elapsed().as_secs(), 20);
    tried.lock().sort();
    assert_eq!(*tried.lock(), ["a", "b", "c"]);
}

/// Whoever makes a Service of its name then is not to be found under its address.
#[tokio::test(start_paused = true)]
async fn a_server_without_a_service_has_no_address_whatever_else_has_gone() {
    let has_gone = |mirrors: Mirrors| {
        let context = Context { mirrors, ..context(kube::Client::new(Router::new(), "tools")) };
        let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        let memory = context.memory.of(&key, "7b1c");
        let applier = applier(&context, &key, &memory);
        Address::Unknown.as_found(&applier)
    };
    assert_eq!(has_gone(with_pods_of("7b1c").await), Address::Missing);
    for nothing_is_its_own in [Mirrors::default(), with_pods_of("other").await] {
        assert_eq!(has_gone(nothing_is_its_own), Address::Unmade);
    }
}

/// The keys that belong to it are there by then.
#[tokio::test(start_paused = true)]
async fn whoever_takes_a_key_away_learns_that_a_refused_configuration_keeps_it() {
    let map = prepared(&Settings::of_tests()).config_maps[0].name_any();
    let words = "; until it is there, pods that run go by the previous keys and rules";
    for (mirrors, refused, said) in [
        (with_pods_of("7b1c").await, &*map, true),
        (with_pods_of("7b1c").await, "/services/", false),
        // There is no before.
        (Mirrors::default(), &*map, false),
    ] {
        let (outcome, _) = taken_beside(mirrors, refused, StatusCode::FORBIDDEN).await;
        let Err(Error::Problem(problem)) = outcome else { panic!("{refused}: {outcome:?}") };
        assert_eq!(problem.message.contains(words), said, "{refused}: {}", problem.message);
    }
}

/// As whoever begins to act does.
#[tokio::test]
async fn what_says_that_it_is_as_it_would_be_applied_is_left_alone_where_that_is_so() {
    let of_metadata = json!({"f:annotations": {}, "f:labels": {}, "f:ownerReferences": {}});
    let whole = json!({"f:metadata": of_metadata, "f:spec": {}});
    let partly = json!({"f:metadata": of_metadata});
    let wanted = "ClusterIP";
    for (what, seen, applied, owner, fields, r#type, expected) in [
        ("it is as it was", Some("d"), "d", "7b1c", &whole, wanted, true),
        ("it was not seen", None, "d", "7b1c", &whole, wanted, false),
        ("another release has applied it", Some("e"), "e", "7b1c", &whole, wanted, false),
        ("it has been applied since", Some("d"), "e", "7b1c", &whole, wanted, false),
        ("it is somebody else's by now", Some("d"), "d", "other", &whole, wanted, false),
        ("somebody has changed it", Some("d"), "d", "7b1c", &partly, wanted, false),
        ("a webhook has changed it", Some("d"), "d", "7b1c", &whole, "NodePort", false),
    ] {
        let Resources { mut service, mut network_policy, .. } = prepared(&Settings::of_tests());
        found::mark("Service", &mut service, "d");
        found::mark("NetworkPolicy", &mut network_policy, "d");
        let mut found = serde_json::to_value(&service).unwrap();
        // The list says that of all its items.
        let of_list = ["apiVersion", "kind"].map(|name| found.as_object_mut().unwrap().remove(name));
        assert!(of_list.iter().all(Option::is_some));
        found["spec"]["type"] = json!(r#type);
        let metadata = &mut found["metadata"];
        (metadata["uid"], metadata["resourceVersion"]) = (json!("s"), json!("7"));
        metadata["ownerReferences"][0]["uid"] = json!(owner);
        metadata["annotations"]["longshore.dev/applied"] = json!(applied);
        let own = json!({"manager": "longshore", "operation": "Apply", "fieldsV1": fields});
        metadata["managedFields"] = json!([own]);
        let list = json!({"apiVersion": "v1", "kind": "ServiceList", "metadata": {}, "items": [found]});
        let router = Router::new().fallback(async move || axum::Json(list));
        let context = context(kube::Client::new(router, "tools"));
        let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        let memory = context.memory.of(&key, "7b1c");
        assert!(network_policy.metadata.annotations.is_none(), "nobody's word is taken for who may come in");
        let seen = seen.map(|applied| Live {
            uid: "s".to_owned(),
            version: 7,
            fingerprint: 7,
            controller: Some("7b1c".to_owned()),
            applied: Some(applied.to_owned()),
        });
        let applier = applier(&context, &key, &memory);
        let untouched = applier.untouched(&service, "d", seen.as_ref()).await;
        assert_eq!(untouched.map(|live| live.version), expected.then_some(7), "{what}");
    }
}
