//! What was said of a server before, and what of that still holds where its sidecar says nothing. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::cast::{Cast, Version};
use super::{Observation, PodFacts, UNSAID, Verdict, before, is_replacing, unheard, verdict};
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
    ) -> Option<Verdict> {
        match self {
            Self::Could(before) => Some(goes_on(before, observed, cast, silent)),
            Self::CouldNot(before) if self.was_refused() || !has_gone(observed, silent) => {
                Some(kept_out(before, accepted))
            }
            Self::CouldNot(_) => Some(comes_back(observed, cast, silent)),
            Self::Nothing => None,
        }
    }
}

/// What is said of a server that clients could use: the same, or more where other pods tell it.
fn goes_on(before: &Condition, observed: &Observation<'_>, cast: &Cast<'_>, silent: &PodFacts) -> Verdict {
    let unheard = unheard(&silent.report);
    let was = |reason: Reason| reason.name() == before.reason;
    if was(Reason::ConfigurationRefused) {
        return verdict(Truth::True, Reason::ConfigurationRefused, before.message.clone());
    }
    let is_unchanged = observed.was_in_force() == Some(observed.generation);
    let reason = if is_unchanged && was(Reason::Ready) { Reason::Ready } else { Reason::ServingPrevious };
    let why = unheard.as_deref().unwrap_or(UNSAID);
    if reason != Reason::Ready && are_followed(before, observed, cast) {
        // One of before may be away for a moment alone, in which another that fails serves.
        let has_all =
            observed.is_whole() && can_have_configuration(observed, silent) && !observed.has_pods_of_before();
        let is_now = has_all && unheard.is_some();
        // Otherwise a word of its own, by which the next look knows that they are.
        return can_but(if is_now { Reason::Ready } else { Reason::ConfigurationPending }, why);
    }
    if unheard.is_none() && was(reason) {
        return verdict(Truth::True, reason, before.message.clone());
    }
    if is_unchanged {
        return can_but(reason, why);
    }
    let message = format!("clients use the server as it was before the last change, or as it is now: {why}");
    verdict(Truth::True, reason, message)
}

/// What is said where nothing keeps clients out any more.
fn comes_back(observed: &Observation<'_>, cast: &Cast<'_>, silent: &PodFacts) -> Verdict {
    // Nobody will hear when the sidecar knows it.
    let Some(unheard) = unheard(&silent.report) else {
        return verdict(Truth::False, Reason::ConfigurationPending, UNSAID);
    };
    let is_now = cast.serving == Some(Version::Current) && observed.can_be_in_force();
    can_but(if is_now { Reason::Ready } else { Reason::ServingPrevious }, &unheard)
}

fn can_but(reason: Reason, unheard: &str) -> Verdict {
    verdict(Truth::True, reason, format!("clients can use the server, but {unheard}"))
}

/// Whether what kept clients out is known to be gone, whatever of it was said: the sidecar can have the configuration, in which
/// somebody has a key.
fn has_gone(observed: &Observation<'_>, silent: &PodFacts) -> bool {
    observed.principals.is_some_and(|principals| !principals.is_empty())
        && can_have_configuration(observed, silent)
        && !observed.unapplied.is_some_and(|unapplied| unapplied.configuration)
}

/// Whether the sidecar is of a release that reads the configuration of now.
fn can_have_configuration(observed: &Observation<'_>, silent: &PodFacts) -> bool {
    observed.desired.is_some_and(|desired| desired.config_of(&silent.pod).is_some())
}

/// Whether pods of before served under this manifest, and all that serve now are later ones. Those started with the
/// configuration of now, or with one that is two minutes old at most: nothing more is known of any server that is not heard.
/// Another manifest may have nothing replaced at all: it may be that of the pods that served all the time.
fn are_followed(before: &Condition, observed: &Observation<'_>, cast: &Cast<'_>) -> bool {
    let seen = observed.previous.and_then(|previous| previous.observed_generation);
    let was_replacing = observed.previous.is_some_and(is_replacing);
    let is_remembered = before.reason == Reason::ConfigurationPending.name();
    let is_of_this = seen == Some(observed.generation);
    cast.serving == Some(Version::Current) && is_of_this && (was_replacing || is_remembered)
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
