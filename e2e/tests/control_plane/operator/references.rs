//! What a manifest names: missed by name, found again at once, revoked when it goes, and never Longshore's own.

use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_e2e::testing::form;
use serde_json::json;

use super::node::Node;
use super::stand::{ADA, Operator, apply_keys, condition, has_key, is, wait_for};
use super::{KEYED, STAGE, server};

/// A Secret or ConfigMap that is there is noticed within this time. Two seconds are the promise; the rest is for kubectl
/// to start on a machine that does ten other things. Without the watch it would be never.
fn at_once() -> Duration {
    form(Duration::from_secs(30), Duration::from_secs(2))
}

#[test]
fn what_is_missing_is_named_and_healed_at_once_when_it_comes() {
    let needs_all = server(
        "{source: {env: [{name: T, valueFrom: {secretKeyRef: {name: token, key: value}}}], envFrom: [{configMapRef: {name: settings}}]}, \
          pod: {serviceAccountName: robot, volumes: [{name: data, secret: {secretName: files}}, \
            {name: modes, configMap: {name: settings, items: [{key: mode, path: mode}]}}]}, \
          auth: {none: null, apiKeys: {secretRef: {name: keys}}}}",
    );
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace.apply(&needs_all).await;
        let here = namespace.name();
        let deployments: Api<Deployment> = namespace.api();
        for (reason, missing, cure) in [
            (
                "SecretNotFound",
                format!("Secret {here}/token, which spec.source.env[0].valueFrom.secretKeyRef names, does not exist"),
                "{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {other: x}}",
            ),
            (
                "SecretKeyNotFound",
                format!("Secret {here}/token has no key \"value\""),
                "{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {value: x}}",
            ),
            (
                "ConfigMapNotFound",
                format!("ConfigMap {here}/settings, which spec.source.envFrom[0].configMapRef names, does not exist"),
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}",
            ),
            (
                "SecretNotFound",
                format!("Secret {here}/files, which spec.pod.volumes[0].secret names, does not exist"),
                "{apiVersion: v1, kind: Secret, metadata: {name: files}}",
            ),
            (
                "ConfigMapKeyNotFound",
                format!("ConfigMap {here}/settings has no key \"mode\", which spec.pod.volumes[1].configMap.items[0] names"),
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {mode: fast}}",
            ),
            (
                "ServiceAccountNotFound",
                format!("ServiceAccount {here}/robot, which spec.pod.serviceAccountName names, does not exist"),
                "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}",
            ),
            (
                "SecretNotFound",
                format!("Secret {here}/keys, which spec.auth.apiKeys.secretRef names, does not exist"),
                "{apiVersion: v1, kind: Secret, metadata: {name: keys}, stringData: {ada: a-key-that-is-long-enough}}",
            ),
        ] {
            let message = wait_for(namespace, "Accepted", "False", reason).await;
            assert!(message.starts_with(&missing), "{message}");
            assert!(deployments.get_opt("demo").await.unwrap().is_none(), "no pod before everything is there");
            let applied = Instant::now();
            namespace.apply(cure).await;
            let servers: Api<McpServer> = namespace.api();
            namespace
                .wait(&servers, "demo", "to notice", |server| {
                    condition(server, "Accepted").is_some_and(|condition| !condition.message.starts_with(&missing))
                })
                .await;
            let took = applied.elapsed();
            assert!(took < at_once(), "it took {took:?} to notice {cure}");
        }
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
    });
}

