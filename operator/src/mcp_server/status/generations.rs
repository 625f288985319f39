//! Which generation of the manifest is in force, and of which the pods are. Pure.

use longshore_crds::McpServerStatus;

use super::{Observation, PodFacts, Verdict, find, pod_roles};
use crate::mcp_server::condition::{ConditionType, Problem, Reason, Truth};

/// The generation of the manifest that clients could last use in full. It moves with what is said of that alone: whatever
/// is wrong in between, the next word remembers it.
pub(super) fn in_force(observed: &Observation<'_>, ready: &Verdict) -> i64 {
    let generation = observed.generation;
    match (ready.truth, observed.was_in_force()) {
        (Truth::True, _) if ready.reason == Reason::Ready => generation,
        (_, Some(was)) => was,
        (Truth::False | Truth::Unknown, None) => generation,
        // Of which version the older pods are nobody knows any more: an earlier one.
        (Truth::True, None) => (generation - 1).max(1),
    }
}

/// Whether clients use what the manifest says now, and no pod of the previous version is left to be replaced. Of pods
/// that serve and say nothing *Ready* alone would not tell: it is as it was.
pub(crate) fn is_in_force(status: &McpServerStatus) -> bool {
    let is_ready = find(&status.conditions, ConditionType::Ready)
        .is_some_and(|ready| ready.status == Truth::True.name() && ready.reason == Reason::Ready.name());
    let is_replacing = find(&status.conditions, ConditionType::Available).is_some_and(|available| {
        [Reason::RollingOut, Reason::RolloutFailing].iter().any(|it| it.name() == available.reason)
    });
    is_ready && !is_replacing
}

// === impl Observation ===

impl Observation<'_> {
    /// Whether pods are there of another version than is wanted, be it that they do not serve now.
    pub(super) fn has_pods_of_before(&self) -> bool {
        let wanted = self.desired.map(|desired| &desired.template);
        let mut living = self.pods.iter().filter(|facts| pod_roles::is_living(&facts.pod));
        living.any(|facts| facts.pod.template.as_ref() != wanted)
    }

    /// Whether nothing keeps any of the manifest from being in force: it was in force before something went wrong, or nobody
    /// knows of another that was. A pod from before may be away for a moment alone, in which one that fails serves; and one of
    /// which nothing is heard, though others are, may go by earlier rules and keys.
    pub(super) fn can_be_in_force(&self) -> bool {
        let is_new = self.is_whole()
            && !self.has_pods_of_before()
            && self.silent().all(|facts| self.has_come_to_run(facts));
        is_new || self.was_in_force().is_none_or(|was| was == self.generation)
    }

    /// Whether a pod's sidecar runs the configuration that is wanted of it.
    pub(super) fn has_come_to_run(&self, facts: &PodFacts) -> bool {
        let wanted = self.desired.and_then(|desired| desired.config_of(&facts.pod));
        wanted.is_some_and(|wanted| facts.runs(wanted, self.now.0.as_second()))
    }

    /// The generation of the manifest whose pods are there, or on their way. Where others are wanted they are still of the
    /// previous one: who takes over tells by it what their owner wants from what a new release does.
    pub(super) fn pods_are_of(&self) -> i64 {
        let wanted = self.desired.map(|desired| &desired.template);
        if self.deployment.is_none_or(|it| wanted.is_some() && it.template.as_ref() == wanted) {
            return self.generation;
        }
        self.before(ConditionType::Available).unwrap_or(self.generation)
    }

    /// The generation of the manifest that clients could last use in full, as far as is remembered.
    pub(super) fn was_in_force(&self) -> Option<i64> {
        self.before(ConditionType::Ready)
    }

    /// The generation that a condition spoke of.
    fn before(&self, type_: ConditionType) -> Option<i64> {
        let before = find(&self.previous?.conditions, type_)?;
        before.observed_generation.map(|before| before.min(self.generation))
    }

    /// Whether all of the manifest can be used, and the API server has taken what is made of it.
    pub(super) fn is_whole(&self) -> bool {
        self.desired.is_some() && self.unapplied.is_none() && !self.is_partly_refused()
    }

    /// Whether something of the manifest cannot be used, or an object that is made of it cannot be had. What it names and is
    /// not there, pods that run do without, and without a line that is no key so does everybody else.
    pub(super) fn is_partly_refused(&self) -> bool {
        let is_missing = |problem: &Problem| {
            matches!(
                problem.reason,
                Reason::SecretNotFound
                    | Reason::SecretKeyNotFound
                    | Reason::ConfigMapNotFound
                    | Reason::ConfigMapKeyNotFound
                    | Reason::ServiceAccountNotFound
                    | Reason::Unreadable
                    | Reason::InvalidKeys
            )
        };
        self.held_back && !self.problems.iter().all(is_missing)
    }
}
