//! A namespace that is being deleted: nothing can be made in it any more. Its pods go first, and all else stays until they
//! have, for as long as somebody keeps one of them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{self, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use longshore_crds::McpServer;
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::{Value, json};

use super::stand::{Operator, Request, audit_lines, has_key, requests, two_pods, until, wait_until_refused};
use super::{STAGE, server};

/// Longer than the first delays after something that failed, or was refused.
const SETTLED: Duration = Duration::from_secs(3);

#[test]
fn a_server_of_a_namespace_that_ends_tries_nothing_in_vain_and_goes_with_it() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, node, names) = two_pods(namespace).await;
        let (pods, servers) = (namespace.api::<Pod>(), namespace.api::<McpServer>());
        let held = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let here = PatchParams::default();
        pods.patch(&names[0], &here, &held(json!(["example.com/held"]))).await.unwrap();
        let namespaces: Api<v1::Namespace> = Api::all(namespace.client());
        namespaces.delete(namespace.name(), &DeleteParams::background()).await.unwrap();
        wait_until_refused(namespace, &["create", "configmap", "probe", "--dry-run=server"]).await;

        // What is to be made again, and what is to be made anew.
        let from = audit_lines(namespace.cluster());
        namespace.kubectl(&["delete", "service", "demo"]).await.unwrap();
        let keys = "auth: {none: null, apiKeys: {secretRef: {name: keys}}}";
        let other = format!("{{replicas: 2, {keys}, transport: {{streamableHttp: {{port: 4000}}}}}}");
        namespace.apply(&server(&other)).await;
        let is_refused = async |resource: &str| {
            let is_so = |it: &Request| it.resource == resource && it.code == 403;
            until(&format!("{resource} are refused"), || {
                requests(namespace.cluster(), namespace.name(), from).iter().any(is_so)
            })
            .await;
        };
        is_refused("services").await;
        is_refused("configmaps").await;
        // Pods that are on their way out serve, and a key is revoked all the same.
        namespace.kubectl(&["delete", "secret", "keys"]).await.unwrap();
        let secrets = namespace.api::<Secret>();
        let revoked = |it: &Secret| !has_key(it, "ada");
        namespace.wait(&secrets, "demo-longshore-keys", "to lose ada's key", revoked).await;
        node.load_configuration(namespace).await;
        // Of all else the namespace's controller takes what it likes first.
        namespace.kubectl(&["delete", "secret", "demo-longshore-keys"]).await.unwrap();
        is_refused("secrets").await;
        is_quiet(namespace, &operator, SETTLED).await;
        let status = serde_json::to_string(&servers.get("demo").await.unwrap().status).unwrap();
        assert!(!status.contains("terminated") && !status.contains("Rejected"), "{status}");

        pods.patch(&names[0], &here, &held(json!(null))).await.unwrap();
        eventually("the namespace is gone", async || {
            namespaces
                .get_opt(namespace.name())
                .await
                .unwrap()
                .map_or(Ok(()), |it| Err(format!("{:?}", it.status)))
        })
        .await;
        assert!(!operator.has_ended(), "{}", operator.log());
        is_quiet(namespace, &operator, SETTLED / 2).await;
    });
}

/// The operator asks next to nothing of the API server once what it was about is done, and complains of nothing.
async fn is_quiet(namespace: &Namespace<'_>, operator: &Operator, time: Duration) {
    let before = audit_lines(namespace.cluster());
    tokio::time::sleep(time).await;
    let mut said = requests(namespace.cluster(), namespace.name(), before);
    said.retain(|request| request.resource != "leases" && request.verb != "watch");
    // Every five seconds the namespace's controller looks for what is left of pods, which is news of them, and what lacks is
    // tried again then: nothing else has the operator try.
    assert!(said.len() <= 20, "requests in vain: {said:?}");
    let log = operator.log();
    let complaints: Vec<_> =
        log.lines().filter(|line| line.contains("\"WARN\"") || line.contains("\"ERROR\"")).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
