//! Session keys: made once, kept, rotated when asked, and made anew when they are lost.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::{Value, json};

use super::node::{Node, configuration};
use super::stand::{Operator, events, give_back, ready, until, wait_for, wait_for_events};
use super::{STAGE, server};

const SECRET: &str = "demo-longshore-keys";

/// The session keys in a Secret: numbers and bytes.
fn keys(secret: &Secret) -> Option<Vec<(u64, String)>> {
    let file: Value = serde_json::from_slice(&secret.data.as_ref()?.get("keys.json")?.0).ok()?;
    let keys = file["sessions"].as_array()?.iter();
    keys.map(|key| Some((key["id"].as_u64()?, key["secret"].as_str()?.to_owned()))).collect()
}

/// Waits until the Secret has so many keys, and none of those in `not`.
async fn wait_for_keys(namespace: &Namespace<'_>, count: usize, not: &[(u64, String)]) -> Vec<(u64, String)> {
    let secrets: Api<Secret> = namespace.api();
    let what = format!("to have {count} keys");
    let is_so = |secret: &Secret| {
        keys(secret).is_some_and(|keys| keys.len() == count && !keys.iter().any(|key| not.contains(key)))
    };
    keys(&namespace.wait(&secrets, SECRET, &what, is_so).await).unwrap()
}

/// The number of the key that sidecars are told to seal with.
async fn seals_with(namespace: &Namespace<'_>) -> u64 {
    let config: Value = serde_json::from_str(&configuration(namespace).await).unwrap();
    config["sessions"]["sealWith"].as_u64().unwrap()
}

/// Waits until sidecars are told something else than this.
async fn changed(namespace: &Namespace<'_>, before: &str) {
    eventually("the configuration changes", async || {
        (configuration(namespace).await != before).then_some(()).ok_or("it does not")
    })
    .await;
}

#[test]
fn a_key_outlives_operators_and_another_follows_when_every_pod_knows_it() {
    STAGE.with_namespace(async |namespace| {
        let mut operator = Operator::start(namespace);
        // The pods are on two nodes, so that each sidecar loads its configuration when it will.
        let nodes = [Node::start().await, Node::start().await];
        namespace.apply(&server("{replicas: 2}")).await;
        let pods = nodes[0].find_pods(namespace, 2).await;
        for (node, pod) in nodes.iter().zip(&pods) {
            node.run(namespace, pod).await;
            node.load_configuration(namespace).await;
        }
        wait_for(namespace, "Ready", "True", "Ready").await;
        let first = wait_for_keys(namespace, 1, &[]).await;
        assert_eq!((first[0].0, first[0].1.len()), (seals_with(namespace).await, 64));

        // An operator that comes after reads what is there.
        assert!(operator.stop());
        let operator = Operator::start(namespace);
        until("the operator leads", || operator.leads()).await;
        namespace.apply(&server("{replicas: 2, sessions: {total: 77}}")).await;
        eventually("the configuration changes", async || {
            configuration(namespace).await.contains("\"total\":77").then_some(()).ok_or("it does not")
        })
        .await;
        assert_eq!(wait_for_keys(namespace, 1, &[]).await, first);

        // Its owner asks for another. The sidecars have not loaded the newest configuration: nothing moves.
        let ask = |wish: &str| format!("longshore.dev/rotate-session-keys={wish}");
        let looks = operator.looks("demo");
        namespace.kubectl(&["annotate", "lmcp", "demo", &ask("one")]).await.unwrap();
        operator.looks_again("demo", looks).await;
        let looks = operator.looks("demo");
        nodes[0].load_configuration(namespace).await;
        operator.looks_again("demo", looks).await;
        assert_eq!(wait_for_keys(namespace, 1, &[]).await, first, "one of two pods runs the configuration");
        let known = configuration(namespace).await;
        nodes[1].load_configuration(namespace).await;
        let both = wait_for_keys(namespace, 2, &[]).await;
        assert_eq!(both[0], first[0]);
        assert_eq!(seals_with(namespace).await, first[0].0, "no pod knows the new key yet");
        // The ConfigMap follows the Secret.
        changed(namespace, &known).await;
        let looks = operator.looks("demo");
        nodes[0].load_configuration(namespace).await;
        operator.looks_again("demo", looks).await;
        assert_eq!(seals_with(namespace).await, first[0].0, "one of two pods knows the new key");
        nodes[1].load_configuration(namespace).await;
        eventually("the new key seals", async || {
            (seals_with(namespace).await == both[1].0).then_some(()).ok_or("it does not")
        })
        .await;
        assert_eq!(
            wait_for_keys(namespace, 2, &[]).await,
            both,
            "the one before is accepted for as long as sessions live"
        );
        // Some pods may seal with it until all have loaded that they should not, and only then its time runs.
        let secrets: Api<Secret> = namespace.api();
        let has_retired = |secret: &Secret| {
            let story =
                secret.metadata.annotations.as_ref().and_then(|all| all.get("longshore.dev/session-keys"));
            story.is_some_and(|story| story.contains("retired"))
        };
        let looks = operator.looks("demo");
        nodes[0].load_configuration(namespace).await;
        operator.looks_again("demo", looks).await;
        assert!(!has_retired(&secrets.get(SECRET).await.unwrap()), "one of two pods seals with the old key");
        nodes[1].load_configuration(namespace).await;
        namespace.wait(&secrets, SECRET, "to say since when the old key seals nothing", has_retired).await;
        let told = wait_for_events(namespace, "SessionKeyRotated", 1).await;
        assert!(told.len() == 1 && told[0].contains(&format!("key {}", both[1].0)), "{told:?}");
        let log = operator.log();
        assert!(both.iter().all(|(_, secret)| !log.contains(secret.as_str())), "a key is in the log");
    });
}

