//! What goes wrong in a pod that serves, and what its clients see of it: servers and sidecars that die, keys that are
//! taken back, pods that are deleted.

use std::time::{Duration, Instant};

use futures::future::join_all;
use http::{Method, StatusCode};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use longshore_crds::McpServer;
use longshore_e2e::mcp_client::{Endpoint, McpClient, McpError};
use longshore_e2e::testing::{Namespace, eventually, exhaust_memory, form, kill_container};
use serde_json::json;

use crate::server::{becomes, go_server, keyed, url};
use crate::{STAGE, may_kill};

/// The sidecar's container, and the server's.
pub(crate) const SIDECAR: &str = "longshore-sidecar";
pub(crate) const SERVER: &str = "server";

#[test]
fn calls_in_flight_get_an_error_at_once_when_the_server_dies_and_later_ones_an_answer() {
    const CALLS: usize = 5;
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let client = connect(namespace, &server, None).await;
        let other = connect(namespace, &server, None).await;
        let pod = the_pod(namespace, "go").await;

        let in_flight = join_all((0..CALLS).map(async |_| {
            let outcome = client.call("slow", json!({"milliseconds": 60_000})).await;
            (outcome, Instant::now())
        }));
        let death = async {
            let under_way = format!("longshore_calls {CALLS}");
            eventually("all calls are under way", async || {
                let metrics = metrics(&pod).await.map_err(|error| error.to_string())?;
                if metrics.lines().any(|line| line == under_way) { Ok(()) } else { Err(metrics) }
            })
            .await;
            let killed = Instant::now();
            (killed, other.call("exit", json!({"status": 3})).await)
        };
        let (outcomes, (killed, exit)) = tokio::join!(in_flight, death);
        let last = outcomes.iter().map(|(_, ended)| *ended - killed).max().unwrap_or_default();
        println!("{CALLS} calls in flight had their errors {last:?} after the server was told to die");
        for outcome in outcomes.into_iter().map(|(outcome, _)| outcome).chain([exit]) {
            assert!(matches!(outcome, Err(McpError::Rpc { .. })), "{outcome:?}");
        }
        // A second is the promise; the rest is for a machine that does ten other things.
        let promised = form(Duration::from_secs(10), Duration::from_secs(1));
        assert!(last < promised, "the last error came after {last:?}");

        // The session went with the server's process: a client is told so, and begins anew.
        eventually("the server is called again", async || {
            let client = open(namespace, &server, None).await?;
            client.call("echo", json!({"text": "back"})).await
        })
        .await;
        is_restarted(namespace, &the_pod(namespace, "go").await.name_any(), SERVER).await;
        becomes(namespace, "go", ("Connected", "True", "")).await;
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let pod = the_pod(namespace, "go").await;
        assert_eq!((restarts(&pod, SIDECAR), restarts(&pod, SERVER)), (0, 1));
    });
}

#[test]
fn a_key_that_is_taken_out_of_the_secret_is_refused_and_the_others_are_not() {
    const KEYS: &str = "{apiVersion: v1, kind: Secret, metadata: {name: keys}, stringData: {\
                        alice: a-key-for-alice-alone, bob: a-key-for-bob-alone}}";
    STAGE.with_namespace(async |namespace| {
        namespace.apply(KEYS).await;
        namespace.apply(&keyed(&go_server("go", &[]), "keys")).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let alice = connect(namespace, &server, Some("a-key-for-alice-alone")).await;
        let bob = connect(namespace, &server, Some("a-key-for-bob-alone")).await;
        bob.call("echo", json!({"text": "hi"})).await.expect("bob's key works");
        let pod = the_pod(namespace, "go").await;

        let removal = "[{\"op\": \"remove\", \"path\": \"/data/bob\"}]";
        namespace.kubectl(&["patch", "secret", "keys", "--type=json", "-p", removal]).await.expect("a patch");
        let removed = Instant::now();
        eventually("bob's key is refused", async || match bob.list_tools().await {
            Err(McpError::Status(answer)) if answer.status == StatusCode::UNAUTHORIZED => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        let took = removed.elapsed();
        println!("a key was refused {took:?} after it was taken out of its Secret");
        // Two seconds are the promise. Without the touch of the pod it would be the kubelet's next round.
        assert!(took < form(Duration::from_secs(20), Duration::from_secs(2)), "{took:?}");
        alice
            .call("echo", json!({"text": "hi"}))
            .await
            .expect("alice's key works, in the session that she had");

        let new = "{\"stringData\": {\"bob\": \"another-key-for-bob\"}}";
        namespace.kubectl(&["patch", "secret", "keys", "-p", new]).await.expect("a patch");
        eventually("bob's new key works", async || {
            open(namespace, &server, Some("another-key-for-bob")).await
        })
        .await;
        let now = the_pod(namespace, "go").await;
        assert_eq!((now.uid(), restarts(&now, SIDECAR)), (pod.uid(), 0), "keys change without a restart");
    });
}

#[test]
fn a_pod_that_is_deleted_comes_back_and_nothing_else_changes() {
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let deployments = namespace.api::<Deployment>();
        let before = deployments.get("go").await.expect("a Deployment");
        let old = the_pod(namespace, "go").await;
        let pods = namespace.api::<Pod>();
        pods.delete(&old.name_any(), &DeleteParams::default()).await.expect("a pod can be deleted");
        eventually("another pod serves", async || {
            let client = open(namespace, &server, None).await?;
            client.call("echo", json!({"text": "back"})).await
        })
        .await;
        namespace.wait_gone(&pods, &old.name_any()).await;
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        assert_ne!(the_pod(namespace, "go").await.uid(), old.uid());
        let after = deployments.get("go").await.expect("a Deployment");
        assert_eq!(after.metadata.generation, before.metadata.generation, "the Deployment was written again");
    });
}

