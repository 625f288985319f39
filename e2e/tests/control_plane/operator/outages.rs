//! The API server goes away, and comes back.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use longshore_e2e::cluster::{Cluster, Component, Shape};
use longshore_e2e::testing::{Kind, Room};

use super::LEAST;
use super::stand::{Operator, install, until};

/// What the operator outlasts in any case: it may not have renewed its lease for two seconds when the outage begins, nor
/// find out for another two that it is over.
const SHORT: Duration = Duration::from_secs(5);

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

            // And shorter: it goes on. A busy machine may take too long to start the API server again.
            let mut operator = operator;
            let mut tries_left = 5;
            while let Err(outage) = outlasts(&cluster, &mut operator).await {
                tries_left -= 1;
                assert!(outage > SHORT && tries_left > 0, "{outage:?}: {}", operator.log());
                operator = operator.another();
                until("the operator leads again", || operator.leads()).await;
            }
        })
        .unwrap();
}

/// Whether an operator goes on after a short outage, and mends what happened meanwhile; else how long that was.
async fn outlasts(cluster: &Cluster, operator: &mut Operator) -> Result<(), Duration> {
    let began = Instant::now();
    cluster.kill(Component::ApiServer).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.revive(Component::ApiServer).await.unwrap();
    let outage = began.elapsed();
    let services: Api<Service> = Api::namespaced(cluster.client().await.unwrap(), "default");
    services.delete("demo", &Default::default()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let is_mended = services.get_opt("demo").await.unwrap().is_some();
        if operator.has_ended() {
            return Err(outage);
        }
        if is_mended {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "{}", operator.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn apply_least(cluster: &Cluster) {
    let client = cluster.client().await.unwrap();
    let servers: Api<longshore_crds::McpServer> = Api::namespaced(client.clone(), "default");
    let server = serde_json::from_str(&LEAST).unwrap();
    servers.create(&Default::default(), &server).await.unwrap();
    let services: Api<Service> = Api::namespaced(client, "default");
    let deadline = Instant::now() + Duration::from_secs(60);
    while services.get_opt("demo").await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "no Service was made");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
