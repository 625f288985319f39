//! Pods that end in an orderly way, and servers that Kubernetes restarts.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, EvictParams};
use longshore_e2e::load::{Kind, Load, Plan, Report};
use longshore_e2e::testing::{eventually, kill_container};
use serde_json::json;

use super::row::{form, row};
use super::sdk::{Callers, Sdk};
use super::served::{Echo, Served, is_ready, sessions_of};
use super::streams::resuming::Resuming;
use crate::faults::{SERVER, restarts};

fn plan(served: &Served<'_>) -> Plan {
    let mut plan = served.plan(90, 24);
    plan.pause = form(Duration::from_millis(50), Duration::ZERO);
    plan
}

/// What `kubectl drain` does, without the cordon: there is no other node to go to.
#[test]
fn a_node_drain_loses_no_call() {
    row("node drain (evictions) under load", async |namespace, row| {
        let served = Served::up(namespace, Echo::http("http")).await;
        let others = form(false, true).then(|| Callers::start(namespace, &served.url));
        let load = Load::start(plan(&served)).await.expect("the sessions are opened");
        load.more(200).await;
        let pods = namespace.api::<Pod>();
        let all = served.settles().await;
        // Each calls for as long as the pods come and go, and begins at the first that goes.
        let mut heard = Vec::new();
        for sdk in Sdk::ALL {
            let arguments = json!({"count": 350, "milliseconds": 100});
            heard.push(Resuming::at(&served, &all[0], sdk, ("notify", arguments)).await);
        }
        eventually("they hear the server", async || {
            heard.iter().all(Resuming::hears).then_some(()).ok_or("not all of them")
        })
        .await;
        for pod in &all {
            // The client itself asks again while the disruption budget refuses.
            eventually("the disruption budget allows it", async || {
                pods.evict(&pod.name_any(), &EvictParams::default()).await
            })
            .await;
            let serving = served.pods().await.iter().filter(|pod| is_ready(pod)).count();
            assert!(serving >= 2, "{serving} pods serve: there is no disruption budget");
        }
        for pod in &all {
            namespace.wait_gone(&pods, &pod.name_any()).await;
        }
        served.settles().await;
        load.more(200).await;
        let report = load.stop().await;
        let what = "3 pods evicted, one after the other";
        row.saw_nothing_lost(what, &report);
        for client in heard {
            let (cuts, resumed, _) = client.heard_all(row, what);
            assert!(cuts == 0 && resumed > 0, "the sidecar ends streams, and they are taken up: {resumed}");
        }
        if let Some(others) = others {
            others.stop_with_all(row, what);
        }
    });
}

/// The kubelet restarts a server in a pod that lives: no session moves.
#[test]
fn a_failing_liveness_probe_of_the_server_loses_no_session() {
    row("failing liveness probe of the server under load", async |namespace, row| {
        let probe = json!({
            "exec": {"command": ["/echo-server", "check"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
            "timeoutSeconds": 5,
        });
        let overrides = json!({"spec": {"containers": [{"name": SERVER, "livenessProbe": probe}]}});
        let more = json!({"pod": {"overrides": overrides}});
        let served = Served::up(namespace, Echo { more, ..Echo::http("http") }).await;
        let pod = served.settles().await.remove(0);
        let others = Callers::start_at(&served, &pod).await;
        let load = Load::start(plan(&served)).await.expect("the sessions are opened");
        load.more(300).await;
        let (client, instance) = served.session_at(&pod).await;
        let theirs = sessions_of(&load, &instance);
        client.call("sicken", json!({})).await.expect("an answer");
        served.recovers(&pod, &[SERVER]).await;
        let back = load.elapsed();
        load.more(300).await;
        let now = namespace.api::<Pod>().get(&pod.name_any()).await.expect("the pod is there");
        assert_eq!(now.uid(), pod.uid());
        let report = load.stop().await;
        let what = "the server was restarted";
        row.saw(what, &report);
        only_theirs_failed(&report, &theirs, back);
        others.stop_with_answers(row, what);
    });
}

/// The hook by which a server tells its sidecar of the pod's end never runs where the server does not.
#[test]
fn a_pod_that_is_deleted_while_its_server_is_crash_looping_loses_no_session() {
    row("a pod deleted while its server is crash-looping", async |namespace, row| {
        let served = Served::up(namespace, Echo::http("http")).await;
        let pod = served.settles().await.remove(0);
        let others = Callers::start_at(&served, &pod).await;
        let load = Load::start(plan(&served)).await.expect("the sessions are opened");
        load.more(300).await;
        let (_client, instance) = served.session_at(&pod).await;
        let theirs = sessions_of(&load, &instance);
        let pods = namespace.api::<Pod>();
        eventually("the server is crash-looping", async || {
            let now = pods.get(&pod.name_any()).await.map_err(|error| error.to_string())?;
            if waits_to_restart(&now) {
                return Ok(());
            }
            Err(format!(
                "killed {}, restarted {} times",
                kill_container(&now, SERVER),
                restarts(&now, SERVER)
            ))
        })
        .await;
        pods.delete(&pod.name_any(), &DeleteParams::default()).await.expect("a pod can be deleted");
        namespace.wait_gone(&pods, &pod.name_any()).await;
        served.settles().await;
        let gone = load.elapsed();
        // From here on nothing fails any more.
        let mut after = plan(&served);
        after.calls = Some(300);
        let report = Load::start(after).await.expect("sessions are opened").finish().await;
        row.saw_nothing_lost("afterwards", &report);
        load.more(300).await;
        let report = load.stop().await;
        row.saw("throughout", &report);
        only_theirs_failed(&report, &theirs, gone);
        others.stop_with_answers(row, "throughout");
    });
}

/// No session was lost, and no call failed but of these sessions while their server was away, each with a JSON-RPC error.
fn only_theirs_failed(report: &Report, theirs: &BTreeSet<usize>, until: Duration) {
    assert_eq!(report.lost, 0);
    for failure in &report.failures {
        let is_theirs = theirs.contains(&failure.session) && failure.began <= until;
        assert!(is_theirs && matches!(failure.kind, Kind::Rpc(_)), "{failure:?}");
    }
}

fn waits_to_restart(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut servers = statuses.filter(|status| status.name == SERVER);
    let reason = servers.next().and_then(|status| status.state.clone()?.waiting?.reason);
    reason.as_deref() == Some("CrashLoopBackOff")
}
