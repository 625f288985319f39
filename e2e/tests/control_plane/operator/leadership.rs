//! Several operators: one acts, and another takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_e2e::cluster::{Cluster, Component, Shape};
use longshore_e2e::longshore::NAMESPACE;
use longshore_e2e::testing::{Kind, Namespace, Room, eventually};
use serde_json::Value;

use super::stand::{
    ADA, NEXT_SIDECAR, Operator, Request, apply_keys, audit_lines, condition, give_back, has_key, install,
    is, permit_only, ready, requests, until, wait_for, wait_until_refused,
};
use super::{KEYED, LEAST, STAGE, server};

#[test]
fn one_acts_and_another_takes_over_at_once_when_it_is_asked_to_end() {
    STAGE.with_namespace(async |namespace| {
        let mut first = Operator::start(namespace);
        until("the first operator leads", || first.leads()).await;
        let mut second = Operator::start(namespace);
        until("the second waits to be elected", || second.log().contains("waiting to be elected")).await;
        namespace.apply(&LEAST).await;
        let deployments: Api<Deployment> = namespace.api();
        let made = namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        assert!(!second.leads(), "two operators act");
        let leads = async |operator: &Operator| {
            let metrics = operator.metrics().await;
            let count = metrics.lines().find_map(|line| line.strip_prefix("longshore_leader "));
            count.unwrap_or_else(|| panic!("{metrics}")).to_owned()
        };
        assert_eq!((leads(&first).await, leads(&second).await), ("1".to_owned(), "0".to_owned()));

        let leases: Api<Lease> = Api::namespaced(namespace.client(), NAMESPACE);
        let holder = async || {
            let lease = leases.get(namespace.name()).await.unwrap();
            lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
        };
        let before = holder().await;
        let stopped = Instant::now();
        assert!(first.stop(), "{}", first.log());
        assert_ne!(holder().await, before, "nobody released it");
        until("the second operator leads", || second.leads()).await;
        // It looks every 2 s, and would leave another's lease alone for 15 s since it last changed.
        let took = stopped.elapsed();
        assert!(took < Duration::from_secs(14), "a released lease was taken after {took:?}");
        assert_eq!(leads(&second).await, "1");
        namespace.apply(&server("{source: {image: 'registry.invalid/demo:2'}}")).await;
        let changed = namespace
            .wait(&deployments, "demo", "to change", |it| it.metadata.generation > made.metadata.generation)
            .await;
        assert_eq!(
            (changed.uid(), changed.metadata.generation),
            (made.uid(), Some(2)),
            "nothing is done twice"
        );
        assert!(second.stop(), "{}", second.log());
    });
}

#[test]
fn a_dead_leaders_work_is_taken_over_when_its_lease_has_run_out() {
    STAGE.with_namespace(async |namespace| {
        let mut first = Operator::start(namespace);
        until("the first operator leads", || first.leads()).await;
        let second = Operator::start(namespace);
        until("the second waits to be elected", || second.log().contains("waiting to be elected")).await;
        first.kill();
        namespace.apply(&LEAST).await;
        until("the second operator leads", || second.leads()).await;
        let services: Api<Service> = namespace.api();
        namespace.wait(&services, "demo", "to be made", |_| true).await;
    });
}

/// A standby may wait for longer than the cluster signs its tokens with one key.
#[test]
fn whoever_takes_over_knows_the_keys_that_tokens_are_signed_with_by_then() {
    let _room = Room::take(Kind::Cluster);
    let cluster = Cluster::start(Shape::ControlPlane).unwrap();
    install(&cluster).unwrap();
    cluster
        .block_on(async || {
            let mut first = Operator::start_in(&cluster, "default");
            until("the first operator leads", || first.leads()).await;
            let second = first.another();
            until("the second waits to be elected", || second.log().contains("waiting to be elected")).await;
            cluster.kill(Component::ApiServer).await.unwrap();
            first.kill();
            cluster.spec().unwrap().add_account_key().unwrap();
            cluster.revive(Component::ApiServer).await.unwrap();
            until("the second operator leads", || second.leads()).await;
            let client = cluster.client().await.unwrap();
            let servers: Api<McpServer> = Api::namespaced(client.clone(), "default");
            servers.create(&PostParams::default(), &serde_json::from_str(&LEAST).unwrap()).await.unwrap();
            let config_maps: Api<ConfigMap> = Api::namespaced(client, "default");
            let list = ListParams::default().labels("longshore.dev/server=demo");
            let made = eventually("the configuration is made", async || {
                config_maps.list(&list).await.unwrap().items.pop().ok_or("there is none")
            });
            let config: Value = serde_json::from_str(&made.await.data.unwrap()["config.json"]).unwrap();
            assert_eq!(config["inventory"]["jwks"]["keys"].as_array().unwrap().len(), 2);
        })
        .unwrap();
}

