//! The condition *Available*. Pure.

use super::diagnosis::{self, Diagnosis, FAILS, NONE_SERVES, Severity};
use super::pod_roles::{PodRoles, Version};
use super::{Observation, Verdict, verdict};
use crate::mcp_server::build::MIN_READY_SECONDS;
use crate::mcp_server::condition::{Reason, Truth};
use crate::view::{KeptOut, PodView};

/// Whether a pod serves, and of which version.
pub(super) fn available(observed: &Observation<'_>, roles: &PodRoles<'_>) -> Verdict {
    // A pod that serves may have ended once, and hides no other that cannot even be made.
    let wanted = observed.desired.map_or(1, |desired| desired.replicas as usize);
    let lacking = roles.lacking().filter(|facts| roles.current < wanted || !roles.is_followed(facts));
    let newest = lacking.map(|facts| diagnosis::of_newest(observed, facts));
    let newest = newest.or_else(|| of_those_before(observed, roles)).or_else(|| refused(observed, roles));
    let failing = newest.as_ref().filter(|diagnosis| diagnosis.severity == Severity::Failure);
    let generation = observed.generation;
    match (roles.serving, failing) {
        (Some(_), _) if wanted == 0 => {
            verdict(Truth::True, Reason::Serving, "spec.replicas is 0: what still serves is about to end")
        }
        // Whoever restarts the Deployment gets other pods of the same version: with a Secret's new values, for example.
        (Some(Version::Current), Some(failing)) => {
            let of_restart = if roles.current < wanted {
                ""
            } else {
                " of the same version, as a restart of the Deployment makes it,"
            };
            let serve = serve(roles.current, wanted);
            let message = format!("{serve}, another{of_restart} {FAILS}{}", named(failing));
            verdict(Truth::True, Reason::Degraded, message)
        }
        (Some(Version::Current), None) => {
            let mut message = serve(roles.current, wanted);
            if roles.current < wanted {
                let others = waits(newest.as_ref()).map(|waits| format!("another {waits}"));
                message = format!("{message}, {}", others.as_deref().unwrap_or("the others start"));
            }
            verdict(Truth::True, Reason::Serving, message)
        }
        (Some(Version::Both), Some(failing)) => verdict(
            Truth::True,
            Reason::RolloutFailing,
            format!(
                "the previous version goes on serving beside the new one (generation {generation}), of which a pod \
                 {FAILS}{}",
                named(failing)
            ),
        ),
        (Some(Version::Older), Some(failing)) => verdict(
            Truth::True,
            Reason::RolloutFailing,
            format!(
                "the previous version goes on serving; the new one (generation {generation}) {FAILS}{}",
                named(failing)
            ),
        ),
        (Some(Version::Older | Version::Both), None) if observed.desired.is_none() || observed.held_back => {
            verdict(
                Truth::True,
                Reason::Serving,
                "the pod of the previous version serves; see the condition Accepted",
            )
        }
        (Some(Version::Both), None) if roles.current >= wanted => verdict(
            Truth::True,
            Reason::RollingOut,
            format!(
                "the new version (generation {generation}) serves; once it has for {MIN_READY_SECONDS} seconds, the \
                 previous one is removed"
            ),
        ),
        (Some(Version::Both), None) => verdict(
            Truth::True,
            Reason::RollingOut,
            format!("{} of {wanted} pods are of the new version (generation {generation})", roles.current),
        ),
        (Some(Version::Older), None) => verdict(
            Truth::True,
            Reason::RollingOut,
            format!(
                "the previous version serves; the new one (generation {generation}) {}",
                waits(newest.as_ref()).as_deref().unwrap_or("starts")
            ),
        ),
        (None, _) if wanted == 0 => {
            verdict(Truth::False, Reason::ScaledToZero, "spec.replicas is 0, so no pod runs")
        }
        (None, _) => match newest.or_else(|| roles.speaker.map(|pod| diagnosis::of_newest(observed, pod))) {
            Some(Diagnosis { reason, message, .. }) if wanted > 1 => {
                verdict(Truth::False, reason, format!("none of the {wanted} {NONE_SERVES}{message}"))
            }
            Some(diagnosis) => verdict(Truth::False, diagnosis.reason, diagnosis.message),
            None if observed.held_back => {
                verdict(Truth::False, Reason::NoPod, "no pod is made; see the condition Accepted")
            }
            None => verdict(Truth::False, Reason::Starting, "the pod is being made"),
        },
    }
}

/// What a version waits for that is made only when no pod of the previous one is left.
fn of_those_before(observed: &Observation<'_>, roles: &PodRoles<'_>) -> Option<Diagnosis> {
    let desired = observed.desired.filter(|desired| desired.recreates && !observed.held_back)?;
    let is_before = |pod: &PodView| pod.failed.is_none() && pod.template.as_ref() != Some(&desired.template);
    let before: Vec<_> = observed.pods.iter().map(|facts| &*facts.pod).filter(|pod| is_before(pod)).collect();
    if roles.newest.is_some() || before.is_empty() {
        return None;
    }
    Some(match before.into_iter().find(|pod| pod.kept_out == Some(KeptOut::Node)) {
        Some(PodView { name, .. }) => diagnosis::failure(
            Reason::NodeNotReady,
            format!(
                "as spec.strategy says, the new version waits until no pod of the previous one is left, and the node of \
                 the pod {name} is not ready and does not end it: when that node is surely off, `kubectl delete pod \
                 {name} --force`"
            ),
        ),
        None => diagnosis::normal(
            Reason::Starting,
            "the pods of the previous version end first, as spec.strategy says",
        ),
    })
}

/// How many of the pods serve that are to.
fn serve(serving: usize, wanted: usize) -> String {
    match wanted {
        1 => "the pod serves".to_owned(),
        wanted if serving >= wanted => format!("all {wanted} pods serve"),
        wanted => format!("{serving} of {wanted} pods serve"),
    }
}

/// What a pod beside others that serve has to wait for, if it could serve.
fn waits(newest: Option<&Diagnosis>) -> Option<String> {
    let gate = newest.filter(|diagnosis| diagnosis.reason == Reason::ReadinessGate)?;
    Some(format!("waits: {}", gate.message))
}

/// A diagnosis in one line.
pub(super) fn named(diagnosis: &Diagnosis) -> String {
    format!("{}: {}", diagnosis.reason.name(), diagnosis.message)
}

/// Why the API server refuses a pod, if it is one of the version that is wanted, or no other is to be had.
fn refused(observed: &Observation<'_>, roles: &PodRoles<'_>) -> Option<Diagnosis> {
    let deployment = observed.deployment?;
    let words = deployment.refused.as_deref()?;
    let wanted = observed.desired.map(|desired| &desired.template);
    let is_of_before = deployment.template.as_ref() != wanted;
    // What was applied just now may be what lets the pod be made: the watch has yet to show the Deployment with it.
    if is_of_before && (roles.serving.is_some() || !observed.held_back) {
        return None;
    }
    Some(diagnosis::failure(Reason::PodRejected, format!("the API server refuses the pod: {words}")))
}
