//! Longshore is upgraded while servers are called: the operator is another one, and so is the sidecar in every pod. On
//! the cluster of those tests that break Longshore as a whole.

use std::time::Duration;

use longshore_e2e::load::Load;
use longshore_e2e::testing::{Kind, eventually};
use longshore_e2e::{images, longshore};

use super::row::{form, row_on};
use super::sdk::Callers;
use super::served::{Echo, Served};
use crate::faults::SIDECAR;
use crate::outages::{self, GoBack, release};

#[test]
fn an_upgrade_of_longshore_loses_no_call() {
    let pause = form(Duration::from_millis(50), Duration::ZERO);
    let Some(_turn) = outages::turn() else { return };
    row_on(&outages::STAGE, Kind::Cluster, "operator upgrade under load", async |namespace, row| {
        let sidecar = images::longshore().expect("the images are made").sidecar.reference;
        let newer = format!("{sidecar}-newer");
        namespace.cluster().tag(&sidecar, &newer).expect("an image can have two names");
        let served = Served::up(namespace, Echo::http("http")).await;
        let mut plan = served.plan(90, 24);
        plan.pause = pause;
        let others = Callers::start(namespace, &served.url);
        let load = Load::start(plan).await.expect("the sessions are opened");
        load.more(200).await;
        let back = GoBack(namespace);
        let chart = longshore::chart();
        let chart = chart.to_string_lossy();
        let values = [format!("images.sidecar={newer}"), "logLevel=debug".to_owned()];
        let [image, level] = &values;
        release(
            namespace,
            &[
                "upgrade",
                longshore::RELEASE,
                &chart,
                "--reset-then-reuse-values",
                "--set",
                image,
                "--set",
                level,
                "--wait",
            ],
        );
        eventually("every pod has the newer sidecar", async || {
            let pods = served.pods().await;
            let newer = |pod: &k8s_openapi::api::core::v1::Pod| {
                let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                containers.any(|it| it.name == SIDECAR && it.image.as_ref() == Some(&newer))
            };
            let left = pods.iter().filter(|pod| !newer(pod)).count();
            if left == 0 { Ok(()) } else { Err(format!("{left} of {} have not", pods.len())) }
        })
        .await;
        served.settles().await;
        load.more(200).await;
        let report = load.stop().await;
        drop(back);
        let what = "another operator and another sidecar";
        row.saw_nothing_lost(what, &report);
        others.stop_with_all(row, what);
    });
}
