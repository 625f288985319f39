//! Servers of several pods: scaled as anything is, found by each other, spared when nodes are emptied.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use longshore_crds::McpServer;
use serde_json::Value;

use super::node::{Node, configuration};
use super::stand::{Operator, condition, is, wait_for};
use super::{LEAST, STAGE, server};

#[test]
fn a_server_is_scaled_as_a_deployment_is() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let node = Node::start().await;
        namespace.apply(&LEAST).await;
        let deployments: Api<Deployment> = namespace.api();
        let has = |replicas: i32| {
            move |it: &Deployment| it.spec.as_ref().is_some_and(|spec| spec.replicas == Some(replicas))
        };
        namespace.wait(&deployments, "demo", "to have one pod", has(1)).await;
        let configured = configuration(namespace).await;
        let budgets: Api<PodDisruptionBudget> = namespace.api();
        assert!(budgets.get_opt("demo-longshore").await.unwrap().is_none(), "a budget for one pod");

        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=3"]).await.unwrap();
        namespace.wait(&deployments, "demo", "to have three pods", has(3)).await;
        let budget = namespace.wait(&budgets, "demo-longshore", "to be made", |_| true).await.spec.unwrap();
        assert_eq!(budget.unhealthy_pod_eviction_policy.as_deref(), Some("AlwaysAllow"));
        let pods = node.find_pods(namespace, 3).await;
        for pod in &pods[..2] {
            node.run(namespace, pod).await;
        }
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        let servers: Api<McpServer> = namespace.api();
        let two = namespace
            .wait(&servers, "demo", "to have two pods that serve", |server| {
                server.status.as_ref().is_some_and(|status| status.ready_replicas == Some(2))
            })
            .await;
        assert_eq!(condition(&two, "Available").unwrap().message, "2 of 3 pods serve, the others start");
        // What a HorizontalPodAutoscaler reads.
        let path =
            format!("/apis/longshore.dev/v1alpha1/namespaces/{}/mcpservers/demo/scale", namespace.name());
        let scale: Value =
            serde_json::from_str(&namespace.kubectl(&["get", "--raw", &path]).await.unwrap()).unwrap();
        assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&3.into(), &3.into()));
        let selector = scale["status"]["selector"].as_str().unwrap();
        let selected =
            namespace.kubectl(&["get", "pods", "-o", "name", "--selector", selector]).await.unwrap();
        assert_eq!(selected.lines().count(), 3, "{selector}: {selected}");

        node.run(namespace, &pods[2]).await;
        let all = namespace
            .wait(&servers, "demo", "to have three pods that serve", |server| {
                server.status.as_ref().is_some_and(|status| status.ready_replicas == Some(3))
            })
            .await;
        assert_eq!(condition(&all, "Available").unwrap().message, "all 3 pods serve");

        assert_eq!(
            configuration(namespace).await,
            configured,
            "news for the sidecars, and none that concerns them"
        );

        // The pods that stay are those that were there.
        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=1"]).await.unwrap();
        namespace.wait_gone(&budgets, "demo-longshore").await;
        let left = node.find_pods(namespace, 1).await;
        assert!(pods.contains(&left[0]), "{left:?} of {pods:?}");
        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=0"]).await.unwrap();
        let none = namespace
            .wait(&servers, "demo", "to have no pod", |server| is(server, "Ready", "False", "ScaledToZero"))
            .await;
        assert_eq!(none.status.unwrap().replicas, Some(0));
    });
}

#[test]
fn a_server_that_lacks_something_is_scaled_and_stopped_all_the_same() {
    STAGE.with_namespace(async |namespace| {
        let mut operator = Operator::start(namespace);
        let token = "{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {value: x}}";
        namespace.apply(token).await;
        let with_token = "{source: {envFrom: [{secretRef: {name: token}}]}}";
        namespace.apply(&server(with_token)).await;
        let deployments: Api<Deployment> = namespace.api();
        let has = |replicas: i32| {
            move |it: &Deployment| it.spec.as_ref().is_some_and(|spec| spec.replicas == Some(replicas))
        };
        let template = |it: Deployment| it.spec.unwrap().template;
        let first = template(namespace.wait(&deployments, "demo", "to be made", has(1)).await);
        let scale = async |replicas: i32| {
            let wanted = format!("--replicas={replicas}");
            namespace.kubectl(&["scale", "lmcp", "demo", &wanted]).await.unwrap();
            let what = format!("to have {replicas} pods");
            template(namespace.wait(&deployments, "demo", &what, has(replicas)).await)
        };

        namespace.kubectl(&["delete", "secret", "token"]).await.unwrap();
        wait_for(namespace, "Accepted", "False", "SecretNotFound").await;
        assert_eq!(scale(3).await, first);
        assert_eq!(scale(0).await, first);
        wait_for(namespace, "Available", "False", "ScaledToZero").await;
        wait_for(namespace, "Accepted", "False", "SecretNotFound").await;
        namespace.apply(token).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        assert_eq!(scale(2).await, first);

        // What the API server refuses is no other reason.
        let refused = "{source: {envFrom: [{secretRef: {name: token}}]}, replicas: 2, pod: {overrides: {spec: {dnsPolicy: Sometimes}}}}";
        namespace.apply(&server(refused)).await;
        wait_for(namespace, "Accepted", "False", "Rejected").await;
        assert_eq!(scale(0).await, first);
        wait_for(namespace, "Available", "False", "ScaledToZero").await;

        // An operator that has just started and may not read the server's keys can make nothing at all.
        assert!(operator.stop());
        let _operator = Operator::without(namespace, "get", "secrets");
        wait_for(namespace, "Accepted", "False", "Unreadable").await;
        assert_eq!(scale(2).await, first);
        assert_eq!(scale(0).await, first);
    });
}

#[test]
fn pods_find_each_other_by_a_service_of_their_own() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace.apply(&server("{replicas: 2}")).await;
        let services: Api<Service> = namespace.api();
        let service = namespace.wait(&services, "demo-longshore", "to be made", |_| true).await.spec.unwrap();
        assert_eq!(service.cluster_ip.as_deref(), Some("None"));
        assert_eq!(service.publish_not_ready_addresses, Some(true));
        let deployments: Api<Deployment> = namespace.api();
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        let config: Value = serde_json::from_str(&configuration(namespace).await).unwrap();
        let name = format!("demo-longshore.{}.svc.cluster.local.", namespace.name());
        assert_eq!(config["peers"]["service"], name.as_str());
    });
}