#[test]
fn an_operator_that_is_killed_at_any_step_of_making_a_server_leaves_what_the_next_finishes() {
    // Once for all rounds, which would wait for it each.
    let room = Room::take_first(Kind::Objects);
    let mut finished: Option<BTreeSet<String>> = None;
    for unwritten in [
        "secrets",
        "configmaps",
        "serviceaccounts",
        "services",
        "networkpolicies",
        "poddisruptionbudgets",
        "deployments",
        "mcpservers/status",
    ] {
        STAGE.with_namespace_and_room(&room, async |namespace| {
            let (cluster, here) = (namespace.cluster(), namespace.name());
            let from = audit_lines(cluster);
            // It dies before it has written this; all else is written that does not come after.
            let mut operator = Operator::without(namespace, "patch", unwritten);
            namespace.apply(&server("{replicas: 2}")).await;
            let is_refused = |request: &Request| request.resource == unwritten && request.code == 403;
            until(&format!("{unwritten} are refused"), || {
                requests(cluster, here, from).iter().any(is_refused)
            })
            .await;
            operator.kill();
            let before = made(namespace).await;
            give_back(namespace);
            forget_leader(namespace);
            let _next = Operator::start(namespace);
            wait_for(namespace, "Accepted", "True", "Accepted").await;
            let deployments: Api<Deployment> = namespace.api();
            let deployment = namespace.wait(&deployments, "demo", "to be made", |_| true).await;
            assert_eq!(deployment.metadata.generation, Some(1), "{unwritten}: written once");
            let after = made(namespace).await;
            for (object, was) in &before {
                assert_eq!(after.get(object), Some(was), "{unwritten}: {object} is another");
            }
            let names: BTreeSet<String> = after.into_keys().collect();
            assert_eq!(&names, finished.get_or_insert(names.clone()), "{unwritten}");
        });
    }
}

/// Has the next operator not wait for the lease of one that died. It is held by name: the same pod comes back under its own,
/// here under another.
pub(super) fn forget_leader(namespace: &Namespace<'_>) {
    let lease = ["delete", "lease", namespace.name(), "--namespace", NAMESPACE];
    let done = namespace.command("kubectl").args(lease).output().unwrap();
    assert!(done.status.success(), "the lease is not deleted: {}", String::from_utf8_lossy(&done.stderr));
}

/// What is there that belongs to a server, by kind and name: each object's id, and what it holds.
async fn made(namespace: &Namespace<'_>) -> BTreeMap<String, (Value, Value)> {
    const KINDS: &str =
        "secrets,configmaps,serviceaccounts,services,networkpolicies,poddisruptionbudgets,deployments";
    let list = ["get", KINDS, "-l", "longshore.dev/server=demo", "-o", "json"];
    let list: Value = serde_json::from_str(&namespace.kubectl(&list).await.unwrap()).unwrap();
    let objects = list["items"].as_array().unwrap().iter();
    let key = |it: &Value| format!("{} {}", it["kind"], it["metadata"]["name"]);
    objects.map(|it| (key(it), (it["metadata"]["uid"].clone(), it["data"].clone()))).collect()
}

#[test]
fn an_operator_that_is_killed_while_it_changes_a_server_leaves_nothing_that_the_next_cannot_finish() {
    STAGE.with_namespace(async |namespace| {
        let deployments: Api<Deployment> = namespace.api();
        let mut operator = Operator::start(namespace);
        until("the operator leads", || operator.leads()).await;
        // Where in its work it dies is a matter of milliseconds: each round another moment.
        for round in 1..=6_u64 {
            namespace
                .apply(&server(&format!("{{source: {{image: 'registry.invalid/demo:{round}'}}}}")))
                .await;
            tokio::time::sleep(Duration::from_millis(round * 7)).await;
            operator.kill();
            forget_leader(namespace);
            operator = Operator::start(namespace);
            let image = format!("registry.invalid/demo:{round}");
            namespace
                .wait(&deployments, "demo", &format!("to run {image}"), |deployment| {
                    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
                    pod.is_some_and(|pod| pod.containers.iter().any(|it| it.image.as_deref() == Some(&image)))
                })
                .await;
        }
        let deployment = deployments.get("demo").await.unwrap();
        assert_eq!(deployment.metadata.generation, Some(6), "each image once");
    });
}

