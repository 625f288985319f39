//! New versions over a server that works.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use longshore_crds::McpServer;
use longshore_e2e::mcp_client::McpError;
use longshore_e2e::peers::Peers;
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::{Value, json};

use crate::STAGE;
use crate::faults::{SIDECAR, connect};
use crate::server::{
    FAILS_OVER_ONE_THAT_WORKS, GO_IMAGE, RESTARTS, becomes, condition, go_server, is, is_current, stays,
    url_that_leads_there,
};

#[test]
fn a_new_version_that_fails_leaves_the_old_one_serving() {
    let table = [
        (
            "image",
            go_server("go", &[]).replace(GO_IMAGE, "registry.invalid/nobody/nothing:2"),
            "ImagePullFailed",
        ),
        (
            "command",
            go_server("go", &[]).replace("args: []", "command: [/no/such/program]"),
            "CommandNotFound",
        ),
        ("exit", go_server("go", &["-exit=4"]), "ServerExited"),
        // It shakes hands, serves for a moment, and does so again each time that it is restarted.
        ("exit after its handshake", go_server("go", &["-exit-after=2s"]), "the database hung up"),
    ];
    STAGE.with_namespace(async |namespace| {
        let peers = Peers::install().expect("the clients can be installed");
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let url = url_that_leads_there(namespace, &server).await;
        // Until then it is nothing to Kubernetes that the next change but one would have to keep.
        let has_stayed = |deployment: &Deployment| {
            deployment.status.as_ref().and_then(|status| status.available_replicas) == Some(1)
        };
        let deployments = namespace.api::<Deployment>();
        namespace.wait(&deployments, "go", "to have served for a while", has_stayed).await;
        for (what, manifest, reason) in &table {
            namespace.apply(manifest).await;
            // A server that is slow to exit is found not to listen first.
            let says = |server: &McpServer| {
                let available = condition(server, "Available");
                available.is_some_and(|it| it.reason == "RolloutFailing" && it.message.contains(reason))
            };
            let servers = namespace.api::<McpServer>();
            let failing = namespace.wait(&servers, "go", &format!("to say {reason}"), says).await;
            let generation = failing.metadata.generation.unwrap_or_default();
            let message = &condition(&failing, "Available").expect("it was waited for").message;
            assert!(message.contains(&generation.to_string()), "{what}: no generation in: {message}");
            let ready = condition(&failing, "Ready").expect("there is one");
            assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "ServingPrevious"), "{what}");
            assert!(ready.observed_generation < failing.metadata.generation, "{what}: {ready:?}");
            // The restarts of the new pod do not show.
            let while_it = if what.contains("exit") { RESTARTS } else { Duration::from_secs(3) };
            stays(namespace, "go", &FAILS_OVER_ONE_THAT_WORKS, while_it).await;
            let mut client = namespace.command(&peers.program("mcp-inspector").to_string_lossy());
            client.args(["--cli", &url, "--transport", "http", "--method", "tools/list"]);
            client.args(["--connect-timeout", "60000"]);
            let output = client.output().expect("the Inspector runs");
            assert!(output.status.success(), "{what}: the old version does not serve: {output:?}");
        }
        namespace.apply(&go_server("go", &["-json"])).await;
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
    });
}

