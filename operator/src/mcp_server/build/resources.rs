//! What the sidecar's container requests and may use.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::mcp_server::validate::amount;
use crate::settings::Sidecar;

type Quantities = BTreeMap<String, Quantity>;

/// What the manifest names, and of the rest the installation's defaults. A default gives way to what is named: Kubernetes
/// takes a limit for the request where only that is named, and refuses a request above its limit.
pub(super) fn of_sidecar(named: Option<&ResourceRequirements>, defaults: &Sidecar) -> ResourceRequirements {
    let named_of = |pick: fn(&ResourceRequirements) -> &Option<Quantities>| {
        named.and_then(|named| pick(named).clone()).unwrap_or_default()
    };
    let (named_requests, named_limits) = (named_of(|named| &named.requests), named_of(|named| &named.limits));
    let mut requests = defaults.requests.clone();
    for (name, request) in &mut requests {
        if let Some(limit) = named_limits.get(name) {
            request.clone_from(limit);
        }
    }
    requests.extend(named_requests);
    let mut limits = defaults.limits.clone();
    for (name, limit) in &mut limits {
        if let Some(request) = requests.get(name).filter(|request| is_less(limit, request)) {
            limit.clone_from(request);
        }
    }
    limits.extend(named_limits);
    ResourceRequirements { requests: Some(requests), limits: Some(limits), claims: None }
}

/// Whether one is less than the other. Of what is no amount the API server says so.
fn is_less(one: &Quantity, other: &Quantity) -> bool {
    matches!((amount(&one.0), amount(&other.0)), (Some(one), Some(other)) if one < other)
}
