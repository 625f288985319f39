//! Processes that are killed under load: a sidecar, a server, all of a pod.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use longshore_e2e::load::{Failure, Kind, Load, Plan, Report, Slow};
use longshore_e2e::testing::{end_container, kill_container, kill_pod};

use super::row::{Row, form, long_row, row};
use super::sdk::Callers;
use super::served::{Echo, Served, Transport, sessions_in};
use crate::faults::{SERVER, SIDECAR};

const LANES: usize = 32;
/// How long it may take until everybody has noticed that a process is dead: whoever sends on a connection that it had
/// open, before hearing that it is closed, has a call in flight too. A lane can so lose more calls than one: the first
/// with its own connection, and the next at the replica that sends it on to the dead one.
fn notice() -> Duration {
    form(Duration::from_secs(1), Duration::from_millis(250))
}
/// How long calls wait for a server that is away. A busy machine may take longer to start its container.
const AWAY: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug)]
enum Victim {
    Sidecar,
    Server,
    Pod,
}

impl Victim {
    fn containers(self) -> &'static [&'static str] {
        match self {
            Self::Sidecar => &[SIDECAR],
            Self::Server => &[SERVER],
            Self::Pod => &[SIDECAR, SERVER],
        }
    }

    fn kill(self, pod: &Pod) {
        let killed = match self {
            Self::Sidecar => kill_container(pod, SIDECAR),
            Self::Server => kill_container(pod, SERVER),
            Self::Pod => kill_pod(pod),
        };
        assert!(killed > 0, "{self:?} ran");
    }
}

/// Load with calls that take their time, so that some are in flight at any moment.
fn plan(served: &Served<'_>) -> Plan {
    // Those of a load stay when it ends, and over stdio each has a process.
    let sessions = if matches!(served.echo.transport, Transport::Http { .. }) { 120 } else { 60 };
    let mut plan = served.plan(sessions, LANES);
    plan.slow = Some(Slow { every: 4, milliseconds: 250 });
    plan.pause = form(Duration::from_millis(50), Duration::ZERO);
    plan
}

/// Each is killed in a pod of its own: Kubernetes waits before it starts a container for the second time.
async fn each_is_killed(served: &Served<'_>, row: &Row) {
    let others = form(false, true).then(|| Callers::start(served.namespace, &served.url));
    for (victim, number) in [(Victim::Sidecar, 0), (Victim::Server, 1), (Victim::Pod, 2)] {
        served.is_balanced().await;
        let pods = served.settles().await;
        let mut names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        names.sort();
        let pod = pods.iter().find(|pod| pod.metadata.name.as_ref() == names.get(number)).expect("a pod");
        let load = Load::start(plan(served)).await.expect("the sessions are opened");
        load.more(300).await;
        let theirs = sessions_in(&load, pod);
        let death = Death::of(victim, pod, &load);
        served.recovers(pod, victim.containers()).await;
        let back = load.elapsed();
        load.more(300).await;
        let report = load.stop().await;
        row.saw(&format!("{}: kill -9 of a {victim:?}", served.echo.name), &report);
        assert_eq!(report.lost, 0, "{victim:?}: sessions are lost");
        only_the_victims_calls_failed(victim, &death, back, &report, &theirs);
    }
    if let Some(others) = others {
        // Each had a call in flight, and may have made another before it noticed.
        others.stop_with_their_sessions(row, served.echo.name, 3 * 2);
    }
}

/// When something was killed, in the time of the load.
struct Death {
    before: Duration,
    after: Duration,
}

impl Death {
    fn of(victim: Victim, pod: &Pod, load: &Load) -> Self {
        let before = load.elapsed();
        victim.kill(pod);
        Self { before, after: load.elapsed() + notice() }
    }

    /// Whether a call was under way at that moment, and failed of it.
    fn took(&self, failure: &Failure) -> bool {
        failure.began <= self.after && failure.at >= self.before
    }

    /// Whether a call has waited for a server that was away for too long, and failed before it was back.
    fn outlasted(&self, failure: &Failure, back: Duration) -> bool {
        matches!(failure.kind, Kind::Rpc(_)) && failure.at >= self.before + AWAY && failure.began <= back
    }
}

/// Calls fail that were in flight on what was killed, and no others: each with a JSON-RPC error, if anybody is left to
/// make one. What comes later waits until it is back.
fn only_the_victims_calls_failed(
    victim: Victim,
    death: &Death,
    back: Duration,
    report: &Report,
    theirs: &BTreeSet<usize>,
) {
    let (late, in_flight): (Vec<_>, Vec<_>) =
        report.failures.iter().partition(|failure| !death.took(failure) && death.outlasted(failure, back));
    for failure in &in_flight {
        let entry_is_dead = failure.kind == Kind::Broken && !matches!(victim, Victim::Server);
        let says_so = matches!(failure.kind, Kind::Rpc(_)) && theirs.contains(&failure.session);
        assert!(entry_is_dead || says_so, "{victim:?}: {failure:?}");
        assert!(death.took(failure), "{victim:?}: it was not in flight: {failure:?}");
    }
    for failure in late {
        let waited_for_it = !matches!(victim, Victim::Sidecar) && theirs.contains(&failure.session);
        assert!(waited_for_it, "{victim:?}: {failure:?}");
    }
}

