//! The headless Service: the addresses of all pods, for the pods themselves.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use longshore_sidecar_config::{Peers, ports};

use super::labelled;
use crate::mcp_server::validate::ValidatedServer;
use crate::names;
use crate::settings::{Place, Settings};

pub(super) fn build(server: &ValidatedServer) -> Service {
    Service {
        metadata: labelled(server, server.names.peers()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            // A pod that drains is not ready, and its sessions are still there.
            publish_not_ready_addresses: Some(true),
            selector: Some(names::pod_selector(&server.identity.name)),
            ports: Some(vec![port()]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Where a sidecar finds the others.
pub(super) fn config(server: &ValidatedServer, settings: &Settings) -> Option<Peers> {
    match settings.place {
        Place::Cluster => {
            Some(Peers { service: name(&server.names.peers(), &server.identity.namespace, settings) })
        }
        Place::ThisMachine => None,
    }
}

/// Where a sidecar finds one of the others that is ready, while DNS does not list it. The name is told by an argument
/// of the container, so that sidecars of older releases are not told what they do not understand.
pub(super) fn entry(server: &ValidatedServer, settings: &Settings) -> String {
    name(&server.names.service(), &server.identity.namespace, settings)
}

/// The name of a Service. It ends with a dot: a resolver then looks for no other.
fn name(service: &str, namespace: &str, settings: &Settings) -> String {
    format!("{service}.{namespace}.svc.{}.", settings.cluster_domain)
}

/// The port of the replicas among themselves, as it is in a pod.
pub(super) fn port() -> ServicePort {
    ServicePort {
        name: Some("peers".to_owned()),
        protocol: Some("TCP".to_owned()),
        port: i32::from(ports::PEERS),
        target_port: Some(IntOrString::Int(i32::from(ports::PEERS))),
        ..ServicePort::default()
    }
}
