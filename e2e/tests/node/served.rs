//! The way that everybody goes first: a manifest, `kubectl get`, a client, and away with it.

use std::fs::File;
use std::process::{Command, Output};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_e2e::mcp_client::McpError;
use longshore_e2e::peers::Peers;
use longshore_e2e::testing::{Namespace, eventually};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::STAGE;
use crate::faults::open;
use crate::server::{becomes, go_server, restrict, url_that_leads_there};

const KEY: &str = "example-key-of-alice";
const BOBS_KEY: &str = "another-key-of-bob";
const EVERYTHING: &str = include_str!("../../../examples/everything.yaml");
const GO_SERVER: &str = include_str!("../../../examples/go-server.yaml");

/// An example, with every client that others wrote.
#[test]
fn the_example_is_served_to_clients_with_a_key_and_leaves_nothing_behind() {
    STAGE.with_namespace(async |namespace| {
        let peers = Peers::install().expect("the clients can be installed");
        restrict(namespace).await;
        namespace.apply(EVERYTHING).await;
        namespace
            .kubectl(&["wait", "--for=condition=Ready", "lmcp/everything", "--timeout=5m"])
            .await
            .expect("kubectl wait works");
        let shown = namespace.kubectl(&["get", "lmcp"]).await.expect("kubectl get works");
        let url_shown = format!("http://everything.{}.svc.cluster.local/mcp", namespace.name());
        for word in ["everything", "True", "13", &url_shown] {
            assert!(shown.contains(word), "{word} is missing in:\n{shown}");
        }

        let server = becomes(namespace, "everything", ("Ready", "True", "Ready")).await;
        let url = url_that_leads_there(namespace, &server).await;
        for client in ["typescript 1", "typescript 2", "python"] {
            let seen = sdk_client(namespace, &peers, client, &url, KEY);
            assert_eq!(seen["server"], "mcp-servers/everything", "{client}: {seen}");
            assert_eq!(seen["tools"].as_array().map(Vec::len), Some(13), "{client}: {seen}");
            assert_eq!(seen["echo"], "Echo: hello", "{client}: {seen}");
            assert_eq!((&seen["contents"], &seen["messages"]), (&1.into(), &1.into()), "{client}: {seen}");
            let refused = sdk_command(namespace, &peers, client, &url, "").output().expect("the client runs");
            assert!(!refused.status.success(), "{client} without a key: {refused:?}");
        }

        let listed = inspector(namespace, &peers, &url, KEY, &["--method", "tools/list"]);
        assert!(text(&listed).contains("\"get-sum\""), "{listed:?}");
        let called = inspector(
            namespace,
            &peers,
            &url,
            KEY,
            &["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hi"],
        );
        assert!(text(&called).contains("Echo: hi"), "{called:?}");
        for key in ["", "not-a-key-of-anybody"] {
            let refused = inspector(namespace, &peers, &url, key, &["--method", "tools/list"]);
            assert!(!refused.status.success(), "with the key {key:?}: {refused:?}");
        }

        // A rule that names principals is theirs alone.
        let bob = format!("{{\"stringData\": {{\"bob\": \"{BOBS_KEY}\"}}}}");
        namespace.kubectl(&["patch", "secret", "everything-keys", "-p", &bob]).await.expect("a patch");
        let bob =
            eventually("bob's key works", async || open(namespace, &server, Some(BOBS_KEY)).await).await;
        let mut tools = bob.list_tools().await.expect("bob may list");
        tools.retain(|name| name != "echo" && !name.starts_with("get-"));
        assert_eq!(tools, [""; 0], "bob sees what is alice's");
        bob.call("echo", json!({"message": "hi"})).await.expect("everybody may call echo");
        match bob.call("toggle-simulated-logging", json!({})).await {
            Err(McpError::Rpc { code: -32602, .. }) => {}
            other => panic!("bob called a tool of alice's: {other:?}"),
        }
        for (method, list) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            let listed = bob.request(method, json!({})).await.expect("bob may list");
            assert_eq!(listed[list], json!([]), "{method}");
        }

        namespace.kubectl(&["delete", "lmcp", "everything"]).await.expect("kubectl delete works");
        nothing_is_left_of(namespace, "everything").await;
    });
}

#[test]
fn a_server_on_the_go_sdk_is_served_to_everybody_as_far_as_its_rules_go() {
    STAGE.with_namespace(async |namespace| {
        let peers = Peers::install().expect("the clients can be installed");
        restrict(namespace).await;
        namespace.apply(GO_SERVER).await;
        let server = becomes(namespace, "go-server", ("Ready", "True", "Ready")).await;
        let url = url_that_leads_there(namespace, &server).await;
        let tools = inspector(namespace, &peers, &url, "", &["--method", "tools/list"]);
        for (tool, is_there) in
            [("echo", true), ("add", true), ("slow", true), ("exit", false), ("grow", false)]
        {
            assert_eq!(
                text(&tools).contains(&format!("\"name\": \"{tool}\"")),
                is_there,
                "{tool}: {tools:?}"
            );
        }
        let called = inspector(
            namespace,
            &peers,
            &url,
            "",
            &["--method", "tools/call", "--tool-name", "exit", "--tool-arg", "status=3"],
        );
        assert!(text(&called).contains("nknown tool") || !called.status.success(), "{called:?}");
        // It listens on loopback alone, and all of its rules are met.
        let server = becomes(namespace, "go-server", ("Isolated", "True", "")).await;
        let status = server.status.expect("it has a status");
        assert_eq!(status.tools.map(|tools| tools.count), Some(6));
        assert_eq!(status.server_info.map(|info| info.name).as_deref(), Some("go-server"));
    });
}

