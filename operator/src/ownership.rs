//! Which pods really are a server's.

use std::sync::Arc;

use crate::mirror::{Mirror, ServerKey};
use crate::view::{DeploymentView, PodView, ReplicaSetView};

/// The pods that really are the server's, whose UID is given.
///
/// A pod's labels prove nothing, since whoever may make pods may write any: the chain of controllers from the pod to
/// the `McpServer` does. Kubernetes keeps such a chain alive only where its controllers count the pod: whoever makes one
/// with the labels of a ReplicaSet that lacks a pod, and names it as the owner, has made that pod. It can be asked for
/// its inventory, and so sees the token that it is asked with (docs/operating.md, "Rights").
pub(crate) fn pods_of(
    deployments: &Mirror<DeploymentView>,
    replica_sets: &Mirror<ReplicaSetView>,
    pods: &Mirror<PodView>,
    server: &ServerKey,
    uid: &str,
) -> Vec<Arc<PodView>> {
    let deployments = deployments.of_server(server);
    let replica_sets = replica_sets.of_server(server);
    let is_deployment = |candidate: &str| {
        deployments.values().any(|it| it.live.uid == candidate && it.live.controller.as_deref() == Some(uid))
    };
    let is_replica_set = |candidate: &str| {
        replica_sets
            .values()
            .any(|it| it.uid == candidate && it.controller.as_deref().is_some_and(is_deployment))
    };
    let pods = pods.of_server(server).into_values();
    pods.filter(|pod| pod.controller.as_deref().is_some_and(is_replica_set)).collect()
}