/// The sidecar alone: its server does not notice, and it finds its configuration, its server and its sessions again.
#[test]
fn a_sidecar_that_dies_alone_comes_back_to_the_same_server() {
    a_sidecar_comes_back("Error", |pod| assert_eq!(kill_container(pod, SIDECAR), 1));
}

/// The same of one that needs more memory than it may have.
#[test]
fn a_sidecar_that_is_killed_for_its_memory_comes_back_to_the_same_server() {
    a_sidecar_comes_back("OOMKilled", |pod| exhaust_memory(pod, SIDECAR));
}

/// Ends it in this way, which the kubelet calls so.
fn a_sidecar_comes_back(reason: &str, end: impl Fn(&Pod) + Send + Sync) {
    if !may_kill() {
        return;
    }
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let client = connect(namespace, &server, None).await;
        let pod = the_pod(namespace, "go").await;
        end(&pod);
        eventually("the session goes on", async || client.call("echo", json!({"text": "back"})).await).await;
        is_restarted(namespace, &pod.name_any(), SIDECAR).await;
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let now = the_pod(namespace, "go").await;
        assert_eq!(now.uid(), pod.uid());
        assert_eq!((restarts(&now, SIDECAR), restarts(&now, SERVER)), (1, 0));
        let before = status(&now, SIDECAR).last_state.as_ref().and_then(|state| state.terminated.as_ref());
        assert_eq!(before.and_then(|ended| ended.reason.as_deref()), Some(reason));
    });
}

/// A client that has opened a session at the server's URL. A server that has just become Ready is waited for: the node
/// takes a moment to learn that the Service has an address.
pub(crate) async fn connect(namespace: &Namespace<'_>, server: &McpServer, key: Option<&str>) -> McpClient {
    eventually("a session is opened", async || open(namespace, server, key).await).await
}

/// The same, where it may fail. It is quick to fail: who wants to wait, asks again.
pub(crate) async fn open(
    namespace: &Namespace<'_>,
    server: &McpServer,
    key: Option<&str>,
) -> Result<McpClient, McpError> {
    let limit = Duration::from_secs(3);
    let (client, url) = (namespace.client(), url(server));
    let opening = McpClient::connect(&client, &url, key);
    tokio::time::timeout(limit, opening).await.map_err(|_| McpError::TimedOut(limit))?
}

/// The one pod of a server that is not about to go.
pub(crate) async fn the_pod(namespace: &Namespace<'_>, server: &str) -> Pod {
    let mine = ListParams::default().labels(&format!("longshore.dev/server={server}"));
    let pods = namespace.api::<Pod>().list(&mine).await.expect("pods can be listed");
    let mut staying = pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let pod = staying.next().expect("a pod");
    assert_eq!(staying.next().map(|pod| pod.name_any()), None, "{server} has more than one pod");
    pod
}

/// How often a container of a pod was restarted.
pub(crate) fn restarts(pod: &Pod, container: &str) -> i32 {
    status(pod, container).restart_count
}

fn status<'a>(pod: &'a Pod, container: &str) -> &'a ContainerStatus {
    let mut statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.find(|status| status.name == container).expect("the container has a status")
}

/// Waits until the kubelet says that it has restarted a container: a moment after that serves again.
pub(crate) async fn is_restarted(namespace: &Namespace<'_>, pod: &str, container: &str) {
    let is = |pod: &Pod| restarts(pod, container) > 0;
    namespace.wait(&namespace.api::<Pod>(), pod, &format!("to say that {container} was restarted"), is).await;
}

/// The metrics of a pod's sidecar.
pub(crate) async fn metrics(pod: &Pod) -> Result<String, McpError> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).expect("an address");
    let address = format!("{address}:15381").parse().expect("an address");
    let admin = Endpoint { address, host: "localhost".to_owned(), path: "/metrics".to_owned() };
    admin.send(Method::GET, &[], "", Duration::from_secs(30)).await.map(|answer| answer.body)
}
