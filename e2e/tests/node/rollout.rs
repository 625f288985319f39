//! New versions over a server that works.

use std::time::Duration;

use longshore_crds::McpServer;
use longshore_e2e::peers::Peers;

use crate::STAGE;
use crate::server::{GO_IMAGE, becomes, condition, go_server, stays, url_that_leads_there};

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
            let wanted = ("Available", "True", "RolloutFailing");
            let while_it = Duration::from_secs(if what.contains("after") { 16 } else { 3 });
            stays(namespace, "go", wanted, while_it).await;
            let mut client = namespace.command(&peers.program("mcp-inspector").to_string_lossy());
            client.args(["--cli", &url, "--transport", "http", "--method", "tools/list"]);
            let output = client.output().expect("the Inspector runs");
            assert!(output.status.success(), "{what}: the old version does not serve: {output:?}");
        }
        namespace.apply(&go_server("go", &["-json"])).await;
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
    });
}

/// A change that the sidecar can take while it runs restarts nothing.
#[test]
fn new_access_rules_reach_the_sidecar_without_a_restart() {
    STAGE.with_namespace(async |namespace| {
        let peers = Peers::install().expect("the clients can be installed");
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let url = url_that_leads_there(namespace, &server).await;
        let pods = ["get", "pods", "-o", "name"];
        let before = namespace.kubectl(&pods).await.expect("pods can be listed");
        namespace.apply(&go_server("go", &[]).replace("tools: ['*']", "tools: [echo]")).await;
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let mut client = namespace.command(&peers.program("mcp-inspector").to_string_lossy());
        client.args(["--cli", &url, "--transport", "http", "--method", "tools/list"]);
        let output = client.output().expect("the Inspector runs");
        let tools = String::from_utf8_lossy(&output.stdout);
        assert!(tools.contains("\"echo\"") && !tools.contains("\"add\""), "{tools}");
        assert_eq!(namespace.kubectl(&pods).await.expect("pods can be listed"), before);
    });
}
