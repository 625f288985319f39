//! Fifth step: which pods are the server's, what their sidecars say, and a touch for those that run an old
//! configuration, or may.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::api::{self, ApiError};
use crate::inventory::{Observation, PodUid};
use crate::mcp_server::build::Desired;
use crate::mcp_server::context::{Context, object_ref};
use crate::mcp_server::memory::{ServerMemory, Touch, lock};
use crate::mcp_server::status::{PodFacts, Report};
use crate::metrics::Write;
use crate::mirror::ServerKey;
use crate::names::CONFIG_ANNOTATION;
use crate::ownership;
use crate::view::{ContainerState, PodView};

/// The first tries again come soon: the kubelet may have been touched before it saw what changed.
const FIRST_RETRY: Duration = Duration::from_millis(700);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// A sidecar that refuses what it has read does not need to read it again and again.
const MOST_TOUCHES_OF_A_REFUSAL: u32 = 8;

/// Of a sidecar that cannot be asked nobody knows whether the first touch came too early.
const TOUCHES_OF_THE_UNHEARD: u32 = 2;

/// The pods that really are the server's.
pub fn pods_of(context: &Context, server: &ServerKey, uid: &str) -> Vec<Arc<PodView>> {
    let mirrors = &context.mirrors;
    ownership::pods_of(&mirrors.deployments, &mirrors.replica_sets, &mirrors.pods, server, uid)
}

/// Names the pods whose sidecars are to be asked, and says what is known of each. The questions themselves are asked
/// all the time, beside the reconciliations.
pub fn probe(context: &Context, server: &ServerKey, uid: &str) -> Vec<PodFacts> {
    let pods = pods_of(context, server, uid);
    let addresses: BTreeMap<PodUid, IpAddr> =
        pods.iter().filter_map(|pod| Some((pod.uid.clone(), pod.askable_at()?))).collect();
    // A server that was deleted during this reconciliation is forgotten, and nobody would end the questions.
    if context.memory.knows(server, uid) {
        context.inventories.track(object_ref(server), addresses);
    }
    let facts = pods.into_iter().map(|pod| {
        let report = match context.inventories.of(&pod.uid) {
            Observation { unreachable: Some(error), .. } => Report::Unreachable(error),
            Observation { summary: Some(summary), .. } => Report::Answered(summary),
            Observation { .. } => Report::Pending,
        };
        PodFacts { pod, report }
    });
    facts.collect()
}

/// Touches the pods whose sidecars run another configuration than they should, as far as is known: the kubelet then updates the mounted
/// files at once instead of within a minute. Returns when to look again.
pub async fn touch(
    context: &Context,
    server: &ServerKey,
    memory: &Mutex<ServerMemory>,
    desired: &Desired,
    pods: &[PodFacts],
) -> Result<Option<Duration>, ApiError> {
    let mut next: Option<Duration> = None;
    remember(&mut lock(memory), pods);
    for facts in pods {
        let heard = lock(memory).heard.get(&facts.pod.uid).cloned();
        let Some(wanted) = stale(facts, desired, heard.as_deref()) else {
            lock(memory).touches.remove(&facts.pod.uid);
            continue;
        };
        let now = Instant::now();
        let before = lock(memory).touches.get(&facts.pod.uid).cloned().filter(|touch| touch.digest == wanted);
        if let Some(touch) = before.as_ref().filter(|touch| touch.next > now) {
            next = sooner(next, touch.next - now);
            continue;
        }
        let attempts = before.map_or(1, |touch| touch.attempts.saturating_add(1));
        if attempts > most_touches(&facts.report) {
            continue;
        }
        let value = touched(&wanted, Timestamp::now().as_second(), attempts);
        let patch = json!({ "metadata": { "annotations": { CONFIG_ANNOTATION: value } } });
        let objects = Api::<Pod>::namespaced(context.client.clone(), &server.namespace);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        match api::call(objects.patch_metadata(&facts.pod.name, &parameters, &patch)).await {
            Ok(_) => context.metrics.wrote(Write::Touch),
            Err(error) if error.is_not_found() => continue,
            // Something in the cluster does not let it be changed: the kubelet looks by itself in the end, and no other
            // pod waits for that.
            Err(error @ (ApiError::Refused(_) | ApiError::Conflict(_))) => {
                let pod = &facts.pod.name;
                tracing::warn!(%error, %pod, namespace = %server.namespace, "a pod may not be touched");
            }
            Err(error) => return Err(error),
        }
        let delay = FIRST_RETRY.saturating_mul(1_u32 << attempts.saturating_sub(2).min(7)).min(LAST_RETRY);
        lock(memory)
            .touches
            .insert(facts.pod.uid.clone(), Touch { digest: wanted, attempts, next: now + delay });
        if attempts < most_touches(&facts.report) {
            next = sooner(next, delay);
        }
    }
    Ok(next)
}

/// What is written on a pod. It is another value each time, whoever led before: what is there already would be no change,
/// and wake no kubelet.
fn touched(wanted: &str, second: i64, attempt: u32) -> String {
    format!("{}.{second}.{attempt}", wanted.trim_start_matches("sha256:"))
}

