//! What was said of a server before, and what of that still holds where its sidecar says nothing. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Observation, PodFacts, UNSAID, Verdict, before, unheard, verdict};
use crate::mcp_server::condition::{ConditionType, Reason, Truth};

/// What keeps clients out of a server that works, and is gone once somebody has a key and the Service is its own.
const KEEP_OUT: [Reason; 6] = [
    Reason::SecretNotFound,
    Reason::SecretReserved,
    Reason::InvalidKeys,
    Reason::NameTaken,
    // Of a moment: the keys are there, and on their way.
    Reason::ConfigurationPending,
    // Nothing was heard that did.
    Reason::Starting,
];

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

    /// What is to be said of a server of which nothing is heard. The kubelet says that it serves.
    pub(super) fn still(
        self,
        observed: &Observation<'_>,
        silent: &PodFacts,
        accepted: &Verdict,
    ) -> Option<(Verdict, i64)> {
        let unheard = unheard(&silent.report);
        let (generation, in_force) = (observed.generation, observed.in_force());
        let but = |unheard: &str| format!("clients can use the server, but {unheard}");
        let before = match self {
            Self::Could(before) => before,
            Self::CouldNot(before) => {
                let verdict = match unheard {
                    _ if !has_gone(before, observed, silent) => kept_out(before, accepted),
                    // Nobody will hear when the sidecar knows it.
                    Some(unheard) if in_force == generation => {
                        verdict(Truth::True, Reason::Ready, but(&unheard))
                    }
                    Some(unheard) => verdict(Truth::True, Reason::ServingPrevious, but(&unheard)),
                    None => verdict(Truth::False, Reason::ConfigurationPending, UNSAID),
                };
                return Some((verdict, in_force));
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

/// Whether what kept clients out is known to be gone: its sidecar can have the configuration, in which somebody has a key.
fn has_gone(before: &Condition, observed: &Observation<'_>, silent: &PodFacts) -> bool {
    KEEP_OUT.iter().any(|reason| reason.name() == before.reason)
        && observed.principals.is_some_and(|principals| !principals.is_empty())
        && observed.desired.is_some_and(|desired| desired.config_of(&silent.pod).is_some())
}

/// Why clients are still kept out: what is wrong now, or what was.
fn kept_out(before: &Condition, accepted: &Verdict) -> Verdict {
    let was = Reason::ALL.iter().find(|reason| reason.name() == before.reason);
    match was {
        Some(reason) if accepted.truth == Truth::True => {
            verdict(Truth::False, *reason, before.message.clone())
        }
        _ if accepted.truth == Truth::True => verdict(Truth::False, Reason::Starting, UNSAID),
        _ => verdict(Truth::False, accepted.reason, accepted.message.clone()),
    }
}