/// No token of a ServiceAccount is in a pod; where the manifest names an account, its token is in the server's container
/// alone.
#[test]
fn only_a_server_whose_manifest_names_an_account_has_its_token() {
    const SCRIPT: &str = r#"
for process in /proc/[0-9]*; do
  grep -q "$0" "$process/cgroup" 2>/dev/null || continue
  if [ -e "$process/root/var/run/secrets/kubernetes.io/serviceaccount/token" ]; then has=token; else has=none; fi
  echo "$(cat "$process/comm") $has"
done"#;
    STAGE.with_namespace(async |namespace| {
        namespace.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}").await;
        let named = go_server("named", &[]) + "  pod: {serviceAccountName: robot}\n";
        namespace.apply(&[go_server("plain", &[]), named].join("---\n")).await;
        for (name, expected) in [
            ("plain", ["go-server none", "longshore-sidec none"]),
            ("named", ["go-server token", "longshore-sidec none"]),
        ] {
            becomes(namespace, name, ("Ready", "True", "Ready")).await;
            let mine = ListParams::default().labels(&format!("longshore.dev/server={name}"));
            let pods = namespace.api::<Pod>().list(&mine).await.expect("pods can be listed");
            let uid = pods.items.first().and_then(|pod| pod.uid()).expect("a ready server has a pod");
            // As it is in the names of its containers' cgroups.
            let output = namespace.command("sh").args(["-c", SCRIPT, &uid.replace('-', "[-_]")]).output();
            let output = output.expect("the shell runs");
            let seen = String::from_utf8_lossy(&output.stdout).into_owned();
            let mut seen: Vec<_> = seen.lines().filter(|line| !line.starts_with("pause")).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, expected, "{name}: {output:?}");
        }
    });
}

fn sdk_client(namespace: &Namespace<'_>, peers: &Peers, client: &str, url: &str, key: &str) -> Value {
    let output = sdk_command(namespace, peers, client, url, key).output().expect("the client runs");
    assert!(output.status.success(), "{client}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{client}: {error}: {output:?}"))
}

fn sdk_command(namespace: &Namespace<'_>, peers: &Peers, client: &str, url: &str, key: &str) -> Command {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/clients");
    if client == "python" {
        let mut command = namespace.command(&peers.program("python").to_string_lossy());
        command.args([&format!("{scripts}/python.py"), url, key]);
        return command;
    }
    // A command on the node starts in the folder of this process, and the SDK is found from where the script runs.
    let mut command = namespace.command("sh");
    command.args(["-c", r#"cd "$0" && exec "$@""#]).arg(peers.typescript()).arg(peers.program("node"));
    let line = client.strip_prefix("typescript ").expect("a line of the TypeScript SDK");
    command.args(["--input-type=module", "-", line, url, key]);
    command.stdin(File::open(format!("{scripts}/typescript.mjs")).expect("the script is there"));
    command
}

fn inspector(namespace: &Namespace<'_>, peers: &Peers, url: &str, key: &str, arguments: &[&str]) -> Output {
    let mut command = namespace.command(&peers.program("mcp-inspector").to_string_lossy());
    command.args(["--cli", url, "--transport", "http", "--connect-timeout", "60000"]).args(arguments);
    if !key.is_empty() {
        command.args(["--header", &format!("Authorization: Bearer {key}")]);
    }
    command.output().expect("the Inspector runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until nothing that Longshore made for the server is there.
async fn nothing_is_left_of(namespace: &Namespace<'_>, name: &str) {
    namespace.wait_gone(&namespace.api::<McpServer>(), name).await;
    none_left::<Deployment>(namespace, name).await;
    none_left::<Service>(namespace, name).await;
    none_left::<ConfigMap>(namespace, name).await;
    none_left::<Secret>(namespace, name).await;
    none_left::<NetworkPolicy>(namespace, name).await;
    none_left::<ServiceAccount>(namespace, name).await;
    // This server ignores SIGTERM as the first process of its container, so its pod would stay for all of its time to end.
    let (pods, mine) = (namespace.api::<Pod>(), format!("--selector=longshore.dev/server={name}"));
    for pod in pods.list(&ListParams::default()).await.expect("pods can be listed") {
        let is_ending = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        namespace.wait(&pods, &pod.name_any(), "to be told to end", is_ending).await;
    }
    namespace.kubectl(&["delete", "pods", &mine, "--grace-period=1"]).await.expect("pods can be hurried");
    none_left::<Pod>(namespace, name).await;
}

async fn none_left<K>(namespace: &Namespace<'_>, name: &str)
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned
        + Send
        + 'static,
{
    let objects: Api<K> = namespace.api();
    let mine = ListParams::default().labels(&format!("longshore.dev/server={name}"));
    for object in objects.list(&mine).await.expect("objects can be listed") {
        namespace.wait_gone(&objects, &object.name_any()).await;
    }
}
