//! A new version over servers that are called without pause.

use std::time::Duration;

use longshore_e2e::load::{Load, Slow};

use super::row::{form, long_row};
use super::sdk::Callers;
use super::served::{Echo, Served};

struct Form {
    rounds: usize,
    lanes: usize,
    pause: Duration,
}

/// How many calls have to be answered before the first round and after the last.
const AROUND: u64 = 200;

#[test]
fn a_rolling_update_loses_no_call_and_no_session() {
    let form = form(
        Form { rounds: 1, lanes: 64, pause: Duration::from_millis(250) },
        Form { rounds: 10, lanes: 64, pause: Duration::ZERO },
    );
    long_row("rolling update of 3 replicas, 64 clients, HTTP and stdio", async |namespace, row| {
        for echo in [Echo::http("http"), Echo::stdio("stdio", "Session")] {
            let mut served = Served::up(namespace, echo).await;
            let mut plan = served.plan(form.lanes, form.lanes);
            plan.pause = form.pause;
            // Longer than it takes at least until a pod is gone that nobody calls.
            plan.slow = Some(Slow { every: 30, milliseconds: 7_000 });
            let others = Callers::start(namespace, &served.url);
            let load = Load::start(plan).await.expect("the sessions are opened");
            load.more(AROUND).await;
            for _ in 0..form.rounds {
                served.next_version().await;
                served.settles().await;
            }
            load.more(AROUND).await;
            let report = load.stop().await;
            let what = format!("{}, {} rounds", served.echo.name, form.rounds);
            row.saw_nothing_lost(&what, &report);
            others.stop_with_all(row, &what);
            served.down().await;
        }
    });
}
