//! The condition *Connected*. Pure.

use super::available::named;
use super::diagnosis::{self, Diagnosis, Severity};
use super::pod_roles::PodRoles;
use super::{Observation, PodFacts, Report, UNSAID, Verdict, before, is_silent, unheard, verdict};
use crate::inventory::Summary;
use crate::mcp_server::condition::{ConditionType, Reason, Truth};

/// After this comes why pods that serve have no server. What stands before is in part the server's own words.
pub(super) const UNREACHED: &str = "cannot reach theirs: ";

/// Whether the sidecar and the server understand each other.
pub(super) fn connected(observed: &Observation<'_>, roles: &PodRoles<'_>) -> Verdict {
    let Some(speaker) = roles.speaker else {
        let is_made = !observed.held_back && observed.wants_pods();
        let message = if is_made { "the pod is being made" } else { "there is no pod" };
        return verdict(Truth::Unknown, Reason::NoPod, message);
    };
    // What the kubelet saw explains a lost connection better than the connection does.
    let failed = || diagnosis::of_containers(speaker).or_else(|| diagnosis::recalled(observed, speaker));
    let failed = if speaker.pod.ready { None } else { failed() };
    if let Some(diagnosis) = failed {
        return verdict(Truth::False, diagnosis.reason, diagnosis.message);
    }
    if !speaker.pod.ready && !diagnosis::is_under_way(&speaker.pod) {
        let diagnosis =
            diagnosis::of_others(&speaker.pod).unwrap_or_else(|| diagnosis::starting(&speaker.pod));
        return verdict(Truth::Unknown, diagnosis.reason, diagnosis.message);
    }
    if is_silent(speaker)
        && let Some(before) = before(observed, ConditionType::Connected, Truth::True)
    {
        return match unheard(&speaker.report) {
            Some(message) => verdict(Truth::True, Reason::Degraded, message),
            None => verdict(Truth::True, Reason::Connected, before.message.clone()),
        };
    }
    match &speaker.report {
        Report::Pending => match lost_before(observed, speaker) {
            Some((reason, message)) => verdict(Truth::False, reason, message),
            None => verdict(Truth::Unknown, Reason::Connecting, UNSAID),
        },
        Report::Unreachable(error) => {
            let diagnosis = diagnosis::unreachable(error);
            verdict(Truth::Unknown, diagnosis.reason, diagnosis.message)
        }
        Report::Answered(summary) => match diagnosis::of_connection(&speaker.pod, &summary.connection) {
            Some(diagnosis) if diagnosis.severity == Severity::Normal => {
                verdict(Truth::Unknown, diagnosis.reason, diagnosis.message)
            }
            Some(diagnosis) => verdict(Truth::False, diagnosis.reason, diagnosis.message),
            None => match lost(roles) {
                Some((lost, diagnosis)) => verdict(
                    Truth::True,
                    Reason::Degraded,
                    format!(
                        "{}; but {lost} of the {} pods that serve {UNREACHED}{}",
                        connection_words(summary),
                        roles.serves.len(),
                        named(&diagnosis)
                    ),
                ),
                None => verdict(Truth::True, Reason::Connected, connection_words(summary)),
            },
        },
    }
}

/// What was said last of a pod that serves and has lost its server. So it is until its sidecar is heard: the operator has just
/// started.
fn lost_before(observed: &Observation<'_>, speaker: &PodFacts) -> Option<(Reason, String)> {
    if !is_silent(speaker) || before(observed, ConditionType::Available, Truth::True).is_none() {
        return None;
    }
    let was = before(observed, ConditionType::Connected, Truth::False)?;
    Some((Reason::of(&was.reason)?, was.message.clone()))
}

/// How many of the pods that serve have lost their server, and why one of them has.
fn lost(roles: &PodRoles<'_>) -> Option<(usize, Diagnosis)> {
    let diagnoses = roles
        .serves
        .iter()
        .filter_map(|facts| diagnosis::of_connection(&facts.pod, &facts.report.summary()?.connection));
    let mut failures = diagnoses.filter(|diagnosis| diagnosis.severity == Severity::Failure);
    let first = failures.next()?;
    Some((1 + failures.count(), first))
}

fn connection_words(summary: &Summary) -> String {
    let tools = match summary.tools.count {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    };
    let revision =
        summary.server.as_ref().map_or_else(|| "MCP".to_owned(), |server| server.revisions().join(", "));
    let words = format!("the server answers, speaks {revision} and has {tools}");
    match &summary.noise {
        None => words,
        // What it is and not how much: a status that counted would never settle.
        Some(line) => format!(
            "{words}; its stdout also has lines that are no messages and are dropped, let it log to stderr instead: \
             {line}"
        ),
    }
}
