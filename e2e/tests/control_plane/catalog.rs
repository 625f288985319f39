//! The catalog against a real API server with real controllers and without a node: what it lists, how soon, and what it
//! says when something is away. It has the rights that the chart gives.

mod stand;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use longshore::rbac;
use longshore_crds::McpServer;
use longshore_e2e::cluster::{Cluster, Component, Shape};
use longshore_e2e::testing::{Kind, Namespace, Room, eventually};
use serde_json::{Value, json};

use crate::operator::node::Node;
use crate::operator::stand::{Operator, audit_lines, install, is, kinds, requests};
use crate::operator::{LEAST, STAGE, server};
use stand::{Catalog, names};

/// A server of the test's namespace that the operator has made and whose sidecar answers.
async fn served(namespace: &Namespace<'_>) -> (Operator, Node) {
    let node = Node::start().await;
    let operator = Operator::start(namespace);
    namespace.apply(&LEAST).await;
    node.run_pod(namespace, "").await;
    node.load_configuration(namespace).await;
    (operator, node)
}

#[test]
fn a_tool_that_a_running_server_adds_is_listed_and_a_server_that_is_down_stays() {
    STAGE.with_namespace(async |namespace| {
        let (_operator, node) = served(namespace).await;
        let catalog = Catalog::start(namespace, &["--auth", "none"]);
        let path = format!("/v1/servers/{}/demo", namespace.name());
        let is_up = |server: &Value| server["health"]["state"] == "Up" && server["tools"] == 1;
        let up = catalog.until(&path, "is up with its tool", is_up).await;
        assert_eq!(up["url"], format!("http://demo.{}.svc.cluster.local/mcp", namespace.name()));

        node.change(|inventory| {
            inventory["tools"] = json!([
                {"name": "echo", "inputSchema": {"type": "object"}},
                {"name": "frobnicate", "description": "Frobnicates <b>it</b>\u{202e}"},
            ]);
            inventory["toolsDigest"] = json!("sha256:1");
        });
        let began = std::time::Instant::now();
        let found = catalog.until("/v1/tools?q=frobn", "finds the new tool", |list| list["total"] == 1).await;
        eprintln!("a new tool was listed after {:?}", began.elapsed());
        assert_eq!(found["items"][0]["description"], "Frobnicates <b>it</b>");

        node.change(|inventory| {
            inventory["connection"] = json!({
                "state": "Failed", "since": "2026-02-02T00:00:00Z", "reason": "ConnectionLost", "message": "its last words: a secret",
            });
        });
        let down = catalog.until(&path, "is down", |server| server["health"]["state"] == "Down").await;
        let more = format!("`kubectl get lmcp -n {} demo -o wide` says more", namespace.name());
        let message = format!("the server answered before and no longer does; {more}");
        assert_eq!(
            down["health"],
            json!({"state": "Down", "since": "2026-02-02T00:00:00Z", "reason": "ConnectionLost", "message": message})
        );
        let listed = catalog.json("/v1/tools?health=down").await;
        assert_eq!(names(&listed), ["echo", "frobnicate"], "what it had stays listed");

        // Another catalog, which never heard of more than the status has, lists the names at least.
        let has_tools = |server: &McpServer| {
            server.status.as_ref().and_then(|status| status.tools.as_ref()).is_some_and(|tools| tools.count == 2)
        };
        namespace.wait(&namespace.api::<McpServer>(), "demo", "to have its tools in its status", has_tools).await;
        node.change(|inventory| inventory["server"] = Value::Null);
        let late = Catalog::start(namespace, &["--auth", "none"]);
        late.until(&path, "is down", |server| server["health"]["state"] == "Down").await;
        late.until("/v1/tools", "has names", |list| names(list).contains(&"echo".to_owned())).await;
    });
}

