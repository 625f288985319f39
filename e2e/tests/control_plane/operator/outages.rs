//! The API server goes away, and comes back.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use longshore_e2e::cluster::{Cluster, Component, Shape};
use longshore_e2e::testing::{Kind, Room};

use super::LEAST;
use super::stand::{Operator, install, until};

#[test]
fn an_api_server_that_was_away_is_served_again() {
    let _room = Room::take(Kind::Cluster);
    let cluster = Cluster::start(Shape::ControlPlane).unwrap();
    install(&cluster).unwrap();
    cluster
        .block_on(async || {
            let mut operator = Operator::start_in(&cluster, "default");
            until("the operator leads", || operator.leads()).await;
            // Longer than the operator waits for its lease: it ends, as it must, and Kubernetes starts it again.
            cluster.kill(Component::ApiServer).await.unwrap();
            until("the operator gives up its lease", || operator.has_ended()).await;
            assert!(operator.log().contains("the lease could not be renewed"), "{}", operator.log());
            let operator = operator.another();
            tokio::time::sleep(Duration::from_secs(2)).await;
            cluster.revive(Component::ApiServer).await.unwrap();
            until("the operator leads again", || operator.leads()).await;
            apply_least(&cluster).await;

            // And shorter: it goes on.
            let mut operator = operator;
            cluster.kill(Component::ApiServer).await.unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await;
            cluster.revive(Component::ApiServer).await.unwrap();
            let services: Api<Service> = Api::namespaced(cluster.client().await.unwrap(), "default");
            services.delete("demo", &Default::default()).await.unwrap();
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while services.get_opt("demo").await.unwrap().is_none() {
                assert!(std::time::Instant::now() < deadline, "{}", operator.log());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert!(!operator.has_ended());
        })
        .unwrap();
}

async fn apply_least(cluster: &Cluster) {
    let client = cluster.client().await.unwrap();
    let servers: Api<longshore_crds::McpServer> = Api::namespaced(client.clone(), "default");
    let server = serde_json::from_str(&LEAST).unwrap();
    servers.create(&Default::default(), &server).await.unwrap();
    let services: Api<Service> = Api::namespaced(client, "default");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while services.get_opt("demo").await.unwrap().is_none() {
        assert!(std::time::Instant::now() < deadline, "no Service was made");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
