//! Beside the steps: whether a server's session keys take their next one.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType};
use longshore_crds::McpServer;

use crate::digest;
use crate::mcp_server::build::Desired;
use crate::mcp_server::context::Context;
use crate::mcp_server::dereference::own_keys;
use crate::mcp_server::session_keys::{SessionKeys, Situation, Step, lives};
use crate::mcp_server::status::PodFacts;
use crate::mcp_server::validate::ValidatedServer;
use crate::mirror::ServerKey;
use crate::names::ROTATE_ANNOTATION;
use crate::settings::Settings;

/// The reason of the event that tells of a new key.
const KEY_ROTATED: &str = "SessionKeyRotated";
/// When to look again at pods that keep the keys waiting: nothing may tell that a node which is lost takes its pods with
/// it.
const WAITS: Duration = Duration::from_secs(30);
/// How long after the end of its grace period a pod may still be there.
const LAST_BREATH: i64 = 60;

/// Whether the session keys take a step.
pub(crate) struct Rotation {
    /// The keys after that step, if they take one.
    pub next: Option<(SessionKeys, Step)>,
    /// When to look again.
    pub again: Option<Duration>,
}

/// Decides whether the session keys take a step, and makes a new key where one is wanted. No client.
pub(crate) fn rotate(
    server: &ValidatedServer,
    settings: &Settings,
    wish: Option<&str>,
    pods: &[PodFacts],
    desired: &Desired,
) -> Result<Rotation, own_keys::Error> {
    let now = Timestamp::now();
    let situation = Situation {
        now,
        lives: lives(
            Duration::from_millis(server.sessions.max_age_ms),
            Duration::from_millis(server.limits.request_timeout_ms),
        ),
        rotate_after: settings.rotate_session_keys_after.map(|after| spread(after, &server.identity.uid)),
        wish,
        confirmed: pods.iter().all(|facts| confirms(facts, desired, now.as_second())),
    };
    let next = server.session_keys.advance(&situation, own_keys::material)?;
    let again = match &next {
        // The Secret's change is news that leads here again.
        Some(_) => None,
        None if !situation.confirmed && server.session_keys.has_next_step(&situation) => Some(WAITS),
        None => server.session_keys.due(&situation),
    };
    Ok(Rotation { next, again })
}

/// Up to a tenth sooner, by the server's UID: those that were made together do not have all their keys made anew at once.
fn spread(after: Duration, uid: &str) -> Duration {
    let part = u8::from_str_radix(&digest::hex(uid.as_bytes())[..2], 16).unwrap_or_default();
    after - after / 10 * u32::from(part) / 256
}

/// What the server's owner wrote to ask for a new key.
pub(crate) fn wish(server: &McpServer) -> Option<&str> {
    server.metadata.annotations.as_ref()?.get(ROTATE_ANNOTATION).map(String::as_str)
}

/// Says that the keys moved on. Client required.
pub(crate) async fn tell(context: &Context, server: &ServerKey, uid: &str, step: Step) {
    let ServerKey { name, namespace } = server;
    tracing::info!(server = %name, %namespace, ?step, "session key rotation: next step");
    let Step::Sealing { id, before } = step else { return };
    let event = Event {
        type_: EventType::Normal,
        reason: KEY_ROTATED.to_owned(),
        note: Some(format!(
            "new session ids are sealed with key {id}; key {before} is accepted until no session of it can be left"
        )),
        // Those of one action are told as one, in the words of the first.
        action: format!("SealWithKey{id}"),
        secondary: None,
    };
    context.tell(server, uid, &event).await;
}

/// Whether a pod runs the configuration that it should, or can open no session id.
fn confirms(facts: &PodFacts, desired: &Desired, now: i64) -> bool {
    let pod = &facts.pod;
    let is_gone = pod.gone_by.is_some_and(|gone_by| now > gone_by.saturating_add(LAST_BREATH));
    // No node has it, so nothing of the Secret is mounted yet.
    if is_gone || pod.failed.is_some() || pod.unschedulable.is_some() {
        return true;
    }
    let wanted = desired.config_of(pod);
    let runs = facts.report.summary().map(|summary| summary.config.digest.as_str());
    wanted.is_some() && runs == wanted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::inventory::Summary;
    use crate::mcp_server::status::Report;
    use crate::view::PodView;

    #[test]
    fn every_pod_that_can_open_an_id_has_to_confirm() {
        let desired = Desired {
            template: "new".to_owned(),
            configs: BTreeMap::from([("map".to_owned(), "sha256:wanted".to_owned())]),
            replicas: 2,
            recreates: false,
        };
        let said = |digest: &str| Report::Answered(Arc::new(Summary::of_config(digest)));
        let pod = || PodView { config_maps: vec!["map".to_owned()], ..PodView::default() };
        for (name, pod, report, expected) in [
            ("has loaded it", pod(), said("sha256:wanted"), true),
            ("has not", pod(), said("sha256:before"), false),
            ("says nothing", pod(), Report::Pending, false),
            ("cannot be reached", pod(), Report::Unreachable(String::new()), false),
            (
                "reads what is not written any more",
                PodView { config_maps: vec![], ..pod() },
                said("x"),
                false,
            ),
            ("has ended", PodView { failed: Some("Evicted".to_owned()), ..pod() }, Report::Pending, true),
            (
                "has no node",
                PodView { unschedulable: Some("0/1".to_owned()), ..pod() },
                Report::Pending,
                true,
            ),
            (
                "is about to end",
                PodView { ending: true, gone_by: Some(1000), ..pod() },
                Report::Pending,
                false,
            ),
            (
                "should have ended",
                PodView { ending: true, gone_by: Some(900), ..pod() },
                Report::Pending,
                true,
            ),
        ] {
            let facts = PodFacts { pod: Arc::new(pod), report };
            assert_eq!(confirms(&facts, &desired, 1000), expected, "{name}");
        }
    }
}
