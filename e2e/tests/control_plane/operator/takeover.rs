//! What whoever takes over writes, and what not: the webhooks and policies of a cluster are asked for each write, also for one
//! that changes nothing.

use std::collections::BTreeSet;

use longshore_e2e::testing::{Namespace, eventually};
use serde_json::Value;

use super::STAGE;
use super::stand::{audit_lines, requests, two_pods};

/// As where a policy was made stricter since, which leaves alone what is there.
#[test]
fn whoever_takes_over_leaves_alone_what_is_as_it_was_applied() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, _node, _pods) = two_pods(namespace).await;
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