fn sooner(one: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// Keeps what each pod was last heard to run, and forgets those that have gone.
fn remember(memory: &mut ServerMemory, pods: &[PodFacts]) {
    let is_there = |uid: &String| pods.iter().any(|facts| facts.pod.uid == *uid);
    memory.touches.retain(|uid, _| is_there(uid));
    memory.heard.retain(|uid, _| is_there(uid));
    for facts in pods {
        if let Some(summary) = facts.report.summary() {
            memory.heard.insert(facts.pod.uid.clone(), summary.config.digest.clone());
        }
    }
}

/// How often a pod is touched for one configuration.
fn most_touches(report: &Report) -> u32 {
    match report {
        Report::Unreachable(_) => TOUCHES_OF_THE_UNHEARD,
        Report::Answered(summary) if summary.config.error.is_some() => MOST_TOUCHES_OF_A_REFUSAL,
        Report::Answered(_) | Report::Pending => u32::MAX,
    }
}

/// The digest of the configuration that a sidecar should run, if it runs another, or if it cannot be asked and has not
/// been heard to run it.
fn stale(facts: &PodFacts, desired: &Desired, heard: Option<&str>) -> Option<String> {
    let pod = &facts.pod;
    if pod.ending || pod.failed.is_some() {
        return None;
    }
    let wanted = desired.config_of(pod)?;
    let runs = match &facts.report {
        Report::Answered(summary) => Some(summary.config.digest.as_str()),
        // It serves all the same, whatever is between it and the operator.
        Report::Unreachable(_) if pod.sidecar.state == ContainerState::Running => heard,
        Report::Unreachable(_) | Report::Pending => return None,
    };
    (runs != Some(wanted)).then(|| wanted.to_owned())
}

#[cfg(test)]
mod tests {
    use longshore_sidecar_config::inventory::ConfigState;

    use super::*;
    use crate::inventory::Summary;
    use crate::view::ContainerView;

    fn said(digest: &str, error: Option<&str>) -> Report {
        let error = error.map(str::to_owned);
        let config = ConfigState { digest: digest.to_owned(), generation: 1, error };
        Report::Answered(Arc::new(Summary { config, ..Summary::of_config(digest) }))
    }

    fn pod() -> PodView {
        let sidecar = ContainerView { state: ContainerState::Running, ..ContainerView::default() };
        let config_maps = ["theirs".to_owned(), "map".to_owned()].into();
        PodView { uid: "1".to_owned(), config_maps, sidecar, ..PodView::default() }
    }

    #[test]
    fn pods_are_touched_that_run_another_configuration_or_may() {
        let desired = Desired {
            template: "t".to_owned(),
            configs: BTreeMap::from([("map".to_owned(), "new".to_owned())]),
            replicas: 1,
            recreates: false,
        };
        let unreachable = || Report::Unreachable("refused".to_owned());
        let of_before = || PodView { config_maps: vec!["map-of-before".to_owned()], ..pod() };
        let starting = || PodView { sidecar: ContainerView::default(), ..pod() };
        for (name, pod, report, heard, expected) in [
            ("runs it", pod(), said("new", None), None, false),
            ("runs the one before", pod(), said("old", None), None, true),
            ("says nothing yet", pod(), Report::Pending, None, false),
            ("cannot be asked", pod(), unreachable(), None, true),
            ("cannot be asked, and ran the one before", pod(), unreachable(), Some("old"), true),
            ("cannot be asked, and ran it", pod(), unreachable(), Some("new"), false),
            ("does not run yet", starting(), unreachable(), None, false),
            ("ends", PodView { ending: true, ..pod() }, said("old", None), None, false),
            (
                "has ended",
                PodView { failed: Some("Evicted".to_owned()), ..pod() },
                unreachable(),
                None,
                false,
            ),
            ("reads what is not written any more", of_before(), said("old", None), None, false),
            ("reads that, and cannot be asked", of_before(), unreachable(), Some("old"), false),
        ] {
            let facts = PodFacts { pod: Arc::new(pod), report };
            assert_eq!(stale(&facts, &desired, heard).is_some(), expected, "{name}");
        }
        assert_eq!(most_touches(&unreachable()), TOUCHES_OF_THE_UNHEARD);
        assert_eq!(most_touches(&said("old", Some("broken"))), MOST_TOUCHES_OF_A_REFUSAL);
        assert_eq!(most_touches(&said("old", None)), u32::MAX);
    }

    #[test]
    fn what_a_pod_was_heard_to_run_is_remembered_while_it_is_there() {
        let facts = |report: Report| vec![PodFacts { pod: Arc::new(pod()), report }];
        let mut memory = ServerMemory::default();
        for (pods, expected) in [
            (facts(Report::Pending), None),
            (facts(said("old", None)), Some("old")),
            (facts(Report::Unreachable(String::new())), Some("old")),
            (facts(said("new", None)), Some("new")),
            (vec![], None),
        ] {
            remember(&mut memory, &pods);
            assert_eq!(memory.heard.get("1").map(String::as_str), expected);
        }
    }

    #[test]
    fn no_touch_is_like_another() {
        let values =
            [(10, 1), (10, 2), (700, 1)].map(|(second, attempt)| touched("sha256:ab", second, attempt));
        assert_eq!(values, ["ab.10.1", "ab.10.2", "ab.700.1"]);
    }
}
