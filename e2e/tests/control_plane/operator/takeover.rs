//! What whoever takes over writes, and what not: the webhooks and policies of a cluster are asked for each write, also for one
//! that changes nothing.

use std::collections::BTreeSet;

use longshore_e2e::testing::{Namespace, eventually};
use serde_json::{Value, json};

use super::STAGE;
use super::stand::{audit_lines, kubectl, requests, two_pods};

/// As where a policy was made stricter since, which leaves alone what is there.
#[test]
fn whoever_takes_over_leaves_alone_what_is_as_it_was_applied() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, _node, _pods) = two_pods(namespace).await;
        // Somebody else may say the same.
        apply_as_another(namespace, 2, &[]);
        assert!(operator.stop(), "{}", operator.log());
        let from = audit_lines(namespace.cluster());
        let next = operator.another();
        next.looks_again("demo", 0).await;
        let requests = requests(namespace.cluster(), namespace.name(), from);
        let patched = requests.into_iter().filter(|request| request.verb == "patch");
        let patched: BTreeSet<_> = patched.map(|request| request.resource).collect();
        for trusted in ["deployments", "services", "serviceaccounts", "poddisruptionbudgets"] {
            assert!(!patched.contains(trusted), "{trusted} are written: {patched:?}");
        }
        // Of who may come in nobody's word is taken.
        for written in ["secrets", "configmaps", "networkpolicies"] {
            assert!(patched.contains(written), "{written} are not written: {patched:?}");
        }
    });
}

#[test]
fn what_somebody_has_changed_while_no_operator_acted_is_changed_back() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, _node, _pods) = two_pods(namespace).await;
        assert!(operator.stop(), "{}", operator.log());
        let before = made(namespace).await;
        for (object, patch) in [
            ("deployment/demo", r#"{"op": "replace", "path": "/spec/replicas", "value": 3}"#),
            // Whoever takes something out leaves no other trace.
            ("service/demo", r#"{"op": "remove", "path": "/spec/ports/0/appProtocol"}"#),
            ("serviceaccount/demo-longshore", r#"{"op": "remove", "path": "/automountServiceAccountToken"}"#),
            (
                "poddisruptionbudget/demo-longshore",
                r#"{"op": "replace", "path": "/spec/maxUnavailable", "value": 2}"#,
            ),
        ] {
            let patch = format!("[{patch}]");
            namespace.kubectl(&["patch", object, "--type=json", "-p", &patch]).await.unwrap();
        }
        let changed = made(namespace).await;
        assert!(changed.iter().zip(&before).all(|(changed, before)| changed != before), "{changed:?}");
        let _next = operator.another();
        eventually("all is as it was", async || {
            let now = made(namespace).await;
            if now == before { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    });
}

/// Each of them leaves other traces.
#[test]
fn in_whichever_way_a_deployment_was_changed_while_no_operator_acted_it_is_changed_back() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, _node, _pods) = two_pods(namespace).await;
        assert!(operator.stop(), "{}", operator.log());
        let before = made(namespace).await;
        for what in ["scaled", "applied by another", "an atomic list", "an item", "put back twice"] {
            match what {
                "scaled" => {
                    namespace.kubectl(&["scale", "deployment/demo", "--replicas=3"]).await.unwrap();
                }
                "applied by another" => apply_as_another(namespace, 3, &["--force-conflicts"]),
                "an atomic list" => patch(namespace, "replace", "args", r#", "value": ["serve"]"#).await,
                "an item" => patch(namespace, "remove", "ports/2", "").await,
                _ => put_back_twice(namespace).await,
            }
            let changed = made(namespace).await;
            assert_ne!(changed[0], before[0], "{what}");
            let mut next = operator.another();
            eventually(what, async || {
                let now = made(namespace).await;
                if now == before { Ok(()) } else { Err(format!("{now:?}")) }
            })
            .await;
            assert!(next.stop(), "{}", next.log());
        }
    });
}

/// Changes the sidecar's container.
async fn patch(namespace: &Namespace<'_>, operation: &str, path: &str, more: &str) {
    let path = format!("/spec/template/spec/containers/0/{path}");
    let patch = format!(r#"[{{"op": "{operation}", "path": "{path}"{more}}}]"#);
    namespace.kubectl(&["patch", "deployment/demo", "--type=json", "-p", &patch]).await.unwrap();
}

/// Says how many pods there are to be, beside whoever says so already.
fn apply_as_another(namespace: &Namespace<'_>, replicas: i32, more: &[&str]) {
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "demo"},
        "spec": {"replicas": replicas},
    });
    let apply = ["apply", "--server-side", "--validate=false", "--field-manager=another"];
    let arguments = [&apply[..], more, &["--namespace", namespace.name(), "-f"]].concat();
    kubectl(namespace.cluster(), &arguments, Some(&manifest.to_string())).unwrap();
}

/// Brings back what was saved, with the `managedFields` of its time. The first time the API server sees what changes, the
/// second time nothing does, and it takes them as they are.
async fn put_back_twice(namespace: &Namespace<'_>) {
    let get = ["get", "deployment/demo", "--show-managed-fields", "-o", "json"];
    let mut saved: Value = serde_json::from_str(&namespace.kubectl(&get).await.unwrap()).unwrap();
    saved["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    saved["spec"]["replicas"] = json!(3);
    let replace = ["replace", "--namespace", namespace.name(), "-f"];
    for _ in 0..2 {
        kubectl(namespace.cluster(), &replace, Some(&saved.to_string())).unwrap();
    }
}

/// What there is of what is written once, as it is to be.
async fn made(namespace: &Namespace<'_>) -> Vec<[Value; 3]> {
    let objects = [
        "deployment/demo",
        "service/demo",
        "serviceaccount/demo-longshore",
        "poddisruptionbudget/demo-longshore",
    ];
    let get = [&["get"][..], &objects, &["-o", "json"]].concat();
    let mut list: Value = serde_json::from_str(&namespace.kubectl(&get).await.unwrap()).unwrap();
    let items = list["items"].as_array_mut().unwrap().iter_mut();
    items
        .map(|it| [it["kind"].take(), it["spec"].take(), it["automountServiceAccountToken"].take()])
        .collect()
}
