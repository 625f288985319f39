//! Fifth step: which pods are the server's, what their sidecars say, and a touch for those that run an old
//! configuration.

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
use crate::view::PodView;

/// The first tries again come soon: the kubelet may have been touched before it saw what changed.
const FIRST_RETRY: Duration = Duration::from_millis(700);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// A sidecar that refuses what it has read does not need to read it again and again.
const MOST_TOUCHES_OF_A_REFUSAL: u32 = 8;

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

/// Touches the pods whose sidecars run another configuration than they should: the kubelet then updates the mounted
/// files at once instead of within a minute. Returns when to look again.
pub async fn touch(
    context: &Context,
    server: &ServerKey,
    memory: &Mutex<ServerMemory>,
    desired: &Desired,
    pods: &[PodFacts],
) -> Result<Option<Duration>, ApiError> {
    let mut next: Option<Duration> = None;
    lock(memory).touches.retain(|uid, _| pods.iter().any(|facts| facts.pod.uid == *uid));
    for facts in pods {
        let Some(wanted) = stale(facts, desired) else {
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
        let refused = facts.report.summary().is_some_and(|summary| summary.config.error.is_some());
        if refused && attempts > MOST_TOUCHES_OF_A_REFUSAL {
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
        next = sooner(next, delay);
    }
    Ok(next)
}

fn sooner(one: Option<Duration>, other: Duration) -> Option<Duration> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// The digest of the configuration that a sidecar should run, if it says that it runs another.
/// What is written on a pod. It is another value each time, whoever led before: what is there already would be no change,
/// and wake no kubelet.
fn touched(wanted: &str, second: i64, attempt: u32) -> String {
    format!("{}.{second}.{attempt}", wanted.trim_start_matches("sha256:"))
}

fn stale(facts: &PodFacts, desired: &Desired) -> Option<String> {
    if facts.pod.ending || facts.pod.failed.is_some() {
        return None;
    }
    let summary = facts.report.summary()?;
    let wanted = desired.configs.get(facts.pod.upstream.as_deref()?)?;
    (summary.config.digest != *wanted).then(|| wanted.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_touch_is_like_another() {
        let values =
            [(10, 1), (10, 2), (700, 1)].map(|(second, attempt)| touched("sha256:ab", second, attempt));
        assert_eq!(values, ["ab.10.1", "ab.10.2", "ab.700.1"]);
    }
}
