//! Fifth step: which pods are the server's, what their sidecars say, and a touch for those that run an old
//! configuration, or may.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use longshore_sidecar_client::jittered;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::api::{self, ApiError};
use crate::inventory::{Observation, PodUid};
use crate::mcp_server::build::Desired;
use crate::mcp_server::context::{Context, object_ref};
use crate::mcp_server::memory::{ServerMemory, Touch};
use crate::mcp_server::status::{PodFacts, Report};
use crate::metrics::Write;
use crate::mirror::ServerKey;
use crate::names::CONFIG_ANNOTATION;
use crate::ownership;
use crate::view::{ContainerState, PodView};

/// So many of a server's pods are touched at a time.
const AT_ONCE: usize = 16;
/// The first tries again come soon: the kubelet may have been touched before it saw what changed.
const FIRST_RETRY: Duration = Duration::from_millis(700);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// A sidecar that refuses what it has read does not need to read it again and again.
const MOST_TOUCHES_OF_A_REFUSAL: u32 = 8;

/// Of a sidecar that cannot be asked nobody knows whether the first touch came too early.
const TOUCHES_OF_THE_UNHEARD: u32 = 2;

/// The pods that really are the server's.
pub(crate) fn pods_of(context: &Context, server: &ServerKey, uid: &str) -> Vec<Arc<PodView>> {
    let mirrors = &context.mirrors;
    ownership::pods_of(&mirrors.deployments, &mirrors.replica_sets, &mirrors.pods, server, uid)
}

/// Names the pods whose sidecars are to be asked, and says what is known of each. The questions themselves are asked
/// all the time, beside the reconciliations.
pub(crate) fn probe(context: &Context, server: &ServerKey, uid: &str) -> Vec<PodFacts> {
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

/// What came of touching pods.
#[derive(Debug)]
pub(crate) struct Touched {
    /// When to look again.
    pub again: Option<Duration>,
    /// Whether one could not be touched now, and is to be.
    pub failed: bool,
}

/// Touches the pods whose sidecars run another configuration than they should, as far as is known: the kubelet then updates the
/// mounted files at once instead of within a minute. (`is_applied`: the API server has what they should run.)
///
/// Each has delays of its own: one that cannot be touched, as where a webhook does not answer for it, keeps none waiting
/// for what may end a key that was revoked, unless so many are.
pub(crate) async fn touch(
    context: &Context,
    server: &ServerKey,
    memory: &Mutex<ServerMemory>,
    desired: &Desired,
    pods: &[PodFacts],
    is_applied: bool,
) -> Touched {
    memory.lock().touches.retain(|uid, _| pods.iter().any(|facts| facts.pod.uid == *uid));
    let touches: Vec<_> =
        pods.iter().map(|facts| touch_one(context, server, memory, desired, is_applied, facts)).collect();
    let touches: Vec<_> = stream::iter(touches).buffer_unordered(AT_ONCE).collect().await;
    let now = Instant::now();
    let again = touches.iter().filter_map(|(again, _)| *again).min();
    Touched {
        again: again.map(|again| again.saturating_duration_since(now)),
        failed: touches.iter().any(|(_, failed)| *failed),
    }
}

/// Touches one of them, if that is due. Says when to look again, and whether it failed.
async fn touch_one(
    context: &Context,
    server: &ServerKey,
    memory: &Mutex<ServerMemory>,
    desired: &Desired,
    is_applied: bool,
    facts: &PodFacts,
) -> (Option<Instant>, bool) {
    let second = Timestamp::now().as_second();
    let Some(wanted) = stale(facts, desired, is_applied, second) else {
        memory.lock().touches.remove(&facts.pod.uid);
        return (None, false);
    };
    let now = Instant::now();
    let before = memory.lock().touches.get(&facts.pod.uid).cloned().filter(|touch| touch.digest == wanted);
    if let Some(touch) = before.as_ref().filter(|touch| touch.next > now) {
        return (Some(touch.next), touch.failures > 0);
    }
    let (before, failures) = before.map_or((0, 0), |touch| (touch.attempts, touch.failures));
    let attempts = before.saturating_add(1);
    // One that is heard to run another one shows that it was not enough to be told before, and a clock that is ahead nothing.
    let is_unheard = matches!(facts.report, Report::Unreachable(_));
    let told = facts.pod.told.as_ref().filter(|_| is_unheard);
    let told = told.filter(|told| told.digest == wanted && told.since <= second);
    let most = most_touches(&facts.report, told.is_some());
    if attempts > most {
        return (None, false);
    }
    let (pod, namespace) = (&facts.pod.name, &server.namespace);
    let value = touched(&wanted, told.map_or(second, |told| told.since), second, attempts);
    let patch = json!({ "metadata": { "annotations": { CONFIG_ANNOTATION: value } } });
    let objects = Api::<Pod>::namespaced(context.client.clone(), namespace);
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let (attempts, failures, delay) = match api::call(objects.patch_metadata(pod, &parameters, &patch)).await
    {
        Ok(_) => {
            context.metrics.wrote(Write::Touch);
            (attempts, 0, pause(attempts))
        }
        Err(error) if error.is_not_found() => return (None, false),
        // Something in the cluster does not let it be changed, now or ever: the kubelet looks by itself in the end.
        Err(error @ (ApiError::Refused(_) | ApiError::Conflict(_))) => {
            tracing::warn!(
                %error,
                %pod,
                %namespace,
                "a pod's annotation may not be patched: its kubelet picks up the configuration later"
            );
            (attempts, 0, pause(attempts))
        }
        // It was not touched. What takes long to fail is not tried again sooner than that: all others are looked at
        // again only when it has failed.
        Err(error) => {
            let failures = failures.saturating_add(1);
            let delay = jittered(pause(failures)).max(now.elapsed());
            tracing::warn!(
                %error,
                %pod,
                %namespace,
                ?delay,
                "cannot patch a pod's annotation, will try again"
            );
            (before, failures, delay)
        }
    };
    let next = Instant::now() + delay;
    memory.lock().touches.insert(facts.pod.uid.clone(), Touch { digest: wanted, attempts, failures, next });
    ((attempts < most).then_some(next), failures > 0)
}

/// How long to wait after so many touches, or failures, in a row.
fn pause(times: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1_u32 << times.saturating_sub(2).min(7)).min(LAST_RETRY)
}

