//! Watches that cannot go on where they were: the API server has forgotten what happened since.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::Api;
use kube::api::{Patch, PatchParams};
use longshore_crds::McpServer;
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::json;

use super::gate::{Expiry, Gate};
use super::stand::{ADA, Operator, apply_keys, has_key, kubeconfig_of, until};
use super::{KEYED, LEAST, STAGE};

#[test]
fn what_happened_while_watches_expired_is_not_missed() {
    STAGE.with_namespace(async |namespace| {
        let gate = Gate::to(&kubeconfig_of(namespace.cluster(), "longshore")).await;
        let mut operator = Operator::by_way_of(gate.kubeconfig(), namespace);
        until("the operator leads", || operator.leads()).await;
        apply_keys(namespace, ADA).await;
        namespace.apply(&KEYED).await;
        namespace.apply(&LEAST.replace("demo", "ada")).await;
        let secrets = namespace.api::<Secret>();
        let has = |principal: &'static str| move |it: &Secret| has_key(it, principal);
        namespace.wait(&secrets, "demo-longshore-keys", "to have ada's key", has("ada")).await;

        for (expiry, [old, key]) in [(Expiry::Told, ["ada", "bob"]), (Expiry::Refused, ["bob", "eve"])] {
            let (services, servers) = (namespace.api::<Service>(), namespace.api::<McpServer>());
            for name in ["demo", old] {
                namespace.wait(&namespace.api::<Deployment>(), name, "to be made", |_| true).await;
            }
            let service = services.get("demo").await.unwrap().metadata.uid;
            gate.hush();
            // Something goes, comes and changes of what is looked after, is made and is named.
            services.delete("demo", &Default::default()).await.unwrap();
            namespace.kubectl(&["delete", "lmcp", old]).await.unwrap();
            namespace.apply(&LEAST.replace("demo", key)).await;
            let image = format!("registry.invalid/demo:{key}");
            let patch = Patch::Merge(json!({"spec": {"source": {"image": image}}}));
            servers.patch("demo", &PatchParams::default(), &patch).await.unwrap();
            namespace.kubectl(&["delete", "secret", "keys"]).await.unwrap();
            apply_keys(namespace, &format!("{{{key}: another-key-that-is-long}}")).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(services.get_opt("demo").await.unwrap().is_none(), "a watch was heard");

            let before = operator.log().matches("too old resource version").count();
            gate.expire(expiry);
            eventually("another Service is made", async || match services.get_opt("demo").await.unwrap() {
                Some(another) if another.metadata.uid != service => Ok(()),
                _ => Err("there is none"),
            })
            .await;
            namespace.wait(&secrets, "demo-longshore-keys", "to have the new key", has(key)).await;
            has_deployment(namespace, "demo", &image).await;
            has_deployment(namespace, key, "registry.invalid/").await;
            eventually("what has gone is forgotten", async || match servers_of(&operator.metrics().await) {
                2 => Ok(()),
                others => Err(others),
            })
            .await;
            let times = operator.log().matches("too old resource version").count() - before;
            assert!(times >= 10, "only {times} watches expired");
        }
        assert!(!operator.has_ended(), "{}", operator.log());
    });
}

/// Waits until a server has a Deployment in which these words are.
async fn has_deployment(namespace: &Namespace<'_>, name: &str, words: &str) {
    let deployments: Api<Deployment> = namespace.api();
    let has = |it: &Deployment| serde_json::to_string(it).unwrap().contains(words);
    namespace.wait(&deployments, name, &format!("to have {words}"), has).await;
}

/// How many servers an operator has.
fn servers_of(metrics: &str) -> usize {
    let counts = metrics.lines().filter(|line| line.starts_with("longshore_servers{"));
    counts.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum()
}
