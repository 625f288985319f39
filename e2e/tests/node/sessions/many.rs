//! Many calls over many sessions of many principals: whose answer is whose.

use std::collections::{BTreeMap, BTreeSet};

use longshore_e2e::load::{Load, Report};

use super::row::{form, long_row};
use super::served::{Echo, SHARED, Served, Transport};

struct Form {
    /// In each mode, of which there are four.
    calls: u64,
    sessions: usize,
    /// With `isolation: Session`, where each is a process.
    processes: usize,
    principals: usize,
    lanes: usize,
}

#[test]
fn no_answer_goes_to_another_session() {
    let form = form(
        Form { calls: 5_000, sessions: 200, processes: 60, principals: 20, lanes: 64 },
        Form { calls: 250_000, sessions: 1_000, processes: 100, principals: 100, lanes: 64 },
    );
    long_row("calls over many sessions and principals, in each isolation mode", async |namespace, row| {
        let Form { principals, .. } = form;
        let modes = [
            (Echo::http("http"), form.sessions),
            (Echo::stdio("session", "Session"), form.processes),
            (Echo::stdio("principal", "Principal"), form.sessions),
            (Echo::stdio("shared", "Shared"), form.sessions),
        ];
        for (echo, sessions) in modes {
            let transport = echo.transport;
            let served = Served::up(namespace, Echo { principals, ..echo }).await;
            let mut plan = served.plan(sessions, form.lanes);
            plan.calls = Some(form.calls);
            let report = Load::start(plan).await.expect("the sessions are opened").finish().await;
            let what = format!("{}: {sessions} sessions, {principals} principals", served.echo.name);
            row.saw_nothing_lost(&what, &report);
            // And the first of each session, by which it is known who serves it.
            assert!(report.answered >= form.calls, "{}", report.answered);
            let principal = |session| session % principals;
            match transport {
                Transport::Stdio { isolation: "Session" } => are_apart(&report, |session| session),
                Transport::Stdio { isolation: "Principal" } => are_apart(&report, principal),
                Transport::Stdio { .. } => are_together(&report, principal, served.echo.replicas),
                Transport::Http { .. } => {}
            }
            served.down().await;
        }
    });
}

/// Whose sessions each process has answered.
fn served(report: &Report, of: impl Fn(usize) -> usize) -> BTreeMap<&str, BTreeSet<usize>> {
    let mut served = BTreeMap::<&str, BTreeSet<usize>>::new();
    for session in &report.sessions {
        for instance in &session.instances {
            served.entry(instance).or_default().insert(of(session.number));
        }
    }
    assert!(served.len() > 1, "{served:?}");
    served
}

/// A few processes have answered all sessions, each of them many of whomever's.
fn are_together(report: &Report, of: impl Fn(usize) -> usize, pods: u32) {
    let served = served(report, of);
    assert!(served.len() <= SHARED * pods as usize, "{served:?}");
    assert!(served.values().all(|of| of.len() > 1), "{served:?}");
}

/// No process has answered two sessions that are not of the same one.
fn are_apart(report: &Report, of: impl Fn(usize) -> usize) {
    let served = served(report, of);
    let shared: Vec<_> = served.iter().filter(|(_, of)| of.len() > 1).collect();
    assert!(shared.is_empty(), "{shared:?}");
}
