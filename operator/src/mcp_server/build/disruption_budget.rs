//! The PodDisruptionBudget of servers with several pods: whoever empties nodes takes them one after the other.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{labelled, own_pods};
use crate::mcp_server::validate::ValidatedServer;

/// None for a single pod: it would have to be away for a moment anyway, and no budget may stand in a node's way.
pub(super) fn build(server: &ValidatedServer) -> Option<PodDisruptionBudget> {
    (server.replicas > 1).then(|| PodDisruptionBudget {
        metadata: labelled(server, server.names.disruption_budget()),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(own_pods(server)),
            // A pod that does not serve anyway may always go, or a server that fails would hold its node for ever.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    })
}
