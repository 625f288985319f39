//! An operator beside sidecars of the release before, which reads another form of the configuration.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use longshore_sidecar_config::CONTRACT_VERSION;
use serde_json::{Value, json};

use super::stand::ready;
use super::{STAGE, server};

/// A sidecar that restarts finds what it can read.
#[test]
fn what_the_pods_of_an_older_contract_read_stays_as_it_is_until_they_go() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, node, first) = ready(namespace).await;
        assert!(operator.stop());

        // As if it had been one of a release whose contract has another version.
        let config_maps: Api<ConfigMap> = namespace.api();
        let ours = ListParams::default().labels("longshore.dev/server=demo");
        let now = config_maps.list(&ours).await.unwrap().items.pop().unwrap();
        let name = now.name_any();
        let other = name.replace(&format!("-v{CONTRACT_VERSION}-"), &format!("-v{}-", CONTRACT_VERSION - 1));
        assert_ne!(name, other);
        let mut before = now.clone();
        before.metadata.name = Some(other.clone());
        before.metadata.resource_version = None;
        before.metadata.managed_fields = None;
        before.data = Some([("config.json".to_owned(), "what that release wrote".to_owned())].into());
        let before = config_maps.create(&PostParams::default(), &before).await.unwrap();
        let deployments: Api<Deployment> = namespace.api();
        let mut deployment = serde_json::to_value(deployments.get("demo").await.unwrap()).unwrap();
        let template = &mut deployment["spec"]["template"];
        template["metadata"]["annotations"]["longshore.dev/template"] = json!("of the release before");
        let volumes = template["spec"]["volumes"].to_string();
        assert_eq!(volumes.matches(&name).count(), 1, "{volumes}");
        template["spec"]["volumes"] = serde_json::from_str(&volumes.replace(&name, &other)).unwrap();
        let deployment = serde_json::from_value(deployment).unwrap();
        deployments.replace("demo", &PostParams::default(), &deployment).await.unwrap();
        let old = node.run_pod(namespace, &first).await;
        assert_eq!(node.find_pods(namespace, 1).await, std::slice::from_ref(&old));
        config_maps.delete(&name, &DeleteParams::default()).await.unwrap();

        // It says more in the form that is its own, and nothing in the other.
        let _operator = operator.another();
        let new = node.find_pod(namespace, &old).await;
        namespace.apply(&server("{access: {rules: [{name: all, tools: ['*']}]}}")).await;
        let has_rule = |map: &ConfigMap| {
            let file = map.data.as_ref().and_then(|data| data.get("config.json"));
            let file: Option<Value> = file.and_then(|file| serde_json::from_str(file).ok());
            file.is_some_and(|file| file["access"][0]["name"] == "all" && file["version"] == CONTRACT_VERSION)
        };
        namespace.wait(&config_maps, &name, "to have the new rule", has_rule).await;
        // Nobody has written it.
        assert_eq!(config_maps.get(&other).await.unwrap(), before);
        node.run(namespace, &new).await;
        namespace.wait_gone(&config_maps, &other).await;
        assert_eq!(node.find_pods(namespace, 1).await, [new]);
        assert!(has_rule(&config_maps.get(&name).await.unwrap()));
    });
}
