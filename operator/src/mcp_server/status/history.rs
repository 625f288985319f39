//! What was said of a server before, and what of that still holds where its sidecar says nothing. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::cast::{Cast, Version};
use super::{Observation, PodFacts, UNSAID, Verdict, before, unheard, verdict};
use crate::mcp_server::condition::{ConditionType, Reason, Truth};

/// What is known of before.
#[derive(Clone, Copy)]
pub(super) enum Before<'a> {
    /// Clients could use the server, and this was said of it.
    Could(&'a Condition),
    /// They could not, though it worked: nobody had a key for example, as this said.
    CouldNot(&'a Condition),
    /// Nothing: it was away, or is new.
    Nothing,
}

// === impl Before ===

impl<'a> Before<'a> {
    pub(super) fn of(observed: &Observation<'a>) -> Self {
        let was = |type_, truth| before(observed, type_, truth);
        if let Some(ready) = was(ConditionType::Ready, Truth::True) {
            return Self::Could(ready);
        }
        let all_else = [ConditionType::Available, ConditionType::Connected];
        let worked = all_else.into_iter().all(|type_| was(type_, Truth::True).is_some());
        match was(ConditionType::Ready, Truth::False) {
            Some(ready) if worked => Self::CouldNot(ready),
            Some(_) | None => Self::Nothing,
        }
    }

    /// Whether its sidecar refused its configuration, and let nobody in. Only that it does no more can end that.
    pub(super) fn was_refused(self) -> bool {
        matches!(self, Self::CouldNot(before) if before.reason == Reason::ConfigurationRefused.name())
    }

    /// What is to be said of a server of which nothing is heard. The kubelet says that it serves.
    pub(super) fn still(
        self,
        observed: &Observation<'_>,
        cast: &Cast<'_>,
        silent: &PodFacts,
        accepted: &Verdict,
    ) -> Option<(Verdict, i64)> {
        let unheard = unheard(&silent.report);
        let (generation, in_force) = (observed.generation, observed.in_force());
        let but = |unheard: &str| format!("clients can use the server, but {unheard}");
        let before = match self {
            Self::Could(before) => before,
            Self::CouldNot(before) => {
                if self.was_refused() || !has_gone(observed, silent) {
                    return Some((kept_out(before, accepted), in_force));
                }
                // Nobody will hear when the sidecar knows it.
                let Some(unheard) = unheard else {
                    return Some((verdict(Truth::False, Reason::ConfigurationPending, UNSAID), in_force));
                };
                let is_current = cast.serving == Some(Version::Current);
                let served = if is_current { in_force } else { in_force.min(generation - 1).max(1) };
                let is_now = is_current && served == generation;
                let reason = if is_now { Reason::Ready } else { Reason::ServingPrevious };
                return Some((verdict(Truth::True, reason, but(&unheard)), served));
            }
            Self::Nothing => return None,
        };
        let was = |reason: &Reason| reason.name() == before.reason;
        let reason = [Reason::Ready, Reason::ConfigurationRefused].into_iter().find(was);
        let reason = reason.unwrap_or(Reason::ServingPrevious);
        let served = before.observed_generation.unwrap_or(generation);
        let (reason, message) = match unheard {
            Some(_) if reason == Reason::ConfigurationRefused => (reason, before.message.clone()),
            Some(unheard) if served == generation => (reason, but(&unheard)),
            Some(unheard) => (
                Reason::ServingPrevious,
                format!(
                    "clients use the server as it was before the last change, or as it is now: {unheard}"
                ),
            ),
            None => (reason, before.message.clone()),
        };
        Some((verdict(Truth::True, reason, message), served))
    }
}

/// Whether what kept clients out is known to be gone, whatever of it was said: the sidecar can have the configuration, in which
/// somebody has a key.
fn has_gone(observed: &Observation<'_>, silent: &PodFacts) -> bool {
    observed.principals.is_some_and(|principals| !principals.is_empty())
        && observed.desired.is_some_and(|desired| desired.config_of(&silent.pod).is_some())
        // It may be the configuration that the API server does not take.
        && !observed.unapplied
}

/// Why clients are still kept out: what is wrong now, or what was.
fn kept_out(before: &Condition, accepted: &Verdict) -> Verdict {
    let was = Reason::ALL.iter().find(|reason| reason.name() == before.reason);
    match was {
        Some(reason) if accepted.truth == Truth::True || *reason == Reason::ConfigurationRefused => {
            verdict(Truth::False, *reason, before.message.clone())
        }
        _ if accepted.truth == Truth::True => verdict(Truth::False, Reason::Starting, UNSAID),
        _ => verdict(Truth::False, accepted.reason, accepted.message.clone()),
    }
}
