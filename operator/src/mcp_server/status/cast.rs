//! The pods of a server, sorted by what they mean for it. Pure.

use longshore_sidecar_config::inventory::ConnectionState;

use super::diagnosis::{self, Severity};
use super::{Observation, PodFacts};
use crate::view::PodView;

/// The pods of a server, sorted by what they mean for it.
pub(super) struct Cast<'a> {
    /// The pod that speaks for the server: one that serves if there is one, and rather one whose server answers.
    pub(super) face: Option<&'a PodFacts>,
    /// The newest pod of the version that is wanted; rather one that fails than one that starts, and rather that than
    /// one that serves.
    pub(super) newest: Option<&'a PodFacts>,
    /// The pods that serve.
    pub(super) serves: Vec<&'a PodFacts>,
    /// How many of them are of the version that is wanted.
    pub(super) current: usize,
    /// Which version serves, if any does.
    pub(super) serving: Option<Version>,
}

/// What the pods that serve are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// All of the version that is wanted.
    Current,
    /// Some of it, and some of the one before.
    Both,
    /// All of the one before.
    Older,
}

// === impl Cast ===

impl<'a> Cast<'a> {
    pub(super) fn of(observed: &Observation<'a>) -> Self {
        let is_current = |facts: &PodFacts| {
            observed.desired.is_some_and(|desired| facts.pod.template.as_deref() == Some(&desired.template))
        };
        let living: Vec<&PodFacts> = observed.pods.iter().filter(|facts| is_living(&facts.pod)).collect();
        let serves: Vec<&PodFacts> = living.iter().copied().filter(|facts| facts.pod.ready).collect();
        let current = serves.iter().filter(|facts| is_current(facts)).count();
        let serving = match (current, serves.len()) {
            (_, 0) => None,
            (0, _) => Some(Version::Older),
            (current, all) if current == all => Some(Version::Current),
            _ => Some(Version::Both),
        };
        let age = |facts: &PodFacts| (facts.pod.created, facts.pod.uid.clone());
        let newest = living.iter().copied().filter(|facts| is_current(facts)).max_by_key(|facts| {
            let fails =
                !facts.pod.ready && diagnosis::of_newest(observed, facts).severity == Severity::Failure;
            (fails, !facts.pod.ready, age(facts))
        });
        let face =
            serves.iter().copied().max_by_key(|facts| (is_current(facts), is_connected(facts), age(facts)));
        // Nothing serves: the pod that should speaks for the server, or else any, gone ones last. Where none is wanted,
        // nobody needs to hear how the last one ends.
        let others = || observed.pods.iter().filter(|_| observed.wants_pods());
        let face =
            face.or(newest).or_else(|| others().max_by_key(|facts| (is_living(&facts.pod), age(facts))));
        Self { face, newest, serves, current, serving }
    }
}

fn is_connected(facts: &PodFacts) -> bool {
    facts.report.summary().is_some_and(|summary| summary.connection.state == ConnectionState::Connected)
}

/// Whether a pod is neither on its way out nor at its end.
pub(super) fn is_living(pod: &PodView) -> bool {
    !pod.ending && pod.failed.is_none()
}