/// Servers that have their Deployments, by name.
async fn three_servers(namespace: &Namespace<'_>, deployments: &Api<Deployment>) -> [&'static str; 3] {
    let names = ["one", "two", "three"];
    for name in names {
        namespace.apply(&LEAST.replace("demo", name)).await;
        namespace.wait(deployments, name, "to be made", |_| true).await;
    }
    names
}

#[test]
fn a_new_release_replaces_the_pods_of_so_many_servers_at_a_time() {
    STAGE.with_namespace(async |namespace| {
        let deployments: Api<Deployment> = namespace.api();
        let mut before = Operator::start(namespace);
        let names = three_servers(namespace, &deployments).await;
        // Something is wrong with its keys, which keeps no pods from being made: they are there.
        apply_keys(namespace, "{ada: a-key-that-is-long-enough, bob: short}").await;
        namespace.apply(&KEYED.replace("demo", "two")).await;
        let servers: Api<McpServer> = namespace.api();
        let has_flaw = |server: &McpServer| is(server, "Accepted", "False", "InvalidKeys");
        namespace.wait(&servers, "two", "to have a key that is none", has_flaw).await;
        // It has no pods to replace.
        let asleep = "a-server-that-is-scaled-to-zero";
        namespace.apply(&server("{replicas: 0}").replace("demo", asleep)).await;
        namespace.wait(&deployments, asleep, "to be made", |_| true).await;
        // Its owner has changed it, and something is missing for that.
        let late = "late";
        namespace.apply(&LEAST.replace("demo", late)).await;
        namespace.wait(&deployments, late, "to be made", |_| true).await;
        let needs = "{source: {env: [{name: T, valueFrom: {secretKeyRef: {name: token, key: value}}}]}}";
        namespace.apply(&server(needs).replace("demo", late)).await;
        let lacks = |server: &McpServer| condition(server, "Accepted").is_some_and(|it| it.status == "False");
        namespace.wait(&servers, late, "to lack a Secret", lacks).await;
        assert!(before.stop());

        let mut after = Operator::of_the_next_release(namespace, "1");
        namespace.wait(&deployments, asleep, "to be upgraded", is_upgraded).await;
        let upgraded = async || {
            let list = deployments.list(&Default::default()).await.unwrap().items;
            let upgraded = list.into_iter().filter(is_upgraded);
            upgraded.map(|deployment| deployment.name_any()).filter(|name| name != asleep).collect::<Vec<_>>()
        };
        let first = eventually("one server is upgraded", async || match &*upgraded().await {
            [first] => Ok(first.clone()),
            others => Err(others.len()),
        })
        .await;
        // Nothing serves here, so nobody else's turn comes while that one is there.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(upgraded().await, std::slice::from_ref(&first));
        // And another operator knows whose turn it is.
        assert!(after.stop(), "{}", after.log());
        let after = Operator::of_the_next_release(namespace, "1");
        until("the next operator has looked at all of them", || {
            names.iter().chain(&[asleep, late]).all(|name| after.looks(name) > 0)
        })
        .await;
        assert_eq!(upgraded().await, std::slice::from_ref(&first));
        // Whoever scales a server that waits gets more of its pods.
        let scaled = *names.iter().rfind(|name| **name != first).unwrap();
        namespace.kubectl(&["scale", "lmcp", scaled, "--replicas=2"]).await.unwrap();
        let has_two = |it: &Deployment| it.spec.as_ref().and_then(|spec| spec.replicas) == Some(2);
        namespace.wait(&deployments, scaled, "to be scaled", has_two).await;
        assert_eq!(upgraded().await, std::slice::from_ref(&first));
        // What it lacked was there late, and it is a change all the same.
        let token = "{apiVersion: v1, kind: Secret, metadata: {name: token}, stringData: {value: x}}";
        namespace.apply(token).await;
        namespace.wait(&deployments, late, "to change", is_upgraded).await;
        assert_eq!(upgraded().await.len(), 2);
        // Its owner may change a server at any time.
        let waiting = *names.iter().find(|name| **name != first).unwrap();
        namespace.apply(&server("{source: {args: [more]}}").replace("demo", waiting)).await;
        namespace.wait(&deployments, waiting, "to change", is_upgraded).await;
        assert_eq!(upgraded().await.len(), 3);
        // With the first one gone it is the next one's turn.
        namespace.kubectl(&["delete", "mcpserver", &first]).await.unwrap();
        let last = *names.iter().find(|name| **name != first && **name != waiting).unwrap();
        namespace.wait(&deployments, last, "to be upgraded", is_upgraded).await;
    });
}

