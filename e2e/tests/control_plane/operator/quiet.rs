//! What the operator asks of the API server: every right that it has, and, once all is settled, nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::ResourceExt as _;
use longshore::rbac;
use longshore_crds::McpServer;
use longshore_e2e::testing::Namespace;

use super::node::Node;
use super::stand::{ADA, Operator, apply_keys, audit_lines, is, kinds, requests, two_pods, wait_for};
use super::{STAGE, server};

/// Longer than most of the operator's timers. Watches go on in another request every 20 seconds, and the Lease is renewed
/// every two; the cluster's token signing keys are read every five minutes, as nothing of any namespace.
const SETTLED: Duration = Duration::from_secs(12);

#[test]
fn a_settled_server_costs_the_api_server_nothing() {
    STAGE.with_namespace(async |namespace| {
        let (_operator, node) = settled(namespace).await;
        let before = audit_lines(namespace.cluster());
        let asked = node.asked();
        tokio::time::sleep(SETTLED).await;
        let said: Vec<_> = requests(namespace.cluster(), namespace.name(), before)
            .into_iter()
            // A watch goes on in another request now and then, so that one whose connection has died is noticed.
            .filter(|request| request.resource != "leases" && request.verb != "watch")
            .collect();
        assert_eq!(said, [], "requests in a settled namespace");
        assert!(node.asked() <= asked + 2, "the sidecar was asked {} times", node.asked() - asked);
    });
}