/// Each is read, one after the other, and a server's reconciliation would take that long for as long as it is there.
#[test]
fn a_manifest_that_names_very_many_objects_is_refused_and_its_rules_hold() {
    let env: Vec<String> = (0..600)
        .map(|number| {
            format!("{{name: A{number}, valueFrom: {{secretKeyRef: {{name: s-{number}, key: a, optional: true}}}}}}")
        })
        .collect();
    let names_many = server(&format!(
        "{{access: {{rules: [{{name: all, tools: ['*']}}]}}, pod: {{overrides: {{spec: {{containers: [{{name: more, image: x, env: [{}]}}]}}}}}}}}",
        env.join(", ")
    ));
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace.apply(&names_many).await;
        let message = wait_for(namespace, "Accepted", "False", "Invalid").await;
        let field = "spec.pod.overrides.spec.containers[0].env[512].valueFrom.secretKeyRef: the manifest names more than 512 ";
        assert!(message.starts_with(field), "{message}");
        let deployments: Api<Deployment> = namespace.api();
        assert!(deployments.get_opt("demo").await.unwrap().is_none());
        let config_maps: Api<ConfigMap> = namespace.api();
        let ours = ListParams::default().labels("longshore.dev/server=demo");
        let made = config_maps.list(&ours).await.unwrap().items;
        assert!(made[0].data.as_ref().unwrap()["config.json"].contains("\"name\":\"all\""));
    });
}

#[test]
fn keys_reach_the_sidecar_as_hashes_and_go_with_their_secret() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let node = Node::start().await;
        apply_keys(namespace, ADA).await;
        namespace.apply(&KEYED).await;
        let secrets: Api<Secret> = namespace.api();
        let file = |secret: &Secret| {
            let ByteString(file) =
                secret.data.clone().unwrap_or_default().remove("keys.json").unwrap_or_default();
            String::from_utf8(file).unwrap()
        };
        let made = namespace
            .wait(&secrets, "demo-longshore-keys", "to hold ada's key", |it| has_key(it, "ada"))
            .await;
        assert!(!file(&made).contains("a-key-that-is-long-enough"), "only a hash leaves the Secret");

        node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;

        // A line that is no key is named and disables nothing but itself.
        apply_keys(namespace, "{ada: a-key-that-is-long-enough, bob: short}").await;
        let message = wait_for(namespace, "Accepted", "False", "InvalidKeys").await;
        assert!(
            message.contains(&format!("Secret {}/keys", namespace.name())) && message.contains("\"bob\""),
            "{message}"
        );
        assert!(!message.contains("short"), "a message never repeats what is in a Secret");
        assert!(has_key(&secrets.get("demo-longshore-keys").await.unwrap(), "ada"));
        let message = wait_for(namespace, "Ready", "True", "Ready").await;
        assert!(message.starts_with("clients can use the server, but Secret"), "{message}");

        // Whoever deletes the Secret revokes its keys, also for pods that run.
        namespace.kubectl(&["delete", "secret", "keys"]).await.unwrap();
        namespace.wait(&secrets, "demo-longshore-keys", "to hold no key", |it| !has_key(it, "ada")).await;
        wait_for(namespace, "Accepted", "False", "SecretNotFound").await;
        let deployments: Api<Deployment> = namespace.api();
        assert!(deployments.get_opt("demo").await.unwrap().is_some(), "pods that run go on running");
        node.load_configuration(namespace).await;
        let message = wait_for(namespace, "Ready", "False", "SecretNotFound").await;
        assert!(message.contains("does not exist"), "{message}");

        // Nor has anybody a key where each line is none.
        for (keys, status, reason) in
            [(ADA, "True", "Ready"), ("{ada: short}", "False", "InvalidKeys"), (ADA, "True", "Ready")]
        {
            apply_keys(namespace, keys).await;
            let is_usable = status == "True";
            namespace
                .wait(&secrets, "demo-longshore-keys", "to have the keys", |it| {
                    has_key(it, "ada") == is_usable
                })
                .await;
            node.load_configuration(namespace).await;
            wait_for(namespace, "Ready", status, reason).await;
        }
    });
}

