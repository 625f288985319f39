//! What was said of a server before, and what of that still holds where its sidecar says nothing. Pure.
//!
//! Nobody hears then what it runs. What it was told to, and when, stands on its pod, and is so some time later.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::pod_roles::{PodRoles, Version};
use super::{Observation, PodFacts, Report, UNSAID, Verdict, before, unheard, verdict};
use crate::mcp_server::apply::Part;
use crate::mcp_server::condition::{ConditionType, Reason, Truth};

/// What the last status said of the server.
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
        roles: &PodRoles<'_>,
        silent: &PodFacts,
        accepted: &Verdict,
    ) -> Option<Verdict> {
        let unheard = unheard(&silent.report);
        match self {
            Self::Could(before) => Some(goes_on(before, observed, roles, unheard.as_deref())),
            Self::CouldNot(before) if self.was_refused() || !has_gone(observed, silent) => {
                Some(kept_out(before, accepted))
            }
            Self::CouldNot(_) => Some(match unheard {
                // Nobody will hear when the sidecar knows it.
                Some(why) => can(used(observed, roles, false), observed, &why),
                None => verdict(Truth::False, Reason::ConfigurationPending, UNSAID),
            }),
            Self::Nothing => None,
        }
    }
}

/// What is said of a server that clients could use.
fn goes_on(
    before: &Condition,
    observed: &Observation<'_>,
    roles: &PodRoles<'_>,
    unheard: Option<&str>,
) -> Verdict {
    let was = |reason: Reason| reason.name() == before.reason;
    if was(Reason::ConfigurationRefused) {
        return verdict(Truth::True, Reason::ConfigurationRefused, before.message.clone());
    }
    let reason = used(observed, roles, was(Reason::Ready));
    if unheard.is_none() && was(reason) {
        return verdict(Truth::True, reason, before.message.clone());
    }
    can(reason, observed, unheard.unwrap_or(UNSAID))
}

/// Whether clients use the server as it is now: so they did, and nothing was changed since; or all that serve run it so.
fn used(observed: &Observation<'_>, roles: &PodRoles<'_>, was_ready: bool) -> Reason {
    let is_of_now = roles.serving == Some(Version::Current)
        && observed.can_be_in_force()
        && roles.serves.iter().all(|facts| observed.has_come_to_run(facts));
    if was_ready && is_unchanged(observed) || is_of_now { Reason::Ready } else { Reason::ServingPrevious }
}

/// What is said of a server that goes on so, and why nobody knows better.
fn can(reason: Reason, observed: &Observation<'_>, why: &str) -> Verdict {
    let used = if reason == Reason::Ready || is_unchanged(observed) {
        "clients can use the server, but"
    } else {
        "clients use the server as it was before the last change, or as it is now:"
    };
    let untold = if reason == Reason::ServingPrevious { untold(observed) } else { "" };
    verdict(Truth::True, reason, format!("{used} {why}{untold}"))
}

/// What is to be said besides where a pod serves that cannot be asked, and was not told of the current configuration.
pub(super) fn untold(observed: &Observation<'_>) -> &'static str {
    let is_untold = observed.silent().any(|facts| {
        let wanted = observed.desired.and_then(|desired| desired.config_of(&facts.pod));
        let is_untold = |wanted| facts.pod.told.as_ref().is_none_or(|told| told.digest != wanted);
        matches!(facts.report, Report::Unreachable(_)) && wanted.is_some_and(is_untold)
    });
    if is_untold {
        "; its pod has yet to be annotated with what it is to run: if that lasts, something in the cluster keeps \
         Longshore's account from patching it"
    } else {
        ""
    }
}

fn is_unchanged(observed: &Observation<'_>) -> bool {
    observed.was_in_force() == Some(observed.generation)
}

/// Whether what kept clients out is known to be gone, whatever of it was said: the sidecar is of a release that can have the
/// current configuration, in which somebody has a key.
fn has_gone(observed: &Observation<'_>, silent: &PodFacts) -> bool {
    observed.principals.is_some_and(|principals| !principals.is_empty())
        && observed.desired.is_some_and(|desired| desired.config_of(&silent.pod).is_some())
        && observed.unapplied.is_none_or(|unapplied| unapplied.part != Part::Configuration)
}

/// Why clients are still kept out: what is wrong now, or what was.
fn kept_out(before: &Condition, accepted: &Verdict) -> Verdict {
    match Reason::of(&before.reason) {
        Some(reason) if accepted.truth == Truth::True || reason == Reason::ConfigurationRefused => {
            verdict(Truth::False, reason, before.message.clone())
        }
        _ if accepted.truth == Truth::True => verdict(Truth::False, Reason::Starting, UNSAID),
        _ => verdict(Truth::False, accepted.reason, accepted.message.clone()),
    }
}
