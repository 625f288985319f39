//! What a status says over time: no less after an operator than before, and no more often than anybody can read.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use longshore_crds::McpServer;
use longshore_e2e::cluster::{Cluster, Shape};
use longshore_e2e::testing::{Kind, Room, eventually};
use serde_json::{Value, json};

use super::node::Node;
use super::stand::{
    Operator, audit_lines, condition, install, is, kubectl, ready, requests, until, wait_for,
};
use super::{LEAST, STAGE, server};

#[test]
fn how_a_server_ended_outlives_the_operator_that_saw_it() {
    STAGE.with_namespace(async |namespace| {
        let mut operator = Operator::start(namespace);
        let node = Node::start().await;
        namespace.apply(&LEAST).await;
        let pod = node.find_pod(namespace, "").await;
        let says = |state: Value, last: Value| {
            json!({
                "conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}],
                "containerStatuses": [{
                    "name": "server", "ready": false, "started": false, "restartCount": 1, "image": "demo:1",
                    "imageID": "", "state": state, "lastState": last,
                }],
            })
        };
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "no token given"}});
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        node.say(namespace, &pod, says(back_off, ended)).await;
        let message = wait_for(namespace, "Available", "False", "ServerExited").await;
        assert!(message.contains("no token given"), "{message}");
        // The kubelet has cleared the last one away while it starts the next.
        let running = says(json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}), json!(null));
        node.say(namespace, &pod, running).await;
        let pods: Api<Pod> = namespace.api();
        let seen = serde_json::to_string(&pods.get(&pod).await.unwrap().status).unwrap();
        assert!(!seen.contains("no token given"), "{seen}");
        assert!(operator.stop());

        let servers: Api<McpServer> = namespace.api();
        let before = servers.get("demo").await.unwrap().status.unwrap();
        // As it is, and not as Longshore reads it: what the API server wrote before the first look is gone.
        let shown = namespace.kubectl(&["get", "lmcp", "demo", "-o", "json"]).await.unwrap();
        assert!(!shown.contains("Pending"), "{shown}");
        let operator = Operator::start(namespace);
        // Whatever it has to write comes before that.
        until("the operator has looked", || operator.log().contains("reconciled")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(servers.get("demo").await.unwrap().status.unwrap(), before);
    });
}

#[test]
fn where_clients_outside_of_the_cluster_connect_to_is_said_while_the_manifest_says_it() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let servers: Api<McpServer> = namespace.api();
        for (spec, expected) in [
            ("{expose: {host: mcp.example.com}}", Some("https://mcp.example.com/mcp")),
            ("{expose: {host: tools.example.com}}", Some("https://tools.example.com/mcp")),
            ("{}", None),
        ] {
            namespace.apply(&server(spec)).await;
            let says_so = |it: &McpServer| {
                let status = it.status.clone().unwrap_or_default();
                let inside = format!("http://demo.{}.svc.cluster.local/mcp", namespace.name());
                status.observed_generation == it.metadata.generation
                    && status.url == Some(inside)
                    && status.public_url.as_deref() == expected
            };
            namespace.wait(&servers, "demo", &format!("to be at {expected:?}"), says_so).await;
            let shown = namespace.kubectl(&["get", "lmcp", "demo", "-o", "wide"]).await.unwrap();
            assert_eq!(shown.contains("https://"), expected.is_some(), "{shown}");
            assert!(expected.is_none_or(|url| shown.contains(url)), "{shown}");
        }
    });
}

#[test]
fn a_pod_that_is_kept_out_of_the_service_is_no_server_that_fails() {
    STAGE.with_namespace(async |namespace| {
        let (_operator, node, pod) = ready(namespace).await;
        let not_ready = |more: Value| {
            let mut ready = json!({"type": "Ready", "status": "False"});
            ready.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"conditions": [
                ready, {"type": "ContainersReady", "status": "True"}, {"type": "PodScheduled", "status": "True"},
            ]})
        };
        for (more, reason, words) in [
            (
                json!({"reason": "ReadinessGatesNotReady", "message": "readiness gate \"lb\" does not exist"}),
                "ReadinessGate",
                "readiness gate \"lb\"",
            ),
            // As the node's controller leaves it when the node is not heard of.
            (json!({}), "NodeNotReady", "`kubectl get nodes`"),
        ] {
            node.say(namespace, &pod, not_ready(more)).await;
            let message = wait_for(namespace, "Available", "False", reason).await;
            assert!(message.contains(words), "{message}");
        }
    });
}

