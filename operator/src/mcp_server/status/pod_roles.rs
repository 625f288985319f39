//! The pods of a server, sorted by what they mean for it. Pure.

use std::time::Duration;

use super::diagnosis::{self, Severity};
use super::{Observation, PodFacts, Report};
use crate::mcp_server::build::MIN_READY_SECONDS;
use crate::view::PodView;

/// The pods of a server, sorted by what they mean for it.
pub(super) struct PodRoles<'a> {
    /// The pod that speaks for the server: one that serves if there is one, and rather one whose server answers, of whichever
    /// version.
    pub(super) speaker: Option<&'a PodFacts>,
    /// The newest pod of the version that is wanted; rather one that fails than one that starts, and rather that than
    /// one that serves.
    pub(super) newest: Option<&'a PodFacts>,
    /// The pods that serve; without those that failed a moment ago, where there are others: such a one may go round in its
    /// circle of serving and failing.
    pub(super) serves: Vec<&'a PodFacts>,
    /// How many of them are of the version that is wanted.
    pub(super) current: usize,
    /// Which version serves, if any does.
    pub(super) serving: Option<Version>,
}

/// What the pods that serve are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// All are of the version that is wanted.
    Current,
    /// Some are of that version, and some of the previous one.
    Both,
    /// All are of the previous version.
    Older,
}

// === impl PodRoles ===

impl<'a> PodRoles<'a> {
    pub(super) fn of(observed: &Observation<'a>) -> Self {
        let is_current = |facts: &PodFacts| {
            observed.desired.is_some_and(|desired| facts.pod.template.as_deref() == Some(&desired.template))
        };
        let living: Vec<&PodFacts> = observed.pods.iter().filter(|facts| is_living(&facts.pod)).collect();
        let ready: Vec<&PodFacts> = living.iter().copied().filter(|facts| facts.pod.ready).collect();
        let is_steady = |facts: &PodFacts| trial(facts, observed.now.0.as_second()).is_none();
        let has_steady = ready.iter().any(|facts| is_steady(facts));
        let is_serving = |facts: &PodFacts| facts.pod.ready && (!has_steady || is_steady(facts));
        let serves: Vec<&PodFacts> = ready.into_iter().filter(|facts| is_serving(facts)).collect();
        let current = serves.iter().filter(|facts| is_current(facts)).count();
        let serving = match (current, serves.len()) {
            (_, 0) => None,
            (0, _) => Some(Version::Older),
            (current, all) if current == all => Some(Version::Current),
            _ => Some(Version::Both),
        };
        let newest = living.iter().copied().filter(|facts| is_current(facts)).max_by_key(|facts| {
            let serves = is_serving(facts);
            let fails = !serves && diagnosis::of_newest(observed, facts).severity == Severity::Failure;
            (fails, !serves, age(facts))
        });
        let speaker =
            serves.iter().copied().max_by_key(|facts| (is_connected(facts), is_current(facts), age(facts)));
        // Nothing serves: the pod that should speaks for the server, or else any, gone ones last. Where none is wanted,
        // nobody needs to hear how the last one ends.
        let others = || observed.pods.iter().filter(|_| observed.wants_pods());
        let speaker =
            speaker.or(newest).or_else(|| others().max_by_key(|facts| (is_living(&facts.pod), age(facts))));
        Self { speaker, newest, serves, current, serving }
    }

    /// Whether anybody is let in by those that serve, as they say. `None`: nobody can say, since one is silent, or of an
    /// earlier release that does not say it.
    pub(super) fn callers(&self) -> Option<bool> {
        let said: Vec<_> =
            self.serves.iter().map(|facts| facts.report.summary().and_then(|it| it.config.callers)).collect();
        if said.contains(&Some(true)) {
            Some(true)
        } else if said.contains(&None) || said.is_empty() {
            None
        } else {
            Some(false)
        }
    }

    /// The newest pod, if it does not serve.
    pub(super) fn lacking(&self) -> Option<&'a PodFacts> {
        self.newest.filter(|newest| !self.serves.iter().any(|facts| facts.pod.uid == newest.pod.uid))
    }

    /// Whether a pod serves that a restart of the Deployment has made since this one, of the same version: this one is about
    /// to go, and how it is says nothing of the restart.
    pub(super) fn is_followed(&self, facts: &PodFacts) -> bool {
        let pod = &facts.pod;
        self.serves.iter().any(|other| {
            let is_of_another_set = other.pod.controller != pod.controller;
            is_of_another_set && other.pod.template == pod.template && age(other) > age(facts)
        })
    }
}

/// When to look again at pods that serve, and of which it is not certain yet that they go on, or, of those that cannot be
/// asked, that they run what they were told to.
pub(crate) fn trials_end(pods: &[PodFacts], now: i64) -> Option<Duration> {
    let unheard = pods.iter().filter(|facts| matches!(facts.report, Report::Unreachable(_)));
    let told = unheard.filter_map(|facts| facts.pod.told.as_ref()?.left(now));
    pods.iter().filter_map(|facts| trial(facts, now)).chain(told).min()
}

/// How much longer a pod that failed has to serve until it is believed: as long as its Deployment waits before it sends
/// one of the previous version away.
fn trial(facts: &PodFacts, now: i64) -> Option<Duration> {
    if !facts.pod.ready || diagnosis::of_pod(facts).severity == Severity::Normal {
        return None;
    }
    // Times are in whole seconds.
    let whole = i64::from(MIN_READY_SECONDS) + 1;
    let left = facts.pod.ready_changed? + whole - now;
    // The node's clock may be a little ahead. One that is far ahead says nothing.
    let left = Some(left).filter(|left| (1..=whole * 2).contains(left))?;
    u64::try_from(left).ok().map(Duration::from_secs)
}

fn age(facts: &PodFacts) -> (i64, &str) {
    (facts.pod.created, &facts.pod.uid)
}

fn is_connected(facts: &PodFacts) -> bool {
    facts.report.summary().is_some_and(|summary| summary.connection.is_steady())
}

/// Whether a pod is neither on its way out nor at its end.
pub(super) fn is_living(pod: &PodView) -> bool {
    !pod.ending && pod.failed.is_none()
}
