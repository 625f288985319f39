//! What sessions take that do nothing.

use longshore_e2e::load::Load;
use longshore_e2e::testing::container_memory;

use super::row::row;
use super::served::{Echo, Served};
use crate::faults::SIDECAR;

/// What an idle session may take in the sidecar, in bytes.
const MOST: u64 = 4096;
/// Sessions that are opened first: what the process takes for its own use then, it does not take later.
const FIRST: usize = 500;
const SESSIONS: usize = 2_000;

#[test]
fn an_idle_session_takes_four_kilobytes_at_most() {
    row("2,000 idle sessions", async |namespace, row| {
        let served = Served::up(namespace, Echo { replicas: 1, ..Echo::http("http") }).await;
        let pod = served.settles().await.remove(0);
        let open = async |sessions| {
            let mut plan = served.plan(sessions, 4);
            plan.calls = Some(100);
            let report = Load::start(plan).await.expect("the sessions are opened").finish().await;
            assert!(report.nothing_lost(), "{}", report.summary());
            container_memory(&pod, SIDECAR)
        };
        let before = open(FIRST).await;
        let after = open(SESSIONS).await;
        let each = after.saturating_sub(before) / SESSIONS as u64;
        row.says(format!(
            "the sidecar took {} KiB before and {} KiB after: {each} bytes a session",
            before / 1024,
            after / 1024
        ));
        assert!(each <= MOST, "{each} bytes a session");
    });
}