/// Whoever deletes them because they leaked must not get them back.
#[test]
fn keys_that_were_read_and_never_applied_do_not_come_back() {
    STAGE.with_namespace(async |namespace| {
        let (mut before, _node, _pod) = ready(namespace).await;
        let leaked = wait_for_keys(namespace, 1, &[]).await;
        assert!(before.stop());

        let _operator = Operator::without(namespace, "patch", "secrets");
        wait_for(namespace, "Accepted", "False", "Rejected").await;
        namespace.api::<Secret>().delete(SECRET, &DeleteParams::default()).await.unwrap();
        let told = wait_for_events(namespace, "SessionKeysReplaced", 1).await;
        assert!(told.iter().any(|message| message.contains("it was deleted")), "{told:?}");
        give_back(namespace);
        wait_for_keys(namespace, 1, &leaked).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        assert_eq!(wait_for_events(namespace, "SessionKeysReplaced", 1).await.len(), 1);
    });
}

#[test]
fn keys_that_are_lost_are_made_anew_and_it_is_said() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, node, _pod) = ready(namespace).await;
        let mut gone = wait_for_keys(namespace, 1, &[]).await;
        assert_eq!(
            events(namespace, "SessionKeysReplaced").await,
            Vec::<String>::new(),
            "the first are no others"
        );
        let secrets: Api<Secret> = namespace.api();

        // Their story is lost, and they are not.
        let patch = |patch: Value| Patch::Merge(patch);
        let without = patch(json!({"metadata": {"annotations": {"longshore.dev/session-keys": null}}}));
        secrets.patch(SECRET, &PatchParams::default(), &without).await.unwrap();
        let has_story = |secret: &Secret| {
            secret.metadata.annotations.iter().flatten().any(|(name, _)| name == "longshore.dev/session-keys")
        };
        let mended = namespace.wait(&secrets, SECRET, "to get its annotation back", has_story).await;
        assert_eq!(keys(&mended).unwrap(), gone);

        // Somebody puts others into it, as of a copy from before, which are in force then.
        let others = json!({"keys": [], "sessions": [{"id": 9, "secret": "ab".repeat(32)}]}).to_string();
        let other = patch(json!({"stringData": {"keys.json": others}}));
        secrets.patch(SECRET, &PatchParams::default(), &other).await.unwrap();
        let told = wait_for_events(namespace, "SessionKeysReplaced", 1).await;
        assert!(told[0].contains("was given other session keys"), "{told:?}");
        gone.extend(wait_for_keys(namespace, 1, &gone).await);
        assert_eq!(gone[1], (9, "ab".repeat(32)));

        let broken = patch(json!({"stringData": {"keys.json": "{\"keys\":[],\"sessions\":[]}"}}));
        secrets.patch(SECRET, &PatchParams::default(), &broken).await.unwrap();
        gone.extend(wait_for_keys(namespace, 1, &gone).await);
        secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
        gone.extend(wait_for_keys(namespace, 1, &gone).await);
        // And while nobody looks.
        assert!(operator.stop());
        let known = configuration(namespace).await;
        secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
        let _operator = Operator::start(namespace);
        let last = wait_for_keys(namespace, 1, &gone).await;
        changed(namespace, &known).await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        assert_eq!(wait_for_keys(namespace, 1, &gone).await, last);
        let told = wait_for_events(namespace, "SessionKeysReplaced", 3).await;
        assert!(told.iter().any(|message| message.contains("it was deleted")), "{told:?}");
        assert!(told.iter().any(|message| message.contains("not as Longshore wrote them")), "{told:?}");
    });
}
