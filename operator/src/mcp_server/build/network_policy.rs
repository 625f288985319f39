//! The NetworkPolicy: callers reach the sidecar, the control plane its admin port, the other pods of the same server
//! its port for them, and nobody the server itself.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use longshore_sidecar_config::ports;

use super::{metadata, own_pods};
use crate::mcp_server::validate::ValidatedServer;
use crate::names;
use crate::settings::Settings;

/// The label that every namespace has, with its name.
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) fn build(server: &ValidatedServer, settings: &Settings) -> NetworkPolicy {
    let admin_peers =
        std::iter::once(control_plane(settings)).chain(settings.metrics_from.iter().cloned().map(namespace));
    let callers: Vec<_> = settings.callers_from.iter().cloned().map(namespace).collect();
    NetworkPolicy {
        metadata: metadata(server, server.names.network_policy()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(own_pods(server)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![
                // From anywhere, if nobody says otherwise: who may call is the sidecar's decision.
                NetworkPolicyIngressRule {
                    from: (!callers.is_empty()).then_some(callers),
                    ports: Some(vec![port(ports::MCP)]),
                },
                NetworkPolicyIngressRule {
                    from: Some(admin_peers.collect()),
                    ports: Some(vec![port(ports::ADMIN)]),
                },
                NetworkPolicyIngressRule {
                    from: Some(vec![same_server(server)]),
                    ports: Some(vec![port(ports::PEERS)]),
                },
            ]),
            egress: None,
        }),
    }
}

fn port(port: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(port))),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    }
}

/// The pods of this server. A peer without a selector of namespaces is in the policy's own.
fn same_server(server: &ValidatedServer) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(own_pods(server)), ..NetworkPolicyPeer::default() }
}

/// The operator and the catalog, and no other pods of their namespace.
fn control_plane(settings: &Settings) -> NetworkPolicyPeer {
    let namespace_labels = [(NAMESPACE_NAME_LABEL.to_owned(), settings.control_plane_namespace.clone())];
    let pod_labels = [(names::NAME_LABEL.to_owned(), names::CONTROL_PLANE.to_owned())];
    NetworkPolicyPeer {
        pod_selector: Some(selector(pod_labels.into())),
        ..namespace(namespace_labels.into())
    }
}

fn namespace(labels: BTreeMap<String, String>) -> NetworkPolicyPeer {
    NetworkPolicyPeer { namespace_selector: Some(selector(labels)), ..NetworkPolicyPeer::default() }
}

fn selector(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }
}
