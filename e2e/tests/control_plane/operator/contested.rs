//! A Deployment that something else changes all the time, such as an autoscaler of before it was a server's.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use longshore_e2e::testing::Namespace;

use super::stand::{Operator, wait_for, wait_for_events};
use super::{LEAST, STAGE, server};

#[test]
fn a_deployment_that_is_changed_all_the_time_is_changed_back_once_a_minute() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let deployments: Api<Deployment> = namespace.api();
        namespace.apply(&LEAST).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        for _ in 0..5 {
            scale(namespace).await;
            namespace.wait(&deployments, "demo", "to be changed back", |it| replicas(it) == Some(1)).await;
        }
        scale(namespace).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(replicas(&deployments.get("demo").await.unwrap()), Some(3), "it is changed back at once");
        // Nobody else waits for that.
        namespace.apply(&server("{source: {args: [more]}}")).await;
        namespace.wait(&deployments, "demo", "to be as its owner says", |it| replicas(it) == Some(1)).await;
        scale(namespace).await;
        namespace.wait(&deployments, "demo", "to be changed back later", |it| replicas(it) == Some(1)).await;
        let said = wait_for_events(namespace, "ChangedBack", 2).await;
        let is_slow = |it: &String| it.contains("keeps changing Deployment demo");
        assert!(said.iter().any(is_slow), "whoever does it finds out why: {said:?}");
    });
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

async fn scale(namespace: &Namespace<'_>) {
    namespace.kubectl(&["scale", "deployment", "demo", "--replicas=3"]).await.unwrap();
}