/// What is written on a pod: what it is told, since when, and another value each time, whoever led before: what is there
/// already would be no change, and wake no kubelet.
fn touched(wanted: &str, since: i64, second: i64, attempt: u32) -> String {
    format!("{}.{since}.{second}.{attempt}", wanted.trim_start_matches("sha256:"))
}

/// How often a pod is touched for one configuration. Of a sidecar that cannot be asked nothing but what stands on its pod will
/// ever say that it runs it, so that has to come to stand there.
fn most_touches(report: &Report, is_told: bool) -> u32 {
    match report {
        Report::Unreachable(_) if is_told => TOUCHES_OF_THE_UNHEARD,
        Report::Answered(summary) if summary.config.error.is_some() => MOST_TOUCHES_OF_A_REFUSAL,
        Report::Unreachable(_) | Report::Answered(_) | Report::Pending => u32::MAX,
    }
}

/// The digest of the configuration that a sidecar should run, if it runs another, or may.
fn stale(facts: &PodFacts, desired: &Desired, is_applied: bool, now: i64) -> Option<String> {
    let pod = &facts.pod;
    let can_load = match &facts.report {
        Report::Answered(_) => true,
        // It serves all the same, whatever is between it and the operator. Nothing but the time since it was told will say that
        // it has what is there.
        Report::Unreachable(_) => is_applied && pod.sidecar.state == ContainerState::Running,
        Report::Pending => false,
    };
    if pod.ending || pod.failed.is_some() || !can_load {
        return None;
    }
    let wanted = desired.config_of(pod)?;
    (!facts.runs(wanted, now)).then(|| wanted.to_owned())
}
