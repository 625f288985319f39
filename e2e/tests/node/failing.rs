//! Servers that do not come up: each says why in a condition of its own, and heals by itself once the cause is gone.

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use longshore_crds::McpServer;
use longshore_e2e::testing::form;

use crate::STAGE;
use crate::server::{GO_IMAGE, RESTARTS, becomes, condition, go_server, keyed, stays};

/// Every way in which a server fails at its start, side by side in one namespace.
#[test]
fn a_server_that_does_not_come_up_says_why() {
    let table = [
        Row {
            name: "no-image",
            manifest: go_server("no-image", &[]).replace(GO_IMAGE, "registry.invalid/nobody/nothing:1"),
            reason: "ImagePullFailed",
            words: &["registry.invalid/nobody/nothing:1"],
        },
        Row {
            name: "no-command",
            manifest: go_server("no-command", &[]).replace("args: []", "command: [/no/such/program]"),
            reason: "CommandNotFound",
            words: &["/no/such/program"],
        },
        Row {
            name: "exits",
            manifest: go_server("exits", &["-exit=3"]),
            reason: "ServerExited",
            words: &["3", "fatal: no such database"],
        },
        Row {
            name: "exits-cleanly",
            manifest: go_server("exits-cleanly", &["-help"]),
            reason: "ServerExited",
            words: &["0"],
        },
        Row {
            name: "hungry",
            manifest: go_server("hungry", &["-hold=256"])
                .replace("  auth:", "  pod: {resources: {limits: {memory: 64Mi}}}\n  auth:"),
            reason: "OutOfMemory",
            words: &["spec.pod.resources.limits.memory"],
        },
        Row {
            name: "mute",
            manifest: go_server("mute", &["-mute"]),
            reason: "InitializeTimeout",
            words: &["handshake"],
        },
        Row {
            name: "wrong-port",
            manifest: go_server("wrong-port", &["-listen=127.0.0.1:3999"]),
            reason: "ConnectionRefused",
            words: &["3000"],
        },
        Row {
            name: "wrong-path",
            manifest: go_server("wrong-path", &["-path=/elsewhere"]),
            reason: "NotMcp",
            words: &["/mcp"],
        },
    ];
    STAGE.with_namespace(async |namespace| {
        let manifests: Vec<_> = table.iter().map(|row| row.manifest.as_str()).collect();
        namespace.apply(&manifests.join("---\n")).await;
        for row in &table {
            let server = becomes(namespace, row.name, ("Ready", "False", row.reason)).await;
            let message = &condition(&server, "Ready").expect("it was waited for").message;
            for word in row.words {
                assert!(message.contains(word), "{}: {word} is not in: {message}", row.name);
            }
        }
        // Crash loops go through several states; none of them shows.
        let stays = async |row: &Row| {
            stays(namespace, row.name, &[("Ready", "False", row.reason)], RESTARTS).await;
        };
        join_all(table.iter().map(stays)).await;
        let pods = namespace.api::<Pod>().list(&ListParams::default()).await.expect("pods can be listed");
        for pod in pods {
            let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
            let sidecar = statuses.iter().find(|status| status.name == "longshore-sidecar");
            assert_eq!(sidecar.map(|status| status.restart_count), Some(0), "{:?}", pod.metadata.name);
        }
    });
}

struct Row {
    name: &'static str,
    manifest: String,
    reason: &'static str,
    words: &'static [&'static str],
}

#[test]
fn a_server_on_all_addresses_is_ready_with_a_warning() {
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&go_server("open", &["-listen=0.0.0.0:3000"])).await;
        let server = becomes(namespace, "open", ("Isolated", "False", "ListensBeyondLoopback")).await;
        let message = &condition(&server, "Isolated").expect("it was waited for").message;
        assert!(message.contains("3000"), "{message}");
        becomes(namespace, "open", ("Ready", "True", "Ready")).await;
    });
}

