//! Two replicas that do not hear each other, while clients reach both.

use std::time::Duration;

use longshore_e2e::load::{Kind as Failed, Load};
use longshore_e2e::testing::{Kind, Partition, eventually};

use super::row::{form, row_of};
use super::sdk::Callers;
use super::served::{Echo, Served};

#[test]
fn no_session_is_served_by_two_replicas_that_have_lost_each_other() {
    // Longer than requests wait for a replica that does not answer.
    let (rounds, apart) = form((1, Duration::from_secs(22)), (3, Duration::from_secs(60)));
    const TITLE: &str = "partition between two of 3 replicas under load";
    // Most of it is spent apart.
    row_of(Kind::Cluster, TITLE, async |namespace, row| {
        let served = Served::up(namespace, Echo::http("http")).await;
        let others = form(false, true).then(|| Callers::start(namespace, &served.url));
        for round in 0..rounds {
            let pods = served.settles().await;
            // Sessions that all begin at the third replica would not notice.
            served.is_balanced().await;
            let mut plan = served.plan(90, 16);
            plan.pause = Duration::from_millis(20);
            let load = Load::start(plan.clone()).await.expect("the sessions are opened");
            load.more(500).await;
            let partition = Partition::between(&pods[round % 3], &pods[(round + 1) % 3]);
            tokio::time::sleep(apart).await;
            partition.heal();
            // It is over when nobody is turned away any more.
            eventually("the replicas have found each other", async || {
                let mut probe = plan.clone();
                (probe.sessions, probe.lanes, probe.calls) = (12, 6, Some(120));
                probe.per_connection = 1;
                match Load::start(probe).await {
                    Ok(load) => match load.finish().await {
                        report if report.failed == 0 => Ok(()),
                        report => Err(report.summary().to_string()),
                    },
                    Err(error) => Err(error.to_string()),
                }
            })
            .await;
            let during = load.sessions();
            load.forget_instances();
            load.more(2_000).await;
            let report = load.stop().await;
            row.saw(&format!("apart for {apart:?}"), &report);
            assert_eq!(report.lost, 0);
            for failure in &report.failures {
                assert!(matches!(failure.kind, Failed::Rpc(_)), "{failure:?}");
            }
            assert!(report.failed > 0, "the replicas were not parted");
            let twice: Vec<_> =
                during.iter().chain(&report.sessions).filter(|seen| seen.instances.len() > 1).collect();
            assert!(twice.is_empty(), "sessions with two servers: {twice:?}");
            row.says("no session was served by two");
        }
        if let Some(others) = others {
            // Those who reach a replica that cannot reach theirs are told so, for as long as that is so.
            others.stop_with_their_sessions(row, "SDKs", usize::MAX);
        }
    });
}