/// Pods that run need none of what they were made with, and what clients use of a change does not wait for new ones.
#[test]
fn what_only_new_pods_need_takes_no_server_from_its_clients() {
    const ROBOT: &str = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}";
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let node = Node::start().await;
        namespace.apply(ROBOT).await;
        apply_keys(namespace, ADA).await;
        let keys = "auth: {none: null, apiKeys: {secretRef: {name: keys}}}";
        namespace.apply(&server(&format!("{{{keys}, pod: {{serviceAccountName: robot}}}}"))).await;
        let pod = node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;

        namespace.kubectl(&["delete", "serviceaccount", "robot"]).await.unwrap();
        wait_for(namespace, "Accepted", "False", "ServiceAccountNotFound").await;
        // Its process ends once.
        let not_ready = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        node.say(namespace, &pod, not_ready).await;
        wait_for(namespace, "Ready", "False", "ServiceAccountNotFound").await;
        node.run(namespace, &pod).await;
        let message = wait_for(namespace, "Ready", "True", "Ready").await;
        assert!(message.starts_with("clients can use the server, but ServiceAccount"), "{message}");

        // Everybody may call the pods that are there, and none can be made.
        namespace.apply(&server("{pod: {serviceAccountName: nobody}}")).await;
        let servers: Api<McpServer> = namespace.api();
        let names_nobody = |it: &McpServer| {
            condition(it, "Accepted").is_some_and(|accepted| accepted.message.contains("/nobody, "))
        };
        namespace.wait(&servers, "demo", "to miss its account", names_nobody).await;
        node.load_configuration(namespace).await;
        let says_so = |it: &McpServer| {
            let start =
                "clients still use pods from before the last change, with the new auth, access and limits: ";
            condition(it, "Ready").is_some_and(|ready| ready.message.starts_with(start))
        };
        let now = namespace.wait(&servers, "demo", "to say what clients use", says_so).await;
        let ready = condition(&now, "Ready").unwrap();
        assert_eq!(
            (&*ready.status, &*ready.reason, ready.observed_generation),
            ("True", "ServingPrevious", Some(1))
        );
    });
}

#[test]
fn a_key_is_revoked_while_somebody_keeps_a_server_that_is_to_go() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        apply_keys(namespace, "{ada: a-key-that-is-long-enough, bob: another-key-that-is-long-enough}").await;
        let has_bob = |secret: &Secret| has_key(secret, "bob");
        namespace.apply(&KEYED).await;
        let secrets: Api<Secret> = namespace.api();
        namespace.wait(&secrets, "demo-longshore-keys", "to hold bob's key", has_bob).await;
        let held = |finalizers: &str| format!("{{\"metadata\":{{\"finalizers\":{finalizers}}}}}");
        let patch = async |patch: &str| {
            namespace.kubectl(&["patch", "lmcp", "demo", "--type=merge", "-p", patch]).await.unwrap()
        };
        patch(&held("[\"example.com/held\"]")).await;
        namespace.kubectl(&["delete", "lmcp", "demo", "--wait=false"]).await.unwrap();

        let revoke = "[{\"op\":\"remove\",\"path\":\"/data/bob\"}]";
        namespace.kubectl(&["patch", "secret", "keys", "--type=json", "-p", revoke]).await.unwrap();
        namespace.wait(&secrets, "demo-longshore-keys", "to lose bob's key", |it| !has_bob(it)).await;
        patch(&held("null")).await;
        namespace.wait_gone(&secrets, "demo-longshore-keys").await;
        let deployments: Api<Deployment> = namespace.api();
        namespace.wait_gone(&deployments, "demo").await;
    });
}

/// Somebody keeps the server longer than Kubernetes does, which has taken its objects away or left them behind.
#[test]
fn a_server_that_is_to_go_is_not_given_again_what_kubernetes_took_from_it() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let (servers, deployments) = (namespace.api::<McpServer>(), namespace.api::<Deployment>());
        let named = |name: &str| super::LEAST.replace("demo", name);
        for (name, cascade) in [("taken", "foreground"), ("left", "orphan")] {
            namespace.apply(&named(name)).await;
            namespace.wait(&deployments, name, "to be made", |_| true).await;
            let held = "{\"metadata\":{\"finalizers\":[\"example.com/held\"]}}";
            namespace.kubectl(&["patch", "lmcp", name, "--type=merge", "-p", held]).await.unwrap();
            let cascade = format!("--cascade={cascade}");
            namespace.kubectl(&["delete", "lmcp", name, "--wait=false", &cascade]).await.unwrap();
            let is_held = |it: &McpServer| {
                it.metadata.deletion_timestamp.is_some() && it.finalizers() == ["example.com/held"]
            };
            namespace.wait(&servers, name, "to be kept by its last finalizer", is_held).await;
            // Whatever the operator does about it, it has begun before it hears of another.
            let other = format!("beside-{name}");
            namespace.apply(&named(&other)).await;
            let pods = namespace.wait(&deployments, &other, "to be made", |_| true).await;
            assert_eq!(pods.owner_references().len(), 1);
            tokio::time::sleep(Duration::from_millis(500)).await;
            let left = deployments.get_opt(name).await.unwrap();
            let owners = left.map(|deployment| deployment.owner_references().len());
            assert_eq!(owners, (name == "left").then_some(0), "owners of the Deployment of {name}");
            let free = "{\"metadata\":{\"finalizers\":null}}";
            namespace.kubectl(&["patch", "lmcp", name, "--type=merge", "-p", free]).await.unwrap();
        }
    });
}

