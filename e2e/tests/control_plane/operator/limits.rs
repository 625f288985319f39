//! What a namespace grants no more of: its LimitRange or ResourceQuota refuses pods, or what else a server needs.

use std::time::Duration;

use longshore_crds::McpServer;

use super::node::Node;
use super::stand::{Operator, audit_lines, condition, is, requests, wait_for};
use super::{LEAST, STAGE, server};

#[test]
fn what_a_limit_range_or_a_quota_says_of_pods_is_said_of_their_server() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let node = Node::start().await;
        // All of them are too large.
        namespace
            .apply(
                "{apiVersion: v1, kind: LimitRange, metadata: {name: small}, spec: {limits: [{type: Pod, max: {memory: 1Mi}}]}}",
            )
            .await;
        namespace.apply(&server("{pod: {resources: {limits: {memory: 64Mi}}}}")).await;
        let message = wait_for(namespace, "Available", "False", "PodRejected").await;
        assert!(message.contains("maximum memory usage per Pod is 1Mi"), "{message}");
        wait_for(namespace, "Ready", "False", "PodRejected").await;
        namespace.kubectl(&["delete", "limitrange", "small"]).await.unwrap();
        let pod = node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;

        // There is room for one pod, which serves: not for a second one, nor for one of another version beside it.
        namespace
            .apply("{apiVersion: v1, kind: ResourceQuota, metadata: {name: one}, spec: {hard: {pods: 1}}}")
            .await;
        namespace.kubectl(&["wait", "resourcequota/one", "--for=jsonpath={.status.used.pods}=1"]).await.unwrap();
        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=2"]).await.unwrap();
        let message = wait_for(namespace, "Available", "True", "Degraded").await;
        assert!(message.contains("1 of 2 pods serve") && message.contains("exceeded quota: one"), "{message}");
        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=1"]).await.unwrap();
        wait_for(namespace, "Available", "True", "Serving").await;
        namespace.apply(&server("{source: {image: 'registry.invalid/demo:2'}}")).await;
        let message = wait_for(namespace, "Available", "True", "RolloutFailing").await;
        assert!(message.contains("exceeded quota: one"), "{message}");
        wait_for(namespace, "Ready", "True", "ServingPrevious").await;

        namespace.kubectl(&["delete", "resourcequota", "one"]).await.unwrap();
        node.run_pod(namespace, &pod).await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
    });
}

/// Without it there is nothing that could say of the pods that they are refused.
#[test]
fn a_quota_that_refuses_the_replica_set_is_said_of_its_server() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let node = Node::start().await;
        namespace
            .apply(
                "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {count/replicasets.apps: 0}}}",
            )
            .await;
        namespace.kubectl(&["wait", "resourcequota/none", "--for=jsonpath={.status.hard}"]).await.unwrap();
        namespace.apply(&LEAST).await;
        let message = wait_for(namespace, "Available", "False", "PodRejected").await;
        assert!(message.contains("exceeded quota: none"), "{message}");
        wait_for(namespace, "Ready", "False", "PodRejected").await;
        namespace.kubectl(&["delete", "resourcequota", "none"]).await.unwrap();
        // Its controller may have given up by then.
        namespace.kubectl(&["annotate", "deployment/demo", "again=now"]).await.unwrap();
        node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
    });
}

#[test]
fn a_quota_that_refuses_what_pods_need_is_said_and_tried_again_in_its_time() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace
            .apply(
                "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {count/deployments.apps: 0}}}",
            )
            .await;
        namespace.kubectl(&["wait", "resourcequota/none", "--for=jsonpath={.status.hard}"]).await.unwrap();
        let from = audit_lines(namespace.cluster());
        namespace.apply(&LEAST).await;
        let message = wait_for(namespace, "Accepted", "False", "Rejected").await;
        assert!(message.contains("exceeded quota: none"), "{message}");
        tokio::time::sleep(Duration::from_secs(4)).await;
        let said = requests(namespace.cluster(), namespace.name(), from);
        let tries = said.iter().filter(|it| it.resource == "deployments" && it.code == 403).count();
        // At once, when its other objects and its status have been seen, and after one and two seconds more.
        assert!(tries <= 8, "it was tried {tries} times");
        namespace.kubectl(&["delete", "resourcequota", "none"]).await.unwrap();
        let servers = namespace.api::<McpServer>();
        let healed = |it: &McpServer| is(it, "Accepted", "True", "Accepted");
        let server = namespace.wait(&servers, "demo", "to be accepted", healed).await;
        assert!(!condition(&server, "Ready").unwrap().message.contains("quota"));
    });
}
