//! The keys that session ids are sealed with change under load.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use longshore_e2e::load::Load;
use longshore_e2e::testing::eventually;
use longshore_sidecar_config::paths::CONFIG_FILE;
use serde_json::Value;

use super::row::{form, row};
use super::sdk::Callers;
use super::served::{Echo, Served};

/// What people set to have new keys made.
const ROTATE: &str = "longshore.dev/rotate-session-keys";

#[test]
fn keys_change_and_no_session_is_lost() {
    let (rounds, pause) = form((1, Duration::from_millis(50)), (3, Duration::ZERO));
    row("key rotation under load", async |namespace, row| {
        let served = Served::up(namespace, Echo::http("http")).await;
        let mut plan = served.plan(90, 24);
        plan.pause = pause;
        let others = Callers::start(namespace, &served.url);
        let load = Load::start(plan.clone()).await.expect("the sessions are opened");
        load.more(200).await;
        let mut key = seals_with(&served).await.expect("there is a key");
        for round in 0..rounds {
            let annotation = format!("{ROTATE}=round-{round}");
            namespace
                .kubectl(&["annotate", "lmcp/http", &annotation, "--overwrite"])
                .await
                .expect("it can be annotated");
            key = eventually("another key seals", async || match seals_with(&served).await {
                Some(now) if now != key => Ok(now),
                other => Err(format!("{other:?}")),
            })
            .await;
            load.more(500).await;
            // Sessions of before the change and of after it, side by side.
            let mut newer = plan.clone();
            newer.calls = Some(300);
            let report =
                Load::start(newer).await.expect("sessions are opened with the new key").finish().await;
            row.saw_nothing_lost(&format!("opened with key {key}"), &report);
        }
        let what = format!("opened before {rounds} rotations");
        row.saw_nothing_lost(&what, &load.stop().await);
        others.stop_with_all(row, &what);
    });
}

/// The number of the key that new ids are sealed with.
async fn seals_with(served: &Served<'_>) -> Option<u64> {
    let mine = ListParams::default().labels(&format!("longshore.dev/server={}", served.echo.name));
    let maps = served.namespace.api::<ConfigMap>().list(&mine).await.expect("ConfigMaps can be listed");
    let mut files = maps.items.into_iter().filter_map(|map| map.data?.remove(CONFIG_FILE));
    let config: Value = serde_json::from_str(&files.next()?).ok()?;
    config["sessions"]["sealWith"].as_u64()
}