#[test]
fn a_key_is_revoked_while_the_manifest_is_wrong() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        apply_keys(namespace, "{ada: a-key-that-is-long-enough, bob: another-key-that-is-long-enough}").await;
        let secrets: Api<Secret> = namespace.api();
        let has_bob = |secret: &Secret| has_key(secret, "bob");
        let auth = "auth: {none: null, apiKeys: {secretRef: {name: keys}}}";
        namespace.apply(&server(&format!("{{{auth}}}"))).await;
        namespace.wait(&secrets, "demo-longshore-keys", "to hold bob's key", has_bob).await;
        // What no schema can see.
        let backwards = format!("{{{auth}, access: {{rules: [{{name: a, tools: ['[z-a]']}}]}}}}");
        namespace.apply(&server(&backwards)).await;
        let message = wait_for(namespace, "Accepted", "False", "Invalid").await;
        assert!(message.starts_with("spec.access.rules[0].tools[0]: "), "{message}");
        // As docs/access.md has it: `kubectl apply` does not take him away, and the command does.
        apply_keys(namespace, ADA).await;
        assert!(secrets.get("keys").await.unwrap().data.unwrap().contains_key("bob"));
        let patch = "[{\"op\":\"remove\",\"path\":\"/data/bob\"}]";
        namespace.kubectl(&["patch", "secret", "keys", "--type=json", "-p", patch]).await.unwrap();
        namespace.wait(&secrets, "demo-longshore-keys", "to lose bob's key", |it| !has_bob(it)).await;
    });
}

#[test]
fn longshores_own_secrets_cannot_be_named() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace.apply(&server("{}")).await;
        let secrets: Api<Secret> = namespace.api();
        namespace.wait(&secrets, "demo-longshore-keys", "to be made", |_| true).await;
        for spec in [
            "{source: {envFrom: [{secretRef: {name: demo-longshore-keys, optional: true}}]}}",
            "{pod: {volumes: [{name: v, secret: {secretName: demo-longshore-keys}}]}}",
            "{auth: {none: null, apiKeys: {secretRef: {name: demo-longshore-keys}}}}",
        ] {
            namespace.apply(&server("{}")).await;
            let servers: Api<McpServer> = namespace.api();
            namespace.wait(&servers, "demo", "to be fine", |it| is(it, "Accepted", "True", "Accepted")).await;
            namespace.apply(&server(spec)).await;
            let message = wait_for(namespace, "Accepted", "False", "SecretReserved").await;
            assert!(message.contains("demo-longshore-keys"), "{message}");
        }
        let config_maps: Api<ConfigMap> = namespace.api();
        let ours = ListParams::default().labels("longshore.dev/server=demo");
        let map = config_maps.list(&ours).await.unwrap().items.pop().unwrap().name_any();
        let spec = format!("{{source: {{envFrom: [{{configMapRef: {{name: {map}, optional: true}}}}]}}}}");
        namespace.apply(&server(&spec)).await;
        let message = wait_for(namespace, "Accepted", "False", "ConfigMapReserved").await;
        assert!(
            message.contains(&format!("ConfigMap {}/{map} is Longshore's own", namespace.name())),
            "{message}"
        );
    });
}