#[test]
fn neither_its_own_writing_nor_the_status_of_a_deployment_makes_the_operator_look() {
    STAGE.with_namespace(async |namespace| {
        let (operator, _node) = settled(namespace).await;
        let servers: Api<McpServer> = namespace.api();
        let changed = fewest_looks(&operator, 1, async |round| {
            // Of which only the status has to tell.
            let owner = format!(r#"{{"spec": {{"catalog": {{"owner": "team {round}"}}}}}}"#);
            namespace.kubectl(&["patch", "lmcp", "demo", "--type=merge", "-p", &owner]).await.unwrap();
            let is_observed = |it: &McpServer| {
                it.status.as_ref().is_some_and(|status| status.observed_generation == Some(1 + round))
            };
            namespace.wait(&servers, "demo", "to be looked at", is_observed).await;
        });
        assert_eq!(changed.await, 1, "reconciliations for a change of the manifest");
        let said = fewest_looks(&operator, 0, async |round| {
            for time in 1..=5 {
                let news = format!(
                    r#"{{"status": {{"conditions": [{{"type": "Example", "status": "True", "reason": "Round{round}Time{time}"}}]}}}}"#
                );
                let patch = ["patch", "deployment", "demo", "--subresource=status", "-p", &news];
                namespace.kubectl(&patch).await.unwrap();
            }
        });
        assert_eq!(said.await, 0, "reconciliations for what changes only in a Deployment's status");
    });
}

/// How often the operator looks for what is done once, at its least of several rounds: the watch may be quicker than the
/// answer to a write, on a busy machine time and again, and something of the rounds before may come late.
async fn fewest_looks(operator: &Operator, wanted: usize, act: impl AsyncFn(i64)) -> usize {
    const ROUNDS: i64 = 20;
    const SOON: Duration = Duration::from_millis(500);
    let looks = || operator.log().lines().filter(|line| line.contains("reconciled")).count();
    let mut fewest = usize::MAX;
    for round in 1..=ROUNDS {
        let before = looks();
        act(round).await;
        tokio::time::sleep(SOON).await;
        fewest = fewest.min(looks() - before);
        if fewest == wanted {
            break;
        }
    }
    fewest
}

/// A server of two pods that are ready, when all that was under way has ended.
async fn settled(namespace: &Namespace<'_>) -> (Operator, Node) {
    let (operator, node, _) = two_pods(namespace).await;
    // What was under way when it became ready.
    tokio::time::sleep(Duration::from_secs(1)).await;
    (operator, node)
}

#[test]
fn every_right_is_used_and_none_is_missing() {
    STAGE.with_namespace(async |namespace| {
        let before = audit_lines(namespace.cluster());
        let mut operator = Operator::start(namespace);
        let node = Node::start().await;
        namespace.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await;
        apply_keys(namespace, ADA).await;
        let with = |more: &str| {
            let mut manifest: serde_json::Value = serde_json::from_str(&server(more)).unwrap();
            super::merge(
                &mut manifest["spec"],
                serde_json::json!({
                    "auth": {"none": null, "apiKeys": {"secretRef": {"name": "keys"}}},
                    "source": {"envFrom": [{"configMapRef": {"name": "settings"}}]},
                }),
            );
            manifest.to_string()
        };
        namespace.apply(&with("{}")).await;
        let old = node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        // A key comes: pods are touched until their sidecars have the new configuration.
        apply_keys(namespace, "{bob: another-key-that-is-long}").await;
        let pods: Api<Pod> = namespace.api();
        let touched = |attempt: &'static str| {
            move |pod: &Pod| {
                pod.annotations().get("longshore.dev/config").is_some_and(|it| it.ends_with(attempt))
            }
        };
        namespace.wait(&pods, &old, "to be touched", touched(".1")).await;
        namespace.wait(&pods, &old, "to be touched again", touched(".2")).await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        // Another pod: the configuration of the old one goes, and an identity that is not needed.
        namespace
            .apply(&with("{transport: {streamableHttp: {port: 4000}}, pod: {serviceAccountName: default}}"))
            .await;
        node.run_pod(namespace, &old).await;
        let no_grace = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
        let _ = pods.delete(&old, &no_grace).await;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = namespace.api();
        namespace.wait_gone(&accounts, "demo-longshore").await;
        // Several pods have a budget, and one has none.
        let budgets: Api<PodDisruptionBudget> = namespace.api();
        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=2"]).await.unwrap();
        namespace.wait(&budgets, "demo-longshore", "to be made", |_| true).await;
        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=1"]).await.unwrap();
        namespace.wait_gone(&budgets, "demo-longshore").await;
        // The same failure twice is one event that is counted.
        let servers: Api<McpServer> = namespace.api();
        for _ in 0..2 {
            namespace.kubectl(&["delete", "configmap", "settings"]).await.unwrap();
            namespace
                .wait(&servers, "demo", "to miss it", |it| is(it, "Accepted", "False", "ConfigMapNotFound"))
                .await;
            namespace.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await;
            namespace.wait(&servers, "demo", "to find it", |it| is(it, "Accepted", "True", "Accepted")).await;
        }
        assert!(operator.stop());

        let requests = requests(namespace.cluster(), namespace.name(), before);
        let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
        assert!(refused.is_empty(), "rights are missing: {refused:?}");
        let mut used = kinds(&requests);
        // Server-side apply needs the right to create where there is nothing yet, and is one request.
        let created = requests.iter().filter(|request| request.verb == "patch" && request.code == 201);
        used.extend(
            created.map(|request| (request.group.clone(), request.resource.clone(), "create".to_owned())),
        );
        let needed: BTreeSet<_> = rbac::SERVERS
            .iter()
            .chain(rbac::OWN_LEASE)
            .chain(rbac::OWN_NAMESPACE)
            // The API server asks for it inside of other requests, which is no request of its own: without it nothing
            // is made here, and a test beside this one (`rights`) has it taken away.
            .filter(|rule| rule.resource != "mcpservers/finalizers")
            .flat_map(|rule| {
                let group = rule.group.to_owned();
                rule.verbs
                    .iter()
                    .map(move |verb| (group.clone(), rule.resource.to_owned(), (*verb).to_owned()))
            })
            .collect();
        let unused: Vec<_> = needed.difference(&used).collect();
        assert!(unused.is_empty(), "rights that nobody uses: {unused:?}");
        let unnamed: Vec<_> = used.difference(&needed).collect();
        assert!(unnamed.is_empty(), "requests without a right of their own: {unnamed:?}");
    });
}
