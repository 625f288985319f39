//! Manifests that would cost far more to read than they weigh.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};
use longshore_crds::McpServer;
use longshore_e2e::testing::eventually;
use serde_json::{Value, json};

use super::stand::{Operator, wait_for};
use super::{LEAST, STAGE};

/// The chart's limit is 256 MiB, of which an operator that was compiled for tests takes more than another.
const MOST_RESIDENT_KIB: u64 = 192 * 1024;

#[test]
fn manifests_that_are_too_large_or_too_deep_are_refused_and_cost_no_other_server_anything() {
    STAGE.with_namespace(async |namespace| {
        let client = namespace.cluster().client().await.unwrap();
        let kind = ApiResource::erase::<McpServer>(&());
        let servers: Api<DynamicObject> = Api::namespaced_with(client, namespace.name(), &kind);
        let with_overrides = |name: &str, overrides: Value| {
            let mut server: Value = serde_json::from_str(&LEAST).unwrap();
            server["metadata"]["name"] = json!(name);
            server["spec"]["pod"] = json!({"overrides": overrides});
            serde_json::from_value::<DynamicObject>(server).unwrap()
        };
        // Too large for kubectl, which keeps it in an annotation too; and too deep for a client of ours.
        let large = with_overrides("large", json!({"x": vec![json!({"a": 1}); 170_000]}));
        servers.create(&Default::default(), &large).await.unwrap();
        let deep = (0..200).fold(json!({}), |deep, _| json!({"a": deep}));
        namespace.apply(&serde_json::to_string(&with_overrides("deep", deep)).unwrap()).await;
        namespace.apply(&LEAST).await;
        // Nor are all of a kind in memory at once.
        let label = |number: usize| (format!("k{number:062}"), "v".repeat(63));
        let labels: BTreeMap<_, _> = (0..6_500).map(label).collect();
        let config_maps: Api<ConfigMap> = namespace.api();
        for number in 0..60 {
            let metadata = ObjectMeta {
                name: Some(format!("labelled-{number}")),
                labels: Some(labels.clone()),
                ..Default::default()
            };
            config_maps
                .create(&Default::default(), &ConfigMap { metadata, ..Default::default() })
                .await
                .unwrap();
        }

        // It reads them in its list, and one of them once more as news.
        let operator = Operator::start(namespace);
        let deployments: Api<Deployment> = namespace.api();
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        for (name, reason, words) in [
            ("deep", "Malformed", "recursion limit exceeded"),
            ("large", "Invalid", "spec.pod.overrides: it has more than 128 KiB or 8192 values"),
        ] {
            let accepted = "jsonpath={.status.conditions[?(@.type=='Accepted')]['reason','message']}";
            eventually(&format!("{name} is said to be {reason}"), async || {
                let said = namespace.kubectl(&["get", "lmcp", name, "-o", accepted]).await.unwrap();
                if said.starts_with(reason) && said.contains(words) { Ok(()) } else { Err(said) }
            })
            .await;
        }
        let peak = operator.most_resident_kib();
        assert!(peak < MOST_RESIDENT_KIB, "the operator took {peak} KiB");
    });
}
