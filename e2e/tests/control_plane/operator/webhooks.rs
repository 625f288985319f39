//! Webhooks of the cluster that keep what a server needs from being written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_e2e::cluster::Shape;
use longshore_e2e::testing::{Kind, Namespace, Room, Stage, eventually};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::stand::{
    ADA, Operator, condition, has_key, install, is, kubectl, ready, wait_for, wait_until_refused,
};
use super::{LEAST, STAGE, merge, server};

/// For an operator that looks after every namespace.
static ALONE: Stage = Stage::to_break(Shape::ControlPlane, install);

/// Has a webhook be asked about every Deployment, and not answer: it is called so, and this is what is particular of it.
async fn webhook_is_down(namespace: &Namespace<'_>, particulars: Value) -> String {
    let name = format!("down-{}", namespace.name());
    let mut webhook = json!({
        "name": "down.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name()}},
        "rules": [{
            "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
            "operations": ["CREATE", "UPDATE"],
        }],
    });
    merge(&mut webhook, particulars);
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [webhook],
    });
    namespace.apply(&configuration.to_string()).await;
    let create = ["create", "deployment", "probe", "--image=x", "--dry-run=server"];
    wait_until_refused(namespace, &create).await;
    name
}

/// Whoever connects to it waits.
struct Silent {
    listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Silent {
    async fn start() -> Self {
        // Nobody takes connections out of its queue. While that has room, the API server would wait for no more than a
        // handshake, which it gives up after ten seconds of its own.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap());
        let mut queue = Vec::new();
        while let Ok(connection) = tokio::time::timeout(Duration::from_secs(1), connect()).await {
            queue.push(connection.unwrap());
        }
        Self { listener, _queue: queue }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.listener.local_addr().unwrap())
    }
}

/// As when a policy engine hangs, and nobody says how long to wait for it: the API server does so for ten seconds.
#[test]
fn a_webhook_that_hangs_is_said_to_keep_the_pods_from_being_made() {
    hangs(json!({}), "failed calling webhook \"down.example.com\"");
}

/// The API server waits for thirty seconds at most, which is longer than the operator waits for it.
#[test]
fn a_webhook_that_hangs_for_longer_than_anybody_waits_is_said_to_keep_the_pods_from_being_made() {
    hangs(json!({"timeoutSeconds": 30}), "did not answer this request within 20 seconds: an admission");
}

fn hangs(mut particulars: Value, words: &str) {
    STAGE.with_namespace_first(async |namespace| {
        let _operator = Operator::start(namespace);
        let silent = Silent::start().await;
        particulars["clientConfig"] = json!({"url": silent.url()});
        let name = webhook_is_down(namespace, particulars).await;
        namespace.apply(&LEAST).await;
        let message = wait_for(namespace, "Accepted", "False", "Rejected").await;
        let start = format!("the API server does not take Deployment {}/demo, and", namespace.name());
        assert!(message.starts_with(&start) && message.contains(words), "{message}");
        namespace.kubectl(&["delete", "validatingwebhookconfiguration", &name]).await.unwrap();
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        let deployments: Api<Deployment> = namespace.api();
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
    });
}

/// As in a namespace of a team whose policy engine hangs.
#[test]
fn a_webhook_that_hangs_for_many_servers_lets_no_key_of_another_namespace_live_on() {
    const MANY: usize = 40;
    ALONE.with_namespace_and_room(&Room::take(Kind::Cluster), async |namespace| {
        let cluster = namespace.cluster();
        let _operator = Operator::everywhere(cluster);
        let many = async |image: &str| {
            let server = |number| {
                let more = json!({"replicas": 0, "source": {"image": format!("registry.invalid/{image}")}});
                let mut manifest: Value = serde_json::from_str(&server(&more.to_string())).unwrap();
                manifest["metadata"]["name"] = json!(format!("many-{number}"));
                manifest
            };
            let items: Vec<_> = (0..MANY).map(server).collect();
            namespace.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await;
        };
        many("demo:1").await;
        let apply = |manifest: &str| {
            kubectl(cluster, &["apply", "--namespace", "default", "-f"], Some(manifest)).unwrap();
        };
        let keys = |keys: &str| {
            format!("{{apiVersion: v1, kind: Secret, metadata: {{name: keys}}, stringData: {keys}}}")
        };
        apply(&keys(ADA));
        apply(&server("{replicas: 0, auth: {none: null, apiKeys: {secretRef: {name: keys}}}}"));
        let secrets: Api<Secret> = Api::namespaced(namespace.client(), "default");
        let is_known = async |principal| {
            secrets.get("demo-longshore-keys").await.is_ok_and(|it| has_key(&it, principal))
        };
        eventually("Ada's key is known", async || is_known("ada").await.then_some(()).ok_or("it is not"))
            .await;
        let servers: Api<McpServer> = namespace.api();
        eventually("all have been looked after", async || {
            let servers = servers.list(&Default::default()).await.unwrap().items;
            let lacking = servers.iter().find(|server| !is(server, "Accepted", "True", "Accepted"));
            lacking.map_or(Ok(()), |server| Err(server.name_any()))
        })
        .await;

        let silent = Silent::start().await;
        webhook_is_down(namespace, json!({"clientConfig": {"url": silent.url()}})).await;
        many("demo:2").await;
        // All that can be are waited for.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let began = Instant::now();
        apply(&keys("{bob: another-key-that-is-long}"));
        eventually("Bob's key is known", async || is_known("bob").await.then_some(()).ok_or("it is not"))
            .await;
        assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
    });
}

