//! The condition *Ready*. Pure.

use longshore_sidecar_config::inventory::Phase;

use super::cast::{Cast, Version};
use super::{Observation, Offered, PodFacts, UNSAID, Verdict, before, is_silent, nobody, unheard, verdict};
use crate::mcp_server::condition::{ConditionType, Reason, Truth};

/// Whether clients can use the server, and the generation of the manifest that they use.
pub(super) fn ready(observed: &Observation<'_>, cast: &Cast<'_>, others: [&Verdict; 3]) -> (Verdict, i64) {
    let generation = observed.generation;
    let summary = cast.face.and_then(|facts| facts.report.summary());
    if let Some(face) = cast.face
        && is_silent(face)
        && let Some(before) = before(observed, ConditionType::Ready, Truth::True)
    {
        let was = |reason: &Reason| reason.name() == before.reason;
        let reason = [Reason::Ready, Reason::ConfigurationRefused].into_iter().find(was);
        let reason = reason.unwrap_or(Reason::ServingPrevious);
        let served = before.observed_generation.unwrap_or(generation);
        let (reason, message) = match unheard(&face.report) {
            Some(_) if reason == Reason::ConfigurationRefused => (reason, before.message.clone()),
            Some(unheard) if served == generation => {
                (reason, format!("clients can use the server, but {unheard}"))
            }
            Some(unheard) => (
                Reason::ServingPrevious,
                format!(
                    "clients use the server as it was before the last change, or as it is now: {unheard}"
                ),
            ),
            None => (reason, before.message.clone()),
        };
        return (verdict(Truth::True, reason, message), served);
    }
    let works = cast.serving.is_some()
        && summary.is_some_and(|summary| summary.connection.is_steady() && summary.phase != Phase::Starting);
    if !works {
        let [accepted, available, connected] = others;
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
        return (Verdict { truth: Truth::False, reason, message }, generation);
    }
    let Some(pending) = pending(observed, cast, others) else {
        let [accepted, available, connected] = others;
        let degraded = [available, connected].into_iter().find(|verdict| verdict.reason == Reason::Degraded);
        let but = degraded.or(Some(accepted).filter(|accepted| accepted.truth != Truth::True));
        let offered = summary.map(|it| Offered { tools: &it.tools, hidden: it.hidden_tools });
        let nobody = || observed.access.and_then(|access| nobody(access, observed.principals, offered));
        let message = match but.map(|but| but.message.clone()).or_else(nobody) {
            Some(but) => format!("clients can use the server, but {but}"),
            None => "clients can use the server".to_owned(),
        };
        return (verdict(Truth::True, Reason::Ready, message), generation);
    };
    // Where the server was away in between, nobody knows any more which version an older pod is of: an earlier one.
    let served = match before(observed, ConditionType::Ready, Truth::True) {
        Some(before) => Some(before.observed_generation.unwrap_or(generation)),
        None if cast.serving != Some(Version::Current) => Some((generation - 1).max(1)),
        None => None,
    };
    match served {
        Some(generation) => {
            let message =
                format!("clients use the server as it was before the last change: {}", pending.message);
            // A bug, and nothing that passes: rules and keys that were taken back are still in force.
            let is_refused = pending.reason == Reason::ConfigurationRefused;
            let reason = if is_refused { pending.reason } else { Reason::ServingPrevious };
            (verdict(Truth::True, reason, message), generation)
        }
        None => (Verdict { truth: Truth::False, ..pending }, generation),
    }
}

/// Why the newest manifest is not in force, if it is not.
fn pending(
    observed: &Observation<'_>,
    cast: &Cast<'_>,
    [accepted, available, _]: [&Verdict; 3],
) -> Option<Verdict> {
    if observed.held_back {
        return Some(verdict(Truth::False, accepted.reason, accepted.message.clone()));
    }
    if cast.serving != Some(Version::Current) {
        return Some(verdict(Truth::False, available.reason, available.message.clone()));
    }
    let desired = observed.desired?;
    let behind = |facts: &&PodFacts| {
        let config = &facts.report.summary()?.config;
        let wanted = desired.config_of(&facts.pod);
        (wanted != Some(&*config.digest)).then(|| (config.clone(), wanted.is_none()))
    };
    // A pod that refuses it says more than one that has yet to read it, or cannot.
    let behind: Vec<_> = cast.serves.iter().filter_map(behind).collect();
    let (config, is_of_before) =
        behind.iter().find(|(config, of_before)| config.error.is_some() && !of_before).or(behind.first())?;
    Some(match &config.error {
        _ if *is_of_before => verdict(
            Truth::False,
            Reason::ConfigurationPending,
            "the sidecar is of an earlier release of Longshore and runs the configuration of before, until its pod is \
             replaced"
                .to_owned(),
        ),
        Some(error) => verdict(
            Truth::False,
            Reason::ConfigurationRefused,
            format!(
                "the sidecar refuses its configuration: {error}; this is a bug of Longshore: take back what was changed last, \
                 and report it with this message"
            ),
        ),
        None => verdict(
            Truth::False,
            Reason::ConfigurationPending,
            match cast.serves.len() {
                1 => "the new configuration is on its way to the sidecar".to_owned(),
                all => format!("the new configuration is on its way to {} of {all} sidecars", behind.len()),
            },
        ),
    })
}