/// Whether a server has the pods of the next release.
fn is_upgraded(deployment: &Deployment) -> bool {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod.is_some_and(|pod| pod.containers.iter().any(|it| it.image.as_deref() == Some(NEXT_SIDECAR)))
}

/// As where somebody was faster than the operator, or a webhook was down for a while.
#[test]
fn what_failed_and_has_passed_is_not_said_of_a_server_that_waits_for_its_upgrade() {
    STAGE.with_namespace(async |namespace| {
        let (servers, deployments): (Api<McpServer>, Api<Deployment>) = (namespace.api(), namespace.api());
        let mut before = Operator::start(namespace);
        apply_keys(namespace, ADA).await;
        let is_accepted = |server: &McpServer| is(server, "Accepted", "True", "Accepted");
        for name in ["one", "two"] {
            namespace.apply(&KEYED.replace("demo", name)).await;
            namespace.wait(&deployments, name, "to be made", |_| true).await;
            namespace.wait(&servers, name, "to be accepted", is_accepted).await;
        }
        assert!(before.stop());
        let _after = Operator::of_the_next_release(namespace, "1");
        let first = eventually("one is upgraded", async || {
            let list = deployments.list(&Default::default()).await.unwrap().items;
            list.into_iter().find(is_upgraded).map(|it| it.name_any()).ok_or("none is")
        })
        .await;
        // Nothing serves here, so its turn does not come while this goes on.
        let waiting = if first == "one" { "two" } else { "one" };
        let keys = format!("{waiting}-longshore-keys");
        let [kinds, policy] =
            permit_only(namespace, "secrets", &format!("object.metadata.name != '{keys}'")).await;
        wait_until_refused(namespace, &["annotate", "secret", &keys, "example.com/x=y", "--dry-run=server"])
            .await;
        apply_keys(namespace, "{bob: another-key-that-is-long}").await;
        let is_refused = |server: &McpServer| is(server, "Accepted", "False", "Rejected");
        namespace.wait(&servers, waiting, "to be refused its keys", is_refused).await;
        namespace.kubectl(&["delete", &kinds, &policy]).await.unwrap();
        let secrets: Api<Secret> = namespace.api();
        namespace.wait(&secrets, &keys, "to have Bob's key", |secret| has_key(secret, "bob")).await;
        let waits = async || !is_upgraded(&deployments.get(waiting).await.unwrap());
        assert!(waits().await);
        namespace.wait(&servers, waiting, "to be accepted again", is_accepted).await;
        assert!(waits().await);

        // A change of its owner does not wait, but it is refused, and its owner takes it back.
        let others = "!object.spec.template.spec.containers.exists(it, has(it.args) && 'more' in it.args)";
        permit_only(namespace, "apps/deployments", others).await;
        let patch = r#"[{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["more"]}]"#;
        let change = ["patch", "deployment", waiting, "--type=json", "-p", patch, "--dry-run=server"];
        wait_until_refused(namespace, &change).await;
        let manifest = |source: &str| {
            let auth = "auth: {none: null, apiKeys: {secretRef: {name: keys}}}";
            server(&format!("{{{auth}, source: {source}}}")).replace("demo", waiting)
        };
        namespace.apply(&manifest("{args: [more]}")).await;
        namespace.wait(&servers, waiting, "to be refused its change", is_refused).await;
        namespace.apply(&manifest("{}")).await;
        namespace.wait(&servers, waiting, "to be accepted as it was", is_accepted).await;
        assert!(waits().await);
    });
}

