//! The condition *Isolated*. Pure.

use longshore_sidecar_config::inventory::ExposedSocket;

use super::pod_roles::PodRoles;
use super::{Observation, PodFacts, Verdict, before, is_silent, verdict};
use crate::mcp_server::condition::{ConditionType, Reason, Truth};

/// Containers that a mesh injects, and the user that each runs as by default. They listen for the pod, and pass on to its
/// address, where a server on loopback is not.
const MESHES: [(&str, u32); 2] = [("istio-proxy", 1337), ("linkerd-proxy", 2102)];

/// What a mesh listens at in a pod that has no container of it: its node's proxy does, in the pod's network namespace, for
/// the pod's own connections and for those of others.
const PORTS_OF_AMBIENT: [u16; 3] = [15001, 15006, 15008];

/// Whether nothing but a sidecar is reached at the address of a pod.
pub(super) fn isolated(observed: &Observation<'_>, roles: &PodRoles<'_>, connected: &Verdict) -> Verdict {
    let looked = roles.serves.iter().copied().chain(roles.speaker).filter_map(around);
    // Of several pods, one that is exposed.
    let Some(sockets) = looked.max_by_key(Vec::len) else {
        let silent = roles.speaker.is_some_and(is_silent);
        if let Some(condition) = before(observed, ConditionType::Isolated, Truth::False).filter(|_| silent) {
            return verdict(Truth::False, Reason::ListensBeyondLoopback, condition.message.clone());
        }
        if let Some(condition) = before(observed, ConditionType::Isolated, Truth::True).filter(|_| silent) {
            return verdict(Truth::True, Reason::LoopbackOnly, condition.message.clone());
        }
        if connected.reason == Reason::SidecarUnreachable {
            return verdict(Truth::Unknown, connected.reason, connected.message.clone());
        }
        return verdict(Truth::Unknown, Reason::NoPod, "no sidecar has checked yet");
    };
    if sockets.is_empty() {
        return verdict(
            Truth::True,
            Reason::LoopbackOnly,
            "nothing but the sidecar listens on the pod's address",
        );
    }
    let sockets: Vec<_> =
        sockets.iter().map(|socket| format!("{} port {}", socket.address, socket.port)).collect();
    verdict(
        Truth::False,
        Reason::ListensBeyondLoopback,
        format!(
            "the server listens on {}: where network policies are not enforced, it can be reached there around the \
             sidecar; make it listen on 127.0.0.1",
            sockets.join(", ")
        ),
    )
}

/// Where a pod can be reached around its sidecar, if that one has looked.
fn around(facts: &PodFacts) -> Option<Vec<&ExposedSocket>> {
    let is_of_mesh = |socket: &&ExposedSocket| {
        let is_its = |(name, user)| {
            socket.uid == Some(user) && facts.pod.others.iter().any(|other| other.name == name)
        };
        MESHES.into_iter().any(is_its) || facts.pod.ambient && PORTS_OF_AMBIENT.contains(&socket.port)
    };
    let exposed = &facts.report.summary()?.exposed;
    Some(exposed.iter().filter(|socket| !is_of_mesh(socket)).collect())
}
