//! Objects that have the names of Longshore's and belong to others, which are left alone.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ResourceQuota, Service};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use longshore::ObjectNames;
use longshore::digest;
use longshore::upstream_text;
use longshore_crds::McpServer;
use longshore_sidecar_config::{CONTRACT_VERSION, Upstream};
use serde_json::{Value, json};

use super::node::Node;
use super::stand::{Operator, condition, is, wait_for};
use super::{LEAST, STAGE};

#[test]
fn what_belongs_to_others_is_left_alone() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace
            .apply("{apiVersion: v1, kind: Service, metadata: {name: demo, labels: {longshore.dev/server: demo}}, spec: {ports: [{port: 1}]}}")
            .await;
        let services: Api<Service> = namespace.api();
        let theirs = services.get("demo").await.unwrap();
        namespace.apply(&LEAST).await;
        let message = wait_for(namespace, "Accepted", "False", "NameTaken").await;
        assert!(message.starts_with(&format!("Service {}/demo exists already", namespace.name())), "{message}");
        assert_eq!(services.get("demo").await.unwrap(), theirs);
        let deployments: Api<Deployment> = namespace.api();
        assert!(deployments.get_opt("demo").await.unwrap().is_none(), "a pod that no Service leads to");
        let servers: Api<McpServer> = namespace.api();
        let url = servers.get("demo").await.unwrap().status.unwrap().url;
        assert_eq!(url, None, "clients would show their keys to somebody else's Service");

        services.delete("demo", &DeleteParams::default()).await.unwrap();
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        // A look in the very moment of its going may find neither theirs nor a free name, and is repeated.
        let is_there = |now: &Service| !now.owner_references().is_empty();
        let ours = namespace.wait(&services, "demo", "to be made anew", is_there).await;
        assert_eq!(ours.owner_references()[0].kind, "McpServer");
        let is_said = |it: &McpServer| {
            let url = it.status.as_ref().and_then(|status| status.url.as_deref());
            url.is_some_and(|url| url.starts_with("http://demo."))
        };
        namespace.wait(&servers, "demo", "to say where it is", is_said).await;
    });
}

/// Somebody was faster than an operator that came back.
#[test]
fn an_address_is_not_named_any_more_when_its_service_is_somebody_elses() {
    STAGE.with_namespace(async |namespace| {
        let mut operator = Operator::start(namespace);
        let node = Node::start().await;
        namespace.apply(&super::server("{expose: {host: mcp.example.com}}")).await;
        node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        let servers: Api<McpServer> = namespace.api();
        let urls = |it: &McpServer| {
            let status = it.status.clone().unwrap_or_default();
            [status.url, status.public_url].into_iter().flatten().count()
        };
        let is_well = |it: &McpServer| is(it, "Accepted", "True", "Accepted") && urls(it) == 2;
        namespace.wait(&servers, "demo", "to say where it is", is_well).await;
        // The other Service is for the pods among themselves.
        for (name, expected, ready) in
            [("demo-longshore", 2, ("True", "Ready")), ("demo", 0, ("False", "NameTaken"))]
        {
            assert!(operator.stop());
            namespace.kubectl(&["delete", "service", name]).await.unwrap();
            namespace
                .apply(&format!(
                    "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 1}}]}}}}"
                ))
                .await;
            operator = operator.another();
            let is_taken = |it: &McpServer| is(it, "Accepted", "False", "NameTaken");
            let taken = namespace.wait(&servers, "demo", "to find its name taken", is_taken).await;
            let message = condition(&taken, "Accepted").unwrap().message;
            assert!(message.starts_with(&format!("Service {}/{name} exists", namespace.name())), "{message}");
            assert_eq!(urls(&taken), expected, "{:?}", taken.status);
            assert!(is(&taken, "Ready", ready.0, ready.1), "{name}: {:?}", taken.status);
            namespace.kubectl(&["delete", "service", name]).await.unwrap();
            namespace.wait(&servers, "demo", "to say where it is again", is_well).await;
            wait_for(namespace, "Ready", "True", "Ready").await;
        }
        // It is named as soon as it is its own again, whatever else is somebody's.
        assert!(operator.stop());
        namespace.kubectl(&["delete", "service/demo", "networkpolicy/demo-longshore"]).await.unwrap();
        namespace
            .apply("{apiVersion: v1, kind: Service, metadata: {name: demo}, spec: {ports: [{port: 1}]}}")
            .await;
        let policy = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: demo-longshore}, \
                      spec: {podSelector: {}}}";
        namespace.apply(policy).await;
        let _operator = operator.another();
        for (what, expected) in [("to be nowhere", 0), ("to say where it is beside their policy", 2)] {
            let is_so = |it: &McpServer| is(it, "Accepted", "False", "NameTaken") && urls(it) == expected;
            namespace.wait(&servers, "demo", what, is_so).await;
            if expected == 0 {
                namespace.kubectl(&["delete", "service", "demo"]).await.unwrap();
            }
        }
    });
}