/// As where a node is drained, and the operator's pod with it.
#[test]
fn a_change_that_is_refused_is_no_upgrade_to_whoever_takes_over() {
    STAGE.with_namespace(async |namespace| {
        let (mut operator, node, _pod) = ready(namespace).await;
        let others = "!object.spec.template.spec.containers.exists(it, has(it.args) && 'more' in it.args)";
        permit_only(namespace, "apps/deployments", others).await;
        let patch = r#"[{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["more"]}]"#;
        let change = ["patch", "deployment", "demo", "--type=json", "-p", patch, "--dry-run=server"];
        wait_until_refused(namespace, &change).await;
        namespace.apply(&server("{source: {args: [more]}}")).await;
        let servers: Api<McpServer> = namespace.api();
        let is_of_before = |server: &McpServer| {
            let ready = condition(server, "Ready").unwrap();
            let accepted = condition(server, "Accepted").unwrap();
            (&*ready.status, &*ready.reason, ready.observed_generation)
                == ("True", "ServingPrevious", Some(1))
                && accepted.reason == "Rejected"
                && !accepted.message.contains("upgrade")
        };
        namespace.wait(&servers, "demo", "to be refused its change", is_of_before).await;
        assert!(operator.stop(), "{}", operator.log());

        let asked = node.asked();
        let next = operator.another();
        until("the next operator has heard of the pod", || node.asked() > asked).await;
        next.looks_again("demo", next.looks("demo")).await;
        let server = servers.get("demo").await.unwrap();
        assert!(is_of_before(&server), "{:?}", server.status);
    });
}

/// As where a policy of the cluster knows nothing of the new sidecar's image.
#[test]
fn a_server_whose_new_pods_are_refused_keeps_no_other_waiting() {
    STAGE.with_namespace(async |namespace| {
        let deployments: Api<Deployment> = namespace.api();
        let mut before = Operator::start(namespace);
        let names = three_servers(namespace, &deployments).await;
        assert!(before.stop());
        let others = format!("object.spec.template.spec.containers.all(it, it.image != '{NEXT_SIDECAR}')");
        let [kinds, policy] = permit_only(namespace, "apps/deployments", &others).await;
        let image = format!("longshore-sidecar={NEXT_SIDECAR}");
        wait_until_refused(namespace, &["set", "image", "deployment/one", &image, "--dry-run=server"]).await;

        let after = Operator::of_the_next_release(namespace, "1");
        until("the next operator leads", || after.leads()).await;
        let began = Instant::now();
        let servers: Api<McpServer> = namespace.api();
        let is_refused = |server: &McpServer| is(server, "Accepted", "False", "Rejected");
        let refused = async |servers: &Api<McpServer>| {
            let list = servers.list(&Default::default()).await.unwrap().items;
            list.iter().filter(|server| is_refused(server)).count()
        };
        for name in names {
            namespace.wait(&servers, name, "to be refused its pods", is_refused).await;
        }
        // A turn ends by itself after two minutes.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(100), "the last one had its turn after {took:?}");
        let counts = async |count: usize| {
            let line = format!("longshore_upgrades{{state=\"refused\"}} {count}");
            let metrics = after.metrics().await;
            if metrics.lines().any(|it| it == line) { Ok(()) } else { Err(metrics) }
        };
        eventually("all are counted", async || counts(3).await).await;
        namespace.kubectl(&["delete", &kinds, &policy]).await.unwrap();
        // Nothing serves here, so nobody else's turn comes while one is there, also of those that had one in vain.
        let upgraded = async || {
            let list = deployments.list(&Default::default()).await.unwrap().items;
            list.into_iter().filter(is_upgraded).count()
        };
        eventually("they are permitted", async || {
            let set = ["set", "image", "deployment/one", &image, "--dry-run=server"];
            namespace.kubectl(&set).await.map_err(|error| error.to_string())
        })
        .await;
        // Each is looked at again for what it lacks now.
        namespace.kubectl(&[&["delete", "service"], &names[..]].concat()).await.unwrap();
        let services: Api<Service> = namespace.api();
        for name in names {
            namespace.wait(&services, name, "to be there again", |_| true).await;
        }
        eventually("one is upgraded", async || match upgraded().await {
            0 => Err("none is".to_owned()),
            _ => Ok(()),
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(upgraded().await, 1);
        eventually("that is said of the others still", async || match refused(&servers).await {
            2 => Ok(()),
            count => Err(count),
        })
        .await;
        eventually("and they are counted", async || counts(2).await).await;
    });
}
