//! The condition *Ready*. Pure.
//!
//! It is true where a pod serves and its server answers, somebody may call it, and it has an address. What is wrong with the
//! manifest otherwise is said, and takes nothing from clients: [`Lack`] tells what they use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use longshore_sidecar_config::inventory::Phase;

use super::cast::Cast;
use super::lack::{Lack, Lacking};
use super::{
    Address, Observation, Offered, PodFacts, UNSAID, Verdict, before, is_silent, nobody, unheard, verdict,
};
use crate::mcp_server::condition::{ConditionType, Reason, Truth};

/// What is known of before.
#[derive(Clone, Copy)]
enum Before<'a> {
    /// Clients could use the server, and this was said of it.
    Could(&'a Condition),
    /// They could not, though it worked: nobody had a key for example. So it is with the configuration of before.
    CouldNot,
    /// Nothing: it was away, or is new.
    Nothing,
}

/// Whether clients can use the server, and the generation of the manifest that they use.
pub(super) fn ready(observed: &Observation<'_>, cast: &Cast<'_>, others: [&Verdict; 3]) -> (Verdict, i64) {
    let generation = observed.generation;
    let [accepted, available, connected] = others;
    let before = Before::of(observed);
    let lack = Lack::of(observed, cast, others);
    // Of a key that was taken back, and a sidecar that goes on with it, the latter has to be known.
    let is_refused = lack.as_ref().is_some_and(Lack::is_refusal);
    if lets_nobody_in(observed) && accepted.truth == Truth::False && !is_refused {
        return (verdict(Truth::False, accepted.reason, accepted.message.clone()), generation);
    }
    if let Some(silent) = cast.face.filter(|face| is_silent(face))
        && let Some(as_before) = as_before(silent, before, generation)
    {
        return as_before;
    }
    let summary = cast.face.and_then(|facts| facts.report.summary());
    let works = cast.serving.is_some()
        && summary.is_some_and(|summary| summary.connection.is_steady() && summary.phase != Phase::Starting);
    if !works {
        // What is wrong with the manifest and holds nothing back is not what keeps it from serving.
        let in_order = if observed.held_back {
            [accepted, available, connected]
        } else {
            [available, connected, accepted]
        };
        let cause = in_order.into_iter().find(|verdict| verdict.truth != Truth::True);
        // There is none where all else holds by what was known before.
        let (reason, message) = cause.map_or((Reason::Starting, UNSAID.to_owned()), |verdict| {
            (verdict.reason, verdict.message.clone())
        });
        return (verdict(Truth::False, reason, message), generation);
    }
    let Some(lack) = lack else {
        let but = |but: &str| format!("clients can use the server, but {but}");
        if let Before::Could(before) = before
            && let Some(earlier) = before.observed_generation.filter(|earlier| *earlier < generation)
            && observed.is_partly_refused()
        {
            let message = but(&format!("not all of the last change is in force: {}", accepted.message));
            return (verdict(Truth::True, Reason::ServingPrevious, message), earlier);
        }
        let degraded = [available, connected].into_iter().find(|verdict| verdict.reason == Reason::Degraded);
        let flaw = degraded.or(Some(accepted).filter(|accepted| accepted.truth != Truth::True));
        let offered = summary.map(|it| Offered { tools: &it.tools, hidden: it.hidden_tools });
        let nobody = || observed.access.and_then(|access| nobody(access, observed.principals, offered));
        let message = flaw.map(|flaw| flaw.message.clone()).or_else(nobody);
        let message = message.map_or_else(|| "clients can use the server".to_owned(), |it| but(&it));
        return (verdict(Truth::True, Reason::Ready, message), generation);
    };
    let served = match (before, lack.what) {
        (Before::Could(before), _) => before.observed_generation.unwrap_or(generation),
        (Before::CouldNot, Lacking::All | Lacking::AllYet) | (Before::Nothing, Lacking::AllYet) => {
            return (lack.why, generation);
        }
        // Where the server was away in between, nobody knows any more which version they use: an earlier one.
        (Before::CouldNot, Lacking::Pods) | (Before::Nothing, Lacking::Pods | Lacking::All) => {
            (generation - 1).max(1)
        }
    };
    let used = match lack.what {
        Lacking::All | Lacking::AllYet => "clients use the server as it was before the last change",
        Lacking::Pods => {
            "clients still use pods of before the last change, with the auth, access and limits of now"
        }
    };
    let reason = if is_refused { lack.why.reason } else { Reason::ServingPrevious };
    (verdict(Truth::True, reason, format!("{used}: {}", lack.why.message)), served)
}

/// Whether nobody has a key, or whoever has the server's address is somebody else.
fn lets_nobody_in(observed: &Observation<'_>) -> bool {
    observed.principals.is_some_and(<[_]>::is_empty) || observed.address == Address::Taken
}

/// What is to be said of a server of which nothing is heard, by what was said before. The kubelet says that it serves.
fn as_before(silent: &PodFacts, before: Before<'_>, generation: i64) -> Option<(Verdict, i64)> {
    let unheard = unheard(&silent.report);
    let but = |unheard: &str| format!("clients can use the server, but {unheard}");
    let before = match (before, &unheard) {
        (Before::Could(before), _) => before,
        // What kept clients out has gone, and nobody will hear when the sidecar knows it.
        (Before::CouldNot, Some(unheard)) => {
            return Some((verdict(Truth::True, Reason::Ready, but(unheard)), generation));
        }
        (Before::CouldNot, None) | (Before::Nothing, _) => return None,
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
            format!("clients use the server as it was before the last change, or as it is now: {unheard}"),
        ),
        None => (reason, before.message.clone()),
    };
    Some((verdict(Truth::True, reason, message), served))
}

// === impl Before ===

impl<'a> Before<'a> {
    fn of(observed: &Observation<'a>) -> Self {
        let was = |type_, truth| before(observed, type_, truth);
        if let Some(ready) = was(ConditionType::Ready, Truth::True) {
            return Self::Could(ready);
        }
        let all_else = [ConditionType::Available, ConditionType::Connected];
        let worked = all_else.into_iter().all(|type_| was(type_, Truth::True).is_some());
        match was(ConditionType::Ready, Truth::False) {
            Some(_) if worked => Self::CouldNot,
            Some(_) | None => Self::Nothing,
        }
    }
}
