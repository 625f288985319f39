//! The API server goes away, and comes back.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::Api;
use kube::api::Patch;
use longshore::PAGE;
use longshore_crds::McpServer;
use longshore_e2e::cluster::{Cluster, Component, Shape};
use longshore_e2e::testing::{Kind, Room, eventually};
use serde_json::{Value, json};

use super::line::Line;
use super::stand::{
    ADA, Operator, account_with, apply_keys, give_back, has_key, install, kubeconfig_of, take_away, until,
};
use super::{KEYED, LEAST, STAGE, server};

/// For longer than the operator waits for its lease: it ends, as it must, and Kubernetes starts it again.
#[test]
fn an_api_server_that_was_away_is_served_again() {
    let _room = Room::take(Kind::Cluster);
    let cluster = Cluster::start(Shape::ControlPlane).unwrap();
    install(&cluster).unwrap();
    cluster
        .block_on(async || {
            let mut operator = Operator::start_in(&cluster, "default");
            until("the operator leads", || operator.leads()).await;
            cluster.kill(Component::ApiServer).await.unwrap();
            until("the operator gives up its lease", || operator.has_ended()).await;
            assert!(operator.log().contains("the lease could not be renewed"), "{}", operator.log());
            let operator = operator.another();
            tokio::time::sleep(Duration::from_secs(2)).await;
            cluster.revive(Component::ApiServer).await.unwrap();
            until("the operator leads again", || operator.leads()).await;
            let client = cluster.client().await.unwrap();
            let servers: Api<McpServer> = Api::namespaced(client.clone(), "default");
            servers.create(&Default::default(), &serde_json::from_str(&LEAST).unwrap()).await.unwrap();
            is_made(&Api::namespaced(client, "default")).await;
        })
        .unwrap();
}

/// And shorter: it goes on, and mends what happened meanwhile. It gives up its lease 10 s after it last renewed it, which
/// it does every 2 s: as soon as it has found out that it cannot, it can again.
#[test]
fn what_changed_while_the_api_server_was_out_of_reach_is_mended() {
    STAGE.with_namespace(async |namespace| {
        let line = Line::to(&kubeconfig_of(namespace.cluster(), "longshore")).await;
        let mut operator = Operator::by_way_of(line.kubeconfig(), namespace);
        until("the operator leads", || operator.leads()).await;
        namespace.apply(&LEAST).await;
        let services = namespace.api::<Service>();
        let before = is_made(&services).await;

        line.cut();
        services.delete("demo", &Default::default()).await.unwrap();
        let in_vain = "cannot renew the lease, trying again";
        until("the operator misses its lease", || operator.log().contains(in_vain)).await;
        line.mend();
        assert_ne!(is_made(&services).await, before);
        assert!(!operator.has_ended(), "{}", operator.log());
    });
}

/// No watch shows that it was there, and none that it has gone.
#[test]
fn what_goes_before_it_was_ever_seen_is_made_again() {
    STAGE.with_namespace(async |namespace| {
        let line = Line::to(&account_with(namespace, "clusterrole=longshore")).await;
        let operator = Operator::by_way_of(line.kubeconfig(), namespace);
        until("the operator reconciles", || operator.log().contains("caches filled; reconciling")).await;
        take_away(namespace, "list", "services");
        line.cut();
        until("the watches end", || operator.log().contains("a watch failed")).await;
        line.mend();
        until("Services are not seen", || operator.log().contains("services is forbidden")).await;

        namespace.apply(&LEAST).await;
        let services = namespace.api::<Service>();
        let before = is_made(&services).await;
        // It is applied after everything else.
        namespace.wait(&namespace.api::<Deployment>(), "demo", "to be made", |_| true).await;
        services.delete("demo", &Default::default()).await.unwrap();
        give_back(namespace);
        assert_ne!(is_made(&services).await, before);
    });
}

/// The operator lists all servers anew, on several pages: those on the first are known before the last one is there.
#[test]
fn a_manifest_that_changed_while_the_api_server_was_out_of_reach_is_followed_though_there_are_many() {
    STAGE.with_namespace(async |namespace| {
        let line = Line::to(&kubeconfig_of(namespace.cluster(), "longshore")).await;
        let operator = Operator::by_way_of(line.kubeconfig(), namespace);
        until("the operator leads", || operator.leads()).await;
        // None is to have any objects, and nothing else happens that would make the operator look again.
        let named = |name: &str, more: &str| -> Value {
            let spec = format!("{{auth: {{none: null, apiKeys: {{secretRef: {{name: missing}}}}}}{more}}}");
            let mut server: Value = serde_json::from_str(&server(&spec)).unwrap();
            server["metadata"]["name"] = json!(name);
            server
        };
        let names = (0..PAGE + 10).map(|number| format!("filler-{number}")).chain(["demo".to_owned()]);
        let names: Vec<_> = names.collect();
        let items: Vec<_> = names.iter().map(|name| named(name, "")).collect();
        namespace.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await;
        let servers = namespace.api::<McpServer>();
        let is_observed = |generation: i64| {
            move |it: &McpServer| {
                it.status.as_ref().and_then(|status| status.observed_generation) == Some(generation)
            }
        };
        for name in &names {
            namespace.wait(&servers, name, "to be looked at", is_observed(1)).await;
        }

        let another = serde_json::from_value(named("another", "")).unwrap();
        let owner = Patch::Merge(json!({"spec": {"catalog": {"owner": "somebody else"}}}));
        // It gives up its lease after 10 s, so this is not what kubectl does, which takes its time to start.
        line.cut();
        servers.patch("demo", &Default::default(), &owner).await.unwrap();
        servers.create(&Default::default(), &another).await.unwrap();
        line.mend();
        namespace.wait(&servers, "demo", "to be looked at again", is_observed(2)).await;
        namespace.wait(&servers, "another", "to be looked at", is_observed(1)).await;
    });
}

/// One of several API servers is lost and no connection to it ends: some watches were there, and the lease is elsewhere.
#[test]
fn a_key_is_revoked_although_every_watch_has_fallen_silent() {
    STAGE.with_namespace_first(async |namespace| {
        let line = Line::to(&kubeconfig_of(namespace.cluster(), "longshore")).await;
        let mut operator = Operator::by_way_of(line.kubeconfig(), namespace);
        until("the operator leads", || operator.leads()).await;
        apply_keys(namespace, ADA).await;
        namespace.apply(&KEYED).await;
        let secrets = namespace.api::<Secret>();
        let has_ada = |secret: &Secret| has_key(secret, "ada");
        namespace.wait(&secrets, "demo-longshore-keys", "to hold ada's key", has_ada).await;

        // What was under way has ended.
        tokio::time::sleep(Duration::from_secs(6)).await;
        line.lose_those_that_are_idle().await;
        let lost = Instant::now();
        namespace.kubectl(&["delete", "secret", "keys"]).await.unwrap();
        while has_ada(&secrets.get("demo-longshore-keys").await.unwrap()) {
            // A dead connection is noticed after 24 seconds, and `kube` by itself would do so after 295.
            assert!(lost.elapsed() < Duration::from_secs(150), "the key still works");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        eprintln!("a key was revoked {:?} after the watches had fallen silent", lost.elapsed());
        assert!(!operator.has_ended(), "{}", operator.log());
    });
}

/// Waits for the server's Service, and returns its UID.
async fn is_made(services: &Api<Service>) -> Option<String> {
    eventually("a Service is made", async || services.get_opt("demo").await.unwrap().ok_or("there is none"))
        .await
        .metadata
        .uid
}