/// As when a policy engine is down: nobody may take the object for made.
#[test]
fn a_webhook_that_does_not_answer_is_said_to_keep_the_pods_from_being_made() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let name = webhook_is_down(namespace, json!({"clientConfig": {"url": "https://127.0.0.1:1/"}})).await;
        let began = Instant::now();
        namespace.apply(&LEAST).await;
        let servers: Api<McpServer> = namespace.api();
        let mut looks = 0;
        let mut look_until = async |status: &str, reason: &str| {
            while !is(&servers.get("demo").await.unwrap(), "Accepted", status, reason) {
                assert!(began.elapsed() < Duration::from_secs(300), "it is not said to be {reason}");
                looks += 1;
                let look = Patch::Merge(json!({"spec": {"catalog": {"owner": format!("team {looks}")}}}));
                servers.patch("demo", &PatchParams::default(), &look).await.unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        // However often it is looked at meanwhile: that it passes is hoped for a dozen seconds.
        look_until("False", "Rejected").await;
        assert!(began.elapsed() >= Duration::from_secs(12), "after {:?}", began.elapsed());
        let message = wait_for(namespace, "Accepted", "False", "Rejected").await;
        let start = format!(
            "the API server does not take Deployment {}/demo, and is asked again: ",
            namespace.name()
        );
        assert!(message.starts_with(&start) && message.contains("down.example.com"), "{message}");
        wait_for(namespace, "Ready", "False", "Rejected").await;
        namespace.kubectl(&["delete", "validatingwebhookconfiguration", &name]).await.unwrap();
        look_until("True", "Accepted").await;
        let deployments: Api<Deployment> = namespace.api();
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
    });
}

/// As when what is down looks at Services, and not at what pods are made of.
#[test]
fn what_a_webhook_keeps_back_is_not_in_force_before_it_is_taken() {
    STAGE.with_namespace_first(async |namespace| {
        let (_operator, _node, _pod) = ready(namespace).await;
        let rule = |group: &str, resource: &str, operation: &str| {
            json!({
                "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": [operation],
            })
        };
        let rules = [rule("", "services", "UPDATE"), rule("apps", "deployments", "CREATE")];
        let client = json!({"url": "https://127.0.0.1:1/"});
        let name = webhook_is_down(namespace, json!({"clientConfig": client, "rules": rules})).await;
        namespace.apply(&server("{expose: {service: {labels: {team: tools}}}}")).await;
        let servers: Api<McpServer> = namespace.api();
        let in_force =
            |server: &McpServer| condition(server, "Ready").and_then(|ready| ready.observed_generation);
        let early = AtomicBool::new(false);
        let is_told = |server: &McpServer| {
            early.fetch_or(in_force(server) != Some(1), Ordering::Relaxed);
            is(server, "Accepted", "False", "Rejected")
        };
        let told = namespace.wait(&servers, "demo", "to say that it is not taken", is_told).await;
        assert!(!early.into_inner(), "it was said to be in force");
        assert!(is(&told, "Ready", "True", "ServingPrevious"), "{told:?}");
        namespace.kubectl(&["delete", "validatingwebhookconfiguration", &name]).await.unwrap();
        let is_taken = |server: &McpServer| in_force(server) == Some(2);
        let taken = namespace.wait(&servers, "demo", "to be in force", is_taken).await;
        assert!(is(&taken, "Ready", "True", "Ready"), "{taken:?}");

        // Somebody deletes the Service, and no other can be made in its place.
        let rules = [rule("", "services", "CREATE"), rule("apps", "deployments", "CREATE")];
        let name = webhook_is_down(namespace, json!({"clientConfig": client, "rules": rules})).await;
        namespace.kubectl(&["delete", "service", "demo"]).await.unwrap();
        let is_missing = |server: &McpServer| is(server, "Ready", "False", "Rejected");
        let missing = namespace.wait(&servers, "demo", "to have no Service", is_missing).await;
        assert_eq!(missing.status.and_then(|status| status.url), None);
        namespace.kubectl(&["delete", "validatingwebhookconfiguration", &name]).await.unwrap();
        wait_for(namespace, "Ready", "True", "Ready").await;
    });
}