/// What a manifest names and nobody made: named exactly, no pod before it is there, and healed by its creation.
#[test]
fn what_is_missing_is_named_and_heals_the_server_when_it_comes() {
    // It is there, without the entry that the manifest names.
    const OTHER: &str = "{apiVersion: v1, kind: Secret, metadata: {name: other}, stringData: {user: abc}}";
    let table = [
        (
            keyed(&go_server("keys", &[]), "the-keys"),
            "SecretNotFound",
            "the-keys",
            "{apiVersion: v1, kind: Secret, metadata: {name: the-keys}, stringData: {alice: a-key-of-twenty-letters}}",
        ),
        (
            with_env("environment", "{name: A, valueFrom: {secretKeyRef: {name: credentials, key: token}}}"),
            "SecretNotFound",
            "credentials",
            "{apiVersion: v1, kind: Secret, metadata: {name: credentials}, stringData: {token: abc}}",
        ),
        (
            with_env("entry", "{name: A, valueFrom: {secretKeyRef: {name: other, key: password}}}"),
            "SecretKeyNotFound",
            "password",
            "{apiVersion: v1, kind: Secret, metadata: {name: other}, stringData: {user: abc, password: def}}",
        ),
        (
            with_env("settings", "{name: A, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}"),
            "ConfigMapNotFound",
            "settings",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {mode: fast}}",
        ),
    ];
    STAGE.with_namespace(async |namespace| {
        namespace.apply(OTHER).await;
        for (manifest, reason, missing, remedy) in &table {
            let name = manifest.split("metadata: {name: ").nth(1).and_then(|rest| rest.split('}').next());
            let name = name.expect("the manifest has a name");
            namespace.apply(manifest).await;
            let server = becomes(namespace, name, ("Accepted", "False", reason)).await;
            let message = &condition(&server, "Accepted").expect("it was waited for").message;
            assert!(message.contains(missing), "{missing} is not in: {message}");
            let mine = ListParams::default().labels(&format!("longshore.dev/server={name}"));
            let pods = namespace.api::<Pod>().list(&mine).await.expect("pods can be listed");
            assert!(pods.items.is_empty(), "{name} has a pod although {missing} is missing");

            namespace.apply(remedy).await;
            let came = Instant::now();
            becomes(namespace, name, ("Accepted", "True", "")).await;
            let took = came.elapsed();
            println!("{name}: accepted {took:?} after {missing} was there");
            assert!(took < form(Duration::from_secs(30), Duration::from_secs(2)), "{name}: {took:?}");
            becomes(namespace, name, ("Ready", "True", "Ready")).await;
        }
    });
}

fn with_env(name: &str, variable: &str) -> String {
    go_server(name, &[]).replace("args: []", &format!("env: [{variable}]"))
}

/// A manifest without the line that begins so.
fn without(manifest: &str, line: &str) -> String {
    manifest.lines().filter(|it| !it.starts_with(line)).flat_map(|it| [it, "\n"]).collect()
}

/// What the schema refuses has its sentence at `kubectl apply`; a field that does not exist is a refusal there too.
#[test]
fn kubectl_apply_refuses_a_broken_manifest_with_a_sentence() {
    let good = go_server("broken", &[]);
    let override_ = "  pod: {overrides: {spec: {containers: [{name: longshore-sidecar}]}}}\n";
    // What is said, in part: the field, and what to write.
    let table = [
        (without(&good, "  auth: "), ["spec.auth: ", "say who may call: write `auth: "]),
        (without(&good, "  source: "), ["spec.source: ", "say what to run: write `source: "]),
        (good.replace("  auth: ", "  colour: blue\n  auth: "), ["unknown field", "spec.colour"]),
        (
            good.replace("port: 3000", "port: 15381"),
            ["streamableHttp.port: ", "are the sidecar's: let the server listen on another"],
        ),
        (good.replace("tools: ['*']", "tools: ['[a-']"), ["spec.access.rules[0].tools", "write "]),
        (good.clone() + override_, ["spec.pod.overrides", "longshore-sidecar"]),
    ];
    STAGE.with_namespace(async |namespace| {
        for (manifest, words) in &table {
            let refusal = namespace.try_apply(manifest).await.expect_err(manifest);
            for word in words {
                assert!(refusal.contains(word), "{word} is not in: {refusal}");
            }
        }
        let servers = namespace.api::<McpServer>();
        assert!(servers.list(&ListParams::default()).await.expect("servers can be listed").items.is_empty());
    });
}