#[test]
fn a_tool_that_a_manifest_hides_is_not_listed_whoever_had_heard_of_it() {
    STAGE.with_namespace(async |namespace| {
        let (_operator, node) = served(namespace).await;
        node.change(|inventory| inventory["tools"] = json!([{"name": "echo"}, {"name": "frobnicate"}]));
        let catalog = Catalog::start(namespace, &["--auth", "none"]);
        catalog.until("/v1/tools", "has both", |list| list["total"] == 2).await;
        let has_tools = |server: &McpServer| {
            server
                .status
                .as_ref()
                .and_then(|status| status.tools.as_ref())
                .is_some_and(|tools| tools.count == 2)
        };
        namespace
            .wait(&namespace.api::<McpServer>(), "demo", "to have its tools in its status", has_tools)
            .await;

        // Another process of the server comes up and says nothing.
        node.change(|inventory| inventory["server"] = Value::Null);
        namespace.apply(&server("{tools: {exclude: [frob*]}}")).await;
        let is_hidden = |list: &Value| names(list) == ["echo"];
        catalog.until("/v1/tools", "has what is not hidden", is_hidden).await;
        let late = Catalog::start(namespace, &["--auth", "none"]);
        late.until("/v1/tools", "has what is not hidden", is_hidden).await;
    });
}

#[test]
fn only_published_servers_are_listed_and_only_their_own_pods_are_asked() {
    STAGE.with_namespace(async |namespace| {
        let (_operator, node) = served(namespace).await;
        // Somebody's pod, with all the labels of one of the server's.
        let stranger = Node::start().await;
        pretend(namespace, &stranger, stranger.address()).await;
        let catalog = Catalog::start(namespace, &["--auth", "none"]);
        let path = format!("/v1/servers/{}/demo", namespace.name());
        catalog.until(&path, "is up", |server| server["health"]["state"] == "Up").await;
        assert!(node.asked() > 0);
        assert_eq!(stranger.asked(), 0, "a pod that is nobody's was asked");

        let servers: Api<McpServer> = namespace.api();
        namespace
            .wait(&servers, "demo", "to be published", |it| is(it, "Published", "True", "Published"))
            .await;
        namespace.apply(&server("{catalog: {publish: false}}")).await;
        catalog.until("/v1/servers", "has nothing", |list| list["total"] == 0).await;
        assert_eq!(catalog.get(&path, None).await.0, 404);
        assert_eq!(catalog.json("/v1/tools").await["total"], 0);
        namespace
            .wait(&servers, "demo", "not to be published", |it| is(it, "Published", "False", "NotPublished"))
            .await;

        namespace.apply(&server("{catalog: {publish: true, title: Shown again, tags: [x]}}")).await;
        let shown =
            catalog.until("/v1/servers?q=shown&tag=x", "has it again", |list| list["total"] == 1).await;
        assert_eq!(shown["items"][0]["title"], "Shown again");
        namespace.kubectl(&["delete", "mcpserver", "demo"]).await.unwrap();
        catalog.until("/v1/servers", "has nothing", |list| list["total"] == 0).await;
    });
}