#[test]
fn a_kill_costs_only_the_calls_in_flight_over_http() {
    row("kill -9 under load, HTTP server with sessions of its own, Reinitialize", async |namespace, row| {
        each_is_killed(&Served::up(namespace, Echo::http("http")).await, row).await;
    });
}

#[test]
fn a_kill_costs_only_the_calls_in_flight_without_sessions_of_the_server() {
    row("kill -9 under load, HTTP server without sessions of its own, NotFound", async |namespace, row| {
        let transport = Transport::Http { sessions: false };
        let echo = Echo { transport, on_owner_loss: "NotFound", ..Echo::http("plain") };
        each_is_killed(&Served::up(namespace, echo).await, row).await;
    });
}

#[test]
fn a_kill_costs_only_the_calls_in_flight_over_stdio() {
    row("kill -9 under load, stdio server", async |namespace, row| {
        each_is_killed(&Served::up(namespace, Echo::stdio("stdio", "Session")).await, row).await;
    });
}

/// The server beside it remembers its sessions: they are found again, and nowhere begun anew.
#[test]
fn with_not_found_a_sidecar_alone_finds_its_sessions_again() {
    row("a sidecar killed, another told to end, under load, NotFound", async |namespace, row| {
        let echo = Echo { on_owner_loss: "NotFound", ..Echo::http("http") };
        let served = Served::up(namespace, echo).await;
        let pods = served.settles().await;
        for (pod, is_killed) in pods.iter().zip([true, false]) {
            served.is_balanced().await;
            let load = Load::start(plan(&served)).await.expect("the sessions are opened");
            load.more(300).await;
            let theirs = sessions_in(&load, pod);
            let death = if is_killed {
                Some(Death::of(Victim::Sidecar, pod, &load))
            } else {
                assert!(end_container(pod, SIDECAR) > 0, "it ran");
                None
            };
            served.recovers(pod, &[SIDECAR]).await;
            let back = load.elapsed();
            load.more(300).await;
            let report = load.stop().await;
            match death {
                Some(death) => {
                    row.saw("kill -9", &report);
                    assert_eq!(report.lost, 0, "sessions are lost");
                    only_the_victims_calls_failed(Victim::Sidecar, &death, back, &report, &theirs);
                }
                None => row.saw_nothing_lost("SIGTERM", &report),
            }
            for session in &report.sessions {
                assert_eq!(session.instances.len(), 1, "{session:?}");
            }
        }
    });
}

/// What the dead pod's server remembered is gone, so its sessions are, and no others; clients begin anew.
#[test]
fn with_not_found_exactly_the_dead_owners_sessions_are_gone() {
    long_row("kill -9 of a pod's processes under load, NotFound", async |namespace, row| {
        for (echo, pods) in [(Echo::http("http"), 3), (Echo::stdio("stdio", "Session"), form(1, 3))] {
            let served = Served::up(namespace, Echo { on_owner_loss: "NotFound", ..echo }).await;
            only_theirs_are_gone(&served, row, pods).await;
            served.down().await;
        }
    });
}

/// So many of the three pods die in turn.
async fn only_theirs_are_gone(served: &Served<'_>, row: &Row, pods: usize) {
    served.is_balanced().await;
    let others = (pods == 3).then(|| Callers::start(served.namespace, &served.url));
    let mut plan = plan(served);
    plan.renew = true;
    let load = Load::start(plan).await.expect("the sessions are opened");
    load.more(1_000).await;
    let mut deaths = Vec::new();
    for pod in served.settles().await.into_iter().take(pods) {
        let theirs = sessions_in(&load, &pod);
        let before = load.sessions();
        deaths.push(Death::of(Victim::Pod, &pod, &load));
        served.recovers(&pod, Victim::Pod.containers()).await;
        load.more(1_000).await;
        let lost: BTreeSet<_> = load
            .sessions()
            .iter()
            .zip(&before)
            .filter(|(now, then)| now.lost > then.lost)
            .map(|(now, _)| now.number)
            .collect();
        row.says(format!("{} sessions were the dead pod's, {} got 404", theirs.len(), lost.len()));
        assert_eq!(lost, theirs);
    }
    let report = load.stop().await;
    let what = format!("{}: {pods} of three pods in turn", served.echo.name);
    row.saw(&what, &report);
    for failure in &report.failures {
        assert!(matches!(failure.kind, Kind::Broken | Kind::Rpc(_)), "{failure:?}");
        assert!(deaths.iter().any(|death| death.took(failure)), "it was not in flight: {failure:?}");
    }
    // Whichever pod had theirs was killed.
    for seen in others.into_iter().flat_map(|others| others.stop(row, &what)) {
        assert!(seen.renewed > 0, "{seen}");
    }
}