/// For a volume that one pod alone can have.
#[test]
fn a_version_that_recreates_is_never_beside_the_one_before() {
    STAGE.with_namespace(async |namespace| {
        let manifest =
            |args: &[&str]| go_server("go", args).replace("spec:\n", "spec:\n  strategy: {type: Recreate}\n");
        namespace.apply(&manifest(&[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let pods = namespace.api::<Pod>();
        let names = async || -> Vec<String> {
            let list = ListParams::default().labels("longshore.dev/server=go");
            let found = pods.list(&list).await.expect("pods can be listed").items;
            found.iter().map(ResourceExt::name_any).collect()
        };
        let before = names().await;
        namespace.apply(&manifest(&["-json"])).await;
        let servers = namespace.api::<McpServer>();
        let waits = |server: &McpServer| {
            let available = condition(server, "Available");
            available.is_some_and(|it| it.reason == "Starting" && it.message.contains("spec.strategy"))
        };
        namespace.wait(&servers, "go", "to say that the one before ends", waits).await;
        let after = eventually("another pod is there", async || match names().await {
            pods if pods == before || pods.is_empty() => Err(format!("{pods:?}")),
            pods => Ok(pods),
        })
        .await;
        assert_eq!(after.len(), 1, "{after:?} after {before:?}");
        let now = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        assert!(now.metadata.generation > server.metadata.generation);
    });
}

/// Changes that the sidecar can take while it runs restart nothing.
#[test]
fn what_is_permitted_and_which_tools_there_are_changes_without_a_restart() {
    const TOOLS: [&str; 6] = ["add", "echo", "exit", "fail", "grow", "slow"];
    // What is said of tools, and which there are then.
    let table: [(&str, &[&str]); 3] = [
        ("{include: [echo, add, exit]}", &["add", "echo", "exit"]),
        ("{exclude: ['e*', grow, slow]}", &["add", "fail"]),
        ("{include: ['e*', add, fail, slow], exclude: [exit]}", &["add", "echo", "fail", "slow"]),
    ];
    STAGE.with_namespace(async |namespace| {
        let peers = Peers::install().expect("the clients can be installed");
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let url = url_that_leads_there(namespace, &server).await;
        let pods = ["get", "pods", "-o", "name"];
        let before = namespace.kubectl(&pods).await.expect("pods can be listed");
        assert_eq!(listed(namespace, &peers, &url), TOOLS);
        namespace.apply(&go_server("go", &[]).replace("tools: ['*']", "tools: [echo]")).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        assert_eq!(listed(namespace, &peers, &url), ["echo"]);
        assert_eq!(tools(&server), Some(6), "rules are for callers");

        let client = connect(namespace, &server, None).await;
        let mut refused = 0;
        for (said, there) in table {
            namespace.apply(&(go_server("go", &[]) + &format!("  tools: {said}\n"))).await;
            let counts = |server: &McpServer| {
                is_current(server)
                    && is(server, ("Ready", "True", "Ready"))
                    && tools(server) == Some(there.len())
            };
            let servers = namespace.api::<McpServer>();
            namespace.wait(&servers, "go", &format!("to count the tools of {said}"), counts).await;
            assert_eq!(listed(namespace, &peers, &url), there, "{said}");
            for tool in TOOLS.iter().filter(|tool| !there.contains(tool)) {
                let outcome = client.call(tool, json!({})).await;
                let is_unknown = matches!(&outcome, Err(McpError::Rpc { code: -32602, .. }));
                assert!(is_unknown, "{said}: {tool}: {outcome:?}");
                refused += 1;
            }
            client.call("add", json!({"a": 1, "b": 2})).await.expect("what is there can be called");
        }
        let log = ["logs", "-l", "longshore.dev/server=go", "-c", SIDECAR, "--tail=-1"];
        eventually("each refusal is in the log with its reason", async || {
            let log = namespace.kubectl(&log).await?;
            let count = log.matches("the tool is hidden by include or exclude").count();
            if count == refused { Ok(()) } else { Err(format!("{count} of {refused}")) }
        })
        .await;
        assert_eq!(namespace.kubectl(&pods).await.expect("pods can be listed"), before);
    });
}

/// How many tools the status counts.
fn tools(server: &McpServer) -> Option<usize> {
    let tools = server.status.as_ref()?.tools.as_ref()?;
    usize::try_from(tools.count).ok()
}

/// The names of the tools that the Inspector is shown.
fn listed(namespace: &Namespace<'_>, peers: &Peers, url: &str) -> Vec<String> {
    let mut client = namespace.command(&peers.program("mcp-inspector").to_string_lossy());
    client.args(["--cli", url, "--transport", "http", "--method", "tools/list"]);
    client.args(["--connect-timeout", "60000"]);
    let output = client.output().expect("the Inspector runs");
    let said: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let names = said["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}