#[test]
fn a_sidecar_that_refuses_the_operators_token_is_named_where_the_operator_says_so() {
    STAGE.with_namespace(async |namespace| {
        let operator = Operator::start(namespace);
        let node = Node::start().await;
        namespace.apply(&LEAST).await;
        node.change(|inventory| *inventory = json!(401));
        let pod = node.run_pod(namespace, "").await;
        let pod = format!("{}/{pod}", namespace.name());
        let says_so = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            let words = line["message"].as_str().unwrap_or_default();
            words.starts_with("a sidecar refuses the operator's token") && line["pod"] == pod.as_str()
        };
        until("the pod is named", || operator.log().lines().any(says_so)).await;
    });
}

/// Who installs them beside the operator may have forgotten them.
#[test]
fn that_the_custom_resources_are_older_than_the_operator_is_said_once() {
    const CRD: &str = "mcpservers.longshore.dev";
    const FIELD: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/readyReplicas";
    let _room = Room::take(Kind::Cluster);
    let cluster = Cluster::start(Shape::ControlPlane).unwrap();
    install(&cluster).unwrap();
    cluster
        .block_on(async || {
            let patch = |patch: &Value| {
                kubectl(&cluster, &["patch", "crd", CRD, "--type=json", "-p", &patch.to_string()], None)
                    .unwrap()
            };
            patch(&json!([{"op": "remove", "path": FIELD}]));
            let servers: Api<McpServer> = Api::namespaced(cluster.client().await.unwrap(), "default");
            servers.create(&PostParams::default(), &serde_json::from_str(&LEAST).unwrap()).await.unwrap();
            let status = json!({
                "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer", "status": {"readyReplicas": 0},
            });
            eventually("the field is not there", async || {
                let parameters = PatchParams::apply("test").dry_run();
                let answer = servers.patch_status("demo", &parameters, &Patch::Apply(&status)).await;
                answer.err().map(|error| error.to_string()).ok_or("it is")
            })
            .await;
            let operator = Operator::start_in(&cluster, "default");
            let times = |words: &str| operator.log().lines().filter(|line| line.contains(words)).count();
            until("it has tried in vain", || times("cannot write the status") >= 3).await;
            let words = "the CustomResourceDefinition is older than this operator";
            assert_eq!(times(words), 1, "{}", operator.log());
            patch(&json!([{"op": "add", "path": FIELD, "value": {"type": "integer", "format": "int32"}}]));
            eventually("the status is written", async || {
                let status = servers.get("demo").await.unwrap().status;
                status.and_then(|status| status.observed_generation).ok_or("there is none")
            })
            .await;
        })
        .unwrap();
}

#[test]
fn a_server_that_comes_and_goes_all_the_time_is_not_written_down_each_time() {
    const TIMES: usize = 80;
    STAGE.with_namespace(async |namespace| {
        let (_operator, node, _pod) = ready(namespace).await;
        let before = audit_lines(namespace.cluster());
        let began = Instant::now();
        let asked = node.asked();
        let goes = |inventory: &mut Value| {
            inventory["connection"]["state"] = json!("Failed");
            inventory["connection"]["reason"] = json!("ConnectionLost");
            inventory["connection"]["message"] = json!("the server has ended the connection");
        };
        let comes = |inventory: &mut Value| {
            inventory["connection"]["state"] = json!("Connected");
            inventory["connection"]["reason"] = json!(null);
            inventory["connection"]["message"] = json!("");
        };
        for time in 0..TIMES {
            if time % 2 == 0 {
                node.change(goes)
            } else {
                node.change(comes)
            };
            // The operator has heard it when it asks again.
            until("the sidecar is asked again", || node.asked() > asked + time).await;
        }
        node.change(goes);
        // What it comes to in the end is said, if not at once.
        let servers: Api<McpServer> = namespace.api();
        let is_lost = |server: &McpServer| is(server, "Ready", "False", "ConnectionLost");
        let lost = namespace.wait(&servers, "demo", "to be lost", is_lost).await;
        assert_eq!(condition(&lost, "Available").unwrap().reason, "Serving");
        let said = requests(namespace.cluster(), namespace.name(), before);
        let written = said.iter().filter(|request| request.resource == "mcpservers/status").count();
        // A score at once, and four a minute.
        let most = 22 + usize::try_from(began.elapsed().as_secs()).unwrap() / 15;
        assert!(written <= most, "{written} times, and not {most}");
    });
}
