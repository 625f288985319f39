//! The condition *Ready*. Pure.
//!
//! It is true where a pod serves and its server answers, somebody may call it, and it has an address. What is wrong with the
//! manifest otherwise is said, and takes nothing from clients: [`Lack`] tells what they use.

use longshore_sidecar_config::inventory::{Phase, Short};

use super::history::{Before, untold};
use super::lack::{Lack, Lacking};
use super::pod_roles::PodRoles;
use super::{Address, Observation, Offered, UNSAID, Verdict, is_silent, nobody, verdict};
use crate::mcp_server::condition::{Reason, Truth};

/// Whether clients can use the server. The first of these that holds is said: it is not reached; nobody has a key; nothing is
/// heard of it; it does not work; its clients lack nothing of the manifest; they lack something.
pub(super) fn ready(observed: &Observation<'_>, roles: &PodRoles<'_>, others: [&Verdict; 3]) -> Verdict {
    let [accepted, available, connected] = others;
    let before = Before::of(observed);
    if let Some(unreached) = unreached(observed, accepted) {
        return unreached;
    }
    let lack = Lack::of(observed, roles, others);
    let callers = roles.callers();
    // Of a revoked key, and a sidecar that goes on with it, the latter has to be known.
    let goes_on = lack.as_ref().is_some_and(|lack| lack.lasts) && callers != Some(false);
    let silent = roles.speaker.filter(|speaker| is_silent(speaker));
    // What was heard of a refusal has to be remembered until something is heard again.
    let was_refused = silent.is_some() && before.was_refused();
    if observed.has_no_keys() && accepted.truth == Truth::False && !goes_on && !was_refused {
        return verdict(Truth::False, accepted.reason, accepted.message.clone());
    }
    if let Some(still) = silent.and_then(|silent| before.still(observed, roles, silent, accepted)) {
        return still;
    }
    let summary = roles.speaker.and_then(|facts| facts.report.summary());
    let works = roles.serving.is_some()
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
        return verdict(Truth::False, reason, message);
    }
    let Some(lack) = lack else {
        let but = |but: &str| format!("clients can use the server, but {but}");
        if !observed.can_be_in_force() {
            let unapplied = observed.unapplied.and_then(|unapplied| unapplied.what.as_ref());
            let why = match unapplied {
                Some(what) if !observed.is_partly_refused() => {
                    format!("the API server has not taken {what} yet")
                }
                _ if observed.is_whole() && observed.has_pods_of_before() => {
                    "a pod from before it is still there".to_owned()
                }
                _ if observed.is_whole() => {
                    let untold = untold(observed);
                    format!(
                        "one of the sidecars has not answered, and may still run the previous configuration{untold}"
                    )
                }
                Some(_) | None => accepted.message.clone(),
            };
            let message = but(&format!("not all of the last change is in force: {why}"));
            return verdict(Truth::True, Reason::ServingPrevious, message);
        }
        let degraded = [available, connected].into_iter().find(|verdict| verdict.reason == Reason::Degraded);
        let flaw = degraded.or(Some(accepted).filter(|accepted| accepted.truth != Truth::True));
        let offered = summary.map(|it| Offered { tools: &it.tools, hidden: it.hidden_tools });
        let nobody = || observed.access.and_then(|access| nobody(access, observed.principals, offered));
        let short = || summary.and_then(|it| too_little_memory(it.short));
        let message = flaw.map(|flaw| flaw.message.clone()).or_else(nobody).or_else(short);
        let message = message.map_or_else(|| "clients can use the server".to_owned(), |it| but(&it));
        return verdict(Truth::True, Reason::Ready, message);
    };
    // What the sidecars say that they run comes before what was said of them, unless they are about to run something else.
    let lets_in = match (callers, before, lack.what) {
        (Some(false), _, Lacking::All) if lack.lasts => false,
        (_, Before::Could(_), _) | (_, _, Lacking::Pods) | (Some(true), ..) => true,
        (Some(false), ..) | (_, _, Lacking::AllYet) => false,
        // So it is with the previous configuration, unless that is of revoked keys.
        (None, Before::CouldNot(_), Lacking::All) => observed.has_no_keys(),
        (None, Before::Nothing, Lacking::All) => true,
    };
    if !lets_in {
        return lack.why;
    }
    let used = match lack.what {
        Lacking::All | Lacking::AllYet => "clients use the server as it was before the last change",
        Lacking::Pods => {
            "clients still use pods from before the last change, with the new auth, access and limits"
        }
    };
    let reason = if lack.is_refusal() { lack.why.reason } else { Reason::ServingPrevious };
    verdict(Truth::True, reason, format!("{used}: {}", lack.why.message))
}

/// What the manifest permits that there is too little memory for, and what to do about it.
fn too_little_memory(short: Short) -> Option<String> {
    let (what, lower) = if let Some(bytes) = short.request_bytes {
        (format!("requests of more than {}Ki", bytes >> 10), "limits.requestBytes")
    } else {
        (format!("more than {} sessions of a pod", short.sessions?), "sessions.total")
    };
    Some(format!(
        "the sidecar has too little memory for {what} and refuses those: raise spec.sidecar.resources.limits.memory, or \
         lower spec.{lower}"
    ))
}

/// Why nothing that clients say at the server's address comes to it, if so: whatever else is wrong.
fn unreached(observed: &Observation<'_>, accepted: &Verdict) -> Option<Verdict> {
    let (reason, words) = match observed.address {
        Address::Taken => (
            Reason::NameTaken,
            "a Service with the server's name belongs to something else, and clients would send their keys there",
        ),
        Address::Missing => {
            (Reason::Rejected, "the server has no Service: the API server has not accepted one yet")
        }
        Address::Unmade | Address::Unknown | Address::Known { .. } => return None,
    };
    // What is wrong with the manifest may be something else of the same name.
    let message = match accepted.truth {
        Truth::True => words.to_owned(),
        Truth::False | Truth::Unknown => format!("{words}; {}", accepted.message),
    };
    Some(verdict(Truth::False, reason, message))
}
