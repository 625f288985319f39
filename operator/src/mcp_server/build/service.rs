//! The Service: the address of the server, for clients and for its own new replicas.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use longshore_crds::mcp_server::ObjectMetadata;
use longshore_sidecar_config::ports;

use super::{metadata, peers};
use crate::mcp_server::validate::ValidatedServer;
use crate::names;

/// The port of the Service. URLs need not name it.
const PORT: i32 = 80;

pub(super) fn build(server: &ValidatedServer) -> Service {
    let mut metadata = metadata(server, server.names.service());
    let ObjectMetadata { labels, annotations } = &server.service;
    // None of them is Longshore's.
    metadata.labels.get_or_insert_default().extend(labels.clone());
    metadata.annotations = (!annotations.is_empty()).then(|| annotations.clone());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(names::pod_selector(&server.identity.name)),
            ports: Some(vec![
                ServicePort {
                    name: Some("mcp".to_owned()),
                    app_protocol: Some("http".to_owned()),
                    protocol: Some("TCP".to_owned()),
                    port: PORT,
                    target_port: Some(IntOrString::Int(i32::from(ports::MCP))),
                    ..ServicePort::default()
                },
                // For replicas that DNS does not list yet: here they find one that is ready.
                peers::port(),
            ]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
