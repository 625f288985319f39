//! Who reaches what, where the network enforces the policies of the operator and of the chart, as that of this node does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use longshore_e2e::cluster::{enforces_policies, run};
use longshore_e2e::images;
use longshore_e2e::longshore;
use longshore_e2e::mcp_client::{Endpoint, McpClient, REVISION};
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::json;

use crate::server::{becomes, go_server, url};
use crate::{STAGE, left_out};

/// Prints which of its arguments it can connect to.
const PROBE: &str = "
import socket, sys
for way in sys.argv[1:]:
    host, port = way.split(':')
    try:
        socket.create_connection((host, int(port)), 5).close()
        print(way)
    except OSError:
        pass
";

/// What the selectors of the policies ask for, but for the namespace.
const LABELS: &str = "--labels=app.kubernetes.io/name=longshore,app.kubernetes.io/component=mcp-server,longshore.dev/server=open";

#[test]
fn strangers_reach_what_is_theirs_to_reach_and_replicas_each_other() {
    if STAGE.cluster().spec().is_none() || !enforces_policies() {
        left_out("no network that enforces policies, as that of `make soak` does");
        return;
    }
    // On the node's bridge nothing is filtered without it.
    if !Path::new("/proc/sys/net/bridge").exists() {
        left_out("this kernel lacks br_netfilter");
        return;
    }
    STAGE.with_namespace(async |namespace| {
        // One that can be reached around its sidecar.
        namespace.apply(&(go_server("open", &["-listen", "0.0.0.0:3000"]) + "  replicas: 2\n")).await;
        let elsewhere = format!("{}-elsewhere", namespace.name());
        namespace
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {elsewhere}}}}}"))
            .await;
        start_stranger(namespace, namespace.name(), &[]).await;
        start_stranger(namespace, &elsewhere, &[LABELS]).await;
        let server = becomes(namespace, "open", ("Ready", "True", "Ready")).await;
        namespace
            .kubectl(&["rollout", "status", "deployment/open", "--timeout=5m"])
            .await
            .expect("both replicas serve");
        let replicas = addresses(namespace.api(), "longshore.dev/server=open").await;
        let [one, other] = &replicas[..] else { panic!("two replicas are at {replicas:?}") };

        let of = |component: &str| {
            let label = format!("app.kubernetes.io/name=longshore,app.kubernetes.io/component={component}");
            addresses(Api::namespaced(namespace.client(), longshore::NAMESPACE), label)
        };
        let (operators, catalogs) = (of("operator").await, of("catalog").await);
        assert!(!operators.is_empty() && !catalogs.is_empty(), "{operators:?} {catalogs:?}");
        let at = |addresses: &[String], ports: &[u16]| -> Vec<String> {
            addresses.iter().flat_map(|at| ports.iter().map(move |port| format!("{at}:{port}"))).collect()
        };
        let service = format!("open.{}.svc.cluster.local:80", namespace.name());
        let theirs = [vec![service], at(&replicas, &[15380]), at(&catalogs, &[8080])].concat();
        let others = [at(&replicas, &[15381, 15382, 3000]), at(&operators, &[8081]), at(&catalogs, &[8081])];
        let all = [&theirs[..], &others.concat()].concat();
        // From the node everything is reached: somebody is there.
        let node = async || reached(namespace.command("python3"), &all, &all).await;
        eventually("all of them listen", node).await;
        for stranger in [namespace.name(), &elsewhere] {
            // The network follows the pods with a lag.
            eventually(&format!("a stranger in {stranger} reaches what is theirs and no more"), async || {
                let mut probe = namespace.command("kubectl");
                probe.args(["--namespace", stranger, "exec", "stranger", "--", "python3"]);
                reached(probe, &all, &theirs).await
            })
            .await;
        }

        // The session is at one replica, and the other asks that for it.
        let endpoint = Endpoint::find(&namespace.client(), &url(&server)).await.expect("a Service");
        let at = |address: &str| Endpoint {
            address: format!("{address}:15380").parse().expect("an address"),
            ..endpoint.clone()
        };
        for (one, other) in [(one, other), (other, one)] {
            let client = McpClient::open(at(one), None).await.expect("a session is opened");
            let session = client.session().expect("a session has an id");
            let call = json!({
                "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": {"name": "echo", "arguments": {"text": "hello"}},
            });
            let headers = [("mcp-session-id", session), ("mcp-protocol-version", REVISION)];
            eventually("the session is served by the other replica", async || {
                let answer = at(other).post(call.to_string(), &headers, Duration::from_secs(10)).await;
                answer.and_then(|answer| answer.result(7))
            })
            .await;
        }
        let _ = namespace.kubectl(&["delete", "namespace", &elsewhere, "--wait=false"]).await;
    });
}

/// Starts a pod that does nothing.
async fn start_stranger(namespace: &Namespace<'_>, place: &str, labels: &[&str]) {
    let image = format!("--image={}", images::peers().expect("the images are made").python.reference);
    let place = format!("--namespace={place}");
    let run = [&["run", "stranger", &place, &image, "--image-pull-policy=Never"], labels].concat();
    let run = [&run[..], &["--command", "--", "sleep", "3600"]].concat();
    // It needs an account, which the namespace is given a moment after it is made.
    eventually("a stranger's pod is made", async || namespace.kubectl(&run).await).await;
    let wait = ["wait", &place, "--for=condition=Ready", "pod/stranger", "--timeout=5m"];
    namespace.kubectl(&wait).await.expect("a stranger runs");
}

/// The addresses of the pods with these labels.
async fn addresses(pods: Api<Pod>, labels: impl AsRef<str>) -> Vec<String> {
    let listed = pods.list(&ListParams::default().labels(labels.as_ref())).await.expect("pods can be listed");
    let staying = listed.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    staying
        .map(|pod| {
            let name = pod.name_any();
            pod.status.and_then(|status| status.pod_ip).unwrap_or_else(|| panic!("{name} has no address"))
        })
        .collect()
}

/// Whether a Python reaches these of all, and no others.
async fn reached(mut python: Command, all: &[String], expected: &[String]) -> Result<(), String> {
    python.args(["-c", PROBE]).args(all);
    let output = tokio::task::spawn_blocking(|| run(python)).await.expect("it runs to its end");
    let output = output.map_err(|error| error.to_string())?;
    let reached: Vec<_> = output.lines().collect();
    if reached == expected { Ok(()) } else { Err(format!("{reached:?} instead of {expected:?}")) }
}
