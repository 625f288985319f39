//! Fewer pods, and more, under load.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore_e2e::load::{Load, Slow};

use super::row::{form, row};
use super::sdk::Callers;
use super::served::{Echo, Served};

#[test]
fn scaling_loses_no_call() {
    scales("scale 3, 1, 5 under load, HTTP", Echo::http("http"));
}

#[test]
fn scaling_loses_no_call_over_stdio() {
    scales("scale 3, 1, 5 under load, stdio", Echo::stdio("stdio", "Session"));
}

fn scales(title: &'static str, echo: Echo) {
    let (rounds, pause) = form((1, Duration::from_millis(50)), (5, Duration::ZERO));
    row(title, async |namespace, row| {
        let mut served = Served::up(namespace, echo).await;
        let mut plan = served.plan(100, 32);
        plan.pause = pause;
        plan.slow = Some(Slow { every: 40, milliseconds: 7_000 });
        let others = Callers::start(namespace, &served.url);
        let load = Load::start(plan).await.expect("the sessions are opened");
        load.more(200).await;
        for _ in 0..rounds {
            for replicas in [1, 5, 3] {
                served.scale(replicas).await;
                served.settles().await;
                load.more(200).await;
                match replicas {
                    1 => load.forget_instances(),
                    // What was taken over stays where it is: more pods move nothing.
                    5 => are_served_by_one(&load),
                    _ => {}
                }
                // The last step takes time and shows nothing that the first did not.
                if rounds == 1 && replicas == 5 {
                    break;
                }
            }
        }
        let what = format!("{rounds} rounds");
        row.saw_nothing_lost(&what, &load.stop().await);
        others.stop_with_all(row, &what);
    });
}

/// All sessions have been answered in the same pod since that was last forgotten, each by one process.
fn are_served_by_one(load: &Load) {
    let sessions = load.sessions();
    let moved: Vec<_> = sessions.iter().filter(|session| session.instances.len() > 1).collect();
    assert!(moved.is_empty(), "{moved:?}");
    let instances = sessions.iter().flat_map(|session| &session.instances);
    let pods: BTreeSet<_> = instances.filter_map(|instance| instance.split('/').next()).collect();
    assert_eq!(pods.len(), 1, "{pods:?}");
}
