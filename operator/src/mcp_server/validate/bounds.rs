//! Sizes, times and numbers: of requests, of sessions and of processes. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use longshore_crds::mcp_server as manifest;
use longshore_sidecar_config as config;

use super::quantity;
use crate::mcp_server::condition::Problem;

/// The part of a pod's sessions that one principal may have by default.
const SHARE_OF_SESSIONS: u32 = 10;
/// The part of a pod's processes. They are few, so a tenth would often be none.
const SHARE_OF_PROCESSES: u32 = 4;

/// What a sidecar takes while it starts, and some more: 16Mi.
const LEAST_SIDECAR_MEMORY: f64 = 16.0 * 1024.0 * 1024.0;

/// Bounds of a request; of processes too, whether or not the server is a stdio server now.
pub(super) fn limits(spec: &manifest::McpServerSpec, problems: &mut Vec<Problem>) -> Option<config::Limits> {
    let limits = &spec.limits;
    let bytes = quantity::bytes(&limits.request_bytes).filter(|bytes| *bytes > 0);
    if bytes.is_none() {
        problems.push(Problem::invalid("spec.limits.requestBytes", "write a size such as 512Ki or 4Mi"));
    }
    let timeout = some_time("spec.limits.requestTimeout", &limits.request_timeout, "90s or 5m", problems);
    let processes = processes(spec, problems);
    let (timeout, mut processes) = (timeout?, processes?);
    // Whoever waits for a place hears that there is none, and not that the server does not answer.
    processes.queue_ms = processes.queue_ms.min(timeout / 10 * 9);
    Some(config::Limits { request_bytes: bytes?, request_timeout_ms: timeout, processes: Some(processes) })
}

/// How long sessions live and how many there may be.
pub(super) fn sessions(
    spec: &manifest::McpServerSpec,
    seal_with: u8,
    problems: &mut Vec<Problem>,
) -> Option<config::Sessions> {
    let sessions = &spec.sessions;
    let idle = some_time("spec.sessions.idleTimeout", &sessions.idle_timeout, "30m", problems);
    let max_age = some_time("spec.sessions.maxAge", &sessions.max_age, "24h", problems);
    let ttl = some_time("spec.sessions.resume.ttl", &sessions.resume.ttl, "5m", problems);
    let max_bytes = quantity::bytes(&sessions.resume.max_bytes);
    if max_bytes.is_none() {
        problems.push(Problem::invalid("spec.sessions.resume.maxBytes", "write a size such as 512Ki or 1Mi"));
    }
    let total = sessions.total.max(1);
    Some(config::Sessions {
        idle_timeout_ms: idle?,
        max_age_ms: max_age?,
        total,
        per_principal: share(spec, sessions.per_principal, total, SHARE_OF_SESSIONS),
        streams: sessions.streams.max(1),
        on_owner_loss: match sessions.on_owner_loss {
            manifest::OnOwnerLoss::NotFound => config::OnOwnerLoss::NotFound,
            manifest::OnOwnerLoss::Reinitialize => config::OnOwnerLoss::Reinitialize,
        },
        resume: config::Resume { max_bytes: max_bytes?, ttl_ms: ttl? },
        seal_with,
    })
}

/// A sidecar that is killed as soon as it starts leaves its ports to whoever else is in the pod.
pub(super) fn sidecar(resources: Option<&ResourceRequirements>, problems: &mut Vec<Problem>) {
    let limit = resources.and_then(|resources| resources.limits.as_ref()?.get("memory"));
    if limit.is_some_and(is_too_little_memory) {
        problems.push(Problem::invalid(
            "spec.sidecar.resources.limits.memory",
            "the sidecar would be killed before it serves: let it have 16Mi or more",
        ));
    }
}

/// Whether a sidecar that may use no more than this would be killed before it serves.
pub(crate) fn is_too_little_memory(limit: &Quantity) -> bool {
    // Of what is no amount the API server says so, and none at all is no limit.
    quantity::amount(&limit.0).is_some_and(|limit| limit > 0.0 && limit < LEAST_SIDECAR_MEMORY)
}

fn processes(spec: &manifest::McpServerSpec, problems: &mut Vec<Problem>) -> Option<config::Processes> {
    // A server that is none any more may have a pod from before.
    let stdio = spec.transport.stdio.clone().unwrap_or_default();
    let field = |name: &str| format!("spec.transport.stdio.{name}");
    let queue = time(&field("queueTimeout"), &stdio.queue_timeout, "10s", problems);
    let idle = some_time(&field("idleTimeout"), &stdio.idle_timeout, "5m", problems);
    let max_age = stdio.max_age.as_ref().map(|text| some_time(&field("maxAge"), text, "24h", problems));
    let total = stdio.max_processes.max(1);
    Some(config::Processes {
        isolation: match stdio.isolation {
            manifest::Isolation::Session => config::Isolation::Session,
            manifest::Isolation::Principal => config::Isolation::Principal,
            manifest::Isolation::Shared => config::Isolation::Shared,
        },
        total,
        per_principal: share(spec, stdio.max_processes_per_principal, total, SHARE_OF_PROCESSES),
        warm: stdio.warm.min(total),
        queue_ms: queue?,
        idle_ms: idle?,
        max_age_ms: match max_age {
            Some(max_age) => Some(max_age?),
            None => None,
        },
    })
}

/// What one principal may have of a total: what the manifest says, or a part, or all where everybody is the same one.
fn share(spec: &manifest::McpServerSpec, said: Option<u32>, total: u32, part: u32) -> u32 {
    let default = if spec.auth.none.is_some() { total } else { total / part };
    said.unwrap_or(default).clamp(1, total)
}

/// A time in milliseconds, and not none at all.
fn some_time(field: &str, text: &str, example: &str, problems: &mut Vec<Problem>) -> Option<u64> {
    let milliseconds = time(field, text, example, problems)?;
    if milliseconds == 0 {
        problems.push(Problem::invalid(field, format_args!("write a time such as {example}")));
        return None;
    }
    Some(milliseconds)
}

/// A time in milliseconds.
fn time(field: &str, text: &str, example: &str, problems: &mut Vec<Problem>) -> Option<u64> {
    let milliseconds = quantity::duration(text).map(|time: Duration| time.as_millis());
    let milliseconds = milliseconds.and_then(|milliseconds| u64::try_from(milliseconds).ok());
    if milliseconds.is_none() {
        problems.push(Problem::invalid(field, format_args!("write a time such as {example}")));
    }
    milliseconds
}
