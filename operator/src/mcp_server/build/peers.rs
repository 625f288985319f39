//! The headless Service: the addresses of all pods, for the pods themselves.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use longshore_sidecar_config::{Peers, ports};

use super::metadata;
use crate::mcp_server::validate::ValidatedServer;
use crate::names;
use crate::settings::{Place, Settings};

pub(super) fn build(server: &ValidatedServer) -> Service {
    Service {
        metadata: metadata(server, server.names.peers()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            // A pod that drains is not ready, and its sessions are still there.
            publish_not_ready_addresses: Some(true),
            selector: Some(names::pod_selector(&server.identity.name)),
            ports: Some(vec![ServicePort {
                name: Some("peers".to_owned()),
                protocol: Some("TCP".to_owned()),
                port: i32::from(ports::PEERS),
                target_port: Some(IntOrString::Int(i32::from(ports::PEERS))),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Where a sidecar finds the others. The name ends with a dot: a resolver then looks for no other.
pub(super) fn config(server: &ValidatedServer, settings: &Settings) -> Option<Peers> {
    match settings.place {
        Place::Cluster => Some(Peers {
            service: format!(
                "{}.{}.svc.{}.",
                server.names.peers(),
                server.identity.namespace,
                settings.cluster_domain
            ),
        }),
        Place::ThisMachine => None,
    }
}
