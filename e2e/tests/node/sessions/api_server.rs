//! The API server is away. On the cluster of those tests that break Longshore as a whole.

use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use longshore_e2e::cluster::Component;
use longshore_e2e::testing::{Kind, eventually};
use serde_json::json;

use super::row::{form, row_on};
use crate::faults::{SERVER, SIDECAR, connect, restarts, the_pod};
use crate::outages::{self, Operators};
use crate::server::{becomes, go_server, url_that_leads_there};

/// Nobody who calls a server notices that the API server is away; what was changed meanwhile is caught up with.
#[test]
fn servers_serve_while_the_api_server_is_away() {
    // Longer than operators wait for their lease: they have to end, and to start anew. In full, longer than nodes that
    // say nothing count as alive, too.
    let away = form(Duration::from_secs(15), Duration::from_secs(65));
    let Some(_turn) = outages::turn() else { return };
    row_on(&outages::STAGE, Kind::Cluster, "the API server away", async |namespace, row| {
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let pod = the_pod(namespace, "go").await;
        let client = connect(namespace, &server, None).await;
        let cluster = namespace.cluster();
        cluster.kill(Component::ApiServer).await.expect("the API server can be killed");
        let gone = Instant::now();
        let mut calls = 0;
        while gone.elapsed() < away {
            client
                .call("echo", json!({"text": "still there"}))
                .await
                .expect("it serves without an API server");
            calls += 1;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        cluster.revive(Component::ApiServer).await.expect("the API server comes back");
        let back = Instant::now();
        namespace.apply(&go_server("go", &[]).replace("tools: ['*']", "tools: [echo]")).await;
        // A kubelet asks an API server that is away less and less often: it may take a minute to hear of anything.
        namespace.apply(&go_server("late", &[])).await;
        let late = becomes(namespace, "late", ("Ready", "True", "Ready")).await;
        eventually("the new rules are in force", async || match client.list_tools().await {
            Ok(tools) if tools == ["echo"] => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        row.says(format!(
            "{calls} calls were served in {away:?}; a change was in force {:.1?} after the return",
            back.elapsed()
        ));
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let now = the_pod(namespace, "go").await;
        assert_eq!(now.uid(), pod.uid(), "the pod was replaced");
        assert_eq!((restarts(&now, SIDECAR), restarts(&now, SERVER)), (0, 0));
        Operators::of(namespace).available().await;
        // Who comes next finds a cluster in which every part has heard that the API server is back.
        url_that_leads_there(namespace, &late).await;
    });
}