/// Theirs has gone, as they were told to see to.
#[test]
fn a_service_that_is_refused_is_not_said_to_be_somebody_elses() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace
            .apply("{apiVersion: v1, kind: Service, metadata: {name: demo}, spec: {ports: [{port: 1}]}}")
            .await;
        namespace.apply(&LEAST).await;
        wait_for(namespace, "Ready", "False", "NameTaken").await;
        namespace
            .apply(
                "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {services: 0}}}",
            )
            .await;
        let quotas: Api<ResourceQuota> = namespace.api();
        let counts = |it: &ResourceQuota| it.status.as_ref().is_some_and(|status| status.used.is_some());
        namespace.wait(&quotas, "none", "to count", counts).await;
        namespace.kubectl(&["delete", "service", "demo"]).await.unwrap();
        wait_for(namespace, "Accepted", "False", "Rejected").await;
        let message = wait_for(namespace, "Ready", "False", "Rejected").await;
        assert!(message.contains("exceeded quota"), "{message}");
        let servers: Api<McpServer> = namespace.api();
        assert_eq!(servers.get("demo").await.unwrap().status.unwrap().url, None);
        namespace.kubectl(&["delete", "resourcequota", "none"]).await.unwrap();
        wait_for(namespace, "Accepted", "True", "Accepted").await;
    });
}

/// Objects and servers that want their names, applied in one breath: whoever looks first and writes then comes too late.
/// None of them has anything that contradicts what Longshore would write.
#[test]
fn what_belongs_to_others_is_left_alone_however_late_it_comes() {
    let upstream = Upstream::StreamableHttp { port: 3000, path: "/mcp".to_owned() };
    let way = digest::hex(upstream_text(&upstream).as_bytes());
    let config_map = ObjectNames::of("map").config_map(CONTRACT_VERSION, &way);
    let labels = json!({"longshore.dev/server": "pods", "app.kubernetes.io/component": "mcp-server"});
    let pods = json!({
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "theirs", "image": "registry.invalid/theirs:1"}]},
        },
    });
    let ports = json!({"ports": [{"port": 1}]});
    let table = [
        ("account", "v1", "ServiceAccount", "account-longshore", json!(null)),
        ("keys", "v1", "Secret", "keys-longshore-keys", json!(null)),
        ("map", "v1", "ConfigMap", &config_map, json!(null)),
        ("address", "v1", "Service", "address", ports.clone()),
        ("peers", "v1", "Service", "peers-longshore", ports),
        ("policy", "networking.k8s.io/v1", "NetworkPolicy", "policy-longshore", json!({"podSelector": {}})),
        ("budget", "policy/v1", "PodDisruptionBudget", "budget-longshore", json!({"minAvailable": 0})),
        ("pods", "apps/v1", "Deployment", "pods", pods),
    ];
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let items = table.iter().flat_map(|(server, version, kind, name, spec)| {
            let labels = json!({
                "longshore.dev/server": server, "app.kubernetes.io/managed-by": "longshore",
                "app.kubernetes.io/component": "mcp-server",
            });
            let metadata = json!({"name": name, "labels": labels});
            let mut theirs = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
            if !spec.is_null() {
                theirs["spec"] = spec.clone();
            }
            let mut ours: Value = serde_json::from_str(&super::server("{replicas: 2}")).unwrap();
            ours["metadata"]["name"] = json!(server);
            [theirs, ours]
        });
        let items: Vec<_> = items.collect();
        namespace.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await;
        let servers: Api<McpServer> = namespace.api();
        for (server, _, kind, name, _) in &table {
            let taken = |it: &McpServer| is(it, "Accepted", "False", "NameTaken");
            let server = namespace.wait(&servers, server, "to find its name taken", taken).await;
            let message = condition(&server, "Accepted").unwrap().message;
            assert!(message.starts_with(&format!("{kind} {}/{name} exists", namespace.name())), "{message}");
            let object = [&format!("{kind}/{name}"), "-o", "json", "--show-managed-fields"];
            let object = namespace.kubectl(&[&["get"], &object[..]].concat()).await.unwrap();
            let metadata = serde_json::from_str::<Value>(&object).unwrap()["metadata"].take();
            assert_eq!(metadata["ownerReferences"], Value::Null, "{kind}");
            let managers = metadata["managedFields"].as_array().unwrap();
            assert!(managers.iter().all(|manager| manager["manager"] != "longshore"), "{kind}: {managers:?}");
        }
        for (server, _, kind, name, _) in &table {
            namespace.kubectl(&["delete", &format!("{kind}/{name}")]).await.unwrap();
            // With Longshore's labels its going is seen at once.
            let accepted = |it: &McpServer| is(it, "Accepted", "True", "Accepted");
            namespace.wait(&servers, server, "to take its name", accepted).await;
        }
    });
}
