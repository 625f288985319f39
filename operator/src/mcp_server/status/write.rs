//! Writes a status and says what changed. The only place that does.

use std::sync::Mutex;

use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource};
use longshore_crds::{McpServer, McpServerStatus};
use serde_json::json;

use crate::api::{self, ApiError};
use crate::mcp_server::condition::{ConditionType, Reason, Truth};
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::{ServerMemory, lock};
use crate::metrics::Write;
use crate::mirror::ServerKey;
use crate::names::MANAGER;

/// The status before: what was written last, as long as the watch has not shown what came of it.
pub fn previous(
    memory: &Mutex<ServerMemory>,
    version: u64,
    seen: Option<&McpServerStatus>,
) -> Option<McpServerStatus> {
    match &lock(memory).status {
        Some((written, status)) if version < *written => Some(status.clone()),
        Some(_) | None => seen.cloned(),
    }
}

/// Writes the status if it is not what it was.
pub async fn write(
    context: &Context,
    server: &ServerKey,
    uid: &str,
    memory: &Mutex<ServerMemory>,
    previous: Option<&McpServerStatus>,
    status: &McpServerStatus,
) -> Result<(), ApiError> {
    if previous == Some(status) {
        return Ok(());
    }
    let body = json!({
        "apiVersion": McpServer::api_version(&()),
        "kind": McpServer::kind(&()),
        // With the UID, so that a server which took the name meanwhile does not get this status.
        "metadata": { "name": server.name, "namespace": server.namespace, "uid": uid },
        "status": status,
    });
    // Of the answer only the metadata is read: the object itself may be unreadable.
    let servers = Api::<PartialObjectMeta<McpServer>>::namespaced(context.client.clone(), &server.namespace);
    let parameters = PatchParams::apply(MANAGER).force();
    let written =
        match api::call(servers.patch_subresource("status", &server.name, &parameters, &Patch::Apply(body)))
            .await
        {
            Ok(written) => written,
            // It was deleted meanwhile.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        };
    context.metrics.wrote(Write::Status);
    let version = written.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    lock(memory).status = Some((version.unwrap_or_default(), status.clone()));
    let reference =
        kube::runtime::reflector::ObjectRef::<McpServer>::new(&server.name).within(&server.namespace);
    let mut reference = k8s_openapi::api::core::v1::ObjectReference::from(reference);
    reference.uid = Some(uid.to_owned());
    for event in events(previous, status) {
        // Events are a courtesy: one that cannot be written changes nothing.
        if let Err(error) = api::call(context.recorder.publish(&event, &reference)).await
            && !error.is_namespace_ending()
        {
            tracing::warn!(%error, "an event could not be written");
        }
    }
    Ok(())
}

/// What is worth an event: that a server became ready or no longer is, and every cause of a failure once.
fn events(previous: Option<&McpServerStatus>, status: &McpServerStatus) -> Vec<Event> {
    let before = previous.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut events: Vec<Event> = Vec::new();
    for condition in &status.conditions {
        let was = before.iter().find(|before| before.type_ == condition.type_);
        if was.is_some_and(|was| was.status == condition.status && was.reason == condition.reason) {
            continue;
        }
        let is_ready = condition.type_ == ConditionType::Ready.name();
        let good =
            condition.status == Truth::True.name() && condition.reason != Reason::RolloutFailing.name();
        let became_ready = is_ready && was.is_none_or(|was| was.status != condition.status);
        if (good && !became_ready)
            || condition.status == Truth::Unknown.name()
            || is_passing(&condition.reason)
        {
            continue;
        }
        if events.iter().any(|event| event.reason == condition.reason) {
            continue;
        }
        events.push(Event {
            type_: if good { EventType::Normal } else { EventType::Warning },
            reason: condition.reason.clone(),
            note: Some(condition.message.clone()),
            action: condition.type_.clone(),
            secondary: None,
        });
    }
    events
}

/// What every server goes through.
fn is_passing(reason: &str) -> bool {
    [Reason::Starting, Reason::NoPod, Reason::Connecting, Reason::ConfigurationPending, Reason::RollingOut]
        .iter()
        .any(|passing| passing.name() == reason)
}
