//! Two operators that act at once: one has lost its lease, and has not heard of it.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_e2e::testing::{Namespace, PATIENCE, eventually};
use serde_json::{Value, json};

use super::gate::Gate;
use super::leadership::forget_leader;
use super::stand::{ADA, NEXT_SIDECAR, Operator, apply_keys, has_key, kubeconfig_of, until, wait_for};
use super::{STAGE, server};

/// A key of Bob's.
const BOB: &str = "{bob: another-key-that-is-long}";

/// What the one before has written is under way for long, and arrives when it has ended and the next one has done its work.
#[test]
fn what_an_operator_wrote_that_has_lost_its_lease_undoes_nothing_for_long() {
    STAGE.with_namespace(async |namespace| {
        let kubeconfig = kubeconfig_of(namespace.cluster(), "longshore");
        let mut gate = Gate::to(&kubeconfig).await;
        let mut first = Operator::by_way_of(gate.kubeconfig(), namespace);
        until("the first operator leads", || first.leads()).await;
        apply_keys(namespace, BOB).await;
        namespace.apply(&with("registry.invalid/demo:1", "first")).await;
        let (objects, keys, _) = is_as_said(namespace, "registry.invalid/demo:1", "first").await;
        for resource in ["secrets", "configmaps", "deployments", "mcpservers"] {
            let [before, after] = ["before", "after"]
                .map(|time| (format!("registry.invalid/{resource}:{time}"), format!("{time}-{resource}")));
            gate.keep(resource);
            namespace.apply(&with(&before.0, &before.1)).await;
            apply_keys(namespace, ADA).await;
            gate.keeps_something().await;
            forget_leader(namespace);
            let next = Gate::to(&kubeconfig).await;
            let second = Operator::by_way_of(next.kubeconfig(), namespace);
            namespace.kubectl(&["delete", "secret", "keys"]).await.unwrap();
            apply_keys(namespace, BOB).await;
            namespace.apply(&with(&after.0, &after.1)).await;
            let (.., made) = is_as_said(namespace, &after.0, &after.1).await;
            until("the first operator ends", || first.has_ended()).await;
            assert!(first.log().contains("holds the lease now"), "{}", first.log());
            gate.let_go().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let (objects_now, keys_now, generation) = is_as_said(namespace, &after.0, &after.1).await;
            assert_eq!(
                (&objects_now, &keys_now),
                (&objects, &keys),
                "{resource}: objects or sessions are lost"
            );
            // One takes it back, and the other one mends it.
            assert!(generation <= made + 2, "{resource}: they fight: {made} and {generation}");
            (first, gate) = (second, next);
        }
    });
}

/// Both act until the older one looks at the lease, every 2 s.
#[test]
fn two_releases_that_act_at_once_for_a_moment_leave_what_the_newer_one_says() {
    STAGE.with_namespace(async |namespace| {
        let mut first = Operator::start(namespace);
        until("the first operator leads", || first.leads()).await;
        apply_keys(namespace, BOB).await;
        namespace.apply(&with("registry.invalid/demo:1", "first")).await;
        let (_, keys, _) = is_as_said(namespace, "registry.invalid/demo:1", "first").await;
        forget_leader(namespace);
        let second = Operator::of_the_next_release(namespace, "1");
        let (mut image, mut owner) = Default::default();
        let began = Instant::now();
        for version in 2_u64.. {
            if first.has_ended() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "both go on: {}", first.log());
            image = format!("registry.invalid/demo:{version}");
            owner = format!("team-{version}");
            namespace.apply(&with(&image, &owner)).await;
        }
        assert!(first.log().contains("holds the lease now"), "{}", first.log());
        until("the second operator leads", || second.leads()).await;
        is_as_said(namespace, &image, &owner).await;
        let deployments: Api<Deployment> = namespace.api();
        let is_new = |it: &Deployment| serde_json::to_string(&it.spec).unwrap().contains(NEXT_SIDECAR);
        let made = namespace.wait(&deployments, "demo", "to be of the next release", is_new).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (_, keys_now, generation) = is_as_said(namespace, &image, &owner).await;
        assert_eq!((keys_now, Some(generation)), (keys, made.metadata.generation));
    });
}

/// A server of this image and this owner.
fn with(image: &str, owner: &str) -> String {
    server(&format!(
        "{{source: {{image: '{image}'}}, catalog: {{owner: {owner}}}, access: {{rules: [{{name: of-{owner}, tools: ['*']}}]}}, \
         auth: {{none: null, apiKeys: {{secretRef: {{name: keys}}}}}}}}"
    ))
}

/// Waits until all that belongs to a server is as its manifest says. Gives which objects they are, the session keys, and the
/// generation of the Deployment.
async fn is_as_said(namespace: &Namespace<'_>, image: &str, owner: &str) -> (Value, Value, i64) {
    wait_for(namespace, "Accepted", "True", "Accepted").await;
    eventually(&format!("the server is {image} of {owner}"), async || {
        let server = namespace.api::<McpServer>().get("demo").await.unwrap();
        let deployment = namespace.api::<Deployment>().get("demo").await.unwrap();
        let secret = namespace.api::<Secret>().get("demo-longshore-keys").await.unwrap();
        let ours = ListParams::default().labels("longshore.dev/server=demo");
        let config_maps = namespace.api::<ConfigMap>().list(&ours).await.unwrap().items;
        let template = serde_json::to_value(&deployment.spec.as_ref().unwrap().template).unwrap();
        let has = |image: &str| template.to_string().contains(&format!("\"{image}\""));
        let mounted = config_maps.iter().find(|it| has(&it.name_any()));
        let rules = mounted.and_then(|it| it.data.as_ref()).map(|data| data["config.json"].clone());
        let observed = server.status.as_ref().and_then(|it| it.observed_generation);
        let is_said = [
            observed == server.metadata.generation,
            has(image),
            has_key(&secret, "bob") && !has_key(&secret, "ada"),
            rules.is_some_and(|it| it.contains(&format!("\"of-{owner}\""))),
        ];
        if is_said != [true; 4] {
            return Err(format!("{is_said:?}"));
        }
        let keys: Value = serde_json::from_slice(&secret.data.as_ref().unwrap()["keys.json"].0).unwrap();
        assert!(keys["sessions"].is_array());
        let ids = json!([deployment.uid(), secret.uid()]);
        Ok((ids, keys["sessions"].clone(), deployment.metadata.generation.unwrap()))
    })
    .await
}