/// Makes a pod that says it is one of the server's.
async fn pretend(namespace: &Namespace<'_>, node: &Node, address: Ipv4Addr) {
    let pods: Api<Pod> = namespace.api();
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "stranger", "labels": {
            "longshore.dev/server": "demo", "app.kubernetes.io/managed-by": "longshore",
            "app.kubernetes.io/component": "mcp-server",
        }},
        "spec": {"containers": [{"name": "longshore-sidecar", "image": "x"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let status = json!({"status": {
        "phase": "Running", "podIP": address.to_string(), "podIPs": [{"ip": address.to_string()}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "longshore-sidecar", "ready": true, "restartCount": 0, "image": "x", "imageID": "x",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    }});
    pods.patch_status("stranger", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    node.change(|inventory| *inventory = json!({}));
}

#[test]
fn a_key_works_as_long_as_its_file_is_there() {
    STAGE.with_namespace(async |namespace| {
        let keys = tempfile::tempdir().unwrap();
        std::fs::write(keys.path().join("ada"), "the-key-of-ada-lovelace\n").unwrap();
        let directory = keys.path().to_str().unwrap();
        let catalog = Catalog::start(namespace, &["--auth", "api-keys", "--api-keys-dir", directory]);
        let status = async |key: Option<&str>| catalog.get("/v1/servers", key).await.0;
        assert_eq!(status(None).await, 401);
        assert_eq!(status(Some("the-key-of-somebody")).await, 401);
        catalog.until_status("/v1/servers", Some("the-key-of-ada-lovelace"), 200).await;
        std::fs::write(keys.path().join("bob"), "the-key-of-bob-the-builder\n").unwrap();
        std::fs::remove_file(keys.path().join("ada")).unwrap();
        catalog.until_status("/v1/servers", Some("the-key-of-bob-the-builder"), 200).await;
        catalog.until_status("/v1/servers", Some("the-key-of-ada-lovelace"), 401).await;
        // The kubelet takes the files away with their Secret.
        std::fs::remove_file(keys.path().join("bob")).unwrap();
        catalog.until_status("/v1/servers", Some("the-key-of-bob-the-builder"), 401).await;
        let log = catalog.log();
        assert!(log.contains("there are no API keys"), "{log}");
        assert!(!log.contains("the-key-of") && !log.contains("a token for sidecars"), "{log}");
    });
}

#[test]
fn every_right_is_used_and_none_is_missing() {
    STAGE.with_namespace(async |namespace| {
        let before = audit_lines(namespace.cluster());
        namespace.apply(&LEAST).await;
        let mut catalog = Catalog::start(namespace, &["--auth", "none"]);
        let needed = rbac::CATALOG.iter().flat_map(|rule| {
            let kind = |verb: &&str| (rule.group.to_owned(), rule.resource.to_owned(), (*verb).to_owned());
            rule.verbs.iter().map(kind)
        });
        let needed: BTreeSet<_> = needed.collect();
        // A watch is written down when it ends. It goes on in another request every 20 seconds.
        let asked = || requests(namespace.cluster(), namespace.name(), before);
        eventually("every right is used", async || {
            let used = kinds(&asked());
            let unused: Vec<_> = needed.difference(&used).collect();
            if unused.is_empty() { Ok(()) } else { Err(format!("{unused:?}")) }
        })
        .await;
        catalog.until("/v1/servers", "has one", |list| list["total"] == 1).await;
        assert!(catalog.stop());
        let refused: Vec<_> = asked().into_iter().filter(|request| request.code == 403).collect();
        assert_eq!(refused, [], "rights are missing");
        assert_eq!(kinds(&asked()), needed, "requests without a right of their own");
    });
}

#[test]
fn while_the_api_server_is_away_the_last_view_is_served_and_marked() {
    let _room = Room::take(Kind::Cluster);
    let cluster = Cluster::start(Shape::ControlPlane).unwrap();
    install(&cluster).unwrap();
    cluster
        .block_on(async || {
            let servers: Api<McpServer> = Api::namespaced(cluster.client().await.unwrap(), "default");
            let manifest = |name: &str| serde_json::from_str(&LEAST.replace("demo", name)).unwrap();
            servers.create(&PostParams::default(), &manifest("before")).await.unwrap();
            let mut catalog = Catalog::start_in(&cluster, "default", &["--auth", "none"]);
            let fresh = catalog.until("/v1/servers", "has one", |list| list["total"] == 1).await;
            assert_eq!(fresh["freshness"], json!({"stale": false}));

            cluster.kill(Component::ApiServer).await.unwrap();
            let stale =
                catalog.until("/v1/servers", "is stale", |list| list["freshness"]["stale"] == true).await;
            assert_eq!(names(&stale), ["before"]);
            assert!(stale["freshness"]["since"].is_string());
            cluster.revive(Component::ApiServer).await.unwrap();
            let fresh =
                catalog.until("/v1/servers", "is fresh", |list| list["freshness"]["stale"] == false).await;
            assert_eq!(names(&fresh), ["before"]);
            servers.create(&PostParams::default(), &manifest("after")).await.unwrap();
            catalog.until("/v1/servers", "has both", |list| list["total"] == 2).await;
            assert!(catalog.stop(), "{}", catalog.log());
        })
        .unwrap();
}
